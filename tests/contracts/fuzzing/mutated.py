"""Contracts with something changed in their sources, to see that it is found."""

from collections.abc import Mapping
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
    return compile_one(sources, source)


def compile_one(sources: Mapping[str, str], source: str) -> Artifact:
    """The one contract in `source`, out of sources by their paths. Raises ValueError where the compiler refuses."""
    output = run_compiler(sources, {source: {"*": ["abi", "evm.bytecode.object"]}})
    # Warnings, as of what is unused then, are expected.
    if errors := [each["formattedMessage"] for each in output.get("errors", []) if each["severity"] == "error"]:
        raise ValueError("\n".join(errors))
    contracts: dict[str, Any] = output["contracts"][source]
    [contract] = contracts.values()
    bytecode = bytes.fromhex(contract["evm"]["bytecode"]["object"])
    # It is only deployed: nobody asks for the code that it then has.
    return Artifact(abi=contract["abi"], bytecode=bytecode, runtime=b"", immutables={})
