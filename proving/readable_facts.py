"""Values of accounts, slots, receipts, logs and withdrawals, each with the proof that a view of `FactsReader` takes.

The chains are asked, and each proof is verified. Nothing is stored or sent.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import rlp

from chains.contract_artifacts import NO_CONTRACT
from chains.nodes import withdrawals
from chains.nodes.node_errors import ChainError, OtherRoot, RpcRefused
from chains.nodes.questions import ProofRequest, VerifiedAccountProof
from chains.nodes.receipts import ReceiptLog
from chains.nodes.rpc import RpcClient, result
from chains.nodes.withdrawals import Withdrawal
from chains.tries.header import Header
from chains.tries.trie import EMPTY_CODE_HASH, StateAccount
from config.error_answers import Refused
from proving import facts
from proving.admission import admission_checks, answers
from proving.admission.answers import Requests, SelectedBlocks
from proving.facts import AccountFact, HeaderFact, LogFact, RegistryView, SlotFact, ViewRequest
from proving.reading import block_contents, provable_blocks
from proving.reading.asking import ChainUnavailable, ProofUnavailable, asking_nodes
from proving.reading.block_contents import Asked, BlockEntries, FoundEntry, NamedEntry, Unprovable
from proving.registries.deployments import Unusable, call
from queries.batch_request import BatchRequest, BodyFault, InvalidRequest, Selector, pointer
from queries.columns import AccountField, EntryField, HeaderField
from queries.strict_json import INVALID, UNSUPPORTED

_RECEIPTS_ROOT = HeaderFact(HeaderField.RECEIPTS_ROOT)
_WITHDRAWALS_ROOT = HeaderFact(HeaderField.WITHDRAWALS_ROOT)


@dataclass(frozen=True)
class ReceiptPart:
    """A property of a transaction's receipt, or one of its logs."""

    transaction: int
    """The transaction's index in its block."""
    hash: bytes | None
    """The transaction's hash: by the trie of transactions if the request names it, else as nodes tell it."""
    content: EntryField | ReceiptLog
    log_index: int | None
    """The index of the log within the receipt."""
    word: bytes
    """The property's value, or the hash of the log that a registry stores."""

    @property
    def place(self) -> list[int]:
        """Return the indexes that a view takes."""
        return [self.transaction, *([] if self.log_index is None else [self.log_index])]


@dataclass(frozen=True)
class WithdrawalPart:
    """A withdrawal of a block."""

    place: int
    """Within the block."""
    withdrawal: Withdrawal


@dataclass(frozen=True)
class ReadableFact:
    """A fact with the proof that a view of `FactsReader` takes."""

    source: int
    selector: Selector
    block: int
    fact: AccountFact | SlotFact | ReceiptPart | WithdrawalPart
    word: bytes
    """The value as the view returns it: of an absent account the code hash is the keccak256 of nothing. Of a log: the
    hash that a registry stores. Of a withdrawal: the amount."""
    proof: bytes
    """One RLP list: the nodes on the way to the value, the root first."""
    root: bytes
    """The root of the trie: the account's storage root for a slot, else the block's root of state, receipts or
    withdrawals."""
    is_root_known: bool
    """The registry holds this root, so that the view answers."""
    reader: str
    """Address of a `FactsReader` of the registry; empty if none is known."""

    @property
    def calldata(self) -> bytes:
        """Return the calldata of the view for a `FactsReader`."""
        place: list[int | str | bytes]
        match self.fact:
            case ReceiptPart():
                place = [*self.fact.place]
            case WithdrawalPart():
                place = [self.fact.place]
            case SlotFact(address=address, slot=slot):
                place = [address, bytes.fromhex(slot[2:])]
            case AccountFact():
                place = [self.fact.address]
        return call("FactsReader", NO_CONTRACT, self.view, self.source, self.block, *place, self.proof)[1]

    @property
    def view(self) -> str:
        """Return the name of the view."""
        if isinstance(self.fact, WithdrawalPart):
            return "withdrawalByProof"
        if isinstance(self.fact, ReceiptPart):
            return "receiptByProof" if self.fact.log_index is None else "logByProof"
        return "slotByProof" if isinstance(self.fact, SlotFact) else "accountByProof"

    @property
    def root_property(self) -> str:
        """Return the property whose word the root is: of the account for a slot, else of the block's header."""
        if isinstance(self.fact, WithdrawalPart):
            return HeaderField.WITHDRAWALS_ROOT.name
        if isinstance(self.fact, ReceiptPart):
            return HeaderField.RECEIPTS_ROOT.name
        return AccountField.STORAGE_ROOT.name if isinstance(self.fact, SlotFact) else HeaderField.STATE_ROOT.name


