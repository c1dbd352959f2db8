"""`manage.py check_chains` prints what it finds, and ends with codes of faults."""

import io
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from eth_account import Account

from config.configured_chains import forget_chains
from devnet.devchain import PROJECT, DevChain
from proving.models import SignedTransaction
from tests.chain_fixtures import chain_fixture
from tests.chains.geth_answers import REFUSALS
from tests.chains.lying_node import Raw, ask, between, error, lying_node, pruned
from tests.deployed import deploy
from tests.explorer.batches import beat
from tests.names import Names
from tests.proving.paths import HISTORY, rewrite_history
from tests.proving.sources import KEYS, THERE, attesting
from tests.service import SIGNER, attested_by, chains_toml, source_tables

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

DEAD = "http://127.0.0.1:1/secret-path"


def check(*codes: str) -> list[str]:
    """Run `check_chains`, which must end with these codes. Return the lines it prints."""
    output, faults, returned = io.StringIO(), "", 0
    try:
        call_command("check_chains", stdout=output)
    except CommandError as error:
        faults, returned = str(error), error.returncode
    assert "secret" not in faults + output.getvalue()
    assert tuple(line.partition(": ")[0] for line in faults.splitlines()) == codes, faults
    assert returned == bool(codes)
    return output.getvalue().splitlines()


@pytest.fixture(autouse=True)
def a_worker_runs(db) -> None:
    beat()


devchain = chain_fixture(lambda chain: chain.mine(200))


@pytest.fixture
def configure(settings, tmp_path):
    def write(*urls: str, **tables):
        settings.CHAINS_FILE = chains_toml(tmp_path, *urls, **tables)
        return settings.CHAINS_FILE

    return write


@pytest.mark.long
def test_check_chains_tells_of_every_node_and_of_the_signer_and_the_registry(configure, devchain):
    configure(f"{devchain.url}?key=secret", DEAD)
    deployed = deploy()
    name, columns, good, dead, signer, registry = check()
    host = devchain.url.removeprefix("http://")
    assert name == "Development chain (31337)"
    assert columns.split() == ["node", "head", "age", "finalized", "slots", "pending", "EIP-2935", "proofs"]
    assert re.fullmatch(rf"  {host} +\d+ +-?\d+ s +\d+ +by list +yes +yes +back to block 1", good)
    assert good.index("by list") == columns.index("slots")
    assert good.index("back to") == columns.index("proofs")
    assert re.fullmatch(r"  127\.0\.0\.1:1 +can't be reached", dead)
    assert dead.index("can't") == columns.index("head")
    assert re.fullmatch(rf"  The signer {SIGNER} holds [\d,]+\.\d{{6}}…? ETH; it stops below 0\.01 ETH\.", signer)
    verified = f"The facts registry {deployed} has verified code, {deployed.code_hash}."
    assert registry == f"  {verified} It has the same address everywhere."


# The words of EthereumJS, and those of geth.
@pytest.mark.parametrize("refusal", [(-32602, '"pending" is not yet supported'), REFUSALS["no pending block"]])
def test_check_chains_tells_that_a_node_has_no_pending_block(configure, devchain, refusal):
    def without_pending(body):
        if isinstance(body, dict) and body["method"] == "eth_call" and body["params"][1] == "pending":
            return error(body, *refusal)
        return ask(devchain.url, body)

    with lying_node(without_pending) as url:
        configure(url)
        assert re.search(r" no +yes +back to block 1$", check("no_registry")[2])


@pytest.mark.parametrize(
    ("lists", "tracer", "trials", "cell", "line"),
    [
        (False, True, True, "by trace", ""),
        (False, False, True, "by trials", "finds only those of known layouts."),
        (True, True, False, "none", "finds none."),
    ],
)
def test_check_chains_tells_how_slots_are_found(configure, devchain, lists, tracer, trials, cell, line):
    def change(question: Any, honest: Any) -> list[Any]:
        is_trial = question["method"] == "eth_call" and len(question["params"]) > 2
        served = {"eth_createAccessList": lists, "debug_traceCall": tracer}.get(question["method"], True)
        return [honest if served and (trials or not is_trial) else error(question, -32601, "no such method")]

    with between(devchain.url, change) as url:
        configure(url)
        printed = check("no_registry")
    assert f" {cell} " in printed[2]
    found = [told for told in printed if "which slots" in told]
    host = url.removeprefix("http://")
    assert found == [f"  {host} doesn't tell which slots a call reads: a search {line}"] * bool(line)


