"""Development chains that take what rollups take for a transaction's data."""

from eth_utils.address import to_checksum_address

from devnet.devchain import DevChain
from tests.contracts.deployed import Deployed

OP_STACK = ("--network", "optimism")
"""By which anvil takes the data fee from the sender. Its receipts don't tell."""

_GWEI = 10**9
GAS_PRICE_ORACLE = "0x420000000000000000000000000000000000000F"
_L1_BLOCK = "0x4200000000000000000000000000000000000015"
# Wei: L1's base fee of 10 gwei, the scalar of a half, 16 units for a byte.
FEE_OF_A_BYTE = 80 * _GWEI


def oracle_at(chain: DevChain, address: str) -> Deployed:
    """A `FeeOracleStandIn` at an address."""
    oracle = Deployed(chain, "test/FeeOracleStandIn")
    chain.rpc("anvil_setCode", address, "0x" + oracle.code.hex())
    oracle.address = to_checksum_address(address)
    return oracle


def charge_for_data(chain: DevChain) -> None:
    """An `OP_STACK` chain takes `FEE_OF_A_BYTE` from now on, at the most."""
    oracle_at(chain, GAS_PRICE_ORACLE).send("set", FEE_OF_A_BYTE, 0, False)
    chain.rpc("anvil_setCode", _L1_BLOCK, "0x00")
    for slot, value in ((1, 10 * _GWEI), (3, 500_000 << 96), (7, _GWEI)):
        chain.rpc("anvil_setStorageAt", _L1_BLOCK, f"0x{slot:064x}", f"0x{value:064x}")
    # What was set belongs to no block before.
    chain.mine()
