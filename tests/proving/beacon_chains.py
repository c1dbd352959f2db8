"""Beacon chains as nodes and era files serve them: a small one with encoded blocks, and recorded parts of mainnet's."""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from cramjam import snappy
from eth_utils.crypto import keccak

from chains.beacon import blocks, ssz, states
from chains.beacon.blocks import ExecutionBranch
from chains.beacon.jumps import MAINNET, BeaconChain
from chains.beacon.ssz import BitList, Container, Type
from devnet.beacon_api import BeaconBlock, BeaconNode, BeaconState
from tests import fixtures_folder, headers, service
from tests.contracts import recorded_beacon
from tests.contracts.beacon_worlds import SMALL_BEFORE_GLOAS, BeaconWorld

CHAIN_ID = 31337
GENESIS, SLOT_SECONDS = 1_700_000_000, 12
# Number of the first execution block.
FIRST_NUMBER = 100


# --- A small chain ----------------------------------------------------------------------------------------------------


def encode(kind: Type, chance: random.Random, given: Any = None) -> bytes:
    """Encode an object with random fixed-size parts and empty lists. `given` has bytes, or parts of a container by
    name.
    """
    if isinstance(given, bytes):
        return given
    if isinstance(kind, Container):
        parts = {name: encode(part_kind, chance, (given or {}).get(name)) for name, part_kind in kind.fields.items()}
        fixed = sum(4 if kind.fields[name].size is None else len(part) for name, part in parts.items())
        head, tail = b"", b""
        for name, part in parts.items():
            if kind.fields[name].size is None:
                head, tail = head + (fixed + len(tail)).to_bytes(4, "little"), tail + part
            else:
                head += part
        return head + tail
    if kind.size is None:
        return b"\1" if isinstance(kind, BitList) else b""
    return chance.randbytes(kind.size)


def signed(message: bytes) -> bytes:
    return (100).to_bytes(4, "little") + bytes(96) + message


@dataclass
class EncodedWorld(BeaconWorld):
    """A beacon world that also encodes its blocks as beacon clients send them.

    Their block hashes are those of the headers that the test makes.
    """

    encoded: dict[int, bytes] = field(default_factory=dict)
    """Each `SignedBeaconBlock` by its slot."""
    encoded_states: dict[int, bytes] = field(default_factory=dict)
    """Each state since Electra by its slot, in chains that have Gloas."""

    def _state(self, slot: int) -> list[bytes]:
        chain = self.chain
        if slot < chain.electra or chain.gloas == chain.end:
            return super()._state(slot)
        kind = states.state_of(chain.layout(slot), chain.preset, chain.period_depth)
        given = {
            "block_roots": b"".join(self.block_roots[slot]),
            "historical_roots": b"".join(self._historical_roots),
            "historical_summaries": b"".join(b"".join(each) for each in self._summaries(slot)),
        }
        self.encoded_states[slot] = encode(kind, self.chance, given)
        return kind.leaves(self.encoded_states[slot])

    def _block(self, slot: int, parent: bytes) -> ExecutionBranch:
        if slot < self.chain.bellatrix:
            return super()._block(slot, parent)
        layout = self.chain.layout(slot)
        if slot >= self.chain.gloas:
            # The block promises the slot's payload, and names the last one before.
            named = self.hashes[max(full for full in self.hashes if full < slot)]
            bid = {"parent_block_hash": named, "block_hash": self.hashes.get(slot, self.chance.randbytes(32))}
            given: Any = {"signed_execution_payload_bid": {"message": bid}}
            state_root = self._progressive(slot, self.states[slot]).root
        else:
            given = {"execution_payload": {"block_hash": self.hashes[slot]}}
            state_root = ssz.tree_root(self.states[slot], self._state_depth(slot))
        body = encode(blocks.body_of(layout, self.chain.preset), self.chance, given)
        numbers = slot.to_bytes(8, "little") + self.chance.randrange(2**20).to_bytes(8, "little")
        self.encoded[slot] = signed(numbers + parent + state_root + (84).to_bytes(4, "little") + body)
        return blocks.execution_branch(self.encoded[slot], layout, preset=self.chain.preset)


def target(slot: int) -> bytes:
    """Return the encoded execution header of a slot."""
    return headers.encode(headers.PRAGUE, number=FIRST_NUMBER + slot, timestamp=GENESIS + slot * SLOT_SECONDS)


def small_world(missed: Iterable[int] = (), *, seed: int = 3, **changes: Any) -> EncodedWorld:
    chain = replace(
        SMALL_BEFORE_GLOAS, id=CHAIN_ID, genesis_time=GENESIS, slot_seconds=SLOT_SECONDS, config_name="small", **changes
    )
    hashes = {slot: keccak(target(slot)) for slot in range(100) if slot not in missed}
    return EncodedWorld(random.Random(seed), chain, slots=90, missed=frozenset(missed), hashes=hashes)


def node_of(world: EncodedWorld, anchors: Sequence[int] = ()) -> BeaconNode:
    """Return a node with all blocks of the world, and with the states after the `anchors`."""
    node = BeaconNode(world.chain.id, world.chain.genesis_time)
    for slot, block in world.blocks.items():
        add(node, block, world.encoded.get(slot, b""))
    for slot in anchors:
        anchor = world.anchor(slot)
        encoded = world.encoded_states.get(slot)
        node.states[slot] = BeaconState(anchor.summaries, anchor.branch, partial(bytes, encoded) if encoded else None)
    return node


