"""Facts: the words that queries request, as proven here and as held by the facts registry."""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import F, Q
from eth_utils.crypto import keccak

from batch_query_client.amounts import is_amount
from chains.chains_file import Chain
from chains.encoding import hex_data
from chains.nodes import questions
from chains.nodes.chain_nodes import Question
from chains.nodes.node_errors import ChainError, InvalidReply, Reverted
from chains.nodes.questions import BlockIdentifier, ProofRequest, VerifiedAccountProof, VerifiedSlotProof
from chains.nodes.receipts import TransactionReceipt
from chains.nodes.rpc import RpcClient, result
from chains.tries.header import INTEGER_FIELDS, SHARED_FIELDS, Header
from chains.tries.packed import HASHED_HEADER_FIELDS
from chains.tries.trie import NO_CODE_HASH, StateAccount
from config.database.statements import chunks
from proving.models import AccountProof, ProvenTransaction, SlotProof
from proving.registries.deployments import Registry, selector
from queries.columns import AccountField, EntryField, HeaderField
from queries.models import Batch, BatchStatus, Block, Query, QueryKind
from queries.storage_layout import Part
from queries.waits import Value, WaitReason, wait


@dataclass(frozen=True)
class AccountFact:
    address: str  # EIP-55
    field: AccountField


@dataclass(frozen=True)
class SlotFact:
    address: str  # EIP-55
    slot: str  # 0x and 64 hexadecimal digits
    name: Mapping[str, Any] | None = field(default=None, compare=False)  # of a slot that the request has named


@dataclass(frozen=True)
class HeaderFact:
    field: HeaderField


@dataclass(frozen=True)
class EntryFact:
    entry: int  # index in the block
    field: EntryField

    @property
    def root(self) -> HeaderField:
        """Return the field of the header that is the root of its trie."""
        return HeaderField.TRANSACTIONS_ROOT if self.field == EntryField.HASH else HeaderField.RECEIPTS_ROOT


@dataclass(frozen=True)
class LogFact:
    """The hash of a log."""

    entry: int  # index in the block
    log: int  # index in the receipt

    @property
    def root(self) -> HeaderField:
        """Return the field of the header that is the root of its trie."""
        return HeaderField.RECEIPTS_ROOT


@dataclass(frozen=True)
class TimeFact:
    """The number of the block that was the latest at a time."""

    timestamp: int  # unix seconds


Fact = AccountFact | SlotFact | EntryFact | LogFact | HeaderFact | TimeFact

Missing = Mapping[Fact, Collection[int]]
"""Facts that the registry doesn't hold, with the ids of the queries that ask for them."""

_ACCOUNT_NUMBERS = frozenset({AccountField.NONCE, AccountField.BALANCE})

# Maximum rows named in one statement.
_CHUNK = 500
# Maximum pairs of account and slot that a statement names, because the database looks up each slot in each account.
# Above this number, all stored slots of the accounts are read, although there may be thousands for other queries.
_NAMED_SLOTS = 5000


def of(query: Query) -> list[Fact]:
    """Return the facts that a query requests. Those of a transaction need its index."""
    facts: list[Fact] = []
    match query.kind:
        case QueryKind.ACCOUNT:
            facts += [AccountFact(query.address, field) for field in query.account_fields]
            facts += [SlotFact(query.address, slot, query.slot_names.get(slot)) for slot in query.slots]
        case QueryKind.ENTRY if (index := query.transaction_index) is not None:
            facts += [EntryFact(index, field) for field in query.transaction_fields]
            facts += [LogFact(index, log) for log in query.known_logs]
        case QueryKind.HEADER:
            facts += [HeaderFact(field) for field in query.header_fields]
    if query.timestamp is not None:
        facts.append(TimeFact(query.timestamp))
    return facts


def roots_of(facts: Iterable[Fact]) -> list[HeaderFact]:
    """Return the roots below which the facts about transactions are proven."""
    return [HeaderFact(field) for field in sorted({fact.root for fact in entry_facts(facts)})]


def entry_facts(facts: Iterable[object]) -> list[EntryFact | LogFact]:
    """Return the facts about transactions, whose proofs need no state root."""
    return [fact for fact in facts if isinstance(fact, EntryFact | LogFact)]


