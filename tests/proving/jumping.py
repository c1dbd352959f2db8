"""A source chain with a beacon chain: a real one, with all its states, whose headers name the blocks of a beacon chain
that is made for it, in periods of eight slots; and the beacon node that serves it.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chains.beacon import ssz
from chains.beacon.blocks import MAINNET_PRESET, body_of, execution_branch
from chains.beacon.jumps import BeaconChain
from chains.beacon.ssz import BitList, Bytes, Container, Roots, Type
from devnet.beacon_api import BeaconApi, BeaconBlock, BeaconNode, BeaconState
from devnet.devchain import DevChain
from tests import headers
from tests.attesting import process
from tests.chains.lying_node import lying_node
from tests.contracts.beacon_worlds import BeaconWorld
from tests.contracts.l1_block import L1Block
from tests.proving.relaid import Relaid
from tests.proving.sources import THERE, connect

Values = Mapping[str, Any]
"""Of a container's fields: bytes, or those of a container. What isn't named is empty, or zero."""

_OFFSET = 4


def encode(kind: Type, value: Any = None) -> bytes:
    """SSZ of lists and bytes as they are encoded already, of nothing, or of a container's values."""
    if isinstance(value, bytes):
        return value
    if isinstance(kind, Container):
        parts = [encode(each, (value or {}).get(name)) for name, each in kind.fields.items()]
        kinds = list(kind.fields.values())
        at = sum(_OFFSET if each.size is None else len(part) for each, part in zip(kinds, parts, strict=True))
        fixed = variable = b""
        for each, part in zip(kinds, parts, strict=True):
            if each.size is None:
                fixed += (at + len(variable)).to_bytes(_OFFSET, "little")
                variable += part
            else:
                fixed += part
        return fixed + variable
    if isinstance(kind, Bytes | Roots):
        return bytes(kind.size)
    return b"\1" if isinstance(kind, BitList) else b""


class Pointing(Relaid):
    """A chain whose headers name a beacon root that is told for each."""

    def __init__(self, chain: DevChain) -> None:
        super().__init__(chain, headers.PRAGUE, raw=False)
        self._roots: dict[int, bytes] = {}

    def name(self, number: int, root: bytes) -> None:
        self._roots[number] = root

    def fields(self, number: int) -> headers.Fields:
        found = super().fields(number)
        # In its place among the others.
        found["parentBeaconBlockRoot"] = self._roots.get(number, bytes(32))
        return found


class World(BeaconWorld):
    """The beacon chain of all blocks that the chain has now. `numbers` are those of its blocks by slot."""

    def __init__(self, chance: random.Random, chain: BeaconChain, relaid: Pointing, numbers: Mapping[int, int]) -> None:
        self.relaid, self.numbers = relaid, numbers
        self.encoded: dict[int, bytes] = {}
        slots = max(numbers) + 1
        super().__init__(chance, chain=chain, slots=slots, missed=frozenset(range(slots)).difference(numbers))

    def _block(self, slot: int, parent: bytes) -> Any:
        number = self.numbers[slot]
        self.relaid.name(number, parent)
        layout = self.chain.layout(slot)
        body = {"execution_payload": {"block_hash": self.relaid.hash(number)}, "graffiti": self.chance.randbytes(32)}
        state_root = ssz.tree_root(self.states[slot], self.chain.state_depth(slot))
        message = Container(
            {
                "slot": Bytes(8),
                "proposer_index": Bytes(8),
                "parent_root": Bytes(32),
                "state_root": Bytes(32),
                "body": body_of(layout, MAINNET_PRESET),
            }
        )
        values = {
            "message": {
                "slot": slot.to_bytes(8, "little"),
                "proposer_index": self.chance.randrange(2**20).to_bytes(8, "little"),
                "parent_root": parent,
                "state_root": state_root,
                "body": body,
            }
        }
        self.encoded[slot] = encode(Container({"message": message, "signature": Bytes(96)}), values)
        return execution_branch(self.encoded[slot], layout)

    def fill(self, node: BeaconNode) -> None:
        """Tell a node of all blocks, and of the states after them."""
        for slot, block in self.blocks.items():
            header = block.header
            parts = (header.slot, header.proposer, header.parent_root, header.state_root, header.body_root)
            version = ("bellatrix", "capella", "deneb", "electra")[self.chain.layout(slot)]
            node.blocks[header.root] = BeaconBlock(*parts, self.encoded[slot], version)
            node.roots[slot] = header.root
            anchor = self.anchor(slot)
            node.states[slot] = BeaconState(anchor.summaries, anchor.branch)


@dataclass
class Jumping:
    """The service with this chain as a source, whose blocks an L1Block of the destination tells."""

    here: DevChain
    relaid: Pointing
    world: World
    node: BeaconNode
    api: BeaconApi
    l1: L1Block

    @property
    def head(self) -> int:
        return max(self.world.numbers.values())

    def tell(self, number: int) -> None:
        self.l1.tell(number, self.relaid.hash(number))

    def period_of(self, number: int) -> int:
        slots = {of_slot: slot for slot, of_slot in self.world.numbers.items()}
        return self.world.chain.period(slots[number])


def beacon_chain_of(chain: DevChain, *, seed: int = 1) -> tuple[Pointing, World]:
    """Give a chain of blocks a second apart a beacon chain. What comes later has none."""
    relaid = Pointing(chain)
    times = [
        int(chain.rpc("eth_getBlockByNumber", hex(number), False)["timestamp"], 16)
        for number in range(1, chain.head() + 1)
    ]
    genesis = times[0] - 8
    beacon_chain = BeaconChain(
        id=THERE,
        period_depth=3,
        bellatrix=0,
        capella=8,
        deneb=16,
        electra=24,
        end=2**64 - 1,
        historical_roots=bytes(32),
        blocks_before_merge=0,
        accumulator=bytes(32),
        genesis_time=genesis,
        slot_seconds=1,
    )
    numbers = {time - genesis: number for number, time in enumerate(times, 1)}
    return relaid, World(random.Random(seed), beacon_chain, relaid, numbers)


def table(world: World, url: str) -> str:
    chain = world.chain
    return f"""
beacon_urls = ["{url}"]
[chains.beacon_chain]
period_depth = {chain.period_depth}
genesis_time = {chain.genesis_time}
slot_seconds = 1
bellatrix = {chain.bellatrix}
capella = {chain.capella}
deneb = {chain.deneb}
electra = {chain.electra}
"""


@contextmanager
def jumping(
    here: DevChain,
    made: tuple[Pointing, World],
    settings,
    folder: Path,
    *,
    connection: str = "",
    attested_by: str = "",
) -> Iterator[Jumping]:
    """The service. `attested_by` is the key of an attester, whom it asks instead of an L1Block."""
    relaid, world = made
    node = BeaconNode(THERE, world.chain.genesis_time)
    world.fill(node)
    with ExitStack() as opened:
        api, url = opened.enter_context(BeaconApi(node)), opened.enter_context(lying_node(relaid))
        l1 = L1Block(here)
        attesters = []
        if attested_by:
            process.chains_file(folder / "attester", url, key=attested_by, chain_id=THERE)
            attesters.append(opened.enter_context(process.running(folder / "attester")).attester)
        connect(
            settings,
            folder,
            here,
            url,
            attesters=attesters,
            threshold=1,
            of_there=table(world, api.url),
            more=connection,
        )
        yield Jumping(here, relaid, world, node, api, l1)
