"""Every text, JSON and file field of the admin's forms has a maximum length, and rejects longer values.

All forms that pages use are covered: a new form must have maximum lengths, too.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from django import forms
from django.contrib.auth.forms import AuthenticationForm, ReadOnlyPasswordHashField
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import RequestFactory
from django.urls import reverse

from tests.browsers import browser_of
from tools_app.catalog.validation.sizes import MAX_DESCRIPTION_LENGTH, MAX_JSON_BYTES
from tools_app.web.admin.fields import JsonTextField, LinesField
from tools_app.web.admin.site import site

# Their values have a fixed format, or are choices.
SHAPED = (
    forms.BooleanField,
    forms.ChoiceField,
    forms.DateTimeField,
    forms.SplitDateTimeField,
    forms.IntegerField,
    forms.ModelChoiceField,
    forms.UUIDField,
    ReadOnlyPasswordHashField,
)
# Their forms are bounded by the body of a request without a login (64 KiB) and by Django (2.5 MB).
PASSWORDS = forms.PasswordInput


def forms_below(base: type) -> Iterator[type[forms.BaseForm]]:
    for one in base.__subclasses__():
        yield from forms_below(one)
        yield one


def all_forms() -> set[type[forms.BaseForm]]:
    own = {one for one in forms_below(forms.BaseForm) if one.__module__.startswith("tools_app.")}
    names = ("form", "add_form", "change_password_form")
    return own | {getattr(admin, name) for admin in site._registry.values() for name in names if hasattr(admin, name)}


def fields_of(form: type[forms.BaseForm]) -> list[tuple[str, forms.Field]]:
    # Django gives the login's fields their bounds when it makes one.
    found = form().fields if issubclass(form, AuthenticationForm) else form.base_fields
    return [
        (name, field)
        for name, field in found.items()
        if not isinstance(field, SHAPED) and not isinstance(field.widget, PASSWORDS | forms.HiddenInput)
    ]


def test_a_field_has_a_bound_and_refuses_what_is_beyond() -> None:
    found = [(f"{one.__qualname__}.{name}", field) for one in all_forms() for name, field in fields_of(one)]
    assert len(found) > 100
    for name, field in found:
        check(name, field)


def test_so_do_the_fields_that_come_from_models(people: Any) -> None:
    request = RequestFactory().get("/")
    request.user = people["superuser"]
    for admin in site._registry.values():
        if admin.has_add_permission(request):
            for name, field in fields_of(admin.get_form(request)):
                check(f"{admin}.{name}", field)


def check(name: str, field: forms.Field) -> None:
    match field:
        case JsonTextField():
            assert 0 < field.max_bytes <= MAX_JSON_BYTES, name
            wrapped = '["{}"]' if field.kind is list else '{{"x": "{}"}}'
            beyond: Any = wrapped.format("x" * field.max_bytes)
        case LinesField():
            with pytest.raises(ValidationError, match=f"At most {field.max_lines} lines"):
                field.clean("\n".join(f"x{number}" for number in range(field.max_lines + 1)))
            beyond = "x" * (field.max_length + 1)
        case forms.FileField():
            return  # tested with the code that reads the file
        case forms.CharField():
            assert field.max_length, f"give {name} a max_length"
            beyond = "x" * (field.max_length + 1)
        case _:
            raise AssertionError(f"say here what bounds {name}, a {type(field).__name__}")
    try:
        field.clean(beyond)
    except ValidationError as refused:
        assert len(str(refused)) < 1000, f"what {name} refuses is not repeated"  # noqa: PT017 - with the name of the field
    else:
        pytest.fail(f"{name} takes what is beyond its bound")


@pytest.mark.parametrize("kind", ["tool", "resource", "prompt"])
def test_a_description_that_is_too_long_is_told(as_: Any, acme: Any, page: Any, kind: str) -> None:
    response = as_("admin").post(page(kind, "change", acme.row(kind)), {"description": "x" * 20_001})
    assert response.status_code == 200
    assert f"at most {MAX_DESCRIPTION_LENGTH} characters" in str(
        response.context["adminform"].form.errors["description"]
    )


def test_a_file_that_is_too_large_is_told(as_: Any, acme: Any, page: Any) -> None:
    address = page("tenant", "import_configuration", acme.tenant)
    file = SimpleUploadedFile("acme.yaml", b"mcphub: 1\n#".ljust(2_000_001, b"x"))
    response = as_("admin").post(address, {"file": file})
    assert "larger than 2 MB" in str(response.context["form"].errors)


def test_a_form_has_so_many_fields_and_bytes(db: None, settings: Any) -> None:
    browser = browser_of(User.objects.create_superuser("root"))
    limit = settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
    for fields, status in (
        ({f"x{n}": "" for n in range(limit)}, 200),
        ({f"x{n}": "" for n in range(limit + 1)}, 400),
        ({"x": "x" * settings.DATA_UPLOAD_MAX_MEMORY_SIZE}, 400),
    ):
        assert browser.post(reverse("admin:filter_save"), fields, follow=True).status_code == status
