"""Make a folder look like a built Foundry project, as verification tools require. Foundry itself isn't used.

Our compiler compiles the sources. `forge` is a script that does nothing and succeeds.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.build import BuildError, run_compiler

OUTPUTS = [
    *("abi", "devdoc", "evm.bytecode", "evm.deployedBytecode", "evm.methodIdentifiers"),
    *("metadata", "storageLayout", "userdoc"),
]


def write_project(folder: Path, sources: Mapping[str, str]) -> dict[str, Any]:
    """Compile sources into a folder. Return the compiler's output.

    `sources` has texts by their paths below `contracts/`. Raises BuildError if they don't compile. Warnings are
    ignored.
    """
    output = run_compiler(sources, {"*": {"": ["ast"], "*": OUTPUTS}})
    if errors := [each["formattedMessage"] for each in output.get("errors", []) if each["severity"] == "error"]:
        raise BuildError("\n".join(errors))
    version = ""
    for source, contracts in output["contracts"].items():
        for name, contract in contracts.items():
            # Interfaces have no metadata.
            metadata = json.loads(contract["metadata"] or "{}")
            version = metadata.get("compiler", {}).get("version", version)
            artifact = {
                "abi": contract["abi"],
                "ast": output["sources"][source]["ast"],
                "bytecode": _hexadecimal(contract["evm"]["bytecode"]),
                "deployedBytecode": _hexadecimal(contract["evm"]["deployedBytecode"]),
                "id": output["sources"][source]["id"],
                "metadata": metadata,
                "methodIdentifiers": contract["evm"]["methodIdentifiers"],
                "storageLayout": contract["storageLayout"],
            }
            _write(folder / "out" / Path(source).name / f"{name}.json", json.dumps(artifact))
    build = {
        "input": {"language": "Solidity", "settings": {}},
        "output": output,
        "solcVersion": version.partition("+")[0],
    }
    _write(folder / "out" / "build-info" / "build.json", json.dumps(build))
    for source, text in sources.items():
        _write(folder / source, text)
    _write(folder / "foundry.toml", "")
    _write(folder / "bin" / "forge", "#!/bin/sh\necho '{}'\n")
    (folder / "bin" / "forge").chmod(0o700)
    return output


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a tool.

    The tool finds our `forge`, and leaves its own files in the project's folder.
    """
    return {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), "TMPDIR": str(folder)}


def _hexadecimal(bytecode: dict[str, Any]) -> dict[str, Any]:
    return {**bytecode, "object": "0x" + bytecode["object"]}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
