"""Fetch what the open queries of blocks lack (INITIAL_STATE), and verify it against the blocks' headers.

Nothing is written to the database here. After the proofs are stored, no archive node is needed.
"""

import logging
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from chains.encoding import hex_data
from chains.nodes import questions
from chains.nodes.node_errors import ChainError, RpcRefused, UnverifiedProof
from chains.nodes.questions import ProofRequest, VerifiedAccountProof
from chains.nodes.rpc import RpcClient
from chains.tries.header import Header
from config.database.statements import by_size, chunks
from proving import facts
from proving.models import AccountProof, BlockTrie, ProvenTransaction, SlotProof
from proving.reading import block_contents
from proving.reading.block_contents import NamedEntry, Unprovable
from queries import waits
from queries.columns import HeaderField
from queries.models import Block, Query, QueryKind, StepKind, open_queries
from queries.waits import WaitReason, wait

logger = logging.getLogger(__name__)

# Maximum accounts and slots that are fetched and stored together. It limits memory, and the lost work after a kill.
_ACCOUNTS_PER_FETCH = 100
_SLOTS_PER_FETCH = 200
# Maximum slots of one account per request.
_SLOTS_PER_REQUEST = 50


@dataclass(frozen=True, eq=False)
class Subject:
    """A part of a block that queries ask for: its header, one account, or its entries."""

    block: Block
    kind: QueryKind
    address: str  # of the account; empty for other subjects
    queries: Sequence[Query]
    """The open queries in INITIAL_STATE."""


@dataclass
class Waiting:
    """Subjects that open queries of blocks wait for, as far as a turn fetches them."""

    subjects: Sequence[Subject]
    selecting: Mapping[Block, Mapping[NamedEntry, Sequence[int]]]
    """The entries that select a block, with the ids of the queries."""
    unfinished: set[int]
    """The ids of blocks with more accounts, or left for the next turn."""

    def leave(self, blocks: Collection[Block]) -> None:
        """Leave all queries of these blocks for the next turn."""
        self.subjects = [subject for subject in self.subjects if subject.block not in blocks]
        self.unfinished |= {block.pk for block in blocks}


@dataclass(frozen=True)
class ProvenAccount:
    """A verified proof of an account and of some slots, in rows that aren't stored yet."""

    account: AccountProof
    slots: list[SlotProof] = field(default_factory=list)


@dataclass
class Fetched:
    """The fetched proofs of one block, in rows that aren't stored yet."""

    accounts: dict[str, ProvenAccount] = field(default_factory=dict)
    """They are by their addresses."""
    tries: Sequence[BlockTrie] = ()
    entries: Sequence[ProvenTransaction] = ()
    places: Sequence[Query] = ()
    """Queries about entries, each with the index of its entry, and that of the entry's first log, in the block."""
    faults: dict[int, WaitReason] = field(default_factory=dict)
    """Faults of proofs by the ids of queries."""
    complete: list[int] = field(default_factory=list)
    """Ids of queries that lack no proof."""


def waiting(blocks: Sequence[Block], most: int) -> Waiting:
    """Return what the blocks' open queries wait for, with at most this number of accounts."""
    by_pk = {block.pk: block for block in blocks}
    asking: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    selecting: dict[Block, dict[NamedEntry, list[int]]] = defaultdict(lambda: defaultdict(list))
    rows = open_queries(blocks).filter(step=StepKind.INITIAL_STATE).order_by("pk")
    for pk, block, kind, *names in rows.values_list("pk", "block", "kind", "address", "transaction_name", "block_of"):
        address, entry, selector = names
        asking[block or 0, kind, address if kind == QueryKind.ACCOUNT else ""].append(pk)
        # A query about the selecting entry itself finds it when its own proof is fetched.
        if selector and selector != entry:
            selecting[by_pk[block or 0]][NamedEntry(selector)].append(pk)
    # The order is random, so that accounts for which nodes hang aren't always first. Users with few come before others,
    # because the turn may end before all are fetched.
    accounts = [key for key in asking if key[1] == QueryKind.ACCOUNT]
    sizes = Counter(by_pk[block].queued_for_id for block, *_ in accounts)
    accounts = sorted(random.sample(accounts, len(accounts)), key=lambda key: sizes[by_pk[key[0]].queued_for_id])
    chosen = [*(key for key in asking if key[1] != QueryKind.ACCOUNT), *accounts[:most]]
    queries = Query.objects.in_bulk([pk for key in chosen for pk in asking[key]])
    subjects = [
        Subject(
            by_pk[block],
            QueryKind(kind),
            address,
            [queries[pk] for pk in asking[block, kind, address] if pk in queries],
        )
        for block, kind, address in chosen
    ]
    return Waiting(subjects, selecting, {block for block, *_ in accounts[most:]})


