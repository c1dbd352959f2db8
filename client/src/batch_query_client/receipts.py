"""Receipts as a block's trie holds them (Yellow Paper 4.3.1, EIP-658, EIP-2718)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import rlp
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from batch_query_client.answers import ShownLog
from batch_query_client.errors import InvalidBundle

# The first type whose receipts may have strings behind the logs, such as a deposit's nonce and version.
_FIRST_OF_OTHER_CHAINS = 0x64
_BLOOM_BYTES = 256
_MOST_TOPICS = 4

Item = bytes | Sequence["Item"]
"""Bytes or a list, as RLP has them."""


@dataclass(frozen=True)
class ProvenReceipt:
    """A receipt that a proof shows."""

    words: Mapping[str, bytes]
    """32 bytes by property. Receipts before Byzantium have no STATUS."""
    logs: Sequence[ShownLog]


def decode(value: bytes) -> ProvenReceipt:
    """Decode the trie's value. Raises `InvalidBundle` unless the value is the only encoding of a receipt."""
    kind, encoded = (value[0], value[1:]) if b"\0" < value[:1] < b"\x80" else (0, value)
    try:
        items: Item = rlp.decode(encoded, strict=True)
    except (rlp.exceptions.RLPException, RecursionError):
        raise InvalidBundle("The proof's receipt is not canonical RLP.") from None
    match items:
        case [bytes(status), bytes(gas), bytes(bloom), [*logs], *more] if (
            len(bloom) == _BLOOM_BYTES
            and (kind >= _FIRST_OF_OTHER_CHAINS or not more)
            and all(isinstance(item, bytes) for item in more)
            and _is_number(gas)
        ):
            numbers = {"TYPE": kind, "CUMULATIVE_GAS_USED": int.from_bytes(gas), "LOG_COUNT": len(logs)}
            # Before Byzantium a receipt has a state root instead of the status.
            if kind or len(status) != 32:
                if status not in {b"", b"\1"}:
                    raise InvalidBundle("The proof's receipt has a status that is neither 0 nor 1.")
                numbers["STATUS"] = len(status)
            words = {name: number.to_bytes(32) for name, number in numbers.items()}
            return ProvenReceipt(words, [_log(index, log) for index, log in enumerate(logs)])
    raise InvalidBundle("The proof's receipt is malformed.")


def _log(index: int, item: Item) -> ShownLog:
    match item:
        case [bytes(emitter), [*topics], bytes(data)] if (
            len(emitter) == 20
            and len(topics) <= _MOST_TOPICS
            and all(isinstance(topic, bytes) and len(topic) == 32 for topic in topics)
        ):
            return ShownLog(index=index, emitter=to_checksum_address(emitter), topics=tuple(topics), data=data)
    raise InvalidBundle(f"The proof's receipt has a log {index} that is malformed.")


def _is_number(item: Item) -> bool:
    return isinstance(item, bytes) and len(item) <= 8 and item[:1] != b"\0"


def log_hash(log: ShownLog) -> bytes:
    """Return the hash that a registry stores: of emitter, topics and the data's keccak-256, each as a word."""
    return keccak(bytes.fromhex(log.emitter[2:]).rjust(32, b"\0") + b"".join(log.topics) + keccak(log.data))
