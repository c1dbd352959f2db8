"""geth where its flags, its data or its fork decide which facts can be proven, and when."""

import csv
import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from accounts.models import ApiKey
from chains.beacon.jumps import SEPOLIA
from config.configured_chains import forget_chains
from devnet.devchain import ACCOUNTS, DevChain
from devnet.geth import GETH, GETH_1_16
from devnet.json_rpc import NodeErrorReply
from proving.models import SignedTransaction, Transaction
from queries.models import Batch, BatchStatus
from tests import service
from tests.chains import geth_answers
from tests.chains.lying_node import ask, between, error, lying_node, recording, result
from tests.explorer import shown_code
from tests.factories import until
from tests.proving.sources import KEYS, attesting
from tests.real_nodes.deploying import deployed_for, deployed_on
from tests.real_nodes.driven_geth import CHAIN_ID, DrivenGeth
from tests.real_nodes.facts import Facts, facts_of, send_transactions, wrong

pytestmark = [pytest.mark.django_db, pytest.mark.geth, pytest.mark.outside]

# Number of blocks behind the head whose states geth keeps without flags.
_STATES = 128


def test_the_known_forks_of_sepolia_begin_at_the_times_of_geth_s_forks():
    told = subprocess.run([GETH, "dumpgenesis", "--sepolia"], capture_output=True, text=True, check=True).stdout
    config = json.loads(told)["config"]
    pairs = [("capella", "shanghai"), ("deneb", "cancun"), ("electra", "prague"), ("gloas", "amsterdam")]
    times = {ours: config[f"{theirs}Time"] for ours, theirs in pairs}
    assert times == {name: SEPOLIA.time_of(getattr(SEPOLIA, name)) for name in times}
    assert config["chainId"] == SEPOLIA.id


def connect(settings, tmp_path, *urls: str, chain: str = "") -> None:
    """Configure the service on geth for geth's own facts."""
    settings.CHAINS_FILE = service.chains_toml(tmp_path, *urls, chain_id=CHAIN_ID, chain=chain)
    forget_chains()


def submit(key, asked: Mapping[str, Any]) -> Batch:
    return service.submit(key, service.asking(asked, source=CHAIN_ID, destination=CHAIN_ID))


def divided(facts: Facts) -> tuple[Facts, Facts, Facts]:
    """Return the facts of a block's header, those of its transactions, and the others, which need its state."""
    (selector, block), *others = facts.asked.items()

    def of(name: str, *calls: str, **more: Any) -> Facts:
        expected = {call: value for call, value in facts.expected.items() if call[0].startswith(calls)}
        return Facts({selector: {name: block[name]}, **more}, expected)

    return (
        of("header", "headerField"),
        of("transactions", "receipt", "transaction", "log"),
        of("accounts", "account", "blockAt", **dict(others)),
    )


@pytest.fixture
def geth() -> Iterator[DrivenGeth]:
    """Yield a chain whose first block has transactions and is final."""
    with DrivenGeth(CHAIN_ID) as node:
        send_transactions(node)
        node.mine(8)
        yield node


# --- Old states -------------------------------------------------------------------------------------------------------

_ARCHIVE, _BY_HASH = "--gcmode=archive", "--state.scheme=hash"


@pytest.fixture(scope="module")
def old() -> Iterator[tuple[DrivenGeth, Facts]]:
    """Yield a chain, and the facts of a block whose state geth doesn't keep any more."""
    with DrivenGeth(CHAIN_ID) as node:
        send_transactions(node)
        node.mine()
        facts = facts_of(node, 1)
        node.mine(_STATES + 1)
        yield node, facts