def proves_facts(block: str, transaction: str = "") -> Q:
    """Select a query's transactions that prove its facts. Others only extend the registry's trust.

    `block` is the lookup path to the query's block, and `transaction` the lookup path to the transaction.
    """
    prefix = f"{transaction}__" if transaction else ""
    return Q(**{f"{prefix}extends": None}) | Q(**{f"{prefix}accumulates": F(block)})


def needs_header(fact: object, roots: Collection[HeaderField]) -> bool:
    """Return whether the proof of a fact takes the header although the state root is known.

    `roots` of the block's receipts and transactions are facts.
    """
    if isinstance(fact, EntryFact | LogFact):
        return fact.root not in roots
    return isinstance(fact, HeaderFact | TimeFact)


def slots_by_account(facts: Iterable[object]) -> dict[str, list[int]]:
    """Return the addresses of the accounts that these facts are about, and the slots of each, if any."""
    slots: dict[str, list[int]] = {}
    for fact in facts:
        if isinstance(fact, AccountFact | SlotFact):
            of_account = slots.setdefault(fact.address, [])
            of_account += [int(fact.slot, 16)] if isinstance(fact, SlotFact) else []
    return slots


# --- Facts as proven here ---------------------------------------------------------------------------------------------


def name(fact: Fact) -> str:
    match fact:
        case AccountFact() | EntryFact() | HeaderFact():
            return fact.field.name
        case LogFact():
            return "LOG"
        case SlotFact():
            return "SLOT"
        case TimeFact():
            return "BLOCK_AT_TIMESTAMP"


def is_number(fact: Fact) -> bool:
    """Return whether the fact's word is a number."""
    match fact:
        case AccountFact():
            return fact.field in _ACCOUNT_NUMBERS
        case HeaderFact():
            return fact.field in INTEGER_FIELDS
        case EntryFact():
            return fact.field != EntryField.HASH
        case LogFact():
            return False
        case SlotFact() | TimeFact():
            return True


def number(fact: Fact, word: bytes) -> int | None:
    """Return the number that a fact's word is, or the part of the word that a slot's name states. None: it is none."""
    if isinstance(fact, SlotFact):
        return Part.stated(fact.name).number(int.from_bytes(word), is_amount=is_amount(fact.name))
    return int.from_bytes(word) if is_number(fact) else None


def may_be_told(batch: Batch, query: Query) -> bool:
    """Return whether the registry holds the query's facts.

    No worker checks this for a rejected batch, so the result is False.
    """
    return query.step is None and batch.status != BatchStatus.REJECTED


def proven(
    facts_by_block: Mapping[Block, Iterable[Fact]], entries: Iterable[ProvenTransaction] | None = None
) -> dict[int, dict[Fact, bytes]]:
    """Return, by the block's id, the 32-byte word of each of these facts that has a stored proof.

    The number of statements doesn't grow with the number of blocks. `entries` has what is stored of the blocks'
    transactions if it has been read.
    """
    distinct_facts = {block: list(dict.fromkeys(facts)) for block, facts in facts_by_block.items()}
    accounts = _accounts(distinct_facts)
    slots = _slots(distinct_facts, accounts)
    entry_words = _entry_words(distinct_facts, entries)
    words: dict[int, dict[Fact, bytes]] = {}
    for block, facts in distinct_facts.items():
        of_accounts = {address: account_words(proof) for (pk, address), proof in accounts.items() if pk == block.pk}
        of_header: dict[HeaderField, bytes] = {}
        if block.header_rlp is not None and any(isinstance(fact, HeaderFact) for fact in facts):
            of_header = header_words(Header.decode(bytes(block.header_rlp)))
        here = words[block.pk] = {}
        for fact in facts:
            match fact:
                case AccountFact():
                    word = of_accounts.get(fact.address, {}).get(fact.field)
                case SlotFact():
                    word = slots.get((block.pk, fact))
                case EntryFact() | LogFact():
                    word = entry_words.get((block.pk, fact))
                case HeaderFact():
                    word = of_header.get(fact.field)
                case TimeFact():
                    word = block.number.to_bytes(32)
            if word is not None:
                here[fact] = word
    return words


