"""Branches of the beacon histories whose slots, counts and depths are near a bound. Contract and model must agree.

Each branch is submitted with the root that a contract without checks would compute. So only a bound or the branch's
size can be a reason to refuse it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from eth_utils.crypto import keccak

from campaigns.fuzzing.chance import Chance
from campaigns.fuzzing.tally import Divergence, Tally, sentence
from chains.beacon import ssz
from chains.beacon.blocks import BLOCK_HASH, EXECUTION_PAYLOAD
from chains.beacon.jumps import BLOCK_ROOTS, HISTORICAL_ROOTS, HISTORICAL_SUMMARIES, HISTORY_DEPTH, BeaconChain
from chains.contract_artifacts import Artifact
from devnet.devchain import DevChain
from tests.contracts import beacon_model
from tests.contracts.beacon_model import InvalidBranch
from tests.contracts.deployed import Deployed
from tests.contracts.simulator import Call, Simulator

REFUSALS = frozenset(keccak(text=error)[:4] for error in ("InvalidProof()", "UnknownFork(uint256)"))
_MODEL: Mapping[str, Callable[..., bytes | None]] = {
    "ownBlockHash": beacon_model.own,
    "oldBlockHash": beacon_model.old,
    "blockHashBeforeCapella": beacon_model.before_capella,
    "blockHashBeforeMerge": beacon_model.before_merge,
    "provesHistoricalRoots": beacon_model.proves_historical_roots,
}
_OWN, _OLD, _BEFORE_CAPELLA, _BEFORE_MERGE, _ROOTS = _MODEL
# The models of the current contract and of the earlier one, which ends at Gloas.
MODELS = {"GloasBeaconHistory": _MODEL, "BeaconHistory": {**_MODEL, _OLD: beacon_model.old_by_summaries}}
# The place of the signed bid in a body of Gloas.
_BID = 10
# Branches per chain. Constants are set at deployment, so a contract has only one branch to a constant. These kinds are
# tried in more rounds.
_SHARE = 100
_ROUNDS = (*3 * (_OWN, _ROOTS, _OLD, _OLD), *40 * (_BEFORE_CAPELLA, _BEFORE_MERGE))


class _Lenient:
    """A maker of a branch, and of the root that a contract without checks computes from it."""

    def __init__(self, chance: Chance, beacon: BeaconChain) -> None:
        self._chance = chance
        self._beacon = beacon
        self.branch = b""
        self.node = bytes(32)

    def make(self, kind: str) -> None:
        beacon = self._beacon
        if kind == _BEFORE_MERGE:
            self._before_merge()
            return
        if kind == _ROOTS:
            self.node = beacon.historical_roots
            self._anchor(HISTORICAL_ROOTS)
            return
        slot = self._block()
        if kind == _OWN:
            return
        self._climb(slot, beacon.period_depth)
        if kind == _OLD and self._chance.happens(0.3):
            # The branch leads through a state's block roots. Sometimes it has state roots, which is wrong.
            self.branch += bytes(32) if self._chance.happens(0.9) else self._chance.randbytes(32)
            self._integer(0, 3)
            self._anchor(BLOCK_ROOTS)
            return
        self.node = ssz.merge(self.node, self._hash())
        place = beacon.period(slot)
        if kind == _BEFORE_CAPELLA:
            self._list(place, beacon.periods_before_capella, HISTORY_DEPTH)
            return
        place -= beacon.periods_before_capella
        near = (max(0, min(place + self._chance.between(-1, 2), 2**24 - 1)), 0, 1, 2**24 - 1)
        count = self._chance.pick((*near[:1] * 4, *near, self._chance.getrandbits(24)))
        self._integer(count, 3)
        self._list(place, count, HISTORY_DEPTH)
        self._anchor(HISTORICAL_SUMMARIES)

    def _before_merge(self) -> None:
        count = self._beacon.blocks_before_merge
        near = (0, 1, 8191, 8192, count - 1, count, count + 1, count + 8192, count // 2)
        number = max(0, self._chance.pick(near)) & 0xFFFFFFFF
        self._integer(number, 4)
        self.node = ssz.merge(self._block_hash(), self._hash())
        epoch = number >> 13
        self._list(number - (epoch << 13), max(0, min(8192, count - (epoch << 13))), 13)
        self._list(epoch, (count + 8191) >> 13, 17)

    def _block(self) -> int:
        slot, first = self._slot()
        halves = ssz.merge(first, self._hash())
        self.node = self._block_hash()
        if slot < self._beacon.gloas:
            self._climb(BLOCK_HASH, self._beacon.payload_depth(slot))
            self._climb(EXECUTION_PAYLOAD, 4)
        else:
            # From the parent's hash up to the bid, to the signed bid and to the body.
            self._progressive(ssz.progressive_index(0))
            self._climb(0, 1)
            self._progressive(ssz.progressive_index(_BID))
        self.node = ssz.merge(halves, ssz.merge(ssz.merge(self.node, bytes(32)), ssz.zeros(1)))
        return slot

    def _anchor(self, field: int) -> None:
        slot, first = self._slot()
        parent = self._hash()
        index = self._beacon.state_index(slot, field)
        if slot < self._beacon.gloas:
            self._climb(index, index.bit_length() - 1)
        else:
            self._progressive(index)
        self.node = ssz.merge(ssz.merge(first, ssz.merge(parent, self.node)), self._hash())

    def _slot(self) -> tuple[int, bytes]:
        beacon, chance = self._beacon, self._chance
        near = (0, beacon.bellatrix, beacon.capella, beacon.deneb, beacon.electra, beacon.gloas, beacon.end)
        size = 1 << beacon.period_depth
        by = chance.pick((-1, 0, 1, chance.between(-size, size), chance.between(-4 * size, 4 * size)))
        slot = max(0, min(chance.pick(near) + by, 2**64 - 1))
        if chance.happens(0.4):
            # The slot lies anywhere in a fork.
            fork = chance.below(len(near) - 1)
            slot = chance.between(near[fork], near[fork + 1])
        elif chance.happens(0.01):
            slot = chance.number(8)
        proposer = chance.number(8)
        self._integer(slot, 8)
        self._integer(proposer, 8)
        return slot, ssz.merge(ssz.integer_leaf(slot), ssz.integer_leaf(proposer))

    def _list(self, place: int, count: int, depth: int) -> None:
        place &= (1 << depth) - 1
        for height in range(depth):
            is_sent = (place >> height ^ 1) << height < count
            sibling = self._hash() if is_sent else ssz.zeros(height)
            self.node = ssz.climb(self.node, [sibling], place >> height)
        self.node = ssz.merge(self.node, ssz.integer_leaf(count))

    def _climb(self, index: int, depth: int) -> None:
        self.node = ssz.climb(self.node, [self._hash() for _ in range(depth)], index)

    def _progressive(self, index: int) -> None:
        """Climb to the root of a progressive container. Its last sibling says which fields are active."""
        self._climb(index, index.bit_length() - 2)
        # Nearly always there are at most 128 fields.
        bits = self._chance.getrandbits(self._chance.pick((46, 128)))
        if self._chance.happens(0.1):
            bits |= 1 << self._chance.pick((127, 128, 129, 135, 136, 255))
        fields = bits.to_bytes(32, "little")
        self.branch += fields
        self.node = ssz.merge(self.node, fields)

    def _block_hash(self) -> bytes:
        digest = self._hash()
        if self._chance.happens(0.08):
            # The hash is zero or a power of two.
            digest = bytes(32) if self._chance.happens(0.6) else (1 << self._chance.below(256)).to_bytes(32)
            self.branch = self.branch[:-32] + digest
        return digest

    def _hash(self) -> bytes:
        digest = self._chance.randbytes(32)
        self.branch += digest
        return digest

    def _integer(self, value: int, size: int) -> None:
        self.branch += value.to_bytes(size)


def some_chain(chance: Chance) -> BeaconChain:
    """Return a chain whose forks are near each other or far apart."""
    depth = chance.pick((1, 3, 6, 13, 24))
    size = 1 << depth
    far = chance.pick((2, 2, 40, 1 << 20))
    slots = [chance.below(far * size)]
    for _ in range(5):
        slots.append(slots[-1] + chance.pick((0, 1, chance.below(far * size), chance.below(far * size))))
    slots[1] = min(slots[1], size << HISTORY_DEPTH)
    slots.sort()
    blocks = chance.pick((0, 1, 8191, 8192, 8193, chance.below(2**30), 2**30, 15_537_394))
    bellatrix, capella, deneb, electra, gloas, end = slots
    gloas = max(gloas, 1)
    end = max(end, gloas)
    return BeaconChain(1, depth, bellatrix, capella, deneb, electra, gloas, end, bytes(32), blocks, bytes(32))


def arguments_of(contract: str, beacon: BeaconChain) -> tuple[tuple[int | bytes, ...], BeaconChain]:
    """Return the constructor's arguments of one of both contracts, and the chain as far as the contract knows it."""
    if contract == "BeaconHistory":
        return beacon.before_gloas.arguments_without_gloas, beacon.before_gloas
    return beacon.arguments, beacon


