"""Test the tests of the Python code: `make mutants-python`, SEED=1 COUNT=60.

Mutants are chosen at random, and each is judged by the tests that run its line. A first run of all tests tells which
these are; its result is kept for the same code.
"""

import argparse
import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

from coverage import CoverageData

from campaigns.python_mutants.generate import Mutant, generate
from campaigns.python_mutants.trial import Verdict, copied, covering, judge, listed, table
from devnet.devchain import PROJECT

PACKAGES = ("accounts", "api", "attesting", "chains", "config", "database", "explorer", "proving", "queries")


def main() -> int:
    """Return the exit code, which is 0 whatever survives: what is left is for a person to look at."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.python_mutants", description="Test the tests.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--processes", type=int, default=2 * (os.cpu_count() or 1))
    options = parser.parse_args()
    mutants = _chosen(options.seed, options.count)
    data = CoverageData(str(_measured(options.processes)))
    data.read()
    verdicts: dict[Mutant, Verdict] = {}
    with copied(PROJECT) as copy:
        for number, mutant in enumerate(mutants, 1):
            tests = covering(data, PROJECT, mutant)
            verdicts[mutant] = judge(copy, mutant, tests, options.processes)
            print(f"{number}/{len(mutants)} {verdicts[mutant]} ({len(tests)} tests): {mutant}", flush=True)
    print(f"\nSeed {options.seed}, {len(mutants)} mutants:\n{table(verdicts)}")
    return 0


def _chosen(seed: int, count: int) -> list[Mutant]:
    modules = [name for name in listed(PROJECT) if _is_own(Path(name))]
    every = [mutant for name in sorted(modules) for mutant in generate(name, (PROJECT / name).read_text())]
    print(f"{len(every)} mutants in {len(modules)} modules; {count} are chosen by the seed {seed}.", flush=True)
    return random.Random(seed).sample(every, count)


def _is_own(module: Path) -> bool:
    return module.suffix == ".py" and module.parts[0] in PACKAGES and "migrations" not in module.parts


def _measured(processes: int) -> Path:
    """Return the file that says which tests run which lines of this code. Runs all tests where it isn't there."""
    digest = hashlib.sha256()
    for name in sorted(listed(PROJECT)):
        if name.endswith(".py"):
            digest.update(name.encode() + (PROJECT / name).read_bytes())
    file = PROJECT / ".mutants" / f"coverage-{digest.hexdigest()[:16]}"
    if file.exists():
        return file
    file.parent.mkdir(exist_ok=True)
    print("Running all tests to see which lines each runs ...", flush=True)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        str(processes),
        "--dist",
        "worksteal",
    ]
    command += [*(f"--cov={package}" for package in PACKAGES), "--cov-context=test", "--cov-report="]
    unfinished = file.with_name("unfinished")
    subprocess.run(command, cwd=PROJECT, env=os.environ | {"COVERAGE_FILE": str(unfinished)}, check=True)
    return unfinished.rename(file)


if __name__ == "__main__":
    sys.exit(main())
