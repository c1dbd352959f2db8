"""Values of accounts, slots, receipts and logs, each with the proof that a view of `FactsReader` takes.

The chains are asked, and each proof is verified. Nothing is stored or sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import rlp

from chains.contract_artifacts import NO_CONTRACT
from chains.nodes.node_errors import ChainError
from chains.nodes.questions import ProofRequest, VerifiedAccountProof
from chains.nodes.receipts import ReceiptLog
from chains.nodes.rpc import RpcClient, result
from chains.tries.header import Header
from chains.tries.trie import EMPTY_CODE_HASH, StateAccount
from config.error_answers import Refused
from proving import facts
from proving.admission import admission_checks, answers
from proving.admission.answers import Requests, SelectedBlocks
from proving.facts import AccountFact, HeaderFact, LogFact, SlotFact, ViewRequest
from proving.reading import block_contents
from proving.reading.asking import ChainUnavailable, asking_nodes
from proving.reading.block_contents import BlockEntries, FoundEntry, NamedEntry, Unprovable
from proving.registries.deployments import Unusable, call
from queries.batch_request import BatchRequest, BodyFault, InvalidRequest, Selector, pointer
from queries.columns import AccountField, EntryField, HeaderField
from queries.strict_json import INVALID

_RECEIPTS_ROOT = HeaderFact(HeaderField.RECEIPTS_ROOT)


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
class ReadableFact:
    """A fact with the proof that a view of `FactsReader` takes."""

    source: int
    selector: Selector
    block: int
    fact: AccountFact | SlotFact | ReceiptPart
    word: bytes
    """The value as the view returns it: of an absent account the code hash is the keccak256 of nothing. Of a log: the
    hash that a registry stores."""
    proof: bytes
    """One RLP list: the nodes on the way to the value, the root first."""
    root: bytes
    """The root of the trie: the account's storage root for a slot, else the block's root of state or receipts."""
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
            case SlotFact(address=address, slot=slot):
                place = [address, bytes.fromhex(slot[2:])]
            case AccountFact():
                place = [self.fact.address]
        return call("FactsReader", NO_CONTRACT, self.view, self.source, self.block, *place, self.proof)[1]

    @property
    def view(self) -> str:
        """Return the name of the view."""
        if isinstance(self.fact, ReceiptPart):
            return "receiptByProof" if self.fact.log_index is None else "logByProof"
        return "slotByProof" if isinstance(self.fact, SlotFact) else "accountByProof"

    @property
    def root_property(self) -> str:
        """Return the property whose word the root is: of the account for a slot, else of the block's header."""
        if isinstance(self.fact, ReceiptPart):
            return HeaderField.RECEIPTS_ROOT.name
        return AccountField.STORAGE_ROOT.name if isinstance(self.fact, SlotFact) else HeaderField.STATE_ROOT.name


def of_request(request: BatchRequest) -> list[ReadableFact]:
    """Return the facts about accounts and transactions that a request names, with their proofs, which are verified.

    Raises `ChainUnavailable`, `InvalidRequest`, and `Refused`: busy, or invalid_request if a block never comes.
    """
    with asking_nodes() as ends_at:
        return [
            proof
            for source, requests in answers.requests_of(request.queries).items()
            for of_source in requests.values()
            for proof in _of_source(request.destinationChainId, source, of_source, ends_at)
        ]


def _of_source(destination: int, source: int, requests: Requests, ends_at: float) -> Iterator[ReadableFact]:
    try:
        told = answers.inquire(destination, source, ends_at)
    except Unusable as why:
        raise ChainUnavailable(str(why.reason)) from None
    selected = answers.select(told, requests)
    _require_all(selected)
    rpc, connection = told.connection.source_rpc, told.connection
    headers = dict(zip(selected.existing, rpc.known_headers([*selected.existing]), strict=True))
    connection.check_time()
    accounts = _accounts(rpc, headers, selected)
    connection.check_time()
    roots = []
    for number, of_block in selected.existing.items():
        addresses = facts.slots_by_account(of_block)
        of_storage = [AccountFact(address, AccountField.STORAGE_ROOT) for address in addresses]
        roots.append(ViewRequest(number, [_RECEIPTS_ROOT, *of_storage], "latest"))
    views = facts.views(connection.destination_rpc, connection.registry.contract, roots)
    held = dict(zip(selected.existing, map(result, views), strict=True))
    entries: dict[int, BlockEntries] = {}
    for selector, number in selected.blocks.items():
        header, view, reader = headers[number], held[number], connection.registry.reader
        if named := [asked for asked in requests[selector] if isinstance(asked, NamedEntry)]:
            if number not in entries:
                connection.check_time()
                at_block = [fact for fact in selected.existing[number] if isinstance(fact, NamedEntry)]
                asking = [transaction for transaction in at_block if transaction.asks]
                entries[number] = block_contents.find(rpc, header, asking, most_bytes=None)
            root, known = header.receipts_root, view.facts[_RECEIPTS_ROOT]
            for part in _receipt_parts(number, entries[number], named, ("data", str(source), selector.text)):
                encoded = rlp.encode(entries[number].receipt_nodes[part.transaction])
                yield ReadableFact(source, selector, number, part, part.word, encoded, root, root == known, reader)
        for fact in requests[selector]:
            if not isinstance(fact, AccountFact | SlotFact):
                continue
            proof = accounts[number, fact.address]
            if isinstance(fact, SlotFact):
                slot = next(each for each in proof.slots if each.slot == int(fact.slot, 16))
                nodes, word, root = slot.nodes, slot.value.to_bytes(32), proof.account.storage_root
                known = view.facts[AccountFact(fact.address, AccountField.STORAGE_ROOT)]
            else:
                nodes, word, root = proof.nodes, _word(proof.account, fact.field), header.state_root
                known = view.state_root
            encoded = rlp.encode(list(nodes))
            yield ReadableFact(source, selector, number, fact, word, encoded, root, root == known, reader)


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
    rpc: RpcClient, headers: Mapping[int, Header], selected: SelectedBlocks
) -> dict[tuple[int, str], VerifiedAccountProof]:
    """Return the proofs of accounts and their slots by block number and address. Raises `ChainUnavailable`."""
    asked = [
        ProofRequest(number, headers[number].hash, headers[number].state_root, address, slots)
        for number, of_block in selected.existing.items()
        for address, slots in facts.slots_by_account(of_block).items()
    ]
    proofs: dict[tuple[int, str], VerifiedAccountProof] = {}
    served = list(zip(asked, rpc.proofs(asked), strict=True))
    for request, answer in served:
        if reason := answers.genesis_not_proven(rpc.chain.id, request, answer):
            raise ChainUnavailable(str(reason))
    for request, answer in served:
        proofs[request.block_number, request.address] = result(answer)
    return proofs


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


def _invalid(sentence: str, *place: str | int) -> InvalidRequest:
    """Return the error of a value of the request."""
    return InvalidRequest([BodyFault(pointer(*place), sentence)])


def _word(account: StateAccount, field: AccountField) -> bytes:
    return {
        AccountField.NONCE: account.nonce.to_bytes(32),
        AccountField.BALANCE: account.balance.to_bytes(32),
        AccountField.STORAGE_ROOT: account.storage_root,
        AccountField.CODE_HASH: account.code_hash if account.exists else EMPTY_CODE_HASH,
    }[field]
