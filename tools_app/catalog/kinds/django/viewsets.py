"""Tools of viewsets of Django REST framework: one for each action, described by the schema of the view itself.

drf-spectacular describes an action as a small OpenAPI document, which the parser of API sources reads.
"""

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from django.core.exceptions import ImproperlyConfigured
from django.urls import URLPattern
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.settings import patched_settings
from rest_framework.relations import HyperlinkedRelatedField
from rest_framework.routers import SimpleRouter
from rest_framework.serializers import BaseSerializer, ListSerializer
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSetMixin

from tools_app.catalog.kinds.base import ToolDefinition
from tools_app.catalog.kinds.django.view_calls import ViewCall
from tools_app.catalog.kinds.openapi.config import parse_operation
from tools_app.catalog.kinds.openapi.documents import naming
from tools_app.catalog.kinds.openapi.documents.operations import Operation, annotations_of, parse
from tools_app.catalog.kinds.openapi.documents.reader import UnreadableDocument
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.kinds.python import signature
from tools_app.models import TaskSupport
from tools_app.protocol.schema_keywords import subschemas

# The settings of the hub's own API do not apply to the views of other apps.
NEUTRAL: Final[dict[str, Any]] = {
    "PREPROCESSING_HOOKS": [],
    "POSTPROCESSING_HOOKS": [],
    "ENUM_NAME_OVERRIDES": {},
    "SCHEMA_PATH_PREFIX": "",
    "OAS_VERSION": "3.1.0",
    "COMPONENT_SPLIT_REQUEST": True,
}


# Formats that JSON Schema validates, more strictly than Django and its settings do, or otherwise.
FORMATS: Final = frozenset({"date-time", "date", "time", "duration", "uri", "email", "ipv4", "ipv6", "uuid"})
# Serializers within serializers.
MAX_NESTED: Final = 10


@dataclass(frozen=True)
class Action:
    """An action of a viewset: its name, its HTTP method, and the URL that a router gives it."""

    viewset: Any
    name: str
    method: str
    url: URLPattern

    @property
    def place(self) -> str:
        """Its location in the code."""
        return f"{signature.place_of(self.viewset)}.{self.name}"

    def pattern(self, viewset: Any) -> URLPattern:
        """Return the URL with this action of `viewset` alone."""
        callback: Any = self.url.callback
        view = viewset.as_view({self.method: self.name}, **callback.initkwargs)
        return URLPattern(self.url.pattern, view, self.url.default_args, self.url.name)


def register(
    viewset: type[Any], actions: Sequence[str], *, name: str | None = None, timeout_seconds: float = 60.0
) -> list[python.PythonFunction]:
    """Register a tool for each of `actions` of a viewset, named `name` or its model, and the action.

    Raises ImproperlyConfigured for a class that is no viewset, an action that it does not have, one whose schema
    cannot be a tool, and a serializer with links; also for invalid or duplicate names, as `python.register` does.
    """
    place = signature.place_of(viewset)
    if not (inspect.isclass(viewset) and issubclass(viewset, ViewSetMixin) and issubclass(viewset, APIView)):
        raise ImproperlyConfigured(f"{place} is no viewset of Django REST framework.")
    if isinstance(actions, str) or not actions:
        raise ImproperlyConfigured(f'{place}: list the actions that become tools, such as ["list", "retrieve"].')
    queryset: Any = getattr(viewset, "queryset", None)
    if not name and queryset is None:
        raise ImproperlyConfigured(f'{place} has no queryset to be named after. Give its tools a name: name="order".')
    base = name or str(queryset.model._meta.model_name)
    router = SimpleRouter()
    router.register(base, viewset, basename=base)
    found = {action: (method, url) for url in router.urls for method, action in url.callback.actions.items()}
    missing = [action for action in actions if action not in found]
    if missing:
        known = ", ".join(sorted(found))
        raise ImproperlyConfigured(f"{place} has no action {missing[0]!r}. Its actions are: {known}.")
    later = [action for action in actions if inspect.iscoroutinefunction(getattr(viewset, action))]
    if later:
        raise ImproperlyConfigured(f"{place}.{later[0]} is asynchronous, which Django REST framework does not support.")
    return [
        python.add(_function(Action(viewset, action, *found[action]), f"{base}_{action}", timeout_seconds))
        for action in dict.fromkeys(actions)
    ]


