"""Trials of mutants: the tests run in a copy of the project whose artifacts have the mutant's code."""

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
from typing import Any, NamedTuple

from campaigns.contract_mutants.compiling import Code, Compiler, Store, digest, name_of
from campaigns.contract_mutants.generate import Mutant
from campaigns.copies import copied, listed

# A command counts as hung if it takes this many times longer than without a mutant. A busy machine needs the margin.
_PATIENCE_FACTOR = 5
_PATIENCE_SECONDS = 300

_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.MULTILINE)
_TEST = re.compile(r"\S+\.py::")
# The last line of a traceback.
_EXCEPTION = re.compile(r"^Traceback \(most.*\n(?:[ \n].*\n?)+(\S.*)$", re.MULTILINE)


class TrialError(Exception):
    """The tests give no result. The message says why."""


class Command(NamedTuple):
    """Python arguments of a command that may catch a mutant.

    It exits with 1 if it catches the mutant, otherwise with 0.
    """

    kind: str
    """Its name in the report: tests or campaigns."""
    arguments: tuple[str, ...]
    harness: bool = False
    """True if the command deploys a test contract that contains the mutant's code, and no other contract."""
    views: bool = False
    """True if it runs the contract's code by calls that change nothing, except the constructor. So the replay of these
    calls is enough.
    """
    number: int | None = None
    """Number of the mutant of a schema to choose on each chain, or 0 for the original. None without a schema."""

    @property
    def started(self) -> tuple[str, ...]:
        """Return the arguments that start it."""
        if self.number is None:
            return self.arguments
        return ("-m", "campaigns.contract_mutants.choosing", str(self.number), *self.arguments[1:])

    @property
    def shown(self) -> str:
        """Return the arguments on one line."""
        return " ".join(self.arguments)


def pytest(*tests: str, kind: str = "tests", harness: bool = False, views: bool = False) -> Command:
    """Return a command that runs these test files or tests until the first failure."""
    return Command(kind, ("-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", *tests), harness, views)


class Verdict(NamedTuple):
    outcome: str
    """The kind of the command that caught the mutant, or TIMED_OUT, or SURVIVED."""
    by: str
    """The failed test, or the command."""


TIMED_OUT = "timed out"
SURVIVED = "survived"
REPLAY = "replay"


