"""A beacon chain by the executable consensus specifications (minimal preset). An execution client builds its payloads.

It follows Deneb's rules up to the first epoch of a later fork. States and blocks have the specifications' own types.
Blocks contain attestations, so the chain becomes final. Nothing is signed: BLS is off. Each slot has a kind, a letter:

- F: full. Its block has a payload, or since Gloas promises one and reveals it.
- E: empty, since Gloas. Nobody reveals the payload, not even to the execution client that built it.
- L: late, since Gloas. The payload is revealed and becomes the execution client's head, but the next block builds on
  the payload's parent.
- S: skipped, without a block.

`.venv-beacon/bin/python -m devnet.beacon_chain` drives the client by the Engine API, and serves its chain by the beacon
API. `devnet.consensus_client` starts it.
"""

import hashlib
import json
import select
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from eth_consensus_specs.debug.encode import encode
from eth_consensus_specs.deneb import minimal as deneb
from eth_consensus_specs.electra import minimal as electra
from eth_consensus_specs.fulu import minimal as fulu
from eth_consensus_specs.gloas import minimal as gloas
from eth_consensus_specs.utils import bls

from devnet.beacon_api import BeaconApi, BeaconBlock, BeaconNode, BeaconState
from devnet.json_rpc import EngineApi, fork_at, post

_FORKS = {"deneb": deneb, "electra": electra, "fulu": fulu, "gloas": gloas}
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
        forks: Mapping[str, int],
        execution_forks: Mapping[str, Any],
        slots: Mapping[int, str],
    ) -> None:
        self._engine, self._served, self._execution_forks = engine, served, execution_forks
        self._fork_epochs, self._slots = forks, slots
        self._hashes = {bytes(32): execution_genesis}
        """Execution blocks that beacon blocks name, by their roots; of the root of zeros the first one."""
        self._fork = [fork for fork in _FORKS if fork == "deneb" or forks.get(fork) == 0][-1]
        self._is_revealed = True
        """True if the next block builds on the payload that the newest block promises."""
        self._state = self._genesis_state(execution_genesis)
        self._votes: list[Any] = []
        """The validators' votes for the newest block."""
        self._serve(self._spec.BeaconBlock(state_root=self._state.hash_tree_root()))

    @property
    def slot(self) -> int:
        return int(self._state.slot)

    def advance(self, kind: str = "") -> None:
        """Go to the next slot, and make its block. The default kind is that in `slots`."""
        self._go_on()
        kind = kind or self._slots.get(self.slot, "F")
        if kind != "S":
            self._make_block(kind)

    @property
    def _spec(self) -> Any:
        return _FORKS[self._fork]

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
        if self._fork == "fulu":
            state.proposer_lookahead = spec.initialize_proposer_lookahead(state)
        state.latest_execution_payload_header.block_hash = bytes.fromhex(execution_genesis[2:])
        return state

    def _go_on(self) -> None:
        self._spec.process_slots(self._state, self._state.slot + 1)
        epoch = self._spec.get_current_epoch(self._state)
        for fork in list(_FORKS)[list(_FORKS).index(self._fork) + 1 :]:
            if self._fork_epochs.get(fork, epoch + 1) <= epoch:
                self._state = getattr(_FORKS[fork], f"upgrade_to_{fork}")(self._state)
                self._fork = fork
                # Attestations from before a fork may have another form.
                self._votes = []
        # A block includes no older ones.
        self._votes = [vote for vote in self._votes if vote.data.target.epoch + 1 >= epoch]

    def _make_block(self, kind: str) -> None:
        spec, state = self._spec, self._state
        parent_root = _hex(state.latest_block_header.hash_tree_root())
        fork = fork_at(self._execution_forks, spec.compute_time_at_slot(state, state.slot))
        payload, requests = self._build_payload(parent_root, fork)
        if self._fork == "gloas":
            named, content = payload["parentHash"], {"signed_execution_payload_bid": self._bid(payload)}
        else:
            self._engine.add(payload, parent_root, *requests, fork=fork)
            named, content = payload["blockHash"], {"execution_payload": self._payload_of(payload)}
        body = spec.BeaconBlockBody(
            randao_reveal=hashlib.sha384(b"%d" % state.slot).digest() * 2,
            eth1_data=state.eth1_data,
            graffiti=b"slot %d" % state.slot + bytes(32 - len(b"slot %d" % state.slot)),
            attestations=self._votes,
            sync_aggregate=spec.SyncAggregate(sync_committee_signature=spec.G2_POINT_AT_INFINITY),
            **content,
        )
        block = spec.BeaconBlock(
            slot=state.slot,
            proposer_index=spec.get_beacon_proposer_index(state),
            parent_root=state.latest_block_header.hash_tree_root(),
            body=body,
        )
        spec.process_block(state, block)
        block.state_root = state.hash_tree_root()
        self._hashes[bytes(block.hash_tree_root())] = named
        if self._fork == "gloas" and kind in "FL":
            self._check_envelope(block, payload)
            self._engine.add(payload, parent_root, *requests, fork=fork)
        self._is_revealed = kind == "F"
        if kind != "E":
            self._engine.choose(payload["blockHash"], self._final())
        self._vote(block)
        self._serve(block)

    def _build_payload(self, beacon_root: str, fork: str) -> tuple[dict[str, Any], list[Any]]:
        """Let the execution client build a block of this fork. Return it with the last arguments for `add`."""
        spec, state = self._spec, self._state
        attributes = {
            "timestamp": hex(spec.compute_time_at_slot(state, state.slot)),
            "prevRandao": _hex(spec.get_randao_mix(state, spec.get_current_epoch(state))),
            "suggestedFeeRecipient": "0x" + "fe" * 20,
            "withdrawals": [],
            "parentBeaconBlockRoot": beacon_root,
        }
        if fork == "amsterdam":
            attributes["slotNumber"] = hex(state.slot)
        if self._fork != "gloas":
            parent = state.latest_execution_payload_header.block_hash
        else:
            parent = state.latest_execution_payload_bid.block_hash if self._is_revealed else state.latest_block_hash
        return self._engine.built(self._engine.choose(_hex(parent), self._final(), attributes, fork=fork), fork=fork)

    def _bid(self, payload: Mapping[str, Any]) -> Any:
        """Return the promise of a payload, by the proposer itself."""
        spec, state = self._spec, self._state
        fields = self._payload_of(payload)
        bid = spec.ExecutionPayloadBid(
            parent_block_hash=fields.parent_hash,
            parent_block_root=state.latest_block_header.hash_tree_root(),
            block_hash=fields.block_hash,
            prev_randao=fields.prev_randao,
            fee_recipient=fields.fee_recipient,
            gas_limit=fields.gas_limit,
            builder_index=spec.BUILDER_INDEX_SELF_BUILD,
            slot=state.slot,
            execution_requests_root=spec.ExecutionRequests().hash_tree_root(),
        )
        return spec.SignedExecutionPayloadBid(message=bid, signature=spec.G2_POINT_AT_INFINITY)

    def _check_envelope(self, block: Any, payload: Mapping[str, Any]) -> None:
        """Let the specifications check the envelope in which the proposer reveals a payload."""
        spec = self._spec
        envelope = spec.ExecutionPayloadEnvelope(
            payload=self._payload_of(payload),
            builder_index=spec.BUILDER_INDEX_SELF_BUILD,
            beacon_block_root=block.hash_tree_root(),
            parent_beacon_block_root=block.parent_root,
        )
        signed = spec.SignedExecutionPayloadEnvelope(message=envelope)
        spec.verify_execution_payload_envelope(self._state, signed, spec.EXECUTION_ENGINE)

    def _payload_of(self, fields: Mapping[str, Any]) -> Any:
        """Return a payload of the Engine API in the specifications' type."""
        # An execution client that keeps earlier rules has neither.
        fields = {"slotNumber": hex(self.slot), "blockAccessList": "0x", **fields}
        kinds = self._spec.ExecutionPayload.fields()
        values = {}
        for name, kind in kinds.items():
            first, *more_words = name.split("_")
            values[name] = _typed(kind, fields[first + "".join(word.capitalize() for word in more_words)])
        return self._spec.ExecutionPayload(**values)

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
            if spec is deneb:
                vote.data.index = index
            else:
                # Since Gloas the index of a vote for the slot's own block is 0, whatever becomes of the payload.
                vote.committee_bits[index] = True
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
            version=self._fork,
            message=lambda: _written(encode(block)),
        )
        index = spec.get_generalized_index(spec.BeaconState, "historical_summaries")
        self._served.states[slot] = BeaconState(
            [
                (bytes(summary.block_summary_root), bytes(summary.state_summary_root))
                for summary in state.historical_summaries
            ],
            [bytes(sibling) for sibling in spec.compute_merkle_proof(state, index)],
            state.copy().encode_bytes,
            {
                name: (int(checkpoint.epoch), bytes(checkpoint.root))
                for name, checkpoint in {
                    "previous_justified": state.previous_justified_checkpoint,
                    "current_justified": state.current_justified_checkpoint,
                    "finalized": state.finalized_checkpoint,
                }.items()
            },
        )
        self._served.final = bytes(state.finalized_checkpoint.root)
        # Added last, because the API finds the block by this root.
        self._served.roots[slot] = root


