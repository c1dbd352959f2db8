"""The service's branches equal those of two oracles in each node, for each fork's layout and both presets."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chains.beacon import blocks, era_files, jumps, ssz
from chains.beacon.blocks import MAINNET_PRESET, MINIMAL_PRESET, Layout
from chains.beacon.jumps import HISTORY_DEPTH, MAINNET, Anchor, BeaconChain, CannotProve
from chains.beacon.ssz import InvalidSsz
from chains.beacon.states import StateReader
from tests.beacon_oracles import oracles
from tests.contracts import beacon_model, recorded_beacon
from tests.fixtures_folder import FOLDER, needs_fixtures

pytestmark = oracles.needs_oracles

_PRESETS = {"mainnet": MAINNET_PRESET, "minimal": MINIMAL_PRESET}
_UNSET = 2**64 - 1


class World:
    """A chain made by the specifications, in the service's types."""

    def __init__(self, folder: Path, told: dict[str, Any]) -> None:
        self.told, self._folder = told, folder
        self._historical_roots = _unhex(told["historical_roots"])
        forks = told["forks"]
        self.chain = BeaconChain(
            id=1,
            period_depth=told["slots_per_period"].bit_length() - 1,
            **{fork: forks[fork] for fork in ("bellatrix", "capella", "deneb", "electra", "gloas")},
            end=_UNSET,
            historical_roots=ssz.list_root(self._historical_roots, HISTORY_DEPTH),
            blocks_before_merge=0,
            accumulator=bytes(32),
            preset=_PRESETS[told["preset"]],
        )
        self.blocks = {block["slot"]: self.block(block) for block in told["blocks"]}

    def block(self, told: dict[str, Any]) -> blocks.ExecutionBranch:
        encoded = bytes.fromhex(told["encoded"])
        return blocks.execution_branch(encoded, self.chain.layout(told["slot"]), signed=False, preset=self.chain.preset)

    def anchor(self, slot: int) -> Anchor:
        """Return the anchor. The specifications give its branch within the state, as a node would."""
        told = self.told_anchor(slot)
        summaries = [(bytes.fromhex(first), bytes.fromhex(second)) for first, second in told["summaries"]]
        return Anchor(self.block(told).header, summaries, _unhex(told["state_summaries"]["nodes"]))

    def encoded_state(self, slot: int) -> bytes:
        return (self._folder / f"{self.told['preset']}-state-{slot}.ssz").read_bytes()

    def told_anchor(self, slot: int) -> dict[str, Any]:
        [told] = [candidate for candidate in self.told["anchors"] if candidate["slot"] == slot]
        return dict(told)

    def old(self, slot: int, anchor: int) -> bytes:
        return jumps.old(self.chain, self.blocks[slot], self._roots(slot)[0], self.anchor(anchor))

    def recent(self, slot: int, anchor: int) -> bytes:
        number, place = divmod(anchor, 1 << self.chain.period_depth)
        before, here = (self._roots(each << self.chain.period_depth)[0] for each in (number - 1, number))
        siblings = _unhex(self.told_anchor(anchor)["state_block_roots"]["nodes"])
        header, block_roots = self.anchor(anchor).header, [*here[:place], *before[place:]]
        return jumps.recent(self.chain, self.blocks[slot], block_roots, header, siblings)

    def before_capella(self, slot: int) -> bytes:
        roots, state_roots = self._roots(slot)
        above = ssz.tree_root(state_roots, self.chain.period_depth)
        return jumps.before_capella(self.chain, self.blocks[slot], roots, above, self._historical_roots)

    def _roots(self, slot: int) -> tuple[list[bytes], list[bytes]]:
        """Return the roots of blocks and states in the slot's period."""
        batch = (self._folder / f"{self.told['preset']}-batch-{self.chain.period(slot)}.ssz").read_bytes()
        roots = [batch[at : at + 32] for at in range(0, len(batch), 32)]
        return roots[: len(roots) // 2], roots[len(roots) // 2 :]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("oracles")
    return path


@pytest.fixture(scope="module")
def specifications(folder) -> dict[str, Any]:
    return oracles.by_specifications(folder)


@pytest.fixture(scope="module")
def lodestar(folder, specifications) -> dict[str, dict[str, Any]]:
    return oracles.by_lodestar(folder)


@pytest.fixture(scope="module")
def worlds(folder, specifications) -> list[World]:
    return [World(folder, told) for told in specifications["worlds"]]


def _unhex(texts: Sequence[str]) -> list[bytes]:
    return [bytes.fromhex(text) for text in texts]


def _path(told: dict[str, Any]) -> beacon_model.Path:
    return beacon_model.Path(bytes.fromhex(told["leaf"]), _unhex(told["nodes"]), int(told["index"]))


# --- Branches ---------------------------------------------------------------------------------------------------------


def test_blocks_of_each_layout_have_the_same_roots_and_branches(worlds):
    for world in worlds:
        assert {world.chain.layout(slot) for slot in world.blocks} == set(Layout)
        for told in world.told["blocks"]:
            block = world.blocks[told["slot"]]
            assert block.header.root.hex() == told["root"]
            assert beacon_model.own_path(world.chain, jumps.own(block)) == _path(told)
            layout, preset = world.chain.layout(told["slot"]), world.chain.preset
            assert blocks.execution_branch(bytes.fromhex(told["signed"]), layout, preset=preset) == block


def test_branches_to_old_blocks_are_the_same_from_states_of_each_layout(worlds):
    for world in worlds:
        layout = world.chain.layout
        # Each layout of a target with each layout of an anchor after it.
        later = {(one, other) for one in Layout for other in Layout if Layout.CAPELLA <= one <= other}
        assert {(layout(told["slot"]), layout(told["anchor"])) for told in world.told["old"]} == later
        # Fulu has Electra's layout.
        fulu = world.told["forks"]["fulu"]
        assert any(fulu <= told["slot"] < world.chain.gloas <= told["anchor"] for told in world.told["old"])
        for told in world.told["old"]:
            branch = world.old(told["slot"], told["anchor"])
            assert beacon_model.old_path(world.chain, branch) == _path(told)
            # The model of the contract computes the same root.
            assert beacon_model.old(world.chain, bytes.fromhex(told["root"]), branch).hex() == told["leaf"]


def test_branches_through_the_last_block_roots_of_states_are_the_same(worlds):
    for world in worlds:
        layout = world.chain.layout
        pairs = {(layout(told["slot"]), layout(told["anchor"])) for told in world.told["recent"]}
        assert pairs >= {(each, each) for each in Layout if each > Layout.BELLATRIX}
        assert pairs >= {(one, other) for one in Layout for other in Layout if one + 1 == other}
        for told in world.told["recent"]:
            branch = world.recent(told["slot"], told["anchor"])
            assert beacon_model.old_path(world.chain, branch) == _path(told)
            assert beacon_model.old(world.chain, bytes.fromhex(told["root"]), branch).hex() == told["leaf"]


@pytest.mark.parametrize("part", [2**24, 5000])
def test_encoded_states_are_read_with_the_same_branches(worlds, part):
    for world in worlds:
        layouts = set()
        for told in world.told["anchors"]:
            if (slot := told["slot"]) < world.chain.electra:
                continue
            layouts.add(told["fork"])
            reader = StateReader(world.chain, slot)
            encoded = world.encoded_state(slot)
            for at in range(0, len(encoded), part):
                reader.feed(encoded[at : at + part])
            state, anchor = reader.end(), world.anchor(slot)
            assert state.root == anchor.header.state_root
            assert (state.summaries, state.summaries_branch) == (anchor.summaries, anchor.branch)
            assert state.block_roots_branch == _unhex(told["state_block_roots"]["nodes"])
            first = ssz.tree_root(era_files.split(state.block_roots), world.chain.period_depth)
            assert first.hex() == told["state_block_roots"]["leaf"]
        assert layouts == {"electra", "fulu", "gloas"}


def test_indices_of_gloas_are_those_of_the_model(worlds):
    for world in worlds:
        last = world.told["anchors"][-1]
        assert last["fork"] == "gloas"
        indices = {name: last[f"state_{name}"]["index"] for name in ("summaries", "historical_roots", "block_roots")}
        assert indices == {"summaries": 2950, "historical_roots": 354, "block_roots": 352}
        for name, field in (("summaries", 27), ("historical_roots", 7), ("block_roots", 5)):
            assert world.chain.state_index(last["slot"], field) == indices[name]
        assert {told["index"] for told in world.told["blocks"] if told["fork"] == "gloas"} == {25384}


def test_branches_to_blocks_before_capella_are_the_same(worlds):
    for world in worlds:
        assert world.told["before_capella"]
        for told in world.told["before_capella"]:
            branch = world.before_capella(told["slot"])
            assert beacon_model.path_before_capella(world.chain, branch) == _path(told)
            assert world.chain.historical_roots.hex() == told["root"]


def test_the_constant_is_in_states_where_ours_looks_for_it(worlds):
    for world in worlds:
        for told in world.told["anchors"]:
            siblings = _unhex(told["state_historical_roots"]["nodes"])
            branch = jumps.historical_roots(world.chain, world.anchor(told["slot"]).header, siblings)
            assert beacon_model.path_of_historical_roots(world.chain, branch) == _path(told["historical_roots"])


def test_both_oracles_say_the_same(specifications, lodestar):
    for world in specifications["worlds"]:
        other = lodestar[world["preset"]]
        for kind in ("blocks", "old", "recent"):
            assert [(told["slot"], told["root"], _path(told)) for told in other[kind]] == [
                (told["slot"], told["root"], _path(told)) for told in world[kind]
            ]
        for ours, theirs in zip(world["anchors"], other["anchors"], strict=True):
            assert ours["slot"] == theirs["slot"]
            names = (
                ("state_summaries", "stateSummaries"),
                ("state_block_roots", "stateBlockRoots"),
                ("historical_roots", "historicalRoots"),
            )
            for name, its in names:
                assert (ours[name]["root"], _path(ours[name])) == (theirs[its]["root"], _path(theirs[its]))


def test_mainnets_forks_and_times_are_those_of_the_specifications(worlds):
    told = next(world.told for world in worlds if world.told["preset"] == "mainnet")
    ours = (MAINNET.bellatrix, MAINNET.capella, MAINNET.deneb, MAINNET.electra)
    names = ("bellatrix", "capella", "deneb", "electra")
    assert ours == tuple(told["fork_epochs"][name] * told["slots_per_epoch"] for name in names)
    # Gloas has no date yet. Its layouts differ, so once it has a date, the table must have its slot.
    assert told["fork_epochs"]["gloas"] == MAINNET.gloas == MAINNET.end == _UNSET
    assert 1 << MAINNET.period_depth == told["slots_per_period"]
    assert MAINNET.slot_seconds * 1000 == told["slot_milliseconds"]


# --- Recorded blocks --------------------------------------------------------------------------------------------------


@pytest.mark.long
@needs_fixtures
def test_branches_of_recorded_blocks_are_the_same(tmp_path):
    numbers = recorded_beacon.numbers()
    older = [
        block_number
        for block_number in recorded_beacon.numbers_before_merge()
        if recorded_beacon.is_in_the_epoch(block_number)
    ]
    assert numbers
    assert older
    branches = oracles.by_specifications_of(_recorded(numbers, older), tmp_path)
    assert branches["historical_roots"] == MAINNET.historical_roots.hex()
    for number, told_path in zip(numbers, branches["blocks"], strict=True):
        branch, expected = recorded_beacon.branch(number), _path(told_path)
        if recorded_beacon.is_before_capella(number):
            assert beacon_model.path_before_capella(MAINNET, branch) == expected
            continue
        path = beacon_model.old_path(MAINNET, branch)
        # The whole state is not recorded. A record has the nodes above the state's list of summaries.
        count = len(expected.siblings)
        assert (path.leaf, path.siblings[:count]) == (expected.leaf, expected.siblings)
        below = 1 << count
        assert path.index % below == expected.index % below
        assert path.index // below == 731  # generalized index of the list in a block of Electra
        assert list(path.siblings[count : count + 6]) == recorded_beacon.anchor().branch
    for number, told_path in zip(older, branches["before_merge"], strict=True):
        branch = recorded_beacon.branch_before_merge(number)
        assert beacon_model.path_before_merge(MAINNET, branch) == _path(told_path)
        assert told_path["root"] == MAINNET.accumulator.hex()


def _recorded(numbers: Sequence[int], older: Sequence[int]) -> dict[str, Any]:
    def joined(roots: Sequence[bytes]) -> str:
        return b"".join(roots).hex()

    return {
        "blocks": [
            {
                "encoded": (FOLDER / "beacon" / f"beacon_block_{number}.ssz").read_bytes().hex(),
                "roots": joined(recorded_beacon.roots(number)[:8192]),
                "states": joined(recorded_beacon.roots(number)[8192:]),
            }
            for number in numbers
        ],
        "historical_roots": joined(recorded_beacon.historical_roots()),
        "summaries": joined([root for both in recorded_beacon.anchor().summaries for root in both]),
        "records": joined(
            [part for block_hash, total in recorded_beacon.records() for part in (block_hash, ssz.integer_leaf(total))]
        ),
        "epochs": joined(recorded_beacon.epochs()),
        "before_merge": older,
    }


# --- Gloas ------------------------------------------------------------------------------------------------------------


def test_in_a_block_of_gloas_every_known_path_ends_in_a_constant(specifications, lodestar):
    """Gloas has the chunk of the body's active fields at the index of the payload's ancestors in earlier forks. A
    longer path would need the preimage of a constant with 30 zero bytes.
    """
    for gloas in specifications["gloas"]:
        by_lodestar = lodestar[gloas["preset"]]["gloas"]
        assert by_lodestar["root"] == gloas["root"]
        for fork, ends in gloas["block_hashes"].items():
            assert ends["index"] == (3228 if fork in {"bellatrix", "capella"} else 6444)
            assert (ends["reached"], ends["is_leaf"], ends["node"]) == (25, True, "ff1f" + "00" * 30)
            assert by_lodestar["blockHashes"][fork] == {"reached": "25", "isLeaf": True, "node": ends["node"]}


def test_in_a_state_of_gloas_no_known_path_ends_in_a_list(specifications, lodestar):
    """Gloas has the hash of two other fields at the index of the list's length in earlier forks."""
    for gloas in specifications["gloas"]:
        by_lodestar = lodestar[gloas["preset"]]["gloas"]
        length = gloas["list_length"]
        assert (length["reached"], length["is_leaf"]) == (91 << 1 | 1, False)
        assert by_lodestar["listLength"] == {"reached": "183", "isLeaf": False, "node": length["node"]}
        # A list's length would have zeros after its third byte. The contract requires them.
        assert any(bytes.fromhex(length["node"])[3:])
        first = gloas["first_summary"]
        # The leaf at index 364 is the justification bits, which fit one byte.
        assert (first["reached"], first["is_leaf"]) == (364, True)
        assert not any(bytes.fromhex(first["node"])[1:])
        assert by_lodestar["firstSummary"] == {"reached": "364", "isLeaf": True, "node": first["node"]}


def test_block_hashes_of_gloas_bids_are_on_no_known_path(specifications, lodestar):
    for gloas in specifications["gloas"]:
        assert gloas["bid"] == lodestar[gloas["preset"]]["gloas"]["bid"]
        assert gloas["bid"] == {"block_hash": 203081, "parent_block_hash": 25384}
        for index in gloas["bid"].values():
            above = {index >> height for height in range(index.bit_length())}
            assert not above & {3228, 6444}


def test_blocks_of_gloas_have_no_other_layout(specifications, worlds):
    for gloas, world in zip(specifications["gloas"], worlds, strict=True):
        for name, signed in (("signed", True), ("encoded", False)):
            encoded = bytes.fromhex(gloas[name])
            block = blocks.execution_branch(encoded, Layout.GLOAS, signed=signed, preset=world.chain.preset)
            assert (block.header.root.hex(), block.header.body_root.hex()) == (gloas["root"], gloas["body_root"])
            for layout in {*Layout} - {Layout.GLOAS}:
                with pytest.raises(InvalidSsz):
                    blocks.execution_branch(encoded, layout, signed=signed, preset=world.chain.preset)
        for told in world.told["blocks"]:
            if told["fork"] != "gloas":
                with pytest.raises(InvalidSsz):
                    blocks.execution_branch(
                        bytes.fromhex(told["encoded"]), Layout.GLOAS, signed=False, preset=world.chain.preset
                    )


def test_summaries_of_gloas_have_a_longer_branch(worlds):
    for world in worlds:
        anchor = world.anchor(world.told["anchors"][-1]["slot"])
        target = next(block["slot"] for block in world.told["blocks"] if block["slot"] >= world.chain.capella)
        roots = world._roots(target)[0]
        assert len(anchor.branch) == 11
        assert jumps.old(world.chain, world.blocks[target], roots, anchor)
        for branch in (anchor.branch[:6], anchor.branch[5:], anchor.branch[:-1], [*anchor.branch, bytes(32)]):
            with pytest.raises(CannotProve, match="don't match the state"):
                jumps.old(world.chain, world.blocks[target], roots, replace(anchor, branch=branch))
        with pytest.raises(CannotProve, match="don't match the state"):
            jumps.old(world.chain.before_gloas, world.blocks[target], roots, replace(anchor, branch=anchor.branch[:6]))


def test_beyond_the_last_known_fork_nothing_is_proven(worlds):
    for world in worlds:
        told = world.told["old"][-1]
        branch = world.old(told["slot"], told["anchor"])
        for end in (told["slot"], told["anchor"]):
            with pytest.raises(beacon_model.InvalidBranch):
                beacon_model.old(replace(world.chain, end=end), bytes.fromhex(told["root"]), branch)
        beacon_model.old(replace(world.chain, end=told["anchor"] + 1), bytes.fromhex(told["root"]), branch)
