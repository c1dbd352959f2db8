"""Compiles mutants and tries the tests on each: in a copy of the project in which its code is what the tests deploy.

What was found is kept in a folder, a file for each piece of code: whoever is interrupted goes on where he was.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from contracts.build import ROOT_DIR, SETTINGS, run_compiler
from tests.contracts.mutants.generate import Mutant, Node, imported

# Bytecode of each contract that a mutant can change, in hexadecimal digits, by its name.
Code = Mapping[str, str]

# Of mutants that are compiled in one go, which saves starting the compiler: it takes seconds a mutant.
_BATCH = 6

# Whatever takes so much longer than without a mutation has hung.
_PATIENCE_FACTOR = 5
_PATIENCE_SECONDS = 30

_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", re.MULTILINE)


class TrialError(Exception):
    """Nothing can be said of the tests; the message says why."""


class Command(NamedTuple):
    """What may catch a mutant, as arguments of Python: it ends with 1 then, and with 0 if it finds nothing."""

    kind: str
    """What the report calls it: tests, steps."""
    arguments: tuple[str, ...]


def pytest(*tests: str) -> Command:
    """These files or tests, up to the first that fails."""
    return Command("tests", ("-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", *tests))


class Verdict(NamedTuple):
    outcome: str
    """The kind of command that caught it, or TIMED_OUT, or SURVIVED."""
    by: str
    """The test, or the command."""


TIMED_OUT = "timed out"
SURVIVED = "survived"


class Store:
    """JSON by name, in a folder. Several processes may use it: a file is there wholly or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> Any:
        """None where there is nothing."""
        path = self._folder / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def put(self, name: str, value: Any) -> None:
        path = self._folder / f"{name}.{os.getpid()}.tmp"
        path.write_text(json.dumps(value))
        path.rename(self._folder / f"{name}.json")


def compile_all(
    sources: Mapping[str, str],
    trees: Mapping[str, Node],
    mutants: Sequence[Mutant],
    *,
    store: Store,
    jobs: int,
    tell: Callable[[int], None] = lambda _: None,
) -> dict[Mutant, Code | None]:
    """The code of each mutant, of all contracts that need its source; None where it doesn't compile.

    `tell` is told how many more are done. Raises BuildError where the compiler can't run.
    """
    needs = imported(trees)
    lock = (ROOT_DIR / "package-lock.json").read_text()
    named = {}
    for mutant in mutants:
        texts = {path: sources[path] for path in needs[mutant.source]} | _mutated(mutant, sources, needs)
        named[mutant] = _digest([SETTINGS, lock, sorted(texts.items())])
    codes: dict[Mutant, Code | None] = {}
    missing = []
    for mutant in mutants:
        if (known := store.get(named[mutant])) is None:
            missing.append(mutant)
        else:
            codes[mutant] = known["code"]
    tell(len(codes))
    # Neighbours are mostly of the same source and need the same contracts.
    batches = [missing[place : place + _BATCH] for place in range(0, len(missing), _BATCH)]
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for done in as_completed([pool.submit(_compile, batch, sources, needs) for batch in batches]):
                for mutant, code in done.result().items():
                    codes[mutant] = code
                    store.put(named[mutant], {"code": code})
                tell(len(done.result()))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return codes


def _mutated(mutant: Mutant, sources: Mapping[str, str], needs: Mapping[str, set[str]]) -> dict[str, str]:
    """All sources that are needed to compile those that need the mutant's."""
    dependents = [path for path in needs if mutant.source in needs[path]]
    needed = {path: sources[path] for each in dependents for path in needs[each]}
    return needed | {mutant.source: mutant.apply(sources[mutant.source])}


def _compile(
    batch: Sequence[Mutant], sources: Mapping[str, str], needs: Mapping[str, set[str]]
) -> dict[Mutant, Code | None]:
    texts: dict[str, str] = {}
    selection: dict[str, Any] = {}
    for place, mutant in enumerate(batch):
        texts |= {f"{place}/{path}": text for path, text in _mutated(mutant, sources, needs).items()}
        selection |= {
            f"{place}/{path}": {"*": ["evm.bytecode.object"]} for path in needs if mutant.source in needs[path]
        }
    output = run_compiler(texts, selection)
    if any(message["severity"] == "error" for message in output.get("errors", [])):
        # One that is wrong keeps the compiler from all.
        if len(batch) == 1:
            return {batch[0]: None}
        return {mutant: code for each in batch for mutant, code in _compile([each], sources, needs).items()}
    codes: dict[Mutant, dict[str, str]] = {mutant: {} for mutant in batch}
    for path, contracts in output["contracts"].items():
        mutant = batch[int(path.split("/")[0])]
        codes[mutant] |= {name: contract["evm"]["bytecode"]["object"] for name, contract in contracts.items()}
    return dict(codes)