class Project:
    """The project and its unmutated artifacts."""

    def __init__(self, root: Path, artifacts: Mapping[Path, str], commands: Mapping[str, Sequence[Command]]) -> None:
        """`commands` are by changed contract, in the order in which to try them.

        Raise TrialError if a contract has none.
        """
        self._root = root
        self._artifacts = {path.with_suffix("").as_posix(): json.loads(text) for path, text in artifacts.items()}
        untested = [name for name in sorted(self._artifacts) if not name.startswith("test/") and name not in commands]
        if untested:
            names = ", ".join(untested)
            raise TrialError(
                f"Nothing tests {names}, as far as COMMANDS in campaigns/contract_mutants/__main__.py tells."
            )
        self._commands = commands
        self._seconds: dict[Command, float] = {}
        self._files = listed(root)

    def changed(self, code: Code) -> Code:
        """Return the code that differs from the original. Libraries have no artifact.

        Raise TrialError if no code has one: nothing would be tried.
        """
        if code and not code.keys() & self._artifacts.keys():
            raise TrialError(f"None of these has an artifact: {', '.join(code)}.")
        return {
            name: each
            for name, each in code.items()
            if name in self._artifacts and self._artifacts[name]["bytecode"] != each["bytecode"]
        }

    def digest(self) -> str:
        """Return a digest of everything that decides whether a test passes, except the contracts' code.

        Verdicts with another digest are outdated.
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
        """Yield an unchanged copy of the project."""
        with copied(self._root) as root:
            self.write(root, {name: {} for name in self._artifacts})
            yield root

    def commands(self, changed: Iterable[str]) -> list[Command]:
        """Return the commands for the changed contracts. Test contracts may have none."""
        commands: list[Command] = []
        # Contracts for tests call a library's functions alone, so their tests catch most of its mutants.
        for name in sorted(changed, key=lambda name: (not name.startswith("test/"), name)):
            commands += [command for command in self._commands.get(name, ()) if command not in commands]
        return commands

    def measure(self, copy: Path, commands: Iterable[Command]) -> None:
        """Measure the time of each command without a mutant. Raise TrialError if a command fails."""
        for command in commands:
            began = time.monotonic()
            if (verdict := self._run(copy, command, limit=None)).outcome != SURVIVED:
                raise TrialError(f"It fails without any mutation: {verdict.by}")
            self._seconds[command._replace(number=None)] = time.monotonic() - began

    def judge(
        self,
        copy: Path,
        code: Code,
        harnesses: Callable[[], Code],
        commands: Sequence[Command],
        *,
        first: str = "",
    ) -> Verdict:
        """Return the first failure of these commands with that code. `first` names the test that probably fails.

        `harnesses` returns the code of test contracts. Raise TrialError if a command can't run.
        """
        written = dict(code)
        self.write(copy, code)
        try:
            if first:
                limits = (self._limit(command) for command in commands if command in self._seconds)
                limit = max(limits, default=_PATIENCE_SECONDS)
                if (verdict := self._run(copy, pytest(first), limit, may_be_missing=True)).outcome != SURVIVED:
                    return verdict
            for command in self._concerned(copy, commands, harnesses, written):
                if command not in self._seconds:
                    self.write(copy, {name: {} for name in written})
                    self.measure(copy, [command])
                    self.write(copy, written)
                if (verdict := self._run_surely(copy, command)).outcome != SURVIVED:
                    return verdict
            return Verdict(SURVIVED, "")
        finally:
            self.write(copy, {name: {} for name in written})

    def judge_chosen(self, copy: Path, commands: Sequence[Command], number: int) -> Verdict:
        """Return the first failure of commands of `fitting` with this mutant of the schema in the copy."""
        for command in commands:
            if (verdict := self._run_surely(copy, command._replace(number=number))).outcome != SURVIVED:
                return verdict
        return Verdict(SURVIVED, "")

    def fitting(self, copy: Path, commands: Iterable[Command]) -> list[Command]:
        """Return the commands without tests that fail with the original in the schema in the copy.

        Such tests are about the size of the code, its digest or its gas. Raise TrialError if a command always fails.
        """
        fit: list[Command] = []
        for command in commands:
            of_all = command._replace(arguments=tuple(each for each in command.arguments if each != "-x"), number=0)
            output = run_python(copy, of_all.started).stdout
            failed = [argument for test in _FAILED_TEST.findall(output) for argument in ("--deselect", test)]
            fit.append(command._replace(arguments=(*command.arguments, *failed), number=0))
        self.measure(copy, fit)
        return fit

    def _concerned(
        self, copy: Path, commands: Sequence[Command], harnesses: Callable[[], Code], written: dict[str, Any]
    ) -> Iterator[Command]:
        """Yield the commands that the code can affect. Add written contracts to `written`."""
        changed: Code | None = None
        for command in commands:
            if command.harness and changed is None:
                changed = self.changed(harnesses())
                self.write(copy, changed)
                written |= changed
            if changed or not command.harness:
                yield command

    def write(self, copy: Path, code: Code) -> None:
        """Write these artifacts with the given code. If a contract's code is empty, write its original code."""
        for name, changes in code.items():
            text = json.dumps({**self._artifacts[name], **changes})
            (copy / "contracts" / "artifacts" / f"{name}.json").write_text(text)

    def _limit(self, command: Command) -> float:
        return _PATIENCE_SECONDS + _PATIENCE_FACTOR * self._seconds[command._replace(number=None)]

    def _run_surely(self, copy: Path, command: Command) -> Verdict:
        """Run a command. A test's failure must occur twice; a campaign's finding counts at once.

        On a busy machine a test or a chain may fail for another reason.
        """
        limit = self._limit(command)
        verdict = self._run(copy, command, limit)
        if verdict.outcome != command.kind or verdict.by == command.shown:
            return verdict
        again = pytest(verdict.by)._replace(number=command.number) if _TEST.match(verdict.by) else command
        return verdict if self._run(copy, again, limit).outcome != SURVIVED else self._run(copy, command, limit)

    def _run(self, copy: Path, command: Command, limit: float | None, *, may_be_missing: bool = False) -> Verdict:
        shown = command.shown
        try:
            result = run_python(copy, command.started, limit)
        except subprocess.TimeoutExpired:
            return Verdict(TIMED_OUT, shown)
        if result.returncode == 1:
            reason = _FAILED_TEST.search(result.stdout) or _EXCEPTION.search(result.stdout)
            return Verdict(command.kind, reason[1] if reason else shown)
        # Pytest exits with 4 if the named test doesn't exist any more.
        if result.returncode == 0 or may_be_missing:
            return Verdict(SURVIVED, "")
        raise TrialError(f"`python {shown}` ended with {result.returncode}: {result.stdout.strip()[-500:]}")


def run_python(copy: Path, arguments: Sequence[str], limit: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in a copy. Raise `TimeoutExpired` after `limit` seconds."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=limit,
    )


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
    """Return verdicts by code name (see `name_of`). Mutants with the same code are tried once.

    `is_settled` decides whether a verdict of other tests still counts. `tell` gets each verdict immediately. Raise
    TrialError or BuildError.
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
            # The test that caught the mutant last time will probably catch it again.
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
