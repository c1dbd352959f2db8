"""The genesis of a chain after the Merge, in the format of geth's genesis files."""

from typing import Any

from chains.contract_artifacts import DEPLOYER, DEPLOYER_CODE
from devnet.devchain import ACCOUNTS

HOLDS_SLOTS = "0x000000000000000000000000000000000000c0de"
"""A contract that has slots from the beginning on."""

# System contracts with the addresses and code of their EIPs. geth refuses a block if it calls one that has no code.
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
_REQUESTS = {
    "0x00000961Ef480Eb55e80D19ad83579A64c007002": (  # EIP-7002, withdrawal requests
        "0x3373fffffffffffffffffffffffffffffffffffffffe1460cb5760115f54807fffffffffffffffffffffffffffffffffffffffffff"
        "ffffffffffffffffffffff146101f457600182026001905f5b5f82111560685781019083028483029004916001019190604d565b9093"
        "90049250505036603814608857366101f457346101f4575f5260205ff35b34106101f457600154600101600155600354806003026004"
        "013381556001015f35815560010160203590553360601b5f5260385f601437604c5fa0600101600355005b6003546002548082038060"
        "101160df575060105b5f5b8181146101835782810160030260040181604c02815460601b815260140181600101548152602001906002"
        "0154807fffffffffffffffffffffffffffffffff00000000000000000000000000000000168252906010019060401c908160381c8160"
        "0701538160301c81600601538160281c81600501538160201c81600401538160181c81600301538160101c81600201538160081c8160"
        "0101535360010160e1565b910180921461019557906002556101a0565b90505f6002555f6003555b5f54807fffffffffffffffffffff"
        "ffffffffffffffffffffffffffffffffffffffffffff14156101cd57505f5b6001546002828201116101e25750505f6101e8565b0160"
        "0290035b5f555f600155604c025ff35b5f5ffd"
    ),
    "0x0000BBdDc7CE488642fb579F8B00f3a590007251": (  # EIP-7251, consolidation requests
        "0x3373fffffffffffffffffffffffffffffffffffffffe1460d35760115f54807fffffffffffffffffffffffffffffffffffffffffff"
        "ffffffffffffffffffffff1461019a57600182026001905f5b5f82111560685781019083028483029004916001019190604d565b9093"
        "900492505050366060146088573661019a573461019a575f5260205ff35b341061019a57600154600101600155600354806004026004"
        "013381556001015f358155600101602035815560010160403590553360601b5f5260605f60143760745fa0600101600355005b600354"
        "6002548082038060021160e7575060025b5f5b8181146101295782810160040260040181607402815460601b81526014018160010154"
        "8152602001816002015481526020019060030154905260010160e9565b910180921461013b5790600255610146565b90505f6002555f"
        "6003555b5f54807fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff141561017357505f5b6001546001"
        "828201116101885750505f61018e565b01600190035b5f555f6001556074025ff35b5f5ffd"
    ),
    "0x0000BFF46984E3725691FA540A8C7589300D8282": (  # EIP-8282, builders' deposits
        "0x3373fffffffffffffffffffffffffffffffffffffffe1461011c575f54807fffffffffffffffffffffffffffffffffffffffffffff"
        "ffffffffffffffffffff146102705760015460088111605257506058565b60089003015b601190600182026001905f5b5f821115607f"
        "57810190830284830290049160010191906064565b90939004925050503660b814609f57366102705734610270575f5260205ff35b80"
        "34106102705760383567ffffffffffffffff1680633b9aca001161027057633b9aca0002903403106102705760015460010160015560"
        "0354806006026004015f358155600101602035815560010160403581556001016060358155600101608035815560010160a035905560"
        "b85f5f3760b85fa0600101600355005b60035460025480820380604011610131575060405b5f5b8181146101d7578281016006026004"
        "018160b8028154815260200181600101548152602001816002015480825260401c67ffffffffffffffff16816010018160381c816007"
        "01538160301c81600601538160281c81600501538160201c81600401538160181c81600301538160101c81600201538160081c816001"
        "015353602001816003015481526020018160040154815260200190600501549052600101610133565b91018092146101e95790600255"
        "6101f4565b90505f6002555f6003555b36610242575f54600154817fffffffffffffffffffffffffffffffffffffffffffffffffffff"
        "ffffffffffff1461023057600882820111610238575b50505f610264565b0160089003610264565b7fffffffffffffffffffffffffff"
        "ffffffffffffffffffffffffffffffffffffff5b5f555f60015560b8025ff35b5f5ffd"
    ),
    "0x000064D678505AD48F8CCB093BC65613800E8282": (  # EIP-8282, builders' exits
        "0x3373fffffffffffffffffffffffffffffffffffffffe1460e1575f54807fffffffffffffffffffffffffffffffffffffffffffffff"
        "ffffffffffffffffff146101c65760015460028111605157506057565b60029003015b601190600182026001905f5b5f821115607e57"
        "810190830284830290049160010191906063565b909390049250505036603014609e57366101c657346101c6575f5260205ff35b3410"
        "6101c657600154600101600155600354806003026004013381556001015f35815560010160203590553360601b5f5260305f60143760"
        "445fa0600101600355005b6003546002548082038060101160f5575060105b5f5b81811461012d578281016003026004018160440281"
        "5460601b8152601401816001015481526020019060020154905260010160f7565b910180921461013f579060025561014a565b90505f"
        "6002555f6003555b36610198575f54600154817fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff1461"
        "01865760028282011161018e575b50505f6101ba565b01600290036101ba565b7fffffffffffffffffffffffffffffffffffffffffff"
        "ffffffffffffffffffffff5b5f555f6001556044025ff35b5f5ffd"
    ),
}
_FORKS = (
    *("homestead", "eip150", "eip155", "eip158", "byzantium", "constantinople", "petersburg", "istanbul", "berlin"),
    *("london", "mergeNetsplit"),
)


def genesis(
    chain_id: int,
    timestamp: int,
    prague_time: int = 0,
    *,
    osaka_time: int | None = None,
    amsterdam_time: int | None = None,
    gas_limit: int = 36_000_000,
) -> dict[str, Any]:
    """Return the genesis, with funded development accounts. Cancun's rules apply up to `prague_time`.

    A fork at time 0 applies from the first block on, and a fork at None never. Amsterdam needs Osaka.
    """
    alloc: dict[str, Any] = {address: {"balance": hex(10**22)} for address, _ in ACCOUNTS}
    there = {_HISTORY: _HISTORY_CODE, _BEACON_ROOTS: _BEACON_ROOTS_CODE, DEPLOYER: f"0x{DEPLOYER_CODE.hex()}"}
    for address, code in (there | _REQUESTS).items():
        alloc[address] = {"balance": "0x0", "nonce": "0x1", "code": code}
    later = {"osakaTime": osaka_time, "amsterdamTime": amsterdam_time}
    blobs = {"target": 6, "max": 9, "baseFeeUpdateFraction": 5007716}
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
            **{name: time for name, time in later.items() if time is not None},
            "blobSchedule": {
                "cancun": {"target": 3, "max": 6, "baseFeeUpdateFraction": 3338477},
                **dict.fromkeys(("prague", "osaka"), blobs),
            },
            "depositContractAddress": "0x00000000219ab540356cBB839Cbe05303d7705Fa",
        },
        "nonce": "0x0",
        "timestamp": hex(timestamp),
        "extraData": "0x",
        "gasLimit": hex(gas_limit),
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