@pytest.mark.long("--history.state=0 --history.trienode=0", _BY_HASH, f"{_BY_HASH} {_ARCHIVE}")
@pytest.mark.parametrize(
    ("flags", "is_kept"),
    [
        pytest.param(flags, is_kept, id=flags)
        for flags, is_kept in {
            "": False,
            "--history.state=0 --history.trienode=0": False,
            # It answers calls at old blocks, and proves none.
            _ARCHIVE: False,
            f"{_ARCHIVE} --history.trienode=0": True,
            _BY_HASH: False,
            f"{_BY_HASH} {_ARCHIVE}": True,
        }.items()
    ],
)
def test_an_old_state_is_proven_if_geth_keeps_its_tries(old, key, settings, tmp_path, flags, is_kept):
    other, facts = old
    header, entries, state = divided(facts)
    with DrivenGeth(CHAIN_ID, genesis_time=other.genesis_time, flags=flags.split()) as node:
        node.follow(other)
        connect(settings, tmp_path, node.url)
        registry = deployed_on(CHAIN_ID, node.mine).address
        for part in (header, entries):
            service.done(submit(key, part.asked), node)
            assert wrong(node, registry, part) == []
        if is_kept:
            until(lambda: proves_first_block(node), "the index of states")
        batch = service.work_until_done(submit(key, state.asked), node)
        if is_kept:
            assert (batch.status, wrong(node, registry, state)) == (BatchStatus.DONE, [])
        else:
            assert (batch.status, batch.rejection_code) == (BatchStatus.REJECTED, "proof_unavailable")
            assert "need an archive node" in batch.rejection_reason


# --- Slots ------------------------------------------------------------------------------------------------------------

# The first contract returns its slot 7, whatever is called. The second one returns what the first returns.
_HOLDER, _ASKER = f"0x{0xC0D7:040x}", f"0x{0xC0D8:040x}"
_VIEWS = {_HOLDER: "0x6007545f5260205ff3", _ASKER: f"0x60205f5f5f73{_HOLDER[2:]}5afa5060205ff3"}


def search(client: Client, key: ApiKey, contract: str) -> Any:
    """Return the slots behind a view. On a busy machine it takes several searches, which may last five seconds each."""
    body = {"sourceChainId": str(CHAIN_ID), "contract": contract, "signature": "total()", "arguments": []}
    answers: list[Any] = []

    def is_over() -> bool:
        answers.append(client.post("/find-slots", body, content_type="application/json", headers=service.header(key)))
        return bool(answers[-1].status_code != 503)

    until(is_over, "the slots")
    return answers[-1].json()


@pytest.mark.parametrize("flags", [[], ["--rpc.gascap=150000"]], ids=["", "little gas"])
@pytest.mark.parametrize("namespaces", ["eth", "eth,debug"])
@pytest.mark.parametrize("program", [GETH, GETH_1_16], ids=["newest", "1.16"])
def test_slots_are_found_by_lists(db, client, key, settings, tmp_path, program, namespaces, flags):
    """geth 1.16 makes no list of slots for a caller that can't pay for the gas."""
    node = DrivenGeth(CHAIN_ID, program=program, namespaces=namespaces, flags=flags)
    for address, code in _VIEWS.items():
        node.genesis["alloc"][address] = {"balance": "0x0", "code": code, "storage": {f"0x{7:064x}": f"0x{42:064x}"}}
    with node:
        node.mine()
        connect(settings, tmp_path, node.url)
        for contract in _VIEWS:
            found = search(client, key, contract)
            (slot,) = found["slots"]
            assert (slot["account"].lower(), slot["slot"], slot["value"]) == (_HOLDER, f"0x{7:064x}", "42")
            assert found["foundBy"] == "eth_createAccessList"
        if program == GETH_1_16:
            with pytest.raises(NodeErrorReply, match=re.escape(geth_answers.NO_FUNDS)):
                node.rpc("eth_createAccessList", {"from": f"0x{1:040x}", "to": _HOLDER, "gas": hex(1 << 20)}, "latest")


def proves_first_block(node: DrivenGeth) -> bool:
    """Return whether geth proves the first block's state. It may still index the states' histories."""
    with suppress(NodeErrorReply):
        return bool(node.rpc("eth_getProof", ACCOUNTS[0][0], [], "0x1"))
    return False


# --- Pruned history ---------------------------------------------------------------------------------------------------


def pruned(node: DrivenGeth, cutoff: int) -> AbstractContextManager[str]:
    """Return a node that answers as a geth does which has pruned bodies and receipts below `cutoff`.

    geth itself prunes only chains of 90,000 blocks. On such a chain 1.17.10 answered so. Headers and states stay.
    """
    blocks = [node.rpc("eth_getBlockByNumber", hex(number), False) for number in range(cutoff)]
    names = {block[name] for block in blocks for name in ("number", "hash")}
    transactions = {tx_hash for block in blocks for tx_hash in block["transactions"]}

    def change(question: Any, reply: Any) -> list[Any]:
        method, name = question["method"], next(iter(question["params"]), None)
        if method.startswith(("eth_getTransaction", "eth_getRawTransaction")) and name in transactions:
            return [result(question, "0x" if "Raw" in method else None)]
        if method.startswith(("eth_getBlock", "debug_getRaw")) and name in names:
            return [error(question, *geth_answers.REFUSALS["a pruned block"])]
        return [reply]

    return between(node.url, change)


