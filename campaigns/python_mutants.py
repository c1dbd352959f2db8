"""Test the tests of the Python code: `make mutants-python`, SEED=1 COUNT=60.

Places in functions are chosen at random, and made to do something else. Each is judged by the tests that run its line.
A first run of all tests tells which these are; its result is kept for the same code.
"""

import argparse
import ast
import hashlib
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from coverage import CoverageData

from campaigns.copies import copied, listed
from devnet.devchain import PROJECT

PACKAGES = ("accounts", "api", "attesting", "chains", "config", "database", "explorer", "proving", "queries")

_MOST_SECONDS = 600
# Of pytest: nothing was left to run.
_NONE = 5
_PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--dist", "worksteal")
_PAIRS: Sequence[tuple[type[ast.AST], type[ast.AST]]] = (
    *((ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot), (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)),
    *((ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv), (ast.And, ast.Or), (ast.BitAnd, ast.BitOr)),
)
_OTHERS = dict(_PAIRS) | {other: one for one, other in _PAIRS}


def places(module: ast.AST) -> Iterator[ast.stmt | ast.expr]:
    """Yield what can be changed in the functions of a module. What runs as it is loaded stays, and annotations do."""
    for function in ast.walk(module):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                yield from _within(statement)


def _within(node: ast.AST) -> Iterator[ast.stmt | ast.expr]:
    # Nested functions are walked by themselves.
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or "logger." in ast.unparse(node).partition("(")[0]:
        return
    match node:
        case ast.Return(value=ast.Constant(value=None)):
            pass
        case ast.If() | ast.While() | ast.IfExp() | ast.Return(value=ast.expr()) | ast.Expr(value=ast.Call()):
            yield node
        case ast.Compare(ops=[op]) | ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in _OTHERS:
            yield node
        case ast.Constant(value=int()):
            yield node
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field != "annotation":
                yield from _within(child)


def change(node: ast.AST) -> None:
    """Make one of the `places` do something else."""
    match node:
        case ast.If() | ast.While() | ast.IfExp():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Return() | ast.Expr():
            node.value = ast.Constant(None)
        case ast.Compare(ops=[op]):
            node.ops = [_OTHERS[type(op)]()]  # type: ignore[list-item]
        case ast.BinOp() | ast.BoolOp():
            node.op = _OTHERS[type(node.op)]()  # type: ignore[assignment]
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int(value)):
            node.value = value + 1


def judge(copy: Path, path: Path, number: int, data: CoverageData, processes: int) -> str:
    """Return what came of changing one place of a module, in a copy of the project."""
    source = (PROJECT / path).read_text()
    module = ast.parse(source)
    place = list(places(module))[number]
    contexts = data.contexts_by_lineno(str(PROJECT / path)).get(place.lineno, [])
    tests = sorted({context.rpartition("|")[0] for context in contexts} - {""})
    before = ast.unparse(place)
    change(place)
    (copy / path).write_text(ast.unparse(module))
    verdict = _verdict(copy, tests, processes)
    (copy / path).write_text(source)
    shown = f"{path}:{place.lineno}: {before[:80]!r}  ->  {ast.unparse(place)[:80]!r}"
    print(f"{verdict} ({len(tests)} tests): {shown}", flush=True)
    return verdict


def _verdict(copy: Path, tests: Sequence[str], processes: int) -> str:
    if not tests:
        return "not run by tests"
    (copy / "arguments.txt").write_text("\n".join(tests))
    command = [*_PYTEST, "-x", "-n", str(processes if len(tests) > 8 else 0), "@arguments.txt"]
    try:
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=_MOST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "noticed"
    assert done.returncode != _NONE, done.stdout
    assert "ERROR: not found:" not in done.stderr, done.stderr
    return "noticed" if done.returncode else "survived"


def _measured(processes: int) -> Path:
    """Return the file that says which tests run which lines of this code. Runs all tests where it isn't there."""
    code = b"".join(bytes(path) + (PROJECT / path).read_bytes() for path in sorted(_python()))
    file = PROJECT / ".mutants" / f"coverage-{hashlib.sha256(code).hexdigest()[:16]}"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        print("Running all tests to see which lines each runs ...", flush=True)
        packages = [f"--cov={package}" for package in PACKAGES]
        unfinished = file.with_name("unfinished")
        subprocess.run(
            [*_PYTEST, "-n", str(processes), *packages, "--cov-context=test", "--cov-report="],
            cwd=PROJECT,
            env=os.environ | {"COVERAGE_FILE": str(unfinished)},
            check=True,
        )
        unfinished.rename(file)
    return file


def _python() -> list[Path]:
    return [path for path in listed(PROJECT) if path.suffix == ".py"]


def main() -> int:
    """Return the exit code, which is 0 whatever survives: what is left is for a person to look at."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.python_mutants", description="Test the tests.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--processes", type=int, default=2 * (os.cpu_count() or 1))
    options = parser.parse_args()
    own = [path for path in _python() if path.parts[0] in PACKAGES and "migrations" not in path.parts]
    every = [
        (path, number)
        for path in sorted(own)
        for number, _ in enumerate(places(ast.parse((PROJECT / path).read_text())))
    ]
    print(f"{len(every)} places in {len(own)} modules; {options.count} are chosen by the seed {options.seed}.")
    data = CoverageData(str(_measured(options.processes)))
    data.read()
    with copied(PROJECT) as copy:
        verdicts = Counter(
            judge(copy, *chosen, data, options.processes)
            for chosen in random.Random(options.seed).sample(every, options.count)
        )
    print(", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
