"""Compile the contracts into `artifacts/`: `python -m contracts.build`. With `--check`, compare without writing.

The compiler is solc-js from `node_modules`, at the version in package-lock.json, so that everyone gets the same
bytecode.
"""

import argparse
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

from eth_utils.abi import abi_to_signature

from chains.contract_artifacts import ARTIFACTS_DIR

CONTRACTS_DIR = Path(__file__).resolve().parent
ROOT_DIR = CONTRACTS_DIR.parent
PACKAGE_DIR = ROOT_DIR / "client" / "solidity"
LIBRARY_DIR = PACKAGE_DIR / "src"
SOLC = ROOT_DIR / "node_modules" / "solc" / "solc.js"

SETTINGS: dict[str, Any] = {
    # The newest version whose opcodes all chains with blobs and their rollups have. Nothing of Prague is needed.
    "evmVersion": "cancun",
    "viaIR": True,
    # A registry is deployed once and used for years, so gas at run time matters more than gas of the deployment.
    "optimizer": {"enabled": True, "runs": 1_000_000},
    # The hash of the metadata would change the bytecode with every comment.
    "metadata": {"bytecodeHash": "none"},
}

# Imports from the package begin with this, here as in others' contracts.
PACKAGE = "@batch-query-service/contracts/"
LIBRARY = f"{PACKAGE}src/"
# The folders of artifacts, by what the sources' paths begin with. The package's contracts stand apart: none of them is
# frozen.
FOLDERS = {LIBRARY: "package", f"{PACKAGE}test/": "test", "test/": "test"}

# The package's interfaces of functions that others overload.
OVERLOADS = ("ISlotField", "IEarlierSatellite")

# Compiler outputs with a contract's code. The names of immutables come from the sources' syntax trees.
CODE = ("evm.bytecode.object", "evm.deployedBytecode.object", "evm.deployedBytecode.immutableReferences")


# The package's source of code for tests. The code is a constant: to read a file, each project would need a permission.
FACTS_CODE = """\
// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// @title For tests only: the creation code of FactsRegistry and FactsReader, without arguments.
/// @notice `RealFacts` deploys it. `contracts.build` writes this file.
library FactsCode {{
{constants}
}}
"""


class BuildError(Exception):
    """The contracts can't be compiled. The message says why."""


def build() -> dict[Path, str]:
    """Compile all sources. Return the text of each artifact by its path below `artifacts/`. Nothing is written.

    Raises BuildError if the compiler is missing, or reports an error or a warning.
    """
    sources = read_sources("src", "test")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = list(pool.map(lambda unit: _built(sources, unit), _units(sources)))
    return {path: text for artifacts in built for path, text in artifacts.items()}


def _units(sources: Mapping[str, str]) -> list[list[str]]:
    """Return the paths of the sources that are compiled together, with nothing else than their imports.

    The compiler numbers the parts of all sources that it is given, and the code depends on these numbers. So the code
    of a deployed contract would change with another source beside it. Contracts for tests may change.
    """
    tests = [path for path in sources if path.startswith(("test/", f"{PACKAGE}test/"))]
    contracts = [path for path, text in sources.items() if re.search(r"(?:^|[;}])\s*contract\s", text, re.MULTILINE)]
    units = [*([path] for path in contracts if path not in tests), tests]
    compiled = {path for unit in units for path in needed(sources, *unit)}
    # Sources that nobody imports are compiled as well, so that faults in them are told.
    units.append([path for path in sources if path not in compiled])
    return list(filter(None, units))


def _built(sources: Mapping[str, str], unit: Sequence[str]) -> dict[Path, str]:
    selection = {"*": {"": ["ast"]}, **{path: {"*": ["abi", *CODE, "metadata"]} for path in unit}}
    output = run_compiler(needed(sources, *unit), selection)
    if messages := [message["formattedMessage"] for message in output.get("errors", [])]:
        raise BuildError("\n".join(messages))
    artifacts = {}
    for source, contracts in output["contracts"].items():
        for name, contract in contracts.items():
            # Interfaces have no code. Libraries that are compiled into their users have no function to call.
            if not contract["evm"]["bytecode"]["object"]:
                continue
            if not any(entry["type"] == "function" for entry in contract["abi"]):
                continue
            artifact = {
                "abi": contract["abi"],
                "compiler": {"version": json.loads(contract["metadata"])["compiler"]["version"], "settings": SETTINGS},
                "contract": name,
                "source": source,
                **code_of(output, source, name),
            }
            artifacts[Path(f"{artifact_name(source, name)}.json")] = (
                json.dumps(artifact, indent=1, sort_keys=True) + "\n"
            )
    return artifacts