def fetch(source: RpcClient, waiting: Waiting, should_end: Callable[[], bool]) -> Iterator[dict[int, Fetched]]:
    """Yield what the subjects lack, by block id, in parts. The caller stores each part before the next.

    The first part is what the stored headers show, for which no proof is fetched. Later parts complete no query whose
    block doesn't hold the entry that selects it.
    """
    unselected = _unselected(source, waiting, should_end) if waiting.selecting else {}
    subjects: dict[QueryKind, list[Subject]] = defaultdict(list)
    for subject in waiting.subjects:
        subjects[subject.kind].append(subject)
    headers: dict[int, Fetched] = defaultdict(Fetched)
    for block, faults in unselected.items():
        headers[block].faults |= faults
    for subject in subjects[QueryKind.HEADER]:
        _add_header(headers[subject.block.pk], subject)
    accounts = _fetch_accounts(source, subjects[QueryKind.ACCOUNT])
    entries = ({subject.block.pk: _fetch_entries(source, subject)} for subject in subjects[QueryKind.ENTRY])
    for part in chain([headers], accounts, entries):
        for block, fetched in part.items():
            fetched.complete = [pk for pk in fetched.complete if pk not in unselected.get(block, ())]
        yield part


def _unselected(
    source: RpcClient, waiting: Waiting, should_end: Callable[[], bool]
) -> dict[int, dict[int, WaitReason]]:
    """Return the faults of queries whose blocks don't hold the entries that select them.

    The faults are by block id and query id. Admission checked blocks that existed then, but a reorganisation moves
    transactions. If the turn should end, the blocks that aren't read wait for the next one.
    """
    faults: dict[int, dict[int, WaitReason]] = defaultdict(dict)
    for place, (block, named) in enumerate(waiting.selecting.items()):
        if place and should_end():
            waiting.leave([*waiting.selecting][place:])
            break
        entries = block_contents.find(source, _header(block), named)
        for entry, fault in entries.faults.items():
            faults[block.pk] |= dict.fromkeys(named[entry], _fault(fault, _receipts_of(source, block)))
    return faults


def _add_header(fetched: Fetched, subject: Subject) -> None:
    """Complete the queries whose properties the header has.

    Admission checked that it has them. A header without them comes from another chain's node.
    """
    header = _header(subject.block)
    for query in subject.queries:
        if lacking := facts.lacking(header, query.header_fields):
            why = facts.why_lacking(subject.block.source_chain_id, header, lacking)
            fetched.faults[query.pk] = wait("node_doubted", reason=why)
        else:
            fetched.complete.append(query.pk)


def _fetch_accounts(source: RpcClient, accounts: Sequence[Subject]) -> Iterator[dict[int, Fetched]]:
    """Yield the missing proofs of accounts.

    An account that no node proves delays the others only for the time of its request.
    """
    for some in chunks(accounts, _ACCOUNTS_PER_FETCH):
        pieces = list(by_size(_proof_requests(some), lambda pair: len(pair[1].slots), _SLOTS_PER_FETCH)) or [[]]
        failed: set[Subject] = set()
        for piece in pieces:
            part: dict[int, Fetched] = defaultdict(Fetched)
            kept_proofs = [block_contents.take_proof(source, request) for _, request in piece]
            unknown = [request for (_, request), proof in zip(piece, kept_proofs, strict=True) if proof is None]
            # The additional request shows whether a node that serves no proof is down.
            beside = [questions.plain("eth_chainId")] if unknown else ()
            answers = iter(source.proofs(unknown, beside=beside))
            for (account, request), proof in zip(piece, kept_proofs, strict=True):
                fetched, answer = part[account.block.pk], proof or next(answers)
                if isinstance(answer, ChainError):
                    failed.add(account)
                    fault = _fault(answer, facts.proof_of(source.chain, request))
                    fetched.faults |= dict.fromkeys([query.pk for query in account.queries], fault)
                else:
                    # Several requests may be about the same account, with different slots.
                    proven = fetched.accounts.setdefault(account.address, ProvenAccount(_row(account.block, answer)))
                    proven.slots.extend(
                        SlotProof(slot=f"0x{slot.slot:064x}", nodes=list(map(hex_data, slot.nodes)), value=slot.value)
                        for slot in answer.slots
                    )
            if piece is pieces[-1]:
                # It completes the proofs of all accounts.
                for account in some:
                    if account not in failed:
                        part[account.block.pk].complete += [query.pk for query in account.queries]
            yield part


