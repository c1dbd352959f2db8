"""Every example of the README and the documentation works, pasted in order against a running demo."""

import fcntl
import json
import os
import pickle
import re
import sqlite3
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import requests
from eth_utils.crypto import keccak

from chains.chains_file import load_chains
from contracts.build import read_sources, run_compiler
from demo import client
from devnet import devchain, ports
from devnet.guarded_process import GuardedProcess
from tests.demo.commands import demo, variables
from tests.docs import reader
from tests.docs.examples import Block, blocks_of, pages

# Pages about one installation, which the first page sets up. All other pages are independent of each other.
OPERATING = ["deploying", "test-network", "configuration", "watching", "database", "attesters"]
OPERATING_PAGES = [f"docs/operating/{name}.md" for name in OPERATING]
BLOCKS = [block for page in pages() for block in blocks_of(page)]
RUNNABLE = [block for block in BLOCKS if block.language in reader.PROGRAMS and not block.is_skipped]
# The port of the receiver on the page about webhooks.
RECEIVER_PORT = "8765"


def row(*blocks: Block) -> Any:
    return pytest.param(*blocks, id="-".join(map(str, blocks)))


@dataclass(frozen=True)
class Results:
    """The results of pages."""

    blocks: dict[str, reader.Ran]
    """Each block's result by its page and line."""
    balances: tuple[int, int] = (0, 0)
    """The balance that the contract of the README reads, and that of the account."""


def once(tmp_path_factory, name: str, run: Callable[[], Results]) -> Results:
    """Return the results of pages. One of pytest's processes runs them: pages use fixed ports, and take minutes."""
    shared = tmp_path_factory.getbasetemp().parent / f"{name}-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists():
            results = pickle.dumps(run())
            shared.write_bytes(results)
        results = pickle.loads(shared.read_bytes())
        assert isinstance(results, Results)
        return results


@contextmanager
def demo_of_two_chains(tmp_path_factory) -> Iterator[dict[str, str]]:
    """Run a demo of two chains, and yield its environment variables."""
    folder = tmp_path_factory.mktemp("documented") / "demo"
    command = demo("demo.cross_chain", folder)
    process = GuardedProcess(command, env=os.environ, stdout=subprocess.PIPE, stop_seconds=180, cwd=devchain.PROJECT)
    output = b""
    try:
        while b"Serving until Ctrl-C" not in output:
            line = process.output.readline()
            assert line, output.decode()
            output += line
        yield variables(folder) | {"FOLDER": str(folder)}
    finally:
        process.stop()
        process.output.close()


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Results:
    def run() -> Results:
        with demo_of_two_chains(tmp_path_factory) as env:
            blocks = run_independent_pages(env, tmp_path_factory)
            faulty = any(each.fault for each in blocks.values() if each.block.page == "README.md")
            return Results(blocks) if faulty else Results(blocks, read_by_the_contract_of_the_readme(env, blocks))

    return once(tmp_path_factory, "pages", run)


@pytest.fixture(scope="module")
def operated(tmp_path_factory) -> Results:
    def run() -> Results:
        with demo_of_two_chains(tmp_path_factory) as env:
            return Results(run_operating_pages(env, tmp_path_factory))

    return once(tmp_path_factory, "operating-pages", run)


def run_independent_pages(env: dict[str, str], tmp_path_factory) -> dict[str, reader.Ran]:
    """Run the blocks of independent pages at the same time. Return the results by the block's page and line."""
    folder = tmp_path_factory.mktemp("readers")
    text = "".join(f"{name}={value}\n" for name, value in env.items() if name != "FOLDER")
    files = {".demo/env": text, ".demo-cross-chain/env": text}
    alone = [page for page in pages() if page not in OPERATING_PAGES]

    def read(number: int, page: str) -> list[reader.Ran]:
        blocks = blocks_of(page)
        if not any(block in RUNNABLE for block in blocks):
            return []
        checkout = reader.make_folder(folder / str(number), files)
        # Another process may have the port of the page's receiver.
        free = str(ports.free_port())
        blocks = [replace(block, code=block.code.replace(RECEIVER_PORT, free)) for block in blocks]
        return reader.paste(blocks, checkout, {"SOURCE_RPC_URL": env["RPC_URL"]})

    with ThreadPoolExecutor(4) as threads:
        results = [*threads.map(read, range(len(alone)), alone)]
    return {str(each.block): each for page in results for each in page}


