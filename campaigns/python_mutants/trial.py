"""Whether tests notice a mutant: those that run its line, in a copy of the project, until the first one fails."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from coverage import CoverageData

from campaigns.python_mutants.generate import Mutant

_MOST_SECONDS = 600
# Starting processes for fewer takes longer than they do.
_FEW = 8
# Of pytest: all was well; nothing was left to run.
_PASSED, _NONE = 0, 5
_TIMED_OUT = -1


class Verdict(StrEnum):
    OUTSIDE = "noticed by make test-outside"
    INSIDE = "noticed by other tests alone"
    SURVIVED = "survived"
    NOT_RUN = "no test runs its line"


class TrialError(Exception):
    """Tests couldn't be run; says why."""


def covering(data: CoverageData, root: Path, mutant: Mutant) -> list[str]:
    """Return the tests that run the line of a mutant, by pytest's identifiers."""
    contexts = data.contexts_by_lineno(str(root / mutant.path)).get(mutant.line, [])
    return sorted({context.rpartition("|")[0] for context in contexts} - {""})


def judge(copy: Path, mutant: Mutant, tests: Sequence[str], processes: int) -> Verdict:
    """Return what came of a mutant in a copy of the project, which is as before afterwards. Raises `TrialError`."""
    if not tests:
        return Verdict.NOT_RUN
    module = copy / mutant.path
    source = module.read_text()
    try:
        module.write_text(mutant.apply(source))
        codes = {}
        for mark, verdict in (("outside", Verdict.OUTSIDE), ("not outside", Verdict.INSIDE)):
            codes[mark] = _run(copy, ["-m", mark, *tests], processes)
            if codes[mark] not in {_PASSED, _NONE}:
                return verdict
        if set(codes.values()) == {_NONE}:
            raise TrialError(f"None of the tests of {mutant} ran.")
        return Verdict.SURVIVED
    finally:
        module.write_text(source)


def _run(copy: Path, arguments: Sequence[str], processes: int) -> int:
    """Return the exit code of pytest. Where it says neither that tests passed nor that none ran, the mutant is why."""
    listed = copy / "arguments.txt"
    listed.write_text("\n".join(arguments))
    parallel = ["-n", str(processes), "--dist", "worksteal"] if len(arguments) > _FEW else ["-n", "0"]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *parallel, f"@{listed}"]
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            capture_output=True,
            text=True,
            timeout=_MOST_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return _TIMED_OUT
    if "ERROR: not found:" in done.stderr:
        raise TrialError(done.stderr.strip())
    return done.returncode


@contextmanager
def copied(root: Path) -> Iterator[Path]:
    """Yield a copy of what git would add, with the same packages of npm."""
    with TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder) / "project"
        for name in listed(root):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, copy / name, follow_symlinks=False)
        # Tests read fixtures beside the project, where there are any.
        if (beside := root.parent / "shared").exists():
            (copy.parent / beside.name).symlink_to(beside)
        for name in (".venv", ".venv-verify", ".venv-generators", ".venv-beacon", "node_modules"):
            if (root / name).exists() and not (copy / name).exists():
                (copy / name).symlink_to(root / name)
        yield copy


def listed(root: Path) -> list[str]:
    """Return the files that git would add, by their paths below the project."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.split("\0") if name and (root / name).is_file()]


def table(verdicts: Mapping[Mutant, Verdict]) -> str:
    """Return how many mutants have each verdict, and which ones the outside suite misses."""
    counted = [f"{verdict}: {sum(each == verdict for each in verdicts.values())}" for verdict in Verdict]
    left = [f"  {mutant}: {verdict}" for mutant, verdict in sorted(verdicts.items()) if verdict != Verdict.OUTSIDE]
    return "\n".join([*counted, *left])
