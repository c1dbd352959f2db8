"""`make release` makes the same files each time. Users can install and check each of them."""

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from chains.contract_artifacts import DEPLOYER, load_artifact
from contracts.build import PACKAGE, run_compiler
from devnet.devchain import ACCOUNTS, PROJECT, DevChain
from tests.deploy.releases import make_release, run
from tests.service import SIGNER_KEY

pytestmark = [pytest.mark.release, pytest.mark.outside]

VERSION = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
NETWORKS = (PROJECT / "deploy/known-networks.toml").read_text()
ADAPTERS = {"CurveBlockHashOracle", "UnruggableHooks"}
DESTINATIONS = sorted({connection["destination"] for connection in tomllib.loads(NETWORKS)["connections"]})
USER = f"""// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;
import {{IFactsRegistry}} from "{PACKAGE}src/IFactsRegistry.sol";
import {{ProvenFacts}} from "{PACKAGE}src/ProvenFacts.sol";
contract User {{
    using ProvenFacts for IFactsRegistry;
    function balance(IFactsRegistry registry, address account) external view returns (uint256) {{
        return registry.requireBalanceAt(account, 1, 1 ether);
    }}
}}
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_release(tmp_path_factory.mktemp("release") / "first", "WITHOUT_IMAGE=1")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_each_run_makes_the_same_bytes(release, tmp_path):
    before = os.umask(0o077)
    try:
        again = make_release(tmp_path / "elsewhere", "WITHOUT_IMAGE=1", TZ="Asia/Tokyo", LC_ALL="C")
    finally:
        os.umask(before)
    first, second = contents(release), contents(again)
    assert {
        f"batch-query-service-{VERSION}.tar.gz",
        f"batch-query-service-{VERSION}.cdx.json",
        f"batch-query-service-contracts-{VERSION}.tgz",
        f"batch_query_client-{VERSION}-py3-none-any.whl",
        f"batch_query_client-{VERSION}.tar.gz",
        *(f"deployments/{chain}.json" for chain in DESTINATIONS),
        "SHA256SUMS",
    } == first.keys()
    assert [name for name in first if first[name] != second.get(name)] == []
    assert first.keys() == second.keys()


def test_the_checksums_are_of_all_files(release):
    checked = run("sha256sum", "--check", "--strict", "SHA256SUMS", folder=release)
    assert {line.removesuffix(": OK") for line in checked.splitlines()} == contents(release).keys() - {"SHA256SUMS"}


@pytest.mark.parametrize("pattern", ["*.whl", "batch_query_client-*.tar.gz"])
def test_the_clients_packages_can_be_installed(release, tmp_path, pattern):
    (package,) = release.glob(pattern)
    run(sys.executable, "-m", "venv", "new", folder=tmp_path)
    run("new/bin/pip", "install", "--quiet", package, folder=tmp_path)
    assert run("new/bin/bqs", "--version", folder=tmp_path).split()[-1] == VERSION
    shown = run("new/bin/pip", "show", "--files", "batch-query-client", folder=tmp_path)
    assert "batch_query_client/py.typed\n" in shown


def test_the_services_archive_migrates_and_passes_its_checks(release, tmp_path):
    with tarfile.open(release / f"batch-query-service-{VERSION}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (service,) = tmp_path.iterdir()
    assert service.name == f"batch-query-service-{VERSION}"
    run(sys.executable, "-m", "venv", ".venv", folder=service)
    install = (".venv/bin/pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r")
    variables = {"STATE_DIR": str(tmp_path / "state")}
    run(*install, "requirements/service.txt", folder=service)
    for command in ("migrate", "check"):
        run(".venv/bin/python", "manage.py", command, folder=service, **variables)
    # A setting that needs an extra's packages is refused until they are there.
    chains = tmp_path / "chains.toml"
    chains.write_text('[[chains]]\nid = 1\nname = "A"\nrpc_urls = ["http://127.0.0.1:9"]\nera_files = ["eras"]\n')
    check = [".venv/bin/python", "manage.py", "check", "--deploy"]
    for setting, value, lock in (("BROKER_URL", "redis://:a@h/0", "celery"), ("CHAINS_FILE", str(chains), "era")):
        variables[setting] = value
        said = []
        for _ in range(2):
            done = subprocess.run(check, cwd=service, env=variables, capture_output=True, text=True, check=False)
            said.append(f"pip install --no-deps --require-hashes -r requirements/{lock}.txt" in done.stderr)
            run(*install, f"requirements/{lock}.txt", folder=service)
        assert said == [True, False], setting


def test_a_contract_that_imports_the_npm_package_compiles(release, tmp_path):
    (package,) = release.glob("*.tgz")
    (tmp_path / "package.json").write_text('{"name": "user", "private": true}')
    run(PROJECT / ".venv/bin/npm", "install", "--offline", package, folder=tmp_path)
    installed = tmp_path / "node_modules" / PACKAGE
    assert json.loads((installed / "package.json").read_text())["version"] == VERSION
    sources = {
        f"{PACKAGE}{path.relative_to(installed).as_posix()}": path.read_text() for path in installed.rglob("*.sol")
    }
    output = run_compiler({"User.sol": USER, **sources}, {"User.sol": {"User": ["evm.bytecode.object"]}}, ())
    assert output["contracts"]["User.sol"]["User"]["evm"]["bytecode"]["object"]


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_deployed_contracts_have_the_addresses_and_the_code_that_were_told(
    release, destination, settings, tmp_path, db
):
    told = json.loads((release / f"deployments/{destination}.json").read_text())
    assert (told["chainId"], told["version"], told["deployed"]) == (destination, VERSION, False)
    (tmp_path / "signer.key").write_text(SIGNER_KEY)
    with DevChain(chain_id=destination) as chain:
        ours = (
            f'rpc_urls = ["{chain.url}"]\nconfirmations = 1\ntest_network = true\nsigner = {{key_file = "signer.key"}}'
        )
        settings.CHAINS_FILE = tmp_path / "chains.toml"
        settings.CHAINS_FILE.write_text(re.sub(rf"(\nid = {destination}\n.*\n)rpc_urls.*", rf"\g<1>{ours}", NETWORKS))
        for connection in tomllib.loads(NETWORKS)["connections"]:
            if connection["destination"] == destination:
                ends = str(destination), str(connection["source"])
                call_command("deploy_registry", *ends, stdout=StringIO())
                call_command("deploy_prover", *ends, stdout=StringIO())
        call_command("deploy_reader", str(destination), stdout=StringIO())
        adapters = [contract for contract in told["contracts"] if contract["kind"] in ADAPTERS]
        for adapter in adapters:
            creation = creation_of(adapter)
            assert keccak(creation).hex() == adapter["initCodeHash"][2:]
            call = {"from": ACCOUNTS[0][0], "to": DEPLOYER, "data": adapter["salt"] + creation.hex()}
            chain.rpc("eth_sendTransaction", call)
            chain.rpc("evm_mine")
        hashes = {
            contract["address"]: keccak(hexstr=chain.rpc("eth_getCode", contract["address"], "latest")).hex()
            for contract in told["contracts"]
        }
    assert hashes == {contract["address"]: contract["runtimeCodeHash"][2:] for contract in told["contracts"]}
    kinds = Counter(contract["kind"] for contract in told["contracts"])
    per_registry = {"RegistryStateProver", "FixedStateProverPointer", "CurveBlockHashOracle"}
    assert {kinds[kind] for kind in per_registry} == {kinds["FactsRegistry"]}
    assert kinds["UnruggableHooks"] == 1


def creation_of(adapter: dict[str, Any]) -> bytes:
    """Return the creation code of one of the package's adapters with the arguments that were told."""
    artifact = load_artifact(f"package/{adapter['kind']}")
    inputs = next((entry["inputs"] for entry in artifact.abi if entry["type"] == "constructor"), [])
    values = (
        int(value) if each["type"].startswith("uint") else value
        for each, value in zip(inputs, adapter["constructorArguments"].values(), strict=True)
    )
    return artifact.bytecode + encode([each["type"] for each in inputs], [*values])


def test_the_bill_of_materials_has_what_the_image_installs_with_hashes_and_what_is_released(release):
    (path,) = release.glob("*.cdx.json")
    bill = json.loads(path.read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", VERSION)
    listed = {
        (component["name"], component["version"]): {
            found["content"] for reference in component["externalReferences"] for found in reference["hashes"]
        }
        for component in bill["components"]
    }
    locked = "".join((PROJECT / f"requirements/{lock}.txt").read_text() for lock in ("service", "celery", "era"))
    expected = {
        (name, version): set(re.findall("sha256:([0-9a-f]{64})", hashes))
        for name, version, hashes in re.findall(r"^(\S+)==(\S+)(.*\\\n(?:    --hash.*\n)+)", locked, re.MULTILINE)
    }
    assert len(expected) == len(re.findall(r"^\S+==", locked, re.MULTILINE))
    sums = dict(line.split()[::-1] for line in (release / "SHA256SUMS").read_text().splitlines())
    expected["batch-query-client", VERSION] = {sums[name] for name in sums if name.startswith("batch_query_client")}
    expected["@batch-query-service/contracts", VERSION] = {sums[name] for name in sums if name.endswith(".tgz")}
    assert listed == expected
