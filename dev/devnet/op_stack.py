"""A rollup of the OP Stack: op-geth, op-node and op-batcher, as processes on this machine. `make op-stack` builds them.

op-node derives the rollup's blocks from the chain below, L1, and orders its transactions itself. All forks up to Karst
count from the first block on.
"""

import json
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
# The scalars of OP Mainnet.
_BASE_FEE_SCALAR, _BLOB_BASE_FEE_SCALAR = 5227, 1_014_213


class OpGeth(Geth):
    """The rollup's execution client. It proves the state of every block, which geth does only by the older scheme."""

    name = "op-geth"

    def __init__(self, chain_id: int, *, genesis_time: int, gas_limit: int = 60_000_000) -> None:
        flags = ("--gcmode=archive", "--state.scheme=hash", "--rollup.disabletxpoolgossip")
        super().__init__(
            chain_id, genesis_time=genesis_time, gas_limit=gas_limit, flags=flags, program=PROGRAMS / "op-geth"
        )
        config = self.genesis["config"]
        for of_l1 in ("blobSchedule", "depositContractAddress", "terminalTotalDifficultyPassed"):
            del config[of_l1]
        # Osaka comes with Karst.
        config |= {"bedrockBlock": 0, "optimism": _EIP1559, "osakaTime": 0, **{f"{fork}Time": 0 for fork in _FORKS}}
        # Since Jovian: version, denominator, elasticity, least base fee.
        self.genesis["extraData"] = "0x01" + (250).to_bytes(4).hex() + (6).to_bytes(4).hex() + bytes(8).hex()
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
    """A rollup that is derived from `l1`, within a `with` block.

    It makes a block every second, and publishes batches, without which its final block would stay the first one. The
    operator fee is a scalar and a constant, by which a transaction pays gas * 100 * scalar + constant, in wei.
    """

    def __init__(
        self,
        l1: ExecutionClient,
        chain_id: int,
        *,
        operator_fee: tuple[int, int] = (0, 0),
    ) -> None:
        self.l1, self.l2 = l1, OpGeth(chain_id, genesis_time=int(l1.genesis["timestamp"], 16))
        self._operator_fee = operator_fee
        self._running = ExitStack()

    @staticmethod
    def prepare(l1: ExecutionClient) -> None:
        """Add to the genesis of `l1` the account that op-node asks for. Call this before `l1` starts."""
        storage = {_SIGNER_SLOT: f"0x{int(_BATCHER, 16):064x}"}
        l1.genesis["alloc"][_SYSTEM_CONFIG] = {"balance": "0x0", "nonce": "0x1", "code": "0x00", "storage": storage}

    def __enter__(self) -> Self:
        with self._running:
            self._running.enter_context(self.l2)
            self._write("rollup.json", self._rollup())
            config = self.l1.genesis["config"]
            self._write("l1.json", {name: value for name, value in config.items() if not name.endswith("Passed")})
            self.node = self._running.enter_context(self._op_node())
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
                # Without blobs, no beacon node is asked.
                "l1.beacon": self.l1.url,
                "l1.beacon.ignore": "true",
                "l1.http-poll-interval": "500ms",
                "l1.epoch-poll-interval": "2s",
                "l2": self.l2.engine_url,
                "l2.jwt-secret": self.l2.folder / "jwt.hex",
                "l2.enginekind": "geth",
                "rollup.config": self.l2.folder / "rollup.json",
                "rollup.l1-chain-config": self.l2.folder / "l1.json",
                "sequencer.enabled": "true",
                "sequencer.l1-confs": 0,
                "finality.delay": 2,
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

    def _rollup(self) -> dict[str, Any]:
        firsts = {
            name: {"hash": node.rpc("eth_getBlockByNumber", "0x0", False)["hash"], "number": 0}
            for name, node in (("l1", self.l1), ("l2", self.l2))
        }
        scalar, constant = self._operator_fee
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
                    "minBaseFee": 0,
                    "daFootprintGasScalar": 0,
                },
            },
            "block_time": 1,
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
