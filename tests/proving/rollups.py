"""Development chains that charge data fees like rollups."""

from eth_utils.address import to_checksum_address

from devnet.devchain import DevChain
from tests.contracts.deployed import Deployed

OP_STACK = ("--network", "optimism")
"""The option with which anvil charges the sender the data fee. Its receipts don't show it."""

_GWEI = 10**9
GAS_PRICE_ORACLE = "0x420000000000000000000000000000000000000F"
ARB_GAS_INFO = "0x000000000000000000000000000000000000006C"
_L1_BLOCK = "0x4200000000000000000000000000000000000015"
# Wei for a byte: L1's base fee of 10 gwei, times a scalar of a half, times 16 units.
FEE_OF_A_BYTE = 80 * _GWEI


def oracle_at(chain: DevChain, address: str) -> Deployed:
    """Deploy a `FeeOracleStandIn` at an address."""
    oracle = Deployed(chain, "test/FeeOracleStandIn")
    chain.rpc("anvil_setCode", address, "0x" + oracle.code.hex())
    oracle.address = to_checksum_address(address)
    return oracle


def charge_for_data(chain: DevChain) -> None:
    """Make an `OP_STACK` chain charge at most `FEE_OF_A_BYTE` from now on."""
    oracle_at(chain, GAS_PRICE_ORACLE).send("set", FEE_OF_A_BYTE, 0, False)
    chain.rpc("anvil_setCode", _L1_BLOCK, "0x00")
    for slot, value in ((1, 10 * _GWEI), (3, 500_000 << 96), (7, _GWEI)):
        chain.rpc("anvil_setStorageAt", _L1_BLOCK, f"0x{slot:064x}", f"0x{value:064x}")
    # The fee applies from the next block on.
    chain.mine()
