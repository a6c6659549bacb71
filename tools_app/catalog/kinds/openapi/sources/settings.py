"""Settings of API sources: their validation, and how they are saved."""

import re
from collections.abc import Iterator
from typing import Any, Final

from django.utils import timezone

from tools_app.audit.changes import changes
from tools_app.catalog.kinds.http.config import ConfigProblem
from tools_app.catalog.kinds.openapi.config import check_document, checked_base
from tools_app.catalog.kinds.openapi.documents import selection
from tools_app.catalog.models import SECRET_NAME
from tools_app.catalog.validation.items import Faults
from tools_app.core.http.urls import InvalidUrl, parse_url
from tools_app.models import ApiSource

MAX_SOURCES: Final = 100
MAX_ENTRIES: Final = 50
MAX_VALUE_LENGTH: Final = 500


def source_faults(source: ApiSource) -> Faults:
    """Return the errors of a source, by field."""
    faults: Faults = {}
    for name, message in _found(source):
        faults.setdefault(name, []).append(message)
    return faults


def _found(source: ApiSource) -> Iterator[tuple[str, str]]:
    yield from _url_faults(source)
    try:
        check_document(source.servers, source.schemes)
    except ConfigProblem as problem:
        yield problem.field, problem.message
    for name in ("server_variables", "secrets"):
        if not _are_texts(getattr(source, name)):
            yield name, f"Enter an object of at most {MAX_ENTRIES} names with texts as values."
    if fault := selection.faults_of(source.selection):
        yield "selection", fault
    if _are_texts(source.secrets):
        for scheme, secret in source.secrets.items():
            if not re.fullmatch(SECRET_NAME.regex, secret):
                yield "secrets", f"{scheme}: enter the name of a secret."
    same = ApiSource.objects.filter(tenant_id=source.tenant_id)
    if source._state.adding and same.count() >= MAX_SOURCES:  # noqa: SLF001 - documented
        yield "name", f"A tenant has at most {MAX_SOURCES} API sources. Delete one first."


def _url_faults(source: ApiSource) -> Iterator[tuple[str, str]]:
    if source.url:
        try:
            parse_url(source.url)
        except InvalidUrl as problem:
            yield "url", f"Invalid URL: {problem}."
    if source.base_url:
        try:
            checked_base(source.base_url)
        except ConfigProblem as problem:
            yield "base_url", problem.message


def _are_texts(value: Any) -> bool:
    if not isinstance(value, dict) or len(value) > MAX_ENTRIES:
        return False
    return all(
        isinstance(text, str) and "\x00" not in name + text and len(name) <= MAX_VALUE_LENGTH >= len(text)
        for name, text in value.items()
    )


def save_source(source: ApiSource) -> ApiSource:
    """Save a source. The caller has validated it."""
    with changes.change_log_transaction():
        source.updated_at = timezone.now()
        source.save()
    return source
