"""Prompts in the admin: templates with placeholders, and functions from code."""

import json
from typing import Any

import pytest

from tools_app.catalog import authoring
from tools_app.catalog import prompt_functions as prompts
from tools_app.models import Prompt, PromptKind

ARGUMENTS = [{"name": "city", "description": "Where?", "required": True, "values": ["Bern", "Oslo"]}]
MESSAGES = [{"role": "user", "text": "How is {city}?"}, {"role": "assistant", "text": 'As JSON: {"city": 1}'}]


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt `review`, and no other."""

    def review(code: str, focus: str = "") -> str:
        """Review some code.

        :param code: What to review.
        :param focus: What to look at.

        """
        return code + focus

    monkeypatch.setattr(prompts, "_functions", {})
    prompts.register(review)


def form_of(tenant: Any, **changes: Any) -> dict[str, Any]:
    form = {
        "tenant": tenant.pk,
        "name": "weather",
        "title": "Weather",
        "description": "Ask for the weather.",
        "enabled": "on",
        "arguments": json.dumps(ARGUMENTS),
        "messages": json.dumps(MESSAGES),
    }
    return form | changes


def errors(response: Any) -> dict[str, list[str]]:
    assert response.status_code == 200
    return dict(response.context["adminform"].form.errors)


def test_an_admin_writes_a_prompt(as_: Any, page: Any, acme: Any) -> None:
    assert as_("admin").post(page("prompt", "add"), form_of(acme.tenant)).status_code == 302
    row = Prompt.objects.get(name="weather")
    assert (row.kind, row.tenant, row.title) == (PromptKind.TEMPLATE, acme.tenant, "Weather")
    assert (row.arguments, row.messages) == (ARGUMENTS, MESSAGES)


def test_a_button_of_the_list_leads_to_the_form(as_: Any, page: Any, acme: Any) -> None:
    response = as_("admin").get(page("prompt", "add_prompt"))
    assert (response.status_code, response["Location"]) == (302, page("prompt", "add"))


def test_a_prompt_needs_no_arguments(as_: Any, page: Any, acme: Any) -> None:
    form = form_of(acme.tenant, arguments="", messages='[{"role": "user", "text": "Hello!"}]')
    assert as_("admin").post(page("prompt", "add"), form).status_code == 302
    assert Prompt.objects.get(name="weather").arguments == []


def test_a_changed_prompt_shows_in_the_form_and_in_the_preview(as_: Any, page: Any, acme: Any) -> None:
    acme.tenant.refresh_from_db()
    before, client, address = acme.tenant.catalog_version, as_("admin"), page("prompt", "change", acme.prompt)
    assert client.post(address, form_of(acme.tenant)).status_code == 302
    text = client.get(address).content.decode()
    assert "&quot;text&quot;: &quot;How is {city}?&quot;" in text
    assert "How is <strong" in text
    acme.tenant.refresh_from_db()
    assert acme.tenant.catalog_version > before


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"arguments": "{}"}, "arguments", "Line 1: enter a JSON list"),
        ({"arguments": "["}, "arguments", "Line 1, column 2"),
        ({"arguments": '["city"]'}, "arguments", "0: must be an object with name, description, required, values."),
        ({"arguments": '[\n{"description": "City"}]'}, "arguments", "Line 2: 0: name is required."),
        ({"arguments": '[{"name": "a b"}]'}, "arguments", "0.name: must be a name of letters"),
        ({"arguments": '[{"name": "city"},\n{"name": "city"}]'}, "arguments", "Line 2: 1.name: another argument"),
        ({"arguments": '[{"name": "city", "required": "yes"}]'}, "arguments", "0.required: must be true or false."),
        (
            {"arguments": '[{"name": "city",\n"values": [1]}]'},
            "arguments",
            "Line 2: 0.values: must be a list of strings",
        ),
        (
            {"arguments": '[{"name": "city", "type": "string"}]'},
            "arguments",
            "0.type: unknown field. Known fields: name,",
        ),
        ({"messages": ""}, "messages", "required"),
        ({"messages": "[]"}, "messages", "Enter at least one message."),
        ({"messages": '["hello"]'}, "messages", "0: must be an object with role, text."),
        ({"messages": '[{"role": "user"}]'}, "messages", "0: text is required."),
        ({"messages": '[{"role": "user", "text": " "}]'}, "messages", "0.text: must be a non-empty string."),
        ({"messages": '[\n{"role": "system", "text": "a"}]'}, "messages", 'Line 2: 0.role: must be "user" or "assist'),
        ({"messages": '[{"role": ["user"], "text": "a"}]'}, "messages", '0.role: must be "user" or "assistant".'),
        (
            {"messages": '[{"role": "user", "text": "a"},\n{"role": "user",\n"text": "{town}"}]'},
            "messages",
            "Line 3: 1.text: {town} is not an argument.",
        ),
        ({"name": "no spaces"}, "name", "Use letters"),
        ({"name": "acme_greet"}, "__all__", "already exists"),
    ],
)
def test_a_fault_is_told_at_its_field(as_: Any, page: Any, acme: Any, changes: Any, field: str, message: str) -> None:
    found = errors(as_("admin").post(page("prompt", "add"), form_of(acme.tenant, **changes)))
    assert list(found) == [field]
    assert message in found[field][0]
    assert not Prompt.objects.filter(name="weather").exists()


def test_what_was_typed_stays_in_the_form_when_something_is_wrong(as_: Any, page: Any, acme: Any) -> None:
    response = as_("admin").post(
        page("prompt", "add"), form_of(acme.tenant, arguments="[ ,]", messages='[ {"odd":  1}]')
    )
    assert "[ {&quot;odd&quot;:  1}]" in response.content.decode()
    assert "[ ,]" in response.content.decode()


def test_a_prompt_cannot_be_added_or_moved_to_a_foreign_tenant(as_: Any, page: Any, acme: Any, globex: Any) -> None:
    client = as_("admin")
    assert "Select a valid choice" in errors(client.post(page("prompt", "add"), form_of(globex.tenant)))["tenant"][0]
    client.post(page("prompt", "change", acme.prompt), form_of(globex.tenant))
    acme.prompt.refresh_from_db()
    assert acme.prompt.tenant == acme.tenant


def test_a_prompt_cannot_take_the_name_of_another(as_: Any, page: Any, acme: Any) -> None:
    client = as_("admin")
    client.post(page("prompt", "add"), form_of(acme.tenant))
    row = Prompt.objects.get(name="weather")
    found = errors(client.post(page("prompt", "change", row), form_of(acme.tenant, name="acme_greet")))
    assert found == {"name": ["This tenant already has a prompt with this name."]}


def test_an_auditor_reads_arguments_and_messages_and_can_change_nothing(as_: Any, page: Any, acme: Any) -> None:
    client, address = as_("auditor"), page("prompt", "change", acme.prompt)
    text = client.get(address).content.decode()
    for shown in ("Suggested: Ann, Ben", "{who}</strong> of acme", "Good day!", "required", "assistant"):
        assert shown in text
    assert "_save" not in text
    assert client.post(address, form_of(acme.tenant)).status_code == 403


def test_what_an_admin_wrote_is_escaped_for_its_readers(as_: Any, page: Any, acme: Any) -> None:
    attack = "<script>alert(1)</script>"
    Prompt.objects.filter(pk=acme.prompt.pk).update(
        arguments=[{"name": "a", "description": attack, "values": [attack]}],
        messages=[{"role": "user", "text": f"{attack}{{a}}{attack}"}],
    )
    text = as_("auditor").get(page("prompt", "change", acme.prompt)).content.decode()
    assert text.count("&lt;script&gt;alert(1)") == 4
    assert "<script>alert" not in text


def test_an_admin_chooses_python_prompts_from_those_that_apps_register(
    as_: Any, page: Any, acme: Any, functions: None
) -> None:
    client, address = as_("admin"), page("prompt", "add_python_prompts")
    assert "Review some code." in client.get(address).content.decode()
    assert client.post(address, {"tenant": acme.tenant.pk, "functions": ["review"]}).status_code == 302
    row = Prompt.objects.get(name="review")
    assert (row.tenant, row.kind, row.description) == (acme.tenant, PromptKind.PYTHON, "Review some code.")
    text = client.get(page("prompt", "change", row)).content.decode()
    assert "What to review." in text
    assert "Declared in code" in text
    assert "Suggested" not in text


def test_python_prompts_are_not_added_to_a_foreign_tenant(as_: Any, page: Any, globex: Any, functions: None) -> None:
    form = {"tenant": globex.tenant.pk, "functions": ["review"]}
    assert as_("admin").post(page("prompt", "add_python_prompts"), form).status_code == 200
    assert not Prompt.objects.filter(name="review").exists()


def test_what_code_declares_is_not_changed_in_the_admin(as_: Any, page: Any, acme: Any, functions: None) -> None:
    (row,) = authoring.add_code_prompts(acme.tenant, ["review"])
    form = form_of(acme.tenant, name="stolen", enabled="")
    assert as_("admin").post(page("prompt", "change", row), form).status_code == 302
    row.refresh_from_db()
    assert (row.name, row.kind, row.messages, row.enabled) == ("review", PromptKind.PYTHON, [], False)


def test_a_prompt_whose_function_is_gone_is_explained(
    as_: Any, page: Any, acme: Any, functions: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = authoring.add_code_prompts(acme.tenant, ["review"])
    monkeypatch.setattr(prompts, "_functions", {})
    found = errors(as_("admin").post(page("prompt", "change", row), {"enabled": "on"}))
    assert "No installed app registers 'review'." in found["__all__"][0]
