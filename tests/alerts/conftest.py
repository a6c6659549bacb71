"""Fixtures of the tests of alerts: people at pages (`as_`) and at the REST API (`rest`), and files of a tenant."""

from tests.pages import _no_static_files, as_, page, people
from tests.rest import _fast_and_unthrottled
from tests.rest import as_ as rest
from tests.tenant_config.conftest import applied, planned
from tests.worlds import acme, globex, worlds

__all__ = [
    "_fast_and_unthrottled",
    "_no_static_files",
    "acme",
    "applied",
    "as_",
    "globex",
    "page",
    "people",
    "planned",
    "rest",
    "worlds",
]
