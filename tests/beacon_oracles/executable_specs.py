"""Compute branches with the executable consensus specifications: `.venv-beacon/bin/python executable_specs.py FOLDER`.

The program makes random blocks and states of each fork in both presets. It writes them into the folder as `worlds.json`
and files beside it, with the branches that the specifications' own types give. If the folder has `recorded.json`, the
program computes branches of that data instead, and writes `branches.json`.
"""

import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from eth_consensus_specs.debug.random_value import RandomizationMode, get_random_ssz_object
from remerkleable.basic import uint256
from remerkleable.byte_arrays import Bytes32
from remerkleable.complex import Container, List, Vector
from remerkleable.settings import Root
from remerkleable.tree import RootNode, subtree_fill_to_contents

FORKS = ("bellatrix", "capella", "deneb", "electra", "fulu", "gloas")
PRESETS = ("mainnet", "minimal")
_BLOCK_HASH = ("body", "execution_payload", "block_hash")
_PARENT_BLOCK_HASH = ("body", "signed_execution_payload_bid", "message", "parent_block_hash")


class _Record(Container):  # type: ignore[misc]
    """A block in an epoch before the Merge (Portal network, `history`)."""

    block_hash: Bytes32
    total_difficulty: uint256


_Records, _Epochs = List[_Record, 8192], List[Bytes32, 131_072]


def main(folder: Path) -> None:
    recorded = folder / "recorded.json"
    if recorded.exists():
        (folder / "branches.json").write_text(json.dumps(_recorded(json.loads(recorded.read_text()))))
        return
    worlds = [_World(preset, folder).told() for preset in PRESETS]
    gloas = [_gloas(preset, folder) for preset in PRESETS]
    (folder / "worlds.json").write_text(json.dumps({"worlds": worlds, "gloas": gloas}))


def _spec(fork: str, preset: str) -> Any:
    return importlib.import_module(f"eth_consensus_specs.{fork}.{preset}")


class _Chance(Random):
    """Random numbers that omit integers beyond JavaScript's precision, because Lodestar reads some as numbers."""

    def randint(self, a: int, b: int) -> int:
        return super().randint(a, min(b, 2**53 - 1))


