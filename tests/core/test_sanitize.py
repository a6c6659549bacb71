"""Text of clients and tools is made storable in columns and digests."""

from tools_app.core.sanitize import for_column, sanitized


def test_what_no_column_takes_is_written_out() -> None:
    assert sanitized("caf\udce9\x00é") == "caf\\udce9�é"
    assert for_column("a\x00bc", 3) == "a�b"
