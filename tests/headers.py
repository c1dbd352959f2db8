"""Handwritten headers in the layouts of different chains' software. Fields have their JSON names and
their RLP order.
"""

from typing import Any

import rlp
from eth_utils.crypto import keccak

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

_EMPTY: dict[str, Any] = {
    "sha3Uncles": "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347",
    "miner": "0x" + 20 * "00",
    "transactionsRoot": "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421",
    "receiptsRoot": "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421",
    "logsBloom": "0x" + 256 * "00",
    "difficulty": "0x1",
    "gasUsed": "0x0",
}
_ISTANBUL = _EMPTY | {
    "mixHash": "0x63746963616c2062797a616e74696e65206661756c7420746f6c6572616e6365",
    "nonce": "0x0000000000000000",
}
# GoQuorum with IBFT.
IBFT_BLOCK = _ISTANBUL | {
    "number": "0x1",
    "hash": "0x357a793ce35a1d36a6d85be8df93bae275b7f0908d20124dc1712b57b3b3fa70",
    "parentHash": "0x984b16bb3fd1f204e3bc125a6c9654d82ea6264f2797f3ffc67a557a857c78b3",
    "stateRoot": "0x07fe2c0d3dc368ed1b9d3677d4a07b790d677463d16c1b07cfee20ef58e79054",
    "gasLimit": "0x7a1200",
    "timestamp": "0x5bf4cedb",
    "extraData": (
        "0xd883010810846765746888676f312e31312e32856c696e757800000000000000f90164f854946571d97f340c8495b661a8"
        "23f2c2145ca47d63c294d8dba507e85f116b1f7e231ca8525fc9008a696694e36cbeb565b061217930767886474e3cde903a"
        "c594f512a992f3fb749857d758ffda1330e590fa915eb841d8c2dc52e9409b51cf06ac607422ec806eb8bd69b471ad98d63c"
        "c75544f116732d73f9b9cd5a65ee23dd7df5c553a22d4f6af344b4c2e01278b70bd7bbdd69a601f8c9b8416d47583a7a3ff3"
        "8c394a8da9cb16fd0cd7cc33356283b635a03cd38ccf4fa0192f8bfd9e2d516d01bbff6c8b516b7374fe385118a6c8956d17"
        "218555595befbb01b8411765e61c361159b022087708c7458560f2e068b47a411bafb32e3b3d931746a82f65d23c7d899aa1"
        "b7bec2271070477e5a73a79c722a3fa44487e5a01b025ad901b84132598cdeecebd49ccf7bc094d2d50efc0f17e772f92d4d"
        "8ccf00d666880d018d4db7999a40816bfa58b5f1b14e367f2b54b77665b63994bbf0188c9a9603fd8b01"
    ),
}
# Besu with IBFT 2.0, in round 1.
IBFT_2_BLOCK = _ISTANBUL | {
    "number": "0x1",
    "hash": "0x82b5c53704cea50223ce667621806f485ec1d9dbe9e4ea7f19c928aedb6f0dd8",
    "parentHash": "0x85a523687ebad98224e669ddf2c5474c0e97007871b4baaaa05a419381fc98ce",
    "miner": "0x93917cadbace5dfce132b991732c6cda9bcc5b8a",
    "stateRoot": "0x98840a790f4c7dc6781a49d346bea3ee8373558e5bb1dfff5e65b3de25827650",
    "gasLimit": "0xf7b760",
    "timestamp": "0x624316e6",
    "extraData": (
        "0xf90148a00000000000000000000000000000000000000000000000000000000000000000f8549427a97c9aaf04f18f3014"
        "c32e036dd0ac76da5f189493917cadbace5dfce132b991732c6cda9bcc5b8a9498c1334496614aed49d2e81526d089f7264f"
        "ed9c94ce412f988377e31f4d0ff12d74df73b51c42d0ca808400000001f8c9b841f3e5877b8ef14758af6a2430135f9ccdf2"
        "18bbf76c0191cc56682df11c74968d4f748cda97d4d6f28e2c1e01e340dfbf5abd48077a9354c75abd4190b8adad6200b841"
        "1870785d31aec2245faa3fcc21e6c211ac9b6c377b44072ca87169b74e778d891a1ece5e88d6be58669d14b4ffa0d4b532f4"
        "073684b1f6e944cdec8f20979da501b8416871a68c70a8ec1ed842aa1d8b1b2fbcb38b949de24c0201b3543f0b965cd5ce1e"
        "da6ea1216d517a7d3841a60c54c9089660979d3ba2c1a5b0fd975157c4a39701"
    ),
}
# Besu with QBFT: the first block, which has no seals.
QBFT_GENESIS = _ISTANBUL | {
    "number": "0x0",
    "hash": "0x74f92c171677a9f8b1eac53fc4f2c2e0d6bbc7a7b9b259fd0067f7b573951e16",
    "parentHash": "0x0000000000000000000000000000000000000000000000000000000000000000",
    "stateRoot": "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421",
    "gasLimit": "0x1fffffffffffff",
    "timestamp": "0x58ee40ba",
    "extraData": (
        "0xf88fa00000000000000000000000000000000000000000000000000000000000000000f869945c9437de876531c73c9618"
        "d13872f7508869f2539474474cf92e9b74df7a2ce2c4fbc0830c773b7a769462f241db855d439cc79f5d2bd4a58eeb9c5d01"
        "cd946d544f03911b74425dd4112e95f93b82ac6302f19477fd5cb2aea0b91e7e4faf7625bf9dbaee39ee47c080c0"
    ),
}
# Zion with HotStuff.
HOTSTUFF_BLOCK = _ISTANBUL | {
    "number": "0xd",
    "hash": "0xf09ceb75d0e85322f04adfb5d02a54bccc6c20fc1c0f67e6ec0fc3c8618c79e9",
    "parentHash": "0x9ba4f263f431924b824b315667fa55a934653b1bc59f2cff8a3f9eaacf45fd0c",
    "miner": "0x258af48e28e4a6846e931ddff8e1cdf8579821e5",
    "stateRoot": "0xbfc1711d4a46f45c2422bc0c97c3a3e69ab5429b340f4a6f92224bfe0e1fed4d",
    "gasLimit": "0xfcc4db9f",
    "timestamp": "0x614bf970",
    "extraData": (
        "0xd983010a04846765746888676f312e31362e328664617277696e000000000000f90165f85494258af48e28e4a6846e931d"
        "dff8e1cdf8579821e5948c09d936a1b408d6e0afaa537ba4e06c4504a0ae94c095448424a5ecd5ca7ccdadfaad127a9d7e88"
        "ec94d47a4e56e9262543db39d9203cf1a2e53735f834b841460f2f90d7f07fb99c0990ab38d15fc2fd3868239fa0be795db0"
        "f5b9240bdbea67ec09cff65cb125a171cb98a5c7c6f55ce0bda8086079dc23f777ebf4fbfc0e00f8c9b8410a26b41bf027a7"
        "6224c30705f94234db0e264688346477af7cf7b1326f77ac415a17ddc2da69755c1aae1a5cdd2d8cf547f5721751753940e4"
        "8cb4d8f5427be700b84115f2e51d5f2b551c25e4a30c697dd087d7aa611344f22ba50ded8bf5e4625b5874b03568503dd65e"
        "39213d23e68d97c27cbdc192dd01c283e00fc7e10baaf69801b841d5366e5b4270f01b30e2a6aa0a176f42b3a1394f6d3c3c"
        "c88e324fd479f832483c6d839de7110c2b2ebbb45b36d44fbbf84e56f7ba5a6174eecf61acbe0d789c0080"
    ),
}
# Sokol, from Parity.
_SOKOL_SIGNATURE = (
    "7ad0ecca535f81e1807dac338a57c7ccffd05d3e7f0687944650cd005360a192205df306a68eddfe216e0674c6b113050d90eff9b627c176"
    "2d43657308f986f501"
)
SOKOL_BLOCK = _EMPTY | {
    "number": "0x22",
    "hash": "0xe52d77084cab13a4e724162bcd8c6028e5ecfaa04d091ee476e96b9958ed6b47",
    "parentHash": "0x106d528393159b93218dd410e2a778f083538098e46f1a44902aa67a164aed0b",
    "miner": "0xe8ddc5c7a2d2f0d7a9798459c0104fdf5e987aca",
    "stateRoot": "0x6eaa6281df37b9b010f4779affc25ee059088240547ce86cf7ca7b7acd952d4f",
    "transactionsRoot": "0x2c2e243e9735f6d0081ffe60356c0e4ec4c6a9064c68d10bf8091ff896f33087",
    "receiptsRoot": "0xf45ed4ab910504ffe231230879c86e32b531bb38a398a7c9e266b4a992e12dfb",
    "difficulty": "0xfffffffffffffffffffffffffffffffe",
    "gasLimit": "0x69aece",
    "gasUsed": "0x41d27",
    "timestamp": "0x5a343947",
    "extraData": "0xd5830108048650617269747986312e32322e31826c69",
    "sealFields": ["0x84120a71db", f"0xb841{_SOKOL_SIGNATURE}"],
    # Additional fields from Parity.
    "step": "302674395",
    "signature": _SOKOL_SIGNATURE,
}
# HyperEVM. Its blocks have no state root.
HYPEREVM_BLOCK = _EMPTY | {
    "number": "0xc350",
    "hash": "0xe2807a90deef5ac2478c32eaf043c1cc78e82acec46e60878713f20a2a1dadbc",
    "parentHash": "0x105ed6fbe742a7d42971602bd486479885ee1c226d5b66472fc75dcaa867611d",
    "stateRoot": "0x0000000000000000000000000000000000000000000000000000000000000000",
    "transactionsRoot": "0x2e1e2d5bb956634657b6c13101d9f50490418e27c54963534cac05325de87e0d",
    "receiptsRoot": "0x427589e6abda9f02c7c7f3c929d57edee08de4a8e29adf0b216c86f1221eecc9",
    "difficulty": "0x0",
    "gasLimit": "0x1e8480",
    "gasUsed": "0x10b29",
    "timestamp": "0x67b57a36",
    "extraData": "0x",
    "mixHash": "0x0000000000000000000000000000000000000000000000000000000000000000",
    "nonce": "0x0000000000000000",
    "baseFeePerGas": "0x5f5e100",
    "withdrawalsRoot": "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421",
    "blobGasUsed": "0x0",
    "excessBlobGas": "0x0",
    "parentBeaconBlockRoot": "0x0000000000000000000000000000000000000000000000000000000000000000",
}


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
