"""The answers of the chains about what batches ask of one source chain: admission's first step.

A batch selects blocks by number, time, tag or transaction. The source chain tells which these are, and what their
entries, headers and tries are like; the registry's chain tells what it holds of them. Questions that batches share are
asked once.
"""

import math
import random
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar
from weakref import WeakKeyDictionary

from chains.chains_file import Chain
from chains.encoding import HISTORY_CONTRACT, read_object, read_quantity
from chains.nodes import questions
from chains.nodes.chain_nodes import Question
from chains.nodes.node_errors import ChainError, NodeUnavailable, OtherAccounts, RpcRefused, UnverifiedProof
from chains.nodes.questions import Fees, ProofRequest, VerifiedAccountProof
from chains.nodes.rpc import FEE_QUESTIONS, RpcClient, result
from chains.tries.header import Header
from config.database.statements import by_size, chunks
from proving import connections, facts, money
from proving.connections import OpenConnection
from proving.facts import AccountFact, Fact, SlotFact, TimeFact, ViewRequest
from proving.packing import gas
from proving.packing.gas import Sample
from proving.reading import block_contents, provable_blocks
from proving.reading.block_contents import UNKNOWN_SIZE, Asked, BlockSize, NamedEntry, Unprovable
from proving.working import heads
from queries import waits
from queries.batch_request import Selector
from queries.models import BlockTag, Query
from queries.waits import WaitReason, wait

Answer = TypeVar("Answer")

_LACKS = "A node of chain {} lacks headers that it must have."
# Seconds after which a turn reads no further block.
_SECONDS_OF_RECEIPTS = 0.5
# Maximum facts and blocks of which it is kept what was found.
_MOST_KEPT_FACTS = 50_000
# Maximum blocks, and transactions, that nodes are compared about.
_MOST_COMPARED = 100
# Headers, blocks or facts that are read at a time.
_PER_READ = 200

Requests = Mapping[Selector, Collection[Asked]]
"""The facts and transactions that a batch asks of one source chain, by the selector of their block."""


