"""Mutants of one module: small edits of its text that resemble real mistakes, found by positions of its syntax tree.

What is left alone changes no behaviour that a test could see: annotations, decorators, log lines, texts of messages,
`__repr__`, `__all__`, and what only type checkers read.
"""

import ast
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
}
NARROWER = {
    "Exception": "ValueError",
    "BaseException": "ValueError",
    "OSError": "FileNotFoundError",
    "FileNotFoundError": "PermissionError",
    "FileExistsError": "FileNotFoundError",
    "ProcessLookupError": "ChildProcessError",
    "PermissionError": "FileNotFoundError",
    "BlockingIOError": "InterruptedError",
    "ValueError": "KeyError",
    "KeyError": "IndexError",
    "SandboxError": "KeyError",
    "UnicodeError": "KeyError",
}
"""What an `except` catches, and what it could catch by mistake."""
ERRNO = {
    "ENOENT": "ESRCH",
    "EACCES": "EPERM",
    "EPERM": "EACCES",
    "EAGAIN": "EINTR",
    "ESRCH": "ENOENT",
    "EEXIST": "ENOENT",
}
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}
FLAG = re.compile(r"_?[A-Z][A-Z0-9_]+")
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One edit: the bytes from `start` to `end` of the module's text become `new`.

    `source` is the line that it is in, without its indentation, and `edit` says what becomes of what: the two name the
    mutant, whatever its line number is. `operator` is the kind of the mistake.
    """

    module: str
    operator: str
    start: int
    end: int
    new: str
    line: int
    source: str
    edit: str

    @property
    def key(self) -> str:
        return f"{self.module}: {self.source}: {self.edit}"

    def applied(self, text: bytes) -> bytes:
        return text[: self.start] + self.new.encode() + text[self.end :]


def mutants_of(module: str, text: bytes) -> list[Mutant]:
    """Every mutant of the module, in the order of its text. No two have one key."""
    found = sorted(set(_Finder(module, text).edits(ast.parse(text))), key=lambda edit: (edit[1], edit[2], edit[0]))
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen: dict[str, int] = defaultdict(int)
    mutants: list[Mutant] = []
    for operator, start, end, new in found:
        number = max(index for index, at in enumerate(starts) if at <= start)
        source = text[starts[number] : starts[number + 1]].decode().strip()
        mutant = Mutant(module, operator, start, end, new, number + 1, source, _said(text[start:end].decode(), new))
        seen[mutant.key] += 1
        if seen[mutant.key] > 1:
            again = f"{mutant.edit} (no. {seen[mutant.key]})"
            mutant = Mutant(module, operator, start, end, new, number + 1, source, again)
        mutants.append(mutant)
    return mutants


def chosen(mutants: list[Mutant], text: bytes, count: int, seed: str) -> list[Mutant]:
    """`count` of the mutants of `text` that compile, in turn from each kind of mistake. The choice of one does not
    depend on where it stands.
    """

    def rank(mutant: Mutant) -> str:
        return hashlib.sha256(f"{seed}: {mutant.key}".encode()).hexdigest()

    kinds: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in sorted(mutants, key=rank):
        kinds[mutant.operator].append(mutant)
    rounds = max((len(same) for same in kinds.values()), default=0)
    order = (same[number] for number in range(rounds) for same in kinds.values() if number < len(same))
    return list(islice((mutant for mutant in order if _compiles(mutant.applied(text))), count))


def _said(old: str, new: str) -> str:
    short = " ".join(old.split())
    return f"{short if len(short) <= 100 else short[:97] + '...'} -> {new or 'nothing'}"


def _compiles(text: bytes) -> bool:
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


Edit = tuple[str, int, int, str]


class _Finder:
    def __init__(self, module: str, text: bytes) -> None:
        self.module = module
        self.text = text
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def source(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.text[start:end].decode()

    def edits(self, node: ast.AST) -> Iterator[Edit]:
        """The edits of a node and of all that is below it."""
        if _is_silent(node):
            return
        if isinstance(node, ast.stmt):
            yield from self.of_statement(node)
        if isinstance(node, ast.expr):
            yield from self.of_expression(node)
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            for name in node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]:
                if isinstance(name, ast.Name) and name.id in NARROWER:
                    yield ("exception", *self.span(name), NARROWER[name.id])
        for field, value in ast.iter_fields(node):
            if field in {"annotation", "returns", "decorator_list", "type_comment", "bases"}:
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self.edits(child)

    def of_statement(self, node: ast.stmt) -> Iterator[Edit]:
        if isinstance(node, ast.If):
            leaves = isinstance(node.body[-1], LEAVES) and not node.orelse
            yield ("guard" if leaves else "branch", *self.span(node.test), "False")
        elif isinstance(node, ast.Continue):
            yield ("loop", *self.span(node), "break")
        elif isinstance(node, ast.Break):
            yield ("loop", *self.span(node), "continue")
        elif isinstance(node, ast.Raise | ast.Delete | ast.AugAssign):
            yield ("statement", *self.span(node), "pass")
        elif isinstance(node, ast.Expr):
            value = node.value.value if isinstance(node.value, ast.Await) else node.value
            if isinstance(value, ast.Call):
                yield ("statement", *self.span(node), "pass")
        elif isinstance(node, ast.Assign) and all(isinstance(t, ast.Attribute | ast.Subscript) for t in node.targets):
            yield ("statement", *self.span(node), "pass")
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and FLAG.fullmatch(node.targets[0].id)
        ):
            yield from self.of_table(node.value)

    def of_table(self, node: ast.expr) -> Iterator[Edit]:
        """A module's constant: an element less, whether it is a collection or words in a text that is split."""
        calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
        split = {call.value for call in calls if isinstance(call, ast.Attribute) and call.attr == "split"}
        for each in ast.walk(node):
            if isinstance(each, ast.Constant) and (each in split or "\n" in str(each.value)):
                start, _end = self.span(each)
                for word in re.finditer(r"[^\s\"'\\]+", self.source(each)):
                    at = start + len(self.source(each)[: word.start()].encode())
                    yield ("element", at, at + len(word.group().encode()), "")
            elif isinstance(each, ast.Dict) and len(each.keys) > 1:
                pairs = [(key, value) for key, value in zip(each.keys, each.values, strict=True) if key is not None]
                for key, value in pairs:
                    yield self.without(self.span(key)[0], self.span(value)[1])
            elif isinstance(each, ast.List | ast.Tuple):
                yield from self.of_elements(each.elts)

    def of_elements(self, elements: list[ast.expr]) -> Iterator[Edit]:
        if len(elements) > 1 and all(isinstance(e, ast.Constant | ast.Name | ast.Attribute) for e in elements):
            for element in elements:
                yield self.without(*self.span(element))

    def without(self, start: int, end: int) -> Edit:
        comma = re.compile(rb"\s*,").match(self.text, end)
        return ("element", start, end if comma is None else comma.end(), "")

    def of_expression(self, node: ast.expr) -> Iterator[Edit]:
        if isinstance(node, ast.Compare):
            yield from self.of_comparison(node)
        elif isinstance(node, ast.BoolOp):
            yield from self.of_condition(node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield ("not", *self.span(node), f"({self.source(node.operand)})")
        elif isinstance(node, ast.IfExp):
            yield ("branch", *self.span(node.test), "False")
            yield ("branch", *self.span(node.test), "True")
        elif isinstance(node, ast.Constant):
            yield from self.of_constant(node)
        elif isinstance(node, ast.BinOp):
            yield from self.of_operation(node)
        elif isinstance(node, ast.Set):
            yield from self.of_elements(node.elts)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "errno":
            if node.attr in ERRNO:
                yield ("exception", *self.span(node), f"errno.{ERRNO[node.attr]}")
        elif isinstance(node, ast.Call):
            yield from self.of_call(node)

    def of_comparison(self, node: ast.Compare) -> Iterator[Edit]:
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            old, new = COMPARISONS[type(op)]
            gap = re.compile(old.encode()).search(self.text, self.span(left)[1], self.span(right)[0])
            if gap is not None:
                yield ("comparison", gap.start(), gap.end(), new)
                if isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                    yield ("comparison", gap.start(), gap.end(), {"<": ">=", ">": "<="}[new[0]])
            if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List):
                yield from self.of_elements(right.elts)
            left = right

    def of_condition(self, node: ast.BoolOp) -> Iterator[Edit]:
        old, new, neutral = ("and", "or", "True") if isinstance(node.op, ast.And) else ("or", "and", "False")
        for left, right in zip(node.values, node.values[1:], strict=False):
            gap = re.compile(rf"\b{old}\b".encode()).search(self.text, self.span(left)[1], self.span(right)[0])
            if gap is not None:
                yield ("and or", gap.start(), gap.end(), new)
        for value in node.values:
            yield ("condition", *self.span(value), neutral)

    def of_constant(self, node: ast.Constant) -> Iterator[Edit]:
        start, end = self.span(node)
        if isinstance(node.value, bool):
            yield ("constant", start, end, str(not node.value))
        elif isinstance(node.value, int):
            if node.value == 1024:  # a unit; the bound is the factor before it
                return
            before = self.text[:start].rstrip().endswith(b"=")
            if self.source(node).startswith("0o"):
                yield ("constant", start, end, oct(node.value | 0o055))
            elif re.compile(rb"\s*\* 1024").match(self.text, end) or (node.value >= 1_000 and before):
                yield ("constant", start, end, str(2 * node.value))  # of a size nobody counts the last byte
            else:
                yield ("constant", start, end, str(node.value + 1))
                if node.value > 1:
                    yield ("constant", start, end, str(node.value - 1))

    def of_operation(self, node: ast.BinOp) -> Iterator[Edit]:
        start, end = self.span(node.left)[1], self.span(node.right)[0]
        if isinstance(node.op, ast.BitOr):
            for side in (node.left, node.right):
                name = side.attr if isinstance(side, ast.Attribute) else side.id if isinstance(side, ast.Name) else ""
                if FLAG.fullmatch(name):
                    yield ("flag", *self.span(side), "0")
        elif isinstance(node.op, ast.BitAnd):
            gap = self.text.find(b"&", start, end)
            yield ("flag", gap, gap + 1, "|")
        elif isinstance(node.op, ast.Add | ast.Sub) and (_is_number(node.left) or _is_number(node.right)):
            old, new = ("+", "-") if isinstance(node.op, ast.Add) else ("-", "+")
            gap = self.text.find(old.encode(), start, end)
            yield ("arithmetic", gap, gap + 1, new)

    def of_call(self, node: ast.Call) -> Iterator[Edit]:
        if isinstance(node.func, ast.Name) and node.func.id in TWINS:
            yield ("call", *self.span(node.func), TWINS[node.func.id])
        if isinstance(node.func, ast.Name) and node.func.id in {"frozenset", "set", "tuple"}:
            for argument in node.args:
                if isinstance(argument, ast.Tuple | ast.List):
                    yield from self.of_elements(argument.elts)
        for left, right in zip(node.args, node.args[1:], strict=False):
            plain = (ast.Name, ast.Attribute)
            if isinstance(left, plain) and isinstance(right, plain) and self.source(left) != self.source(right):
                start, end = self.span(left)[0], self.span(right)[1]
                between = self.text[self.span(left)[1] : self.span(right)[0]].decode()
                yield ("call", start, end, f"{self.source(right)}{between}{self.source(left)}")


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _is_silent(node: ast.AST) -> bool:
    """Whether no test can, or need, see what becomes of a node."""
    if isinstance(node, ast.JoinedStr | ast.Assert):  # Python 3.11 has no true positions inside an f-string
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return True
    if isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        return isinstance(target, ast.Name) and target.id in {"__all__", "__slots__", "_log", "TYPE_CHECKING"}
    if isinstance(node, ast.FunctionDef):
        return node.name == "__repr__"
    call = node.value if isinstance(node, ast.Expr) else node
    return isinstance(call, ast.Call) and ast.unparse(call.func).startswith(("_log.", "logging."))
