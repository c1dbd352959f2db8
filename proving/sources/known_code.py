"""Which code a block hash source's contract relies on at present, and whether the operator knows it."""

from collections.abc import Mapping

from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from chains.chains_file import Connection
from chains.rpc import RpcClient

# Of a proxy's implementation (EIP-1967).
_IMPLEMENTATION_SLOT = int.from_bytes(keccak(text="eip1967.proxy.implementation")) - 1


def behind(rpc: RpcClient, contracts: Mapping[str, str]) -> dict[str, str]:
    """Return where the code is that each contract runs, by its name; of one that is no proxy, its own address.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    slots = rpc.storages([(address, _IMPLEMENTATION_SLOT, "latest") for address in contracts.values()])
    return {
        name: to_checksum_address(slot.to_bytes(32)[12:]) if slot else address
        for (name, address), slot in zip(contracts.items(), slots, strict=True)
    }


def why_unknown(connection: Connection, present: Mapping[str, str], chain_id: int) -> str:
    """Say what code on this chain chains.toml doesn't name, if it names any; sentences."""
    others = [f"{name}: {code}" for name, code in present.items() if code not in connection.known_implementations]
    if not others:
        return ""
    return (
        f"What vouches for blocks of chain {connection.source_id} has changed on chain {chain_id}. chains.toml doesn't "
        f"name this code in known_implementations: {', '.join(others)}. The operator must see what it does, and add it "
        "there."
    )
