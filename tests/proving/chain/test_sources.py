"""Blocks of other chains, by each source of trust: attesters, an OP Stack chain's view of L1, rollups'
own contracts.
"""

import io
import itertools
import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone
from eth_account import Account
from eth_utils.crypto import keccak

from accounts.models import ApiKey
from chains.contract_artifacts import DEPLOYER
from config.configured_chains import forget_chains
from devnet import devchain, foreign_contracts
from devnet.arbitrum_outbox import ArbitrumOutbox, set_send_root
from proving.models import AttesterWatch, FactsRegistry, SignedTransaction, Transaction
from queries.models import Batch, BatchStatus, Block, Query, Step, StepKind
from tests import chain_fixtures, headers, users
from tests.attesting.process import AttesterProcess, signature
from tests.chains import geth_answers
from tests.chains.lying_node import between, error, estimating, hiding
from tests.contracts import block_hash_buffer, deployed, dispute_games, tries
from tests.contracts.l1_block import L1Block
from tests.deployed import deploy
from tests.proving import chain_state, money, paths, transactions
from tests.proving.estimated_batches import estimate, measured
from tests.proving.proxy import Proxy
from tests.proving.sources import HERE, KEYS, THERE, attesting, balance_proven, connect, grow, liar, of_chains
from tests.service import asking, changed_replies, done, fresh, reconfigure, submit, waiting, work, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


# Another chain of 30 blocks, each of which gives money to Charlie. All but the newest two are final.
there = chain_fixtures.chain_fixture(lambda chain: grow(chain, 30), chain_id=THERE)


@pytest.fixture(scope="module")
def attesters(there: devchain.DevChain, tmp_path_factory) -> Iterator[list[AttesterProcess]]:
    """Yield two attester processes for blocks of `there`, and one that is down."""
    with ExitStack() as stack:
        folders = [tmp_path_factory.mktemp("attester") for _ in KEYS[:2]]
        up = [stack.enter_context(attesting(folder, there, key)) for folder, key in zip(folders, KEYS, strict=False)]
        yield [*up, nobody(KEYS[2])]


@pytest.fixture
def attested(chain, db, there, attesters, settings, tmp_path) -> None:
    """Configure the service with both chains as sources, and three attesters for `there`."""
    connect(settings, tmp_path, chain, there.url, attesters=attesters)


@pytest.fixture
def proxy(chain, db, there, attesters, settings, tmp_path) -> Iterator[Proxy]:
    """Configure the service like `attested`, with a proxy before `there`. The proxy can go down."""
    with Proxy(there.url) as proxy:
        connect(settings, tmp_path, chain, proxy.url, attesters=attesters)
        yield proxy


@pytest.fixture
def buffered(chain, db, there, settings, tmp_path) -> None:
    """Configure the service with `there` as the parent chain, whose block hashes are in a buffer."""
    connect(settings, tmp_path, chain, there.url, block_hash_source="arbitrum-buffer")


def nobody(key: str) -> AttesterProcess:
    """Return an attester that is down."""
    return AttesterProcess(address=Account.from_key(key).address, url="http://127.0.0.1:9")


def wait_of(chain: devchain.DevChain) -> str:
    """Return the wait of the only waiting query, after rounds of work that sent nothing."""
    work(2, chain)
    (sentence,) = waiting()
    assert Transaction.objects.exclude(to=DEPLOYER).count() == 0
    return sentence


def lacking(block: int) -> str:
    return f"Nodes of chain {THERE} lack block {block}, although the chain has it."


def assert_proven(chain: devchain.DevChain, there: devchain.DevChain, batch: Batch, *blocks: int) -> None:
    """Work until the batch is DONE. Compare Charlie's proven balances with the chain's."""
    assert work_until_done(batch, chain, rounds=20).status == BatchStatus.DONE
    for block in blocks:
        assert balance_proven(chain, block) == chain_state.balance_at(there, users.CHARLIE, block)


# --- Attesters --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_facts_of_another_chain_in_a_replaced_registry_are_proven_again_with_lost_ones(
    chain, there, attested, settings, key
):
    block, here_block = there.head() - 10, chain.head()
    work_until_done(submit(key, of_chains(here=[here_block])))
    chain.mine(3)
    batch = submit(key, of_chains(there=[block], here=[here_block]))
    assert_proven(chain, there, batch, block)
    lost, old = Transaction.objects.exclude(queries=None).latest("pk"), chain_state.registry(HERE).address
    reconfigure(settings, "block_seconds = 1\nconfirmations", "block_seconds = 1\nhistory_window = 9000\nconfirmations")
    deploy(HERE, HERE, "--replace")
    work()
    chain.rpc("anvil_reorg", chain.head() - lost.block_number + 1, [])
    work()
    assert_proven(chain, there, batch, block)
    assert old != chain_state.registry(HERE).address
    assert balance_proven(chain, here_block, source=HERE) == chain_state.balance_at(chain, users.CHARLIE, here_block)


@pytest.mark.long
def test_a_wrong_hash_below_the_threshold_has_no_effect_and_is_told(
    chain, there, attesters, settings, tmp_path, key, caplog
):
    with liar(KEYS[2], b"\x13" * 32) as lying:
        connect(settings, tmp_path, chain, there.url, attesters=[*attesters[:2], lying])
        block = there.head() - 10
        with caplog.at_level(logging.ERROR):
            assert work_until_done(submit(key, of_chains(there=[block])), chain).status == BatchStatus.DONE
        notice = str(chain_state.registry(THERE).risk)
        # Attesters are also asked without work, and so the notice lasts as long as the contradiction.
        FactsRegistry.objects.update(risk_seen_at=timezone.now() - timedelta(hours=1))
        assert Client().get("/healthz").json()["notices"] == []
        AttesterWatch.objects.update(asked_at=None)
        work()
        assert Client().get("/healthz").json()["notices"] == [notice]
    assert balance_proven(chain, block) == chain_state.balance_at(there, users.CHARLIE, block)
    assert f"{lying.address} signed 0x{'13' * 32}" in notice
    assert notice in caplog.text


@pytest.mark.long
def test_a_wrong_hash_keeps_the_right_one_from_nobody_but_is_never_sent(
    chain, there, attesters, settings, tmp_path, key
):
    with liar(KEYS[1], b"\x13" * 32) as first_liar, liar(KEYS[2], b"\x13" * 32) as second_liar:
        connect(settings, tmp_path, chain, there.url, attesters=[attesters[0], first_liar, second_liar])
        submit(key, of_chains(there=[there.head() - 10]))
        # Two of three attesters sign a hash that the service's nodes don't know. The service must send nothing.
        assert "1 of 2 required attesters has signed" in wait_of(chain)