def test_check_chains_tells_how_far_back_a_pruned_node_proves(configure):
    with DevChain(extra_args=("--prune-history", "150")) as pruned:
        pruned.mine(200)
        configure(pruned.url)
        printed = check("no_registry")
        assert printed[2].endswith("at least 128 blocks back")
        assert re.search(r" proves no older block: The node refused \(-\d+\); the node said: “.+”\.$", printed[3])


@pytest.fixture
def with_names(configure):
    def write(url: str) -> None:
        path = configure(url)
        path.write_text("[ens]\nchain = 31337\n" + path.read_text())
        forget_chains()

    return write


def test_check_chains_asks_for_a_name_if_names_are_configured(with_names):
    with DevChain() as chain:
        Names(chain)
        chain.mine(200)
        with_names(chain.url)
        assert check("no_registry")[-1] == "  ENS names work."


def test_check_chains_fails_if_no_node_of_a_chain_can_be_used(configure, devchain):
    configure(DEAD)
    *_, signer = check("chain_unavailable", "no_registry")
    assert "can't be reached" in signer


def test_a_node_of_another_chain_can_not_be_used(configure, devchain):
    configure(devchain.url, chain_id=5)
    assert check("wrong_chain", "no_registry")[2].endswith("is a node of chain 31337, not of 5")


def test_a_source_needs_a_node_that_proves(configure, devchain):
    def without_proofs(body):
        return error(body, -32601, "no") if body["method"] == "eth_getProof" else ask(devchain.url, body)

    with lying_node(without_proofs) as url:
        path = configure(url)
        assert check("no_proofs", "no_registry")[2].endswith("none")
        path.write_text(path.read_text().split("[[connections]]", maxsplit=1)[0])
        forget_chains()
        assert len(check()) == 4, "a chain that is no destination has no signer to tell of"


def test_a_node_that_refuses_everything_is_told_with_its_words(configure, devchain):
    def refuses(body):
        return ask(devchain.url, body) if body["method"] == "eth_chainId" else error(body, -32000, "members only")

    with lying_node(refuses) as url:
        configure(url)
        printed = check("chain_unavailable", "no_registry")
        assert printed[2].endswith("The node refused (-32000); the node said: “members only”.")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            Raw(b'{"error": {"code": 1, "message": "unknown project"}}', 401),
            "HTTP status 401; the node said: “unknown project”",
        ),
        (
            Raw(b"<html>Forbidden: members only</html>", 403),
            "HTTP status 403; the node said: “<html>Forbidden: members only</html>”",
        ),
        (
            Raw(b'{"error": {"code": 1, "message": "out of credits"}}', 429),
            "(HTTP status 429); the node said: “out of credits”",
        ),
        (Raw(b"Welcome to nginx"), "something that is not JSON; the node said: “Welcome to nginx”"),
    ],
)
def test_the_words_of_a_node_without_answers_are_quoted(configure, answer, told):
    with lying_node(lambda _: answer) as url:
        configure(url)
        assert check("chain_unavailable", "no_registry")[2].endswith(told)
        assert told.partition("; ")[2] in check_node(url)[1]


@pytest.mark.long
def test_check_chains_names_an_amount_for_a_new_signer_that_suffices_and_is_not_much_more(configure):
    with DevChain() as chain:
        chain.mine(200)
        configure(chain.url)
        chain.rpc("anvil_setBalance", SIGNER, "0x1")
        chain.mine()  # a root for the changed balance
        *_, to_begin = check("signer_unfunded", "no_registry")
        match = re.fullmatch(
            rf"  To begin on Development chain \(31337\), send (0\.\d{{6}}) ETH to {SIGNER}: deploying 1 registry "
            r"takes at most (0\.\d{6}) ETH at present, and each balance that is proven takes about (0\.\d{6}) ETH\.",
            to_begin,
        )
        assert match, to_begin
        in_all, deploying, each = (round(float(amount) * 10**18) for amount in match.groups())
        assert 1 <= in_all / (10**16 + deploying + 20 * each) < 1.1
        chain.rpc("anvil_setBalance", SIGNER, hex(in_all))
        costs = check("no_registry")[-1]
        assert costs.startswith("  On Development chain (31337), deploying 1 registry takes at most 0."), costs
        deploy()
        price = SignedTransaction.objects.earliest("pk").max_fee_per_gas
        blocks = (chain.rpc("eth_getBlockByNumber", hex(number), False) for number in range(chain.head() + 1))
        used = sum(int(block["gasUsed"], 16) for block in blocks)
        assert used < deploying / price < 1.25 * used
        assert not any("To begin" in line for line in check())


