"""A rollup of the OP Stack: op-geth, op-node and op-batcher, as processes on this machine. `make op-stack` builds them.

op-node derives the rollup's blocks from the chain below, L1, and orders its transactions itself. All forks up to Karst
count from the first block on.
"""

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any, Self

from devnet.devchain import ACCOUNTS, PROJECT
from devnet.execution_client import ExecutionClient
from devnet.geth import Geth
from devnet.json_rpc import post
from devnet.servers import LocalServer

PROGRAMS = PROJECT / ".op-stack"
_PREDEPLOYS = PROGRAMS / "predeploys.json"
_FORKS = ("regolith", "canyon", "ecotone", "fjord", "granite", "holocene", "isthmus", "jovian", "karst")
# Addresses on L1. Only the last one has an account, because op-node wants a slot of it proven.
_INBOX, _PORTAL, _SYSTEM_CONFIG = (f"0x{number:040x}" for number in (0xFF01, 0xFF02, 0xFF03))
# One less than the keccak-256 of "systemconfig.unsafeblocksigner".
_SIGNER_SLOT = "0x65a7ed542fb37fe237fdfbdd70b31598523fe5b32879e307bae27a0bd9581c08"
_BATCHER, _BATCHER_KEY = ACCOUNTS[3]
_EIP1559 = {"eip1559Elasticity": 6, "eip1559Denominator": 50, "eip1559DenominatorCanyon": 250}
# The base fee stays here, in wei, so that costs don't depend on a transaction's block.
_MIN_BASE_FEE = 10**9
# The scalars of OP Mainnet.
_BASE_FEE_SCALAR, _BLOB_BASE_FEE_SCALAR = 5227, 1_014_213


class OpGeth(Geth):
    """The rollup's execution client. It proves the state of every block, which geth does only by the older scheme."""

    name = "op-geth"

    def __init__(self, chain_id: int) -> None:
        # op-geth would replace the genesis of a chain whose id it knows, such as OP Sepolia's.
        own_genesis = "--rollup.superchain-upgrades=false"
        flags = ("--gcmode=archive", "--state.scheme=hash", "--rollup.disabletxpoolgossip", own_genesis)
        super().__init__(chain_id, flags=flags, program=PROGRAMS / "op-geth")
        config = self.genesis["config"]
        for of_l1 in ("blobSchedule", "depositContractAddress", "terminalTotalDifficultyPassed"):
            del config[of_l1]
        # Osaka comes with Karst.
        config |= {"bedrockBlock": 0, "optimism": _EIP1559, "osakaTime": 0, **{f"{fork}Time": 0 for fork in _FORKS}}
        # Since Jovian: version, denominator, elasticity, least base fee.
        self.genesis["extraData"] = f"0x01{250:08x}{6:08x}{_MIN_BASE_FEE:016x}"
        self.genesis["alloc"] |= json.loads(_PREDEPLOYS.read_text())


class _OpServer(LocalServer):
    """A program of the OP Stack that answers by JSON-RPC."""

    def __init__(self, program: str, options: dict[str, object]) -> None:
        self.name = program
        super().__init__()
        self.url, self._options = f"http://127.0.0.1:{self.port}", options

    def ask(self, method: str) -> Any:
        """Return the `result` of one call. Raises `NodeErrorReply`, and `OSError` if it doesn't run."""
        return post(self.url, method, [])

    def _command(self) -> Sequence[str]:
        options = self._options | {"rpc.addr": "127.0.0.1", "rpc.port": self.port}
        return [str(PROGRAMS / self.name), *(f"--{name}={value}" for name, value in options.items())]

    def _answers(self) -> bool:
        with suppress(OSError):
            self.ask("rpc_modules")
            return True
        return False