def stored_proof(row: AccountProof, slots: int) -> VerifiedAccountProof:
    """Return a stored proof in the form in which it was fetched, with the proofs of at most `slots` slots."""
    account = StateAccount(
        exists=row.code_hash != hex_data(NO_CODE_HASH),
        nonce=row.nonce,
        balance=row.balance,
        storage_root=bytes.fromhex(row.storage_root[2:]),
        code_hash=bytes.fromhex(row.code_hash[2:]),
    )
    slot_rows = row.slot_proofs.all()[:slots]
    proven = (VerifiedSlotProof(int(slot.slot, 16), slot.value, tuple(_nodes(slot.nodes))) for slot in slot_rows)
    return VerifiedAccountProof(row.address, account, tuple(_nodes(row.nodes)), tuple(proven))


def _nodes(stored: Sequence[str]) -> Iterator[bytes]:
    return (bytes.fromhex(node[2:]) for node in stored)


def account_words(proof: AccountProof) -> dict[AccountField, bytes]:
    return {
        AccountField.NONCE: proof.nonce.to_bytes(32),
        AccountField.BALANCE: proof.balance.to_bytes(32),
        AccountField.STORAGE_ROOT: bytes.fromhex(proof.storage_root[2:]),
        AccountField.CODE_HASH: bytes.fromhex(proof.code_hash[2:]),
    }


def header_words(header: Header) -> dict[HeaderField, bytes]:
    """Return the words of the properties that this header is known to have. Long ones become their hash."""
    return {
        field: keccak(content) if field in HASHED_HEADER_FIELDS else content.rjust(32, b"\0")
        for field, content in zip(HeaderField, header.fields, strict=False)
        if field in HASHED_HEADER_FIELDS or len(content) <= 32
    }


def lacking(header: Header, fields: Collection[HeaderField]) -> list[HeaderField]:
    """Return the requested fields that this header doesn't have, or isn't known to have."""
    known = header_words(header) if fields else ()
    return [field for field in fields if field not in known]


def why_lacking(chain_id: int, header: Header, fields: Iterable[HeaderField]) -> WaitReason:
    """Return the wait for header fields that a header lacks.

    Later forks add fields, and other layouts have other fields.
    """
    names = ", ".join(field.name for field in fields)
    values: dict[str, Value] = {"block": header.number, "chain": chain_id, "fields": names}
    if header.is_ethereums:
        return wait("property_unknown_to_fork", **values)
    return wait("property_not_ethereums", shared=SHARED_FIELDS, **values)


def proof_of(chain: Chain, request: ProofRequest) -> str:
    """Return the words "the proof of account … at block …", for sentences."""
    return f"the proof of account {request.address} at block {request.block_number} of {chain.label}"


def _accounts(facts_by_block: Mapping[Block, Iterable[Fact]]) -> dict[tuple[int, str], AccountProof]:
    """Return stored proofs by (block's id, address). They may include pairs that no fact needs."""
    addresses = {
        fact.address for facts in facts_by_block.values() for fact in facts if isinstance(fact, AccountFact | SlotFact)
    }
    proofs_by_address: dict[tuple[int, str], AccountProof] = {}
    for chunk in chunks(sorted(addresses), _CHUNK):
        proofs = AccountProof.objects.defer("nodes").filter(block__in=list(facts_by_block), address__in=chunk)
        proofs_by_address |= {(proof.block_id, proof.address): proof for proof in proofs}
    return proofs_by_address


def _slots(
    facts_by_block: Mapping[Block, Iterable[Fact]], accounts: Mapping[tuple[int, str], AccountProof]
) -> dict[tuple[int, SlotFact], bytes]:
    """Return the words of stored slot proofs by (block's id, fact)."""
    slot_facts = {
        (accounts[block.pk, fact.address].pk, fact.slot): (block.pk, fact)
        for block, facts in facts_by_block.items()
        for fact in facts
        if isinstance(fact, SlotFact) and (block.pk, fact.address) in accounts
    }
    names = {slot for _, slot in slot_facts}
    words: dict[tuple[int, SlotFact], bytes] = {}
    for chunk in chunks(sorted({account for account, _ in slot_facts}), _CHUNK):
        rows = SlotProof.objects.filter(account__in=chunk)
        if len(names) * len(chunk) <= _NAMED_SLOTS:
            rows = rows.filter(slot__in=names)
        for account, slot, value in rows.values_list("account", "slot", "value"):
            if (account, slot) in slot_facts:
                words[slot_facts[account, slot]] = value.to_bytes(32)
    return words


