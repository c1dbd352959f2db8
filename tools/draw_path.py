"""Draws a batch's path from the code, which it reads and doesn't import: `make picture`."""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PICTURE = PROJECT / "docs/developing/path.svg"
MODELS = "queries/models.py"
PROGRESS = "queries/progress.py"
RECONCILE = "proving/reconcile/block.py"
DECIDE = "proving/reconcile/decide.py"
# Where batches, queries and steps are written, through `PROGRESS`.
CALLERS = ("queries", "proving", "api", "explorer")

# --- What the code says -----------------------------------------------------------------------------------------------


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse((PROJECT / path).read_text())


def _functions(path: str) -> Mapping[str, ast.FunctionDef]:
    return {node.name: node for node in _tree(path).body if isinstance(node, ast.FunctionDef)}


def _assigned(path: str, name: str) -> ast.expr:
    """Return what a module assigns to a name."""
    assignments = [node for node in _tree(path).body if isinstance(node, ast.Assign)]
    (value,) = [node.value for node in assignments if ast.unparse(node.targets[0]) == name]
    return value


def _members(enum: str) -> list[str]:
    """Return the names of an enumeration's members in `MODELS`, in their order."""
    (found,) = [node for node in _tree(MODELS).body if isinstance(node, ast.ClassDef) and node.name == enum]
    return [ast.unparse(node.targets[0]) for node in found.body if isinstance(node, ast.Assign)]


def _named(node: ast.AST, enum: str) -> list[str]:
    """Return the members of an enumeration that a piece of code names."""
    attributes = [each for each in ast.walk(node) if isinstance(each, ast.Attribute)]
    return [each.attr for each in attributes if ast.unparse(each.value) == enum]


def _calls(node: ast.AST) -> list[ast.Call]:
    """Return the calls in a piece of code in the order in which they end, so that arguments come first."""
    found = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    return sorted(found, key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0))


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func)


@dataclass(frozen=True)
class StatusChange:
    """A function of `PROGRESS` that changes the status of batches; `before` has the statuses that it changes."""

    before: Sequence[str]
    after: str
    function: str


def status_changes() -> list[StatusChange]:
    """Return the changes of a batch's status, in the order of `PROGRESS`."""
    of_open = _named(_assigned(MODELS, "OPEN_STATUSES"), "BatchStatus")
    return [
        StatusChange(before or of_open, after, name)
        for name, function in _functions(PROGRESS).items()
        for before, after in _status_changes(function)
    ]


def _status_changes(function: ast.FunctionDef) -> Iterator[tuple[list[str], str]]:
    """Yield the statuses before and after each change; none before where those of `OPEN_STATUSES` are changed."""
    for call in _calls(function):
        if _name(call).endswith(".update") and (after := _status(call)):
            yield _filtered(call.func) or _filtered(function), after
    for condition in ast.walk(function):
        if isinstance(condition, ast.If):
            for line in condition.body:
                if isinstance(line, ast.Assign) and (assigned := _named(line, "BatchStatus")):
                    yield _named(condition.test, "BatchStatus"), assigned[0]


def _status(call: ast.Call) -> str:
    """Return the status that a call names as `status`; empty if it names none."""
    return next((name for word in call.keywords if word.arg == "status" for name in _named(word, "BatchStatus")), "")


def _filtered(node: ast.AST) -> list[str]:
    return [status for call in _calls(node) if _name(call).endswith(".filter") and (status := _status(call))]


@cache
def _places() -> Mapping[str, list[tuple[str, ast.Call]]]:
    """Return by the name of a function of `PROGRESS`: where it is called, as `module.function`, and the calls."""
    found: dict[str, list[tuple[str, ast.Call]]] = defaultdict(list)
    for path in sorted(path for folder in CALLERS for path in (PROJECT / folder).rglob("*.py")):
        prefix = "" if path == PROJECT / PROGRESS else "progress."
        for name, function in _functions(path.relative_to(PROJECT).as_posix()).items():
            for call in _calls(function):
                if _name(call).startswith(prefix) and (called := _name(call).removeprefix(prefix)) in _functions(
                    PROGRESS
                ):
                    found[called].append((f"{path.stem}.{name}", call))
    return found


def callers(function: str) -> list[str]:
    """Return the functions outside `PROGRESS` that call this one of it, also by way of others."""
    direct = [place for place, _ in _places()[function]]
    inside = [place.removeprefix("progress.") for place in direct if place.startswith("progress.")]
    found = {place for place in direct if not place.startswith("progress.")}
    return sorted(found.union(*(callers(one) for one in inside)))


