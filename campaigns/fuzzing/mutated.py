"""Contracts with something changed in their sources, to see that it is found."""

import hashlib
import json
import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from contracts import Artifact, load_artifact
from contracts.build import ROOT_DIR, SETTINGS, read_sources, run_compiler

# What was compiled, as compiling takes ten seconds each. A name is the hash of all that the code depends on, so what is
# there can't be of other sources; and a wrong one would fail the test that looks for what its contract lacks.
KEPT = ROOT_DIR / "tests/contracts/compiled"


def compile_with(source: str, changed: str, old: str, new: str) -> Artifact:
    """The contract in `source`, with `old` replaced by `new` where it comes first in the source `changed`.

    Sources are paths below `contracts/`. Raises ValueError where `old` isn't there, and where the compiler refuses.
    """
    sources = read_sources("src", "test")
    if old not in sources[changed]:
        raise ValueError(f"{changed} has no such text: {old}")
    sources[changed] = sources[changed].replace(old, new, 1)
    [artifact] = compile_each([sources], source)
    return artifact


def compile_each(variants: Sequence[Mapping[str, str]], source: str) -> list[Artifact]:
    """The one contract in `source`, out of each of these sources by their paths; from what is KEPT, where it is there.

    Its interface is that of the contract as it is. Raises ValueError where it isn't, and where the compiler refuses.
    """
    abi = load_artifact(source.removeprefix("src/").removesuffix(".sol")).abi

    def compiled(sources: Mapping[str, str]) -> Artifact:
        needed = {path: sources[path] for path in sorted(set(_needed(sources, source)))}
        path = KEPT / f"{_digest(source, needed)}.hex"
        if not path.exists():
            _keep(path, _compile(needed, source, abi))
        # It is only deployed: nobody asks for the code that it then has.
        return Artifact(abi=abi, bytecode=bytes.fromhex(path.read_text()), runtime=b"", immutables={})

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(compiled, variants))


def _needed(sources: Mapping[str, str], path: str) -> Iterator[str]:
    """The paths of what is compiled with it, some of them again."""
    yield path
    for imported in re.findall(r'^import [^;]*"(\..+?)";', sources[path], re.MULTILINE):
        yield from _needed(sources, posixpath.normpath(posixpath.join(posixpath.dirname(path), imported)))


def _digest(source: str, needed: Mapping[str, str]) -> str:
    compiler = json.loads((ROOT_DIR / "package-lock.json").read_text())["packages"]["node_modules/solc"]["integrity"]
    given = json.dumps([compiler, SETTINGS, source, needed], sort_keys=True)
    return hashlib.sha256(given.encode()).hexdigest()


def _compile(needed: Mapping[str, str], source: str, abi: object) -> str:
    output = run_compiler(needed, {source: {"*": ["abi", "evm.bytecode.object"]}})
    # Warnings, as of what is unused then, are expected.
    if errors := [each["formattedMessage"] for each in output.get("errors", []) if each["severity"] == "error"]:
        raise ValueError("\n".join(errors))
    [contract] = output["contracts"][source].values()
    if contract["abi"] != abi:
        raise ValueError(f"{source} has another interface than its artifact.")
    code: str = contract["evm"]["bytecode"]["object"]
    return code


def _keep(path: Path, code: str) -> None:
    """Wholly or not at all, as several processes may do it."""
    path.parent.mkdir(exist_ok=True)
    begun = path.with_suffix(f".{os.getpid()}.tmp")
    begun.write_text(f"{code}\n")
    begun.rename(path)