class OpStack:
    """A rollup that is derived from the blocks that `l1` has from now on, within a `with` block.

    It makes a block every `block_seconds`. Without `has_batcher` it publishes no batches, and its final block stays the
    first one. If it `is_as_old` as `l1`, it is derived from the first block of that on, and catches up with the time.
    The operator fee is a scalar and a constant, by which a transaction pays gas * 100 * scalar + constant, in wei.
    """

    def __init__(
        self,
        l1: ExecutionClient,
        chain_id: int,
        *,
        operator_fee: tuple[int, int] = (0, 0),
        block_seconds: int = 1,
        has_batcher: bool = True,
        is_as_old: bool = False,
    ) -> None:
        self.chain_id = chain_id
        self.l1, self.l2, self.operator_fee = l1, OpGeth(chain_id), operator_fee
        self._block_seconds, self._has_batcher, self._is_as_old = block_seconds, has_batcher, is_as_old
        self._running = ExitStack()

    @staticmethod
    def prepare(l1: ExecutionClient) -> None:
        """Add to the genesis of `l1` the account that op-node asks for. Call this before `l1` starts."""
        storage = {_SIGNER_SLOT: f"0x{int(_BATCHER, 16):064x}"}
        l1.genesis["alloc"][_SYSTEM_CONFIG] = {"balance": "0x0", "nonce": "0x1", "code": "0x00", "storage": storage}

    def __enter__(self) -> Self:
        with self._running:
            # The rollup's first block is as old as that of L1, or younger by half an hour at most.
            first = self.l1.rpc("eth_getBlockByNumber", "earliest" if self._is_as_old else "latest", False)
            begins = 0 if self._is_as_old else int(time.time())
            self.l2.genesis["timestamp"] = hex(max(begins, int(first["timestamp"], 16)))
            self._running.enter_context(self.l2)
            self._write("rollup.json", self._rollup(first))
            config = self.l1.genesis["config"]
            self._write("l1.json", {name: value for name, value in config.items() if not name.endswith("Passed")})
            self.node = self._running.enter_context(self._op_node())
            if self._has_batcher:
                self._running.enter_context(self._op_batcher())
            self._running = self._running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def sync_status(self) -> dict[str, int]:
        """Return the numbers of op-node's newest blocks: `unsafe_l2`, `finalized_l2`, `head_l1` and so on."""
        told = self.node.ask("optimism_syncStatus")
        return {name: block["number"] for name, block in told.items() if isinstance(block, dict) and "number" in block}

    def _write(self, name: str, content: dict[str, Any]) -> None:
        (self.l2.folder / name).write_text(json.dumps(content))

    def _op_node(self) -> _OpServer:
        return _OpServer(
            "op-node",
            {
                "l1": self.l1.url,
                "l1.rpckind": "standard",
                # Without blobs, no beacon node is needed. op-node would try one of `l1.beacon` for 15 seconds.
                "l1.beacon.ignore": "true",
                "l1.http-poll-interval": "500ms",
                "l1.epoch-poll-interval": "500ms",
                "l2": self.l2.engine_url,
                "l2.jwt-secret": self.l2.folder / "jwt.hex",
                "l2.enginekind": "geth",
                "rollup.config": self.l2.folder / "rollup.json",
                "rollup.l1-chain-config": self.l2.folder / "l1.json",
                "sequencer.enabled": "true",
                "sequencer.l1-confs": 0,
                "finality.delay": 1,
                "p2p.disable": "true",
            },
        )

    def _op_batcher(self) -> _OpServer:
        return _OpServer(
            "op-batcher",
            {
                "l1-eth-rpc": self.l1.url,
                "l2-eth-rpc": self.l2.url,
                "rollup-rpc": self.node.url,
                "private-key": _BATCHER_KEY,
                "data-availability-type": "calldata",
                "max-channel-duration": 1,
                "poll-interval": "500ms",
                "num-confirmations": 1,
                "sub-safety-margin": 10,
                "throttle.unsafe-da-bytes-lower-threshold": 0,
                "txmgr.receipt-query-interval": "500ms",
            },
        )

    def _rollup(self, first: dict[str, Any]) -> dict[str, Any]:
        firsts = {
            name: {"hash": block["hash"], "number": int(block["number"], 16)}
            for name, block in (("l1", first), ("l2", self.l2.rpc("eth_getBlockByNumber", "0x0", False)))
        }
        scalar, constant = self.operator_fee
        return {
            "genesis": {
                **firsts,
                "l2_time": int(self.l2.genesis["timestamp"], 16),
                "system_config": {
                    "batcherAddr": _BATCHER,
                    "overhead": f"0x{0:064x}",
                    "scalar": f"0x{1 << 248 | _BLOB_BASE_FEE_SCALAR << 32 | _BASE_FEE_SCALAR:064x}",
                    "gasLimit": int(self.l2.genesis["gasLimit"], 16),
                    "eip1559Params": f"0x{0:016x}",
                    "operatorFeeParams": f"0x{scalar << 64 | constant:064x}",
                    "minBaseFee": _MIN_BASE_FEE,
                    "daFootprintGasScalar": 0,
                },
            },
            "block_time": self._block_seconds,
            "max_sequencer_drift": 600,
            # After so many blocks of L1 without batches, op-node would replace its own blocks by empty ones.
            "seq_window_size": 100_000,
            "channel_timeout": 300,
            "l1_chain_id": self.l1.chain_id,
            "l2_chain_id": self.l2.chain_id,
            **{f"{fork}_time": 0 for fork in (*_FORKS, "delta")},
            "batch_inbox_address": _INBOX,
            "deposit_contract_address": _PORTAL,
            "l1_system_config_address": _SYSTEM_CONFIG,
            "chain_op_config": _EIP1559,
        }
