"""Write what a release has beside its packages, for `make release`: contracts by chain, parts, and checksums.

`python -m tools.release FOLDER VERSION` runs in the release's sources. The folder has the packages already, and a bill
of materials with the packages that the service installs.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
from eth_abi.abi import decode
from eth_utils.abi import collapse_if_tuple
from eth_utils.crypto import keccak

from chains.contract_artifacts import DEPLOYER, code_digest, load_artifact
from chains.encoding import hex_data

django.setup()
from config.configured_chains import get_chains  # noqa: E402 (Django comes first)
from proving.registries.creations import Creation  # noqa: E402
from proving.registries.deployments import creation_code, reader_of  # noqa: E402
from proving.registries.registry_setup import planned_creations, planned_prover  # noqa: E402

_HOW_TO_CHECK = (
    "This version was released before anybody deployed these contracts. Their addresses follow from their code "
    "(EIP-1014). A contract is there once `cast keccak $(cast code ADDRESS --rpc-url URL)` prints its runtimeCodeHash. "
    "The address counts on this chain only."
)


def main() -> None:
    folder, version = Path(sys.argv[1]), sys.argv[2]
    write_deployments(folder / "deployments", version)
    complete_bill(folder / f"batch-query-service-{version}.cdx.json", version)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    (folder / "SHA256SUMS").write_text("".join(f"{sha256(path)}  {path.relative_to(folder)}\n" for path in files))


def write_deployments(folder: Path, version: str) -> None:
    """Write the contracts for the connections of the chains file, in a file for each destination."""
    folder.mkdir()
    for destination in {connection.destination_id for connection in get_chains().connections}:
        content = {
            "chainId": destination,
            "version": version,
            "status": "predicted",
            "deployed": False,
            "howToCheck": _HOW_TO_CHECK,
            "contractsDigest": code_digest(),
            "deployer": DEPLOYER,
            "contracts": list(contracts_on(destination)),
        }
        (folder / f"{destination}.json").write_text(json.dumps(content, indent=2) + "\n")


def contracts_on(destination: int) -> Iterator[dict[str, Any]]:
    """Yield descriptions of the contracts for the destination's connections, and of the reader of their registries.

    State provers, pointers and adapters follow, which anybody may deploy over these registries.
    """
    registries, provers, adapters = {}, [], []
    for connection in get_chains().connections:
        if connection.destination_id == destination:
            creations = planned_creations(connection)
            yield from (described(creation, source=connection.source_id) for creation in creations)
            source, registry = connection.source_id, creations[-1].address
            registries[source] = registry
            provers += [described(*each, source) for each in planned_prover(destination, source, registry)]
            adapters.append(described(*curve_oracle(source, registry, creations[0].address), source))
    if reader := reader_of(registries):
        yield described(Creation("FactsReader", reader.creation), reader.code)
    hooks = "package/UnruggableHooks"
    adapters.append(described(Creation(hooks, creation_code(hooks))))
    yield from (*provers, *adapters)


def curve_oracle(source: int, registry: str, block_hash_source: str) -> tuple[Creation, bytes]:
    """Return Curve's oracle over a registry, and the code that it gets."""
    name = "package/CurveBlockHashOracle"
    code = load_artifact(name).deployed(registry=int(registry, 16), blockHashSource=int(block_hash_source, 16))
    return Creation(name, creation_code(name, registry, source)), code


def described(creation: Creation, code: bytes = b"", source: int | None = None) -> dict[str, Any]:
    """Describe a contract, with the code that its constructor leaves."""
    artifact = load_artifact(creation.name)
    parameters: Any = next((entry["inputs"] for entry in artifact.abi if entry["type"] == "constructor"), [])
    values = decode([*map(collapse_if_tuple, parameters)], creation.code[len(artifact.bytecode) :])
    if parameters and "components" in parameters[0]:
        parameters, values = parameters[0]["components"], values[0]
    arguments = {
        parameter["name"].rstrip("_"): hex_data(value) if isinstance(value, bytes) else value
        for parameter, value in zip(parameters, values, strict=True)
    }
    if not code:
        # Each immutable keeps the argument of its name. Numbers are integers, and all else is hexadecimal.
        numbers = {name: int(str(value), 0) for name, value in arguments.items()}
        code = artifact.deployed(**{"sourceChainId": numbers.get("id", 0), **numbers})
    return {
        "kind": creation.contract,
        "sourceChainId": source,
        "address": creation.address,
        "salt": hex_data(creation.salt.to_bytes(32)),
        # JSON's readers round larger numbers than 2**53.
        "constructorArguments": {
            name: value if isinstance(value, tuple) else str(value) for name, value in arguments.items()
        },
        "initCodeHash": hex_data(keccak(creation.code)),
        "runtimeCodeHash": hex_data(keccak(code)),
    }


def complete_bill(path: Path, version: str) -> None:
    """Add the client and the package of contracts to the bill of materials, and what the service depends on."""
    bill = json.loads(path.read_text())
    packages = [
        ("batch-query-client", f"pkg:pypi/batch-query-client@{version}", "batch_query_client-*"),
        ("@batch-query-service/contracts", f"pkg:npm/%40batch-query-service/contracts@{version}", "*.tgz"),
    ]
    root = bill["metadata"]["component"]["bom-ref"]
    needed = [component["bom-ref"] for component in bill["components"]]
    for name, purl, pattern in packages:
        files = [
            {"type": "distribution", "url": file.name, "hashes": [{"alg": "SHA-256", "content": sha256(file)}]}
            for file in sorted(path.parent.glob(pattern))
        ]
        component = {"bom-ref": purl, "type": "library", "name": name, "version": version, "purl": purl}
        bill["components"].append(component | {"externalReferences": files})
        bill["dependencies"].append({"ref": purl})
    (of_root,) = (entry for entry in bill["dependencies"] if entry["ref"] == root)
    of_root["dependsOn"] = needed
    path.write_text(json.dumps(bill, indent=2) + "\n")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


main()
