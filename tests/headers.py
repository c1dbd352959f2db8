"""Handwritten headers in the layouts of different chains' software. Fields have their JSON names and
their RLP order.
"""

from typing import Any

import rlp
from eth_utils.crypto import keccak

from tests.fixtures_folder import load_fixture

Fields = dict[str, bytes | int]

# Fields at the start of all layouts.
SHARED: Fields = {
    "parentHash": b"\x01" * 32,
    "sha3Uncles": b"\x02" * 32,
    "miner": b"\xa1" * 20,
    "stateRoot": b"\x03" * 32,
    "transactionsRoot": b"\x04" * 32,
    "receiptsRoot": b"\x05" * 32,
    "logsBloom": bytes(256),
    "difficulty": 0,
    "number": 12,
    "gasLimit": 30_000_000,
    "gasUsed": 21_000,
    "timestamp": 1_700_000_000,
    "extraData": b"anybody",
}
FRONTIER: Fields = {**SHARED, "mixHash": b"\x06" * 32, "nonce": bytes(8)}
LONDON: Fields = {**FRONTIER, "baseFeePerGas": 1_234_567_890}
SHANGHAI: Fields = {**LONDON, "withdrawalsRoot": b"\x07" * 32}
CANCUN: Fields = {
    **SHANGHAI,
    "blobGasUsed": 131_072,
    "excessBlobGas": 0,
    "parentBeaconBlockRoot": b"\x08" * 32,
}
PRAGUE: Fields = {**CANCUN, "requestsHash": b"\x09" * 32}
AMSTERDAM: Fields = {**PRAGUE, "blockAccessListHash": b"\x0a" * 32, "slotNumber": 7}

# Source: ava-labs/coreth, plugin/evm/customtypes/header_ext.go. Before Apricot Phase 3 it has 16 fields, as London has.
AVALANCHE_AT_FIRST: Fields = {**FRONTIER, "difficulty": 1, "extDataHash": b"\xe1" * 32}
AVALANCHE_APRICOT: Fields = {
    **AVALANCHE_AT_FIRST,
    "baseFeePerGas": 25_000_000_000,
    "extDataGasUsed": 0,
    "blockGasCost": 400_000,
}
AVALANCHE: Fields = {
    **AVALANCHE_APRICOT,
    "blobGasUsed": 0,
    "excessBlobGas": 0,
    "parentBeaconBlockRoot": bytes(32),
    "timestampMilliseconds": 1_700_000_000_123,
    "minDelayExcess": 7_970_124,
}
# Source: berachain/bera-reth, src/primitives/header.rs
BERACHAIN: Fields = {**PRAGUE, "parentProposerPubkey": b"\xbe" * 48}
# Source: XinFinOrg/XDPoSChain, core/types/block.go
XDC: Fields = {**FRONTIER, "validators": b"", "validator": b"\xdc" * 65, "penalties": b""}
XDC_EPOCH: Fields = {**XDC, "validators": b"\xd1" * 60, "penalties": b"\xd2" * 20, "baseFeePerGas": 12_500_000_000}
# Gnosis before its merge. Source: NethermindEth/nethermind, Nethermind.Serialization.Rlp/HeaderDecoder.cs
AURA: Fields = {**SHARED, "difficulty": 2**128 - 2, "step": 326_374_892, "signature": b"\xaa" * 65}
AURA_LONDON: Fields = {**AURA, "baseFeePerGas": 7}
# AuRa headers from nodes that don't return the seals.
UNTOLD: Fields = {**SHARED, "difficulty": 2**128 - 2, "own step": 326_374_892, "own signature": b"\xaa" * 65}
UNTOLD_LONDON: Fields = {**UNTOLD, "baseFeePerGas": 7}
# BNB Smart Chain between Cancun and Bohr. Source: bnb-chain/bsc, consensus/parlia/parlia.go
BNB: Fields = {name: value for name, value in CANCUN.items() if name != "parentBeaconBlockRoot"}

ETHEREUM = {
    "frontier": FRONTIER,
    "london": LONDON,
    "shanghai": SHANGHAI,
    "cancun": CANCUN,
    "prague": PRAGUE,
    "amsterdam": AMSTERDAM,
    "bnb": BNB,
}
# Layouts whose nodes return all fields in JSON.
TOLD = {
    "avalanche at first": AVALANCHE_AT_FIRST,
    "avalanche apricot": AVALANCHE_APRICOT,
    "avalanche": AVALANCHE,
    "berachain": BERACHAIN,
    "xdc": XDC,
    "xdc epoch": XDC_EPOCH,
    "aura": AURA,
    "aura london": AURA_LONDON,
}
OTHERS = TOLD


# --- Blocks of real chains, as their nodes sent them ------------------------------------------------------------------

IBFT_BLOCK, IBFT_2_BLOCK, QBFT_GENESIS, HOTSTUFF_BLOCK, SOKOL_BLOCK, HYPEREVM_BLOCK = (
    recorded["block"] for recorded in load_fixture("headers/blocks.json").values()
)


# --- JSON and RLP -----------------------------------------------------------------------------------------------------


def encode(fields: Fields, **changes: bytes | int) -> bytes:
    encoded: bytes = rlp.encode(list({**fields, **changes}.values()))
    return encoded


def as_json(fields: Fields, **changes: bytes | int) -> dict[str, Any]:
    """Return a block without transactions in a node's JSON form."""
    values = {**fields, **changes}
    block = {name: value if isinstance(value, bytes) else hex(value) for name, value in values.items()}
    block["hash"] = keccak(encode(values))
    return {name: "0x" + value.hex() if isinstance(value, bytes) else value for name, value in block.items()}


def told(block: dict[str, Any]) -> bytes:
    """Return the header as Ethereum's fields of the JSON form make it."""
    fields = {name: block[name] for name in AMSTERDAM if name in block}
    values = [
        bytes.fromhex(value[2:]) if isinstance(AMSTERDAM[name], bytes) else int(value, 16)
        for name, value in fields.items()
    ]
    encoded: bytes = rlp.encode(values)
    return encoded


def with_hash(block: dict[str, Any]) -> dict[str, Any]:
    """Return the block with the hash that its fields give."""
    return block | {"hash": f"0x{keccak(told(block)).hex()}"}