def of_request(request: BatchRequest) -> list[ReadableFact]:
    """Return what a request names of accounts, transactions and withdrawals, with their proofs, which are verified.

    Raises `ChainUnavailable`, `InvalidRequest`, and `Refused`: busy, or invalid_request if a block never comes.
    """
    requests: dict[int, dict[Selector, Collection[Asked]]] = defaultdict(dict)
    for source, by_batch in answers.requests_of(request.queries).items():
        for of_source in by_batch.values():
            requests[source].update(of_source)
    places: dict[int, dict[Selector, Sequence[int]]] = defaultdict(dict)
    for source, selector, of_block in request.withdrawals:
        requests[source].setdefault(selector, ())
        places[source][selector] = of_block
    with asking_nodes() as ends_at:
        return [
            proof
            for source, of_chain in requests.items()
            for proof in _of_source(request.destinationChainId, source, of_chain, places[source], ends_at)
        ]


def _of_source(
    destination: int, source: int, requests: Requests, places: Mapping[Selector, Sequence[int]], ends_at: float
) -> Iterator[ReadableFact]:
    """Yield what is asked of a source chain. `places` has those of withdrawals."""
    try:
        told = answers.inquire(destination, source, ends_at)
    except Unusable as why:
        raise ChainUnavailable(str(why.reason)) from None
    selected = answers.select(told, requests)
    _require_all(selected)
    rpc, connection = told.connection.source_rpc, told.connection
    headers = dict(zip(selected.existing, rpc.known_headers([*selected.existing]), strict=True))
    connection.check_time()
    accounts = _accounts(rpc, told.head, headers, selected)
    connection.check_time()
    paid_out = _withdrawals(rpc, headers, {selected.blocks[selector]: selector for selector in places})
    connection.check_time()
    roots = []
    for number, of_block in selected.existing.items():
        addresses = facts.slots_by_account(of_block)
        of_storage = [AccountFact(address, AccountField.STORAGE_ROOT) for address in addresses]
        of_header = [_RECEIPTS_ROOT, *([_WITHDRAWALS_ROOT] if number in paid_out else [])]
        roots.append(ViewRequest(number, [*of_header, *of_storage], "latest"))
    views = facts.views(connection.destination_rpc, connection.registry.contract, roots)
    held = dict(zip(selected.existing, map(result, views), strict=True))
    entries: dict[int, BlockEntries] = {}
    for selector, number in selected.blocks.items():
        at = _SelectedBlock(source, selector, headers[number], held[number], connection.registry.reader)
        if named := [asked for asked in requests[selector] if isinstance(asked, NamedEntry)]:
            if number not in entries:
                connection.check_time()
                at_block = [fact for fact in selected.existing[number] if isinstance(fact, NamedEntry)]
                asking = [transaction for transaction in at_block if transaction.asks]
                entries[number] = block_contents.find(rpc, headers[number], asking, most_bytes=None)
            yield from _of_transactions(at, entries[number], named)
        yield from _of_accounts(at, accounts, requests[selector])
        if selector in places:
            yield from _of_withdrawals(at, paid_out[number], places[selector])


