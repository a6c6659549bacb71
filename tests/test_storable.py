"""What clients and tools say, as columns and digests take it."""

from tools_app.models.storable import sound, storable


def test_what_no_column_takes_is_written_out() -> None:
    assert sound("caf\udce9\x00é") == "caf\\udce9�é"
    assert storable("a\x00bc", 3) == "a�b"
