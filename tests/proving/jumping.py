"""A source chain with a beacon chain, and the beacon node that serves it.

The source chain is a real development chain. Its headers are changed to name blocks of a beacon chain that is made for
them, with periods of eight slots.
"""

import random
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from chains.beacon.blocks import MAINNET_PRESET, MINIMAL_PRESET, ExecutionBranch
from devnet import beacon_api, devchain
from tests import headers
from tests.attesting import process
from tests.chains.lying_node import lying_node
from tests.contracts import beacon_worlds, l1_block
from tests.proving import beacon_chains, sources
from tests.proving.relaid import Relaid


class Pointing(Relaid):
    """A chain whose headers contain the given beacon roots."""

    def __init__(self, chain: devchain.DevChain) -> None:
        super().__init__(chain, headers.PRAGUE, raw=False)
        self._roots: dict[int, bytes] = {}

    def name(self, number: int, root: bytes) -> None:
        self._roots[number] = root

    def fields(self, number: int) -> headers.Fields:
        changed = super().fields(number)
        # Assigning to an existing key keeps the field's place in the header.
        changed["parentBeaconBlockRoot"] = self._roots.get(number, bytes(32))
        return changed


@dataclass
class World(beacon_chains.EncodedWorld):
    """The beacon chain of all blocks that exist now. `numbers` has block numbers by slot.

    Since Gloas, a beacon block at another slot has no execution block.
    """

    relaid: Pointing = field(kw_only=True)
    numbers: Mapping[int, int] = field(kw_only=True)

    def _block(self, slot: int, parent: bytes) -> ExecutionBranch:
        if slot in self.numbers:
            number = self.numbers[slot]
            self.relaid.name(number, parent)
            self.hashes = {**self.hashes, slot: self.relaid.hash(number)}
        return super()._block(slot, parent)


@dataclass
class Jumping:
    """The service with this chain as a source. The destination's L1Block tells it of blocks."""

    here: devchain.DevChain
    relaid: Pointing
    world: World
    node: beacon_api.BeaconNode
    api: beacon_api.BeaconApi
    l1: l1_block.L1Block

    def tell(self, number: int) -> None:
        self.l1.tell(number, self.relaid.hash(number))


def beacon_chain_of(
    chain: devchain.DevChain, *, seed: int = 1, gloas: int = 2**64 - 1, empty: Collection[int] = ()
) -> tuple[Pointing, World]:
    """Make a beacon chain for a chain whose blocks are seconds apart. Blocks mined later have no beacon block.

    `gloas` is the fork's first slot. From there on, beacon blocks at `empty` slots have no execution block.
    """
    relaid = Pointing(chain)
    times = [
        int(chain.rpc("eth_getBlockByNumber", hex(number), False)["timestamp"], 16)
        for number in range(1, chain.head() + 1)
    ]
    genesis = times[0] - 8
    forked = replace(beacon_worlds.SMALL, bellatrix=0, capella=8, deneb=16, electra=24, gloas=gloas, end=2**64 - 1)
    # Recorded histories of earlier versions have mainnet's preset. States of the other one are small.
    preset = MINIMAL_PRESET if gloas < forked.end else MAINNET_PRESET
    beacon_chain = replace(forked, id=sources.THERE, genesis_time=genesis, slot_seconds=1, preset=preset)
    numbers = {time - genesis: number for number, time in enumerate(times, 1)}
    slots = max(numbers) + 1
    missed = frozenset(range(slots)).difference(numbers, empty)
    return relaid, World(random.Random(seed), beacon_chain, slots, missed, relaid=relaid, numbers=numbers)


def table(world: World, url: str) -> str:
    chain = world.chain
    return f"""
beacon_urls = ["{url}"]
[chains.beacon_chain]
period_depth = {chain.period_depth}
genesis_time = {chain.genesis_time}
preset = "{"minimal" if chain.preset == MINIMAL_PRESET else "mainnet"}"
slot_seconds = 1
bellatrix = {chain.bellatrix}
capella = {chain.capella}
deneb = {chain.deneb}
electra = {chain.electra}
gloas = {chain.gloas}
"""


@contextmanager
def jumping(
    here: devchain.DevChain,
    made: tuple[Pointing, World],
    settings,
    folder: Path,
    *,
    connection: str = "",
    of_here: str = "",
    block_hash_source: str = "op-stack",
    attested_by: str = "",
) -> Iterator[Jumping]:
    """Configure the service. `attested_by` is the key of an attester that replaces the L1Block."""
    relaid, world = made
    node = beacon_chains.node_of(world, list(world.blocks))
    with ExitStack() as opened:
        api, url = opened.enter_context(beacon_api.BeaconApi(node)), opened.enter_context(lying_node(relaid))
        l1 = l1_block.L1Block(here)
        attesters = []
        if attested_by:
            process.chains_file(folder / "attester", url, key=attested_by, chain_id=sources.THERE)
            attesters.append(opened.enter_context(process.running(folder / "attester")).attester)
        sources.connect(
            settings,
            folder,
            here,
            url,
            attesters=attesters,
            threshold=1,
            block_hash_source=block_hash_source,
            of_there=table(world, api.url),
            of_here=of_here,
            more=connection,
        )
        yield Jumping(here, relaid, world, node, api, l1)
