"""The mutation run's own tests: what it changes, and that its choice and its reasons hold."""

import pytest

from .__main__ import files_of, picked, reasons
from .modules import MODULES
from .mutants import chosen, mutants_of
from .worker import ROOT


def edits(text: str) -> set[str]:
    return {mutant.applied(text.encode()).decode() for mutant in mutants_of("module.py", text.encode())}


@pytest.mark.parametrize(
    ("text", "mutant"),
    [
        ("x = a <= b", "x = a < b"),
        ("x = a not in b", "x = a in b"),
        ("x = a and b", "x = a or b"),
        ("x = a and b", "x = True and b"),
        ("x = not a", "x = (a)"),
        ("if a:\n    raise b", "if False:\n    raise b"),
        ("raise b", "pass"),
        ("f(a)", "pass"),
        ("self.a = b", "pass"),
        ("for a in b:\n    continue", "for a in b:\n    break"),
        ("x = {'a', 'b'}", "x = { 'b'}"),
        ("NAMES = ('a', 'b', 'c')", "NAMES = ('a', 'b', )"),
        ("NAMES = 'a b c'.split()", "NAMES = 'a  c'.split()"),
        ("x = os.O_RDONLY | os.O_NOFOLLOW", "x = os.O_RDONLY | 0"),
        ("x = f(a, b)", "x = f(b, a)"),
        ("os.mkdir(a, 0o700)", "os.mkdir(a, 0o755)"),
        ("x = 64 * 1024", "x = 128 * 1024"),
        ("x = a[1]", "x = a[2]"),
        ("try:\n    a\nexcept OSError:\n    b", "try:\n    a\nexcept FileNotFoundError:\n    b"),
        ("x = 'é'; y = a < b", "x = 'é'; y = a <= b"),
    ],
)
def test_each_kind_of_mistake_is_made(text: str, mutant: str) -> None:
    assert mutant in edits(text)


@pytest.mark.parametrize(
    "text",
    ['"""A text."""', "_log.info('x', 1 + 1)", "x: Literal[1]", "assert a == b", "__all__ = ['a', 'b']", "f'{a == b}'"],
)
def test_what_no_test_can_see_is_left_alone(text: str) -> None:
    assert edits(text) == set()


def test_the_choice_does_not_depend_on_where_a_line_stands() -> None:
    text = b"x = a < b\ny = a == b and c\nz = f(a, b)\n"
    moved = b"import os\n\n" + text
    keys = [[each.key for each in chosen(mutants_of("m", each), each, 5, "seed")] for each in (text, moved)]
    assert keys[0] == keys[1] and len(keys[0]) == 5


def test_every_module_has_its_share_of_about_250() -> None:
    texts = {module: (ROOT / module).read_bytes() for module in MODULES}
    mutants = picked(texts, 250, "toolcell")
    assert {mutant.module for mutant in mutants} == set(MODULES) and 230 <= len(mutants) <= 300
    assert len({mutant.key for mutant in mutants}) == len(mutants)
    for held in MODULES.values():
        assert all((ROOT / name).is_file() for name in files_of(held))


def test_every_reason_is_for_a_mutant_that_there_is() -> None:
    present = {each.key for module in MODULES for each in mutants_of(module, (ROOT / module).read_bytes())}
    assert [key for key in reasons() if key not in present] == []
