"""`viewset_tools` and `model_tools`: errors at start-up, and encoding of a model's values as JSON."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, time
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import models, transaction
from django.http import StreamingHttpResponse
from django.test.utils import isolate_apps
from rest_framework import serializers, viewsets
from rest_framework.response import Response

from tools_app.catalog.kinds.django import models as rows
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.tool_api.results import CallCancelled, ToolError
from tools_app.models import ApiKey, Change, Secret, Tenant, Via
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


class Linked(serializers.HyperlinkedModelSerializer[User]):
    class Meta:
        model = User
        fields = ("url", "username")


class Nesting(serializers.Serializer[Any]):
    people = Linked(many=True)


class Linking(Plain):
    serializer_class = Linked


class NestedLinking(Plain):
    serializer_class = Nesting


def everyone(person: User, tenant: str) -> Any:
    return User.objects.all()


def test_a_viewset_can_be_decorated_and_registering_it_again_is_no_duplicate() -> None:
    decorated = viewset_tools(actions=["list"], name="plain")(Plain)
    assert decorated is viewset_tools(Plain, actions=["list", "list"], name="plain") is Plain
    assert python.registered("plain_list").needs_person


@pytest.mark.parametrize(
    ("viewset", "options", "message"),
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
        (Linking, {"actions": ["list"], "name": "linking"}, "'url' of its serializer is a link"),
        (NestedLinking, {"actions": ["list"], "name": "nested"}, "'people.url' of its serializer is a link"),
    ],
)
def test_a_viewset_that_cannot_be_tools_fails_at_start(viewset: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        viewset_tools(viewset, **options)


@pytest.mark.parametrize(
    ("model", "fields", "options", "message"),
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
    model: Any, fields: Sequence[str], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
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
    assert shown["price__lte"]["type"] == ["number", "string"]
    assert shown["due__gte"]["format"] == "date"
    assert not {"about", "parent_id__gte", "code__contains"} & shown.keys()
    assert properties("get_item").keys() == {"code"}
    field = Item._meta.get_field("at")
    with pytest.raises(ToolError, match=r"at: .*format"):
        rows._converted(field, "at", "x")


def test_values_are_shown_as_json() -> None:
    values = {"a": [Decimal("1.50"), time(1, 2), float("inf"), 1.5, None], "b": (True, object)}
    assert rows._json_value(values) == {"a": ["1.50", "01:02:00", None, 1.5, None], "b": [True, str(object)]}


def test_a_value_that_json_cannot_hold_spoils_no_list() -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = {"a": [deep]}
    encoded = rows._json_value({"n": [2**63, -(2**63), 2**63 - 1, 10**4000], "t\ud800": "\ud800é", "deep": deep})
    assert encoded["n"] == [str(2**63), -(2**63), 2**63 - 1, "…"]
    assert encoded["t?"] == "?é"
    assert orjson.dumps(encoded).count(b"{") == 17


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("date_joined", "0001-01-01T00:00:00+14:00", "out of range"),
        ("date_joined", "9999-12-31T23:59:59-14:00", "out of range"),
        ("date_joined", "2026-02-30T00:00:00Z", "date"),
    ],
)
def test_a_time_that_no_database_holds_is_refused(field: str, value: str, message: str) -> None:
    with pytest.raises(ToolError, match=f"{field}: .*{message}"):
        rows._converted(User._meta.get_field(field), field, value)


def test_a_time_without_an_offset_is_utc() -> None:
    joined = User._meta.get_field("date_joined")
    assert rows._converted(joined, "at", "2026-01-01T02:00:00") == datetime(2026, 1, 1, 2, tzinfo=UTC)
    assert rows._converted(joined, "at", "2026-01-01T02:00:00+02:00") == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def person(transactional_db: None) -> User:
    return User.objects.create_superuser("root")


Run = Callable[..., Any]


@pytest.fixture
def run(context: Any, person: User) -> Run:
    """Run a registered tool for a superuser."""
    caller = SimpleNamespace(
        person_id=person.pk, tenant_id=context.caller.tenant_id, tenant_slug="acme", remote_address=""
    )
    context.caller = caller

    def call(name: str, /, **arguments: Any) -> Any:
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


def test_a_stream_ends_with_its_call(run: Run, context: Any) -> None:
    class Slow(Plain):
        def list(self, request: Any) -> Any:
            return StreamingHttpResponse(self.parts())

        def parts(self) -> Any:
            yield b"a"
            context._cancelled.set()
            yield b"b"
            pytest.fail("it was read on")

    viewset_tools(Slow, actions=["list"], name="slow")
    with pytest.raises(CallCancelled):
        run("slow_list")


def test_a_stream_is_read_no_longer_than_the_time_limit(run: Run) -> None:
    class Endless(Plain):
        def list(self, request: Any) -> Any:
            return StreamingHttpResponse(b"" for _ in iter(int, 1))

    viewset_tools(Endless, actions=["list"], name="endless", timeout=0.05)
    with pytest.raises(ToolError, match="in time"):
        run("endless_list")


def test_what_a_view_changes_in_the_hub_is_in_the_change_log_with_the_person(run: Run, person: User) -> None:
    class Titles(serializers.ModelSerializer[Tenant]):
        class Meta:
            model = Tenant
            fields = ("id", "name")

    class Tenants(viewsets.ModelViewSet[Tenant]):
        queryset = Tenant.objects.all()
        serializer_class = Titles

        def perform_destroy(self, instance: Tenant) -> None:
            instance.name = "half"
            instance.save()
            raise PermissionDenied

    tenant = Tenant.objects.create(slug="toolbox", name="Toolbox")
    viewset_tools(Tenants, actions=["partial_update", "destroy"], name="tenant")
    run("tenant_partial_update", id=str(tenant.pk), name="Workshop")
    change = Change.objects.get()
    assert (change.person_name, change.via, change.after) == (person.username, Via.TOOL, '{"name":"Workshop"}')
    assert run("tenant_destroy", id=str(tenant.pk)).is_error
    tenant.refresh_from_db()
    assert (tenant.name, Change.objects.count()) == ("Workshop", 1)


def test_what_an_app_changes_in_a_transaction_of_its_own_is_recorded_too_and_the_rest_is_its_affair(run: Run) -> None:
    class Renaming(Plain):
        def create(self, request: Any) -> Response:
            request.user.first_name = "A"
            request.user.save()
            with transaction.atomic():
                request.user.last_name = "B"
                request.user.save()
            return Response({})

    viewset_tools(Renaming, actions=["create"], name="renaming")
    run("renaming_create")
    assert [change.after for change in Change.objects.all()] == ['{"last_name":"B"}']
