"""Tries the tests on mutants, each in a copy of the project in which its code is what the tests deploy."""

import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from campaigns.contract_mutants.compiling import Code, Compiler, Store, digest, name_of
from campaigns.contract_mutants.generate import Mutant
from campaigns.copies import copied, listed

# Whatever takes so much longer than without a mutation has hung. A busy machine is slow, and isn't to be taken for it.
_PATIENCE_FACTOR = 5
_PATIENCE_SECONDS = 300

_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.MULTILINE)
_TEST = re.compile(r"\S+\.py::")
# The last line of a traceback.
_EXCEPTION = re.compile(r"^Traceback \(most.*\n(?:[ \n].*\n?)+(\S.*)$", re.MULTILINE)


class TrialError(Exception):
    """Nothing can be said of the tests; the message says why."""


class Command(NamedTuple):
    """A command that may catch a mutant, as arguments of Python. It ends with 1 if it does, otherwise with 0."""

    kind: str
    """Its name in the report: tests, campaigns."""
    arguments: tuple[str, ...]
    harness: bool = False
    """True if it deploys a contract for tests that has the mutant's code in it, and no other contract."""

    @property
    def shown(self) -> str:
        """The arguments in one line."""
        return " ".join(self.arguments)


def pytest(*tests: str, kind: str = "tests", harness: bool = False) -> Command:
    """These files or tests, up to the first that fails."""
    return Command(kind, ("-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", *tests), harness)


class Verdict(NamedTuple):
    outcome: str
    """The kind of command that caught it, or TIMED_OUT, or SURVIVED."""
    by: str
    """The test, or the command."""


TIMED_OUT = "timed out"
SURVIVED = "survived"


