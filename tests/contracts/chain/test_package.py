"""The package of contracts, packed and compiled as its users do: by other compilers, without our settings."""

import json
import subprocess
import tarfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from eth_utils.crypto import keccak

from chains.contract_artifacts import Artifact, load_artifact
from contracts.build import PACKAGE, PACKAGE_DIR, ROOT_DIR, run_compiler
from tests import headers
from tests.contracts.deployed import SENDER, Deployed, Reverted
from tests.contracts.proven_world import CHAIN, new_registry

NPM = ROOT_DIR / ".venv" / "bin" / "npm"
PLAIN, OPTIMIZED = {"enabled": False}, {"enabled": True, "runs": 200}
NEWEST, OLDEST = "solc", "solc-0.8.20"
# Bytes that the walk may take of its user's 24,576: for three functions of the list's form, or two of the array's.
MOST_BYTES, MOST_BYTES_PLAIN = 3_500, 5_500
# Bytes that create a contract (EIP-3860).
MOST_CREATION_BYTES = 49_152

USERS = {
    "ListUser": """
    function slot(bytes calldata proof, bytes32 root, bytes32 key) external pure returns (uint256) {
        return TrieWalk.slotValue(proof, root, key);
    }
    function account(bytes calldata proof, bytes32 root, address owner)
        external pure returns (uint256, uint256, bytes32, bytes32)
    {
        return TrieWalk.accountItems(proof, root, owner);
    }
    function receipt(bytes calldata proof, bytes32 root, uint256 index) external pure returns (uint256, uint256, bool) {
        return TrieWalk.findPlace(proof, root, index);
    }
    """,
    "ArrayUser": """
    function slot(bytes[] calldata nodes, bytes32 root, bytes32 key) external pure returns (uint256) {
        return TrieWalk.slotValue(nodes, root, key);
    }
    function account(bytes[] calldata nodes, bytes32 root, address owner)
        external pure returns (bool, uint256, uint256, bytes32, bytes32)
    {
        return TrieWalk.account(nodes, root, owner);
    }
    """,
}
WALK = f'import {{TrieWalk}} from "{PACKAGE}src/TrieWalk.sol";'
REAL_FACTS_USER = f"""// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;
import {{RealFacts}} from "{PACKAGE}test/RealFacts.sol";
contract RealFactsUser {{
    address public source;
    address public registry;
    address public reader;
    constructor(uint256 blockNumber, bytes32 blockHash, bytes memory proof) {{
        RealFacts.Deployment memory facts = RealFacts.deploy(10);
        facts.source.set(blockNumber, blockHash);
        RealFacts.prove(facts, proof);
        (source, registry, reader) = (address(facts.source), address(facts.registry), address(facts.reader));
    }}
}}
"""


@dataclass(frozen=True)
class Project:
    """An empty project in which the package is installed: the package's sources by their paths, and remappings."""

    sources: Mapping[str, str]
    remappings: tuple[str, ...]

    def compile(
        self, texts: Mapping[str, str], compiler: str, optimizer: Mapping[str, Any], selected: str = "*"
    ) -> dict[str, Any]:
        """Return the contracts of all sources, or of the selected one, by their paths and names."""
        output = run_compiler(
            {**texts, **self.sources},
            {selected: {"*": ["abi", "evm.bytecode.object", "evm.deployedBytecode.object"]}},
            self.remappings,
            settings={"optimizer": optimizer, "metadata": {"appendCBOR": False}},
            solc=ROOT_DIR / "node_modules" / compiler / "solc.js",
        )
        # A contract with more code than chains allow would be among them.
        assert [error["formattedMessage"] for error in output.get("errors", [])] == []
        contracts: dict[str, Any] = output["contracts"]
        return contracts


def sources_in(folder: Path, prefix: str) -> dict[str, str]:
    return {f"{prefix}{path.relative_to(folder).as_posix()}": path.read_text() for path in folder.rglob("*.sol")}


def npm(folder: Path, *arguments: str) -> None:
    command = [str(NPM), *arguments, "--offline", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    npm(PACKAGE_DIR, "pack", "--pack-destination", str(folder))
    [path] = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory, tarball: Path) -> dict[str, Project]:
    """Return a project as of Foundry, with a remapping, and one as of Hardhat, which finds packages by their names."""
    foundry, hardhat = (tmp_path_factory.mktemp(name) for name in ("foundry", "hardhat"))
    library = "lib/batch-query-service-contracts/"
    with tarfile.open(tarball) as packed:
        packed.extractall(foundry, filter="data")
    (hardhat / "package.json").write_text('{"name": "empty", "private": true}')
    npm(hardhat, "install", str(tarball))
    return {
        "foundry": Project(sources_in(foundry / "package", library), (f"{PACKAGE}={library}",)),
        "hardhat": Project(sources_in(hardhat / "node_modules" / PACKAGE, PACKAGE), ()),
    }