def actions(decision: str) -> dict[str, list[str]]:
    """Return the actions that a function of `DECIDE` makes, also by way of others, with the steps that they name."""
    functions, found = _functions(DECIDE), defaultdict[str, list[str]](list)
    union = _assigned(DECIDE, "Action"), _assigned(DECIDE, "Change"), _assigned(DECIDE, "Sending")
    kinds = {node.id for each in union for node in ast.walk(each) if isinstance(node, ast.Name)}
    waiting, seen = [decision], {decision}
    while waiting:
        for call in _calls(functions[waiting.pop()]):
            if _name(call) in kinds:
                found[_name(call)] += _named(call, "StepKind")
            if _name(call) in functions.keys() - seen:
                seen.add(_name(call))
                waiting.append(_name(call))
    steps = _members("StepKind")
    return {kind: sorted(set(found[kind]), key=steps.index) for kind in sorted(found)}


@dataclass(frozen=True)
class Part:
    """A part of a reconcile: what it is for, and each decision in it, with what is observed for that."""

    purpose: str
    decisions: Sequence[tuple[Sequence[str], str]]


def parts() -> list[Part]:
    """Return the parts of a reconcile, in their order: functions of `RECONCILE`, and what is decided at the end."""
    functions, found = _functions(RECONCILE), []
    at_end = []
    for call in _calls(functions["_reconcile"]):
        if _name(call) in functions:
            function = functions[_name(call)]
            found.append(Part((ast.get_docstring(function) or "").partition(".")[0], _decisions(_observing(function))))
        else:
            at_end.append(_name(call))
    (end,) = [decision for _, decision in _decisions(at_end)]
    purpose = ast.get_docstring(_functions(DECIDE)[end.removeprefix("decide.")]) or ""
    return [part for part in found if part.decisions] + [Part(purpose.partition(".")[0], _decisions(at_end))]


def _observing(function: ast.FunctionDef) -> Iterator[str]:
    functions = _functions(RECONCILE)
    for call in _calls(function):
        if _name(call) in functions:
            yield from _observing(functions[_name(call)])
        yield _name(call)


def _decisions(names: Sequence[str] | Iterator[str]) -> list[tuple[list[str], str]]:
    """Divide the names of what is called into decisions, each with what was observed since the one before."""
    found: list[tuple[list[str], str]] = []
    observed: list[str] = []
    for name in names:
        if name.startswith("observe."):
            observed = [*dict.fromkeys([*observed, name])]
        elif name.startswith("decide."):
            found.append((observed, name))
            observed = []
    return found


