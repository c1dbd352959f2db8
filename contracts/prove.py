"""Proves the properties in `proofs/` with halmos: `python -m contracts.prove`, or `--only REGEX` for some of them.

A property is a function `check_...`, which halmos runs with arguments that stand for all arguments. It is proven where
no path ends in a failed assertion, none was cut short, and none needed what halmos can't do. docs/proofs.md lists them.

A proof that can't fail shows nothing. So each property is also tried on contracts that were broken on purpose
(`mutants.py`), where halmos must find that it is false.

halmos wants a Foundry project. It gets one in a temporary folder: what our own compiler made, laid out as Foundry does,
and a `forge` that does nothing.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.build import CONTRACTS_DIR, ROOT_DIR, BuildError, run_compiler
from contracts.mutants import MUTANTS, Mutant

HALMOS = ROOT_DIR / ".venv-verify" / "bin" / "halmos"

OPTIONS = (
    # All loops end by themselves: none is cut short.
    *("--loop", "1000"),
    *("--solver-timeout-assertion", "300s"),
    *("--solver-threads", "1"),
    "--no-status",
)

# For one property, in seconds: what takes longer counts as not proven.
TIME_LIMIT = 1800

OUTPUTS = ["abi", "evm.bytecode", "evm.deployedBytecode", "evm.methodIdentifiers", "metadata", "storageLayout"]


@dataclass(frozen=True)
class Outcome:
    """What halmos found out about a property."""

    is_proven: bool
    is_false: bool
    paths: int
    seconds: float
    said: str


def main() -> int:
    """Returns the exit code: 1, with what halmos said, where a property isn't proven or a broken contract has it."""
    parser = argparse.ArgumentParser(prog="python -m contracts.prove", description="Prove properties of the contracts.")
    parser.add_argument("--only", type=re.compile, default="", help="properties whose name matches this regex")
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
    return 0 if all_right else 1


def _prove_all(folder: Path, only: re.Pattern[str], jobs: int) -> bool:
    """Prints a line for each property and each mutant. Returns whether all are as they must be."""
    genuine = folder / "genuine"
    properties = _write_project(genuine, _sources())
    mutated = [_mutate(mutant) for mutant in MUTANTS]
    if unknown := {mutant.check for mutant in MUTANTS} - properties:
        raise BuildError(f"mutants.py names what is no property: {', '.join(sorted(unknown))}")
    if vacuous := properties - {mutant.check for mutant in MUTANTS}:
        raise BuildError(f"mutants.py has nothing that shows that these can fail: {', '.join(sorted(vacuous))}")

    def prove(check: str) -> bool:
        outcome = _run_halmos(genuine, check)
        _print(outcome, "proven" if outcome.is_proven else "NOT PROVEN", check)
        return outcome.is_proven

    def notice(place: int) -> bool:
        mutant = MUTANTS[place]
        project = folder / f"mutant-{place}"
        _write_project(project, mutated[place])
        outcome = _run_halmos(project, mutant.check, "--early-exit")
        what = f"{mutant.check}: {mutant.before!r} -> {mutant.after!r}"
        _print(outcome, "noticed" if outcome.is_false else "NOT NOTICED", what)
        return outcome.is_false

    pool = ThreadPoolExecutor(jobs)
    try:
        tasks = [
            *(pool.submit(prove, check) for check in sorted(properties) if only.search(check)),
            *(pool.submit(notice, place) for place, mutant in enumerate(MUTANTS) if only.search(mutant.check)),
        ]
        # All of them, so that one that fails doesn't hide the others.
        return False not in [task.result() for task in tasks]
    finally:
        pool.shutdown(cancel_futures=True)


def _print(outcome: Outcome, verdict: str, what: str) -> None:
    """A line, and what halmos said where the verdict is in capitals."""
    line = f"{verdict:<11} {outcome.seconds:6.1f} s {outcome.paths:6} paths  {what}\n"
    sys.stdout.write(line + outcome.said if verdict.isupper() else line)
    sys.stdout.flush()


