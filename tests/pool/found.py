"""A tool that looks for a text in the memory of its process."""

import gc
import sys

from toolcell import tool


@tool
def find(backwards: str) -> int:
    """How many texts of this process have a word in them.

    Args:
        backwards: The word, told backwards, so as not to find itself.
    """
    gc.unfreeze()
    ahead: list[object] = [sys._getframe(), *sys.modules.values(), *gc.get_objects()]
    met: set[int] = set()
    found = 0
    while ahead:
        each = ahead.pop()
        if id(each) in met:
            continue
        met.add(id(each))
        if isinstance(each, (str, bytes)):
            text = each if isinstance(each, str) else each.decode("latin-1")
            found += backwards in text[::-1]
        elif each is not ahead and each is not met:
            ahead += gc.get_referents(each)
    return found
