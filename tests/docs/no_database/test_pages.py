"""The README is short and says how to begin. All pages' links work on a code host and on the documentation site."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from eth_utils.abi import abi_to_signature, filter_abi_by_type
from eth_utils.crypto import keccak

from chains.chains_file import Attester, Chain, Connection, Ens
from chains.configured_signers import SignerKey
from chains.contract_artifacts import load_artifact
from devnet.devchain import PROJECT
from explorer.reverts import EMPTY, ERRORS, TEXTS
from queries.columns import RejectionCode
from tests.chains.recorded_blocks import table
from tests.docs.examples import pages
from tests.fixtures_folder import needs_fixtures

LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")
BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings on code hosts and on the documentation site."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: str, text: str) -> list[str]:
    links = []
    for target, anchor in LINK.findall(CODE.sub("", BLOCK.sub("", text))):
        if "://" in target:
            continue
        path = (PROJECT / page).parent / target if target else PROJECT / page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            links.append(f"{target}#{anchor}")
    return links


@pytest.mark.parametrize("page", [*pages(), "CHANGELOG.md"])
def test_every_link_leads_to_a_page_and_a_heading_that_are_there(page):
    assert not broken(page, (PROJECT / page).read_text())


# Packages of registries that documents and pages name. No registry has this project's own.
PUBLISHED = {"esbuild", "openapi-python-client", "openapi-typescript", "pre-commit", "standardwebhooks", "viem"}
INSTALLS = re.compile(r"\b(?:pip|pipx|npm) install ([^`\n#]*)|\b(?:npx|pipx run) (\S+)")


def test_documents_and_pages_install_only_packages_that_a_registry_has():
    folders = [PROJECT / folder for folder in ("client", "deploy", "docs", "templates")]
    files = [*PROJECT.glob("*.md"), *(path for folder in folders for path in folder.rglob("*"))]
    texts = [path.read_text() for path in files if path.is_file() and path.suffix in {"", ".html", ".md", ".yml"}]
    words = [word for text in texts for words in INSTALLS.findall(text) for word in " ".join(words).split()]
    assert {word for word in words if re.fullmatch(r"@?[a-z][\w-]*(?:[=@~<>[].*)?", word)} == PUBLISHED


def test_every_variable_of_the_environment_is_in_the_configuration_reference():
    source = (PROJECT / "config/settings.py").read_text()
    read = set(re.findall(r"(?:env\.\w+|_secret)\(\s*\"([A-Z_]+)\"", source))
    reference = (PROJECT / "docs/operating/configuration.md").read_text()
    assert len(read) > 20
    # Nobody needs to change it but tests, which wait for it.
    read.remove("LEASE_SECONDS")
    assert not {name for name in read if f"`{name}`" not in reference}


def test_every_field_of_the_chains_file_is_in_the_configuration_reference():
    reference = (PROJECT / "docs/operating/configuration.md").read_text()
    models = (Chain, SignerKey, Connection, Attester, Ens)
    fields = {field.alias or name for model in models for name, field in model.model_fields.items()}
    assert not {name for name in fields if f"`{name}`" not in reference}


def errors_of_sources() -> set[str]:
    """Return the signatures of the errors that a reader of facts may meet: of both contracts, and of the library."""
    artifacts = [load_artifact(name).abi for name in ("FactsRegistry", "FactsReader")]
    signatures = {abi_to_signature(error) for abi in artifacts for error in filter_abi_by_type("error", abi)}
    for path in (PROJECT / "client/solidity/src").rglob("*.sol"):
        for name, inputs in re.findall(r"^ *error (\w+)\(([^)]*)\);", path.read_text(), re.MULTILINE):
            types = [each.split()[0] for each in inputs.split(",") if each]
            # An ABI has no enumerations.
            signatures.add(f"{name}({','.join(re.sub(r'^[A-Z].*', 'uint8', each) for each in types)})")
    return signatures


def test_every_error_is_in_the_table_with_its_selector_and_as_the_page_of_the_service_says_it():
    text = (PROJECT / "docs/using/contracts.md").read_text()
    rows = re.findall(r"^\| `(\w+\([\w,]*\))` \| `(0x[0-9a-f]{8})` \| (.*) \|$", text, re.MULTILINE)
    assert {*ERRORS} == errors_of_sources()
    assert [error for error, _, _ in rows if error != "Error(string)"] == [*ERRORS]
    for error, selector, sentence in rows:
        assert selector == f"0x{keccak(text=error)[:4].hex()}"
        assert error == "Error(string)" or sentence == ERRORS[error]["sentence"]


def test_every_text_of_an_error_of_the_contracts_is_known_to_the_page_of_the_service():
    sources = [
        path for folder in ("contracts", "client/solidity") for path in (PROJECT / folder / "src").rglob("*.sol")
    ]
    assert {*TEXTS} == {
        text
        for path in sources
        for text in re.findall(r"\b(?:require|revert)\((?:[^;\"]*, )?\"([^\"]*)\"\)", path.read_text())
    }


def test_the_page_of_the_service_says_of_empty_revert_data_what_the_document_says():
    assert EMPTY in " ".join((PROJECT / "docs/using/contracts.md").read_text().split())


def test_every_reason_to_reject_a_batch_is_in_the_specification():
    specified = (PROJECT / "docs/specification.md").read_text()
    assert not {code for code in RejectionCode.values if f"`{code}`" not in specified}


def test_help_of_make_shows_on_one_screen_what_one_needs_first_and_every_command_on_demand():
    def shown(*arguments: str) -> str:
        command = ["make", "help", *arguments]
        return subprocess.run(
            command, cwd=PROJECT, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True
        ).stdout

    def commands(text: str) -> set[str]:
        return set(re.findall(r"^  make ([a-z-]+)", text, re.MULTILINE))

    # On a terminal of 80 columns and 24 lines, longer lines take several rows.
    assert sum(1 + max(0, len(line) - 1) // 80 for line in shown().splitlines()) < 24
    assert {"run", "demo", "test", "lint", "docs"} <= commands(shown())
    phony = re.findall(r"^\.PHONY: (.*)", (PROJECT / "Makefile").read_text(), re.MULTILINE)[0].split()
    assert commands(shown("ALL=1")) == set(phony)


@needs_fixtures
def test_the_page_of_chains_tells_which_recorded_blocks_make_their_roots():
    assert "\n".join(table()) in (PROJECT / "docs/concepts/chains.md").read_text()


def test_each_setting_of_geth_on_the_page_is_tried():
    page = (PROJECT / "docs" / "operating" / "needs.md").read_text()
    section = page.partition("\n### Settings of geth\n")[2].partition("\n## ")[0]
    of_geth = (PROJECT / "tests" / "real_nodes" / "system").glob("test_geth*.py")
    tests = "".join(path.read_text() for path in of_geth)
    named = set(re.findall(r"`(--[a-z.-]+)", section))
    # geth's driver gives it --http, and the table's --authrpc stands for the URL of the Engine API.
    assert named - set(re.findall(r"--[a-z.-]+", tests)) == {"--http", "--http.api", "--authrpc"}
    assert {"engine_url", "namespaces"} <= set(re.findall(r"\w+", tests))
