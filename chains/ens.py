"""Addresses of ENS names, resolved by the universal resolver (ENSIP-23) on one chain.

That contract finds a name's own resolver, or that of a parent name (ENSIP-10). ENS's own library normalises names
(ENSIP-15). Gateways (EIP-3668) are never asked, because a resolver's author could choose any host.
"""

import time
from collections.abc import Sequence

from ens.constants import ACCEPTABLE_STALE_HOURS, UNIVERSAL_RESOLVER_ADDR
from ens.exceptions import ENSException
from ens.utils import normalize_name
from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError
from eth_utils.abi import function_signature_to_4byte_selector
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from chains.chains_file import Chain
from chains.nodes import node_errors, questions
from chains.nodes.node_errors import FINAL, ChainError, NodeUnavailable, Reverted, RpcRefused
from chains.nodes.rpc import RpcClient, result

MAX_NAME_BYTES = 255
_NODE_SECONDS = 2  # seconds to connect, and seconds without data; a whole answer may take three times as long
# The error by which a contract refers to gateways (EIP-3668).
_OFFCHAIN_LOOKUP = function_signature_to_4byte_selector("OffchainLookup(address,string[],bytes,bytes4,bytes)")
_RESOLVE = function_signature_to_4byte_selector("resolve(bytes,bytes)")
_ADDR = function_signature_to_4byte_selector("addr(bytes32)")
_NOBODY = "0x" + "00" * 20


class NotAnswered(ChainError):
    """The name has no address on this chain. The message continues a sentence that begins with "the name …"."""

    is_supported = True


class InvalidName(ValueError):
    """ENS can't have such a name. The message continues a sentence that begins with "the name …"."""


def normalized(name: str) -> str:
    """Return the name as ENSIP-15 normalises it, with at most `MAX_NAME_BYTES` in UTF-8. Raises `InvalidName`."""
    # The library takes milliseconds for each letter, so the length is checked first.
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidName(f"is longer than {MAX_NAME_BYTES} bytes")
    try:
        normal: str = normalize_name(name)
    except ENSException as invalid:
        raise InvalidName(f"is not a valid name (ENSIP-15): {node_errors.plain(invalid).rstrip('.')}") from None
    if not normal or len(normal.encode()) > MAX_NAME_BYTES:
        raise InvalidName("is empty" if not normal else f"is longer than {MAX_NAME_BYTES} bytes")
    return normal


def resolve(chain: Chain, names: Sequence[str]) -> list[str | NotAnswered]:
    """Return the address (EIP-55, coin type 60) of each normalised name, in order, or the reason why it has none.

    All names go in one exchange. Raises `NodeUnavailable`.
    """
    # A separate client, so that the node isn't treated as failed when a stranger's contract takes too long.
    rpc = RpcClient(chain, timeout_seconds=_NODE_SECONDS)
    calls = [questions.call(UNIVERSAL_RESOLVER_ADDR, _calldata(name), final=FINAL) for name in names]
    (head,), (code,), answers = rpc.ask([questions.header("latest")], [questions.code(UNIVERSAL_RESOLVER_ADDR)], calls)
    try:
        newest, has_resolver = result(head), bool(result(code))
    except RpcRefused as refused:
        raise NodeUnavailable(str(refused)) from None
    if newest is None or time.time() - newest.timestamp > ACCEPTABLE_STALE_HOURS * 3600:
        raise NodeUnavailable(f"Chain {chain.label} can't resolve names: its nodes are days behind.")
    if not has_resolver:
        raise NodeUnavailable(f"Chain {chain.label} can't resolve names: it has no universal resolver.")
    return [_address(chain, answer) for answer in answers]


def _calldata(name: str) -> bytes:
    """Return the calldata that requests the address of a normalised name.

    ENS's library would normalise the name again for each hash, which is slow.
    """
    labels = [label.encode() for label in name.split(".")]
    node = bytes(32)
    for label in reversed(labels):
        node = keccak(node + keccak(label))  # namehash (EIP-137)
    # The name in DNS wire format (RFC 1035, section 3.1).
    dns_name = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return _RESOLVE + encode(["bytes", "bytes"], [dns_name, _ADDR + node])


def _address(chain: Chain, answer: bytes | ChainError) -> str | NotAnswered:
    """Return the address in an answer, or the reason why there is none. Raises `NodeUnavailable`."""
    nobody = NotAnswered(f"has no address on chain {chain.label}")
    if isinstance(answer, Reverted):
        if answer.data[:4] != _OFFCHAIN_LOOKUP:
            return nobody
        refers = NotAnswered("has a resolver that refers to a gateway (EIP-3668), and this service asks no gateways")
        refers.is_supported = False
        return refers
    if isinstance(answer, RpcRefused):
        if answer.may_pass:
            raise NodeUnavailable(str(answer))
        # The call may need more gas than nodes allow, for example.
        return NotAnswered(f"has a resolver that no node of chain {chain.label} can ask")
    try:
        resolved, _ = decode(["bytes", "address"], result(answer))
        (address,) = decode(["address"], resolved)
    except DecodingError:
        # Anybody can write a resolver, and it may return malformed data.
        return nobody
    return nobody if address == _NOBODY else to_checksum_address(address)
