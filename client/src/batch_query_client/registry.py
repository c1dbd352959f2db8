"""The facts registry: calls that read facts from it, and their results (docs/specification.md, "Reading facts")."""

import re
from collections.abc import Mapping, Sequence

from eth_utils.crypto import keccak

from batch_query_client.answers import Fact
from batch_query_client.effects import Steps
from batch_query_client.errors import NodeRefused, NotProven, WrongFact
from batch_query_client.json_rpc import Node, read_data, transaction_call
from batch_query_client.plain_text import hex_data
from batch_query_client.questions import ACCOUNT_PROPERTIES, HEADER_PROPERTIES, RECEIPT_PROPERTIES
from batch_query_client.receipts import log_hash

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}", re.ASCII)
_SLOT = re.compile(r"0x[0-9a-fA-F]{64}", re.ASCII)


def selector(signature: str) -> bytes:
    """Return the selector of a function with this signature, such as `run(uint256)`."""
    return keccak(text=signature)[:4]


SOURCE_CHAIN_ID = selector("sourceChainId()")
_TRY_ACCOUNT_FIELD = selector("tryAccountField(address,uint256,uint8)")
_TRY_SLOT = selector("tryAccountStorageSlotValues(address,uint256,bytes32)")
_TRY_HEADER_FIELD = selector("tryHeaderField(uint256,uint8)")
_TRY_TIMESTAMP = selector("tryBlockAtTimestamp(uint256)")
_TRY_RECEIPT_FIELD = selector("tryReceiptField(uint256,uint32,uint8)")
_TRY_LOG_HASH = selector("tryLogHash(uint256,uint32,uint32)")
_TRY_TRANSACTION_HASH = selector("tryTransactionHash(uint256,uint32)")


def call_data(fact: Fact) -> bytes:
    """Return the calldata that reads a fact's word and whether it is proven. The service's own calldata isn't trusted.

    Raises `WrongFact` if a registry has no such kind of fact.
    """
    number = _word(fact.block_number)
    if fact.property == "BLOCK_AT_TIMESTAMP":
        return _TRY_TIMESTAMP + _word(fact.timestamp)
    if fact.transaction is not None:
        return _transaction_call(fact, number + _word(fact.transaction.index))
    if not fact.account:
        return _TRY_HEADER_FIELD + number + _word(_place(HEADER_PROPERTIES, fact.property))
    if not _ADDRESS.fullmatch(fact.account):
        raise WrongFact(f"{fact.account!r} is not the address of an account.")
    account = bytes.fromhex(fact.account[2:]).rjust(32, b"\0")
    if fact.property == "SLOT":
        if not _SLOT.fullmatch(fact.slot):
            raise WrongFact(f"{fact.slot!r} is not a storage slot.")
        return _TRY_SLOT + account + number + bytes.fromhex(fact.slot[2:])
    return _TRY_ACCOUNT_FIELD + account + number + _word(_place(ACCOUNT_PROPERTIES, fact.property))


def _transaction_call(fact: Fact, place: bytes) -> bytes:
    """Return the calldata for a transaction's fact. `place` has the words of its block and its index."""
    if fact.property == "HASH":
        return _TRY_TRANSACTION_HASH + place
    if fact.property == "LOG":
        return _TRY_LOG_HASH + place + _word(fact.log.index if fact.log else None)
    return _TRY_RECEIPT_FIELD + place + _word(_place(RECEIPT_PROPERTIES, fact.property))


def decode(answer: bytes) -> bytes | None:
    """Return the fact's word. None if it isn't proven. Raises `WrongFact` if the answer is not a registry's."""
    if len(answer) != 64 or int.from_bytes(answer[:32]) > 1:
        raise WrongFact("There is no facts registry at this address.")
    return answer[32:] if answer[31] else None


def require_facts(node: Node, facts: Sequence[Fact], registries: Mapping[int, str] | None = None) -> Steps[list[Fact]]:
    """Return the facts with the words that the registries hold now.

    `registries` has registries that the caller trusts, by source chain. They replace the addresses in the facts. Raises
    `NotProven`, `WrongFact` if a registry has a different word than a fact, `WrongChain`, `NodeRefused`, `Unavailable`.
    """
    named = [_with_registry(fact, registries or {}) for fact in facts]
    for chain_id in {fact.destination_chain_id for fact in named}:
        yield from node.require_chain(chain_id)
    for address, source in {(fact.registry, fact.source_chain_id) for fact in named}:
        yield from require_source(node, address, source)
    # A reorganisation can't make the word at `latest` false, because a registry never changes its words.
    calls = [("eth_call", [transaction_call(fact.registry, call_data(fact)), "latest"]) for fact in named]
    proven = []
    for fact, answer in zip(named, (yield from node.calls(calls)), strict=True):
        if isinstance(answer, NodeRefused):
            raise answer
        word = decode(read_data(answer))
        if word is None:
            raise NotProven(f"The registry {fact.registry} doesn't hold the {fact.name}.")
        if fact.word not in {None, word} or not _is_described(fact, word):
            raise WrongFact(f"The registry {fact.registry} holds another value than the service reports: {fact.name}.")
        proven.append(fact.model_copy(update={"word": word}))
    return proven


def _is_described(fact: Fact, word: bytes) -> bool:
    """Return whether the log or the hash that the service reports beside a word belongs to the word."""
    if fact.property == "HASH" and fact.transaction is not None and fact.transaction.hash:
        return fact.transaction.hash.lower() == hex_data(word)
    return fact.log is None or log_hash(fact.log) == word


def require_source(node: Node, address: str, source_chain_id: int) -> Steps[None]:
    """Check that the address has a registry or a block hash source of this source chain. Raises `WrongFact`."""
    call = transaction_call(address, SOURCE_CHAIN_ID)
    (answer,) = yield from node.calls([("eth_call", [call, "latest"])])
    if isinstance(answer, NodeRefused) or read_data(answer) != _word(source_chain_id):
        raise WrongFact(f"There is no facts registry for chain {source_chain_id} at {address}.")


def _with_registry(fact: Fact, registries: Mapping[int, str]) -> Fact:
    address = registries.get(fact.source_chain_id, fact.registry)
    if not _ADDRESS.fullmatch(address):
        raise WrongFact(f"No facts registry is known for chain {fact.source_chain_id}.")
    return fact.model_copy(update={"registry": address})


def _word(number: int | None) -> bytes:
    if number is None or not 0 <= number < 1 << 256:
        raise WrongFact("The fact has no valid block, time, transaction or log.")
    return number.to_bytes(32)


def _place(names: Sequence[str], name: str) -> int:
    if name not in names:
        raise WrongFact(f"A facts registry has no {name[:40]!r}.")
    return names.index(name)
