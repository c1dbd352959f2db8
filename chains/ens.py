"""The addresses of ENS names, by web3.py's ENS over the nodes of one chain, which are asked within bounds.

The library normalises names (ENSIP-15) and asks the universal resolver (ENSIP-23), a contract that finds the name's
own resolver, that of a parent included (ENSIP-10). No gateway is asked that a resolver refers to (EIP-3668): the
resolver's author names its host.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from ens import ENS
from ens.exceptions import ENSException
from ens.utils import normalize_name
from eth_abi.exceptions import DecodingError
from eth_typing import HexStr
from eth_utils.abi import function_signature_to_4byte_selector
from eth_utils.crypto import keccak
from hexbytes import HexBytes
from web3.exceptions import BadFunctionCallOutput, StaleBlockchain
from web3.providers import BaseProvider
from web3.types import RPCEndpoint, RPCError, RPCResponse

from chains import together, untrusted_text
from chains.chains_file import Chain
from chains.encoding import hex_data
from chains.node_errors import ChainError
from chains.rpc import NodeUnavailable, Reverted, RpcClient, RpcRefused
from chains.together import Raised

MAX_NAME_BYTES = 255
# For all names of a request together, once nothing is under way any more. A client waits meanwhile.
SECONDS = 10
_NODE_SECONDS = 2  # to connect, and for each silence; three times as long for an answer
# The error of a contract that refers to gateways.
_OFFCHAIN_LOOKUP = function_signature_to_4byte_selector("OffchainLookup(address,string[],bytes,bytes4,bytes)")


class NotAnswered(ChainError):
    """The name has no address here. The message goes on from "the name …"."""

    is_supported = True


class InvalidName(ValueError):
    """ENS has no such name. The message goes on from "the name …"."""


def normalized(name: str) -> str:
    """Return the name as ENSIP-15 normalises it; at most `MAX_NAME_BYTES` in UTF-8. Raises `InvalidName`."""
    # Before it is looked at: the library takes milliseconds for each letter.
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidName(f"is longer than {MAX_NAME_BYTES} bytes")
    try:
        normal: str = normalize_name(name)
    except ENSException as invalid:
        raise InvalidName(f"is not as ENSIP-15 has it: {untrusted_text.plain(invalid).rstrip('.')}") from None
    if not normal or len(normal.encode()) > MAX_NAME_BYTES:
        raise InvalidName("is empty" if not normal else f"is longer than {MAX_NAME_BYTES} bytes")
    return normal


def resolve(chain: Chain, names: Sequence[str]) -> list[str | NotAnswered]:
    """Return the address (EIP-55) of each normalised name, its coin type 60, or why it has none; in order.

    All names are asked for side by side, so that few exchanges do for many. Raises `NodeUnavailable`.
    """
    # A client of its own: a stranger's contract may run for ever, which says nothing about the node's health.
    rpc = RpcClient(chain, timeout_seconds=_NODE_SECONDS)
    ens = _Ens(_Nodes(rpc, time.monotonic() + SECONDS))
    found: list[str | NotAnswered] = []
    for outcome in together.run([partial(_resolve, ens, rpc, name) for name in names]):
        if isinstance(outcome, Raised):
            raise outcome.error
        found.append(outcome)
    return found


def _resolve(ens: ENS, rpc: RpcClient, name: str) -> str | NotAnswered:
    try:
        address = ens.address(name)
    except NotAnswered as why:
        return why
    except DecodingError:
        # What a resolver has answered, which may be anybody's contract.
        address = None
    except (BadFunctionCallOutput, StaleBlockchain) as unusable:
        what = "has no universal resolver" if isinstance(unusable, BadFunctionCallOutput) else "is days behind"
        raise NodeUnavailable(f"Chain {rpc.chain.label} can't be asked for names: it {what}.") from None
    return address or NotAnswered(f"has no address on chain {rpc.chain.label}")


class _Ens(ENS):
    def _prepare_resolve_call(
        self, name: str, fn_name: str, args: Sequence[Any] = (), contract: Any = None
    ) -> tuple[HexBytes, HexStr]:
        """Encode the call for a name that is already normalised.

        The library would normalise it three more times, and takes long for each letter.
        """
        labels = [label.encode() for label in name.split(".")]
        node = bytes(32)
        for label in reversed(labels):
            node = keccak(node + keccak(label))  # namehash (EIP-137)
        # RFC 1035, section 3.1.
        dns_name = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
        return HexBytes(dns_name), (contract or self._resolver_contract).encode_abi(fn_name, args=[node, *args])


class _Nodes(BaseProvider):
    """Gives the library what it asks of a chain."""

    global_ccip_read_enabled = False

    def __init__(self, rpc: RpcClient, ends: float) -> None:
        super().__init__()
        self._rpc, self._ends = rpc, ends

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        """Send the library's request to the chain's nodes. Raises `NodeUnavailable`, `NotAnswered`."""
        try:
            return {"jsonrpc": "2.0", "id": 0, "result": self._result(method, params)}
        except Reverted as reverted:
            error: RPCError = {"code": 3, "message": "execution reverted", "data": hex_data(reverted.data)}
            return {"jsonrpc": "2.0", "id": 0, "error": error}
        except RpcRefused as refused:
            raise NodeUnavailable(str(refused)) from None

    def _result(self, method: str, params: Any) -> Any:
        self._check_time()
        match method:
            case "eth_call":
                return hex_data(self._call(params[0]["to"], bytes.fromhex(params[0]["data"][2:])))
            case "eth_getBlockByNumber":
                head = self._rpc.head()
                return {"number": hex(head.number), "timestamp": hex(head.timestamp)}
            case "eth_chainId":
                return hex(self._rpc.chain.id)
            case "eth_getCode":
                return hex_data(self._rpc.code(params[0]))
        raise NotImplementedError(method)

    def _call(self, to: str, data: bytes) -> bytes:
        try:
            return self._rpc.eth_call(to, data)
        except Reverted as reverted:
            if reverted.data[:4] == _OFFCHAIN_LOOKUP:
                refers = NotAnswered("has a resolver that refers to a gateway (EIP-3668), and none is asked here")
                refers.is_supported = False
                raise refers from None
            raise
        except RpcRefused as refused:
            if refused.may_pass:
                raise
            # Such as one that takes more gas than a node lets a call have.
            raise NotAnswered(f"has a resolver that no node of chain {self._rpc.chain.label} can ask") from None

    def _check_time(self) -> None:
        if time.monotonic() > self._ends:
            raise NodeUnavailable(f"Resolving names on chain {self._rpc.chain.label} took more than {SECONDS} s.")
