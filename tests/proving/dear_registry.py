"""Blocks in which the registry reverts, or takes more gas than before. They are mined on request."""

from collections.abc import Callable
from typing import Any

from eth_utils.crypto import keccak

from devnet.devchain import DevChain
from proving.models import FactsRegistry

# Where the registry's own code stands while it is dear.
_COPY = "0x" + "c0de" * 10


def mine_broken(chain: DevChain, mine: Callable[[], Any] | None = None) -> None:
    """Mine a block in which the registry reverts every call, and uses up its gas."""
    _mine_with(chain, "0xfe", mine)


def mine_dear(chain: DevChain, more_gas: int, mine: Callable[[], Any] | None = None, *, least_bytes: int = 0) -> None:
    """Mine a block in which each call of the registry with so many bytes takes so much more gas."""
    chain.rpc("anvil_setCode", _COPY, chain.rpc("eth_getCode", _address(chain), "latest"))
    _mine_with(chain, "0x" + _dear_code(more_gas, least_bytes).hex(), mine)


def mine_without_block(chain: DevChain) -> None:
    """Mine a block in which the registry knows no block, as after a reorganisation."""
    error = keccak(text="UnknownBlock(uint256)")[:4].hex()
    # PUSH4 error, PUSH1 224, SHL, PUSH0, MSTORE, PUSH1 36, PUSH0, REVERT.
    _mine_with(chain, f"0x63{error}60e01b5f5260245ffd", None)


def _address(chain: DevChain) -> str:
    return FactsRegistry.in_use.get(source_chain_id=chain.chain_id).address


def _mine_with(chain: DevChain, code: str, mine: Callable[[], Any] | None) -> None:
    address = _address(chain)
    own = chain.rpc("eth_getCode", address, "latest")
    chain.rpc("anvil_setCode", address, code)
    (mine or chain.mine)()
    chain.rpc("anvil_setCode", address, own)


def _dear_code(more_gas: int, least_bytes: int) -> bytes:
    """Return code that uses up gas in a loop, and then does what the copy does."""
    # PUSH2 least_bytes, CALLDATASIZE, LT, PUSH1 21, JUMPI: skip the loop.
    short = b"\x61" + least_bytes.to_bytes(2) + bytes.fromhex("3610601557")
    # GAS, JUMPDEST, GAS, DUP2, SUB, PUSH3 more_gas, GT, PUSH1 9, JUMPI, JUMPDEST: until so much is used.
    loop = bytes.fromhex("5a5b5a810362") + more_gas.to_bytes(3) + bytes.fromhex("116009575b")
    # Call the copy with the same data (CALLDATACOPY, DELEGATECALL), and return or revert with what it returns.
    call = bytes.fromhex("365f5f375f5f365f73" + _COPY[2:] + "5af43d5f5f3e")
    end = bytes([0x60, len(short + loop + call) + 6]) + bytes.fromhex("573d5ffd5b3d5ff3")
    return short + loop + call + end