def _function(action: Action, name: str, timeout_seconds: float) -> python.PythonFunction:
    # What clients and models accept, as for operations of API sources.
    if len(name) > naming.MAX_NAME:
        raise ImproperlyConfigured(f"{action.place}: {name!r} has more than {naming.MAX_NAME} characters. Set a name.")
    operation = _operation(action)
    if (link := _linked(_serializer(action))) is not None:
        # The hub serves no URLs of the app to link to.
        raise ImproperlyConfigured(
            f"{action.place}: {link!r} of its serializer is a link to a view of the app, and the hub serves none of "
            "them. Use a serializer with primary keys."
        )
    generated = operation.definition
    definition = ToolDefinition(
        name=name,
        title=generated["title"] or name.replace("_", " ").replace("-", " ").capitalize(),
        description=generated["description"],
        input_schema=_input_schema(action, generated["input_schema"]),
        output_schema=None,
        annotations={**annotations_of(operation.method), "openWorldHint": False},
    )
    return python.PythonFunction(
        definition,
        background=False,
        timeout_seconds=timeout_seconds,
        task=TaskSupport.NEVER,
        run=ViewCall(name, action.pattern(action.viewset), parse_operation(generated["config"]), timeout_seconds),
        place=action.place,
        needs_person=True,
    )


def _input_schema(action: Action, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the input schema, which what the view answers with matches: a row can be read, changed and sent back.

    A serializer checks the forms of its fields itself, with formats of its own. Its read-only fields are ignored.
    """
    for _, part in subschemas(schema):
        if part.get("format") in FORMATS:
            part["description"] = f"{part.get('description', '')} Usual format: {part.pop('format')}.".lstrip()
        # Python's classes have letters of all scripts.
        if "\\w" in part.get("pattern", ""):
            del part["pattern"]
    fields = getattr(_serializer(action), "fields", {})
    ignored = [
        re.escape(name) for name, field in fields.items() if field.read_only and name not in schema["properties"]
    ]
    if ignored and action.method not in ("get", "delete"):
        schema["patternProperties"] = {f"^({'|'.join(ignored)})$": {"description": "Read-only: ignored."}}
    return schema


def _serializer(action: Action) -> BaseSerializer[Any] | None:
    view: Any = action.url.callback
    serializer = view.initkwargs.get("serializer_class") or getattr(action.viewset, "serializer_class", None)
    return serializer() if inspect.isclass(serializer) and issubclass(serializer, BaseSerializer) else None


def _linked(serializer: Any, depth: int = 0) -> str | None:
    """Return the name of a field that is a link, of a nested serializer too."""
    if isinstance(serializer, ListSerializer):
        serializer = serializer.child
    for name, field in getattr(serializer, "fields", {}).items():
        one = getattr(field, "child_relation", field)
        if isinstance(one, HyperlinkedRelatedField):
            return str(name)
        if isinstance(one, BaseSerializer) and depth < MAX_NESTED and (inner := _linked(one, depth + 1)) is not None:
            return f"{name}.{inner}"
    return None


def _operation(action: Action) -> Operation:
    viewset = action.viewset
    if not any("schema" in vars(one) for one in viewset.__mro__ if one is not APIView):
        # It brings no schema of its own.
        viewset = type(viewset.__name__, (viewset,), {"schema": AutoSchema(), "__doc__": viewset.__doc__})
    generator: Any = SchemaGenerator(patterns=[action.pattern(viewset)])  # type: ignore[no-untyped-call]
    try:
        with patched_settings(NEUTRAL), GENERATOR_STATS.silence():
            document = generator.get_schema(request=None, public=True)
        for operation in (one for path in document["paths"].values() for one in path.values()):
            if "requestBody" in operation:
                # Its fields then become arguments. drf-spectacular leaves it out where the schema is written by hand.
                operation["requestBody"]["required"] = True
        parsed = parse(orjson.dumps(document, default=str))
    except (AssertionError, AttributeError, LookupError, TypeError, UnreadableDocument) as problem:
        raise ImproperlyConfigured(f"{action.place}: drf-spectacular cannot describe it: {problem}") from problem
    if not parsed.operations:
        reason = parsed.skipped[0].reason if parsed.skipped else "its schema is excluded."
        raise ImproperlyConfigured(f"{action.place}: {reason}")
    return parsed.operations[0]