class Project:
    """The project as it is, and what its artifacts are without a mutation."""

    def __init__(self, root: Path, artifacts: Mapping[Path, str], commands: Mapping[str, Sequence[Command]]) -> None:
        """`commands` has those that may catch a mutant by the contract that it changes, in the order to try them."""
        self._root = root
        self._artifacts = {path.with_suffix("").as_posix(): json.loads(text) for path, text in artifacts.items()}
        self._commands = commands
        self._seconds: dict[Command, float] = {}
        self._files = listed(root)

    def changed(self, code: Code) -> Code:
        """Return the mutant's code that is other than without the mutation. Libraries have no artifact."""
        return {
            name: each
            for name, each in code.items()
            if name in self._artifacts and self._artifacts[name]["bytecode"] != each["bytecode"]
        }

    def digest(self) -> str:
        """Return a digest of what decides whether a test passes, beside the code.

        With another digest, verdicts are to be made again.
        """
        tests = {
            path.as_posix(): hashlib.sha256((self._root / path).read_bytes()).hexdigest()
            for path in self._files
            if path.parts[0] in {"campaigns", "chains", "contracts", "tests"}
            and path.suffix == ".py"
            and ("mutants" not in path.as_posix() or path.stem == "short_campaigns")
        }
        return digest([tests, sorted(self._artifacts.items()), self._commands])

    @contextmanager
    def copy(self) -> Iterator[Path]:
        """A copy without a mutation, for as long as it is used."""
        with copied(self._root) as root:
            self._write(root, {name: {} for name in self._artifacts})
            yield root

    def commands(self, changed: Iterable[str]) -> list[Command]:
        """Raises TrialError where none are known."""
        commands: list[Command] = []
        for name in sorted(changed):
            if name not in self._commands:
                raise TrialError(
                    f"Nothing is known that tests {name}: COMMANDS in campaigns/contract_mutants must name it."
                )
            commands += [command for command in self._commands[name] if command not in commands]
        return commands

    def measure(self, copy: Path, commands: Iterable[Command]) -> None:
        """Measure how long each command takes without a mutation. Raises TrialError where one fails."""
        for command in commands:
            began = time.monotonic()
            if (verdict := self._run(copy, command, limit=None)).outcome != SURVIVED:
                raise TrialError(f"It fails without any mutation: {verdict.by}")
            self._seconds[command] = time.monotonic() - began

    def judge(
        self,
        copy: Path,
        code: Code,
        harnesses: Callable[[], Code],
        commands: Sequence[Command],
        *,
        first: str = "",
    ) -> Verdict:
        """Return the first failure of these commands with that code; `first` may name the test that probably fails.

        `harnesses` gives the code of contracts for tests, if it is needed. Raises TrialError where a command can't run.
        """
        written = set(code)
        self._write(copy, code)
        try:
            if first:
                limit = max(map(self._limit, commands))
                if (verdict := self._run(copy, pytest(first), limit, may_be_missing=True)).outcome != SURVIVED:
                    return verdict
            for command in self._concerned(copy, commands, harnesses, written):
                if (verdict := self._run_surely(copy, command)).outcome != SURVIVED:
                    return verdict
            return Verdict(SURVIVED, "")
        finally:
            self._write(copy, {name: {} for name in written})

    def _concerned(
        self, copy: Path, commands: Sequence[Command], harnesses: Callable[[], Code], written: set[str]
    ) -> Iterator[Command]:
        """Yield the commands that can notice the code. Add the contracts that are written to `written`."""
        changed: Code | None = None
        for command in commands:
            if command.harness and changed is None:
                changed = self.changed(harnesses())
                self._write(copy, changed)
                written |= changed.keys()
            if changed or not command.harness:
                yield command

    def _write(self, copy: Path, code: Code) -> None:
        """Write these artifacts, with that code; with their own where it is empty."""
        for name, changes in code.items():
            text = json.dumps({**self._artifacts[name], **changes})
            (copy / "contracts" / "artifacts" / f"{name}.json").write_text(text)

    def _limit(self, command: Command) -> float:
        return _PATIENCE_SECONDS + _PATIENCE_FACTOR * self._seconds[command]

    def _run_surely(self, copy: Path, command: Command) -> Verdict:
        """Run a command. What it says of a failure must be seen twice, unless a campaign tells what it found.

        On a busy machine a test may fail by itself, as may a chain.
        """
        limit = self._limit(command)
        verdict = self._run(copy, command, limit)
        if verdict.outcome != command.kind or verdict.by == command.shown:
            return verdict
        again = pytest(verdict.by) if _TEST.match(verdict.by) else command
        return verdict if self._run(copy, again, limit).outcome != SURVIVED else self._run(copy, command, limit)

    def _run(self, copy: Path, command: Command, limit: float | None, *, may_be_missing: bool = False) -> Verdict:
        shown = command.shown
        try:
            result = subprocess.run(
                [sys.executable, *command.arguments],
                cwd=copy,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return Verdict(TIMED_OUT, shown)
        if result.returncode == 1:
            said = _FAILED_TEST.search(result.stdout) or _EXCEPTION.search(result.stdout)
            return Verdict(command.kind, said[1] if said else shown)
        # Pytest says 4 of a test that isn't there any more.
        if result.returncode == 0 or may_be_missing:
            return Verdict(SURVIVED, "")
        raise TrialError(f"`python {shown}` ended with {result.returncode}: {result.stdout.strip()[-500:]}")


def judge_all(
    project: Project,
    codes: Mapping[Mutant, Code],
    *,
    compiler: Compiler,
    store: Store,
    jobs: int,
    is_settled: Callable[[str, Verdict], bool] = lambda *_: False,
    tell: Callable[[Code, Verdict], None] = lambda *_: None,
) -> dict[str, Verdict]:
    """Verdicts by the names of the codes, see `name_of`: of several mutants with the same code, one is tried.

    `is_settled` is asked whether a verdict that other tests gave to a name still counts. `tell` is told each as it
    comes. Raises TrialError, or BuildError.
    """
    state = project.digest()
    verdicts: dict[str, Verdict] = {}
    waiting: dict[str, Mutant] = {}
    first: dict[str, str] = {}
    for mutant, code in codes.items():
        name = name_of(code)
        known = store.get(name)
        if name in waiting or name in verdicts:
            continue
        if known and (known["state"] == state or is_settled(name, Verdict(*known["verdict"]))):
            verdicts[name] = Verdict(*known["verdict"])
            tell(code, verdicts[name])
        else:
            # What caught it the last time will mostly do so again.
            waiting[name] = mutant
            first[name] = known["verdict"][1] if known and known["verdict"][0] == "tests" else ""
    if not waiting:
        return verdicts

    free: SimpleQueue[Path] = SimpleQueue()

    def judge(name: str, mutant: Mutant) -> Verdict:
        code, copy = codes[mutant], free.get()
        try:
            harnesses = partial(compiler.harnesses, mutant)
            return project.judge(copy, code, harnesses, project.commands(code), first=first[name])
        finally:
            free.put(copy)

    with ExitStack() as copies, ThreadPoolExecutor(jobs) as pool:
        for _ in range(jobs):
            free.put(copies.enter_context(project.copy()))
        commands = project.commands({contract for mutant in waiting.values() for contract in codes[mutant]})
        project.measure(copy := free.get(), commands)
        free.put(copy)
        futures = {pool.submit(judge, name, mutant): name for name, mutant in waiting.items()}
        try:
            for done in as_completed(futures):
                name, verdict = futures[done], done.result()
                verdicts[name] = verdict
                store.put(name, {"state": state, "verdict": verdict})
                tell(codes[waiting[name]], verdict)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return verdicts