def requests_of(queries: Iterable[Query]) -> Mapping[int, Mapping[str, Requests]]:
    """Group what queries ask by source chain (id) and batch (id)."""
    requests: dict[int, dict[str, dict[Selector, dict[Asked, None]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(dict))
    )
    for query in queries:
        of_batch = requests[query.source_chain_id][query.batch_id]
        of_batch[Selector.of(query)].update(dict.fromkeys(block_contents.asked_of(query)))
    return requests


@dataclass
class SourceAnswers:
    """An open connection, and what its chains have answered about blocks so far, by their numbers."""

    connection: OpenConnection
    head: Header
    """The source chain's newest block, read at most a moment ago."""
    headers: dict[int, Header] = field(default_factory=dict)
    errors: dict[int, ChainError] = field(default_factory=dict)
    """Why a chain's answer about a block is missing."""
    accumulated: set[int] = field(default_factory=set)
    """The blocks whose state roots the registry knows."""
    vouched: set[int] = field(default_factory=set)
    """The blocks whose headers the registry can take now."""
    held: set[tuple[int, Fact]] = field(default_factory=set)
    """The facts that the registry holds, and roots of transactions' facts, with the numbers of their blocks."""
    fees: Fees | None = None
    """The destination's fees. None: it hasn't been asked."""

    @property
    def source(self) -> Chain:
        return self.connection.source_rpc.chain

    def complete(self, number: int) -> Header | None:
        """Return the header of a block about which both chains have answered."""
        return None if number in self.errors else self.headers[number]

    def read_headers(self, numbers: Sequence[int]) -> None:
        """Read the headers that aren't known yet, or note why they can't be read."""
        for number, header in zip(
            numbers, heads.headers(self.connection.source_rpc, numbers, self.headers), strict=True
        ):
            if isinstance(header, Header):
                self.headers[number] = header
                self.errors.pop(number, None)
            else:
                self.errors[number] = header or NodeUnavailable(_LACKS.format(self.source.id))


def inquire(
    destination: int, source: int, ends_at: float | None = None, beside: Iterable[Requests] = ()
) -> SourceAnswers:
    """Open a connection, and read its source chain's head. If `ends_at` is given, a client waits until then.

    The headers of blocks in the requests `beside` may be read in the same exchange.

    Raises `Unusable`, `NodeUnavailable`, `RpcRefused`.
    """
    connection = connections.open_unless_stopped(destination, source, ends_at)
    rpc = connection.source_rpc
    if ends_at is not None:
        return SourceAnswers(connection, rpc.head())
    numbers = {selector.number for requests in beside for selector in requests if selector.number is not None}
    seen = heads.recent(rpc.chain, rpc, numbers)
    return SourceAnswers(connection, seen.latest, dict(seen.known))


def ask_all(answers: SourceAnswers, selections: Sequence["SelectedBlocks"]) -> None:
    """Ask all that the cost of these batches depends on. Raises `OutOfTime` between exchanges."""
    _find_entries(answers, selections)
    _ask_registry(answers, selections)
    _ask_proofs(answers, selections)


# --- The blocks that a batch selects ----------------------------------------------------------------------------------


@dataclass
class SelectedBlocks:
    """The blocks of a source chain that a batch selects, and what is requested and known there."""

    source: Chain
    head: Header
    """The source chain's newest block."""
    blocks: Mapping[Selector, int] = field(default_factory=dict)
    existing: dict[int, Collection[Asked]] = field(default_factory=dict)
    """The facts at blocks that exist, by block number, in ascending order."""
    later: Mapping[int, Collection[Asked]] = field(default_factory=dict)
    """The facts at blocks that are still to come, by block number."""
    times: Mapping[int, Collection[Asked]] = field(default_factory=dict)
    """The facts at times that may still get a later block, by time (unix seconds)."""
    unknown: Sequence[str] = ()
    """The transactions (hashes) that select a block, and that no node knows in one."""
    too_early: Sequence[int] = ()
    """The times (unix seconds) before the first block whose header can be read."""
    no_final: str | None = None
    """Why the final block isn't known, if it is selected: a sentence, empty if the node says nothing."""
    sizes: dict[int, BlockSize] = field(default_factory=dict)
    """The sizes of requested transactions by the numbers of their blocks."""
    unprovable: dict[int, WaitReason] = field(default_factory=dict)
    """Why requested transactions can't be proven. The codes are also those of rejections."""
    is_unread: bool = False
    """True if the receipts of its blocks, or of other batches', take longer than a turn."""
    sample: Sample = field(default_factory=Sample)
    """The shape of the source chain's tries, from a proof if a node served one."""
    no_proof: WaitReason | None = None
    """Why no node will ever serve a proof."""
    unproven: ProofRequest | None = None
    """The request for that proof."""
    has_other_accounts: bool = False
    """True if the chain has accounts that no transaction can prove."""
    unserved: list[WaitReason] = field(default_factory=list)
    """The waits for proofs that no node serves now."""
    fault: ChainError | None = None
    """The error because of which the selected blocks, or their contents, aren't known."""
    headers: Mapping[int, Header] = field(default_factory=dict)
    """The headers of its blocks, and of other batches', by number."""
    agreed: Mapping[int, Header] = field(default_factory=dict)
    """The headers that every node of the chain told alike when asked again, of blocks that would reject the batch."""
    final: int = 0
    """The newest block that every node called final then."""

    def is_certain(self, number: int) -> bool:
        """Return whether no later answer of a node can change what this block's header, or its contents, show.

        A header is the word of one node, which may belong to another chain. Therefore every configured node must have
        told the same one when asked again, and the block as final. A single node agrees only with itself, so admission
        waits for its next check. A tag or a time may select another block later, or by another node.
        """
        agreed, header = self.agreed.get(number), self.headers.get(number)
        by_number = not any(
            at == number and (selector.tag or selector.timestamp is not None) for selector, at in self.blocks.items()
        )
        return agreed is not None and agreed == header and number <= self.final and by_number

    @property
    def coming(self) -> list[Collection[Asked]]:
        return [*self.later.values(), *self.times.values()]

    @property
    def asks_accounts(self) -> bool:
        """Return whether any requested fact needs a proof of an account."""
        return any(takes_proof(facts) for facts in (*self.existing.values(), *self.coming))

    @property
    def seconds(self) -> float:
        """Return the seconds until all selected blocks exist."""
        blocks, seconds = max(self.later, default=0) - self.head.number, max(self.times, default=0)
        return max(0.0, blocks * self.source.block_seconds, seconds - self.head.timestamp)

    @property
    def waits(self) -> list[WaitReason]:
        """Return the waits for selected blocks that don't exist yet, and for proofs."""
        source, last = self.source.id, max(self.later) if len(self.later) > 1 else None
        blocks = [heads.not_there_yet(source, min(self.later), self.head.number, last)] if self.later else []
        return [*blocks, *([time_to_come(source, self.times)] if self.times else []), *self.unserved]


def time_to_come(source: int, times: Collection[int]) -> WaitReason:
    """Return the wait for the blocks of these times (unix seconds)."""
    return wait("time_to_come", chain=source, time=min(times), last=max(times) if len(times) > 1 else None)


def select(answers: SourceAnswers, requests: Requests) -> SelectedBlocks:
    """Find the selected blocks, or the reason why they can't be found now or ever.

    Raises `OutOfTime` between exchanges.
    """
    head, connection = answers.head, answers.connection
    blocks: dict[Selector, int] = {}
    at: dict[int, dict[Asked, None]] = defaultdict(dict)
    times: dict[int, Collection[Asked]] = {}
    unknown: list[str] = []
    too_early: list[int] = []
    no_final: str | None = None
    for selector, asked in requests.items():
        connection.check_time()
        try:
            number: int | str | None = selector.number
            if selector.tag:
                number = head.number if selector.tag == BlockTag.LATEST else _finalized(connection.source_rpc, head)
            elif selector.transaction:
                number = _block_of(connection.source_rpc, selector.transaction)
                # A node that is ahead of the others may know a block above the head.
                number = None if number is None or number > head.number else number
            elif selector.timestamp is not None:
                if selector.timestamp >= head.timestamp:
                    times[selector.timestamp] = asked
                    continue
                number = connection.block_at(selector.timestamp, head)
        except ChainError as error:
            return SelectedBlocks(answers.source, head, fault=error)
        if isinstance(number, str):
            no_final = number
        elif number is None and selector.transaction:
            unknown.append(selector.transaction)
        elif number is None:
            too_early.append(selector.timestamp or 0)
        else:
            blocks[selector] = number
            # The block's transactions show whether it holds the one that selects it.
            selecting = [NamedEntry(selector.transaction)] if selector.transaction else []
            at[number].update(dict.fromkeys([*selecting, *asked]))
    existing: dict[int, Collection[Asked]] = {number: at[number] for number in sorted(at) if number <= head.number}
    later = {number: facts for number, facts in at.items() if number > head.number}
    return SelectedBlocks(
        answers.source, head, blocks, existing, later, times, unknown, too_early, no_final, headers=answers.headers
    )


def difference(rpc: RpcClient, selected: SelectedBlocks, rejecting: Iterable[int]) -> str:
    """Return a sentence about a block that nodes tell otherwise than the selection has it. Empty: none does.

    It may be a block by its hash, a transaction's, or the first one, before which a time would be. The blocks that are
    `rejecting` the batch are compared first.
    """
    in_order = dict.fromkeys((*rejecting, *selected.existing))
    seen = {number: selected.headers.get(number) for number in islice(in_order, _MOST_COMPARED)}
    if sentence := rpc.difference({selected.head.number: selected.head, **seen}):
        return sentence
    for selector, number in islice(selected.blocks.items(), _MOST_COMPARED):
        told = rpc.answers_of_each(_number_of(selector.transaction)) if selector.transaction else {}
        if {number, None}.issuperset(told.values()):
            continue
        by_host = ", ".join(f"{told_number} by {host}" for host, told_number in told.items())
        return f"The nodes of {rpc.chain.label} tell different blocks of {selector.transaction}: {number}, {by_host}."
    first = rpc.answers_of_each(questions.header(1)) if selected.too_early else {}
    for host, header in first.items():
        if header and header.timestamp <= max(selected.too_early):
            return f"{host} tells an earlier first block of {rpc.chain.label} than another node."
    return ""


def _block_of(rpc: RpcClient, transaction: str) -> int | None:
    """Return the number of the block that holds a transaction (hash). None if no node knows one.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    return _known_to_any(rpc, _number_of(transaction))


def _number_of(transaction: str) -> Question[int | None]:
    return Question(("eth_getTransactionByHash", [transaction]), _number_in)


def _known_to_any(rpc: RpcClient, question: Question[Answer | None]) -> Answer | None:
    """Return the answer of the first node that knows one. None is an answer too, so that no other node is asked."""
    known = rpc.answer(question)
    return known if known is not None else next(filter(None, rpc.answers_of_each(question).values()), None)


def _number_in(transaction: object) -> int | None:
    number = None if transaction is None else read_object(transaction).get("blockNumber")
    return None if number is None else read_quantity(number)


def _finalized(rpc: RpcClient, head: Header) -> int | str:
    """Return the number of the newest final block, or a sentence about why it isn't known.

    The sentence is a node's refusal, or says that nodes report the first block for too long. It is empty if the node
    reports no final block.

    Raises `NodeUnavailable`, and `RpcRefused` if another node may have an answer.
    """
    try:
        header = _known_to_any(rpc, questions.header("finalized"))
    except RpcRefused as refused:
        if refused.may_pass:
            raise
        return str(refused)
    if header is None:
        return ""
    return heads.why_not_final(header, head) or header.number


# --- The entries of blocks that exist ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _BlockEntries:
    """The entries that a batch names in a block, as facts, and their sizes."""

    facts: Sequence[Fact] = ()
    size: BlockSize = UNKNOWN_SIZE
    unprovable: WaitReason | None = None


_Names = tuple[NamedEntry, ...]

# Entries that were found in blocks, by the block's hash and the names. The oldest go first.
_entries_by_client: WeakKeyDictionary[RpcClient, dict[tuple[bytes, _Names], _BlockEntries]] = WeakKeyDictionary()
# Lanes of several destinations, and clients, use the same source's at once.
_entries_lock = threading.Lock()


@dataclass
class _NamingBatch:
    """A batch that names transactions."""

    selected: SelectedBlocks
    names: Mapping[int, _Names]
    """The transactions by the numbers of their blocks."""
    found: dict[int, _BlockEntries] = field(default_factory=dict)
    """The entries of the blocks that were read, by number."""

    @property
    def unread(self) -> list[int]:
        return [number for number in self.names if number not in self.found]


def _find_entries(answers: SourceAnswers, selections: Sequence[SelectedBlocks]) -> None:
    """Put facts in the place of the transactions that batches name.

    A turn reads for about half a second, so that it delays no other batches, and the next turn goes on. Batches that
    need the fewest blocks come first, and in every second turn, by lot, the one that has waited longest. For a client
    all are read.
    """
    batches = [_NamingBatch(selected, names) for selected in selections if (names := _names_in(selected))]
    if not batches:
        return
    connection = answers.connection
    answers.read_headers(sorted({number for batch in batches for number in batch.unread}))
    for batch in batches:
        _take_remembered(answers, batch)
    ends_at = math.inf if connection.has_client else time.monotonic() + _SECONDS_OF_RECEIPTS
    by_need = sorted(batches, key=lambda batch: len(batch.unread))
    (leader,) = random.sample((batches[0], by_need[0]), 1)
    in_order = [leader, *(batch for batch in by_need if batch is not leader)]
    unread_blocks = [(batch, number) for batch in in_order for number in batch.unread]
    for place, (naming, number) in enumerate(unread_blocks):
        if place and time.monotonic() > ends_at:
            break
        _read_block(answers, naming, number)
    for batch in batches:
        _remember(answers, batch)
        _put_facts(batch)


def _names_in(selected: SelectedBlocks) -> dict[int, _Names]:
    """Return the transactions that a batch names, by the numbers of their blocks."""
    names = {
        number: tuple(fact for fact in of_block if isinstance(fact, NamedEntry))
        for number, of_block in selected.existing.items()
    }
    return {number: of_block for number, of_block in names.items() if of_block}


def _put_facts(batch: _NamingBatch) -> None:
    """Put the found facts in the place of the names, if all blocks were read."""
    selected = batch.selected
    if batch.unread or selected.fault:
        selected.is_unread, selected.existing = True, {}
        return
    _take_names_out(selected)
    for number, entries in sorted(batch.found.items()):
        if entries.unprovable:
            selected.unprovable[number] = entries.unprovable
        else:
            selected.existing[number] = list(dict.fromkeys([*selected.existing[number], *entries.facts]))
            selected.sizes[number] = entries.size


def _take_names_out(selected: SelectedBlocks) -> None:
    for number, of_block in selected.existing.items():
        selected.existing[number] = [fact for fact in of_block if not isinstance(fact, NamedEntry)]


def _read_block(answers: SourceAnswers, batch: _NamingBatch, number: int) -> None:
    """Find the transactions that a batch names in a block, unless the batch has a fault. Raises `OutOfTime`."""
    answers.connection.check_time()
    if batch.selected.fault:
        return
    if error := answers.errors.get(number):
        batch.selected.fault = error
        return
    entries = block_contents.find(answers.connection.source_rpc, answers.headers[number], batch.names[number])
    match next(iter(entries.faults.values()), None):
        case Unprovable(reason=reason):
            batch.found[number] = _BlockEntries(unprovable=reason)
        case ChainError() as error:
            batch.selected.fault = error
        case None:
            assert entries.contents is not None, "a block without faults was read"
            entry_facts = list(dict.fromkeys(fact for entry in entries.found.values() for fact in entry.facts))
            size = entries.contents.size({entry.index for entry in entries.found.values()})
            batch.found[number] = _BlockEntries(entry_facts, size)


def _remember(answers: SourceAnswers, batch: _NamingBatch) -> None:
    """Keep what was found for the next turn, so that batches of blocks too large to keep are read to their end."""
    with _entries_lock:
        remembered = _entries_by_client.setdefault(answers.connection.source_rpc, {})
        for number, entries in batch.found.items():
            remembered[answers.headers[number].hash, batch.names[number]] = entries
        size = sum(1 + len(entries.facts) for entries in remembered.values())
        while size > _MOST_KEPT_FACTS:
            size -= 1 + len(remembered.pop(next(iter(remembered))).facts)


def _take_remembered(answers: SourceAnswers, batch: _NamingBatch) -> None:
    with _entries_lock:
        remembered = _entries_by_client.get(answers.connection.source_rpc, {})
        for number in batch.unread:
            header = answers.complete(number)
            if header and (entries := remembered.pop((header.hash, batch.names[number]), None)):
                batch.found[number] = entries


# --- Headers, and what the registry knows -----------------------------------------------------------------------------


def _ask_registry(answers: SourceAnswers, selections: Sequence[SelectedBlocks]) -> None:
    """Ask about the blocks that exist, and about each block that follows one selected by a time."""
    contract, destination = answers.connection.registry.contract, answers.connection.destination_rpc
    requested: dict[int, dict[Fact, None]] = defaultdict(dict)
    for selected in selections:
        for number, of_block in selected.existing.items():
            requested[number].update((fact, None) for fact in of_block if not isinstance(fact, NamedEntry))
            if any(isinstance(fact, TimeFact) for fact in of_block):
                requested.setdefault(number + 1, {})
    usual_tip = money.usual_tip(destination.chain)
    for numbers in chunks(sorted(requested), _PER_READ):
        answers.read_headers(numbers)
        answers.connection.check_time()
        headers = [header for number in numbers if (header := answers.complete(number))]
        requests = [ViewRequest(header.number, [], "latest", header.hash) for header in headers]
        views, of_fees = facts.views_with(destination, contract, requests, () if answers.fees else FEE_QUESTIONS)
        answers.fees = answers.fees or destination.fees_by(of_fees, usual_tip)
        for header, answer in zip(headers, views, strict=True):
            try:
                view = result(answer)
                if any(view.state_root):
                    answers.accumulated.add(header.number)
                if result(view.vouches):
                    answers.vouched.add(header.number)
            except ChainError as error:
                answers.errors[header.number] = error
        answers.connection.check_time()
    _ask_facts(answers, requested)
    answers.fees = answers.fees or destination.fees(usual_tip)


def _ask_facts(answers: SourceAnswers, requested: Mapping[int, Collection[Fact]]) -> None:
    """Ask which of these facts the registry holds about blocks that it knows."""
    rpc, contract = answers.connection.destination_rpc, answers.connection.registry.contract
    asked = {
        number: [
            *(of_block if number in answers.accumulated else facts.entry_facts(of_block)),
            *facts.roots_of(of_block),
        ]
        for number, of_block in requested.items()
        if of_block and answers.complete(number)
    }
    pieces = [
        (number, part)
        for number, of_block in asked.items()
        for part in chunks(list(dict.fromkeys(of_block)), _PER_READ)
    ]
    for parcel in by_size(pieces, lambda piece: len(piece[1]), _PER_READ):
        views = facts.views(rpc, contract, [ViewRequest(number, part, "latest") for number, part in parcel])
        for (number, part), view in zip(parcel, views, strict=True):
            if isinstance(view, ChainError):
                answers.errors[number] = view
            else:
                answers.held.update((number, fact) for fact in part if view.facts[fact] is not None)
        answers.connection.check_time()


# --- Proofs of accounts -----------------------------------------------------------------------------------------------


def _ask_proofs(answers: SourceAnswers, selections: Sequence[SelectedBlocks]) -> None:
    """Ask for one proof for each batch, at the newest of its blocks that needs one. It shows the shape of the tries.

    Also ask for one at the oldest block, because many nodes keep only the newest states.
    """
    requests = [_sampled(answers, selected) for selected in selections]
    all_requests = [request for of_batch in requests for request in of_batch]
    # The additional question shows that a node which serves no proof isn't down.
    beside = [questions.plain("eth_chainId")] if all_requests else ()
    served = answers.connection.source_rpc.proofs(all_requests, beside=beside)
    block_contents.keep_proofs(answers.connection.source_rpc, all_requests, served)
    answers.connection.check_time()
    remaining = iter(served)
    for selected, of_batch in zip(selections, requests, strict=True):
        _judge_proofs(answers, selected, [(request, next(remaining)) for request in of_batch])


def _sampled(answers: SourceAnswers, selected: SelectedBlocks) -> list[ProofRequest]:
    """Return requests for proofs at the oldest and the newest block with requested accounts."""
    blocks = [
        (header, of_block)
        for number, of_block in selected.existing.items()
        if (header := answers.complete(number)) and takes_proof(of_block)
    ]
    if blocks:
        of_all = gas.sampled(blocks[-1][0], (fact for _, of_block in blocks for fact in of_block))
        return [*(gas.sampled(*oldest) for oldest in blocks[: len(blocks) > 1]), of_all]
    unvouched = (number for number in selected.existing if number not in answers.vouched)
    if selected.coming or any(map(answers.complete, unvouched)):
        # The newest state shows the tries for future blocks, and for paths, which lead through this contract.
        head = answers.head
        return [ProofRequest(head.number, head.hash, head.state_root, HISTORY_CONTRACT)]
    return []


def _judge_proofs(
    answers: SourceAnswers,
    selected: SelectedBlocks,
    served: Sequence[tuple[ProofRequest, VerifiedAccountProof | ChainError]],
) -> None:
    """Take the shape of the tries from the proofs, or note why no node serves them."""
    source = answers.source
    selected.has_other_accounts = any(isinstance(answer, OtherAccounts) for _, answer in served)
    for request, answer in served:
        selected.sample = Sample() if isinstance(answer, ChainError) else Sample.of(answer)
        if isinstance(answer, RpcRefused) and (selected.asks_accounts or not isinstance(answer, OtherAccounts)):
            selected.no_proof = provable_blocks.why_unproven(
                answers.connection.source_rpc, answers.head, request, answer
            )
        elif takes_proof(selected.existing.get(0, ())):
            selected.no_proof = genesis_not_proven(source.id, request, answer)
        if selected.no_proof:
            selected.unproven = request
            break
        if request.block_number > answers.head.number - provable_blocks.KEPT_BY_ALL:
            # Proofs of recent blocks are requested again when their queries are proven.
            continue
        if isinstance(answer, UnverifiedProof):
            # Proving, too, asks such nodes again for some minutes.
            selected.unserved.append(waits.fault(answer))
        elif isinstance(answer, NodeUnavailable):
            selected.fault = selected.fault or answer
            break
    if selected.no_proof:
        selected.sample, selected.unserved = Sample(), []


def takes_proof(facts: Collection[Asked]) -> bool:
    """Return whether any of these facts needs a proof of an account."""
    return any(isinstance(fact, AccountFact | SlotFact) for fact in facts)


def genesis_not_proven(
    source: int, request: ProofRequest, answer: VerifiedAccountProof | ChainError
) -> WaitReason | None:
    """Return why block 0 isn't proven if every node proves it by another root, as those of development chains do."""
    if request.block_number or not isinstance(answer, UnverifiedProof):
        return None
    return wait("genesis_not_proven", chain=source, problem=f"{'; '.join(answer.reasons)}.")
