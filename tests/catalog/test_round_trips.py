"""What a tool returns matches its output schema, and can be sent back as an argument."""

import asyncio
import ipaddress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import orjson
import pydantic
import pytest
from django.contrib.auth.models import User
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.kinds.python import signature
from tools_app.protocol import exact_json
from tools_app.protocol.schema import CompiledSchema
from tools_app.toolkit import viewset_tools

NAIVE = datetime(2026, 1, 1, 10)  # noqa: DTZ001
DAY, HOURS = date(2026, 1, 1), timedelta(days=1, hours=2, microseconds=5)
EAST = timezone(timedelta(hours=2))


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


@dataclass
class Visit:
    at: datetime
    where: Path


class Slot(TypedDict):
    begins: time
    takes: timedelta


class Page(pydantic.BaseModel):
    url: pydantic.AnyUrl
    read: datetime | None
    price: Decimal
    data: pydantic.Base64Bytes


VALUES: list[tuple[Any, Any]] = [
    (datetime, NAIVE),
    (datetime, datetime(2026, 1, 1, 10, 0, 0, 123456, tzinfo=EAST)),
    (pydantic.NaiveDatetime, NAIVE),
    (pydantic.AwareDatetime, NAIVE.replace(tzinfo=UTC)),
    (date, DAY),
    (date | datetime, NAIVE),
    (time, time(10)),
    (time, time(10, 0, 0, 5, tzinfo=EAST)),
    (timedelta, HOURS),
    (timedelta, -HOURS),
    (timedelta, timedelta(days=400)),
    (timedelta, timedelta(0)),
    (Decimal, Decimal("-0.12345678901234567890")),
    (Decimal, Decimal("1E+3")),
    (int, 2**70),
    (float, 0.1),
    (UUID, UUID(int=1)),
    (Colour, Colour.RED),
    (Size, Size.SMALL),
    (Literal[1, "a"], 1),
    (ipaddress.IPv4Address, ipaddress.ip_address("10.0.0.1")),
    (ipaddress.IPv6Address, ipaddress.ip_address("::ffff:10.0.0.1")),
    (ipaddress.IPv6Address, ipaddress.ip_address("fe80::1%eth0")),
    (ipaddress.IPv4Network, ipaddress.ip_network("10.0.0.0/8")),
    (ipaddress.IPv6Interface, ipaddress.ip_interface("fe80::1/10")),
    (pydantic.IPvAnyNetwork, ipaddress.ip_network("::/8")),
    (Path, Path("/a b/é")),
    (pydantic.HttpUrl, pydantic.HttpUrl("https://exämple.org/ä b")),
    (pydantic.AnyUrl, pydantic.AnyUrl("https://example.org/a|b^c")),
    (pydantic.FileUrl, pydantic.FileUrl("file:///a|b")),
    (pydantic.PostgresDsn, pydantic.PostgresDsn("postgres://u:p@h1,h2/d")),
    (pydantic.Base64Bytes, b"\xff\x00"),
    (set[datetime], {NAIVE}),
    (frozenset[Colour], frozenset([Colour.RED])),
    (tuple[time, ...], (time(10),)),
    (tuple[int, timedelta], (1, HOURS)),
    (list[time | None], [time(10), None]),
    (dict[datetime, int], {NAIVE: 1}),
    (Visit, Visit(NAIVE, Path("x"))),
    (Slot, {"begins": time(10), "takes": -HOURS}),
    (Page, Page(url="https://example.org/|", read=NAIVE, price="1.50", data=b"YQ==")),  # type: ignore[arg-type]
]


def arguments_of(hint: Any) -> signature.Signature:
    def take(value: Any) -> None: ...

    take.__annotations__["value"] = hint
    return signature.read(take, {})


@pytest.mark.parametrize(("hint", "value"), VALUES, ids=lambda value: str(value)[:60])
def test_a_value_of_a_type_comes_back_as_it_was_returned(hint: Any, value: Any) -> None:
    output = signature.output_of(hint, "here")
    assert output.schema is not None
    structured = output.package(value).structured
    returned = exact_json.loads(exact_json.dumps(exact_json.with_decimals(structured)))
    assert CompiledSchema(output.schema).problems(returned) == []
    is_wrapped = output.schema.get("required") == ["result"]
    arguments = {"value": returned["result"] if is_wrapped else returned}
    taken = arguments_of(hint)
    assert CompiledSchema(taken.schema).problems(arguments) == []
    assert taken.bind(arguments, None) == {"value": value}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hint", "sent", "value"),
    [
        (datetime, "2026-01-01T10:00", NAIVE),
        (datetime, "2026-01-01 10:00:00", NAIVE),
        (datetime, "2026-01-01t10:00:00z", NAIVE.replace(tzinfo=UTC)),
        (datetime, "tomorrow", None),
        (pydantic.NaiveDatetime, "2026-01-01T10:00:00Z", None),
        (pydantic.AwareDatetime, "2026-01-01T10:00:00", None),
        (time, "10:00", time(10)),
        (time, "10", None),
        (timedelta, "-PT1.5S", timedelta(seconds=-1.5)),
        (timedelta, "1:30", None),
        (pydantic.AnyUrl, "no url", None),
    ],
)
def test_texts_of_times_are_those_of_iso_8601(hint: Any, sent: str, value: Any) -> None:
    taken = arguments_of(hint)
    assert CompiledSchema(taken.schema).accepts({"value": sent}) is (value is not None)
    assert value is None or taken.bind({"value": sent}, None) == {"value": value}  # type: ignore[arg-type]


