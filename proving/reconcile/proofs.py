"""INITIAL_STATE: fetches account proofs at a source block, verified against its state root. It writes nothing.

Once they are stored no archive node is needed.
"""

import logging
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from chains import together
from chains.encoding import hex_data
from chains.rpc import AccountProof as FetchedProof
from chains.rpc import ChainError, NodeUnavailable, ProofRequest, RpcClient, RpcRefused
from database.chunks import by_size, chunks
from proving.models import AccountProof, SlotProof
from queries.models import Block, Query, StepKind, open_queries

logger = logging.getLogger(__name__)

# What is fetched and stored in one go: bounds memory, and what a kill makes us fetch again.
_ACCOUNTS_PER_FETCH = 100
_SLOTS_PER_FETCH = 200


class ProofRefused(Exception):
    """No node serves proofs at this block, or none that could be used; the message is a sentence that says why."""


@dataclass(frozen=True)
class Proven:
    """A verified proof of an account, and of slots of it, as rows that are not stored yet."""

    account: AccountProof
    slots: Sequence[SlotProof]


@dataclass(frozen=True)
class Fetched:
    """Proofs to store, what is wrong with those of other queries (ids), and queries all of whose proofs are stored."""

    proofs: Sequence[Proven]
    faults: Mapping[int, Exception] = field(default_factory=dict)
    complete: Sequence[int] = ()


def fetch(block: Block, source: RpcClient) -> Iterator[Fetched]:
    """Yield what the open queries of the block lack, in parts. Store each before the next is asked for.

    One account that no node proves holds up no other, except for the time that it takes to ask.
    """
    by_address: dict[str, list[Query]] = defaultdict(list)
    for query in together.share_work("waiting", block, _waiting):
        by_address[query.address].append(query)
    # By lot: those that nodes hang on must not be the first each time.
    in_any_order = random.sample(list(by_address), len(by_address))
    for addresses in chunks(in_any_order, _ACCOUNTS_PER_FETCH):
        asking = {address: by_address[address] for address in addresses}
        wanted = together.share_work("not stored", (block, asking), _not_stored)
        failed: set[str] = set()
        pieces = list(_pieces(wanted, source.slots_at_once))
        for place, piece in enumerate(pieces or [[]], 1):
            proofs, faults = _proofs(block, source, piece) if piece else ([], {})
            failed |= faults.keys()
            of_queries = {query.pk: fault for one, fault in faults.items() for query in by_address[one]}
            # With the last of them.
            all_stored = set(addresses) - failed if place >= len(pieces) else set[str]()
            yield Fetched(proofs, of_queries, [query.pk for one in all_stored for query in by_address[one]])


def _waiting(blocks: Sequence[Block]) -> list[list[Query]]:
    """Return, for each block, its open queries whose proofs are waited for."""
    by_block: dict[int, list[Query]] = {block.pk: [] for block in blocks}
    waiting = open_queries(blocks).filter(step=StepKind.INITIAL_STATE).exclude(address="")
    for query in waiting.only("pk", "block", "address", "slots"):
        assert query.block_id is not None, "it is one of these"
        by_block[query.block_id].append(query)
    return [by_block[block.pk] for block in blocks]


@dataclass(frozen=True)
class _Wanted:
    """The data of an account that isn't stored yet."""

    address: str
    account: bool
    slots: Sequence[str]


def _not_stored(several: Sequence[tuple[Block, Mapping[str, Sequence[Query]]]]) -> list[list[_Wanted]]:
    """Return what queries ask for, by address, at each block, without what was stored before and not pruned since."""
    stored = AccountProof.objects.exclude(nodes=[]).filter(
        block__in={block.pk for block, _ in several},
        address__in={address for _, asking in several for address in asking},
    )
    accounts = {(block, address): pk for block, address, pk in stored.values_list("block", "address", "pk")}
    slots: set[tuple[int, str]] = set()
    if accounts:
        rows = SlotProof.objects.exclude(nodes=[]).filter(account__in=accounts.values())
        slots = set(rows.values_list("account", "slot"))
    wanted: list[list[_Wanted]] = []
    for block, asking in several:
        ids = {address: accounts.get((block.pk, address)) for address in asking}
        wanted.append(
            [
                _Wanted(
                    address,
                    ids[address] is None,
                    [slot for query in queries for slot in query.slots if (ids[address], slot) not in slots],
                )
                for address, queries in asking.items()
            ]
        )
    return wanted


def _pieces(wanted: Iterable[_Wanted], most_slots: int) -> Iterator[list[_Wanted]]:
    """Divide what is wanted into bounded requests: an account of thousands of slots is asked for several times."""
    asked = (
        _Wanted(one.address, one.account, slots)
        for one in wanted
        for slots in list(chunks(list(dict.fromkeys(one.slots)), most_slots)) or [[]]
        if one.account or slots
    )
    return by_size(asked, lambda one: len(one.slots), _SLOTS_PER_FETCH)


def _proofs(block: Block, source: RpcClient, wanted: Sequence[_Wanted]) -> tuple[list[Proven], dict[str, Exception]]:
    """Ask for proofs. Return them, and why others were not had, by address."""
    block_hash, state_root = bytes.fromhex(block.hash[2:]), bytes.fromhex(block.state_root[2:])
    answers = source.proofs(
        [
            ProofRequest(block.number, block_hash, state_root, one.address, [int(slot, 16) for slot in one.slots])
            for one in wanted
        ]
    )
    # An account of many slots is asked for several times.
    proofs: dict[str, Proven] = {}
    failed: dict[str, Exception] = {}
    for one, answer in zip(wanted, answers, strict=True):
        if isinstance(answer, RpcRefused):
            logger.info("no proof of %s at %s: %s", one.address, block, answer.for_operators)
            failed[one.address] = NodeUnavailable(str(answer)) if answer.may_pass else ProofRefused(str(answer))
            continue
        if isinstance(answer, ChainError):
            failed[one.address] = answer
            continue
        proven = _rows(block, answer)
        before = proofs.get(one.address)
        proofs[one.address] = replace(proven, slots=[*before.slots, *proven.slots]) if before else proven
    return list(proofs.values()), failed


def _rows(block: Block, answer: FetchedProof) -> Proven:
    account = answer.account
    row = AccountProof(
        block=block,
        address=answer.address,
        nodes=_hex(answer.nodes),
        nonce=account.nonce,
        balance=account.balance,
        storage_root=hex_data(account.storage_root),
        code_hash=hex_data(account.code_hash),
    )
    slots = [
        SlotProof(slot=f"0x{proof.slot:064x}", nodes=_hex(proof.nodes), value=proof.value) for proof in answer.slots
    ]
    return Proven(row, slots)


def _hex(nodes: Iterable[bytes]) -> list[str]:
    return [hex_data(node) for node in nodes]
