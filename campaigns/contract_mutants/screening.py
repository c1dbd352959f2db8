"""Verdicts on mutants that are compiled at once: a replay of the tests' calls catches most, each in about a second.

The tests run only for the others, with the mutant chosen from the start.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from threading import Event

from campaigns.contract_mutants.compiling import Code, Compiler, Store, digest
from campaigns.contract_mutants.generate import Mutant, Node
from campaigns.contract_mutants.report import Key
from campaigns.contract_mutants.schemata import Schema, compile_schemata
from campaigns.contract_mutants.trial import REPLAY, Command, Project, TrialError, Verdict, run_python


def screen(
    project: Project,
    mutants: Sequence[Mutant],
    sources: Mapping[str, str],
    trees: Mapping[str, Node],
    *,
    compiler: Compiler,
    store: Store,
    jobs: int,
    listed: Collection[Key],
    is_settled: Callable[[Mutant, Verdict], bool],
    tell: Callable[[str], None],
) -> dict[Mutant, Verdict]:
    """Return verdicts on the mutants that can be compiled at once.

    `listed` has the keys of mutants with an argument. `is_settled` decides whether a verdict of other tests still
    counts. `tell` gets sentences. Raise BuildError or TrialError.
    """
    state = project.digest()
    verdicts: dict[Mutant, Verdict] = {}
    for mutant in mutants:
        known = store.get(_name(mutant))
        if known and (known["state"] == state or is_settled(mutant, Verdict(*known["verdict"]))):
            verdicts[mutant] = Verdict(*known["verdict"])
    waiting = [mutant for mutant in mutants if mutant not in verdicts]

    def keep(mutant: Mutant, verdict: Verdict) -> None:
        verdicts[mutant] = verdict
        store.put(_name(mutant), {"state": state, "verdict": verdict})
        if verdict.outcome != REPLAY:
            tell(f"{verdict.outcome}: {mutant}  {verdict.by}".rstrip())

    with ExitStack() as stack:
        copies = [stack.enter_context(project.copy()) for _ in range(jobs if waiting else 0)]
        for source, each in groupby(waiting, lambda mutant: mutant.source):
            of_source = list(each)
            folders = [(mutant, folder) for mutant in of_source for folder in ("src", "test")]
            contracts = sorted({path for mutant, folder in folders for path in compiler.dependents(mutant, folder)})
            if not contracts:
                continue
            tell(f"Compiling {len(of_source)} mutants of {source} at once ...")
            for schema, code in compile_schemata(sources, trees, of_source, contracts):
                tell(f"Trying {len(schema.mutants)} of them ...")
                changed = project.changed(code)
                commands = {
                    number: _commands(project, compiler.names(mutant) & changed.keys(), alone=mutant.key in listed)
                    for number, mutant in schema.mutants.items()
                }
                _judge(project, copies, schema, changed, commands, keep)
    return verdicts


def _judge(
    project: Project,
    copies: Sequence[Path],
    schema: Schema,
    changed: Code,
    commands: Mapping[int, Sequence[Command]],
    keep: Callable[[Mutant, Verdict], None],
) -> None:
    """Give `keep` the verdict on each mutant of a schema, by its commands. Each copy tries a part of them."""
    for copy in copies:
        project.write(copy, changed)
    all_commands = project.commands(changed)
    stopped = Event()

    def run(place: int) -> None:
        copy, left = copies[place], [number for number in schema.mutants if number % len(copies) == place]
        for command in all_commands:
            if stopped.is_set():
                return
            found = _replay(copy, command, [number for number in left if command in commands[number]])
            left = [number for number in left if number not in found]
            for number, by in found.items():
                keep(schema.mutants[number], Verdict(REPLAY, by))
        needed = {number: _needed(commands[number], schema.mutants[number]) for number in left}
        tests = [command for command in all_commands if any(command in each for each in needed.values())]
        fitting = dict(zip(tests, project.fitting(copy, tests), strict=True))
        for number in left:
            if stopped.is_set():
                return
            fit = [fitting[command] for command in needed[number]]
            keep(schema.mutants[number], project.judge_chosen(copy, fit, number))

    try:
        with ThreadPoolExecutor(len(copies)) as pool:
            try:
                list(pool.map(run, range(len(copies))))
            except BaseException:
                stopped.set()
                raise
    finally:
        for copy in copies:
            project.write(copy, {name: {} for name in changed})


def _commands(project: Project, names: Collection[str], *, alone: bool) -> list[Command]:
    """Return the commands that try a mutant that changes these contracts.

    If `alone`, for a mutant with an argument, these are the tests that call its library alone, if there are any. Larger
    contracts would rarely say more about it.
    """
    of_library = project.commands(name for name in names if name.startswith("test/"))
    return of_library if alone and of_library else project.commands(names)


def _needed(commands: Sequence[Command], mutant: Mutant) -> list[Command]:
    """Return the commands that may catch a mutant which their replay hasn't caught."""
    return [command for command in commands if not command.views or mutant.function.endswith("constructor")]


def _replay(copy: Path, command: Command, numbers: Sequence[int]) -> dict[int, str]:
    """Return the numbers of caught mutants, each with what differs. Raise TrialError if the replay fails."""
    if not numbers:
        return {}
    found, asked = copy / "caught.jsonl", copy / "numbers.json"
    found.write_text("")
    asked.write_text(json.dumps(numbers))
    # A test that fails because of the code's size, for example, has made its calls nonetheless.
    arguments = [argument for argument in command.arguments if argument not in {"-m", "-x"}]
    result = run_python(copy, ["-m", "campaigns.contract_mutants.replay", str(found), str(asked), *arguments])
    if result.returncode not in {0, 1}:
        raise TrialError(
            f"The replay of `python {command.shown}` ended with {result.returncode}: {result.stdout[-500:]}"
        )
    return dict(json.loads(line) for line in found.read_text().splitlines())


def _name(mutant: Mutant) -> str:
    return digest([mutant.source, *mutant.key])
