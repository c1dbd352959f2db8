"""Signatures of contract wallets (ERC-1271, ERC-6492): only the wallet's chain can tell whether they are right."""

from collections.abc import Callable
from typing import Any

import siwe  # type: ignore[import-untyped]
from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError
from web3.exceptions import Web3Exception
from web3.providers import BaseProvider
from web3.types import RPCEndpoint, RPCError, RPCResponse

from chains.chains_file import Chain
from chains.encoding import hex_data
from chains.node_errors import ChainError, Reverted, RpcRefused
from chains.rpc import RpcClient

_REVERTED = 3  # geth's code
_SUFFIX_BYTES = 32  # at the end of an ERC-6492 signature
_NODE_SECONDS = 2  # to connect, and for each silence; three times as long for an answer


class _NodeProvider(BaseProvider):
    """Gives the library access to a chain, within the bounds of `RpcClient`."""

    # ERC-3668 would let any contract make this server fetch a URL of the contract's choice.
    global_ccip_read_enabled = False

    def __init__(self, chain: Chain) -> None:
        super().__init__()
        # A client of its own: a stranger's contract may run for ever, which says nothing about the node's health.
        self._rpc = RpcClient(chain, timeout_seconds=_NODE_SECONDS)

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        """Ask the chain's nodes. Raises `ChainError` where another node might have answered."""
        try:
            return {"jsonrpc": "2.0", "id": 0, "result": self._rpc.call(method, *params)}
        except RpcRefused as refused:
            if refused.may_pass:
                raise
            error: RPCError = {"code": refused.code, "message": refused.message}
            if isinstance(refused, Reverted):
                # Without the contract's data, which the library would decode, and fail on what isn't well-formed.
                error = {"code": _REVERTED, "message": "execution reverted"}
            return {"jsonrpc": "2.0", "id": 0, "error": error}

    def has_code(self, address: str) -> bool:
        """Return whether there is a contract. Raises `ChainError`."""
        return self._rpc.call("eth_getCode", address, "latest") not in {"0x", "0x0", None}


def accepts(verify: Callable[..., None], signature: str, wallet: str, chain: Chain) -> bool | None:
    """Return whether a wallet there accepts the signature. None if no node can tell.

    `verify` is the bound `SiweMessage.verify`. A wallet that is deployed is asked about the signature inside an
    ERC-6492 signature, without the call beside it: that might change the wallet, which nobody has done on the chain.
    """
    provider = _NodeProvider(chain)
    try:
        if siwe.siwe.is_eip6492_signature(signature) and provider.has_code(wallet):
            *_, inner = decode(["address", "bytes", "bytes"], bytes.fromhex(signature[2:])[:-_SUFFIX_BYTES])
            signature = hex_data(inner)
        verify(signature, provider=provider)
    except siwe.InvalidSignature as error:
        # It has arguments only where the chain can't be asked.
        return None if error.args else False
    except DecodingError:
        return False
    except (siwe.ChainIdMismatch, ChainError, Web3Exception, ValueError, TypeError, KeyError):
        return None  # The nodes are down, of another chain, or talk nonsense.
    return True
