"""Slither's findings in `src/`, for `make slither`. Each kind of finding must be explained below.

It runs in the environment of the verification tools. Slither needs the compiler as a program, so it gets a script that
calls our compiler.
"""

import inspect
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from crytic_compile import CryticCompile
from crytic_compile.platform.solc_standard_json import SolcStandardJson
from slither import Slither
from slither.detectors import all_detectors
from slither.detectors.abstract_detector import AbstractDetector

from contracts.build import LIBRARY, LIBRARY_DIR, ROOT_DIR, SETTINGS, SOLC, read_sources


class Finding(NamedTuple):
    check: str
    description: str


# For each of slither's checks, the reason why its findings are no faults. Each finding was looked at.
EXPLAINED: dict[str, str] = {
    "assembly": (
        "Proofs are read and nodes are written in assembly where Solidity can't, or costs much more. soundness.md "
        "argues for each zone of memory, and fuzzing compares every operation with a model."
    ),
    "cyclomatic-complexity": (
        "BranchWriter.put reads one kind of list in one loop, FactsReader.registryOf is a binary search, and "
        "FactsRegistry's fallback follows a proof from its first byte on. They are easier to follow whole."
    ),
    "cache-array-length": "Attesters are changed rarely, and reading the length is the clearer form.",
    "calls-loop": "FactsReader's constructor asks 16 registries at most. If one fails, there is no reader.",
    "incorrect-exp": (
        "In assembly `xor` is what is meant: it compares, or swaps the sides of a pair, or the last bit of an index."
    ),
    "incorrect-shift": (
        "In assembly the number of bits comes first: 1 is shifted, by a byte of a hash for a bloom and by a nibble for "
        "the place in a branch."
    ),
    "missing-inheritance": "The package's interfaces are for users, and deployed contracts don't import them.",
    "missing-zero-check": "A source that asks the zero address records nothing, because the call answers nothing.",
    "naming-convention": "Curve's interface has the names of Vyper.",
    "pragma": "The library takes older compilers, for contracts that import it.",
    "solc-version": "tests/contracts/no_database/test_compiler_bugs.py looks at each known bug from 0.8.20 on.",
    "too-many-digits": "These are hashes.",
    "write-after-write": "In ReceiptReader.logItems these are offset and length of one slice of calldata.",
    "uninitialized-local": "Solidity begins locals and structs in memory with zeros, which is what is meant.",
    "unused-return": "The place of a cursor or of a subtree, or one of several items, is often of no interest.",
}


def findings() -> Iterator[Finding]:
    """Yield the findings of all of slither's detectors."""
    with tempfile.TemporaryDirectory() as folder:
        compiler = _compiler(Path(folder))
        request = SolcStandardJson()
        request._json = _request()  # noqa: SLF001 (otherwise it reads a file)
        slither = Slither(CryticCompile(request, solc=str(compiler)))
        for _, detector in inspect.getmembers(all_detectors, inspect.isclass):
            if issubclass(detector, AbstractDetector):
                slither.register_detector(detector)
        for detected in slither.run_detectors():
            for finding in detected:
                yield Finding(finding["check"], " ".join(finding["description"].split()))


def _request() -> dict[str, Any]:
    outputs = {"*": ["abi", "metadata", "devdoc", "userdoc", "evm.bytecode", "evm.deployedBytecode"], "": ["ast"]}
    # Slither opens each source as a file. Those of the library are named as they are imported.
    library = f"{LIBRARY_DIR.relative_to(ROOT_DIR)}/"
    return {
        "language": "Solidity",
        "sources": {path.replace(LIBRARY, library): {"content": text} for path, text in read_sources("src").items()},
        "settings": {**SETTINGS, "remappings": [f"{LIBRARY}={library}"], "outputSelection": {"*": outputs}},
    }


def _compiler(folder: Path) -> Path:
    """Write a program that answers like solc: its version, and standard JSON."""
    # Files are used instead of pipes, as in `contracts.build`. solc-js may print a line before the JSON.
    script = folder / "solc"
    script.write_text(
        "#!/bin/sh\n"
        f'solc() {{ node "{SOLC}" "$@"; }}\n'
        'if [ "$1" = "--version" ]; then echo "Version: $(solc --version)"; exit; fi\n'
        f'cat > "{folder}/question"\n'
        f'solc --standard-json < "{folder}/question" > "{folder}/answer" && sed -n "/^{{/,\\$p" "{folder}/answer"\n'
    )
    script.chmod(0o700)
    return script


def main() -> int:
    """Return the exit code. It is 1 if a finding isn't explained, or if an explanation has no finding any more."""
    all_findings = list(findings())
    if not all_findings:
        sys.stderr.write("Slither finds nothing at all, not even assembly: something is wrong with it.\n")
        return 1
    new = [finding for finding in all_findings if finding.check not in EXPLAINED]
    for finding in new:
        sys.stdout.write(f"{finding.check}: {finding.description}\n")
    stale = EXPLAINED.keys() - {finding.check for finding in all_findings}
    for check in sorted(stale):
        sys.stdout.write(f"Nothing is found of {check} any more: its explanation can go.\n")
    sys.stdout.write(f"{len(all_findings)} findings, {len(all_findings) - len(new)} of them explained.\n")
    return int(bool(new or stale))


if __name__ == "__main__":
    sys.exit(main())