def test_its_version_is_the_services():
    described = json.loads((PACKAGE_DIR / "package.json").read_text())
    version = tomllib.loads((ROOT_DIR / "pyproject.toml").read_text())["project"]["version"]
    # The form that npm takes for a version that isn't released.
    assert described["version"] == version.replace(".dev", "-dev.")
    assert {"scripts", "dependencies", "devDependencies", "peerDependencies"}.isdisjoint(described)
    assert described["license"] == "MIT"
    assert (PACKAGE_DIR / "LICENSE").read_text() == (PACKAGE_DIR.parent / "LICENSE").read_text()


def test_each_source_takes_the_oldest_compiler():
    paths = [path for folder in ("src", "test") for path in (PACKAGE_DIR / folder).rglob("*.sol")]
    assert len(paths) > 10
    assert [path.name for path in paths if "\npragma solidity ^0.8.20;\n" not in path.read_text()] == []


@pytest.mark.long
def test_it_packs_what_its_users_need_and_nothing_else(tarball):
    with tarfile.open(tarball) as packed:
        names = {name.removeprefix("package/") for name in packed.getnames()}
    folders = ("src", "test", "examples", "abi")
    expected = {
        path.relative_to(PACKAGE_DIR).as_posix() for folder in folders for path in (PACKAGE_DIR / folder).rglob("*.*")
    }
    assert names == {"package.json", "README.md", "LICENSE", *expected}


@pytest.mark.long
@pytest.mark.parametrize(
    ("project", "compiler", "optimizer"),
    [
        pytest.param("foundry", OLDEST, PLAIN, id="foundry, oldest"),
        pytest.param("foundry", NEWEST, OPTIMIZED, id="foundry, newest, optimized"),
        pytest.param("hardhat", OLDEST, OPTIMIZED, id="hardhat, oldest, optimized"),
        pytest.param("hardhat", NEWEST, PLAIN, id="hardhat, newest"),
    ],
)
def test_users_can_import_and_compile_each_file(projects, project, compiler, optimizer):
    installed = projects[project]
    first = "// SPDX-License-Identifier: MIT\npragma solidity ^0.8.20;\n"
    paths = [
        path.relative_to(PACKAGE_DIR).as_posix()
        for folder in ("src", "test", "examples")
        for path in (PACKAGE_DIR / folder).rglob("*.sol")
    ]
    imports = "\n".join(f'import * as File{number} from "{PACKAGE}{path}";' for number, path in enumerate(paths))
    texts = {f"src/{name}.sol": f"{first}{WALK}\ncontract {name} {{{body}}}\n" for name, body in USERS.items()}
    contracts = installed.compile({"src/Importer.sol": first + imports, **texts}, compiler, optimizer)
    for name in USERS:
        code = contracts[f"src/{name}.sol"][name]["evm"]["deployedBytecode"]["object"]
        assert len(code) // 2 < (MOST_BYTES if optimizer["enabled"] else MOST_BYTES_PLAIN)


@pytest.mark.long
@pytest.mark.parametrize("compiler", [OLDEST, NEWEST])
def test_users_tests_can_deploy_the_mocks_without_the_optimizer(chain, projects, compiler):
    """Foundry and Hardhat don't optimize by default, and Hardhat's chain has mainnet's limits."""
    paths = {name: f"{PACKAGE}test/{name}.sol" for name in ("FactsMock", "FactsReaderMock")}
    imports = "".join(f'import "{path}";\n' for path in paths.values())
    first = "// SPDX-License-Identifier: MIT\npragma solidity ^0.8.20;\n"
    contracts = projects["hardhat"].compile({"test/Mocks.sol": first + imports}, compiler, PLAIN)
    artifacts = {
        name: Artifact(each["abi"], bytes.fromhex(each["evm"]["bytecode"]["object"]), b"", {})
        for name, path in paths.items()
        for each in [contracts[path][name]]
    }
    assert all(len(each.bytecode) <= MOST_CREATION_BYTES for each in artifacts.values())
    facts = Deployed(chain, "", 10, artifact=artifacts["FactsMock"])
    mocked = Deployed(chain, "", [facts.address], artifact=artifacts["FactsReaderMock"])
    # The reader knows the chain before the first fact.
    assert (
        Deployed(chain, "FactsReader", address=mocked.address).call("registryOf", 10).lower() == facts.address.lower()
    )


