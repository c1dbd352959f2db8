"""Asks the attesters of a connection, as proving will: who signs what our own nodes say, and why others don't."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db import DatabaseError

from chains.attestation import Answer, Attestation, Domain, ask
from chains.chains_file import Connection
from chains.header import Header
from chains.rpc import ChainError, RpcClient, RpcRefused
from config.configured_chains import get_rpc
from proving.health.problems import Problem
from proving.models import FactsRegistry

# Below the newest final block, in blocks: an attester whose nodes are an epoch behind is no silent one.
_BEHIND = 32
# Where nodes don't tell which block is final.
_FINAL_DEPTH = 64
# Before there is a contract, for which attesters sign: who signs for none signs for any.
_NO_CONTRACT = "0x" + "0" * 40


@dataclass(frozen=True)
class Asked:
    said: Sequence[str]
    """Lines for people."""
    problems: Sequence[Problem] = ()


def examine(connection: Connection) -> Asked:
    """Of an attested connection."""
    source = get_rpc(connection.source_id)
    try:
        header = _old_enough(source)
    except ChainError as error:
        # That is told of the chain already.
        return Asked([f"The attesters of {source.chain.label} are not asked: {error}"])
    domain = Domain(connection.destination_id, _contract(connection) or _NO_CONTRACT)
    answers = ask(connection.attesters, domain, connection.source_id, header.number)
    threshold = connection.threshold or 0
    agreeing = sum(_agrees(answer, header) for answer in answers)
    said = f"Of the attesters of {source.chain.label}, {agreeing} sign block {header.number}, and {threshold} must:"
    lines = [said, *(f"  {line}" for line in _told(connection, header, answers))]
    if agreeing >= threshold:
        return Asked(lines)
    sentence = (
        f"Of {len(answers)} attesters of {source.chain.label}, {agreeing} sign what our nodes say of block "
        f"{header.number}, and {threshold} must: nothing of it can be proven on chain {connection.destination_id}."
    )
    return Asked(lines, [Problem("too_few_attesters", sentence)])


def _contract(connection: Connection) -> str:
    rows = FactsRegistry.in_use.filter(
        source_chain_id=connection.source_id, destination_chain_id=connection.destination_id
    )
    try:
        return rows.values_list("block_hash_source", flat=True).first() or ""
    except DatabaseError:
        # Attesters are asked before anything is set up.
        return ""


def _old_enough(rpc: RpcClient) -> Header:
    try:
        final = rpc.header("finalized")
    except RpcRefused:
        final = None
    newest = rpc.head().number - _FINAL_DEPTH if final is None else final.number
    return rpc.known_header(max(0, newest - _BEHIND))


def _agrees(answer: Answer, header: Header) -> bool:
    return isinstance(answer, Attestation) and answer.block_hash == header.hash


def _told(connection: Connection, header: Header, answers: Sequence[Answer]) -> Iterator[str]:
    for attester, answer in zip(connection.attesters, answers, strict=True):
        if not isinstance(answer, Attestation):
            why = answer.sentence
        elif _agrees(answer, header):
            why = f"{attester.host} signs."
        else:
            why = (
                f"{attester.host} contradicts our nodes: it signs 0x{answer.block_hash.hex()}, and they have "
                f"0x{header.hash.hex()}."
            )
        yield f"{attester.address}: {why}"