def run_before_gloas(chain: DevChain, seed: int, count: int) -> Tally:
    """Try `count` branches on the earlier contract, as `run` does."""
    return run(chain, seed, count, contract="BeaconHistory")


def run(
    chain: DevChain,
    seed: int,
    count: int,
    *,
    contract: str = "GloasBeaconHistory",
    artifact: Artifact | None = None,
) -> Tally:
    """Try `count` branches. Deterministic in `seed`. Raise Divergence. `artifact` replaces the contract's."""
    chance, tally = Chance(seed), Tally()
    simulator = Simulator(chain)
    while tally.done < count:
        kind = chance.pick(_ROUNDS)
        beacon = some_chain(chance)
        questions: list[tuple[bytes, ...]] = []
        # The root of such a branch is a constructor argument, so each branch has its own contract.
        has_own_root = kind in {_BEFORE_CAPELLA, _BEFORE_MERGE}
        share = 1 if has_own_root else min(_SHARE, count - tally.done)
        for _ in range(share):
            made = _Lenient(chance, beacon)
            made.make(kind)
            if kind == _BEFORE_CAPELLA:
                beacon = replace(beacon, historical_roots=made.node)
            elif kind == _BEFORE_MERGE:
                beacon = replace(beacon, accumulator=made.node)
            arguments: tuple[bytes, ...] = (made.branch,) if has_own_root else (made.node, made.branch)
            questions.append(arguments)
            if chance.happens(0.1) or has_own_root:
                questions += [(*arguments[:-1], each) for each in _spoilt(chance, made.branch)]
        of_constructor, known = arguments_of(contract, beacon)
        history = Deployed(chain, contract, of_constructor, artifact=artifact)
        calls = [Call(history.address, history.calldata(kind, *arguments)) for arguments in questions]
        for arguments, outcome in zip(questions, simulator.run(calls), strict=True):
            tally.done += 1
            try:
                answer = MODELS[contract][kind](known, *arguments)
                expected, why = True.to_bytes(32) if answer is None else answer, ""
            except InvalidBranch as invalid:
                expected, why = None, sentence(str(invalid))
            if expected is None:
                tally.refused[why] += 1
                agrees = not outcome.succeeded and outcome.data[:4] in REFUSALS
            else:
                tally.accepted[kind] += 1
                agrees = outcome.succeeded and outcome.data == expected
            if not agrees:
                shown = ", ".join("0x" + each.hex() for each in arguments)
                raise Divergence(
                    f"branches.run, {contract}, seed {seed}, count {count}: {kind}({shown}) of {beacon}: the model "
                    f"says {why or 'yes'}, the contract {outcome.succeeded} 0x{outcome.data.hex()}"
                )
    return tally


def _spoilt(chance: Chance, branch: bytes) -> list[bytes]:
    """Return longer, shorter and changed versions of the branch."""
    place = chance.below(len(branch))
    changed = branch[:place] + bytes([branch[place] ^ 1 << chance.below(8)]) + branch[place + 1 :]
    return [branch + bytes(1), branch + chance.randbytes(32), branch[:-32], branch[:-1], changed]