def artifact_name(source: str, contract: str) -> str:
    """Return the name of a contract's artifact, with its folder."""
    folder = next((f"{folder}/" for start, folder in FOLDERS.items() if source.startswith(start)), "")
    return folder + contract


def code_of(output: dict[str, Any], source: str, name: str) -> dict[str, Any]:
    """Return the entries of an artifact about the code.

    The compiler's output must include CODE and the syntax trees.
    """
    names = dict(each for tree in output["sources"].values() for each in _immutables(tree.get("ast")))
    code = output["contracts"][source][name]["evm"]
    return {
        "bytecode": "0x" + code["bytecode"]["object"],
        "deployedBytecode": "0x" + code["deployedBytecode"]["object"],
        "immutables": {
            names[ast_id]: [place["start"] for place in places]
            for ast_id, places in code["deployedBytecode"]["immutableReferences"].items()
        },
    }


def _immutables(node: Any) -> Iterator[tuple[str, str]]:
    """Yield the id and name of each immutable that a syntax tree declares. The ids depend on the compiled sources."""
    if isinstance(node, dict):
        if node.get("nodeType") == "VariableDeclaration" and node["mutability"] == "immutable":
            yield str(node["id"]), node["name"]
        node = list(node.values())
    if isinstance(node, list):
        for inner in node:
            yield from _immutables(inner)


def stored() -> dict[Path, str]:
    """Return the text of each committed artifact by its path below `artifacts/`."""
    return {path.relative_to(ARTIFACTS_DIR): path.read_text() for path in sorted(ARTIFACTS_DIR.rglob("*.json"))}


def read_sources(*folders: str) -> dict[str, str]:
    """Return the text of each source in these folders, by its path below `contracts/`.

    The library's sources are included, by the path that others import. With `test`, so are the package's for tests.
    """
    of_package = ["src", *{"test"}.intersection(folders)]
    return {
        **{
            path.relative_to(CONTRACTS_DIR).as_posix(): path.read_text()
            for folder in folders
            for path in sorted((CONTRACTS_DIR / folder).glob("*.sol"))
        },
        **{
            f"{PACKAGE}{path.relative_to(PACKAGE_DIR).as_posix()}": path.read_text()
            for folder in of_package
            for path in sorted((PACKAGE_DIR / folder).rglob("*.sol"))
        },
    }


def package_files(artifacts: Mapping[Path, str]) -> dict[Path, str]:
    """Return the text of each file of the package that is made from artifacts, by its path in the package.

    These are the ABIs that users need, and the code of the registry and the reader, for users' tests. The ABIs have no
    overloads: ethers refuses to choose between functions with one name and as many arguments.
    """
    read = [json.loads(text) for text in artifacts.values()]
    overloads = _overloads()
    registry, reader = (json.loads(artifacts[Path(f"{name}.json")]) for name in ("FactsRegistry", "FactsReader"))
    files = {
        Path("abi") / f"{artifact['contract']}.json": (
            json.dumps([each for each in artifact["abi"] if abi_to_signature(each) not in overloads], indent=1) + "\n"
        )
        for artifact in (registry, reader, *(each for each in read if each["source"].startswith(LIBRARY)))
    }
    constants = "\n".join(
        f'    bytes internal constant {name} =\n        hex"{artifact["bytecode"].removeprefix("0x")}";'
        for name, artifact in (("REGISTRY", registry), ("READER", reader))
    )
    files[Path("test/FactsCode.sol")] = FACTS_CODE.format(constants=constants)
    return files


