"""Changes of Python code that tests should notice: each makes one place of one module do something else."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True, order=True)
class Mutant:
    """One change: what stands between two offsets, in bytes, becomes something else."""

    path: str
    """The module's path below the project."""
    line: int
    """From 1: the first one of what is changed."""
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {_short(self.before)}  ->  {_short(self.after)}"

    def apply(self, source: str) -> str:
        """Return the module with the change."""
        raw = source.encode()
        return (raw[: self.start] + self.after.encode() + raw[self.end :]).decode()


def generate(path: str, source: str) -> Iterator[Mutant]:
    """Yield the mutants of the functions of a module.

    What runs when a module is loaded stays, as no test runs it by itself. Annotations, log lines and docstrings stay
    too: they do nothing that tests look at.
    """
    starts = [0]
    for text in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    for node, after in _in_functions(ast.parse(source)):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before = source.encode()[start:end].decode()
        yield Mutant(path, node.lineno, start, end, before, after)


def _in_functions(node: ast.AST) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in child.body:
                yield from _changes(statement)
        else:
            yield from _in_functions(child)


def _changes(node: ast.AST) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    """Yield each statement or expression that can be changed, and what stands there instead."""
    if _stays(node):
        return
    match node:
        case ast.If() | ast.While() | ast.IfExp():
            yield node.test, f"(not ({ast.unparse(node.test)}))"
        case ast.stmt() if after := _statement(node):
            yield node, after
        case ast.expr() if after := _expression(node):
            yield node, after
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _changes(child)


def _stays(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr():  # Its parts have no places of their own before Python 3.12.
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="logger")))):
            return True
    return False


def _statement(node: ast.stmt) -> str:
    """Return what does less than this statement; empty where that would be another kind of mistake."""
    match node:
        case ast.Expr() | ast.Raise() | ast.AugAssign():
            return "pass"
        case ast.Return(value=ast.expr()) if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            return "return None"
    return ""


def _expression(node: ast.expr) -> str:
    """Return an expression with another value; empty where there is none that says much."""
    after = ""
    match node:
        case ast.UnaryOp(op=ast.Not()):
            after = f"({ast.unparse(node.operand)})"
        case ast.BoolOp():
            after = _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            after = _with(node, ops=[_COMPARISONS[type(op)]()])
        case ast.BinOp() if type(node.op) in _OPERATORS:
            after = _with(node, op=_OPERATORS[type(node.op)]())
        case ast.Constant(value=bool()):
            after = str(not node.value)
        case ast.Constant(value=int()):
            after = f"({ast.unparse(node)} + 1)"
    return after


def _with(node: ast.expr, **fields: object) -> str:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return f"({ast.unparse(changed)})"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 90 else line[:87] + "..."