def _entry_words(
    facts_by_block: Mapping[Block, Iterable[Fact]], stored: Iterable[ProvenTransaction] | None
) -> dict[tuple[int, Fact], bytes]:
    """Return the words of facts about transactions whose receipts are stored, by (block's id, fact)."""
    asked: dict[tuple[int | None, int | None], list[EntryFact | LogFact]] = defaultdict(list)
    for block, facts in facts_by_block.items():
        for fact in facts:
            if isinstance(fact, EntryFact | LogFact):
                asked[block.pk, fact.entry].append(fact)
    words: dict[tuple[int, Fact], bytes] = {}
    for row in stored_entries(asked) if stored is None else stored:
        receipt = TransactionReceipt.stored(bytes(row.receipt))
        for fact in asked[row.block_id, row.index]:
            if (word := entry_word(fact, receipt, row.hash)) is not None:
                words[row.block_id, fact] = word
    return words


def stored_entries(places: Collection[tuple[int | None, int | None]]) -> Iterator[ProvenTransaction]:
    """Yield what is stored of the transactions with these blocks (ids) and indexes within them."""
    for chunk in chunks(sorted({index for _, index in places if index is not None}), _CHUNK):
        rows = ProvenTransaction.objects.filter(block__in={block for block, _ in places}, index__in=chunk)
        yield from (row for row in rows.iterator() if (row.block_id, row.index) in places)


def entry_word(fact: EntryFact | LogFact, receipt: TransactionReceipt | None, tx_hash: str) -> bytes | None:
    """Return the word of a fact about a transaction with this receipt and hash (0x…, or empty).

    None if it isn't known, or doesn't exist.
    """
    if isinstance(fact, EntryFact) and fact.field == EntryField.HASH:
        return bytes.fromhex(tx_hash[2:]) or None
    if receipt is None:
        return None
    if isinstance(fact, LogFact):
        return receipt.logs[fact.log].hash if fact.log < len(receipt.logs) else None
    number = receipt_number(receipt, fact.field)
    return None if number is None else number.to_bytes(32)


def receipt_number(receipt: TransactionReceipt, field: EntryField) -> int | None:
    """Return a property of a receipt. None if it doesn't have it."""
    return {
        EntryField.STATUS: receipt.status,
        EntryField.TYPE: receipt.type,
        EntryField.CUMULATIVE_GAS_USED: receipt.cumulative_gas_used,
        EntryField.LOG_COUNT: len(receipt.logs),
    }.get(field)


# --- Facts in the registry --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RegistryView:
    """The registry's facts about one source block, in the state of one destination block."""

    state_root: bytes  # zeros if the header is not accumulated
    facts: Mapping[Fact, bytes | None]  # None for a fact that isn't proven
    vouches: bool | ChainError = False  # True if the registry would trust the requested header


class NoRegistry(InvalidReply):
    """The code at the address, if any, doesn't answer as a facts registry does."""


@dataclass(frozen=True)
class ViewRequest:
    """A request for the registry's facts about one source block."""

    block_number: int
    facts: Sequence[Fact]
    at: BlockIdentifier
    """The state of the destination."""
    header_hash: bytes | None = None
    """The hash of a header that a transaction may bring. None: the registry isn't asked about one."""
    vouched_at: BlockIdentifier = "pending"
    """The state in which the registry is asked about the header. Only the pending one has the hash of a chain's head.
    """

    def questions(self, registry: Registry) -> list[Question[bytes]]:
        calls = [registry.state_root(self.block_number)]
        calls += [(registry.address, _calldata(self.block_number, fact, tries=True)) for fact in self.facts]
        asked = [questions.call(*call, self.at) for call in calls]
        if self.header_hash is not None:
            asked.append(questions.call(*registry.vouches(self.block_number, self.header_hash), self.vouched_at))
        return asked

    def view(self, registry: Registry, answers: Sequence[bytes | ChainError]) -> RegistryView | ChainError:
        words: list[bytes] = []
        for answer in answers[: 1 + len(self.facts)]:
            if isinstance(answer, ChainError) and not isinstance(answer, Reverted):
                return answer
            # A root is one word; a fact is whether it is proven, and its word.
            if not isinstance(answer, bytes) or len(answer) != (64 if words else 32):
                return NoRegistry(f"There is no facts registry at {registry.address} as of block {self.at!r}.")
            words.append(answer)
        root, *field_words = words
        held = {fact: registry.decode_try(word) for fact, word in zip(self.facts, field_words, strict=True)}
        vouches: bool | ChainError = False
        if self.header_hash is not None:
            try:
                vouches = registry.decode_vouches(answers[-1])
            except ChainError as error:
                vouches = error
        return RegistryView(root, held, vouches)