def test_only_the_transactions_of_a_pruned_block_can_not_be_proven(geth, key, settings, tmp_path):
    header, entries, state = divided(facts_of(geth, 1))
    with pruned(geth, 5) as url:
        connect(settings, tmp_path, url)
        registry = deployed_on(CHAIN_ID, geth.mine).address
        for part in (header, state):
            service.done(submit(key, part.asked), geth)
            assert wrong(geth, registry, part) == []
        batch = service.work_until_done(submit(key, entries.asked), geth)
    assert (batch.status, batch.rejection_code) == (BatchStatus.REJECTED, "root_not_made")
    assert "has pruned the block" in batch.rejection_reason


# --- Nodes that are behind --------------------------------------------------------------------------------------------


def test_a_batch_is_done_only_when_its_facts_are_final(key, settings, tmp_path):
    with DrivenGeth(CHAIN_ID) as node:
        node.final_behind = None
        send_transactions(node)
        node.mine(8)
        connect(settings, tmp_path, node.url)
        registry = deployed_on(CHAIN_ID, node.mine).address
        connect(settings, tmp_path, node.url, chain='confirmations = "finalized"')
        facts = facts_of(node, 1)
        batch = submit(key, facts.asked)
        service.work(5, node)
        assert service.fresh(batch).status == BatchStatus.IN_PROGRESS
        node.final_behind = 2
        service.done(batch, node)
        assert wrong(node, registry, facts) == []


def test_a_node_that_syncs_is_passed_over_and_alone_it_loses_nothing(geth, key, settings, tmp_path):
    # A node that is fewer blocks behind doesn't count as wrong.
    geth.mine(32)
    with DrivenGeth(CHAIN_ID, genesis_time=geth.genesis_time) as syncing:
        syncing.follow_unknown()
        connect(settings, tmp_path, syncing.url, geth.url)
        registry = deployed_on(CHAIN_ID, geth.mine).address
        first, second = facts_of(geth, 1), facts_of(geth, 2)
        service.done(submit(key, first.asked), geth)
        connect(settings, tmp_path, syncing.url)
        batch = submit(key, second.asked)
        service.work(3, geth)
        assert service.fresh(batch).status == BatchStatus.RECEIVED
        problems = Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json()["codes"]
        assert "registry_refused" not in problems
        connect(settings, tmp_path, syncing.url, geth.url)
        service.done(batch, geth)
    assert wrong(geth, registry, first) + wrong(geth, registry, second) == []
    all_succeeded_once()


def test_nothing_is_lost_or_repeated_if_geth_is_killed_and_its_head_is_older(geth, key, settings, tmp_path):
    connect(settings, tmp_path, geth.url)
    registry = deployed_on(CHAIN_ID, geth.mine).address
    geth.restart()
    kept, first, second = geth.head(), facts_of(geth, 1), facts_of(geth, 2)
    is_done = service.done(submit(key, first.asked), geth)
    is_sent = submit(key, second.asked)
    service.work(2)
    head = geth.head()
    geth.restart(killed=True)
    assert kept == geth.head() < head
    service.work(2)
    assert service.fresh(is_done).status == BatchStatus.DONE
    # A consensus client sends the lost blocks again.
    geth.follow(geth)
    assert (geth.head(), wrong(geth, registry, first)) == (head, [])
    # geth has lost the transaction, which is broadcast again after a pause.
    SignedTransaction.objects.update(broadcast_at=timezone.now() - timedelta(minutes=1))
    service.done(is_sent, geth)
    assert wrong(geth, registry, second) == []
    all_succeeded_once()


def all_succeeded_once() -> None:
    """Check that no nonce is left out or cancelled, and that each transaction succeeded."""
    sent = Transaction.objects.order_by("nonce")
    assert [tx.nonce for tx in sent] == list(range(len(sent)))
    assert all(tx.succeeded for tx in sent)
    assert not SignedTransaction.objects.filter(is_cancellation=True)


