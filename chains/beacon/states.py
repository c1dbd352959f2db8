"""Beacon states as clients send them (SSZ): their last block roots and historical summaries, with their branches.

A state of mainnet has some 300 MB. It is hashed while it is received, and little of it is kept.

Layouts of Electra to Gloas: Ethereum consensus specifications, `specs/*/beacon-chain.md` and `presets/`.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias, TypeVar

from chains.beacon import ssz
from chains.beacon.blocks import (
    ADDRESS,
    BID_FIELDS,
    BLOCK_HEADER_FIELDS,
    CHECKPOINT,
    ETH1_DATA,
    PAYLOAD_FIELDS,
    PUBLIC_KEY,
    ROOT,
    SIGNATURE,
    UINT64,
    WITHDRAWAL,
    Layout,
    Preset,
)
from chains.beacon.era_files import split
from chains.beacon.jumps import HISTORY_DEPTH, BeaconChain
from chains.beacon.ssz import Bytes, Container, InvalidSsz, List, Type, Vector

Result = TypeVar("Result")
_Reading: TypeAlias = Generator[int, bytes, Result]
"""A reading of a part. It yields how many bytes it needs next, and gets fewer only at the state's end."""

_SUMMARIES = "historical_summaries"
# Offset of the block roots in every layout.
_BEFORE_ROOTS = 176
# Maximum elements of lists: HISTORICAL_ROOTS_LIMIT, VALIDATOR_REGISTRY_LIMIT.
_MOST_PERIODS, _MOST_VALIDATORS = 1 << HISTORY_DEPTH, 1 << 40
# Depth of the trees whose leaves are hashed together, and maximum bytes of a part that is kept whole.
_TOGETHER, _MOST_WHOLE = 10, 16 * 1024**2


def _integers(*names: str, **fields: Type) -> Container:
    """Return a container whose last fields are integers."""
    return Container({**fields, **dict.fromkeys(names, UINT64)})


_VALIDATOR = _integers(
    *("activation_eligibility_epoch", "activation_epoch", "exit_epoch", "withdrawable_epoch"),
    pubkey=PUBLIC_KEY,
    withdrawal_credentials=ROOT,
    effective_balance=UINT64,
    slashed=Bytes(1),
)
_PAYLOAD_HEADER: Mapping[str, Type] = {
    **PAYLOAD_FIELDS,
    **dict.fromkeys(("transactions_root", "withdrawals_root"), ROOT),
    **dict.fromkeys(("blob_gas_used", "excess_blob_gas"), UINT64),
}
_PENDING_DEPOSIT = Container(
    {
        "pubkey": PUBLIC_KEY,
        "withdrawal_credentials": ROOT,
        "amount": UINT64,
        "signature": SIGNATURE,
        "slot": UINT64,
    }
)
_BUILDER = _integers(
    *("balance", "deposit_epoch", "withdrawable_epoch"),
    pubkey=PUBLIC_KEY,
    version=Bytes(1),
    execution_address=ADDRESS,
)
_BUILDER_WITHDRAWAL = _integers("amount", "builder_index", fee_recipient=ADDRESS)
_BUILDER_PAYMENT = Container({"weight": UINT64, "withdrawal": _BUILDER_WITHDRAWAL, "proposer_index": UINT64})