@pytest.mark.long
def test_a_block_that_is_not_final_is_waited_for_and_a_reorg_before_is_harmless(
    chain, settings, tmp_path, tmp_path_factory, key
):
    with devchain.DevChain(chain_id=THERE, slots_in_an_epoch=4) as there:
        grow(there, 20)
        with attesting(tmp_path_factory.mktemp("attester"), there, KEYS[0]) as attester:
            connect(settings, tmp_path, chain, there.url, attesters=[attester], threshold=1)
            block = there.head()
            batch = submit(key, of_chains(there=[block]))
            assert "is final; the newest final block is" in wait_of(chain)
            before = Block.objects.get(source_chain_id=THERE).hash
            there.rpc("anvil_rollback", 1)
            there.rpc("eth_sendTransaction", {"from": users.ALICE, "to": users.CHARLIE, "value": "0x77"})
            there.mine(12)
            assert work_until_done(batch, chain).status == BatchStatus.DONE
            assert Block.objects.get(source_chain_id=THERE, number=block).hash != before
            assert balance_proven(chain, block) == chain_state.balance_at(there, users.CHARLIE, block)
            step = Step.objects.get(query__batch=batch, kind=StepKind.INITIAL_STATE)
            assert "reorganised" in step.went_back_because


@pytest.mark.story
def test_blocks_are_attested_each_by_itself_and_wait_for_no_other(chain, there, attested, key):
    chain.rpc("evm_setAutomine", False)
    highest = there.head() - 5
    blocks = [highest, highest - 3, highest - 7]
    batch = submit(key, of_chains(there=blocks))
    work()
    assert Transaction.objects.filter(queries__batch=batch).count() == 3
    chain.rpc("evm_setAutomine", True)
    chain.mine()
    assert work_until_done(batch, chain, rounds=20).status == BatchStatus.DONE
    assert Transaction.objects.filter(queries__batch=batch).count() == 3
    for block in blocks:
        assert balance_proven(chain, block) == chain_state.balance_at(there, users.CHARLIE, block)


@pytest.mark.long
def test_a_dead_source_delays_the_batches_that_name_it_and_no_others(chain, there, proxy, key, client):
    proxy.down()
    here_block, there_block = chain.head(), there.head() - 10
    batch = submit(key, of_chains(there=[there_block], here=[here_block]))
    done(submit(key, of_chains(here=[here_block])), chain)
    assert fresh(batch).status == BatchStatus.RECEIVED
    answer = client.get("/batch-query-status", {"batchQueryId": batch.pk}, headers=users.header(key)).json()
    assert "No node of The other chain (31338) can be used" in answer["info"][0]
    proxy.up()
    forget_chains()
    assert work_until_done(batch, chain, rounds=20).status == BatchStatus.DONE
    assert balance_proven(chain, there_block) == chain_state.balance_at(there, users.CHARLIE, there_block)


def test_a_dead_source_is_named_beside_a_time_to_come(chain, there, proxy, settings, key):
    settings.MAX_BLOCKS_AHEAD = 1000
    now = {each: int(each.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16) for each in (chain, there)}
    of_alice = {"accounts": {users.ALICE: {"props": ["BALANCE"]}}}
    data = {str(each.chain_id): {f"timestamp:{time + 300}": of_alice} for each, time in now.items()}
    batch = submit(key, {"destinationChainId": "31337", "fee": "0", "data": data})
    work()
    assert fresh(batch).status == BatchStatus.ACCEPTED
    proxy.down()
    forget_chains()
    work()
    assert "The other chain" in str(fresh(batch).wait)
    proxy.up()


def test_an_estimate_of_nothing_is_unavailable(chain, there, proxy, key, client):
    FactsRegistry.objects.filter(source_chain_id=31337).delete()
    proxy.down()
    # There is no registry for the destination's own facts, and the other source's node is down.
    body = of_chains(here=[3], there=[20])
    body["data"] = dict(sorted(body["data"].items()))
    answer = client.post("/estimate-batch-query", body, content_type="application/json", headers=users.header(key))
    assert answer.status_code == 503
    proxy.up()


@pytest.mark.long
def test_a_source_that_goes_down_later_holds_up_no_other(chain, there, proxy, key):
    chain.rpc("evm_setAutomine", False)
    batch = submit(key, of_chains(there=[there.head() - 10], here=[chain.head()]))
    work()
    proxy.down()
    chain.rpc("evm_setAutomine", True)
    work(8, chain)
    assert Query.objects.filter(batch=batch, source_chain_id=HERE, step=None).exists()
    proxy.up()
    forget_chains()
    assert work_until_done(batch, chain, rounds=20).status == BatchStatus.DONE


