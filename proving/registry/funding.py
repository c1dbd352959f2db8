"""What a signer must hold to begin with: enough to deploy what is missing and to prove some balances."""

import math
from collections.abc import Collection
from dataclasses import dataclass

from chains import rollups
from chains.chains_file import Chain, Connection
from chains.rpc import RpcClient
from config.configured_chains import get_chains
from contracts import NO_CONTRACT, load_artifact
from proving import sources
from proving.health import balance_costs
from proving.registry.contract import creation_code
from proving.transactions.fees import market_fees
from proving.transactions.intents import GAS_MARGIN

# Of a transaction that creates a contract; of a byte of its data that is zero, or not; of 32 bytes of them (EIP-3860);
# and of a byte of the contract (Yellow Paper, appendix G).
_CREATION, _ZERO_BYTE, _BYTE, _WORD, _BYTE_OF_CODE = 53_000, 4, 16, 2, 200
# What the constructors take at the most.
_CONSTRUCTOR = 60_000
# For an address that is not known yet: no byte of it is zero.
_UNKNOWN = "0x" + "ff" * 20
# So many balances are a day of trying it out.
_BALANCES = 20


@dataclass(frozen=True)
class Needed:
    """In wei, at present prices."""

    deploying: int  # at the most
    each_balance: int
    least: int  # to deploy
    in_all: int  # to deploy, and to prove some balances

    def to_send(self, balance: int) -> int:
        """Return what a signer with this balance should get: two digits of it, rounded up."""
        lacking = self.in_all - balance
        unit: int = 10 ** max(0, len(str(lacking)) - 2)
        return -(-lacking // unit) * unit


def needed(chain: Chain, missing: Collection[Connection], rpc: RpcClient) -> Needed:
    """Return what a signer of `chain` must hold to deploy the registries of the connections `missing`, and go on.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    market = market_fees(rpc)
    price = market.offer.max_fee_per_gas
    codes = [code for connection in missing for code in _creation_codes(connection)]
    deploying = 0
    for name, code in codes:
        gas = int(_creation_gas(name, code) * GAS_MARGIN)
        data = rollups.data_cost(rpc, len(code), gas)
        deploying += (gas + data.gas) * price + data.wei
    each = max(map(balance_costs.expected_gas, missing), default=0) * price
    least = chain.minimum_signer_balance_wei + deploying
    return Needed(deploying, each, least, least + _BALANCES * each)


def _creation_codes(connection: Connection) -> list[tuple[str, bytes]]:
    """Return what creates each contract that a registry takes, by the contract's name. Addresses are not known yet."""
    source = sources.of(connection)
    of_registry = (connection.source_id, _UNKNOWN, connection.window, NO_CONTRACT)
    codes = [
        (source.contract, creation_code(source.contract, *source.arguments(connection))),
        ("Multicall", creation_code("Multicall")),
    ]
    beacon_chain = get_chains().chain(connection.source_id).beacon_chain
    if beacon_chain:
        # Whoever creates it.
        codes.append(("BeaconHistory", creation_code("BeaconHistory", beacon_chain.arguments)))
        of_registry = (*of_registry[:-1], _UNKNOWN)
    return [*codes, ("FactsRegistry", creation_code("FactsRegistry", *of_registry))]


def _creation_gas(name: str, code: bytes) -> int:
    zeros = code.count(0)
    data = zeros * _ZERO_BYTE + (len(code) - zeros) * _BYTE + math.ceil(len(code) / 32) * _WORD
    return _CREATION + data + len(load_artifact(name).runtime) * _BYTE_OF_CODE + _CONSTRUCTOR