def state_of(layout: Layout, preset: Preset, period_depth: int, *, fulu: bool = True) -> Container:
    """Return the type of a state since Electra. `fulu`: of Electra's layout, Fulu's state has one field more."""
    gloas, roots = layout >= Layout.GLOAS, Bytes(32 << period_depth)

    def listed(element: Type, limit: int, *, packed: bool = False) -> List:
        return List(element, None if gloas else limit, packed)

    numbers, flags = (listed(each, _MOST_VALIDATORS, packed=True) for each in (UINT64, Bytes(1)))
    committee = Container({"pubkeys": Vector(PUBLIC_KEY, preset.sync_committee), "aggregate_pubkey": PUBLIC_KEY})
    fields: dict[str, Type] = {
        "genesis_time": UINT64,
        "genesis_validators_root": ROOT,
        "slot": UINT64,
        "fork": Container({"previous_version": Bytes(4), "current_version": Bytes(4), "epoch": UINT64}),
        "latest_block_header": Container({**BLOCK_HEADER_FIELDS, "body_root": ROOT}),
        "block_roots": roots,
        "state_roots": roots,
        "historical_roots": List(ROOT, _MOST_PERIODS),
        "eth1_data": ETH1_DATA,
        "eth1_data_votes": List(ETH1_DATA, preset.eth1_votes),
        "eth1_deposit_index": UINT64,
        "validators": listed(_VALIDATOR, _MOST_VALIDATORS),
        "balances": numbers,
        "randao_mixes": Bytes(32 * preset.randao_mixes),
        "slashings": Bytes(8 * preset.slashings),
        "previous_epoch_participation": flags,
        "current_epoch_participation": flags,
        "justification_bits": Bytes(1),
        "previous_justified_checkpoint": CHECKPOINT,
        "current_justified_checkpoint": CHECKPOINT,
        "finalized_checkpoint": CHECKPOINT,
        "inactivity_scores": numbers,
        "current_sync_committee": committee,
        "next_sync_committee": committee,
        "latest_block": ROOT if gloas else Container(_PAYLOAD_HEADER),
        "next_withdrawal_index": UINT64,
        "next_withdrawal_validator_index": UINT64,
        _SUMMARIES: List(Container({"block_summary_root": ROOT, "state_summary_root": ROOT}), _MOST_PERIODS),
        "deposit_requests_start_index": UINT64,
        "deposit_balance_to_consume": UINT64,
        "exit_balance_to_consume": UINT64,
        "earliest_exit_epoch": UINT64,
        "consolidation_balance_to_consume": UINT64,
        "earliest_consolidation_epoch": UINT64,
        "pending_deposits": listed(_PENDING_DEPOSIT, 2**27),
        "pending_partial_withdrawals": listed(
            _integers("validator_index", "amount", "withdrawable_epoch"), preset.pending_withdrawals
        ),
        "pending_consolidations": listed(_integers("source_index", "target_index"), preset.pending_consolidations),
    }
    if fulu or gloas:
        fields["proposer_lookahead"] = Bytes(8 * 2 * preset.slots_per_epoch)
    if gloas:
        fields |= {
            "builders": List(_BUILDER, None),
            "next_withdrawal_builder_index": UINT64,
            "execution_payload_availability": Bytes((1 << period_depth) // 8),
            "builder_pending_payments": Vector(_BUILDER_PAYMENT, 2 * preset.slots_per_epoch),
            "builder_pending_withdrawals": List(_BUILDER_WITHDRAWAL, None),
            "latest_execution_payload_bid": Container(BID_FIELDS, progressive=True),
            "payload_expected_withdrawals": List(WITHDRAWAL, None),
            "ptc_window": Vector(Bytes(8 * preset.payload_committee), 3 * preset.slots_per_epoch),
        }
    return Container(fields, progressive=gloas)


@dataclass(frozen=True)
class ReadState:
    """A state's root and two of its fields, with the branches from their roots to it."""

    root: bytes
    block_roots: bytes
    """The roots of the last blocks, by the places of their slots in a period."""
    block_roots_branch: Sequence[bytes]
    summaries: Sequence[tuple[bytes, bytes]]
    summaries_branch: Sequence[bytes]


class StateReader:
    """A reader of a slot's encoded state, which comes in parts of any size."""

    def __init__(self, chain: BeaconChain, slot: int) -> None:
        layout, depth = chain.layout(slot), chain.period_depth
        self._kinds = [state_of(layout, chain.preset, depth, fulu=fulu) for fulu in (False, True)]
        self._roots_size = 32 << depth
        self.begin()

    def begin(self) -> None:
        """Forget all parts."""
        self._reading = _read(self._kinds, self._roots_size)
        self._wanted = next(self._reading)
        self._rest = bytearray()
        self._result: ReadState | None = None
        self._invalid: InvalidSsz | None = None

    def feed(self, part: bytes) -> None:
        """Hash one more part. The end reports what is wrong, and parts after that are dropped."""
        if self._invalid is None:
            self._rest += part
        while self._invalid is None and len(self._rest) >= self._wanted:
            self._take(self._wanted)

    def end(self) -> ReadState:
        """Return what was read. Raises `InvalidSsz`."""
        if self._invalid is None:
            self._take(len(self._rest))
        if self._invalid or self._result is None:
            raise self._invalid or InvalidSsz("A state is cut.")
        return self._result

    def _take(self, size: int) -> None:
        taken = bytes(self._rest[:size])
        del self._rest[:size]
        try:
            self._wanted = self._reading.send(taken)
        except StopIteration as end:
            self._result, self._wanted = end.value, _MOST_WHOLE
        except InvalidSsz as invalid:
            self._invalid = invalid
            self._rest.clear()


def _read(kinds: Sequence[Container], roots_size: int) -> _Reading[ReadState]:
    """Read a state of one of these types. It begins with the fields of fixed size, and the places of the others."""
    head = yield from _exactly(_BEFORE_ROOTS + 2 * roots_size + 4)
    # The place of the first list, `historical_roots`, is the size of this beginning.
    size = int.from_bytes(head[-4:], "little")
    kind = next((each for each in kinds if each.fixed_size == size), None)
    if kind is None:
        raise InvalidSsz("A state has another layout.")
    head += yield from _exactly(size - len(head))
    roots, places, at = dict[str, bytes](), list[int](), 0
    for name, field in kind.fields.items():
        if field.size is None:
            places.append(int.from_bytes(head[at : at + 4], "little"))
        else:
            roots[name] = field.root(head[at : at + field.size])
        at += field.size or 4
    lists = {name: field for name, field in kind.fields.items() if name not in roots}
    sizes = [*(end - start for start, end in pairwise(places)), None]
    summaries = b""
    for (name, field), part in zip(lists.items(), sizes, strict=True):
        if name == _SUMMARIES and part is not None:
            summaries = yield from _exactly(min(max(0, part), _MOST_WHOLE))
            roots[name] = field.root(summaries)
        else:
            roots[name] = yield from _root(field, part)
    in_order = [roots[name] for name in kind.fields]
    root, branch = kind.branch_of(in_order, "block_roots")
    hashes = split(summaries)
    return ReadState(
        root,
        head[_BEFORE_ROOTS : _BEFORE_ROOTS + roots_size],
        branch,
        list(zip(hashes[::2], hashes[1::2], strict=True)),
        kind.branch_of(in_order, _SUMMARIES)[1],
    )


def _root(field: Type, size: int | None) -> _Reading[bytes]:
    """Read a part of this size. None: it is the last one."""
    if size is None:
        data = yield _MOST_WHOLE
        if len(data) == _MOST_WHOLE:
            raise InvalidSsz("A state is too long.")
        return field.root(data)
    if size < 0:
        raise InvalidSsz("Offsets don't rise.")
    if not isinstance(field, List):
        return field.root((yield from _exactly(min(size, _MOST_WHOLE))))
    element = field.element.size
    assert element is not None, "all lists of a state have elements of one size"
    leaf, leaf_size = (ROOT, 32) if field.packed else (field.element, element)
    if field.limit is None:
        roots, depth, rest = list[bytes](), 0, size
        while rest > 0:
            roots.append((yield from _tree(leaf, leaf_size, min(rest, leaf_size << depth), depth)))
            rest, depth = rest - (leaf_size << depth), depth + 2
        tree = ssz.zeros(0)
        for root in reversed(roots):
            tree = ssz.merge(root, tree)
    else:
        depth = (-(-field.limit * (element if field.packed else 32) // 32) - 1).bit_length()
        tree = yield from _tree(leaf, leaf_size, size, depth)
    return ssz.merge(tree, ssz.integer_leaf(size // element))


def _tree(leaf: Type, leaf_size: int, size: int, depth: int) -> _Reading[bytes]:
    """Read the leaves of a tree, which have this size together. If they are packed, the last one may be cut."""
    together, roots = min(depth, _TOGETHER), list[bytes]()
    while size > 0:
        data = yield from _exactly(min(size, leaf_size << together))
        size -= len(data)
        data += bytes(-len(data) % leaf_size)
        leaves = [leaf.root(data[at : at + leaf_size]) for at in range(0, len(data), leaf_size)]
        roots.append(ssz.tree_root(leaves, together))
    return ssz.tree_root(roots, depth - together, together)


def _exactly(size: int) -> _Reading[bytes]:
    data = yield size
    if len(data) != size:
        raise InvalidSsz("A state is cut.")
    return data
