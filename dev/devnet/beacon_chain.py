"""A beacon chain by the executable consensus specifications (minimal preset). An execution client builds its payloads.

It follows Deneb's rules up to an epoch, and Electra's from that epoch on. States and blocks have the specifications'
own types. Blocks contain attestations, so the chain becomes final. Nothing is signed: BLS is off. Some slots have no
block.

`.venv-beacon/bin/python -m devnet.beacon_chain` drives the client by the Engine API, and serves its chain by the beacon
API. `devnet.consensus_client` starts it.
"""

import hashlib
import json
import select
import socket
import sys
import time
from collections.abc import Collection
from typing import IO, Any

from eth_consensus_specs.deneb import minimal as deneb
from eth_consensus_specs.electra import minimal as electra
from eth_consensus_specs.utils import bls

from devnet.beacon_api import BeaconApi, BeaconBlock, BeaconNode, BeaconState
from devnet.json_rpc import EngineApi, post

_VALIDATORS = 32
_PUBLIC_KEYS = [bls.SkToPk(number) for number in range(1, _VALIDATORS + 1)]
bls.bls_active = False


class SimulatedBeaconChain:
    """The chain up to its newest block. Each new block is added to `served`."""

    def __init__(
        self,
        engine: EngineApi,
        served: BeaconNode,
        execution_genesis: str,
        *,
        electra_epoch: int,
        missed: Collection[int],
    ) -> None:
        self._engine, self._served = engine, served
        self._electra_slot = electra_epoch * int(electra.SLOTS_PER_EPOCH)
        self._missed = missed
        self._hashes = {bytes(32): execution_genesis}
        """Execution blocks of beacon blocks, by their roots; of the root of zeros the first one."""
        self._spec = deneb if electra_epoch else electra
        self._state = self._genesis_state(execution_genesis)
        self._votes: list[Any] = []
        """The validators' votes for the newest block."""
        self._serve(self._spec.BeaconBlock(state_root=self._state.hash_tree_root()))

    @property
    def slot(self) -> int:
        return int(self._state.slot)

    def advance(self) -> None:
        """Go to the next slot, and make its block unless it is a missed slot."""
        self._go_on()
        if self.slot not in self._missed:
            self._make_block()

    def _genesis_state(self, execution_genesis: str) -> Any:
        spec = self._spec
        state = spec.BeaconState(
            genesis_time=self._served.genesis_time,
            randao_mixes=[b"\xda" * 32] * spec.EPOCHS_PER_HISTORICAL_VECTOR,
            latest_block_header=spec.BeaconBlockHeader(body_root=spec.BeaconBlockBody().hash_tree_root()),
        )
        for key in _PUBLIC_KEYS:
            state.validators.append(
                spec.Validator(
                    pubkey=key,
                    effective_balance=spec.MAX_EFFECTIVE_BALANCE,
                    exit_epoch=spec.FAR_FUTURE_EPOCH,
                    withdrawable_epoch=spec.FAR_FUTURE_EPOCH,
                )
            )
            state.balances.append(spec.MAX_EFFECTIVE_BALANCE)
            state.previous_epoch_participation.append(0)
            state.current_epoch_participation.append(0)
            state.inactivity_scores.append(0)
        state.genesis_validators_root = state.validators.hash_tree_root()
        state.current_sync_committee = state.next_sync_committee = spec.get_next_sync_committee(state)
        state.latest_execution_payload_header.block_hash = bytes.fromhex(execution_genesis[2:])
        return state

    def _go_on(self) -> None:
        self._spec.process_slots(self._state, self._state.slot + 1)
        if self._spec is deneb and self._state.slot >= self._electra_slot:
            self._spec, self._state = electra, electra.upgrade_to_electra(self._state)
            # Attestations from before the fork have another form.
            self._votes = []

    def _make_block(self) -> None:
        spec, state = self._spec, self._state
        parent_root = state.latest_block_header.hash_tree_root()
        payload = self._build_payload(_hex(parent_root))
        body = spec.BeaconBlockBody(
            randao_reveal=hashlib.sha384(b"%d" % state.slot).digest() * 2,
            eth1_data=state.eth1_data,
            graffiti=b"slot %d" % state.slot + bytes(32 - len(b"slot %d" % state.slot)),
            attestations=self._votes,
            sync_aggregate=spec.SyncAggregate(sync_committee_signature=spec.G2_POINT_AT_INFINITY),
            execution_payload=_payload_of(spec, payload),
        )
        proposer = spec.get_beacon_proposer_index(state)
        block = spec.BeaconBlock(slot=state.slot, proposer_index=proposer, parent_root=parent_root, body=body)
        spec.process_block(state, block)
        block.state_root = state.hash_tree_root()
        self._hashes[bytes(block.hash_tree_root())] = payload["blockHash"]
        self._engine.choose(payload["blockHash"], self._final())
        self._vote(block)
        self._serve(block)

    def _build_payload(self, beacon_root: str) -> dict[str, Any]:
        spec, state = self._spec, self._state
        payload_id = self._engine.choose(
            _hex(state.latest_execution_payload_header.block_hash),
            self._final(),
            {
                "timestamp": hex(spec.compute_time_at_slot(state, state.slot)),
                "prevRandao": _hex(spec.get_randao_mix(state, spec.get_current_epoch(state))),
                "suggestedFeeRecipient": "0x" + "fe" * 20,
                "withdrawals": [],
                "parentBeaconBlockRoot": beacon_root,
            },
        )
        return self._engine.take(payload_id, beacon_root, fork="prague" if spec is electra else "cancun")

    def _vote(self, block: Any) -> None:
        """Let all validators of the slot attest its block. The next block includes these attestations."""
        spec, state = self._spec, self._state
        epoch = spec.get_current_epoch(state)
        start = spec.compute_start_slot_at_epoch(epoch)
        root = block.hash_tree_root()
        data = spec.AttestationData(
            slot=block.slot,
            beacon_block_root=root,
            source=state.current_justified_checkpoint,
            target=spec.Checkpoint(
                epoch=epoch, root=root if start == block.slot else spec.get_block_root_at_slot(state, start)
            ),
        )
        self._votes = []
        for index in range(int(spec.get_committee_count_per_slot(state, epoch))):
            members = len(spec.get_beacon_committee(state, block.slot, index))
            vote = spec.Attestation(aggregation_bits=[True] * members, data=data)
            if spec is electra:
                vote.committee_bits[index] = True
            else:
                vote.data.index = index
            self._votes.append(vote)

    def _final(self) -> str:
        return self._hashes[bytes(self._state.finalized_checkpoint.root)]

    def _serve(self, block: Any) -> None:
        spec, state = self._spec, self._state
        root, slot = bytes(block.hash_tree_root()), int(block.slot)
        self._served.blocks[root] = BeaconBlock(
            slot=slot,
            proposer=int(block.proposer_index),
            parent_root=bytes(block.parent_root),
            state_root=bytes(block.state_root),
            body_root=bytes(block.body.hash_tree_root()),
            encoded=spec.SignedBeaconBlock(message=block).encode_bytes(),
            version="deneb" if spec is deneb else "electra",
        )
        index = spec.get_generalized_index(spec.BeaconState, "historical_summaries")
        self._served.states[slot] = BeaconState(
            [
                (bytes(summary.block_summary_root), bytes(summary.state_summary_root))
                for summary in state.historical_summaries
            ],
            [bytes(sibling) for sibling in spec.compute_merkle_proof(state, index)],
        )
        # Added last, because the API finds the block by this root.
        self._served.roots[slot] = root