def test_a_signer_without_key_is_told(configure, devchain):
    path = configure(devchain.url)
    (path.parent / "signer.key").unlink()
    printed = check("signer_unreadable", "no_registry")
    assert re.fullmatch(r"  The signer's file .*signer\.key can't be read\.", printed[-1])


@pytest.mark.parametrize(
    ("slots", "tables", "sentence"),
    [
        # Source: https://github.com/cosmos/evm/issues/1283
        ({"writes": 8192}, {}, 'returns a wrong hash for block 20026. .*block_hash_source = "attested"'),
        (
            {"reads": 13, "writes": 13},
            {"connection": "window = 20"},
            "returns a wrong hash for block 20011. .* Lower window",
        ),
        (
            {"limit": 13, "reads": 13, "writes": 13},
            {"chain": "history_window = 12", "connection": "window = 12"},
            "Slot 10 of .* doesn't hold the hash of block 20026, .* Set history_window, which is 12,",
        ),
    ],
)
def test_a_history_that_tells_another_hash_is_told_with_what_to_do(configure, slots, tables, sentence):
    with DevChain(extra_args=("--number", "20000")) as chain:
        rewrite_history(chain, **slots)
        chain.mine(30)
        configure(chain.url, **tables)
        with pytest.raises(CommandError) as told:
            call_command("check_chains", stdout=io.StringIO())
    (wrong,) = (line for line in str(told.value).splitlines() if line.startswith("wrong_history: "))
    assert f"{HISTORY} (EIP-2935) of Development chain (31337)" in wrong
    assert re.search(sentence, wrong), wrong


@pytest.mark.parametrize("seconds", [-310, 310])
def test_a_clock_far_from_the_newest_block_is_told(configure, devchain, monkeypatch, seconds):
    devchain.mine()
    path = configure(devchain.url, chain="test_network = false")
    apart = time.time() + seconds
    monkeypatch.setattr(time, "time", lambda: apart)
    check("clock", "no_registry")
    path.write_text(path.read_text().replace("block_seconds = 1", "block_seconds = 100"))
    forget_chains()
    check("no_registry")


def refusing(part: str, message: str) -> AbstractContextManager[None]:
    """Refuse statements that have this part, as a database would."""

    def execute_or_fail(execute, sql, params, many, context):
        if part in sql:
            raise OperationalError(message)
        return execute(sql, params, many, context)

    return connection.execute_wrapper(execute_or_fail)


def test_nodes_can_be_checked_before_there_is_a_database(configure, devchain):
    configure(devchain.url)
    with refusing("proving_", "no such table: proving_factsregistry"):
        assert check()[3].startswith("  The signer ")


def test_a_database_that_is_away_or_full_is_a_problem(configure, devchain):
    configure(devchain.url)
    with refusing("", "connection refused"):
        assert check("database_unavailable")[3].startswith("  The signer ")
    with refusing("INSERT", "database or disk is full"):
        check("storage")


# --- One node ---------------------------------------------------------------------------------------------------------


def check_node(url: str) -> tuple[list[str], str]:
    """Return the output of `check_chains --node`, and its error."""
    output, fault = io.StringIO(), ""
    try:
        call_command("check_chains", node=url, stdout=output)
    except CommandError as error:
        fault = str(error)
    assert "secret" not in fault + output.getvalue()
    return output.getvalue().splitlines(), fault


@pytest.fixture
def no_chains_file(settings, tmp_path) -> None:
    settings.CHAINS_FILE = tmp_path / "none.toml"


def test_a_node_is_checked_without_a_chains_file(no_chains_file, devchain, monkeypatch):
    monkeypatch.setenv("MY_NODE", f"{devchain.url}?key=secret")
    (name, columns, node), error = check_node("${MY_NODE}")
    assert name == "A node of chain 31337"
    assert columns.split()[-1] == "proofs"
    assert node.endswith("back to block 1")
    assert error == ""