def step_changes() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return what completes each step, and what takes queries back to it."""
    decisions = [name for name in _functions(DECIDE) if not name.startswith("_")]
    completed, reopened = (
        {
            step: [f"decide.{name}" for name in decisions if step in actions(name).get(kind, [])]
            for step in _members("StepKind")
        }
        for kind in ("Complete", "Reopen")
    )
    for place, call in _places()["reopen"]:
        for step in _named(call, "StepKind"):
            inside = place.removeprefix("progress.")
            reopened[step] += [place] if inside == place else callers(inside)
    return completed, reopened


# --- The drawing ------------------------------------------------------------------------------------------------------

WIDTH = 1000
LINE = 16
BOX = 34
_STYLE = """\
text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #222 }
.title { font: bold 15px system-ui, sans-serif }
.note { font: 12px system-ui, sans-serif; fill: #555 }
.sends { fill: #a03000; font-weight: bold }
.box { fill: #eef3fb; stroke: #3b5b8c }
.part { fill: #f6f6f6; stroke: #ccc }
polyline { fill: none; stroke: #555 }
.arrow { marker-end: url(#head) }"""
_ARROW_HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>'
)


class Drawing:
    """An SVG that grows downwards from `y`."""

    def __init__(self) -> None:
        self.y = 0
        self._pieces: list[str] = []

    def text(self, x: int, y: int, words: str, kind: str = "", anchor: str = "start") -> None:
        self._pieces.append(f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>')

    def title(self, words: str, note: str) -> None:
        self.text(20, self.y + 34, words, "title")
        self.text(20, self.y + 34 + LINE, note, "note")
        self.y += 64

    def box(self, x: int, width: int, words: str) -> None:
        self._rectangle(x, width, BOX, "box")
        self.text(x + width // 2, self.y + BOX // 2 + 4, words, anchor="middle")

    def part(self, height: int) -> None:
        self._rectangle(20, WIDTH - 40, height, "part")

    def _rectangle(self, x: int, width: int, height: int, kind: str) -> None:
        self._pieces.append(f'<rect x="{x}" y="{self.y}" width="{width}" height="{height}" rx="5" class="{kind}"/>')

    def line(self, *points: tuple[int, int], kind: str = "arrow") -> None:
        places = " ".join(f"{x},{y}" for x, y in points)
        self._pieces.append(f'<polyline class="{kind}" points="{places}"/>')

    def svg(self) -> str:
        height = self.y + 20
        size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        background = f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        title = "<title>The path of a batch</title>"
        begin = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', title, f"<style>{_STYLE}</style>", _ARROW_HEAD]
        return "\n".join([*begin, background, *self._pieces, "</svg>\n"])


def draw() -> str:
    drawing = Drawing()
    _draw_statuses(drawing)
    _draw_steps(drawing)
    _draw_reconcile(drawing)
    return drawing.svg()


def _draw_statuses(drawing: Drawing) -> None:
    drawing.title("A batch", f"BatchStatus. Each change is a function of {PROGRESS}; what calls it is named beside it.")
    statuses, width, pitch = _members("BatchStatus"), 96, 216
    left = {status: 20 + pitch * place for place, status in enumerate(statuses)}
    drawing.y += 2 * LINE
    top, under = drawing.y, drawing.y + BOX + 3 * LINE
    for status in statuses:
        drawing.box(left[status], width, status)
    for change in status_changes():
        start, end = (left[status] + width // 2 for status in (change.before[0], change.after))
        by = callers(change.function)
        if len(change.before) > 1:
            for status in change.before:
                middle = left[status] + width // 2
                drawing.line((middle, top + BOX), (middle, under), kind="")
            drawing.line((start, under), (end, under), (end, top + BOX))
            drawing.text(start, under + LINE, f"{change.function}: {', '.join(by)}")
        elif start < end:
            middle = (start + end) // 2
            drawing.line((start + width // 2, top + BOX // 2), (end - width // 2, top + BOX // 2))
            drawing.text(middle, top + BOX // 2 - 6, change.function, anchor="middle")
            for row, caller in enumerate(by):
                drawing.text(middle, top + BOX // 2 + LINE * (row + 1), caller, "note", anchor="middle")
        else:
            drawing.line((start, top), (start, top - LINE), (end, top - LINE), (end, top))
            drawing.text((start + end) // 2, top - LINE - 6, f"{change.function}: {', '.join(by)}", anchor="middle")
    drawing.y = under + LINE


def _draw_steps(drawing: Drawing) -> None:
    drawing.title(
        "Each of its queries", "StepKind. Below each step: what completes it, and what takes queries back to it."
    )
    width, pitch, rows = 200, 250, 0
    completed, reopened = step_changes()
    for place, step in enumerate(completed):
        left = 20 + pitch * place
        drawing.box(left, width, step)
        if place:
            drawing.line((left - pitch + width, drawing.y + BOX // 2), (left, drawing.y + BOX // 2))
        by = [
            *(f"\N{CHECK MARK} {one}" for one in completed[step]),
            *(f"\N{LEFTWARDS ARROW} {one}" for one in reopened[step]),
        ]
        for row, line in enumerate(by):
            drawing.text(left, drawing.y + BOX + LINE * (row + 1), line)
        rows = max(rows, len(by))
    drawing.y += BOX + LINE * rows


def _draw_reconcile(drawing: Drawing) -> None:
    note = "Each decision, from what is observed to the actions that it may name. What is red sends transactions."
    drawing.title(f"One reconcile of a block ({RECONCILE})", note)
    sending = [node.id for node in ast.walk(_assigned(DECIDE, "Sending")) if isinstance(node, ast.Name)]
    for part in parts():
        rows = [
            (observed, decision, list(actions(decision.removeprefix("decide."))))
            for observed, decision in part.decisions
        ]
        heights = [LINE * max(len(observed), 1, -(-len(made) // 3)) + 6 for observed, _, made in rows]
        drawing.part(LINE + 10 + sum(heights))
        drawing.text(30, drawing.y + LINE, f"{part.purpose}.", "note")
        drawing.y += LINE + 8
        for (observed, decision, made), height in zip(rows, heights, strict=True):
            y = drawing.y + LINE
            for place, one in enumerate(observed):
                drawing.text(40, y + LINE * place, one)
            drawing.line((220, y - 4), (250, y - 4))
            drawing.text(260, y, decision)
            if made:
                drawing.line((450, y - 4), (480, y - 4))
            for place, one in enumerate(made):
                kind = "sends" if one in sending else ""
                drawing.text(490 + 165 * (place % 3), y + LINE * (place // 3), one, kind)
            drawing.y += height
        drawing.y += 12


if __name__ == "__main__":
    PICTURE.write_text(draw())
    sys.stdout.write(f"Drawn: {PICTURE.relative_to(PROJECT)}\n")