def _row(block: Block, answer: VerifiedAccountProof) -> AccountProof:
    account = answer.account
    return AccountProof(
        block=block,
        address=answer.address,
        nodes=list(map(hex_data, answer.nodes)),
        nonce=account.nonce,
        balance=account.balance,
        storage_root=hex_data(account.storage_root),
        code_hash=hex_data(account.code_hash),
    )


def _proof_requests(accounts: Sequence[Subject]) -> Iterator[tuple[Subject, ProofRequest]]:
    """Yield requests for proofs of these accounts that aren't stored or were pruned.

    The slots per request are limited, so an account with thousands of slots needs several requests. Nodes may be too
    slow for many slots, so each consecutive failure halves the limit.
    """
    stored = AccountProof.objects.exclude(nodes=[]).filter(
        block__in={account.block.pk for account in accounts}, address__in={account.address for account in accounts}
    )
    ids = {(block, address): pk for block, address, pk in stored.values_list("block", "address", "pk")}
    rows = SlotProof.objects.exclude(nodes=[]).filter(account__in=ids.values())
    stored_slots = set(rows.values_list("account", "slot"))
    for account in accounts:
        block, pk = account.block, ids.get((account.block.pk, account.address))
        missing_slots = [slot for query in account.queries for slot in query.slots if (pk, slot) not in stored_slots]
        keys = list(dict.fromkeys(int(slot, 16) for slot in missing_slots))
        most = max(1, _SLOTS_PER_REQUEST >> min(block.attempts, 16))
        for slots in list(chunks(keys, most)) or ([[]] if pk is None else []):
            block_hash, root = bytes.fromhex(block.hash[2:]), bytes.fromhex(block.state_root[2:])
            yield account, ProofRequest(block.number, block_hash, root, account.address, slots)


def _fetch_entries(source: RpcClient, subject: Subject) -> Fetched:
    """Read the receipts that queries about a block's entries need, and its transactions if any needs them."""
    block, named = subject.block, {query.pk: NamedEntry.of_query(query) for query in subject.queries}
    entries = block_contents.find(source, _header(block), named.values())
    faults = {
        pk: _fault(entries.faults[entry], _receipts_of(source, block))
        for pk, entry in named.items()
        if entry in entries.faults
    }
    if (contents := entries.contents) is None:
        return Fetched(faults=faults)
    found = {pk: entries.found[entry] for pk, entry in named.items() if pk not in faults}
    # All transactions are kept where one is named by its hash, too: they show that it is the one at the index.
    needed = {fact.root for entry in found.values() for fact in entry.facts}
    needed |= {HeaderField.TRANSACTIONS_ROOT} if any(named[pk].needs_transactions for pk in found) else set()
    by_index = {entry.index: entry for entry in found.values()}
    sizes = contents.size(by_index).entries
    return Fetched(
        tries=[BlockTrie.of(block, root, values) for root, values in contents.tries.items() if root in needed],
        entries=[
            ProvenTransaction(
                block=block,
                index=index,
                receipt=entry.value,
                hash=entry.hash,
                receipt_size=sizes[index].receipt,
                log_count=sizes[index].logs,
                transaction_size=sizes[index].transaction,
            )
            for index, entry in by_index.items()
        ],
        places=[Query(pk=pk, transaction_index=entry.index, first_log=entry.first_log) for pk, entry in found.items()],
        faults=faults,
        complete=list(found),
    )


def _header(block: Block) -> Header:
    return Header.decode(bytes(block.header_rlp or b""))


def _receipts_of(source: RpcClient, block: Block) -> str:
    """Return the words for a block's receipts in sentences."""
    return f"the receipts of block {block.number} of {source.chain.label}"


def _fault(error: ChainError | Unprovable, of_what: str) -> WaitReason:
    """Return the fault of queries whose proof can't be had. `of_what` names the proof in sentences."""
    match error:
        case Unprovable():
            return error.reason
        case RpcRefused():
            logger.info("no proof: %s: %s", of_what, error.for_operators)
            return wait("node_fails" if error.may_pass else "proof_refused", problem=error.about(of_what))
        case UnverifiedProof():
            return wait("proof_refused", problem=f"{'; '.join(error.reasons)}.")
        case _:
            return waits.fault(error)
