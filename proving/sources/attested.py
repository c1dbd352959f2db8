"""Attesters vouch for blocks by signature (`AttestedBlockHashSource.sol`), for any pair of chains.

Any m of n attesters are enough. They sign only final blocks, each block separately.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models.functions import Now
from eth_abi.abi import decode
from eth_utils.address import to_checksum_address
from prometheus_client import Counter

from chains.attestation import Answer, Attestation, Domain, Refusal, answer_label, ask
from chains.chains_file import Connection
from chains.nodes.node_errors import InvalidReply
from config.configured_chains import get_rpc
from proving.connections import OpenConnection
from proving.models import AttesterWatch
from proving.packing.gas import Amount
from proving.registries.deployments import call
from proving.sources import BlockHashSource, NotYet, Start, named, not_there, note
from proving.working import destination_prices, heads
from queries.waits import WaitReason, wait

# Measured gas of attesting a block without the word that it stores, and of each signature.
_GAS, _GAS_OF_SIGNATURE = Amount(5_900, 67_900), Amount(8_000, 15_000)
_SILENT = {"unreachable", "timed_out"}

ATTESTER_ANSWERS = Counter(
    "batchquery_attester_answers_total",
    "Answers of attesters: signed, or the code of a refusal, or why there was no usable answer.",
    ("source", "destination", "attester", "answer"),
)


class Attested(BlockHashSource):
    contract = "AttestedBlockHashSource"
    title = "Attested: signatures of independent attesters"

    def trust(self, connection: Connection) -> str:
        return (
            f"{connection.threshold} of {len(connection.attesters)} attesters, who sign hashes of final blocks of "
            f"{named(connection.source_id)}. Any {connection.threshold} of them together could forge a block."
        )

    def arguments(self, connection: Connection) -> tuple[Any, ...]:
        addresses = sorted((attester.address for attester in connection.attesters), key=str.lower)
        return connection.source_id, addresses, connection.threshold

    def gas(self, connection: Connection) -> Amount:
        signatures = connection.threshold or 0
        word = destination_prices.for_estimates(get_rpc(connection.destination_id)).new_word
        of_signatures = Amount(_GAS_OF_SIGNATURE.expected * signatures, _GAS_OF_SIGNATURE.bound * signatures)
        return _GAS + Amount(word, word) + of_signatures

    def reach(self, connection: OpenConnection, target: int) -> Start | NotYet:
        final = _final(connection)
        # If no final block is known, attesters may use the chain's number of confirmations.
        if final is not None and target > final:
            return NotYet(wait("not_final", block=target, source=connection.config.source_id, final=final))
        return Start(target)

    def begin(self, connection: OpenConnection, start: int) -> Start | NotYet:
        header = connection.source_rpc.header(start)
        if header is None:
            return not_there(connection.config, start)
        trusted = self._trusted(connection)
        threshold = trusted.threshold
        domain = Domain(connection.config.destination_id, connection.registry.block_hash_source)
        known = [attester for attester in connection.config.attesters if attester.address in trusted.addresses]
        if len(known) < threshold:
            believed = ", ".join(sorted(trusted.addresses)) or "none"
            return NotYet(wait("attesters_not_named", threshold=threshold, named=len(known), attesters=believed))
        answers = ask(known, domain, connection.config.source_id, start)
        _count(connection.config, header.hash, answers)
        _look_again(connection.config, header.hash, answers)
        agreeing = [
            answer for answer in answers if isinstance(answer, Attestation) and answer.block_hash == header.hash
        ]
        differences = _difference(connection, trusted)
        note(connection, [*differences, *_contradictions(connection, start, header.hash, answers)])
        if len(agreeing) < threshold:
            have = {"signed": len(agreeing), "threshold": threshold, "source": connection.config.source_id}
            others = _what_others_say(header.hash, answers)
            return NotYet(wait("attesters_missing", block=start, answers=others, **have))
        chosen = sorted(agreeing, key=lambda answer: answer.attester.lower())[:threshold]
        signatures = b"".join(answer.signature for answer in chosen)
        attest = call(self.contract, connection.registry.block_hash_source, "attest", start, header.hash, signatures)
        return Start(start, (attest,), self.gas(connection.config).expected)

    def vouched(self, connection: Connection, *, keeps_hashes: bool) -> None:
        return None

    def newest(self, connection: OpenConnection) -> int | NotYet:
        final = _final(connection)
        if final is None:
            return NotYet(wait("no_finality", source=connection.config.source_id))
        return final

    def _trusted(self, connection: OpenConnection) -> "_TrustedAttesters":
        address = connection.registry.block_hash_source
        calls = [call(self.contract, address, function) for function in ("attesters", "threshold")]
        members, threshold = connection.destination_rpc.eth_calls(calls)
        if not isinstance(members, bytes) or not isinstance(threshold, bytes) or not threshold:
            raise InvalidReply(f"There is no {self.contract} at {address}.")
        (addresses,) = decode(["address[]"], members)
        return _TrustedAttesters({to_checksum_address(address) for address in addresses}, int.from_bytes(threshold))


@dataclass(frozen=True)
class _TrustedAttesters:
    """The attesters that the contract trusts now."""

    addresses: set[str]
    threshold: int
    """The number of them that must sign."""


def _final(connection: OpenConnection) -> int | None:
    """Return the newest final block. None if nodes report none."""
    finalized = heads.recent(connection.source_rpc.chain, connection.source_rpc).finalized
    return None if finalized is None else finalized.number


def _count(connection: Connection, block_hash: bytes, answers: Sequence[Answer]) -> None:
    chains = str(connection.source_id), str(connection.destination_id)
    for answer in answers:
        ATTESTER_ANSWERS.labels(*chains, answer.attester, answer_label(answer, block_hash)).inc()


def _look_again(connection: Connection, block_hash: bytes, answers: Sequence[Answer]) -> None:
    """Make all attesters due to be asked, for the page of chains, if one is silent that wasn't then, or the reverse.

    Waiting blocks are asked about again and again, so this makes them due no more often than twice a minute.
    """
    rows = AttesterWatch.objects.filter(
        source_chain_id=connection.source_id,
        destination_chain_id=connection.destination_id,
        asked_at__lt=Now() - AttesterWatch.LONGEST_ROUND,
    )
    for last in rows:
        was_silent = {answer["address"]: answer["answer"] in _SILENT for answer in last.answers}
        if any(was_silent.get(answer.attester) != (answer_label(answer, block_hash) in _SILENT) for answer in answers):
            rows.update(asked_at=None)


def _contradictions(
    connection: OpenConnection, number: int, block_hash: bytes, answers: Sequence[Answer]
) -> Iterator[WaitReason]:
    """Yield what is wrong about attesters that sign another hash than our own nodes report, or have signed one.

    Either our nodes or theirs are wrong.
    """
    contradicting = [
        answer for answer in answers if isinstance(answer, Attestation) and answer.block_hash != block_hash
    ]
    for answer in answers:
        if isinstance(answer, Refusal) and answer.code == "conflict":
            yield wait("attester_conflict", problem=answer.sentence)
    if contradicting:
        signed = ", ".join(f"{answer.attester} signed 0x{answer.block_hash.hex()}" for answer in contradicting)
        ours, source = f"0x{block_hash.hex()}", connection.config.source_id
        yield wait("attesters_contradict", source=source, block=number, hash=ours, signed=signed)


def _difference(connection: OpenConnection, trusted: _TrustedAttesters) -> Iterator[WaitReason]:
    """Yield a notice if the contract's attesters differ from those in chains.toml, which pages show."""
    configured = {attester.address for attester in connection.config.attesters}
    if configured != trusted.addresses or trusted.threshold != connection.config.threshold:
        believed, source = ", ".join(sorted(trusted.addresses)), connection.config.source_id
        yield wait("attesters_differ", source=source, threshold=trusted.threshold, attesters=believed)


def _what_others_say(block_hash: bytes, answers: Sequence[Answer]) -> str:
    return " ".join(
        answer.sentence if isinstance(answer, Refusal) else f"{answer.attester} signed 0x{answer.block_hash.hex()}."
        for answer in answers
        if isinstance(answer, Refusal) or answer.block_hash != block_hash
    )


SOURCE = Attested()