class Place(serializers.Serializer[Any]):
    opens = serializers.TimeField()


FIELDS: dict[str, tuple[serializers.Field[Any, Any, Any, Any], Any]] = {
    "aware": (serializers.DateTimeField(), NAIVE.replace(tzinfo=EAST)),
    "naive": (serializers.DateTimeField(default_timezone=None), NAIVE),
    "german": (serializers.DateTimeField(format="%d.%m.%Y", input_formats=["%d.%m.%Y"]), NAIVE.replace(tzinfo=UTC)),
    "never": (serializers.DateTimeField(allow_null=True), None),
    "date": (serializers.DateField(format="%d.%m.%Y", input_formats=["%d.%m.%Y"]), DAY),
    "time": (serializers.TimeField(), time(10)),
    "duration": (serializers.DurationField(), -HOURS),
    "decimal": (serializers.DecimalField(5, 2), Decimal("-1.50")),
    "number": (serializers.DecimalField(5, 2, coerce_to_string=False), Decimal("1.50")),
    "address": (serializers.IPAddressField(), "fe80::1"),
    "ipv6": (serializers.IPAddressField(protocol="IPv6"), "::ffff:10.0.0.1"),
    "url": (serializers.URLField(), "https://exämple.org/ä|b"),
    "email": (serializers.EmailField(), "a.b@example.org"),
    "hex": (serializers.UUIDField(format="hex"), UUID(int=1)),
    "urn": (serializers.UUIDField(format="urn"), UUID(int=1)),
    "file": (serializers.FilePathField(path=str(Path(__file__).parent), match="trips.py$"), __file__),
    "json": (serializers.JSONField(), {"a": [1, None]}),
    "several": (serializers.MultipleChoiceField(choices=["a", "b"]), {"a", "b"}),
    "choice": (serializers.ChoiceField(choices=[1, 2], allow_null=True), None),
    "blank": (serializers.ChoiceField(choices=["a"], allow_blank=True), ""),
    "times": (serializers.ListField(child=serializers.TimeField()), [time(10)]),
    "urls": (serializers.DictField(child=serializers.URLField()), {"a": "https://exämple.org"}),
    "slug": (serializers.SlugField(allow_unicode=True), "é-1"),
    "integer": (serializers.IntegerField(), 2**63),
    "place": (Place(), {"opens": time(10)}),
    "places": (Place(many=True), [{"opens": time(10)}]),
    "created": (serializers.DateTimeField(read_only=True), NAIVE.replace(tzinfo=UTC)),
}


@pytest.mark.usefixtures("registries")
def test_a_row_that_a_view_returned_can_be_sent_back(context: Any, transactional_db: None) -> None:
    received: list[Any] = []

    class Row(serializers.Serializer[Any]):
        locals().update({name: field for name, (field, _) in FIELDS.items()})

        def update(self, _row: Any, data: Any) -> Any:
            received.append(data)
            return data | {"created": FIELDS["created"][1]}

    class Rows(viewsets.ViewSet, viewsets.GenericViewSet[Any]):
        serializer_class = Row
        permission_classes = ()
        queryset = User.objects.none()

        def retrieve(self, _request: Request, pk: str) -> Response:
            return Response(Row({name: value for name, (_, value) in FIELDS.items()}).data)

        def update(self, request: Request, pk: str) -> Response:
            row = Row({}, data=request.data)
            row.is_valid(raise_exception=True)
            row.save()
            return Response(row.data)

    viewset_tools(Rows, actions=["retrieve", "update"], name="row")
    person = User.objects.create_superuser("root")

    class Caller:
        person_id, tenant_id, tenant_slug, remote_address = person.pk, context.caller.tenant_id, "acme", ""

    context.caller = Caller

    def call(name: str, arguments: dict[str, Any]) -> Any:
        function = python.registered(name)
        assert CompiledSchema(function.definition.input_schema).problems(arguments) == []
        result = asyncio.run(function.run(arguments, context))
        assert not result.is_error, result.content
        return orjson.loads(result.content[0]["text"])

    row = call("row_retrieve", {"id": 1})
    assert row.keys() == FIELDS.keys()
    changed = call("row_update", {**row, "id": 1})
    assert {name: sorted(value) if name == "several" else value for name, value in changed.items()} == {
        **row,
        "several": ["a", "b"],
    }
    assert "created" not in received[0]
    problems = CompiledSchema(python.registered("row_update").definition.input_schema).problems(
        {**row, "id": 1, "x": 1}
    )
    assert [one.field for one in problems] == ["x"]
