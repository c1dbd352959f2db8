"""Answers of geth 1.17.10. Refusals of geth 1.16.9 have the same words where no comment says otherwise.

Stand-ins repeat them, and tests/real_nodes/system/test_geth_answers.py asks a real geth for each. Numbers, hashes and
addresses are examples.
"""

from collections.abc import Mapping
from typing import Any

Refusal = tuple[int, str] | tuple[int, str, str]
"""A JSON-RPC error: the code, the words, and the data if there are any."""

NO_FUNDS = "insufficient funds for gas * price + value"


def no_method(method: str) -> Refusal:
    return -32601, f"the method {method} does not exist/is not available"


def no_state(root: str) -> Refusal:
    """Return the refusal of a state that the node keeps no longer. Its root is written without 0x."""
    return -32000, f"historical state {root} is not available"


# Refusals of sent transactions, all with the code -32000. geth queues a transaction after a gap of nonces, keeps one
# below the base fee, and answers both with the hash.
REFUSED_SENDS: dict[str, str] = {
    "already known": "already known",
    "replacement underpriced": "replacement transaction underpriced",
    "nonce too low": "nonce too low: next nonce 1, tx nonce 0",
    "fee too low": "transaction gas price below minimum: gas tip cap 0, minimum needed 1",
    "fee too high": "tx fee (1.60 ether) exceeds the configured cap (1.00 ether)",
    "insufficient funds": f"{NO_FUNDS}: balance 0, tx cost 210000000000001, overshot 210000000000001",
    "gas too low": "intrinsic gas too low: gas 20000, minimum needed 21000",
    "gas too low for the data": "insufficient gas for floor data gas cost: gas 38500, minimum needed 61000",
    "gas too high": "transaction gas limit too high (cap: 16777216, tx: 16777217)",
    "exceeds block gas limit": "exceeds block gas limit",
    "data too long": "oversized data: transaction size 131119, limit 131072",
}
# The service sends none of these but the first.
RARELY_REFUSED_SENDS: dict[str, str] = {
    "insufficient funds behind others": (
        f"{NO_FUNDS}: balance 1000000000000000000, queued cost 600000000000000001, tx cost 600000000000000001, "
        "overshot 200000000000000002"
    ),
    "priority fee too high": "max priority fee per gas higher than max fee per gas",
    "code too long": "max initcode size exceeded: code size 49153 limit 49152",
    "other chain": "invalid sender: invalid chain id for signer: have 424243 want 424242",
    "no chain": "only replay-protected (EIP-155) transactions allowed over RPC",
}
# With --txpool.nolocals. Without it geth answers with the hash, and tries to add the transaction later.
REFUSED_SENDS_IF_NOT_KEPT: dict[str, str] = {
    "pool full": "transaction underpriced",
    "gap in a full pool": "future transaction tries to replace pending",
    "gap of a delegated account": "gapped-nonce tx from delegated accounts",
    "second one of a delegated account": "in-flight transaction limit reached for delegated accounts",
}

_INDEXING = "transaction indexing is in progress"
REFUSALS: Mapping[str, Refusal] = {
    "a block number to come": (-32000, "header not found"),
    "an unknown block hash": (-32000, "header for hash not found"),
    "an old state": no_state("eb64" * 16),
    # The methods are those of blocks, receipts and logs. With --history.chain, which 1.16.9 has for public chains only.
    "a pruned block": (4444, "pruned history unavailable"),
    "no final block": (-32000, "finalized block not found"),
    "no pending block": (-32000, "pending state is not available"),
    # A receipt or an unknown transaction
    "transactions that are not indexed": (-32000, _INDEXING, _INDEXING),
    "a revert": (3, "execution reverted", "0x"),
    # Without money for the fee that a request names
    "an estimate without funds": (-32000, "insufficient funds for transfer"),
    "an estimate above the limit": (-32000, "gas required exceeds allowance (16777216)"),
    "a batch of too many requests": (-32600, "batch too large"),
    "a batch of too long answers": (-32003, "response too large"),
    # --rpc.evmtimeout
    "a call that takes too long": (-32000, "execution aborted (timeout = 1ms)"),
    "a time-out": (-32002, "request timed out"),
    # Both since 1.17
    "a long range of logs": (-32602, "exceed maximum block range 5"),
    "logs above the head": (-32602, "block range extends beyond current head block"),
    "too many parameters": (-32602, "too many arguments, want at most 2"),
}


# geth 1.16.9 and op-geth: they make no access list for a caller that can't pay.
NO_LIST: Refusal = (-32000, f"failed to apply transaction: 0x00 err: {NO_FUNDS}: address 0x00 have 0 want 1")

# The answer to eth_syncing without a block or a peer
SYNCS: Mapping[str, str] = {
    **dict.fromkeys(("startingBlock", "currentBlock", "highestBlock"), "0x0"),
    "txIndexRemainingBlocks": "0x1",
}

# Refusals of HTTP requests: the status and the text.
REFUSED_HTTP: Mapping[str, tuple[int, bytes]] = {
    "another host name": (403, b"invalid host specified\n"),
    "the port of the Engine API": (401, b"missing token\n"),
    # --rpc.http-body-limit, since 1.17
    "a long body": (413, b"content length too large (2000001>1048576)\n"),
}


# Precompiles by their addresses, from 1 on.
_PRECOMPILES = (
    *("ECREC", "SHA256", "RIPEMD160", "ID", "MODEXP", "BN254_ADD", "BN254_MUL", "BN254_PAIRING", "BLAKE2F"),
    *("KZG_POINT_EVALUATION", "BLS12_G1ADD", "BLS12_G1MSM", "BLS12_G2ADD", "BLS12_G2MSM", "BLS12_PAIRING_CHECK"),
    *("BLS12_MAP_FP_TO_G1", "BLS12_MAP_FP2_TO_G2"),
)
# Rules of forks as `eth_config` (EIP-7910) tells them, without `chainId` and `forkId`.
OSAKA: dict[str, Any] = {
    "activationTime": 0,
    "blobSchedule": {"target": 6, "max": 9, "baseFeeUpdateFraction": 5007716},
    "precompiles": {
        **{name: f"0x{number:040x}" for number, name in enumerate(_PRECOMPILES, 1)},
        "P256VERIFY": f"0x{256:040x}",
    },
    "systemContracts": {
        "BEACON_ROOTS_ADDRESS": "0x000f3df6d732807ef1319fb7b8bb8522d0beac02",
        "CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS": "0x0000bbddc7ce488642fb579f8b00f3a590007251",
        "DEPOSIT_CONTRACT_ADDRESS": "0x00000000219ab540356cbb839cbe05303d7705fa",
        "HISTORY_STORAGE_ADDRESS": "0x0000f90827f1c53a10cb7a02335b175320002935",
        "WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS": "0x00000961ef480eb55e80d19ad83579a64c007002",
    },
}
AMSTERDAM = OSAKA | {
    "systemContracts": OSAKA["systemContracts"]
    | {
        "BUILDER_DEPOSIT_CONTRACT_ADDRESS": "0x0000bff46984e3725691fa540a8c7589300d8282",
        "BUILDER_EXIT_CONTRACT_ADDRESS": "0x000064d678505ad48f8ccb093bc65613800e8282",
    },
}