class _World:
    """A chain with blocks of all forks. Few blocks are complete; the roots of the others are random."""

    def __init__(self, preset: str, folder: Path) -> None:
        self.preset, self._folder = preset, folder
        self._chance = _Chance(preset)
        self.period = int(_spec("capella", preset).SLOTS_PER_HISTORICAL_ROOT)
        # Capella begins at the start of a period, as on mainnet. The later forks begin within one.
        self.first = {
            fork: periods * self.period + beyond
            for fork, periods, beyond in zip(FORKS, (0, 2, 3, 4, 5, 6), (5, 0, 7, 9, 11, 13), strict=True)
        }
        self.targets: dict[int, Any] = {}
        for fork, ends in zip(FORKS, [*list(self.first.values())[1:], 8 * self.period], strict=True):
            for slot in (self.first[fork], ends - 1):
                self.targets[slot] = self._block(fork, slot)
        self.batches = [self._batch(number) for number in range(9)]
        self.roots = List[Bytes32, 2**24](batch.hash_tree_root() for batch in self.batches[:2])
        # Anchor blocks of each fork since Capella. The last period of most of them has blocks of two forks.
        places = ((2, 5), (3, 3), (4, 6), (5, 0), (6, 10), (6, 20), (8, 1))
        self.anchors = {
            slot: self._anchor(self._fork(slot), slot) for slot in (n * self.period + at for n, at in places)
        }

    def told(self) -> dict[str, Any]:
        """Return the chain and its branches as JSON values."""
        return {
            "preset": self.preset,
            "slots_per_period": self.period,
            "forks": self.first,
            "fork_epochs": {
                fork: int(getattr(_spec("gloas", self.preset).config, f"{fork.upper()}_FORK_EPOCH")) for fork in FORKS
            },
            "slots_per_epoch": int(_spec("gloas", self.preset).SLOTS_PER_EPOCH),
            "slot_milliseconds": int(_spec("gloas", self.preset).config.SLOT_DURATION_MS),
            "historical_roots": [_hex(root) for root in self.roots],
            "blocks": [self._told_block(slot) for slot in sorted(self.targets)],
            "anchors": [self._told_anchor(slot) for slot in sorted(self.anchors)],
            "old": [
                self._told_old(slot, anchor)
                for anchor in self.anchors
                for slot in self.targets
                if self.first["capella"] <= slot < anchor // self.period * self.period
            ],
            "recent": [
                self._told_recent(slot, anchor)
                for anchor in self.anchors
                for slot in self.targets
                if anchor - self.period <= slot < anchor
            ],
            "before_capella": [
                self._told_before_capella(slot) for slot in self.targets if slot < self.first["capella"]
            ],
        }

    # --- Making -------------------------------------------------------------------------------------------------------

    def _block(self, fork: str, slot: int) -> Any:
        block = _random(self._chance, _spec(fork, self.preset).BeaconBlock)
        block.slot = slot
        if fork == "gloas":
            # Gloas blocks must not contain deposits. Lodestar reads no block with deposits, nor one with more elements
            # than the protocol allows, for which the lists' types have no limit.
            block.body.deposits = []
            block.body.attester_slashings = list(block.body.attester_slashings)[:1]
            requests = block.body.parent_execution_requests
            requests.consolidations = list(requests.consolidations)[:2]
        return block

    def _batch(self, number: int) -> Any:
        roots = self._block_roots(number)
        states = [_root(f"{self.preset} state {number} {index}") for index in range(self.period)]
        self._path(f"batch-{number}").write_bytes(b"".join([*roots, *states]))
        return _spec("bellatrix", self.preset).HistoricalBatch(
            block_roots=self._vector(roots), state_roots=self._vector(states)
        )

    def _vector(self, roots: Sequence[bytes]) -> Any:
        """Return the roots as a vector. Making it from a list of `Bytes32` would take seconds."""
        leaves = [RootNode(Root(root)) for root in roots]
        depth = self.period.bit_length() - 1
        return Vector[Bytes32, self.period].view_from_backing(subtree_fill_to_contents(leaves, depth))

    def _anchor(self, fork: str, slot: int) -> tuple[Any, Any]:
        """Make a block and the state after it."""
        spec = _spec(fork, self.preset)
        state = _random_state(self._chance, spec)
        block_roots = self._recent(slot)
        state.block_roots = self._vector(block_roots)
        state.historical_roots = self.roots
        state.historical_summaries = [
            spec.HistoricalSummary(
                block_summary_root=batch.block_roots.hash_tree_root(),
                state_summary_root=batch.state_roots.hash_tree_root(),
            )
            for batch in self.batches[2 : slot // self.period]
        ]
        block = self._block(fork, slot)
        block.state_root = state.hash_tree_root()
        self._path(f"state-{slot}").write_bytes(_encode_state(state, b"".join(block_roots)))
        return block, state

    def _recent(self, slot: int) -> list[bytes]:
        """Return the roots of the blocks of the last slots before a slot, by their place in a period."""
        number, place = divmod(slot, self.period)
        before, here = (self._block_roots(each) for each in (number - 1, number))
        return [*here[:place], *before[place:]]

    def _block_roots(self, number: int) -> list[bytes]:
        roots = [_root(f"{self.preset} block {number} {index}") for index in range(self.period)]
        for slot, block in self.targets.items():
            if slot // self.period == number:
                roots[slot % self.period] = bytes(block.hash_tree_root())
        return roots

    def _path(self, name: str) -> Path:
        return self._folder / f"{self.preset}-{name}.ssz"

    # --- Output -------------------------------------------------------------------------------------------------------

    def _fork(self, slot: int) -> str:
        return [fork for fork in FORKS if self.first[fork] <= slot][-1]

    def _told_block(self, slot: int) -> dict[str, Any]:
        block = self.targets[slot]
        return {
            "slot": slot,
            "fork": self._fork(slot),
            "encoded": block.encode_bytes().hex(),
            "signed": _spec(self._fork(slot), self.preset).SignedBeaconBlock(message=block).encode_bytes().hex(),
            **_branch((block, self._hash_path(slot))),
        }

    def _hash_path(self, slot: int) -> Sequence[str]:
        """Return the path to the hash that a block proves. In Gloas it is the one before, not the promised one."""
        return _PARENT_BLOCK_HASH if self._fork(slot) == "gloas" else _BLOCK_HASH

    def _told_anchor(self, slot: int) -> dict[str, Any]:
        block, state = self.anchors[slot]
        return {
            "slot": slot,
            "fork": self._fork(slot),
            "encoded": block.encode_bytes().hex(),
            "root": _hex(block.hash_tree_root()),
            "summaries": [
                (_hex(summary.block_summary_root), _hex(summary.state_summary_root))
                for summary in state.historical_summaries
            ],
            "state_summaries": _branch((state, ("historical_summaries",))),
            "historical_roots": _branch((block, ("state_root",)), (state, ("historical_roots",))),
            "state_historical_roots": _branch((state, ("historical_roots",))),
            "state_block_roots": _branch((state, ("block_roots",))),
        }

    def _told_old(self, slot: int, anchor: int) -> dict[str, Any]:
        block, state = self.anchors[anchor]
        number = slot // self.period
        return {
            "slot": slot,
            "anchor": anchor,
            **_branch(
                (block, ("state_root",)),
                (state, ("historical_summaries", number - 2, "block_summary_root")),
                (self.batches[number].block_roots, (slot % self.period,)),
                (self.targets[slot], self._hash_path(slot)),
            ),
        }

    def _told_recent(self, slot: int, anchor: int) -> dict[str, Any]:
        block, state = self.anchors[anchor]
        return {
            "slot": slot,
            "anchor": anchor,
            **_branch(
                (block, ("state_root",)),
                (state, ("block_roots", slot % self.period)),
                (self.targets[slot], self._hash_path(slot)),
            ),
        }

    def _told_before_capella(self, slot: int) -> dict[str, Any]:
        number = slot // self.period
        batch = self.batches[number]
        return {
            "slot": slot,
            **_branch(
                (self.roots, (number,)),
                (batch, ("block_roots", slot % self.period)),
                (self.targets[slot], _BLOCK_HASH),
            ),
        }


def _branch(*parts: tuple[Any, Sequence[Any]]) -> dict[str, Any]:
    """Return leaf, index and siblings of a path through several objects, from the top down.

    Each object's root is the leaf of the object above.
    """
    spec = _spec("gloas", "mainnet")
    index = 1
    nodes: list[str] = []
    for thing, path in parts:
        part = int(spec.get_generalized_index(type(thing), *path))
        depth = part.bit_length() - 1
        index = index << depth | part ^ 1 << depth
        nodes = [_hex(node) for node in spec.compute_merkle_proof(thing, part)] + nodes
        leaf = thing.get_backing().getter(part).merkle_root()
    return {"root": _hex(parts[0][0].hash_tree_root()), "index": index, "nodes": nodes, "leaf": _hex(leaf)}


def _random(chance: Random, kind: type, most: int = 3) -> Any:
    return get_random_ssz_object(chance, kind, 100, most, RandomizationMode.mode_random, chaos=False)


def _random_state(chance: Random, spec: Any) -> Any:
    """Make a random state. Fields with thousands of elements are zeros, because random ones would take seconds."""
    state = spec.BeaconState()
    for name, kind in spec.BeaconState.fields().items():
        if not _is_long(kind) and name not in {"historical_roots", "historical_summaries"}:
            setattr(state, name, _random(chance, kind))
    return state


def _is_long(kind: Any) -> bool:
    return bool(kind.is_fixed_byte_length() and kind.type_byte_length() > 30_000)


def _encode_state(state: Any, block_roots: bytes) -> bytes:
    """Encode a state of `_random_state` with these block roots. The types' own `encode_bytes` takes half a second."""
    head, tail = [], []
    kinds = type(state).fields()
    at = sum(kind.type_byte_length() if kind.is_fixed_byte_length() else 4 for kind in kinds.values())
    for name, kind in kinds.items():
        if name == "block_roots":
            part = block_roots
        else:
            part = bytes(int(kind.type_byte_length())) if _is_long(kind) else getattr(state, name).encode_bytes()
        if kind.is_fixed_byte_length():
            head.append(part)
        else:
            head.append(at.to_bytes(4, "little"))
            tail.append(part)
            at += len(part)
    return b"".join([*head, *tail])


def _root(text: str) -> bytes:
    return sha256(text.encode()).digest()


def _hex(data: bytes) -> str:
    return bytes(data).hex()


# --- Gloas ------------------------------------------------------------------------------------------------------------


def _gloas(preset: str, folder: Path) -> dict[str, Any]:
    """Return a block and a state of Gloas, and their nodes at the indices of earlier layouts."""
    spec, before = _spec("gloas", preset), _spec("fulu", preset)
    chance = _Chance(preset)
    block, state = _random(chance, spec.BeaconBlock, 1), _random_state(chance, spec)
    # Gloas blocks must not contain deposits, and Lodestar refuses to read a block that does.
    block.body.deposits = []
    state.historical_summaries = [_random(chance, spec.HistoricalSummary) for _ in range(5)]
    state.historical_roots = [_root(str(number)) for number in range(3)]
    block.state_root = state.hash_tree_root()
    (folder / f"{preset}-gloas-state.ssz").write_bytes(
        _encode_state(state, bytes(32 * int(spec.SLOTS_PER_HISTORICAL_ROOT)))
    )
    summaries = int(before.get_generalized_index(before.BeaconState, "historical_summaries"))
    bid = ("body", "signed_execution_payload_bid", "message")
    return {
        "preset": preset,
        "encoded": block.encode_bytes().hex(),
        "signed": spec.SignedBeaconBlock(message=block).encode_bytes().hex(),
        "root": _hex(block.hash_tree_root()),
        "body_root": _hex(block.body.hash_tree_root()),
        "block_hashes": {
            fork: _walk(block, int(old.get_generalized_index(old.BeaconBlock, *_BLOCK_HASH)))
            for fork in FORKS[:-1]
            for old in [_spec(fork, preset)]
        },
        # The root of a list has the list's elements on the left and its length on the right.
        "list_length": _walk(state, summaries << 1 | 1),
        "first_summary": _walk(state, summaries << 25),
        "bid": {
            name: int(spec.get_generalized_index(spec.BeaconBlock, *bid, name))
            for name in ("block_hash", "parent_block_hash")
        },
    }


def _walk(thing: Any, index: int) -> dict[str, Any]:
    """Follow the path of a generalized index as far as nodes exist. Return the last node and its index."""
    node, reached = thing.get_backing(), 1
    for height in reversed(range(index.bit_length() - 1)):
        if node.is_leaf():
            break
        reached = reached << 1 | index >> height & 1
        node = node.get_right() if reached & 1 else node.get_left()
    return {"index": index, "reached": reached, "node": _hex(node.merkle_root()), "is_leaf": node.is_leaf()}


# --- Recorded data of mainnet -----------------------------------------------------------------------------------------


def _recorded(recorded: dict[str, Any]) -> dict[str, Any]:
    """Return branches to recorded blocks: from a state's roots or, before the Merge, from the list of epoch roots."""
    return {
        "blocks": [_recorded_block(recorded, block) for block in recorded["blocks"]],
        "historical_roots": _hex(_hashes(recorded["historical_roots"], List[Bytes32, 2**24]).hash_tree_root()),
        "before_merge": list(_recorded_before_merge(recorded)),
    }


def _recorded_block(recorded: dict[str, Any], recorded_block: dict[str, Any]) -> dict[str, Any]:
    encoded = bytes.fromhex(recorded_block["encoded"])
    slot = int.from_bytes(encoded[:8], "little")
    config = _spec("gloas", "mainnet").config
    fork = [fork for fork in FORKS if int(getattr(config, f"{fork.upper()}_FORK_EPOCH")) * 32 <= slot][-1]
    spec = _spec(fork, "mainnet")
    block = spec.BeaconBlock.decode_bytes(encoded)
    roots = _hashes(recorded_block["roots"], Vector[Bytes32, 8192])
    before = int(config.CAPELLA_FORK_EPOCH) * 32 // 8192
    if fork == "bellatrix":
        batch = spec.HistoricalBatch(
            block_roots=roots, state_roots=_hashes(recorded_block["states"], Vector[Bytes32, 8192])
        )
        top = _hashes(recorded["historical_roots"], List[Bytes32, 2**24])
        return _branch((top, (slot // 8192,)), (batch, ("block_roots", slot % 8192)), (block, _BLOCK_HASH))
    capella = _spec("capella", "mainnet")
    summaries = List[capella.HistoricalSummary, 2**24].decode_bytes(bytes.fromhex(recorded["summaries"]))
    path = (slot // 8192 - before, "block_summary_root")
    return {"fork": fork, **_branch((summaries, path), (roots, (slot % 8192,)), (block, _BLOCK_HASH))}


def _recorded_before_merge(recorded: dict[str, Any]) -> Iterator[dict[str, Any]]:
    records = _Records.decode_bytes(bytes.fromhex(recorded["records"]))
    epochs = _hashes(recorded["epochs"], _Epochs)
    for number in recorded["before_merge"]:
        yield {
            "number": number,
            **_branch((epochs, (number // 8192,)), (records, (number % 8192, "block_hash"))),
        }


def _hashes(text: str, kind: Any) -> Any:
    return kind.decode_bytes(bytes.fromhex(text))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
