"""Jumps on an independent beacon chain: the executable specifications drive an unmodified EthereumJS.

It serves old blocks of Deneb and Electra to another chain and to itself.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from config.configured_chains import forget_chains
from devnet.consensus_client import SLOTS_PER_EPOCH, SLOTS_PER_PERIOD, ConsensusClient
from devnet.devchain import DevChain
from devnet.ethereumjs import EthereumJs
from proving.models import FactsRegistry
from queries.models import Batch, Block, PathUnit
from tests.deployed import deploy
from tests.proving.self_funded import itself, left_of
from tests.proving.sources import KEYS, attesting
from tests.real_nodes.deploying import deployed_on
from tests.real_nodes.facts import facts_of, send_transactions, wrong
from tests.service import asking, attested_by, balances, chains_toml, done, fresh, source_tables, submit, work
from tests.specifications import with_specifications

pytestmark = [pytest.mark.long, pytest.mark.outside, with_specifications]

CHAIN_ID = 424242
_SLOT_SECONDS, _FORKS = 6, {"electra": 4}
_ELECTRA = _FORKS["electra"] * SLOTS_PER_EPOCH
# These include Electra's first slot, and the last and first slot of a period.
_MISSED = (10, _ELECTRA, SLOTS_PER_PERIOD - 1, SLOTS_PER_PERIOD)
# With this many slots, a final block's state summarises the first period.
_SLOTS = SLOTS_PER_PERIOD + 5 * SLOTS_PER_EPOCH


@dataclass
class Pair:
    """The two clients of one chain."""

    node: EthereumJs
    consensus: ConsensusClient
    genesis_time: int

    def number_at(self, slot: int) -> int:
        """Return the number of a slot's execution block."""
        missed = [missed_slot for missed_slot in _MISSED if missed_slot < slot]
        number = slot - len(missed)
        block = self.node.rpc("eth_getBlockByNumber", hex(number), False)
        assert int(block["timestamp"], 16) == self.genesis_time + slot * _SLOT_SECONDS
        return number

    @property
    def beacon_urls(self) -> str:
        return f'beacon_urls = ["{self.consensus.url}"]'

    @property
    def table(self) -> str:
        """Return the beacon chain's table for chains.toml."""
        return f"""
[chains.beacon_chain]
preset = "minimal"
genesis_time = {self.genesis_time}
slot_seconds = {_SLOT_SECONDS}
bellatrix = 0
capella = 0
deneb = 0
electra = {_ELECTRA}
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with ExitStack() as running:
        genesis_time = int(time.time()) - 3600
        prague_time = genesis_time + _ELECTRA * _SLOT_SECONDS
        node = running.enter_context(EthereumJs(CHAIN_ID, genesis_time=genesis_time, prague_time=prague_time))
        consensus = ConsensusClient(
            node,
            genesis_time=genesis_time,
            slot_seconds=_SLOT_SECONDS,
            forks=_FORKS,
            slots=dict.fromkeys(_MISSED, "S"),
        )
        running.enter_context(consensus)
        send_transactions(node)
        consensus.advance(_SLOTS)
        yield Pair(node, consensus, genesis_time)


def test_old_blocks_of_both_forks_are_proven_on_another_chain(pair, chain: DevChain, key, settings, tmp_path):
    with attesting(tmp_path / "attester", pair.node, KEYS[0]) as attester:
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
        connection = attested_by({attester.address: attester.url}, 1)
        lines = f"test_network = true\n{pair.beacon_urls}\n{pair.table}"
        more = source_tables(CHAIN_ID, "EthereumJS", pair.node.url, connection, chain=lines, destination=chain.chain_id)
        settings.CHAINS_FILE.write_text(settings.CHAINS_FILE.read_text() + more)
        forget_chains()
        registry = deploy(chain.chain_id, CHAIN_ID).address
        # The first block, one after a missed slot, the blocks around Electra's start, and the period's last block.
        numbers = [pair.number_at(slot) for slot in (1, 11, _ELECTRA - 1, _ELECTRA + 1, SLOTS_PER_PERIOD - 2)]
        facts = [facts_of(pair.node, number) for number in numbers]
        requested = {selector: requested for fact in facts for selector, requested in fact.asked.items()}
        done(submit(key, asking(requested, source=CHAIN_ID, destination=chain.chain_id)), chain, rounds=20)
    for fact in facts:
        assert wrong(chain, registry, fact) == []
    assert {*Block.objects.filter(number__in=numbers).values_list("path_unit", flat=True)} == {PathUnit.JUMPS}


@pytest.mark.release
def test_old_blocks_are_proven_on_their_own_chain_after_a_fork_too(pair, key, settings, tmp_path):
    """This version can't read blocks of the next fork. The chain itself still vouches for blocks from
    after the fork.
    """
    window = 16
    settings.CHAINS_FILE = chains_toml(
        tmp_path,
        pair.node.url,
        chain_id=CHAIN_ID,
        chain=pair.beacon_urls,
        connection=f"window = {window}",
    )
    fork = pair.consensus.advance() + 3 * SLOTS_PER_EPOCH
    text = settings.CHAINS_FILE.read_text()
    settings.CHAINS_FILE.write_text(text.replace("\n[[connections]]", f"{pair.table}end = {fork}\n\n[[connections]]"))
    forget_chains()
    registry = deployed_on(CHAIN_ID, pair.consensus.mine).address
    # The registry doesn't know this block's hash, as after a reorg or an earlier version.
    FactsRegistry.objects.update(jump_origin=int(pair.node.rpc("eth_blockNumber"), 16) - 3)

    # A self-funded batch starts at a block for which the chain vouches now, so it waits only for data.
    numbers = [pair.number_at(slot) for slot in (21, 22)]
    self_funded = submit(key, itself(asking(balances(numbers), source=CHAIN_ID, destination=CHAIN_ID)))
    work()
    assert left_of(self_funded)["waits"][0].startswith("Fetching the proofs for blocks of period")
    work()
    assert [tx["to"] for tx in left_of(self_funded)["transactions"]] == [registry, registry]

    def prove(slot: int) -> tuple[Batch, Block]:
        facts = facts_of(pair.node, pair.number_at(slot))
        batch = done(submit(key, asking(facts.asked, source=CHAIN_ID, destination=CHAIN_ID)), pair.consensus, rounds=20)
        assert wrong(pair.node, registry, facts) == []
        return fresh(batch), Block.objects.get(number=pair.number_at(slot))

    before, block_before = prove(20)
    slot = pair.consensus.advance()
    assert slot < fork
    pair.consensus.advance(fork - slot + 2 * window)
    after, block_after = prove(30)
    assert (block_before.path_unit, block_after.path_unit) == (PathUnit.JUMPS, PathUnit.JUMPS)
    assert block_before.path_origin == block_after.path_origin
    assert before.estimated_gas
    assert after.estimated_gas
    # The first batch also stored the origin's hash, and its estimate included this.
    assert 35_000 < before.gas_used - after.gas_used < before.estimated_gas - after.estimated_gas