def test_a_node_that_serves_no_proofs_is_told(no_chains_file, devchain):
    def without_proofs(body):
        return error(body, -32601, "no") if body["method"] == "eth_getProof" else ask(devchain.url, body)

    with lying_node(without_proofs) as url:
        printed, fault = check_node(url)
    assert printed[-2].endswith("none")
    assert printed[-1].endswith(" proves no block: The node refused (-32601); the node said: “no”.")
    assert fault == "no_proofs: The node can't serve a source chain: it has no proofs (eth_getProof)."


def test_a_block_made_just_now_has_an_age_without_a_sign(no_chains_file, devchain, monkeypatch):
    made = int(devchain.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
    monkeypatch.setattr(time, "time", lambda: made - 0.4)
    (_, _, node), _ = check_node(devchain.url)
    assert re.search(r" 0 s ", node)


@pytest.mark.parametrize(("cap", "is_low"), [(50_000_000, False), (1_000_000, True)])
def test_a_node_that_gives_calls_too_little_gas_is_told_with_the_setting(no_chains_file, devchain, cap, is_low):
    """geth lowers the gas of a call to --rpc.gascap without a word."""

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] != "eth_call" or "gas" not in question["params"][0]:
            return [reply]
        capped = question["params"][0] | {"gas": hex(min(cap, int(question["params"][0]["gas"], 16)))}
        return [ask(devchain.url, question | {"params": [capped, *question["params"][1:]]})]

    with between(devchain.url, change) as url:
        printed, fault = check_node(url)
    host = url.removeprefix("http://")
    told = [line for line in printed if re.match(rf"  {host} gives calls and estimates only 9\d\d,\d\d\d gas, ", line)]
    assert [line.endswith(" The setting of geth is --rpc.gascap.") for line in told] == [True] * is_low
    assert fault == ""


@pytest.mark.parametrize("only_proofs", [True, False])
def test_a_node_that_serves_old_states_without_proofs_is_told_with_the_settings_that_help(
    no_chains_file, devchain, only_proofs
):
    with pruned(devchain.url, only_proofs=only_proofs) as url:
        printed, fault = check_node(url)
    host, old = url.removeprefix("http://"), devchain.head() - 1_000 if devchain.head() > 1_001 else 1
    hint = f"  {host} serves the state of block {old} without proofs. A geth with --gcmode archive also proves it"
    assert [line.startswith(hint) for line in printed[3:]] == [False] + [True] * only_proofs
    assert re.search(r" proves no older block: .* “historical state [0-9a-f]{64} is not available”\.$", printed[3])
    assert printed[2].endswith("at least 128 blocks back")
    assert fault == ""


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        (DEAD, "chain_unavailable: 127.0.0.1:1 can't be reached."),
        (
            "http://no-such-host.invalid",
            "chain_unavailable: no-such-host.invalid can't be reached, because its name doesn't resolve.",
        ),
        ("ftp://x/secret", "The node's URL can't be used: must be an http or https URL (it is not shown"),
        ("${NO_SUCH_NODE}", "The node's URL can't be used: neither NO_SUCH_NODE nor NO_SUCH_NODE_FILE is set"),
    ],
)
def test_a_node_that_can_not_be_asked_is_told(no_chains_file, url, fault):
    assert check_node(url)[1].startswith(fault)


# --- Keystores and registries -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keystore(tmp_path_factory) -> Path:
    """Return a folder with a keystore and its password."""
    folder: Path = tmp_path_factory.mktemp("keystore")
    made = [sys.executable, "manage.py", "make_keystore", str(folder / "keystore.json"), str(folder / "password")]
    subprocess.run(made, cwd=PROJECT, check=True, capture_output=True)
    return folder


@pytest.fixture
def with_keystore(configure, devchain, keystore) -> Path:
    """Return the folder of a chains file that names an existing keystore."""
    path: Path = configure(devchain.url)
    shutil.copytree(keystore, path.parent, dirs_exist_ok=True)
    named = 'keystore_file = "keystore.json"\npassword_file = "password"'
    path.write_text(path.read_text().replace('key_file = "signer.key"', named))
    return path.parent


@pytest.mark.long
def test_a_signer_s_keystore_is_opened(with_keystore):
    address = Account.from_key(
        Account.decrypt((with_keystore / "keystore.json").read_text(), (with_keystore / "password").read_text())
    ).address
    # The keystore's account is new and holds no ETH.
    signer, to_begin = check("signer_unfunded", "no_registry")[-2:]
    assert signer.startswith(f"  The signer {address} holds 0.000000 ETH")
    assert re.match(rf"  To begin on Development chain \(31337\), send 0\.\d{{6}} ETH to {address}: ", to_begin)