# --- Amsterdam --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("destination", ["another chain", "its own chain"])
def test_facts_of_both_sides_of_amsterdam_are_proven(chain: DevChain, key, settings, tmp_path, destination):
    with ExitStack() as running:
        node = running.enter_context(DrivenGeth(CHAIN_ID, amsterdam_time=int(time.time()) + 300))
        where: DrivenGeth | DevChain = node if destination == "its own chain" else chain
        if where is node:
            node.mine(2)
            connect(settings, tmp_path, node.url)
            registry = deployed_on(CHAIN_ID, node.mine).address
        send_transactions(node)
        node.mine()
        last = node.head()
        send_transactions(node)
        first = node.mine_until_amsterdam()
        node.mine(8)
        if where is chain:
            attester = running.enter_context(attesting(tmp_path / "attester", node, KEYS[0]))
            registry = deployed_for(node, chain, attester, settings, tmp_path).address
        before, after = facts_of(node, last), facts_of(node, first)
        # Amsterdam's header has two fields more.
        assert len(after.expected) == len(before.expected) + 2
        both = service.asking({**before.asked, **after.asked}, source=CHAIN_ID, destination=where.chain_id)
        service.done(service.submit(key, both), where)
        assert wrong(where, registry, before) + wrong(where, registry, after) == []


def test_amsterdam_s_properties_of_a_header_are_read_from_csv_and_in_typescript(key, client, settings, tmp_path):
    names = ["BLOCK_ACCESS_LIST_HASH", "SLOT_NUMBER"]
    with DrivenGeth(CHAIN_ID, amsterdam_time=int(time.time()) + 300) as node:
        node.mine(2)
        connect(settings, tmp_path, node.url)
        deployed_on(CHAIN_ID, node.mine)
        last, first = node.head(), node.mine_until_amsterdam(slot=0)
        node.mine(slot=2**64 - 1)
        batch = service.work_until_done(submit(key, {f"block:{last}": {"header": names}}), node)
        assert (batch.status, batch.rejection_code) == (BatchStatus.REJECTED, "header_property_missing")
        for number, slot in ((first, 0), (first + 1, 2**64 - 1)):
            batch = service.done(submit(key, {f"block:{number}": {"header": names}}), node)
            list_hash = node.rpc("eth_getBlockByNumber", hex(number), False)["blockAccessListHash"]
            rows = client.get(f"/explorer/query/{batch.pk}/facts.csv").content.decode("utf-8-sig").splitlines()
            in_file = {row["property"]: row for row in csv.DictReader(rows)}
            assert (in_file[names[0]]["word"], in_file[names[1]]["value"]) == (list_hash, str(slot))
            (folder := tmp_path / str(number)).mkdir()
            programs = shown_code.of_block(number)
            printed = [int(text, 0) for text in shown_code.printed(programs, node.url, folder)]
            assert printed == [int(list_hash, 16), slot]


# --- Costs ------------------------------------------------------------------------------------------------------------


def test_a_balance_takes_at_most_12_exchanges_and_176_statements(geth, key, settings, tmp_path):
    """Turns without a batch aren't counted, as in `make bench`, which measures on anvil."""
    exchanges: list[Any] = []
    statements: list[str] = []

    def count(execute: Any, sql: str, *more: Any) -> Any:
        statements.append(sql)
        return execute(sql, *more)

    def turn() -> None:
        with connection.execute_wrapper(count):
            service.work()
        geth.mine(2)

    with lying_node(recording(exchanges, lambda body: ask(geth.url, body))) as url:
        connect(settings, tmp_path, url)
        deployed_on(CHAIN_ID, geth.mine)
        geth.mine(8)
        for _ in range(3):
            turn()
        idle_turns, figures = 0, []
        for has_batch in (True, False):
            exchanges.clear()
            statements.clear()
            if has_batch:
                with connection.execute_wrapper(count):
                    batch = submit(key, service.balances([geth.head()]))
                while service.fresh(batch).status != BatchStatus.DONE:
                    turn()
                    idle_turns += 1
                    assert idle_turns < 10
            else:
                for _ in range(idle_turns):
                    turn()
            figures.append((len(exchanges), len(statements)))
            geth.mine(100)
            turn()
    (all_exchanges, all_statements), (of_turns, statements_of_turns) = figures
    assert all_exchanges - of_turns <= 12
    assert all_statements - statements_of_turns <= 176