@dataclass(frozen=True)
class _SelectedBlock:
    """A block as a request names it, and what a registry holds of it."""

    source: int
    selector: Selector
    header: Header
    held: RegistryView
    reader: str

    @property
    def place(self) -> tuple[str, ...]:
        """Return where the request names the block."""
        return "data", str(self.source), self.selector.text

    def fact(
        self,
        fact: AccountFact | SlotFact | ReceiptPart | WithdrawalPart,
        word: bytes,
        nodes: Sequence[bytes],
        root: bytes,
        known: bytes | None,
    ) -> ReadableFact:
        """Return a fact. `known` is the root that the registry holds."""
        number, encoded = self.header.number, rlp.encode(list(nodes))
        return ReadableFact(self.source, self.selector, number, fact, word, encoded, root, root == known, self.reader)


def _of_transactions(at: _SelectedBlock, entries: BlockEntries, named: Sequence[NamedEntry]) -> Iterator[ReadableFact]:
    root, known = at.header.receipts_root, at.held.facts[_RECEIPTS_ROOT]
    for part in _receipt_parts(at.header.number, entries, named, at.place):
        yield at.fact(part, part.word, entries.receipt_nodes[part.transaction], root, known)


def _of_accounts(
    at: _SelectedBlock, accounts: Mapping[tuple[int, str], VerifiedAccountProof], requested: Collection[Asked]
) -> Iterator[ReadableFact]:
    for fact in requested:
        if not isinstance(fact, AccountFact | SlotFact):
            continue
        proof = accounts[at.header.number, fact.address]
        if isinstance(fact, SlotFact):
            slot = next(each for each in proof.slots if each.slot == int(fact.slot, 16))
            known = at.held.facts[AccountFact(fact.address, AccountField.STORAGE_ROOT)]
            yield at.fact(fact, slot.value.to_bytes(32), slot.nodes, proof.account.storage_root, known)
        else:
            word = _word(proof.account, fact.field)
            yield at.fact(fact, word, proof.nodes, at.header.state_root, at.held.state_root)


def _of_withdrawals(
    at: _SelectedBlock, of_block: Sequence[Withdrawal], places: Sequence[int]
) -> Iterator[ReadableFact]:
    """Yield the withdrawals at these places. Raises `InvalidRequest`."""
    number, root, known = at.header.number, at.header.withdrawals_root, at.held.facts[_WITHDRAWALS_ROOT]
    ways = withdrawals.nodes(of_block, [place for place in places if place < len(of_block)])
    for position, place in enumerate(places):
        where: tuple[str | int, ...] = (*at.place, "withdrawals", position)
        if place >= len(of_block):
            raise _invalid(f"Block {number} has {len(of_block)} withdrawals, so none has the place {place}.", *where)
        if not withdrawals.are_readable(ways[place]):
            why = f"Withdrawal {place} of block {number} can't be shown: it, or a withdrawal beside it, is too short."
            raise _invalid(why, *where, code=UNSUPPORTED)
        word = of_block[place].amount.to_bytes(32)
        yield at.fact(WithdrawalPart(place, of_block[place]), word, ways[place], root, known)


def _require_all(selected: SelectedBlocks) -> None:
    """Raise an error unless all blocks that are selected exist: `Refused` (invalid_request) if one never will."""
    if selected.fault:
        raise selected.fault
    for rejection in admission_checks.of_blocks(selected):
        why = str(rejection.reason)
        raise ChainUnavailable(why) if rejection.retryable else Refused(INVALID, why)
    for reason in selected.waits:
        raise ChainUnavailable(str(reason))