def add(node: BeaconNode, block: ExecutionBranch, encoded: bytes) -> None:
    header = block.header
    node.roots[header.slot] = header.root
    node.blocks[header.root] = BeaconBlock(
        header.slot, header.proposer, header.parent_root, header.state_root, header.body_root, encoded
    )


# --- Mainnet ----------------------------------------------------------------------------------------------------------


def mainnets_node(numbers: Iterable[int]) -> BeaconNode:
    """Return a node with the recorded beacon blocks of these execution blocks, and with the roots of the blocks'
    periods.
    """
    node = BeaconNode(MAINNET.id, MAINNET.genesis_time)
    anchor = recorded_beacon.anchor()
    header = anchor.header
    node.blocks[header.root] = BeaconBlock(
        header.slot, header.proposer, header.parent_root, header.state_root, header.body_root
    )
    node.states[header.slot] = BeaconState(anchor.summaries, anchor.branch)
    for number in numbers:
        block = recorded_beacon.block(number)
        first = MAINNET.period(block.header.slot) << MAINNET.period_depth
        before = b""
        for slot, root in enumerate(recorded_beacon.roots(number)[: 1 << MAINNET.period_depth], first):
            # A slot without a block repeats the previous slot's root.
            if root != before:
                node.roots[slot] = root
            before = root
        add(node, block, signed((fixtures_folder.FOLDER / "beacon" / f"beacon_block_{number}.ssz").read_bytes()))
    return node


# --- Era files --------------------------------------------------------------------------------------------------------


def entry(kind: bytes, data: bytes) -> bytes:
    return kind + len(data).to_bytes(4, "little") + bytes(2) + data


def framed(data: bytes) -> bytes:
    """Return the data as a stream of snappy frames."""
    return bytes(snappy.compress(data))


def index(kind: bytes, first: int, places: Sequence[int | None], at: int) -> bytes:
    numbers = [first, *(0 if offset is None else offset - at for offset in places), len(places)]
    return entry(kind, b"".join(number.to_bytes(8, "little", signed=True) for number in numbers))


def write_era(
    folder: Path,
    chain: BeaconChain,
    period: int,
    period_root: bytes,
    roots: tuple[Sequence[bytes], Sequence[bytes]],
    blocks: Mapping[int, bytes],
) -> Path:
    """Write a period's era file in the e2store format."""
    content = entry(b"e2", b"")
    size = 1 << chain.period_depth
    places: list[int | None] = []
    for slot in range(period * size, (period + 1) * size):
        places.append(len(content) if slot in blocks else None)
        if slot in blocks:
            content += entry(b"\1\0", framed(blocks[slot]))
    state_at = len(content)
    state = random.Random(period).randbytes(176) + b"".join([*roots[0], *roots[1]]) + bytes(100_000)
    content += entry(b"\2\0", framed(state))
    content += index(b"i2", period * size, places, len(content))
    content += index(b"i2", (period + 1) * size, [state_at], len(content))
    path = folder / f"{chain.config_name}-{period + 1:05}-{period_root[:4].hex()}.era"
    path.write_bytes(content)
    return path


def write_era1(folder: Path, name: str, first: int, encoded: Sequence[bytes], totals: Sequence[int]) -> Path:
    """Write an era1 file of blocks. Their bodies have several sizes."""
    content, places = entry(b"e2", b""), []
    for header, total in zip(encoded, totals, strict=True):
        places.append(len(content))
        body = bytes(len(places) % 7 * 6000)
        content += entry(b"\3\0", framed(header)) + entry(b"\4\0", body) + entry(b"\5\0", b"")
        content += entry(b"\6\0", total.to_bytes(32, "little"))
    content += entry(b"\7\0", bytes(32))
    content += index(b"f2", first, places, len(content))
    path = folder / name
    path.write_bytes(content)
    return path


# --- The service ------------------------------------------------------------------------------------------------------


def configure(
    settings: Any,
    folder: Path,
    chain: BeaconChain,
    *,
    beacon_urls: Sequence[str] = (),
    era_files: Sequence[str] = (),
    rpc_url: str = "http://127.0.0.1:9",
) -> None:
    """Configure a source chain with this beacon chain."""
    lines = (
        f"beacon_urls = {json.dumps(list(beacon_urls))}\nera_files = {json.dumps([str(path) for path in era_files])}\n"
    )
    if chain.id != MAINNET.id:
        table = {
            **{name: getattr(chain, name) for name in ("period_depth", "bellatrix", "capella", "deneb", "electra")},
            **({"gloas": chain.gloas} if chain.gloas < chain.end else {}),
            **{name: getattr(chain, name) for name in ("end", "genesis_time", "slot_seconds", "config_name")},
            **({"gloas": chain.gloas} if chain.gloas < chain.end else {}),
            "preset": "minimal" if chain.preset == blocks.MINIMAL_PRESET else "mainnet",
            "historical_roots": f"0x{chain.historical_roots.hex()}",
            "accumulator": f"0x{chain.accumulator.hex()}",
            "blocks_before_merge": chain.blocks_before_merge,
        }
        fields = ", ".join(f"{name} = {json.dumps(value)}" for name, value in table.items())
        lines += f"beacon_chain = {{ {fields} }}\n"
    settings.CHAINS_FILE = service.chains_toml(folder, rpc_url, chain_id=chain.id, chain=lines)