def views(rpc: RpcClient, registry: Registry, requests: Sequence[ViewRequest]) -> list[RegistryView | ChainError]:
    """Ask the registry about several blocks in one exchange. A block without an answer has its error instead."""
    told, _ = views_with(rpc, registry, requests, ())
    return told


def views_with(
    rpc: RpcClient, registry: Registry, requests: Sequence[ViewRequest], others: Sequence[Question[Any]]
) -> tuple[list[RegistryView | ChainError], list[Any]]:
    """Return the `views`, and the answers to other questions in the same exchange."""
    asked = [request.questions(registry) for request in requests]
    answers, of_others = rpc.ask([question for of_request in asked for question in of_request], others)
    remaining = iter(answers)
    return [
        request.view(registry, list(itertools.islice(remaining, len(of_request))))
        for request, of_request in zip(requests, asked, strict=True)
    ], of_others


def read(
    rpc: RpcClient, registry: Registry, block_number: int, facts: Iterable[Fact], *, at: BlockIdentifier
) -> RegistryView:
    """Ask the registry about one block. Raises `NodeUnavailable`, also if there is no registry."""
    return result(views(rpc, registry, [ViewRequest(block_number, list(dict.fromkeys(facts)), at)])[0])


def calldata(block_number: int, fact: Fact) -> str:
    """Return the calldata (0x and hex) that reads a fact from its registry.

    The call reverts if the fact isn't proven.
    """
    return hex_data(_calldata(block_number, fact, tries=False))


# `accountField` of a slot is another function.
_ACCOUNT_FIELD = "accountField(address,uint256,uint8)"


def _calldata(block_number: int, fact: Fact, *, tries: bool) -> bytes:
    """Return the calldata that reads a fact. If it `tries`, `Registry.decode_try` reads the answer."""
    # Each argument is one word.
    function, words = "", tuple[int, ...]()
    match fact:
        case AccountFact():
            function, words = _ACCOUNT_FIELD, (int(fact.address, 16), block_number, fact.field)
        case SlotFact():
            function, words = "accountStorageSlotValues", (int(fact.address, 16), block_number, int(fact.slot, 16))
        case HeaderFact():
            function, words = "headerField", (block_number, fact.field)
        case EntryFact(field=EntryField.HASH):
            function, words = "transactionHash", (block_number, fact.entry)
        case EntryFact():
            function, words = "receiptField", (block_number, fact.entry, fact.field)
        case LogFact():
            function, words = "logHash", (block_number, fact.entry, fact.log)
        case TimeFact():
            function, words = "blockAtTimestamp", (fact.timestamp,)
    # A batch may have thousands of facts, and a general encoder takes ten times as long.
    name = f"try{function[0].upper()}{function[1:]}" if tries else function
    return selector("FactsRegistry", name) + b"".join(word.to_bytes(32) for word in words)


# --- Comparison -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    missing: Missing
    contradiction: WaitReason | None = None
    """Set if the registry holds another value than was proven here."""


def compare(queries: Sequence[Query], view: RegistryView, here: Mapping[Fact, bytes]) -> Comparison:
    """Compare a block's facts in these queries with the registry's. `here` has the facts as proven here."""
    missing: dict[Fact, list[int]] = defaultdict(list)
    for query in queries:
        for fact in of(query):
            word = view.facts.get(fact)
            # The registry's block for the time may belong to a chain that a reorganisation has removed.
            if word is None or (isinstance(fact, TimeFact) and word != here[fact]):
                missing[fact].append(query.pk)
            elif word != here.get(fact):
                return Comparison({}, wait("value_contradicted", fact=str(fact)))
    return Comparison(missing)
