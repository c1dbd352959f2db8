"""Proofs for the views of `FactsReader` that take them, by asking the chains. Nothing is stored or sent."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import rlp

from chains.questions import ProofRequest
from chains.rpc import result
from chains.trie import EMPTY_CODE_HASH, StateAccount
from contracts import NO_CONTRACT
from proving import admission_checks, facts, shown_receipts
from proving.batch_estimate import EstimateUnavailable, asking_nodes, requested
from proving.block_selection import Requests, Selected, inquire, select
from proving.deployments import Unusable, call
from proving.facts import AccountFact, HeaderFact, SlotFact, ViewRequest
from proving.named_transactions import NamedTransaction
from proving.shown_receipts import ShownReceiptPart
from proving.source_estimate import SourceEstimate, genesis_not_proven
from queries.api_endpoint import ApiError
from queries.batch_request import BatchRequest, Selector
from queries.columns import AccountField, HeaderField
from queries.models import QueryKind
from queries.strict_json import INVALID

_RECEIPTS_ROOT = HeaderFact(HeaderField.RECEIPTS_ROOT)


@dataclass(frozen=True)
class ShownFact:
    """A fact with the proof that a view of `FactsReader` takes."""

    source: int
    selector: Selector
    block: int
    fact: AccountFact | SlotFact | ShownReceiptPart
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
            case ShownReceiptPart():
                place = [*self.fact.place]
            case SlotFact(address=address, slot=slot):
                place = [address, bytes.fromhex(slot[2:])]
            case AccountFact():
                place = [self.fact.address]
        return call("FactsReader", NO_CONTRACT, self.view, self.source, self.block, *place, self.proof)[1]

    @property
    def view(self) -> str:
        """Return the name of the view."""
        if isinstance(self.fact, ShownReceiptPart):
            return "receiptByProof" if self.fact.log_index is None else "logByProof"
        return "slotByProof" if isinstance(self.fact, SlotFact) else "accountByProof"

    @property
    def root_property(self) -> str:
        """Return the property whose word the root is: of the account for a slot, else of the block's header."""
        if isinstance(self.fact, ShownReceiptPart):
            return HeaderField.RECEIPTS_ROOT.name
        return AccountField.STORAGE_ROOT.name if isinstance(self.fact, SlotFact) else HeaderField.STATE_ROOT.name


def shown(request: BatchRequest) -> list[ShownFact]:
    """Return the facts about accounts and transactions that a request names, with their proofs, which are verified.

    Raises `EstimateUnavailable`, `ApiError`: invalid_request, and `Refused`: busy.
    """
    with asking_nodes() as ends_at:
        return [
            fact
            for source, requests in requested(request).items()
            for fact in _of_source(request, source, requests, ends_at)
        ]


def _of_source(request: BatchRequest, source: int, requests: Requests, ends_at: float) -> Iterator[ShownFact]:
    try:
        inquiry = inquire(request.destinationChainId, source, ends_at)
    except Unusable as why:
        raise EstimateUnavailable(str(why.reason)) from None
    selected = select(inquiry, requests)
    _require_all(source, selected)
    rpc, connection = inquiry.connection.source_rpc, inquiry.connection
    addresses = {number: facts.slots_by_account(of_block) for number, of_block in selected.existing.items()}
    headers = {header.number: header for header in rpc.known_headers([*addresses])}
    connection.check_time()
    proof_requests = [
        ProofRequest(number, headers[number].hash, headers[number].state_root, address, slots)
        for number, of_block in addresses.items()
        for address, slots in of_block.items()
    ]
    answers = list(zip(proof_requests, rpc.proofs(proof_requests), strict=True))
    for reason in filter(None, (genesis_not_proven(source, asked, answer) for asked, answer in answers)):
        raise EstimateUnavailable(str(reason))
    proofs = {(asked.block_number, asked.address): result(answer) for asked, answer in answers}
    connection.check_time()
    views = facts.views(
        connection.destination_rpc,
        connection.registry.contract,
        [
            ViewRequest(
                number,
                [_RECEIPTS_ROOT, *(AccountFact(address, AccountField.STORAGE_ROOT) for address in of_block)],
                "latest",
            )
            for number, of_block in addresses.items()
        ],
    )
    held = dict(zip(addresses, map(result, views), strict=True))
    reader = connection.registry.reader
    transactions = defaultdict[Selector, list[NamedTransaction]](list)
    for query in request.queries:
        if query.kind == QueryKind.ENTRY and query.source_chain_id == source:
            transactions[Selector.of(query)].append(NamedTransaction.of_query(query))
    for selector, number in selected.blocks.items():
        asked = transactions[selector]
        place = "data", str(source), selector.text, "transactions"
        for shown in shown_receipts.of_block(rpc, headers[number], asked, place) if asked else ():
            connection.check_time()
            root, known = headers[number].receipts_root, held[number].facts[_RECEIPTS_ROOT]
            yield ShownFact(source, selector, number, *shown, root, root == known, reader)
        for fact in requests[selector]:
            if not isinstance(fact, AccountFact | SlotFact):
                continue
            proof = proofs[number, fact.address]
            if isinstance(fact, SlotFact):
                slot = next(each for each in proof.slots if each.slot == int(fact.slot, 16))
                nodes, word, root = slot.nodes, slot.value.to_bytes(32), proof.account.storage_root
                known = held[number].facts[AccountFact(fact.address, AccountField.STORAGE_ROOT)]
            else:
                nodes, word, root = proof.nodes, _word(proof.account, fact.field), headers[number].state_root
                known = held[number].state_root
            encoded = rlp.encode(list(nodes))
            yield ShownFact(source, selector, number, fact, word, encoded, root, root == known, reader)


def _require_all(source: int, selected: Selected) -> None:
    """Raise an error unless all blocks that are selected exist: `ApiError` if one never will."""
    if selected.fault:
        raise selected.fault
    for rejection in admission_checks.rejections(None, [SourceEstimate(source, selected)]):
        why = str(rejection.reason)
        raise EstimateUnavailable(why) if rejection.retryable else ApiError(400, INVALID, why)
    for reason in selected.waits:
        raise EstimateUnavailable(str(reason))


def _word(account: StateAccount, field: AccountField) -> bytes:
    return {
        AccountField.NONCE: account.nonce.to_bytes(32),
        AccountField.BALANCE: account.balance.to_bytes(32),
        AccountField.STORAGE_ROOT: account.storage_root,
        AccountField.CODE_HASH: account.code_hash if account.exists else EMPTY_CODE_HASH,
    }[field]
