"""Try every layer of tests on the changes in `named.py`: a check that only one layer guards is lost with that layer.

Each layer finds mistakes in a way of its own: unit tests; campaigns against the Python model; campaigns that a walker
judges, which shares no code with the model; proofs by halmos.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from campaigns.contract_mutants.compiling import Code, Compiler, Store, digest, name_of
from campaigns.contract_mutants.generate import Mutant
from campaigns.contract_mutants.named import Change
from campaigns.contract_mutants.trial import SURVIVED, Command, Project, run_in_copies
from contracts.prove import refute

HALMOS = "halmos"

# The layer of each column of the table.
LAYERS = {
    "tests": "unit tests",
    "steps": "model",
    "boundaries": "model",
    "transactions": "model",
    "branches": "model",
    "jumps": "model",
    "sequences": "walker",
    "headers": "walker",
    HALMOS: "halmos",
}

LEAST = 2
"""Layers that must notice a change."""


class Found(NamedTuple):
    is_noticed: bool
    seconds: float


# By column. What isn't there doesn't run the contract.
Row = Mapping[str, Found]


def columns(commands: Sequence[Command]) -> dict[str, list[Command]]:
    """Return the commands of each column but halmos. Campaigns that run together are tried one by one."""
    found = {"tests": [command for command in commands if command.kind == "tests"]}
    for command in commands:
        if command.kind == "campaigns":
            program, names = command.arguments[:2], command.arguments[2:]
            found |= {name: [command._replace(arguments=(*program, name))] for name in names}
    return found


def try_layers(
    project: Project,
    changes: Mapping[Change, tuple[Mutant, Code]],
    sources: Mapping[str, str],
    *,
    compiler: Compiler,
    store: Store,
    jobs: int,
    tell: Callable[[Change, str, Found], None] = lambda *_: None,
) -> dict[Change, dict[str, Found]]:
    """Try all layers on each change. Its code differs from the original.

    `sources` are all that halmos needs. Raises TrialError or BuildError.
    """
    state = digest([project.digest(), sorted(sources.items())])
    rows: dict[Change, dict[str, Found]] = {change: {} for change in changes}
    waiting: dict[tuple[Change, str], list[Command]] = {}
    for change, (_, code) in changes.items():
        for column, commands in _columns(project, change, code).items():
            known = store.get(_entry(code, column))
            if known and known["state"] == state:
                rows[change][column] = Found(*known["found"])
            else:
                waiting[change, column] = commands
    if not waiting:
        return rows

    def find(change: Change, column: str, copy: Path) -> Found:
        mutant, code = changes[change]
        if column == HALMOS:
            return _refute({**sources, mutant.source: mutant.apply(sources[mutant.source])}, change.properties)
        began = time.monotonic()
        verdict = project.judge(copy, code, partial(compiler.harnesses, mutant), waiting[change, column])
        return Found(verdict.outcome != SURVIVED, time.monotonic() - began)

    tasks = {each: partial(find, *each) for each in waiting}
    all_commands = dict.fromkeys(each for commands in waiting.values() for each in commands)
    for (change, column), found in run_in_copies(project, tasks, all_commands, jobs=jobs):
        rows[change][column] = found
        store.put(_entry(changes[change][1], column), {"state": state, "found": found})
        tell(change, column, found)
    return rows


def _columns(project: Project, change: Change, code: Code) -> dict[str, list[Command]]:
    """Return what there is to try on a change, with the commands."""
    found = columns(project.commands(code))
    return {**found, HALMOS: []} if change.properties else found


def _entry(code: Code, column: str) -> str:
    return digest([name_of(code), column])


def _refute(sources: Mapping[str, str], properties: Sequence[str]) -> Found:
    """Look for a property that is false. The seconds are those of halmos, without compiling."""
    seconds = 0.0
    for check in properties:
        with TemporaryDirectory() as folder:
            outcome = refute(Path(folder), sources, check)
        seconds += outcome.seconds
        if outcome.is_false:
            return Found(is_noticed=True, seconds=seconds)
    return Found(is_noticed=False, seconds=seconds)


def noticing(row: Row) -> set[str]:
    """Return the layers that notice the change of that row."""
    return {LAYERS[column] for column, found in row.items() if found.is_noticed}


def table(rows: Mapping[Change, Row]) -> str:
    """Format a row for each change: the seconds after which each column noticed it, `-` where it didn't."""
    width = max(len(change.name) for change in rows)
    lines = ["  ".join(["change".ljust(width), *LAYERS, "layers"])]
    for change, row in rows.items():
        cells = []
        for column in LAYERS:
            found = row.get(column)
            cell = "" if found is None else f"{found.seconds:.0f} s" if found.is_noticed else "-"
            cells.append(cell.rjust(len(column)))
        lines.append("  ".join([change.name.ljust(width), *cells, str(len(noticing(row))).rjust(len("layers"))]))
    return "\n".join(lines)
