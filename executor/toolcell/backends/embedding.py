"""Embedders: texts as vectors, so that a search finds what is meant in other words.

`LocalEmbedder` works offline, with a model that is in a Python package. Another embedder is a class with the attributes
and the method of `Embedder`.
"""

import threading
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from toolcell.errors import ArgumentError

__all__ = ["Embedder", "LocalEmbedder"]


@runtime_checkable
class Embedder(Protocol):
    """Makes a vector of each text. Texts of similar meaning have vectors of a similar direction.

    `name` tells models apart: the vectors of another model are made again. `dimensions` is the length of a vector.
    Records whose cosine similarity to the query is below `least` are not found by their meaning.
    """

    @property
    def name(self) -> str: ...
    @property
    def dimensions(self) -> int: ...
    @property
    def least(self) -> float: ...

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a vector for each text. Blocking; called in worker threads, also by several at the same time."""
        ...


class LocalEmbedder:
    """wordllama's model of 16 MB, which its package contains: 256 dimensions, about 0.1 ms for a short text.

    Needs the extra `[embed]` and no network. A thread loads the model at once, which takes about 1 s and 120 MB, and
    holds the interpreter for 0.3 s. So make it before the program is busy.
    """

    name = "wordllama-l2-supercat-256"
    dimensions = 256
    least = 0.15  # unrelated pairs of short English texts lie below, most synonyms above

    def __init__(self) -> None:
        for package in ("numpy", "wordllama"):
            if find_spec(package) is None:
                raise ArgumentError(f"LocalEmbedder needs {package}. Install it: pip install 'toolcell[embed]'.")
        self._lock = threading.Lock()  # around loading, and around the tokenizer's padding
        self._model: Any = None
        threading.Thread(target=self.embed, args=([],), name="toolcell-embedder", daemon=True).start()

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        with self._lock:
            if self._model is None:
                self._model = _loaded()
            if len(texts) == 1 and (single := _embedded(self._model, texts[0])) is not None:
                return [single]
            return cast("Sequence[Sequence[float]]", self._model.embed(list(texts), norm=True)) if texts else []


def _embedded(model: Any, text: str) -> Any:
    """The vector that `model.embed` makes of one text, in half of the time: nothing is padded. None for no token."""
    tokens = model.tokenizer.encode(text, add_special_tokens=False).ids
    if not tokens:
        return None
    vector = model.embedding.take(tokens, axis=0, mode="clip").sum(axis=0)
    return vector / (float(vector @ vector) ** 0.5 or 1.0)


def _loaded() -> Any:
    wordllama: Any = import_module("wordllama")
    # 0.4.0.post1 looks for the weights beside its package, under a wrong name, and then here.
    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
