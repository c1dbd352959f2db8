"""Contracts with a changed source, in which a forgery must work."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chains.contract_artifacts import Artifact, load_artifact
from contracts.build import ROOT_DIR, SETTINGS, imported_path, read_sources, run_compiler

# Compiled code is kept, because compiling takes ten seconds each time. The file name is a hash of everything that
# determines the code, so a file can't belong to other sources. A wrong file would make a test fail.
KEPT = ROOT_DIR / "tests/contracts/compiled"
# A string, or a comment. Comments don't determine the code, because its metadata has no hash of the sources.
_STRING_OR_COMMENT = re.compile(r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|//[^\n]*|/\*.*?\*/""", re.DOTALL)


def compile_with(source: str, changed: str, old: str, new: str) -> Artifact:
    """Compile the contract in `source`. The first `old` in the source `changed` is replaced by `new`.

    Sources are paths below `contracts/`. Raise ValueError if `old` is missing or the compiler refuses.
    """
    sources = read_sources("src", "test")
    if old not in sources[changed]:
        raise ValueError(f"{changed} has no such text: {old}")
    sources[changed] = sources[changed].replace(old, new, 1)
    [artifact] = compile_each([sources], source)
    return artifact


def compile_each(variants: Sequence[Mapping[str, str]], source: str) -> list[Artifact]:
    """Return the contract in `source`, compiled from each variant (sources by path), or from KEPT if it is there.

    The interface must be that of the unchanged contract. Raise ValueError if it differs or the compiler refuses.
    """
    abi = load_artifact(source.removeprefix("src/").removesuffix(".sol")).abi

    def compiled(sources: Mapping[str, str]) -> Artifact:
        needed = {path: sources[path] for path in sorted(set(_needed(sources, source)))}
        path = KEPT / f"{_digest(source, needed)}.hex"
        if not path.exists():
            _keep(path, _compile(needed, source, abi))
        # The artifact is only deployed, so its runtime code isn't needed.
        return Artifact(abi=abi, bytecode=bytes.fromhex(path.read_text()), runtime=b"", immutables={})

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(compiled, variants))


def _needed(sources: Mapping[str, str], path: str) -> Iterator[str]:
    """Yield the paths of a source and its imports. Some occur twice."""
    yield path
    for imported in re.findall(r'^import [^;]*"(.+?)";', sources[path], re.MULTILINE):
        yield from _needed(sources, imported_path(path, imported))


def _digest(source: str, needed: Mapping[str, str]) -> str:
    compiler = json.loads((ROOT_DIR / "package-lock.json").read_text())["packages"]["node_modules/solc"]["integrity"]
    code = {path: _STRING_OR_COMMENT.sub(r"\1", text).split() for path, text in needed.items()}
    inputs = json.dumps([compiler, SETTINGS, source, code], sort_keys=True)
    return hashlib.sha256(inputs.encode()).hexdigest()


def _compile(needed: Mapping[str, str], source: str, abi: object) -> str:
    output = run_compiler(needed, {source: {"*": ["abi", "evm.bytecode.object"]}})
    # Warnings are expected, for example about unused variables.
    if errors := [each["formattedMessage"] for each in output.get("errors", []) if each["severity"] == "error"]:
        raise ValueError("\n".join(errors))
    [contract] = output["contracts"][source].values()
    if contract["abi"] != abi:
        raise ValueError(f"{source} has another interface than its artifact.")
    code: str = contract["evm"]["bytecode"]["object"]
    return code


def _keep(path: Path, code: str) -> None:
    """Write the file atomically, because several processes may write it."""
    path.parent.mkdir(exist_ok=True)
    begun = path.with_suffix(f".{os.getpid()}.tmp")
    begun.write_text(f"{code}\n")
    begun.rename(path)