@pytest.mark.long
def test_ethers_and_viem_call_every_function_of_each_abi(chain):
    registry = new_registry(chain)
    prover = Deployed(chain, "package/RegistryStateProver", 31337, CHAIN, registry.address, 0)
    contracts = {
        "FactsRegistry": registry,
        "FactsReader": Deployed(chain, "FactsReader", [registry.address]),
        "RegistryStateProver": prover,
        "FixedStateProverPointer": Deployed(chain, "package/FixedStateProverPointer", prover.address),
        "CurveBlockHashOracle": Deployed(chain, "package/CurveBlockHashOracle", registry.address, CHAIN),
        "UnruggableHooks": Deployed(chain, "package/UnruggableHooks"),
    }
    abis = {path.stem: json.loads(path.read_text()) for path in (PACKAGE_DIR / "abi").iterdir()}
    assert contracts.keys() == abis.keys()
    addresses = json.dumps({name: contract.address for name, contract in contracts.items()})
    command = [str(ROOT_DIR / ".venv/bin/node"), "tests/contracts/every_function.mjs", chain.url, addresses]
    made = subprocess.run(command, cwd=ROOT_DIR, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert set(json.loads(made.stdout)) == {
        f"{name}.{entry['name']}" for name, abi in abis.items() for entry in abi if entry["type"] == "function"
    }


def test_a_literal_0_reads_the_nonce(chain):
    user = Deployed(chain, "test/PackageUser")
    mock = Deployed(chain, "test/FactsMock", 10)
    mock.send("setAccount", 5, SENDER, 7, 10**18, b"\1" * 32, b"\2" * 32)
    mock.send("setSlot", 5, SENDER, bytes(32), b"\3" * 32)
    assert user.call("nonceByZero", mock.address, SENDER, 5) == (7).to_bytes(32)


@pytest.mark.parametrize(
    ("age", "is_refused"), [(-61, True), (-60, False), (0, False), (60, False), (61, True), (2**40, True)]
)
def test_a_block_is_required_to_be_recent(chain, age, is_refused):
    user = Deployed(chain, "test/PackageUser")
    mock = Deployed(chain, "test/FactsMock", 10)
    reader = Deployed(chain, "test/FactsReaderMock", [mock.address])
    now = int(chain.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16) + 100
    chain.rpc("evm_setNextBlockTimestamp", now)
    time = max(now - age, 0)
    mock.send("setHeaderField", 5, 11, time.to_bytes(32))
    asked = ("requireNotOlderThan", reader.address, 10, 5, 60)
    if is_refused:
        with pytest.raises(Reverted) as reverted:
            user.call(*asked)
        assert reverted.value.error == ("BlockNotRecent", 10, 5, time, 60)
    else:
        user.call(*asked)
    # Without the fact, nothing is recent.
    with pytest.raises(Reverted):
        user.call("requireNotOlderThan", reader.address, 10, 6, 2**256 - 1)


@pytest.mark.long
def test_users_tests_can_deploy_the_real_contracts(chain, projects):
    header = headers.encode(headers.PRAGUE)
    contracts = projects["foundry"].compile({"test/User.sol": REAL_FACTS_USER}, NEWEST, OPTIMIZED, "test/User.sol")
    compiled = contracts["test/User.sol"]["RealFactsUser"]
    code = bytes.fromhex(compiled["evm"]["bytecode"]["object"])
    artifact = Artifact(abi=compiled["abi"], bytecode=code, runtime=b"", immutables={})
    user = Deployed(chain, "", 12, keccak(header), header + b"\x37", artifact=artifact)
    registry = Deployed(chain, "FactsRegistry", address=user.call("registry"))
    reader = Deployed(chain, "FactsReader", address=user.call("reader"))
    own = {"sourceChainId": 10, "blockHashSource": int(user.call("source"), 16), "historyWindow": 8191}
    assert registry.code == load_artifact("FactsRegistry").deployed(**own, beaconChainHistory=0)
    assert reader.code == Deployed(chain, "FactsReader", [registry.address]).code
    assert registry.call("stateRoot", 12) == headers.PRAGUE["stateRoot"]
    assert reader.call("headerField(uint256,uint256,uint8)", 10, 12, 3) == headers.PRAGUE["stateRoot"]