def _typed(kind: Any, value: Any) -> Any:
    """Return a field's value of the Engine API in its type, which may be a list."""
    if isinstance(value, list):
        return kind([_typed(kind.element_cls(), each) for each in value])
    if issubclass(kind, int):
        return kind(int(value, 16))
    content = bytes.fromhex(value[2:])
    return kind(content) if issubclass(kind, bytes) else kind(list(content))


def _hex(data: Any) -> str:
    return "0x" + bytes(data).hex()


def _written(value: Any) -> Any:
    """Return a value as the beacon API writes it: all numbers are texts."""
    if isinstance(value, dict):
        return {name: _written(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_written(each) for each in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _set_slot_seconds(seconds: int) -> None:
    """Change the slot time in the network's configuration. The preset stays the same."""
    for spec in _FORKS.values():
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
        EngineApi(
            settings["engine_url"],
            bytes.fromhex(settings["secret"]),
            Path(settings["log"]) if settings["log"] else None,
        ),
        served,
        first["hash"],
        forks=settings["forks"],
        execution_forks=settings["execution_forks"],
        slots={int(slot): kind for slot, kind in settings["slots"].items()},
    )
    with BeaconApi(served) as api, control:
        _say(control, url=api.url)
        _follow(chain, control, lines, settings)


def _follow(chain: SimulatedBeaconChain, control: socket.socket, lines: IO[str], settings: dict[str, Any]) -> None:
    """Make the slots of a command: so many, or of these kinds. A `live` chain also makes each slot at its time."""
    while True:
        due = settings["genesis_time"] + (chain.slot + 1) * settings["slot_seconds"]
        wait = max(0, due - time.time()) if settings["live"] else None
        if select.select([control], [], [], wait)[0]:
            line = lines.readline()
            if not line:
                return
            slots = json.loads(line)
            for kind in slots if isinstance(slots, str) else [""] * slots:
                chain.advance(kind)
            _say(control, slot=chain.slot)
        else:
            chain.advance()


def _say(control: socket.socket, **fields: Any) -> None:
    control.sendall(json.dumps(fields).encode() + b"\n")


if __name__ == "__main__":
    main()
