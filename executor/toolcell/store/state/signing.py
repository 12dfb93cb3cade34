"""The signatures of rows in a state directory: HMAC-SHA256 over the kind of a row, its id and its text."""

import hashlib
import hmac

__all__ = ["Signer"]


class Signer:
    """Signs with one key. A signature of one kind of row, or of another id, fits no other."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, kind: str, id: str, *texts: bytes) -> bytes:
        """The signature, 32 bytes. Each part is preceded by its length, so parts cannot be shifted."""
        made = hmac.new(self._key, digestmod=hashlib.sha256)
        for part in (kind.encode(), id.encode(), *texts):
            made.update(len(part).to_bytes(8, "big") + part)
        return made.digest()

    def fits(self, signature: object, kind: str, id: str, *texts: bytes) -> bool:
        """Whether `signature` is that of these parts."""
        return isinstance(signature, bytes) and hmac.compare_digest(signature, self.of(kind, id, *texts))
