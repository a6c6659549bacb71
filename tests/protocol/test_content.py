"""Content of results: what no client knows is repeated as a text."""

from tools_app.protocol import exact_json
from tools_app.protocol.content import valid_content


def test_an_unknown_block_is_repeated_as_a_text_with_all_digits_of_its_numbers() -> None:
    block = exact_json.loads('{"type": "chart", "n": 12345678901234567890123}')
    (shown,) = valid_content([block])
    assert shown["type"] == "text"
    assert "12345678901234567890123" in shown["text"]
