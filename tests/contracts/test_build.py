import json
import re

import pytest

from contracts import ARTIFACTS_DIR, build, load_artifact


def test_artifacts_rebuild_byte_for_byte():
    assert build.build() == build.stored()


def test_check_fails_and_names_what_is_out_of_date(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(build, "ARTIFACTS_DIR", tmp_path)
    monkeypatch.setattr("sys.argv", ["build", "--check"])
    (tmp_path / "Gone.json").write_text("{}\n")
    assert build.main() == 1
    said = capsys.readouterr().err
    assert "FactsRegistry.json" in said
    assert "Gone.json" in said
    assert [path.name for path in tmp_path.iterdir()] == ["Gone.json"]


def test_it_says_in_one_sentence_that_the_compiler_is_missing(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(build, "SOLC", tmp_path / "solc.js")
    monkeypatch.setattr("sys.argv", ["build"])
    assert build.main() == 1
    assert capsys.readouterr().err == "The Solidity compiler is not installed: run `npm ci`.\n"


def test_it_refuses_sources_that_do_not_compile(monkeypatch, tmp_path):
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
    # EIP-170 limits deployed code, EIP-3860 what deploys it.
    assert 0 < len(artifact.bytecode) <= 2 * 24_576


def test_an_unknown_artifact_is_an_error():
    with pytest.raises(FileNotFoundError):
        load_artifact("NoSuchContract")