def run_operating_pages(env: dict[str, str], tmp_path_factory) -> dict[str, reader.Ran]:
    """Run the operator's pages on the demo's chains, with a database and a signer of their own."""
    folder = tmp_path_factory.mktemp("operators")
    toml = (Path(env["FOLDER"]) / "chains.toml").read_text()
    attester = next(block.code for block in blocks_of("docs/operating/attesters.md") if block.language == "toml")
    attester = re.sub(r"rpc_urls = .*", f'rpc_urls = ["{env["OTHER_RPC_URL"]}"]', attester)
    checkout = reader.make_folder(
        folder / "operator",
        {
            "mine.toml": toml,
            "signer.key": devchain.ACCOUNTS[3][1],
            "attester.toml": attester.replace("id = 1\n", "id = 31338\n"),
        },
    )
    state = checkout / "state"
    variables_of_pages = {
        "BASE_URL": env["BASE_URL"],
        "STATE_DIR": str(state),
        "CHAINS_FILE": str(checkout / "mine.toml"),
        "BIND": f"127.0.0.1:{ports.free_port()}",
        "ATTESTER_BIND": "127.0.0.1:0",
        "DESTINATION": env["CHAIN_ID"],
        "SOURCE": env["CHAIN_ID"],
        "RPC_URL": env["RPC_URL"],
        "FACTS_REGISTRY": env["OTHER_FACTS_REGISTRY"],
        "USER_ADDRESS": devchain.ACCOUNTS[0][0],
    }
    variables_of_pages |= {
        name: address for name, (address, _) in zip(["FIRST", "SECOND", "THIRD"], devchain.ACCOUNTS, strict=False)
    }
    first, *others = OPERATING_PAGES
    results = reader.paste(blocks_of(first), checkout, variables_of_pages)
    sign_up(state / "db.sqlite3", devchain.ACCOUNTS[0][0])
    with ThreadPoolExecutor(4) as threads:
        other_results = threads.map(lambda page: reader.paste(blocks_of(page), checkout, variables_of_pages), others)
    return {str(each.block): each for page in (results, *other_results) for each in page}


@pytest.fixture
def result_of(request) -> Callable[[Block], reader.Ran]:
    """Return a function that tells the result of a runnable block."""

    def result(block: Block) -> reader.Ran:
        results: Results = request.getfixturevalue("operated" if block.page in OPERATING_PAGES else "ran")
        return results.blocks[str(block)]

    return result


def sign_up(database: Path, address: str) -> None:
    with closing(sqlite3.connect(database)) as rows, rows:
        rows.execute(
            "INSERT INTO accounts_user (address, password, created_at) VALUES (?, '!', datetime())",
            [address],
        )


@pytest.mark.long
@pytest.mark.parametrize("block", [row(block) for block in RUNNABLE])
def test_a_pasted_block_does_what_its_page_says(result_of, block):
    each = result_of(block)
    assert not each.fault, f"{block}: {each.fault}\n{each.output}"


ANSWERS = [
    (before, block)
    for page in pages()
    for before, block in zip(blocks_of(page), blocks_of(page)[1:], strict=False)
    if block.language == "json" and before in RUNNABLE
]


@pytest.mark.long
@pytest.mark.parametrize(("before", "block"), [row(*both) for both in ANSWERS])
def test_an_answer_has_the_form_that_the_page_shows(result_of, before, block):
    each = result_of(before)
    assert not each.fault
    assert reader.differs(json.loads(block.code), reader.last_json(each.output)) == ""