@pytest.mark.long
def test_the_fee_must_cover_all_sources_of_a_batch_together(chain, there, attested, settings, key):
    reconfigure(settings, "test_network = true", "test_network = false", count=1)
    settings.ALLOWED_ADDRESSES = ["*"]
    body = of_chains(there=[there.head() - 10], here=[chain.head()])
    enough = money.accepted(key, body | {"fee": str(10**18)})
    too_little = submit(key, body | {"fee": str((enough.estimated_wei or 0) * 3 // 4)})
    with money.stopped():
        work_until_done(too_little)
    assert (too_little.status, too_little.rejection_code) == (BatchStatus.REJECTED, "fee_too_low")


# --- OP Stack ---------------------------------------------------------------------------------------------------------


@pytest.mark.story
def test_an_op_stack_chain_proves_blocks_of_its_l1(chain, there, settings, tmp_path, key):
    l1 = L1Block(chain)
    block = there.head() - 10
    connect(settings, tmp_path, chain, there.url)
    batch = submit(key, of_chains(there=[block]))
    origin = there.head() - 12
    l1.tell_of(there, origin)
    assert (
        wait_of(chain) == f"Chain {HERE} knows chain {THERE} only up to block {origin} yet; waiting for block {block}."
    )
    origin = there.head() - 5
    l1.tell_of(there, origin)
    assert_proven(chain, there, batch, block)


@pytest.mark.long
def test_a_hash_recorded_for_a_registry_that_was_replaced_takes_nothing_of_a_budget(
    chain, there, settings, tmp_path, key
):
    L1Block(chain).tell_of(there)
    connect(settings, tmp_path, chain, there.url)
    costly = "test_network = false\nminimum_signer_balance = '0'"
    reconfigure(settings, "test_network = true", costly, count=1)
    settings.ALLOWED_ADDRESSES = ["*"]
    body = of_chains(there=[there.head()]) | {"fee": "auto"}
    old = FactsRegistry.objects.get(source_chain_id=THERE)
    assert work_until_done(submit(key, body), chain).status == BatchStatus.DONE
    assert Transaction.objects.filter(to=old.block_hash_source).exists()
    chain.rpc("anvil_setCode", old.address, "0x00")
    forget_chains()
    call_command("deploy_registry", str(HERE), str(THERE), "--replace", stdout=io.StringIO())
    money.limit(settings, daily_limit_per_user=int(estimate(Client(), key, body)["wei"]["bound"]))
    batch = work_until_done(submit(key, body), chain)
    assert batch.status == BatchStatus.DONE, batch.rejection_reason


# --- Arbitrum ---------------------------------------------------------------------------------------------------------


class Rollup(NamedTuple):
    outbox: ArbitrumOutbox
    chain: devchain.DevChain
    ends: dict[int, bytes]
    """The send roots of the blocks that the rollup may confirm, by number."""

    def confirm(self, number: int) -> int:
        return self.outbox.confirm(self.ends[number], self.hash_of(number))

    def hash_of(self, number: int) -> bytes:
        return bytes.fromhex(self.chain.rpc("eth_getBlockByNumber", hex(number), False)["hash"][2:])


@pytest.fixture(scope="module")
def rollup_chain() -> Iterator[tuple[devchain.DevChain, dict[int, bytes]]]:
    """Yield a chain of 64 blocks. Every tenth block ends an assertion. The last two assertions have the
    same send root.
    """
    with devchain.DevChain(chain_id=THERE) as chain:
        ends: dict[int, bytes] = {}
        for _ in range(6):
            grow(chain, 10)
            # A new message would change the send root. There is none between the last two assertions.
            ends[chain.head()] = keccak(bytes([min(len(ends), 4)]))
            set_send_root(chain, ends[chain.head()])
        grow(chain, 4)
        yield chain, ends


@pytest.fixture
def rollup(chain, db, rollup_chain, settings, tmp_path) -> Rollup:
    """Configure the service with the rollup's Outbox on `HERE`. No block is confirmed yet."""
    outbox = ArbitrumOutbox(chain)
    connect(settings, tmp_path, chain, rollup_chain[0].url, outbox=outbox.address)
    return Rollup(outbox, *rollup_chain)


def time_of(chain: devchain.DevChain, block: int) -> int:
    return int(chain.rpc("eth_getBlockByNumber", hex(block), False)["timestamp"], 16)


def source_of(chain: devchain.DevChain, name: str, source: int = THERE) -> deployed.Deployed:
    """Return a registry's block hash source, which is the contract `name`."""
    return deployed.Deployed(chain, f"{name}BlockHashSource", address=chain_state.registry(source).block_hash_source)


def newest_recorded(chain: devchain.DevChain, name: str = "Arbitrum") -> int:
    newest: int = source_of(chain, name).call("newest")
    return newest


@pytest.mark.long
def test_a_block_before_one_that_is_confirmed_is_a_hop_away(chain, rollup, key):
    for number in (30, 40, 50):
        rollup.confirm(number)
    assert_proven(chain, rollup.chain, submit(key, of_chains(there=[36])), 36)
    # The newest confirmed block within a hop's reach is recorded, in the same transaction as the hop.
    (tx,) = paths.extending()
    assert tx.succeeded
    assert newest_recorded(chain) == 50
    # All blocks in its window are one hop away, so none needs another record.
    assert_proven(chain, rollup.chain, submit(key, of_chains(there=[33])), 33)
    assert newest_recorded(chain) == 50


@pytest.mark.long
def test_a_block_that_is_not_confirmed_is_waited_for(chain, rollup, key):
    submit(key, of_chains(there=[42]))
    assert wait_of(chain).startswith(f"Nodes of chain {HERE} report no block of chain {THERE} that the Outbox ")
    confirmed_in = rollup.confirm(40)
    batch = submit(key, of_chains(there=[43]))
    work(3, chain)
    (sentence,) = (wait for wait in waiting() if wait.startswith("Block 43 "))
    delay = time_of(chain, confirmed_in) - time_of(rollup.chain, 40)
    expected = datetime.fromtimestamp(time_of(rollup.chain, 43) + delay, UTC)
    assert sentence == (
        f"Block 43 of chain {THERE} is not confirmed on chain {HERE} yet; expect it soon after "
        f"{expected:%Y-%m-%d %H:%M} UTC. The newest confirmed block is 40, which was confirmed "
        f"{delay / 86_400:.1f} days after it was made."
    )
    chain.rpc("evm_increaseTime", 100_000)
    work()
    chain.mine()
    work()
    assert any(
        "Nothing was confirmed for 1.2 days: has the rollup stopped, or another Outbox" in each for each in waiting()
    )
    assert Transaction.objects.exclude(to=DEPLOYER).count() == 0
    rollup.confirm(50)
    assert_proven(chain, rollup.chain, batch, 43)


@pytest.mark.long
def test_a_block_that_is_confirmed_only_after_the_deadline_is_rejected_at_once(chain, rollup, key, settings, client):
    day = 86_400
    # The clock of the destination is so far ahead that the other delays don't matter.
    chain.rpc("evm_increaseTime", 4 * day)
    delay = time_of(chain, rollup.confirm(40)) - time_of(rollup.chain, 40)
    late, body = (
        f"{datetime.fromtimestamp(time_of(rollup.chain, 43) + delay, UTC):%Y-%m-%d %H:%M} UTC",
        of_chains(there=[43]),
    )
    batch = submit(key, body)
    # A confirmed block needs no waiting, however long its confirmation took.
    older = submit(key, of_chains(there=[36]))
    work_until_done(batch)
    assert (batch.status, batch.rejection_code, batch.rejection_retryable) == ("REJECTED", "block_too_new", True)
    assert f"expect it soon after {late}. The newest confirmed block is 40" in batch.rejection_reason
    assert batch.rejection_reason.endswith(f"The batch's deadline is earlier: {batch.deadline_at:%Y-%m-%d %H:%M} UTC.")
    coming = of_chains(there=[rollup.chain.head() + 1])
    for question in (body, coming):
        assert [rejection["code"] for rejection in estimate(client, key, question)["rejections"]] == ["block_too_new"]
    assert work_until_done(older, chain).status == BatchStatus.DONE
    settings.BATCH_DEADLINE_SECONDS = 5 * day
    estimated = estimate(client, key, body)
    assert (estimated["rejections"], len(estimated["waits"])) == ([], 1)
    waiting_one = submit(key, body)
    work()
    assert fresh(waiting_one).status == BatchStatus.IN_PROGRESS


@pytest.mark.long
def test_a_block_whose_place_another_has_taken_is_not_recorded_but_hopped_to(chain, rollup, key):
    rollup.confirm(50)
    later = submit(key, of_chains(there=[60]))
    # The Outbox stores block 50 for the send root of block 60, because the roots are equal.
    assert wait_of(chain).startswith(f"Block 60 of chain {THERE} is not confirmed on chain {HERE} yet; ")
    rollup.confirm(60)
    # The first confirmation in this window was block 50's, whose entry block 60 has replaced.
    assert work_until_done(submit(key, of_chains(there=[35])), chain).status == BatchStatus.DONE
    assert newest_recorded(chain) == 60
    assert_proven(chain, rollup.chain, submit(key, of_chains(there=[50])), 50)
    assert work_until_done(later, chain).status == BatchStatus.DONE
    assert newest_recorded(chain) == 60


def test_check_chains_tells_what_is_confirmed(rollup):
    output = io.StringIO()
    with pytest.raises(CommandError, match=f"nothing_confirmed: Nodes of chain {HERE} report no block"):
        call_command("check_chains", stdout=output)
    rollup.confirm(30)
    with pytest.raises(CommandError, match="no_worker"):
        call_command("check_chains", stdout=output)
    assert f"The newest confirmed block of The other chain ({THERE}) is 30." in output.getvalue()
    assert f"Code that decides about The other chain ({THERE}): Outbox: {rollup.outbox.address}." in output.getvalue()


def know(settings: Any, code: Iterable[str]) -> None:
    """Add code addresses to the settings, which name the code that may decide about the other chain."""
    text = re.sub("known_implementations = .*\n", "", settings.CHAINS_FILE.read_text())
    known = f"known_implementations = {json.dumps([each.lower() for each in code])}"
    settings.CHAINS_FILE.write_text(re.sub(r"\n(?=(outbox|anchor_state_registry) =)", f"\n{known}\n", text))
    forget_chains()


@pytest.mark.long
def test_an_outbox_that_was_upgraded_is_not_relied_on_until_the_operator_has_named_its_code(
    chain, rollup, settings, key
):
    rollup.confirm(40)
    know(settings, [rollup.outbox.address])
    implementation = "0x" + "12" * 20
    slot = hex(int.from_bytes(keccak(text="eip1967.proxy.implementation")) - 1)
    chain.rpc("anvil_setStorageAt", rollup.outbox.address, slot, "0x" + implementation[2:].rjust(64, "0"))
    batch = submit(key, of_chains(there=[40]))
    sentence = wait_of(chain)
    assert f"doesn't name this code in known_implementations: Outbox: {implementation}. The operator" in sentence
    assert str(chain_state.registry(THERE).risk) == sentence
    know(settings, [implementation])
    assert work_until_done(batch, chain, rounds=20).status == BatchStatus.DONE
    assert chain_state.registry(THERE).risk is None


def record(chain: devchain.DevChain, name: str, *arguments: object, source: int = THERE) -> None:
    """Record a block for the registry of the other chain, as any stranger may."""
    source_of(chain, name, source).send("record", *arguments)


def encoded(chain: devchain.DevChain, number: int) -> bytes:
    return headers.told(chain.rpc("eth_getBlockByNumber", hex(number), False))


@pytest.mark.long
def test_a_path_begins_at_a_recorded_block_without_the_outbox_unless_a_confirmed_one_is_nearer(chain, rollup, key):
    for number in (10, 60):
        rollup.confirm(number)
    record(chain, "Arbitrum", encoded(rollup.chain, 60))
    assert work_until_done(submit(key, of_chains(there=[5])), chain).status == BatchStatus.DONE
    assert source_of(chain, "Arbitrum").call("blockHash", 10) == rollup.hash_of(10)
    chain.rpc("anvil_setCode", rollup.outbox.address, "0x")
    assert_proven(chain, rollup.chain, submit(key, of_chains(there=[55])), 55)


# --- OP Stack, by dispute games ---------------------------------------------------------------------------------------


@pytest.fixture
def games(chain, db, there, settings, tmp_path) -> dispute_games.DisputeGames:
    """Configure the service with dispute games on `HERE` about `there`. There is no game yet. Blocks are a second
    apart.
    """
    chain.rpc("anvil_setBlockTimestampInterval", 1)
    games = dispute_games.DisputeGames(chain, THERE)
    connect(settings, tmp_path, chain, there.url, anchor_state_registry=games.anchor_state_registry)
    return games


def settle(games: dispute_games.DisputeGames, there: devchain.DevChain, number: int, claim: bytes = b"") -> str:
    game = games.settle(claim or dispute_games.output_of(there, number), number)
    games.chain.mine()
    assert games.is_valid(game)
    return game


@pytest.mark.story
def test_the_nearest_of_the_valid_games_is_used(chain, games, there, key):
    games.settle(dispute_games.output_of(there, 26), 26)
    nearer = settle(games, there, 23)
    games.propose(dispute_games.output_of(there, 21), 21)
    settle(games, there, 28)
    games.guardian("blacklistDisputeGame(address)", settle(games, there, 22))
    assert_proven(chain, there, submit(key, of_chains(there=[20])), 20)
    # The block is recorded in the same transaction as the hop.
    (tx,) = paths.extending()
    assert tx.succeeded
    assert newest_recorded(chain, "OpStackGames") == 23
    # All blocks in its window are one hop away, so none needs a game.
    games.guardian("blacklistDisputeGame(address)", nearer)
    games.guardian("updateRetirementTimestamp()")
    assert_proven(chain, there, submit(key, of_chains(there=[12])), 12)
    assert newest_recorded(chain, "OpStackGames") == 23


@pytest.mark.long
def test_a_block_waits_until_a_game_about_it_is_valid(chain, games, there, key):
    settle(games, there, 24)
    games.guardian("updateRetirementTimestamp()")
    batch = submit(key, of_chains(there=[24]))
    none = f"No game on chain {HERE} is about block 24 of chain {THERE} or a later one yet."
    assert wait_of(chain) == none
    settle(games, there, 20)
    assert wait_of(chain) == none
    game = games.propose(dispute_games.output_of(there, 25), 25)
    sentence = wait_of(chain)
    assert sentence.startswith(
        f"Block 24 of chain {THERE} waits for the game {game} on chain {HERE}. The game is about block 25 and began "
    )
    assert sentence.endswith(" days ago: its claim is not valid yet.")
    before = chain.rpc("evm_snapshot")
    games.guardian("blacklistDisputeGame(address)", game)
    assert wait_of(chain) == (
        f"The game {game} on chain {HERE}, about block 25 of chain {THERE}, is blacklisted there. Block 24 waits for "
        "another game."
    )
    assert chain.rpc("evm_revert", before)
    games.resolve(game)
    games.superchain("pause")
    who = f"The AnchorStateRegistry {games.anchor_state_registry} on chain {HERE}"
    assert wait_of(chain) == f"{who} is paused: no claim about chain {THERE} is valid meanwhile."
    games.superchain("unpause")
    assert_proven(chain, there, batch, 24)


@pytest.mark.long
def test_a_valid_claim_that_the_nodes_contradict_is_not_used(chain, games, there, key):
    """The claimed output is no block's, or is another block's, or the claimed number is too large."""
    game = settle(games, there, 24, b"\x66" * 32)
    settle(games, there, 25, dispute_games.output_of(there, 24))
    settle(games, there, 10**9, dispute_games.output_of(there, 24))
    settle(games, there, 2**256 - 1, dispute_games.output_of(there, 24))
    batch = submit(key, of_chains(there=[24]))
    assert wait_of(chain) == (
        f"The game {game} on chain {HERE} contradicts the nodes of chain {THERE} about the output of block 24. "
        "The operator must find out who is right."
    )
    settle(games, there, 27)
    assert_proven(chain, there, batch, 24)
    assert newest_recorded(chain, "OpStackGames") == 27


def code_that_decides() -> dict[str, str]:
    """Return the addresses of code that `check_chains` prints, by role."""
    output = io.StringIO()
    with pytest.raises(CommandError):
        call_command("check_chains", stdout=output)
    (code,) = re.findall(rf"Code that decides about The other chain \({THERE}\): (.*)\.", output.getvalue())
    return dict(each.split(": ") for each in code.split(", "))


@pytest.mark.long
def test_check_chains_tells_what_is_settled_and_what_code_decides(games, there):
    output = io.StringIO()
    who = f"The AnchorStateRegistry {games.anchor_state_registry} on chain {HERE}"
    with pytest.raises(CommandError, match=f"nothing_confirmed: {who} has no anchor game"):
        call_command("check_chains", stdout=output)
    games.guardian("setAnchorState(address)", settle(games, there, 24))
    with pytest.raises(CommandError, match="no_worker"):
        call_command("check_chains", stdout=output)
    assert f"The newest confirmed block of The other chain ({THERE}) is 24." in output.getvalue()
    code = code_that_decides()
    assert len({*code.values(), games.anchor_state_registry, games.factory}) == 5
    anchor = foreign_contracts.ask(games.chain, games.anchor_state_registry, "anchorGame()")[12:]
    before = games.chain.rpc("evm_snapshot")
    # The code returns empty bytes for any call, so the game is about no block.
    games.chain.rpc("anvil_setCode", "0x" + anchor.hex(), "0x60205f5260405ff3")
    with pytest.raises(CommandError, match=f"nothing_confirmed: {who} has no anchor game"):
        call_command("check_chains", stdout=output)
    assert games.chain.rpc("evm_revert", before)
    games.guardian("blacklistDisputeGame(address)", anchor)
    with pytest.raises(CommandError, match=f"nothing_confirmed: {who} has no anchor game"):
        call_command("check_chains", stdout=output)


@pytest.mark.long
def test_code_that_the_operator_has_not_named_is_not_relied_on(chain, games, there, settings, key):
    settle(games, there, 24)
    before = code_that_decides()
    know(settings, before.values())
    games.implement()
    batch = submit(key, of_chains(there=[24]))
    sentence = wait_of(chain)
    after = code_that_decides()["games of type 1"]
    assert f"doesn't name this code in known_implementations: games of type 1: {after}. The operator" in sentence
    assert str(chain_state.registry(THERE).risk) == sentence
    know(settings, [*before.values(), after])
    assert work_until_done(batch, chain, rounds=20).status == BatchStatus.DONE
    assert chain_state.registry(THERE).risk is None


@pytest.mark.long
def test_a_game_that_ran_unknown_code_is_not_relied_on_after_that_code_is_gone(chain, games, there, settings, key):
    def new_games() -> str:
        return code_that_decides()["games of type 1"]

    before, code = code_that_decides(), new_games()
    games.implement()
    between = new_games()
    game = settle(games, there, 24)
    foreign_contracts.send(chain, games.factory, "setImplementation(uint32,address)", 1, code)
    know(settings, before.values())
    assert code_that_decides() == before
    batch = submit(key, of_chains(there=[24]))
    assert f"doesn't name this code in known_implementations: the game {game}: {between}. The operator" in wait_of(
        chain
    )
    settle(games, there, 25)
    games.guardian("blacklistDisputeGame(address)", game)
    assert work_until_done(batch, chain, rounds=20).status == BatchStatus.DONE


# --- An Arbitrum chain's view of its parent ---------------------------------------------------------------------------


def pushed(there: devchain.DevChain, first: int, last: int) -> tuple[int, list[bytes]]:
    blocks = [there.rpc("eth_getBlockByNumber", hex(number), False) for number in range(first, last + 1)]
    return first, [bytes.fromhex(block["hash"][2:]) for block in blocks]


@pytest.mark.long
def test_a_block_of_the_parent_chain_is_proven_once_a_later_one_was_pushed(chain, there, buffered, key):
    """The buffer keeps a false hash. A later block of the real chain leads to the right block of that number."""
    batch = submit(key, of_chains(there=[20]))
    none = f"Chain {HERE} has no buffer of block hashes at {block_hash_buffer.ADDRESS}, or the buffer is still empty."
    assert wait_of(chain) == none
    buffer = block_hash_buffer.BlockHashBuffer(chain)
    assert wait_of(chain) == none
    buffer.push(*pushed(there, 10, 15))
    assert wait_of(chain) == (
        f"The newest block of chain {THERE} that was pushed to chain {HERE} is 15; waiting until somebody uses "
        f"0x5a5C4f3D0F0Efaeed2aEc9B59B67eC62a4666D88 on chain {THERE} to push block 20 or a later one."
    )
    for lost in (20, 22):
        buffer.push(lost, [b"\x66" * 32])
    assert wait_of(chain) == (
        f"The buffer on chain {HERE} has no hash or a different hash for block 22 of chain {THERE}: waiting for "
        "the next push."
    )
    buffer.push(*pushed(there, 23, 24))
    assert_proven(chain, there, batch, 20)
    # A block whose hash was pushed needs no path.
    assert_proven(chain, there, submit(key, of_chains(there=[12])), 12)
    assert len(paths.extending()) == 1


@pytest.mark.long
def test_a_pushed_block_that_nodes_lack_is_no_fault_of_the_buffer(chain, there, buffered, settings, key):
    block_hash_buffer.BlockHashBuffer(chain).push(*pushed(there, 22, 24))
    batch = submit(key, of_chains(there=[20]))
    for serves_states in (False, True):
        with hiding(there.url, 24, serves_states=serves_states) as url:
            reconfigure(settings, there.url, url)
            assert wait_of(chain) == lacking(24)
            reconfigure(settings, url, there.url)
    assert_proven(chain, there, batch, 20)


# --- Contradictions of nodes or chains.toml ---------------------------------------------------------------------------

OTHER = "0x" + "12" * 20


def no_block(rollup: Rollup, *_: Any) -> None:
    rollup.outbox.confirm(b"\x13" * 32, b"\x66" * 32)


def another_send_root(rollup: Rollup, *_: Any) -> None:
    """The event is false. Only the Outbox's hash for the header's own send root counts."""
    rollup.outbox.confirm(b"\x13" * 32, rollup.hash_of(40))


def another_recorded(rollup: Rollup, chain: devchain.DevChain, *_: Any) -> None:
    other = tries.header(50, b"\x66" * 32, extra_data=b"\x13" * 32)
    rollup.outbox.confirm(b"\x13" * 32, keccak(other))
    record(chain, "Arbitrum", other)
    rollup.confirm(50)


def pushed_early(_: None, chain: devchain.DevChain, *__: Any) -> None:
    """Nodes refuse states of blocks that they don't have yet. This doesn't mean that the block is old."""
    block_hash_buffer.BlockHashBuffer(chain).push(99, [b"\x07" * 32])


def another_address(_: Any, __: devchain.DevChain, settings: Any) -> None:
    text = settings.CHAINS_FILE.read_text()
    settings.CHAINS_FILE.write_text(re.sub(r"(outbox|anchor_state_registry) = .*", rf'\1 = "{OTHER}"', text))
    forget_chains()


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "tell", "block", "why"),
    [
        ("rollup", no_block, 30, f"doesn't have block 0x{'66' * 32}, which the rollup has confirmed"),
        ("rollup", another_send_root, 40, f"has no hash or a different hash for block 40 of chain {THERE}"),
        ("rollup", another_recorded, 45, f"source knows another block 50 of chain {THERE} than its nodes."),
        ("rollup", another_address, 24, f"and chains.toml names {OTHER}."),
        ("games", another_address, 24, f"and chains.toml names {OTHER}. The operator must"),
        ("buffered", pushed_early, 20, f"chain {THERE} don't have block 99 yet. The path to block 20 starts there."),
    ],
)
def test_nothing_is_sent_while_a_source_tells_otherwise(request, chain, settings, key, source, tell, block, why):
    tell(request.getfixturevalue(source), chain, settings)
    submit(key, of_chains(there=[block]))
    assert why in wait_of(chain)


@pytest.mark.long
def test_an_address_that_is_no_anchor_state_registry_is_told(chain, db, there, settings, tmp_path, key):
    connect(settings, tmp_path, chain, there.url, anchor_state_registry=OTHER)
    submit(key, of_chains(there=[24]))
    assert "isn't the OP Stack's contract." in wait_of(chain)


# --- Arbitrum, from a third chain -------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(chain, db, rollup_chain, settings, tmp_path) -> Iterator[Rollup]:
    """Configure a rollup with its Outbox on a parent chain, which `HERE` knows by its L1Block."""
    with devchain.DevChain(chain_id=31339) as parent:
        outbox = ArbitrumOutbox(parent)
        connect(settings, tmp_path, chain, rollup_chain[0].url, outbox=outbox.address, parent=parent)
        yield Rollup(outbox, *rollup_chain)


@pytest.mark.long
def test_a_block_that_is_confirmed_on_the_parent_is_proven_on_a_third_chain(chain, elsewhere, key):
    """No attester is needed. The third chain trusts the parent's state, in which the Outbox confirms the rollup's
    block.
    """
    parent, l1_block = elsewhere.outbox.chain, L1Block(chain)
    elsewhere.confirm(40)
    parent.mine(3)
    batch = submit(key, of_chains(there=[40, 36]))
    l1_block.tell_of(parent, 1)
    work(3, chain)
    confirmed_at = parent.head() - 3
    assert set(waiting()) == {
        f"Chain {HERE} knows chain 31339 only up to block 1 yet; waiting for block {confirmed_at}."
    }
    assert Transaction.objects.exclude(to=DEPLOYER).count() == 0
    newest = l1_block.tell_of(parent)
    assert work_until_done(batch, chain, rounds=20).status == BatchStatus.DONE
    for block in (36, 40):
        assert balance_proven(chain, block) == chain_state.balance_at(elsewhere.chain, users.CHARLIE, block)
    # The transaction after the record proves the Outbox's slot in the parent's state.
    slot = keccak(elsewhere.ends[40] + (3).to_bytes(32))
    of_parent = deployed.Deployed(chain, "FactsRegistry", address=chain_state.registry(parent.chain_id).address)
    assert of_parent.call("accountStorageSlotValues", elsewhere.outbox.address, newest, slot) == elsewhere.hash_of(40)


@pytest.mark.long
def test_both_parts_are_proven_once_wherever_the_worker_is_killed(chain, elsewhere, key, killing):
    """A kill may come between the record of the parent's block and the transaction with both path segments."""
    parent = elsewhere.outbox.chain
    elsewhere.confirm(40)
    parent.mine(3)
    L1Block(chain).tell_of(parent)
    nonce = chain_state.signer_nonce(chain)
    batch = submit(key, of_chains(there=[36]))
    for lives, exchange in enumerate(killing.exchanges()):
        # The kill is before the node acts in every other round, and after it in the rest.
        with killing.at(exchange, after=lives % 2 == 0):
            work_until_done(batch, chain)
    work()
    assert lives > 4
    assert chain_state.signer_nonce(chain) == chain_state.signer_nonce(chain, "pending") == nonce + 2
    assert [tx.succeeded for tx in paths.extending()] == [True, True]
    assert balance_proven(chain, 36) == chain_state.balance_at(elsewhere.chain, users.CHARLIE, 36)


@pytest.mark.long
def test_a_rollup_above_a_rollup_is_proven_over_both_outboxes(chain, db, rollup_chain, settings, tmp_path, key, client):
    """The call that begins the parent's path is part of the same transaction, as for an Orbit chain on Arbitrum."""
    with devchain.DevChain(chain_id=31339) as parent, devchain.DevChain(chain_id=31340) as below:
        upper, lower = Rollup(ArbitrumOutbox(parent), *rollup_chain), ArbitrumOutbox(below)
        there = upper.chain
        connect(
            settings,
            tmp_path,
            chain,
            there.url,
            outbox=upper.outbox.address,
            parent=parent,
            below=(below, lower.address),
        )
        upper.confirm(40)
        parent.mine()
        send_root = keccak(text="messages of the parent")
        lower.confirm(send_root, set_send_root(parent, send_root))
        below.mine(3)
        L1Block(chain).tell_of(below)
        result = measured(client, key, "two Outboxes", of_chains(there=[40]), chain=chain)
        assert result.spent <= result.expected <= 2 * result.spent, str(result)
        assert balance_proven(chain, 40) == chain_state.balance_at(there, users.CHARLIE, 40)


@pytest.mark.long
@pytest.mark.parametrize("up_to", [0, 30])
def test_a_confirmation_that_no_event_tells_of_is_proven_at_a_newer_block_of_the_parent(
    chain, elsewhere, key, settings, up_to
):
    parent = elsewhere.outbox.chain
    known = elsewhere.confirm(30) if up_to else -1
    elsewhere.confirm(40)
    parent.mine(3)

    def forget(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getLogs":
            reply["result"] = [log for log in reply["result"] if int(log["blockNumber"], 16) <= known]
        return [reply]

    with changed_replies(settings, parent, forget):
        batch = submit(key, of_chains(there=[40]))
        assert wait_of(chain) == f"Chain {HERE} has no L1Block predeploy: is it an OP Stack chain?"
        l1_block = L1Block(chain)
        if up_to:
            # The registry already trusts a block of the parent that has only the first confirmation.
            l1_block.tell_of(parent, known)
            record(chain, "OpStack", source=parent.chain_id)
        l1_block.tell_of(parent)
        assert work_until_done(batch, chain, rounds=20).status == BatchStatus.DONE
    assert balance_proven(chain, 40) == chain_state.balance_at(elsewhere.chain, users.CHARLIE, 40)


@pytest.mark.long
def test_a_newer_block_of_the_parent_is_proven_without_the_state_of_the_confirmation(chain, elsewhere, key, settings):
    parent, l1_block = elsewhere.outbox.chain, L1Block(chain)
    confirmed_at = elsewhere.confirm(40)
    l1_block.tell_of(parent, confirmed_at)
    record(chain, "OpStack", source=parent.chain_id)
    parent.mine(3)
    newest = l1_block.tell_of(parent)
    refused: geth_answers.Refusal = -32005, "too many requests"
    block = parent.rpc("eth_getBlockByNumber", hex(confirmed_at), False)

    def pruned(question: Any, reply: Any) -> list[Any]:
        parameters = json.dumps(question["params"][-1:])
        named = any(f'"{name}"' in parameters for name in (block["number"], block["hash"]))
        is_gone = question["method"] == "eth_getProof" and named
        return [error(question, *refused) if is_gone else reply]

    with changed_replies(settings, parent, pruned):
        batch = submit(key, of_chains(there=[40]))
        assert wait_of(chain).endswith("limits our requests (-32005).")
        refused = geth_answers.REFUSALS["an old state"]
        forget_chains()
        assert work_until_done(batch, chain, rounds=20).status == BatchStatus.DONE
    slot = keccak(elsewhere.ends[40] + (3).to_bytes(32))
    of_registry = deployed.Deployed(chain, "FactsRegistry", address=chain_state.registry(parent.chain_id).address)
    told_slot = of_registry.call("accountStorageSlotValues", elsewhere.outbox.address, newest, slot)
    assert told_slot == elsewhere.hash_of(40)


@pytest.mark.long
def test_logs_of_the_parents_nodes_are_compared_with_its_state_before_anything_is_sent(chain, elsewhere, key, settings):
    parent = elsewhere.outbox.chain
    parent.mine(3)
    early = L1Block(chain).tell_of(parent)
    record(chain, "OpStack", source=parent.chain_id)
    elsewhere.confirm(40)

    def backdated(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getLogs":
            reply["result"] = [log | {"blockNumber": hex(early)} for log in reply["result"]]
        return [reply]

    def cut_short(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getProof":
            for slot in reply["result"]["storageProof"]:
                slot["proof"] = slot["proof"][:-1]
        return [reply]

    batch = submit(key, of_chains(there=[40]))
    with changed_replies(settings, parent, backdated) as url:
        assert wait_of(chain) == (
            f"The Outbox had a different hash at block {early} of chain {parent.chain_id}: waiting for the next block "
            "that the rollup confirms."
        )
        reconfigure(settings, url, parent.url)
    L1Block(chain).tell_of(parent)
    record(chain, "OpStack", source=parent.chain_id)
    with changed_replies(settings, parent, cut_short) as url:
        sentence = wait_of(chain)
        assert f"answered eth_getProof with a proof of {elsewhere.outbox.address} at block " in sentence
        assert " that does not verify: " in sentence
        reconfigure(settings, f'"{url}"', f'"{url}", "{parent.url}"')
        assert work_until_done(batch, chain).status == BatchStatus.DONE


@pytest.mark.long
def test_a_registry_is_not_refused_where_one_of_two_nodes_says_that_its_source_reads_another_outbox(
    chain, elsewhere, key, settings
):
    source = chain_state.registry(THERE).block_hash_source

    def change(question: Any, reply: Any) -> list[Any]:
        is_asked = question["method"] == "eth_call" and question["params"][0].get("to") == source
        return [reply | {"result": f"0x{1:064x}"} if is_asked else reply]

    with between(chain.url, change) as url:
        reconfigure(settings, f'"{chain.url}"', f'"{url}", "{chain.url}"')
        submit(key, of_chains(there=[40]))
        sentence = wait_of(chain)
    hosts = (node.removeprefix("http://").rstrip("/") for node in (url, chain.url))
    assert f"differ about the contract at {source}: {', '.join(hosts)}" in sentence
    assert chain_state.registry(THERE).refused == ""


@pytest.mark.long
def test_if_the_registry_of_the_parent_is_replaced_that_of_the_rollup_is_not_used_until_it_is_too(
    chain, elsewhere, key
):
    parent = elsewhere.outbox.chain
    elsewhere.confirm(40)
    L1Block(chain).tell_of(parent)
    old, relying = chain_state.registry(parent.chain_id).address, chain_state.registry(THERE).address
    call_command("deploy_reader", str(HERE), stdout=io.StringIO())
    assert same_everywhere() == dict.fromkeys((HERE, parent.chain_id, THERE), (True, True, True))
    chain.rpc("anvil_setCode", old, "0x00")
    batch = submit(key, of_chains(there=[40]))
    assert f"its block hash source relies on another. The facts registry at {old} on" in wait_of(chain)
    deploy(HERE, parent.chain_id, "--replace")
    command = f"The operator must run: manage.py deploy_registry {HERE} {THERE} --replace"
    sentence = wait_of(chain)
    assert f"reads the facts registry at {old} for chain {parent.chain_id}, which is not the one in use." in sentence
    assert command not in sentence
    deploy(HERE, THERE, "--replace")
    assert chain_state.registry(THERE).address != relying
    assert_proven(chain, elsewhere.chain, batch, 40)
    # The reader of before still reads the refused registry. The rollup's registry follows from the parent's, which has
    # another address than others' now.
    deploy(HERE, HERE)  # compares the code
    assert chain_state.registry(HERE).reader == ""
    assert same_everywhere() == {
        HERE: (True, False, False),
        parent.chain_id: (False, False, False),
        THERE: (False, False, False),
    }
    call_command("deploy_reader", str(HERE), stdout=io.StringIO())
    assert {told[1:] for told in same_everywhere().values()} == {(True, False)}
    FactsRegistry.objects.exclude(source_chain_id=HERE).delete()
    with pytest.raises(CommandError, match=r"manage\.py deploy_registry 31337 31339"):
        deploy(HERE, THERE)


def same_everywhere() -> dict[int, tuple[bool, bool, bool]]:
    """Return, by source chain, whether `/chains.json` says so of the registry, names a reader, and says so of that."""
    return {
        int(told["sourceChainId"]): (
            told["sameAddressEverywhere"],
            told["factsReader"] is not None,
            told["readerSameAddressEverywhere"],
        )
        for told in Client().get("/chains.json").json()["connections"]
    }


# --- Changing attesters -----------------------------------------------------------------------------------------------


def change(contract: str, addresses: Sequence[str], *, signed_by: Sequence[str], nonce: int = 0, threshold: int = 1):
    ordered = sorted(addresses, key=str.lower)
    signed = (signature(key, "AttesterSet", HERE, contract, ordered, threshold, nonce) for key in signed_by)
    signatures = [f"--signature={each}" for each in signed]
    call_command("change_attesters", str(HERE), str(THERE), *addresses, f"--threshold={threshold}", *signatures)


@pytest.mark.long
def test_too_few_attesters_are_told_and_hand_over_to_others_who_are_believed_from_then_on(
    chain, there, attesters, settings, tmp_path, key, capsys
):
    connect(settings, tmp_path, chain, there.url, attesters=[attesters[0], *map(nobody, KEYS[1:])])
    batch = submit(key, of_chains(there=[there.head() - 10]))
    sentence = wait_of(chain)
    assert sentence.startswith("Waiting for attesters to vouch for block")
    assert "1 of 2 required attesters has signed. 127.0.0.1:9 can't be reached." in sentence
    assert "1 of 2 required attesters has signed block" in " ".join(Client().get("/chains").text.split())
    assert {query.step for query in batch.queries.all()} == {StepKind.BLOCKHASH_AVAILABLE}
    contract = chain_state.registry(THERE).block_hash_source
    change(contract, [attesters[0].address], signed_by=KEYS[1:])
    assert attesters[0].address in capsys.readouterr().out
    assert work_until_done(batch, chain).status == BatchStatus.DONE
    # Pages show the attesters in chains.toml until the operator updates the file.
    assert f"The contract trusts 1 of {attesters[0].address}" in str(chain_state.registry(THERE).risk)
    # An operator who comes later and names the first attesters is told.
    FactsRegistry.objects.filter(source_chain_id=THERE).delete()
    with pytest.raises(CommandError, match="has other attesters or another threshold by now"):
        deploy(HERE, THERE)


@pytest.mark.long
def test_a_change_that_the_contract_would_refuse_or_the_operator_has_stopped_is_not_sent(
    chain, db, there, settings, tmp_path
):
    connect(settings, tmp_path, chain, there.url, attesters=list(map(nobody, KEYS)))
    contract, before = chain_state.registry(THERE).block_hash_source, Transaction.objects.count()
    addresses, enough = [Account.from_key(key).address for key in KEYS], KEYS[:2]
    with pytest.raises(CommandError, match=r"Signatures of 2 attesters are needed; here are 1\."):
        change(contract, addresses, signed_by=KEYS[:1])
    with pytest.raises(CommandError, match=r"These signers are not attesters of .* now: .* Check that .* the nonce 0"):
        change(contract, addresses, signed_by=enough, nonce=1)
    with pytest.raises(CommandError, match="The threshold must be from 1 to 3"):
        change(contract, addresses, signed_by=enough, threshold=4)
    call_command("stop")
    with pytest.raises(CommandError, match="The operator has stopped sending"):
        change(contract, addresses[2:], signed_by=enough)
    assert Transaction.objects.count() == before


@pytest.mark.long
def test_a_change_that_is_not_confirmed_in_time_names_the_final_block(chain, there, settings, tmp_path, in_haste):
    def first(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getBlockByNumber" and question["params"][0] == "finalized":
            reply["result"] = chain.rpc("eth_getBlockByNumber", "0x0", False)
        return [reply]

    connect(settings, tmp_path, chain, there.url, attesters=list(map(nobody, KEYS)))
    contract = chain_state.registry(THERE).block_hash_source
    reconfigure(settings, "confirmations = 1", 'confirmations = "finalized"')
    # The chain is so long that its first block can't be its newest final one.
    chain.mine(100)
    with (
        changed_replies(settings, chain, first),
        pytest.raises(CommandError, match="final block of chain 31337 is 0, "),
    ):
        change(contract, [Account.from_key(KEYS[2]).address], signed_by=KEYS[:2])


@pytest.mark.long
def test_nothing_is_sent_behind_an_attestation_that_may_still_be_cancelled(chain, there, attested, key):
    block = there.head() - 10
    chain.rpc("evm_setAutomine", False)
    submit(key, of_chains(there=[block]))
    work()
    time = {f"timestamp:{time_of(there, block - 1)}": {"header": ["GAS_LIMIT"]}}
    other = submit(users.a_key(users.BOB), asking(time, source=THERE))
    work()
    # The second batch's transaction begins with an attestation of its own.
    assert all(tx.extends for tx in Transaction.objects.filter(queries__batch=other))
    assert work_until_done(other, chain, rounds=12).status == BatchStatus.DONE
    assert Transaction.objects.filter(succeeded=False).count() == 0


@pytest.mark.long
def test_a_change_goes_behind_what_is_under_way(chain, there, attested, attesters, key, capsys):
    batch = submit(key, of_chains(there=[there.head() - 10]))
    chain.rpc("evm_setAutomine", False)
    work()
    (path,) = Transaction.objects.filter(queries__batch=batch)
    statements = itertools.count()

    def pass_time(execute: Any, *more: Any) -> Any:
        if next(statements) == 40:
            chain.rpc("evm_setAutomine", True)
            chain.mine()
        return execute(*more)

    with connection.execute_wrapper(pass_time):
        change(chain_state.registry(THERE).block_hash_source, [attesters[0].address], signed_by=KEYS[:2])
    assert attesters[0].address in capsys.readouterr().out
    path.refresh_from_db()
    (changed,) = paths.extending()
    assert (path.succeeded, changed.succeeded) == (True, True)
    assert path.nonce < changed.nonce
    assert work_until_done(batch, chain).status == BatchStatus.DONE


def test_a_change_that_waits_in_the_mempool_is_not_taken_for_one_that_reverts(
    chain, db, there, settings, tmp_path, killing
):
    """The pending block contains the change already, so a simulation on it reverts."""
    connect(settings, tmp_path, chain, there.url, attesters=list(map(nobody, KEYS)))
    contract = chain_state.registry(THERE).block_hash_source
    chain.rpc("evm_setAutomine", False)
    nonce, statements = chain_state.signer_nonce(chain), itertools.count()
    with killing.when(lambda: chain_state.signer_nonce(chain, "pending") > nonce and next(statements) == 20):
        change(contract, [Account.from_key(KEYS[2]).address], signed_by=KEYS[:2])
    SignedTransaction.objects.update(created_at=timezone.now() - timedelta(minutes=5))
    work()
    waiting_one = Transaction.objects.latest("pk")
    assert waiting_one.versions.count() > 1
    # Another signer's transaction could be mined before the change, so later transactions wait for the change.
    assert waiting_one.extends == chain_state.registry(THERE)
    assert not SignedTransaction.objects.filter(is_cancellation=True).exists()


@pytest.mark.long
def test_chains_toml_that_names_too_few_of_the_believed_attesters_is_told(
    chain, there, attested, attesters, settings, tmp_path, key
):
    connect(settings, tmp_path, chain, there.url, attesters=attesters[:1], threshold=1)
    submit(key, of_chains(there=[there.head() - 10]))
    assert "The contract requires 2 attesters, and chains.toml names only 1 of" in wait_of(chain)


# --- Expected gas -----------------------------------------------------------------------------------------------------


def transactions_of(batch: Batch) -> list[Transaction]:
    return list(Transaction.objects.filter(queries__batch=batch).distinct().order_by("pk"))


def difference(chain: devchain.DevChain, key: ApiKey, block: int, *, sent: int = 1) -> float:
    """Prove a balance. Return the largest difference of a transaction's expected gas from the gas that it took."""
    batch = done(submit(key, of_chains(there=[block])), chain, rounds=20)
    parts = [tx.expected_gas / tx.gas_used for tx in transactions_of(batch)]
    assert len(parts) == sent
    return max(abs(part - 1) for part in parts)


@pytest.mark.long
def test_expected_gas_counts_an_attestation(chain, there, attested, key):
    assert difference(chain, key, 20) < 0.06


@pytest.mark.long
def test_expected_gas_counts_a_record_before_the_proof(chain, there, settings, tmp_path, key):
    L1Block(chain).tell_of(there)
    connect(settings, tmp_path, chain, there.url)
    assert difference(chain, key, there.head(), sent=2) < 0.06


@pytest.mark.long
def test_expected_gas_counts_records_and_hops_with_the_proof(chain, rollup, key):
    rollup.confirm(40)
    assert difference(chain, key, 40) < 0.06
    assert difference(chain, key, 36) < 0.06
    assert len(paths.extending()) == 1
    rollup.confirm(50)
    # Hops share a part of what a record takes.
    assert difference(chain, key, 45) < 0.12
    assert newest_recorded(chain) == 50


@pytest.mark.long
def test_expected_gas_counts_a_proof_of_the_parent_s_state(chain, elsewhere, key):
    elsewhere.confirm(40)
    elsewhere.outbox.chain.mine(3)
    L1Block(chain).tell_of(elsewhere.outbox.chain)
    assert difference(chain, key, 40, sent=2) < 0.06


@pytest.mark.long
def test_an_attestation_lacking_gas_gets_the_expected_gas_while_nodes_estimate_falsely(
    chain, there, attested, key, settings
):
    chain.rpc("evm_setAutomine", False)
    batch = submit(key, of_chains(there=[20]))
    work(2)
    (tx,) = transactions_of(batch)
    # It is less than the bytes take.
    transactions.sign_otherwise(tx, gas=50_000, price=tx.newest.max_fee_per_gas)
    chain.rpc("anvil_dropAllTransactions")
    with estimating(chain.url, lambda _: 0) as url:
        reconfigure(settings, chain.url, url)
        for _ in range(4):
            transactions.work_aged()
            chain.mine()
    assert fresh(batch).status == BatchStatus.DONE, waiting()
    assert [tx.succeeded for tx in transactions_of(batch)] == [True]
