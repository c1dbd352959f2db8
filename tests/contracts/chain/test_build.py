import hashlib
import json
import re
from dataclasses import replace

import pytest

from campaigns.fuzzing import branches
from chains.beacon.jumps import KNOWN, MAINNET
from chains.contract_artifacts import ARTIFACTS_DIR, code_digest, load_artifact
from contracts import build
from devnet.devchain import PROJECT
from tests.contracts.deployed import Deployed
from tests.service import ALICE, BOB


@pytest.mark.long
def test_artifacts_rebuild_byte_for_byte():
    assert build.build() == build.stored()


def test_artifacts_of_deployed_contracts_stay_as_they_were():
    """Figures and proofs of these contracts stay valid, and their registries are recognised. The list only grows."""
    listed = [line.split() for line in (PROJECT / "tests/contracts/artifacts.txt").read_text().splitlines()]
    assert len(listed) >= 13
    for digest, path in listed:
        assert hashlib.sha256((PROJECT / "contracts" / path).read_bytes()).hexdigest() == digest, path


def test_check_fails_and_names_what_is_out_of_date(monkeypatch, capsys, tmp_path):
    stored = build.stored()
    monkeypatch.setattr(build, "build", lambda: stored)
    monkeypatch.setattr(build, "ARTIFACTS_DIR", tmp_path)
    monkeypatch.setattr("sys.argv", ["build", "--check"])
    (tmp_path / "Gone.json").write_text("{}\n")
    assert build.main() == 1
    errors = capsys.readouterr().err
    assert "FactsRegistry.json" in errors
    assert "Gone.json" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["Gone.json"]


def test_a_missing_compiler_is_reported_in_one_sentence(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(build, "SOLC", tmp_path / "solc.js")
    monkeypatch.setattr("sys.argv", ["build"])
    assert build.main() == 1
    assert capsys.readouterr().err == "The Solidity compiler is not installed: `make examples` installs it.\n"


@pytest.mark.long
def test_sources_that_do_not_compile_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "CONTRACTS_DIR", tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "Wrong.sol").write_text("pragma solidity ^0.8.28; contract Wrong { nonsense }")
    with pytest.raises(build.BuildError, match="nonsense"):
        build.build()


@pytest.mark.parametrize("path", sorted(ARTIFACTS_DIR.rglob("*.json")), ids=lambda path: path.stem)
def test_an_artifact_tells_its_compiler_and_can_be_deployed(path):
    stored = json.loads(path.read_text())
    assert re.match(r"0\.8\.37\+commit\.[0-9a-f]{8}", stored["compiler"]["version"])
    assert stored["compiler"]["settings"]["evmVersion"] == "cancun"
    artifact = load_artifact(path.relative_to(ARTIFACTS_DIR).with_suffix("").as_posix())
    # EIP-170 limits runtime code to 24,576 bytes, and EIP-3860 creation code to twice that.
    assert 0 < len(artifact.bytecode) <= 2 * 24_576


@pytest.mark.parametrize(
    ("name", "immutables"),
    [
        ("NativeBlockHashSource", {"window": 256}),
        ("OpStackBlockHashSource", {"sourceChainId": 2**64}),
        ("ArbitrumBlockHashSource", {"sourceChainId": 42161, "outbox": ALICE}),
        ("ArbitrumSlotBlockHashSource", {"sourceChainId": 42161, "outbox": ALICE, "registry": BOB}),
        ("ArbitrumBufferBlockHashSource", {"sourceChainId": 1}),
        ("OpStackGamesBlockHashSource", {"sourceChainId": 10, "anchorStateRegistry": ALICE}),
        ("test/SettableBlockHashSource", {"sourceChainId": 7}),
        ("Multicall", {}),
    ],
)
def test_an_artifact_tells_the_code_that_is_deployed(chain, name, immutables):
    artifact = load_artifact(name)
    deployed = Deployed(chain, name, *immutables.values())
    code = chain.rpc("eth_getCode", deployed.address, "latest")
    numbers = {each: int(value, 16) if isinstance(value, str) else value for each, value in immutables.items()}
    assert code == "0x" + artifact.deployed(**numbers).hex()
    assert [str(deployed.call(each)) for each in immutables] == [str(each).lower() for each in immutables.values()]


def test_of_a_registry_all_that_it_was_deployed_with_is_in_its_code(chain):
    source = Deployed(chain, "test/SettableBlockHashSource", 7).address
    history = Deployed(chain, "GloasBeaconHistory", replace(MAINNET, id=7).arguments).address
    code = chain.rpc("eth_getCode", Deployed(chain, "FactsRegistry", 7, source, 393168, history).address, "latest")
    expected = {
        "sourceChainId": 7,
        "blockHashSource": int(source, 16),
        "historyWindow": 393168,
        "beaconChainHistory": int(history, 16),
    }
    assert code == "0x" + load_artifact("FactsRegistry").deployed(**expected).hex()
    for name in expected:
        assert code != "0x" + load_artifact("FactsRegistry").deployed(**{**expected, name: 8}).hex()


@pytest.mark.parametrize("contract", ["GloasBeaconHistory", "BeaconHistory"])
@pytest.mark.parametrize("known", KNOWN.values(), ids=lambda known: known.config_name)
def test_a_beacon_history_can_be_compared_with_the_values_of_a_known_chain(chain, contract, known):
    artifact = load_artifact(contract)
    arguments, as_known = branches.arguments_of(contract, known)
    code = Deployed(chain, contract, arguments).code
    assert code == artifact.deployed(**as_known.immutables)
    for name in artifact.immutables:
        value = as_known.immutables[name]
        assert code != artifact.deployed(**{**as_known.immutables, name: value ^ 1})


@pytest.mark.parametrize(
    ("name", "is_another"),
    [("AttestedBlockHashSource", True), ("FactsRegistry", True), ("test/StepHarness", False)],
)
def test_the_digest_is_another_if_code_is_that_is_not_for_tests_alone(monkeypatch, name, is_another):
    before = code_digest()
    assert before == code_digest()
    changed = {name: replace(load_artifact(name), bytecode=load_artifact(name).bytecode + b"\0")}
    monkeypatch.setattr(
        "chains.contract_artifacts.load_artifact", lambda asked: changed.get(asked) or load_artifact(asked)
    )
    assert (code_digest() != before) == is_another


def test_an_unknown_artifact_is_an_error():
    with pytest.raises(FileNotFoundError):
        load_artifact("NoSuchContract")


def test_files_of_the_package_are_made_from_the_artifacts():
    made = build.package_files(build.stored())
    assert {build.PACKAGE_DIR / path: text for path, text in made.items()} == {
        path: path.read_text()
        for path in [*(build.PACKAGE_DIR / "abi").iterdir(), build.PACKAGE_DIR / "test" / "FactsCode.sol"]
    }
