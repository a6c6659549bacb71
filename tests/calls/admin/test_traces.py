"""Finding a call by its trace ID."""

from typing import Any

import pytest

from tests.pages import rows_of

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize("kind", ["call", "runningcall"])
def test_a_call_shows_its_trace_and_is_found_by_it(as_: Any, page: Any, acme: Any, kind: str) -> None:
    row = getattr(acme, kind)
    row.trace_id = TRACE
    row.save()
    client = as_("auditor")

    assert TRACE in client.get(page(kind, "change", row)).content.decode()
    name = "trace" if kind == "call" else "q"
    for trace_id, found in ((TRACE, [row]), (TRACE[::-1], [])):
        assert rows_of(client.get(page(kind, "changelist"), {name: trace_id})) == found
