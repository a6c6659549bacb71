"""Payloads: stored as they are, or compressed if they are long, and read back unchanged."""

import zlib
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.audit import chained
from tools_app.audit.checkpoints import signer
from tools_app.audit.recorder import writers
from tools_app.audit.recorder.entries import Payload
from tools_app.audit.verification.report import Problem
from tools_app.core import packing
from tools_app.core.packing import FORMAT, MAX_BYTES, UnpackError, pack, unpack
from tools_app.models import CallPayload

LONG_WORDS = "words " * 1000
LONG = '{"text":"' + "naïve ✓ " * 1000 + '"}'
BOMB = FORMAT + bytes(4) + zlib.compress(bytes(MAX_BYTES + 1))


def stored(arguments: str, result: str) -> CallPayload:
    entry = chained.ending()
    chained.write(msgspec.structs.replace(entry, payload=Payload(entry.call_id, arguments, result)))
    return CallPayload.objects.get(pk=entry.call_id)


@pytest.mark.usefixtures("new_chains")
def test_long_texts_are_stored_compressed_and_read_back_the_same() -> None:
    row = stored('{"a":1}', LONG)
    assert (row.arguments, row.result) == ("", "")
    assert len(row.packed or b"") < len(LONG) / 10
    assert row.texts() == ('{"a":1}', LONG)


@pytest.mark.usefixtures("new_chains")
def test_short_texts_are_stored_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "COMPRESS_BYTES", 20)
    row = stored("x" * 10, "y" * 10)
    assert (row.arguments, row.result, row.packed) == ("x" * 10, "y" * 10, None)
    assert row.texts() == ("x" * 10, "y" * 10)
    assert stored("x" * 10, "y" * 11).packed is not None


@pytest.mark.usefixtures("new_chains")
def test_texts_too_long_to_be_read_back_are_never_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_BYTES", 5000)
    row = stored("x" * 2500, "y" * 2500)
    assert row.packed is not None
    assert row.texts() == ("x" * 2500, "y" * 2500)
    row = stored("x" * 2500, "y" * 2501)
    assert (row.packed, len(row.arguments), len(row.result)) == (None, 2500, 2501)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_two_texts_come_back(first: str, second: str) -> None:
    packed = pack(first, second)
    assert packed is not None
    assert unpack(packed) == (first, second)


@pytest.mark.django_db(transaction=True)
def test_a_compressed_payload_is_part_of_the_evidence() -> None:
    chained.forget()
    chained.write(chained.ending(text=LONG_WORDS))
    signer.sign()
    payload = CallPayload.objects.get()
    assert payload.packed is not None
    assert LONG_WORDS in payload.texts().arguments
    assert chained.checked().is_clean

    CallPayload.objects.update(packed=pack('{"text":"another"}', payload.texts().result))
    assert chained.found().problem == Problem.CHANGED
    CallPayload.objects.update(packed=b"spoilt")
    assert chained.found().problem == Problem.CHANGED
    chained.forget()


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x02" + (pack("a", "b") or b"")[1:], id="another format"),
        pytest.param((pack("a", "b") or b"")[:-1], id="cut off"),
        pytest.param((pack("a", "b") or b"") + b"c", id="more behind it"),
        pytest.param(FORMAT + bytes(4) + b"not deflated", id="not deflated"),
        pytest.param(FORMAT + bytes(4) + zlib.compress(b"\xff"), id="no text"),
        pytest.param(BOMB, id="grows too large"),
    ],
)
def test_what_was_never_packed_is_refused(packed: bytes) -> None:
    with pytest.raises(UnpackError):
        CallPayload(UUID(int=1), "", "", packed).texts()