@pytest.mark.long("wrong password")
@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (lambda folder: (folder / "keystore.json").unlink(), "keystore.json can't be read"),
        (lambda folder: (folder / "password").unlink(), "password can't be read"),
        (lambda folder: (folder / "password").write_text("wrong"), "password"),
        (lambda folder: (folder / "keystore.json").write_text("{}"), "keystore"),
    ],
    ids=["missing", "no password", "wrong password", "no keystore"],
)
def test_a_keystore_that_can_not_be_opened_is_told(with_keystore, harm: Callable[[Path], None], sentence):
    harm(with_keystore)
    assert sentence in check("signer_unreadable", "no_registry")[-1]


# --- Attesters --------------------------------------------------------------------------------------------------------


there = chain_fixture(lambda chain: chain.mine(50), chain_id=THERE)


@pytest.fixture(scope="module")
def attesters(there: DevChain, tmp_path_factory) -> Iterator[list[Any]]:
    """Yield two attesters, run like an operator's."""
    with ExitStack() as stack:
        yield [stack.enter_context(attesting(tmp_path_factory.mktemp("attester"), there, key)) for key in KEYS[:2]]


@pytest.fixture
def attested(configure, devchain, there) -> Callable[..., None]:
    """Return a function that connects the other chain. `threshold` of the given attesters must agree."""

    def connect(*attesters: tuple[str, str], threshold: int = 2, node: str = there.url) -> None:
        path = configure(devchain.url)
        connection = attested_by(dict(attesters), threshold)
        tables = source_tables(THERE, "Other chain", node, connection, chain="test_network = true")
        path.write_text(path.read_text() + tables)
        forget_chains()

    return connect


def said_of_attesters(printed: list[str]) -> list[str]:
    """Return the printed lines about attesters."""
    first = next(index for index, line in enumerate(printed) if line.startswith("  Of the attesters"))
    return [line.strip() for line in printed[first : first + 1 + sum("0x" in line[:8] for line in printed[first:])]]


def test_each_attester_is_asked(attested, attesters):
    first, second = attesters
    silent = Account.from_key(KEYS[2]).address
    attested((first.address, first.url), (second.address, second.url), (silent, f"{DEAD}/secret"))
    # Two signatures are enough, so the silent attester is no fault.
    head, *lines = said_of_attesters(check("no_registry", "no_registry"))
    assert re.fullmatch(r"Of the attesters of Other chain \(31338\), 2 sign block \d+, and 2 must:", head)
    assert lines == [
        f"{first.address}: {first.url.removeprefix('http://')} signs.",
        f"{second.address}: {second.url.removeprefix('http://')} signs.",
        f"{silent}: 127.0.0.1:1 can't be reached.",
    ]


def test_an_attester_that_signs_with_another_key_is_reported(attested, attesters):
    first, second = attesters
    attested((first.address, second.url), (second.address, second.url))
    _, wrong, right = said_of_attesters(check("too_few_attesters", "no_registry", "no_registry"))
    assert f"signs as {second.address}" in wrong or "for another block" in wrong
    assert right.endswith("signs.")


def test_an_attester_that_contradicts_our_nodes_is_told(attested, attesters, devchain):
    """The attesters' nodes are on the real chain, and the service's nodes on another chain with the same id."""
    first, second = attesters

    with DevChain(chain_id=THERE) as fork:
        fork.rpc("evm_setNextBlockTimestamp", hex(2_000_000_000))
        fork.mine(50)
        attested((first.address, first.url), (second.address, second.url), node=fork.url)
        _, *lines = said_of_attesters(check("too_few_attesters", "no_registry", "no_registry"))
    assert all("contradicts our nodes: it signs 0x" in line for line in lines), lines


def test_an_attester_that_answers_nonsense_is_told(attested, attesters):
    first, _ = attesters
    with lying_node(lambda _: Raw(b"nonsense")) as url:
        attested((first.address, first.url), (Account.from_key(KEYS[2]).address, f"{url}/secret-path"))
        *_, wrong = said_of_attesters(check("too_few_attesters", "no_registry", "no_registry"))
    assert wrong.endswith("answered with something that is not a JSON object.")
