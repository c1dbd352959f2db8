"""INITIAL_STATE: fetches a source block's header and account proofs, verifies them against the block hash, stores them.

From then on no archive node is needed. A proof that doesn't verify is a node that lies or lags, never a fact.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from chains.header import Header
from chains.rpc import AccountProof as FetchedProof
from chains.rpc import InvalidReply, NodeUnavailable, ProofRequest, RpcClient, RpcRefused
from chains.trie import InvalidProof, OtherAccountForm, verify_account, verify_slot
from proving.models import AccountProof, SlotProof
from queries import progress
from queries.chunks import chunks
from queries.leases import Lease
from queries.models import BatchStatus, Block, Query, StepKind

logger = logging.getLogger(__name__)

# What is fetched and stored in one go: bounds memory, and what a kill makes us fetch again.
_ACCOUNTS_PER_FETCH = 100
_SLOTS_PER_FETCH = 200


class ProofRefused(Exception):
    """No node serves proofs at this block, or none that could be used; the message is a sentence that says why."""


def take_header(lease: Lease[Block], header: Header) -> None:
    """Store the block's header; if the source chain had another one before, everything built on that starts anew."""
    block = lease.row
    new_hash = "0x" + header.hash.hex()
    if block.hash == new_hash:
        return
    with lease.writing() as fresh:
        if fresh.hash:
            AccountProof.objects.filter(block=fresh).delete()
            affected = fresh.queries.exclude(batch__status=BatchStatus.REJECTED).values_list("pk", flat=True)
            reason = f"The source chain was reorganised: block {block.number} was {fresh.hash} and is now {new_hash}."
            progress.reopen(list(affected), StepKind.INITIAL_STATE, reason=reason)
        fresh.hash = new_hash
        fresh.header_rlp = header.encode()
        fresh.state_root = "0x" + header.state_root.hex()
        fresh.timestamp = header.timestamp
        fresh.save(update_fields=["hash", "header_rlp", "state_root", "timestamp"])


def fetch_proofs(lease: Lease[Block], source: RpcClient) -> Exception | None:
    """Complete INITIAL_STATE of the block's open queries, of as many as can be.

    Returns what is wrong with the others, if anything is: one account that no node proves holds up no other. Raises
    `NodeUnavailable`.
    """
    block = lease.row
    waiting = list(block.open_queries().filter(step=StepKind.INITIAL_STATE).only("pk", "address", "slots"))
    with lease.writing():
        # The header is all that these need, and it is there.
        progress.complete([query.pk for query in waiting if not query.address], StepKind.INITIAL_STATE)
    by_address: dict[str, list[Query]] = defaultdict(list)
    for query in waiting:
        if query.address:
            by_address[query.address].append(query)
    problems: list[Exception] = []
    for addresses in chunks(sorted(by_address), _ACCOUNTS_PER_FETCH):
        wanted = _not_stored(block, {address: by_address[address] for address in addresses})
        failed: set[str] = set()
        for pieces in _pieces(wanted):
            proofs, faults = _verified_proofs(block, source, pieces)
            failed |= faults.keys()
            problems += faults.values()
            with lease.writing():
                _store(block, proofs)
        proven = [query.pk for address in addresses if address not in failed for query in by_address[address]]
        with lease.writing():
            progress.complete(proven, StepKind.INITIAL_STATE)
    return problems[0] if problems else None


@dataclass(frozen=True)
class _Wanted:
    """What of an account isn't stored yet."""

    address: str
    account: bool
    slots: Sequence[str]


def _not_stored(block: Block, queries: Mapping[str, Sequence[Query]]) -> list[_Wanted]:
    """What the queries of each address ask for, without what was stored before."""
    accounts = set(AccountProof.objects.filter(block=block, address__in=queries).values_list("address", flat=True))
    rows = SlotProof.objects.filter(account__block=block, account__address__in=queries)
    slots = set(rows.values_list("account__address", "slot"))
    return [
        _Wanted(
            address,
            address not in accounts,
            [slot for query in asking for slot in query.slots if (address, slot) not in slots],
        )
        for address, asking in queries.items()
    ]


def _pieces(wanted: Iterable[_Wanted]) -> Iterator[list[_Wanted]]:
    """What is wanted, in bounded requests: an account of thousands of slots is asked for several times."""
    piece: list[_Wanted] = []
    size = 0
    for one in wanted:
        for slots in list(chunks(list(dict.fromkeys(one.slots)), _SLOTS_PER_FETCH)) or [[]]:
            if not one.account and not slots:
                continue
            if piece and size + len(slots) > _SLOTS_PER_FETCH:
                yield piece
                piece, size = [], 0
            piece.append(_Wanted(one.address, one.account, slots))
            size += len(slots)
    if piece:
        yield piece


@dataclass(frozen=True)
class _Proven:
    account: AccountProof
    slots: Sequence[SlotProof]


def _store(block: Block, proofs: Sequence[_Proven]) -> None:
    AccountProof.objects.bulk_create([proof.account for proof in proofs], ignore_conflicts=True)
    addresses = [proof.account.address for proof in proofs if proof.slots]
    ids = dict(AccountProof.objects.filter(block=block, address__in=addresses).values_list("address", "pk"))
    for proof in proofs:
        for slot in proof.slots:
            slot.account_id = ids[proof.account.address]
    SlotProof.objects.bulk_create(
        [slot for proof in proofs for slot in proof.slots], ignore_conflicts=True, batch_size=_SLOTS_PER_FETCH
    )


def _verified_proofs(
    block: Block, source: RpcClient, wanted: Sequence[_Wanted]
) -> tuple[list[_Proven], dict[str, Exception]]:
    """The proofs that verify, and what is wrong with the others, by address."""
    block_hash = bytes.fromhex(block.hash[2:])
    answers = source.proofs(
        [ProofRequest(block.number, block_hash, one.address, [int(slot, 16) for slot in one.slots]) for one in wanted]
    )
    proofs: list[_Proven] = []
    failed: dict[str, Exception] = {}
    for one, answer in zip(wanted, answers, strict=True):
        if isinstance(answer, RpcRefused):
            failed[one.address] = NodeUnavailable(str(answer)) if answer.may_pass else ProofRefused(str(answer))
            continue
        try:
            proofs.append(_verified(block, answer))
        except OtherAccountForm as other:
            failed[one.address] = ProofRefused(str(other))
        except InvalidProof as invalid:
            failed[one.address] = InvalidReply(
                f"A node sent a proof of {one.address} at block {block.number} that does not verify: {invalid}"
            )
    return proofs, failed


def _verified(block: Block, answer: FetchedProof) -> _Proven:
    """Raises `InvalidProof`."""
    account = verify_account(bytes.fromhex(block.state_root[2:]), answer.address, answer.nodes)
    row = AccountProof(
        block=block,
        address=answer.address,
        nodes=_hex(answer.nodes),
        nonce=account.nonce,
        balance=account.balance,
        storage_root="0x" + account.storage_root.hex(),
        code_hash="0x" + account.code_hash.hex(),
    )
    slots = [
        SlotProof(
            slot=f"0x{proof.slot:064x}",
            nodes=_hex(proof.nodes),
            value=verify_slot(account.storage_root, proof.slot, proof.nodes),
        )
        for proof in answer.slots
    ]
    return _Proven(row, slots)


def _hex(nodes: Iterable[bytes]) -> list[str]:
    return ["0x" + node.hex() for node in nodes]
