"""Finding a call by the trace that its client knows it by."""

from typing import Any

import pytest

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize("kind", ["call", "runningcall"])
def test_a_call_shows_its_trace_and_is_found_by_it(as_: Any, page: Any, acme: Any, kind: str) -> None:
    row = getattr(acme, kind)
    row.trace_id = TRACE
    row.save()
    client = as_("auditor")

    assert TRACE in client.get(page(kind, "change", row)).content.decode()
    for asked, found in ((TRACE, [row]), (TRACE[:-1], [])):
        assert list(client.get(page(kind, "changelist"), {"q": asked}).context["cl"].queryset) == found