def _payload_of(spec: Any, fields: dict[str, Any]) -> Any:
    """Return a payload of the Engine API in the specifications' type."""
    payload = spec.ExecutionPayload()
    for name, kind in spec.ExecutionPayload.fields().items():
        first, *more_words = name.split("_")
        value = fields[first + "".join(word.capitalize() for word in more_words)]
        if name == "transactions":
            value = [bytes.fromhex(word[2:]) for word in value]
        elif isinstance(value, str):
            value = int(value, 16) if issubclass(kind, int) else bytes.fromhex(value[2:])
        setattr(payload, name, value)
    return payload


def _hex(data: Any) -> str:
    return "0x" + bytes(data).hex()


def _set_slot_seconds(seconds: int) -> None:
    """Change the slot time in the network's configuration. The preset stays the same."""
    for spec in (deneb, electra):
        spec.config = spec.config._replace(SLOT_DURATION_MS=type(spec.config.SLOT_DURATION_MS)(seconds * 1000))


def main() -> None:
    # The socket on which devnet.consensus_client sends commands.
    control = socket.socket(fileno=int(sys.argv[1]))
    lines = control.makefile()
    settings = json.loads(lines.readline())
    _set_slot_seconds(settings["slot_seconds"])
    served = BeaconNode(chain_id=settings["chain_id"], genesis_time=settings["genesis_time"])
    first = post(settings["rpc_url"], "eth_getBlockByNumber", ["0x0", False])
    chain = SimulatedBeaconChain(
        EngineApi(settings["engine_url"], bytes.fromhex(settings["secret"])),
        served,
        first["hash"],
        electra_epoch=settings["electra_epoch"],
        missed=settings["missed"],
    )
    with BeaconApi(served) as api, control:
        _say(control, url=api.url)
        _follow(chain, control, lines, settings)


def _follow(chain: SimulatedBeaconChain, control: socket.socket, lines: IO[str], settings: dict[str, Any]) -> None:
    """Make as many slots as a command says. If the chain is `live`, also make each slot when its time comes."""
    while True:
        due = settings["genesis_time"] + (chain.slot + 1) * settings["slot_seconds"]
        wait = max(0, due - time.time()) if settings["live"] else None
        if select.select([control], [], [], wait)[0]:
            line = lines.readline()
            if not line:
                return
            for _ in range(int(line)):
                chain.advance()
            _say(control, slot=chain.slot)
        else:
            chain.advance()


def _say(control: socket.socket, **fields: Any) -> None:
    control.sendall(json.dumps(fields).encode() + b"\n")


if __name__ == "__main__":
    main()
