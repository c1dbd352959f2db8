"""Contracts with something changed in their sources, to see that it is found."""

from collections.abc import Mapping, Sequence
from typing import Any

from contracts import Artifact
from contracts.build import read_sources, run_compiler


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
    """The one contract in `source`, out of each of these sources by their paths, with one start of the compiler.

    Raises ValueError where it refuses.
    """
    paths = [f"{place}/{source}" for place in range(len(variants))]
    texts = {f"{place}/{path}": text for place, sources in enumerate(variants) for path, text in sources.items()}
    output = run_compiler(texts, {path: {"*": ["abi", "evm.bytecode.object"]} for path in paths})
    # Warnings, as of what is unused then, are expected.
    if errors := [each["formattedMessage"] for each in output.get("errors", []) if each["severity"] == "error"]:
        raise ValueError("\n".join(errors))
    return [_artifact(output["contracts"][path]) for path in paths]


def _artifact(contracts: Mapping[str, Any]) -> Artifact:
    [contract] = contracts.values()
    bytecode = bytes.fromhex(contract["evm"]["bytecode"]["object"])
    # It is only deployed: nobody asks for the code that it then has.
    return Artifact(abi=contract["abi"], bytecode=bytecode, runtime=b"", immutables={})
