"""Signatures of rows: of one key, one kind, one id and one text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcell.store.database import Signer

SIGNER = Signer(b"k" * 32)


def test_a_signature_fits_what_was_signed() -> None:
    signature = SIGNER.of("request", "r1", b"text", b"more")
    assert len(signature) == 32
    assert SIGNER.fits(signature, "request", "r1", b"text", b"more")
    assert Signer(b"k" * 32).fits(signature, "request", "r1", b"text", b"more")


def test_signatures_of_state_directories_that_exist_fit_after_an_update() -> None:
    signature = bytes.fromhex("db7c8a64cd35575d27a2ebce443670486ce25f8f4ce5ba985080acb69fde6cff")
    assert SIGNER.of("request", "r1", b"text", b"more") == signature


@pytest.mark.parametrize(
    ("signer", "kind", "id", "texts"),
    [
        (Signer(b"x" * 32), "request", "r1", [b"text"]),
        (SIGNER, "answer", "r1", [b"text"]),
        (SIGNER, "request", "r2", [b"text"]),
        (SIGNER, "request", "r1", [b"Text"]),
        (SIGNER, "request", "r1", [b"text", b""]),
        (SIGNER, "request", "r1", []),
    ],
    ids=["another key", "another kind", "another id", "another text", "one text more", "one text less"],
)
def test_a_signature_fits_nothing_else(signer: Signer, kind: str, id: str, texts: list[bytes]) -> None:
    assert not signer.fits(SIGNER.of("request", "r1", b"text"), kind, id, *texts)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), min_size=3, max_size=3), st.data())
def test_a_byte_cannot_be_shifted_from_one_part_to_the_next(parts: list[str], data: st.DataObject) -> None:
    whole = "".join(parts)
    cuts = sorted(data.draw(st.tuples(st.integers(0, len(whole)), st.integers(0, len(whole)))))
    other = [whole[: cuts[0]], whole[cuts[0] : cuts[1]], whole[cuts[1] :]]
    signature = SIGNER.of(parts[0], parts[1], parts[2].encode())
    assert SIGNER.fits(signature, other[0], other[1], other[2].encode()) == (other == parts)


@pytest.mark.parametrize("signature", [None, "", b"", 5, "0" * 32, bytes(32)], ids=repr)
def test_what_is_no_signature_fits_nothing(signature: object) -> None:
    assert not SIGNER.fits(signature, "request", "r1", b"text")