def _accounts(
    rpc: RpcClient, head: Header, headers: Mapping[int, Header], selected: SelectedBlocks
) -> dict[tuple[int, str], VerifiedAccountProof]:
    """Return the proofs of accounts and their slots by block number and address.

    Raises `ProofUnavailable`, and `ChainError` if a proof may be had later.
    """
    asked = [
        ProofRequest(number, headers[number].hash, headers[number].state_root, address, slots)
        for number, of_block in selected.existing.items()
        for address, slots in facts.slots_by_account(of_block).items()
    ]
    proofs: dict[tuple[int, str], VerifiedAccountProof] = {}
    served = list(zip(asked, rpc.proofs(asked), strict=True))
    for request, answer in served:
        reason = (
            provable_blocks.why_unproven(rpc, head, request, answer)
            if isinstance(answer, RpcRefused)
            else answers.genesis_not_proven(rpc.chain.id, request, answer)
        )
        if reason:
            raise ProofUnavailable(reason)
    for request, answer in served:
        proofs[request.block_number, request.address] = result(answer)
    return proofs


def _withdrawals(
    rpc: RpcClient, headers: Mapping[int, Header], selectors: Mapping[int, Selector]
) -> dict[int, Sequence[Withdrawal]]:
    """Return the withdrawals of blocks by their numbers. `selectors` tells how the request names each block.

    Raises `ChainError`, and `InvalidRequest` if a block can't have any.
    """
    for number, selector in selectors.items():
        if not headers[number].withdrawals_root:
            place = "data", str(rpc.chain.id), selector.text, "withdrawals"
            raise _invalid(f"The header of block {number} has no WITHDRAWALS_ROOT.", *place)
    told = withdrawals.of_blocks(rpc, [headers[number] for number in selectors])
    for (number, selector), answer in zip(selectors.items(), told, strict=True):
        if isinstance(answer, OtherRoot) and withdrawals.is_root_of_storage(rpc, headers[number]):
            place = "data", str(rpc.chain.id), selector.text, "withdrawals"
            why = (
                f"Chain {rpc.chain.id} has no withdrawals from a beacon chain: the WITHDRAWALS_ROOT of block {number} "
                "is the root of a contract's storage there."
            )
            raise _invalid(why, *place, code=UNSUPPORTED)
    return dict(zip(selectors, map(result, told), strict=True))


def _receipt_parts(
    number: int, entries: BlockEntries, named: Sequence[NamedEntry], place: Sequence[str]
) -> Iterator[ReceiptPart]:
    """Yield what is asked of a block's transactions. `place` is where the request names the block.

    Raises `ChainUnavailable`, `ChainError`, and `InvalidRequest` if there is no such transaction or log.
    """
    there: dict[int, FoundEntry] = {}
    for transaction in named:
        at = *place, "transactions", transaction.name
        match entries.faults.get(transaction):
            case ChainError() as error:
                raise error
            case Unprovable() as why:
                raise _invalid(str(why), *at, *why.place) if entries.contents else ChainUnavailable(str(why))
        found = entries.found[transaction]
        if found.index in there:
            raise _invalid(f"Transaction {found.index} of block {number} is named twice.", *at)
        there[found.index] = found
    assert entries.contents
    for index, found in there.items():
        tx_hash = bytes.fromhex(found.hash[2:]) or entries.contents.receipts.hashes[index]
        for fact in found.facts:
            if isinstance(fact, LogFact):
                log = found.receipt.logs[fact.log]
                yield ReceiptPart(index, tx_hash, log, fact.log, log.hash)
            else:
                value = facts.receipt_number(found.receipt, fact.field) or 0
                yield ReceiptPart(index, tx_hash, fact.field, None, value.to_bytes(32))


def _invalid(sentence: str, *place: str | int, code: str = INVALID) -> InvalidRequest:
    """Return the error of a value of the request."""
    return InvalidRequest([BodyFault(pointer(*place), sentence, code)])


def _word(account: StateAccount, field: AccountField) -> bytes:
    return {
        AccountField.NONCE: account.nonce.to_bytes(32),
        AccountField.BALANCE: account.balance.to_bytes(32),
        AccountField.STORAGE_ROOT: account.storage_root,
        AccountField.CODE_HASH: account.code_hash if account.exists else EMPTY_CODE_HASH,
    }[field]