def test_secret_files_that_examples_make_are_ignored_by_git():
    named = r"(?:make_keystore(?: --ask)?|--keystore|--password-file|keystore_file =|password_file =|>) ([\w./\"]+)"
    code = "\n".join(block.code for block in BLOCKS if block.language in {"sh", "toml"})
    made = {path.strip('"') for path in re.findall(named, code) if re.search("secrets|key|password", path)}
    assert {"secrets/key.json", "secrets/signer.json", "secrets/attester.password"} <= made
    assert not [path for path in made if not path.removeprefix("deploy/").startswith("secrets/")]
    ignored = set((devchain.PROJECT / ".gitignore").read_text().splitlines())
    assert {"/secrets", "/deploy/secrets", "/.testnet"} <= ignored
    files = {f"/{name}" for name in re.findall(r"(?:\s2?>|--output|-o) ([\w.-]+)(?=\s)", code)}
    assert {"/receiver.log", "/batch-query-service.d.ts"} <= files <= ignored


def test_every_toml_block_is_a_chains_file_that_the_service_takes(tmp_path):
    blocks = [block for block in BLOCKS if block.language == "toml"]
    assert blocks
    for block in blocks:
        assert "chains" in tomllib.loads(block.code)
        (tmp_path / "chains.toml").write_text(block.code)
        assert load_chains(tmp_path / "chains.toml", {"KEY_ONE": "key", "BEACON_KEY": "key"}).chains


@pytest.mark.long
def test_every_contract_compiles_without_a_warning():
    sources = {str(block): block.code for block in BLOCKS if block.language == "solidity"}
    assert sources
    output = run_compiler(sources | read_sources(), {"*": {"*": ["abi"]}})
    assert not [message["formattedMessage"] for message in output.get("errors", [])]


@pytest.mark.long
def test_the_contract_of_the_readme_reads_the_balance_that_its_batch_has_proven(ran):
    read, balance = ran.balances
    assert read == balance > 0


def read_by_the_contract_of_the_readme(env: dict[str, str], blocks: dict[str, reader.Ran]) -> tuple[int, int]:
    """Deploy the contract. Return the balance that it reads, and that of the account in the batch of the page."""
    (contract,) = [block for block in blocks_of("README.md") if block.language == "solidity"]
    (submission,) = [each for each in blocks.values() if each.block.page == "README.md" and "internalId" in each.output]
    batch = reader.last_json(submission.output)["internalId"]
    request = requests.get(f"{env['BASE_URL']}/explorer/query/{batch}/request.json", timeout=10).json()
    ((selector, block_request),) = request["data"][env["CHAIN_ID"]].items()
    block, (account,) = int(selector.removeprefix("block:")), block_request["accounts"]

    output = run_compiler({"README.md": contract.code}, {"*": {"*": ["evm.bytecode.object"]}})
    code = output["contracts"]["README.md"]["Snapshot"]["evm"]["bytecode"]["object"]
    url, deployer = env["RPC_URL"], devchain.ACCOUNTS[2][0]
    creation = f"0x{code}{int(env['FACTS_REGISTRY'], 16):064x}"
    sent = client.rpc(url, "eth_sendTransaction", {"from": deployer, "data": creation})
    deadline = time.monotonic() + 120
    while (receipt := client.rpc(url, "eth_getTransactionReceipt", sent)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    call = keccak(text="balanceAt(address,uint256)")[:4].hex() + f"{int(account, 16):064x}{block:064x}"
    read = client.rpc(url, "eth_call", {"to": receipt["contractAddress"], "data": f"0x{call}"}, "latest")
    return int(read, 16), int(client.rpc(url, "eth_getBalance", account, hex(block)), 16)


def test_every_file_that_a_page_names_is_there():
    packages = (
        "accounts|attesting|campaigns|chains|client|config|contracts|demo|devnet|docs|explorer|proving|queries|static"
        "|tests"
    )
    missing = [
        f"{page} names {path}"
        for page in pages()
        for path in re.findall(rf"[`(]((?:{packages})/[\w./-]*)[`)]", (devchain.PROJECT / page).read_text())
        if not (devchain.PROJECT / path).exists()
    ]
    assert not missing
