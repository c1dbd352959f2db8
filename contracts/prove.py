"""Prove the properties in `proofs/` with halmos: `python -m contracts.prove`, with `--only REGEX` for some of them.

A property is a function `check_...`. halmos runs it with symbolic arguments, which stand for all values. The property
is proven if no path ends in a failed assertion, no path was cut short, and every path was supported.
docs/developing/proofs.md has the assumptions.

A proof that can't fail proves nothing. So each property is also tried on contracts with a deliberate fault
(`faults.py`), for which halmos must find a counterexample.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chains.contract_artifacts import code_digest
from contracts.build import ROOT_DIR, BuildError, needed, read_sources
from contracts.faults import FAULTS, SourceFault
from contracts.foundry import environment, write_project

HALMOS = ROOT_DIR / ".venv-verify" / "bin" / "halmos"

OPTIONS = (
    # All loops end before this bound, so none is cut short.
    *("--loop", "1000"),
    *("--solver-timeout-assertion", "300s"),
    *("--solver-threads", "1"),
    "--no-status",
)

# halmos fails on the sha256 precompile, because it mixes up bytes and bits. A contract in
# `proofs/BeaconHistoryProofs.sol` replaces the precompile.
STANDS_IN = ("src/BeaconHistory.sol", "src/GloasBeaconHistory.sol")
STAND_IN = ("SHA256 = 2;", "SHA256 = 0x5a256;")

# Maximum seconds for one property. Beyond that, the property counts as not proven.
TIME_LIMIT = 1800

# Maximum characters of halmos's output to print.
MOST_OUTPUT = 2000


@dataclass(frozen=True)
class Outcome:
    """The result of halmos for a property, and its duration."""

    is_proven: bool
    is_false: bool
    paths: int
    seconds: float
    output: str


def main() -> int:
    """Return the exit code. It is 1 if a property isn't proven or a fault isn't noticed."""
    parser = argparse.ArgumentParser(prog="python -m contracts.prove", description="Prove properties of the contracts.")
    parser.add_argument("--only", default="", help="properties whose name has a match of this regular expression")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at a time (%(default)s)")
    arguments = parser.parse_args()

    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            all_right = _prove_all(Path(folder), re.compile(arguments.only), arguments.jobs)
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{'All' if all_right else 'NOT ALL'} as it must be, in {time.monotonic() - started:.0f} s.\n")
    sys.stdout.write(f"The code's digest: {code_digest()}\n")
    return 0 if all_right else 1


def _prove_all(folder: Path, only: re.Pattern[str], jobs: int) -> bool:
    """Print a line for each property and each fault. Return whether all have the expected result."""
    sources = read_sources("src", "test", "proofs")
    genuine = folder / "genuine"
    output = _write(genuine, sources, *(path for path in sources if path.startswith("proofs/")))
    properties = {
        f"{name}.{signature.partition('(')[0]}"
        for contracts in output["contracts"].values()
        for name, contract in contracts.items()
        for signature in contract["evm"]["methodIdentifiers"]
        if signature.startswith("check_")
    }
    falsified = {fault.check for fault in FAULTS}
    if unknown := falsified - properties:
        raise BuildError(f"contracts/faults.py names properties that don't exist: {', '.join(sorted(unknown))}")
    if vacuous := properties - falsified:
        raise BuildError(f"contracts/faults.py has no fault for these properties: {', '.join(sorted(vacuous))}")
    faulty = [_with_fault(sources, fault) for fault in FAULTS]

    def prove(check: str) -> bool:
        outcome = _run_halmos(genuine, check)
        _print(outcome, "proven" if outcome.is_proven else "NOT PROVEN", check)
        return outcome.is_proven

    def notice(place: int) -> bool:
        fault = FAULTS[place]
        outcome = refute(folder / f"fault-{place}", faulty[place], fault.check)
        what = f"{fault.check}: {fault.before!r} -> {fault.after!r}"
        _print(outcome, "noticed" if outcome.is_false else "NOT NOTICED", what)
        return outcome.is_false

    pool = ThreadPoolExecutor(jobs)
    try:
        tasks = [
            *(pool.submit(prove, check) for check in sorted(properties) if only.search(check)),
            *(pool.submit(notice, place) for place, fault in enumerate(FAULTS) if only.search(fault.check)),
        ]
        # All results are awaited, so that a failure doesn't hide the others.
        return False not in [task.result() for task in tasks]
    finally:
        pool.shutdown(cancel_futures=True)


def refute(folder: Path, sources: Mapping[str, str], check: str) -> Outcome:
    """Search for one counterexample to a property of these sources, which are compiled into `folder`.

    Raises BuildError.
    """
    _write(folder, sources, f"proofs/{check.partition('.')[0]}.sol")
    return _run_halmos(folder, check, "--early-exit")


def _write(folder: Path, sources: Mapping[str, str], *paths: str) -> dict[str, Any]:
    """Compile the sources at these paths, and their imports, into a project. Return the compiler's output."""
    before, after = STAND_IN
    for source in STANDS_IN:
        if sources[source].count(before) != 1:
            raise BuildError(f"{source} doesn't have exactly once: {before!r}")
    replaced = {source: sources[source].replace(before, after) for source in STANDS_IN}
    return write_project(folder, needed({**sources, **replaced}, *paths))


def _print(outcome: Outcome, verdict: str, what: str) -> None:
    """Print a line. If the verdict is in capitals, also print the end of halmos's output."""
    line = f"{verdict:<11} {outcome.seconds:6.1f} s {outcome.paths:6} paths  {what}\n"
    sys.stdout.write(line + outcome.output[-MOST_OUTPUT:] if verdict.isupper() else line)
    sys.stdout.flush()


def _with_fault(sources: dict[str, str], fault: SourceFault) -> dict[str, str]:
    if sources[fault.source].count(fault.before) != 1:
        raise BuildError(f"{fault.source} doesn't have exactly once: {fault.before!r}")
    return {**sources, fault.source: sources[fault.source].replace(fault.before, fault.after)}


def _run_halmos(project: Path, check: str, *options: str) -> Outcome:
    contract, function = check.split(".")
    answer = project / f"{check}.json"
    command = [
        *(str(HALMOS), "--root", str(project), "--contract", contract, "--match-test", rf"^{function}\("),
        *("--json-output", str(answer), *OPTIONS, *options),
    ]
    try:
        run = subprocess.run(
            command,
            env=environment(project),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=TIME_LIMIT,
        )
    except FileNotFoundError:
        raise BuildError("halmos is not installed: run `make prove`.") from None
    except subprocess.TimeoutExpired as expired:
        return Outcome(is_proven=False, is_false=False, paths=0, seconds=TIME_LIMIT, output=f"{expired}\n")
    if not answer.exists():
        raise BuildError(f"halmos failed: {run.stdout}")
    # Counterexamples contain memory as integers with thousands of digits, which Python refuses to read as integers.
    ((result,),) = json.loads(answer.read_text(), parse_int=float)["test_results"].values()
    return Outcome(
        # halmos only warns about a loop that was cut short.
        is_proven=result["exitcode"] == 0 and result["num_bounded_loops"] == 0,
        is_false=result["exitcode"] == 1,
        # halmos leaves both fields empty for a run that failed.
        paths=int((result["num_paths"] or [0])[0]),
        seconds=(result["time"] or [0.0])[0],
        output=run.stdout,
    )


if __name__ == "__main__":
    sys.exit(main())
