"""Signatures of contract wallets (ERC-1271, ERC-6492). Only the wallet's chain can tell whether one is valid."""

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
from chains.nodes.node_errors import ChainError, Reverted, RpcRefused
from chains.nodes.rpc import RpcClient

_REVERTED = 3  # geth's JSON-RPC error code of a revert
_SUFFIX_BYTES = 32  # at the end of an ERC-6492 signature
_NODE_SECONDS = 2  # to connect, and between received parts; an answer may take three times as long


class _NodeProvider(BaseProvider):
    """A web3 provider through which the library reads a chain, with the limits of `RpcClient`."""

    # ERC-3668 would let any contract make this server fetch a URL of the contract's choice.
    global_ccip_read_enabled = False

    def __init__(self, chain: Chain) -> None:
        super().__init__()
        # This client isn't shared: a stranger's contract may run for ever, which says nothing about the node's health.
        self._rpc = RpcClient(chain, timeout_seconds=_NODE_SECONDS)

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        """Send the request to the chain's nodes. Raises `ChainError` if another node might have answered."""
        try:
            return {"jsonrpc": "2.0", "id": 0, "result": self._rpc.call(method, *params)}
        except RpcRefused as refused:
            if refused.may_pass:
                raise
            error: RPCError = {"code": refused.code, "message": refused.message}
            if isinstance(refused, Reverted):
                # The contract's data is left out, because the library would decode it and fail if it is malformed.
                error = {"code": _REVERTED, "message": "execution reverted"}
            return {"jsonrpc": "2.0", "id": 0, "error": error}

    def has_code(self, address: str) -> bool:
        """Return whether there is a contract. Raises `ChainError`."""
        return bool(self._rpc.code(address))


def accepts(verify: Callable[..., None], signature: str, wallet: str, chain: Chain) -> bool | None:
    """Return whether a wallet on the chain accepts the signature. None: no node can tell.

    `verify` is the bound method `SiweMessage.verify`. A deployed wallet gets only the signature inside an ERC-6492
    signature. The preparing call beside it is left out, because it might change the wallet's answer, and nobody has
    made that call on the chain.
    """
    provider = _NodeProvider(chain)
    try:
        if siwe.is_eip6492_signature(signature) and provider.has_code(wallet):
            *_, inner = decode(["address", "bytes", "bytes"], bytes.fromhex(signature[2:])[:-_SUFFIX_BYTES])
            signature = hex_data(inner)
        verify(signature, provider=provider)
    except siwe.InvalidSignature as error:
        # The library adds arguments to the error only if it couldn't ask the chain.
        return None if error.args else False
    except DecodingError:
        return False
    except (siwe.ChainIdMismatch, ChainError, Web3Exception, ValueError, TypeError, KeyError):
        return None  # The nodes are down, belong to another chain, or answer nonsense.
    return True