class Project:
    """The project as it is, and what its artifacts are without a mutation."""

    def __init__(self, root: Path, artifacts: Mapping[Path, str], commands: Mapping[str, Sequence[Command]]) -> None:
        """`commands` has those that may catch a mutant by the contract that it changes, in the order to try them."""
        self._root = root
        self._artifacts = {path.stem: json.loads(text) for path, text in artifacts.items() if path.parent == Path()}
        self._commands = commands
        self._seconds: dict[Command, float] = {}
        listed = subprocess.run(  # Those that git would add, so that nobody's own files get into it.
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            check=True,
        )
        self._files = [path for each in listed.stdout.decode().split("\0") if each and (path := Path(each))]

    def changed(self, code: Code) -> Code:
        """What of a mutant's code is another one than without the mutation. Libraries have no artifact."""
        return {
            name: digits
            for name, digits in code.items()
            if name in self._artifacts and self._artifacts[name]["bytecode"] != "0x" + digits
        }

    def digest(self) -> str:
        """Of what decides whether a test passes, beside the code: with another one, verdicts are to be made again."""
        tests = {
            path.as_posix(): hashlib.sha256((self._root / path).read_bytes()).hexdigest()
            for path in self._files
            if path.parts[0] in {"chains", "contracts", "tests"}
            and path.suffix == ".py"
            and "mutants" not in path.as_posix()
        }
        return _digest([tests, sorted(self._artifacts.items()), self._commands])

    @contextmanager
    def copy(self) -> Iterator[Path]:
        """A copy without a mutation, for as long as it is used."""
        with TemporaryDirectory(prefix="mutants-") as folder:
            root = Path(folder)
            for path in self._files:
                if (self._root / path).is_file():
                    (root / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(self._root / path, root / path)
            if not (root / "node_modules").exists():
                (root / "node_modules").symlink_to(self._root / "node_modules")
            for name in self._artifacts:
                self._write(root, name)
            yield root

    def commands(self, changed: Iterable[str]) -> list[Command]:
        """Raises TrialError where none are known."""
        commands: list[Command] = []
        for name in sorted(changed):
            if name not in self._commands:
                raise TrialError(
                    f"Nothing is known that tests {name}: COMMANDS in tests/contracts/mutants must name it."
                )
            commands += [command for command in self._commands[name] if command not in commands]
        return commands

    def measure(self, copy: Path, commands: Iterable[Command]) -> None:
        """How long each takes without a mutation. Raises TrialError where one fails."""
        for command in commands:
            began = time.monotonic()
            if (verdict := self._run(copy, command, limit=None)).outcome != SURVIVED:
                raise TrialError(f"It fails without any mutation: {verdict.by}")
            self._seconds[command] = time.monotonic() - began

    def judge(self, copy: Path, code: Code, *, first: str = "") -> Verdict:
        """Whether anything fails with that code; `first` may name the test that probably will.

        Raises TrialError where a command can't run.
        """
        commands = self.commands(code)
        for name, digits in code.items():
            self._write(copy, name, bytecode="0x" + digits)
        try:
            if first:
                limit = max(map(self._limit, commands))
                if (verdict := self._run(copy, pytest(first), limit, may_be_missing=True)).outcome != SURVIVED:
                    return verdict
            for command in commands:
                if (verdict := self._run(copy, command, self._limit(command))).outcome != SURVIVED:
                    return verdict
            return Verdict(SURVIVED, "")
        finally:
            for name in code:
                self._write(copy, name)

    def _write(self, copy: Path, name: str, **changes: str) -> None:
        (copy / "contracts" / "artifacts" / f"{name}.json").write_text(json.dumps({**self._artifacts[name], **changes}))

    def _limit(self, command: Command) -> float:
        return _PATIENCE_SECONDS + _PATIENCE_FACTOR * self._seconds[command]

    def _run(self, copy: Path, command: Command, limit: float | None, *, may_be_missing: bool = False) -> Verdict:
        shown = " ".join(command.arguments)
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
            failed = _FAILED_TEST.search(result.stdout)
            return Verdict(command.kind, failed[1] if failed else shown)
        # Pytest says 4 of a test that isn't there any more.
        if result.returncode == 0 or may_be_missing:
            return Verdict(SURVIVED, "")
        raise TrialError(f"`python {shown}` ended with {result.returncode}: {result.stdout.strip()[-500:]}")


def judge_all(
    project: Project,
    codes: Iterable[Code],
    *,
    store: Store,
    jobs: int,
    tell: Callable[[Code, Verdict], None] = lambda *_: None,
) -> dict[str, Verdict]:
    """Verdicts by the names of the codes, see `name_of`. `tell` is told each as it comes. Raises TrialError."""
    digest = project.digest()
    verdicts: dict[str, Verdict] = {}
    waiting: dict[str, tuple[Code, str]] = {}
    for name, code in {name_of(code): code for code in codes}.items():
        known = store.get(name)
        if known and known["digest"] == digest:
            verdicts[name] = Verdict(*known["verdict"])
            tell(code, verdicts[name])
        else:
            # What caught it the last time will mostly do so again.
            waiting[name] = code, known["verdict"][1] if known and known["verdict"][0] == "tests" else ""
    if not waiting:
        return verdicts

    commands = project.commands({name for code, _ in waiting.values() for name in code})
    free: SimpleQueue[Path] = SimpleQueue()

    def judge(code: Code, first: str) -> Verdict:
        copy = free.get()
        try:
            return project.judge(copy, code, first=first)
        finally:
            free.put(copy)

    with ExitStack() as copies, ThreadPoolExecutor(jobs) as pool:
        for _ in range(jobs):
            free.put(copies.enter_context(project.copy()))
        project.measure(copy := free.get(), commands)
        free.put(copy)
        futures = {pool.submit(judge, *each): name for name, each in waiting.items()}
        try:
            for done in as_completed(futures):
                name = futures[done]
                verdicts[name] = done.result()
                store.put(name, {"digest": digest, "verdict": verdicts[name]})
                tell(waiting[name][0], verdicts[name])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return verdicts


def name_of(code: Code) -> str:
    return _digest(sorted(code.items()))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