def _overloads() -> set[str]:
    """Return the signatures of the functions that the package has in interfaces of their own."""
    sources = {path.name: path.read_text() for path in (LIBRARY_DIR / f"{name}.sol" for name in OVERLOADS)}
    output = run_compiler(sources, {"*": {"*": ["abi"]}})
    return {
        abi_to_signature(entry)
        for path, contracts in output["contracts"].items()
        for entry in contracts[Path(path).stem]["abi"]
    }


def needed(sources: Mapping[str, str], *paths: str) -> dict[str, str]:
    """Return only the sources at these paths and their imports, which compile much faster than all sources."""
    found = list(paths)
    for path in found:
        for name in re.findall(r'^import .* from "(.*)";', sources[path], re.MULTILINE):
            imported = imported_path(path, name)
            if imported not in found:
                found.append(imported)
    return {path: sources[path] for path in found}


def imported_path(source: str, name: str) -> str:
    """Return the path that a source means by a name in an import."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), name)) if name.startswith(".") else name


def run_compiler(
    sources: Mapping[str, str],
    selection: dict[str, Any],
    remappings: Sequence[str] = (),
    *,
    settings: Mapping[str, Any] = MappingProxyType(SETTINGS),
    solc: Path | None = None,
) -> dict[str, Any]:
    """Compile the sources with our settings and our compiler, or others. Return the compiler's output: the selection,
    errors and warnings.

    Raises BuildError if the compiler is missing or doesn't answer.
    """
    request = {
        "language": "Solidity",
        "sources": {path: {"content": text} for path, text in sources.items()},
        "settings": {**settings, "remappings": list(remappings), "outputSelection": selection},
    }
    beside_python = Path(sys.executable).with_name("node")
    node = str(beside_python) if beside_python.exists() else shutil.which("node")
    if node is None:
        raise BuildError("There is no node to run the Solidity compiler with: `make` installs it.")
    compiler = solc or SOLC
    if not compiler.exists():
        raise BuildError("The Solidity compiler is not installed: `make examples` installs it.")
    # Files are used instead of pipes: solc-js gives up on a pipe that is still empty, and cuts long output to a pipe.
    with tempfile.TemporaryFile("w+") as question, tempfile.TemporaryFile("w+") as answer:
        json.dump(request, question)
        question.seek(0)
        result = subprocess.run(
            [node, str(compiler), "--standard-json"],
            stdin=question,
            stdout=answer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=1800,
        )
        answer.seek(0)
        reply = answer.read()
    # solc-js may print a line before the JSON begins.
    start = reply.find("{")
    if result.returncode != 0 or start < 0:
        raise BuildError(f"The Solidity compiler failed: {result.stderr.strip() or reply.strip()}")
    output: dict[str, Any] = json.loads(reply[start:])
    return output


def main() -> int:
    """Return the exit code. It is 1 if compiling fails or, with --check, if artifacts are out of date."""
    parser = argparse.ArgumentParser(prog="python -m contracts.build", description="Compile the contracts.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when the artifacts are out of date")
    check = parser.parse_args().check

    try:
        built = build()
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    made, before = _located(built), _located(stored())
    before |= {path: path.read_text() for path in (PACKAGE_DIR / "abi").glob("*.json")}
    before |= {path: path.read_text() for path in [PACKAGE_DIR / "test" / "FactsCode.sol"] if path.exists()}
    made |= {PACKAGE_DIR / path: text for path, text in package_files(built).items()}
    changed = sorted(path.name for path in made.keys() | before.keys() if made.get(path) != before.get(path))
    if check:
        if changed:
            sys.stderr.write(f"Not what the sources compile to: {', '.join(changed)}. Run `make contracts`.\n")
        return 1 if changed else 0

    for path in before.keys() - made.keys():
        path.unlink()
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sys.stdout.write(f"Changed: {', '.join(changed)}.\n" if changed else "Nothing changed.\n")
    return 0


def _located(artifacts: Mapping[Path, str]) -> dict[Path, str]:
    return {ARTIFACTS_DIR / path: text for path, text in artifacts.items()}


if __name__ == "__main__":
    sys.exit(main())
