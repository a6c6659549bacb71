"""Error pages: they say what happened and whom to ask, and nothing about other tenants."""

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tools_app.web.admin import errors


def test_a_member_is_told_which_admins_to_ask(as_: Any, page: Any, acme: Any) -> None:
    response = as_("auditor").get(page("tool", "delete", acme.tool))
    text = response.content.decode()
    assert response.status_code == 403
    assert errors.FORBIDDEN.text in text
    assert "admin, teammate (admins of Acme)" in text
    assert reverse("admin:index") in text


def test_an_object_of_another_tenant_and_a_missing_one_are_told_alike(as_: Any, page: Any, globex: Any) -> None:
    client, foreign = as_("admin"), page("tool", "change", globex.tool)
    missing = foreign.replace(str(globex.tool.pk), "00000000-0000-7000-8000-000000000000")
    pages = [client.get(address) for address in (foreign, missing)]
    assert [response.status_code for response in pages] == [404, 404]
    one, other = (re.sub(r'value="\w{64}"', "", response.content.decode()) for response in pages)
    assert errors.NOT_FOUND.text in one
    assert "teammate (admin of Acme)" in one
    assert "globex" not in one.lower()
    assert one == other


@pytest.mark.parametrize("who", ["outsider", "anonymous", "superuser"])
def test_who_has_nobody_else_to_ask_asks_the_operator(as_: Any, who: str) -> None:
    response = as_(who).get("/nothing/")
    assert response.status_code == 404
    assert errors.ASK_OPERATOR in response.content.decode()


def test_an_error_leads_to_a_page_that_the_person_may_open(as_: Any) -> None:
    home, connections = (f'href="{reverse(name)}"' for name in ("admin:index", "connections"))
    for who, link, other in (
        ("outsider", connections, home),
        ("anonymous", home, connections),
        ("operator", home, connections),
    ):
        text = as_(who).get("/nothing/").content.decode()
        assert link in text, who
        assert "See your connections" not in text or link == connections, who
        assert "Go to the overview" not in text or link == home, who
        if who != "operator":
            assert other not in text, who


def test_a_form_without_its_token_is_told_to_be_opened_again(as_: Any, people: Any, page: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(people["admin"])
    response = client.post(page("tool", "add"), {"name": "x"})
    assert response.status_code == 403
    assert errors.NOT_CONFIRMED.text in response.content.decode()
    assert f'href="{page("tool", "add")}"' in response.content.decode()


def test_a_host_that_is_not_the_hubs_gets_a_page(db: None) -> None:
    response = Client(headers={"Host": "elsewhere.example"}).get("/admin/")
    assert response.status_code == 400
    assert errors.BAD_REQUEST.title in response.content.decode()


def test_a_failure_is_told_without_the_database(
    as_: Any, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    client = as_("admin")
    client.raise_request_exception = False

    def fail(*_: Any) -> None:
        raise RuntimeError("hush")

    monkeypatch.setattr("tools_app.web.dashboard.dashboard.context_of", fail)
    response = client.get("/admin/")
    assert response.status_code == 500
    assert errors.BROKEN.title in response.content.decode()
    assert "hush" not in response.content.decode()
    with django_assert_num_queries(0):
        errors.server_error(response.wsgi_request)


def test_the_api_keeps_its_problem_details(as_: Any) -> None:
    response = as_("admin").get("/api/v1/nothing/")
    assert (response.status_code, response["Content-Type"]) == (404, "application/problem+json")
