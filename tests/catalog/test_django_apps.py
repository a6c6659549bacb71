"""What `viewset_tools` and `model_tools` refuse while Django starts, and how values of a model become JSON."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import time
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.test.utils import isolate_apps
from rest_framework import serializers, viewsets
from rest_framework.response import Response

from tools_app.catalog.django_apps import models as rows
from tools_app.catalog.kinds import python
from tools_app.models import ApiKey, Secret
from tools_app.tool_api.results import CallCancelled, ToolError
from tools_app.toolkit import model_tools, viewset_tools

pytestmark = pytest.mark.usefixtures("registries")


class Plain(viewsets.ViewSet):
    serializer_class = serializers.Serializer

    def list(self, request: Any) -> Response:
        return Response([])


class Broken(Plain):
    schema = object()


class Later(Plain):
    async def list(self, request: Any) -> Response:
        return Response([])


class Hidden(Plain):
    schema = None


def everyone(person: User, tenant: str) -> Any:
    return User.objects.all()


def test_a_viewset_can_be_decorated_and_registering_it_again_is_no_duplicate() -> None:
    decorated = viewset_tools(actions=["list"], name="plain")(Plain)
    assert decorated is viewset_tools(Plain, actions=["list", "list"], name="plain") is Plain
    assert python.registered("plain_list").needs_person


@pytest.mark.parametrize(
    ("viewset", "options", "said"),
    [
        (Response, {"actions": ["list"]}, "is no viewset"),
        (lambda: None, {"actions": ["list"]}, "is no viewset"),
        (Plain, {"actions": []}, "list the actions"),
        (Plain, {"actions": "list"}, "list the actions"),
        (Plain, {"actions": ["list"]}, "has no queryset to be named after"),
        (Plain, {"actions": ["list", "burn"], "name": "plain"}, "has no action 'burn'. Its actions are: list."),
        (Plain, {"actions": ["list"], "name": "p" * 44}, "more than 48 characters"),
        (Plain, {"actions": ["list"], "name": "p q"}, "cannot be a tool's name"),
        (Plain, {"actions": ["list"], "name": "plain", "timeout": 0}, "time limit"),
        (Broken, {"actions": ["list"], "name": "broken"}, "cannot describe it: "),
        (Later, {"actions": ["list"], "name": "later"}, "Later.list is asynchronous"),
        (Hidden, {"actions": ["list"], "name": "hidden"}, "schema"),
    ],
)
def test_a_viewset_that_cannot_be_tools_fails_at_start(viewset: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=said):
        viewset_tools(viewset, **options)


@pytest.mark.parametrize(
    ("model", "fields", "options", "said"),
    [
        (User, ["username", "nick"], {}, "has no field 'nick'. Its fields are: id, password"),
        (User, ["password"], {}, "'password' looks like a secret"),
        (User, "__all__", {}, "list the fields"),
        (User, [], {}, "list the fields"),
        (User, ["groups"], {}, "no column"),
        (User, ["logentry"], {}, "no column"),
        (User, ["id"], {"queryset": User.objects.all()}, "must be a function"),
        (User, ["id"], {"sensitive": ["password"]}, "in sensitive, but not in fields"),
        (Secret, ["ciphertext"], {}, "holds bytes"),
    ],
)
def test_a_model_that_cannot_be_tools_fails_at_start(
    model: Any, fields: Sequence[str], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=said):
        model_tools(model, fields=fields, **{"queryset": everyone, **options})


@isolate_apps("tools_app")
def test_a_primary_key_of_several_fields_fails_at_start() -> None:
    class Pair(models.Model):
        pk = models.CompositePrimaryKey("left", "right")
        left = models.IntegerField()
        right = models.IntegerField()

        class Meta:
            app_label = "tools_app"

        def __str__(self) -> str:
            return "one"

    with pytest.raises(ImproperlyConfigured, match="several fields"):
        model_tools(Pair, fields=["left"], queryset=everyone)


@isolate_apps("tools_app")
def test_a_secret_primary_key_fails_at_start_even_if_it_is_not_listed() -> None:
    class Ticket(models.Model):
        access_token = models.CharField(max_length=100, primary_key=True)
        title = models.CharField(max_length=100)

        class Meta:
            app_label = "tools_app"

        def __str__(self) -> str:
            return self.title

    with pytest.raises(ImproperlyConfigured, match="'access_token' looks like a secret"):
        model_tools(Ticket, fields=["title"], queryset=everyone)


def properties(name: str) -> dict[str, Any]:
    return dict(python.registered(name).definition.input_schema["properties"])


def test_a_sensitive_field_is_shown_and_is_no_filter_and_no_order() -> None:
    model_tools(User, fields=["id", "password"], sensitive=["password"], queryset=everyone, description="All of them.")
    shown = properties("list_user")
    assert not any(name.startswith("password") for name in shown)
    assert shown["order"]["enum"] == ["id", "-id"]
    assert python.registered("list_user").definition.description == "List users, a page at a time. All of them."


@isolate_apps("tools_app")
def test_the_type_of_a_field_decides_its_filters() -> None:
    class Item(models.Model):
        code = models.UUIDField(primary_key=True)
        order = models.IntegerField()
        price = models.DecimalField(max_digits=5, decimal_places=2)
        due = models.DateField()
        about = models.JSONField()
        at = models.TimeField()
        parent = models.ForeignKey("self", on_delete=models.CASCADE)

        class Meta:
            app_label = "tools_app"

        def __str__(self) -> str:
            return "one"

    fields = ["code", "order", "price", "due", "about", "at", "parent"]
    model_tools(Item, fields=fields, queryset=everyone)
    shown = properties("list_item")
    assert shown["code"]["format"] == shown["parent_id"]["format"] == "uuid"
    assert shown["order"]["enum"][0] == "code"
    assert shown["order__exact"]["type"] == "integer"
    assert shown["price__lte"] == {"type": "number"}
    assert shown["due__gte"]["format"] == "date"
    assert not {"about", "parent_id__gte", "code__contains"} & shown.keys()
    assert properties("get_item").keys() == {"code"}
    field = Item._meta.get_field("at")
    with pytest.raises(ToolError, match=r"at: .*format"):
        rows._converted(field, "at", "x")


def test_values_are_shown_as_json() -> None:
    told = {"a": [Decimal("1.50"), time(1, 2), float("inf"), 1.5, None], "b": (True, object)}
    assert rows._json_value(told) == {"a": ["1.50", "01:02:00", None, 1.5, None], "b": [True, str(object)]}


@pytest.fixture
def person(transactional_db: None) -> User:
    return User.objects.create_superuser("root")


Run = Callable[..., Any]


@pytest.fixture
def run(context: Any, person: User) -> Run:
    """Run a registered tool for a person who may see everything."""
    caller = SimpleNamespace(person_id=person.pk, tenant_id=context.caller.tenant_id, tenant_slug="acme")
    context.caller = caller

    def call(name: str, **arguments: Any) -> Any:
        return asyncio.run(python.registered(name).run(arguments, context))  # type: ignore[arg-type]

    return call


def test_a_function_that_returns_other_rows_fails(run: Run) -> None:
    model_tools(Permission, fields=["id"], queryset=everyone)
    with pytest.raises(TypeError, match=r"auth.Permission must return a queryset of them"):
        run("list_permission")


def test_a_page_larger_than_a_result_may_be_is_refused(run: Run, settings: Any) -> None:
    settings.MCPHUB_MAX_RESULT_BYTES = 10
    model_tools(User, fields=["username"], queryset=everyone)
    with pytest.raises(ToolError, match="smaller page_size"):
        run("list_user")


def test_the_order_of_the_rows_is_that_of_the_function_then_that_of_the_model(run: Run) -> None:
    for name in ("b", "a"):
        User.objects.create_user(name)
    model_tools(User, fields=["username"], queryset=lambda _person, _tenant: User.objects.order_by("-username"))
    model_tools(LogEntry, fields=["id"], queryset=lambda _person, _tenant: LogEntry.objects.all())
    model_tools(ApiKey, fields=["name"], queryset=lambda _person, _tenant: ApiKey.objects.all())
    assert [row["username"] for row in run("list_user").structured["rows"]] == ["root", "b", "a"]
    assert run("list_logentry").structured["rows"] == run("list_apikey").structured["rows"] == []


def test_a_call_that_was_cancelled_before_its_thread_began_reads_nothing(run: Run, context: Any) -> None:
    model_tools(User, fields=["username"], queryset=lambda *_: pytest.fail("it was read"))
    context._cancelled.set()
    viewset_tools(Plain, actions=["list"], name="plain")
    for name in ("list_user", "plain_list"):
        with pytest.raises(CallCancelled):
            run(name)
