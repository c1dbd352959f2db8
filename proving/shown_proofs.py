"""Proofs for the views of `FactsReader` that take them, by asking the chains. Nothing is stored or sent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import rlp

from chains.header import Header
from chains.node_errors import NodeUnavailable
from chains.questions import ProofRequest, VerifiedAccountProof
from chains.rpc import result
from chains.trie import EMPTY_CODE_HASH
from contracts import NO_CONTRACT
from proving import admission_checks, facts, heads
from proving.batch_estimate import EstimateUnavailable, asking_nodes, requested
from proving.block_selection import Requests, Selected, inquire, select
from proving.connections import OpenConnection
from proving.deployments import Unusable, call
from proving.facts import AccountFact, SlotFact, ViewRequest
from proving.source_estimate import SourceEstimate
from queries.batch_request import BatchRequest, Selector
from queries.columns import AccountField


@dataclass(frozen=True)
class ShownFact:
    """A fact about an account, with the proof that a view of `FactsReader` takes."""

    source: int
    selector: Selector
    block: int
    fact: AccountFact | SlotFact
    word: bytes
    """The value as the view returns it: of an absent account the code hash is the keccak256 of nothing."""
    proof: bytes
    """One RLP list: the nodes of `eth_getProof`, the root first."""
    root: bytes
    """The root of the trie: the account's storage root for a slot, else the block's state root."""
    is_root_known: bool
    """The registry holds this root, so that the view answers."""
    reader: str
    """Address of a `FactsReader` of the registry; empty if none is known."""

    @property
    def calldata(self) -> bytes:
        """Return the calldata of the view for a `FactsReader`."""
        arguments: list[int | str | bytes] = [self.source, self.block, self.fact.address]
        if isinstance(self.fact, SlotFact):
            arguments.append(bytes.fromhex(self.fact.slot[2:]))
        return call("FactsReader", NO_CONTRACT, f"{self.view}ByProof", *arguments, self.proof)[1]

    @property
    def view(self) -> str:
        return "slot" if isinstance(self.fact, SlotFact) else "account"


def shown(request: BatchRequest) -> list[ShownFact]:
    """Return the facts about accounts that a request names, with their proofs. Each proof has been verified.

    Raises `EstimateUnavailable`, and `Refused`: busy.
    """
    with asking_nodes() as ends_at:
        return [
            fact
            for source, requests in requested(request).items()
            for fact in _of_source(request.destinationChainId, source, requests, ends_at)
        ]


def _of_source(destination: int, source: int, requests: Requests, ends_at: float) -> Iterator[ShownFact]:
    try:
        inquiry = inquire(destination, source, ends_at)
    except Unusable as why:
        raise EstimateUnavailable(str(why.reason)) from None
    selected = select(inquiry, requests)
    _require_all(source, selected)
    rpc, connection = inquiry.connection.source_rpc, inquiry.connection
    addresses = {number: facts.slots_by_account(of_block) for number, of_block in selected.existing.items()}
    headers = {header.number: header for header in _headers(connection, sorted(addresses))}
    proof_requests = [
        ProofRequest(number, headers[number].hash, headers[number].state_root, address, slots)
        for number, of_block in addresses.items()
        for address, slots in of_block.items()
    ]
    proofs = {
        (asked.block_number, asked.address): result(proof)
        for asked, proof in zip(proof_requests, rpc.proofs(proof_requests), strict=True)
    }
    connection.check_time()
    views = facts.views(
        connection.destination_rpc,
        connection.registry.contract,
        [
            ViewRequest(number, [AccountFact(address, AccountField.STORAGE_ROOT) for address in of_block], "latest")
            for number, of_block in addresses.items()
        ],
    )
    held = dict(zip(addresses, map(result, views), strict=True))
    for selector, number in selected.blocks.items():
        for fact in requests[selector]:
            if isinstance(fact, SlotFact):
                proof = proofs[number, fact.address]
                nodes, word = _slot(proof, int(fact.slot, 16))
                root = proof.account.storage_root
                known = held[number].facts[AccountFact(fact.address, AccountField.STORAGE_ROOT)]
            elif isinstance(fact, AccountFact):
                proof = proofs[number, fact.address]
                nodes, word = proof.nodes, _word(proof, fact.field)
                root, known = headers[number].state_root, held[number].state_root
            else:
                continue
            encoded = rlp.encode(list(nodes))
            yield ShownFact(
                source, selector, number, fact, word, encoded, root, root == known, connection.registry.reader
            )


def _require_all(source: int, selected: Selected) -> None:
    """Raise an error unless all blocks that are selected exist."""
    if selected.fault:
        raise selected.fault
    why = [str(rejection.reason) for rejection in admission_checks.rejections(None, [SourceEstimate(source, selected)])]
    if why := [*why, *map(str, selected.waits)]:
        raise EstimateUnavailable(why[0])


def _headers(connection: OpenConnection, numbers: Sequence[int]) -> Iterator[Header]:
    for header in heads.headers(connection.source_rpc, numbers, {}):
        if not isinstance(header, Header):
            raise header or NodeUnavailable("A node lacks headers that it must have.")
        yield header
    connection.check_time()


def _slot(proof: VerifiedAccountProof, slot: int) -> tuple[Sequence[bytes], bytes]:
    found = next(each for each in proof.slots if each.slot == slot)
    return found.nodes, found.value.to_bytes(32)


def _word(proof: VerifiedAccountProof, field: AccountField) -> bytes:
    account = proof.account
    match field:
        case AccountField.NONCE:
            return account.nonce.to_bytes(32)
        case AccountField.BALANCE:
            return account.balance.to_bytes(32)
        case AccountField.STORAGE_ROOT:
            return account.storage_root
        case AccountField.CODE_HASH:
            return account.code_hash if account.exists else EMPTY_CODE_HASH