def _sources() -> dict[str, str]:
    return {
        path.relative_to(CONTRACTS_DIR).as_posix(): path.read_text()
        for directory in ("src", "proofs")
        for path in sorted((CONTRACTS_DIR / directory).glob("*.sol"))
    }


def _mutate(mutant: Mutant) -> dict[str, str]:
    """The contract that has the property, and what it imports: it compiles in a fraction of the time of everything."""
    sources = _sources()
    if sources[mutant.source].count(mutant.before) != 1:
        raise BuildError(f"{mutant.source} doesn't have exactly once: {mutant.before!r}")
    sources[mutant.source] = sources[mutant.source].replace(mutant.before, mutant.after)

    needed = [f"proofs/{mutant.check.partition('.')[0]}.sol"]
    for path in needed:
        names = re.findall(r'^import .* from "(.*)";', sources[path], re.MULTILINE)
        imported = (os.path.normpath(Path(path).parent / name) for name in names)
        needed += [name for name in imported if name not in needed]
    return {path: sources[path] for path in needed}


def _write_project(folder: Path, sources: dict[str, str]) -> set[str]:
    """Compiles the sources into what looks like a Foundry project. Returns the names of the properties.

    Raises BuildError as the build of the artifacts does, except for warnings.
    """
    output = run_compiler(sources, {"*": {"": ["ast"], "*": OUTPUTS}})
    # A warning is no matter here: a mutant may well leave something unused.
    if errors := [message for message in output.get("errors", []) if message["severity"] == "error"]:
        raise BuildError("\n".join(message["formattedMessage"] for message in errors))

    properties = set()
    for source, contracts in output["contracts"].items():
        for name, contract in contracts.items():
            path = folder / "out" / Path(source).name / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(_as_foundry(contract, output["sources"][source])))
            if source.startswith("proofs/"):
                functions = {signature.partition("(")[0] for signature in contract["evm"]["methodIdentifiers"]}
                properties |= {f"{name}.{function}" for function in functions if function.startswith("check_")}
    forge = folder / "bin" / "forge"
    forge.parent.mkdir()
    forge.write_text("#!/bin/sh\n")
    forge.chmod(0o700)
    return properties


def _as_foundry(contract: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    evm = contract["evm"]
    return {
        "abi": contract["abi"],
        "bytecode": {**evm["bytecode"], "object": "0x" + evm["bytecode"]["object"]},
        "deployedBytecode": {**evm["deployedBytecode"], "object": "0x" + evm["deployedBytecode"]["object"]},
        "methodIdentifiers": evm["methodIdentifiers"],
        "metadata": json.loads(contract["metadata"] or "{}"),
        "storageLayout": contract["storageLayout"],
        "ast": source["ast"],
        "id": source["id"],
    }


def _run_halmos(project: Path, check: str, *options: str) -> Outcome:
    contract, function = check.split(".")
    answer = project / f"{check}.json"
    command = [
        *(str(HALMOS), "--root", str(project), "--contract", contract, "--match-test", rf"^{function}\("),
        *("--json-output", str(answer), *OPTIONS, *options),
    ]
    # Queries that were too hard are kept in files: let them vanish with the project.
    environment = {"PATH": f"{project / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(project), "HOME": str(project)}
    try:
        run = subprocess.run(  # noqa: S603 - our own arguments
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=TIME_LIMIT,
        )
    except FileNotFoundError:
        raise BuildError("halmos is not installed: run `make prove`.") from None
    except subprocess.TimeoutExpired as expired:
        return Outcome(is_proven=False, is_false=False, paths=0, seconds=TIME_LIMIT, said=f"{expired}\n")
    if not answer.exists():
        raise BuildError(f"halmos failed: {run.stdout}")
    ((result,),) = json.loads(answer.read_text())["test_results"].values()
    return Outcome(
        # A loop that was cut short is only a warning to halmos.
        is_proven=result["exitcode"] == 0 and result["num_bounded_loops"] == 0,
        is_false=result["exitcode"] == 1,
        paths=result["num_paths"][0],
        seconds=result["time"][0],
        said=run.stdout,
    )


if __name__ == "__main__":
    sys.exit(main())
