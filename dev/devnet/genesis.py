"""The genesis of a chain after the Merge, in the format of geth's genesis files."""

from typing import Any

from chains.contract_artifacts import DEPLOYER, DEPLOYER_CODE
from devnet.devchain import ACCOUNTS

HOLDS_SLOTS = "0x000000000000000000000000000000000000c0de"
"""A contract that has slots from the beginning on."""

# System contracts with the addresses and code of their EIPs.
_HISTORY = "0x0000F90827F1C53a10cb7A02335B175320002935"
_HISTORY_CODE = (  # EIP-2935
    "0x3373fffffffffffffffffffffffffffffffffffffffe14604657602036036042575f35600143038111604257611fff81430311604257611fff"
    "9006545f5260205ff35b5f5ffd5b5f35611fff60014303065500"
)
_BEACON_ROOTS = "0x000F3df6D732807Ef1319fB7B8bB8522d0Beac02"
_BEACON_ROOTS_CODE = (  # EIP-4788
    "0x3373fffffffffffffffffffffffffffffffffffffffe14604d57602036146024575f5ffd5b5f35801560495762001fff810690815414603c57"
    "5f5ffd5b62001fff01545f5260205ff35b5f5ffd5b62001fff42064281555f359062001fff015500"
)
_FORKS = (
    *("homestead", "eip150", "eip155", "eip158", "byzantium", "constantinople", "petersburg", "istanbul", "berlin"),
    *("london", "mergeNetsplit"),
)


def genesis(chain_id: int, timestamp: int, prague_time: int = 0) -> dict[str, Any]:
    """Return the genesis, with funded development accounts. Cancun's rules apply up to `prague_time`."""
    alloc: dict[str, Any] = {address: {"balance": hex(10**22)} for address, _ in ACCOUNTS}
    there = {_HISTORY: _HISTORY_CODE, _BEACON_ROOTS: _BEACON_ROOTS_CODE, DEPLOYER: f"0x{DEPLOYER_CODE.hex()}"}
    for address, code in there.items():
        alloc[address] = {"balance": "0x0", "nonce": "0x1", "code": code}
    slots = {0: 7, 1: 2**256 - 1, 2**255: 0x80}
    alloc[HOLDS_SLOTS] = {
        "balance": "0x1",
        "nonce": "0x1",
        "code": "0x00",
        "storage": {_word(slot): _word(value) for slot, value in slots.items()},
    }
    return {
        "config": {
            "chainId": chain_id,
            **{f"{name}Block": 0 for name in _FORKS},
            "terminalTotalDifficulty": 0,
            "terminalTotalDifficultyPassed": True,
            "shanghaiTime": 0,
            "cancunTime": 0,
            "pragueTime": prague_time,
            "blobSchedule": {
                "cancun": {"target": 3, "max": 6, "baseFeeUpdateFraction": 3338477},
                "prague": {"target": 6, "max": 9, "baseFeeUpdateFraction": 5007716},
            },
            "depositContractAddress": "0x00000000219ab540356cBB839Cbe05303d7705Fa",
        },
        "nonce": "0x0",
        "timestamp": hex(timestamp),
        "extraData": "0x",
        "gasLimit": hex(36_000_000),
        "difficulty": "0x0",
        "mixHash": _word(0),
        "coinbase": "0x" + "00" * 20,
        "number": "0x0",
        "gasUsed": "0x0",
        "parentHash": _word(0),
        "baseFeePerGas": hex(10**9),
        "excessBlobGas": "0x0",
        "blobGasUsed": "0x0",
        "alloc": alloc,
    }


def _word(number: int) -> str:
    return f"0x{number:064x}"
