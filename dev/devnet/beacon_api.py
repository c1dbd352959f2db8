"""An HTTP server of the standard beacon API. The caller describes its chain, and may extend the chain while it runs.

For historical summaries, which the API (github.com/ethereum/beacon-APIs) lacks, it has the endpoints of Nimbus and
Lodestar.
"""

import json
import re
import sys
import threading
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

NIMBUS = "/nimbus/v1/debug/beacon/states/{}/historical_summaries"
LODESTAR = "/eth/v1/lodestar/states/{}/historical_summaries"
_SSZ, _JSON = "application/octet-stream", "application/json"
_IDENTIFIER = r"(head|finalized|\d+|0x[0-9a-f]{64})"

Reply = tuple[int, str, bytes, Mapping[str, str]]
"""Status, content type, content and further headers."""


@dataclass(frozen=True)
class BeaconBlock:
    """A beacon block's header fields, and the block itself as an SSZ `SignedBeaconBlock`. The latter may be empty."""

    slot: int
    proposer: int
    parent_root: bytes
    state_root: bytes
    body_root: bytes
    encoded: bytes = field(default=b"", repr=False)
    version: str = "electra"
    """Its fork."""
    message: Callable[[], Mapping[str, Any]] | None = field(default=None, repr=False)
    """Returns the block as JSON. None: it is served as SSZ alone."""


@dataclass(frozen=True)
class BeaconState:
    """The historical summaries in the state after a block, and the branch from their root to the state root.

    A summary has two roots: that of a period's block roots, and that of its state roots.
    """

    summaries: Sequence[tuple[bytes, bytes]]
    branch: Sequence[bytes]
    encode: Callable[[], bytes] | None = None
    """Returns the state as SSZ. None: only its summaries are known."""
    checkpoints: Mapping[str, tuple[int, bytes]] = field(default_factory=dict)
    """Epochs and roots of its `previous_justified`, `current_justified` and `finalized` checkpoints."""


@dataclass
class BeaconNode:
    """A node's chain. Whatever is added is served from then on."""

    chain_id: int
    genesis_time: int = 0
    roots: MutableMapping[int, bytes] = field(default_factory=dict)
    """The block's root of each slot; of a slot that isn't here no block is known."""
    blocks: MutableMapping[bytes, BeaconBlock] = field(default_factory=dict)
    """Blocks by their roots."""
    states: MutableMapping[int, BeaconState] = field(default_factory=dict)
    """States after the blocks of these slots."""
    final: bytes | None = None
    """The root of the newest final block. None: it is the newest block. Zeros: it is the first block."""
    spec: Mapping[str, str] = field(default_factory=dict)
    """The configuration that it shows. Empty: it shows none."""
    state_paths: Collection[str] = (NIMBUS,)
    """The endpoints with historical summaries. None: the node has no such endpoint, as most clients."""


class BeaconApi:
    """A server of a node's chain on 127.0.0.1, for a `with` block. `requested_paths` has the path of each request."""

    def __init__(self, node: BeaconNode, *, port: int = 0) -> None:
        self.node = node
        self.requested_paths: list[str] = []
        self._port = port
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        api = self

        class BeaconApiHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                api.requested_paths.append(self.path)
                accepted = self.headers.get("Accept", _JSON)
                status, kind, content, headers = api.answer(self.path, accepts_ssz=_SSZ in accepted)
                self.send_response(status)
                for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        class BeaconApiServer(ThreadingHTTPServer):
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                # The client may have closed the connection.
                if not isinstance(sys.exception(), ConnectionError):
                    super().handle_error(request, client_address)  # type: ignore[arg-type]

        self._server = BeaconApiServer(("127.0.0.1", self._port), BeaconApiHandler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, *, accepts_ssz: bool) -> Reply:
        """Return the answer to a GET request for a path."""
        routes: Mapping[str, Callable[..., Reply]] = {
            "/eth/v1/config/deposit_contract": self._deposit_contract,
            "/eth/v1/config/spec": self._spec,
            "/eth/v1/beacon/genesis": self._genesis,
            f"/eth/v1/beacon/blocks/{_IDENTIFIER}/root": self._block_root,
            f"/eth/v1/beacon/headers/{_IDENTIFIER}": self._header,
            f"/eth/v2/beacon/blocks/{_IDENTIFIER}": partial(self._block, accepts_ssz=accepts_ssz),
            f"/eth/v2/debug/beacon/states/{_IDENTIFIER}": partial(self._state, accepts_ssz=accepts_ssz),
            f"/eth/v1/beacon/states/{_IDENTIFIER}/finality_checkpoints": self._finality,
            **{state_path.format(_IDENTIFIER): self._summaries for state_path in self.node.state_paths},
        }
        for route, answer in routes.items():
            if match := re.fullmatch(route, path):
                return answer(*match.groups())
        return _not_found("Route not found")

    def _deposit_contract(self) -> Reply:
        return _data({"chain_id": str(self.node.chain_id), "address": "0x" + "00" * 20})

    def _spec(self) -> Reply:
        return _data(self.node.spec) if self.node.spec else _not_found("Route not found")

    def _genesis(self) -> Reply:
        genesis = {"genesis_validators_root": _hex(bytes(32)), "genesis_fork_version": "0x00000000"}
        return _data({"genesis_time": str(self.node.genesis_time), **genesis})

    def _block_root(self, identifier: str) -> Reply:
        root = self._root(identifier)
        return _not_found("Block not found") if root is None else _data({"root": _hex(root)})

    def _root(self, identifier: str) -> bytes | None:
        if identifier.startswith("0x"):
            return bytes.fromhex(identifier[2:])
        known = self.node.roots
        if identifier == "finalized" and self.node.final is not None:
            return self.node.final if any(self.node.final) else known.get(0)
        slot = int(identifier) if identifier.isdigit() else max(known, default=-1)
        return known.get(slot)

    def _known(self, identifier: str) -> tuple[bytes, BeaconBlock] | None:
        root = self._root(identifier)
        block = self.node.blocks.get(root) if root is not None else None
        return (root, block) if root is not None and block is not None else None

    def _header(self, identifier: str) -> Reply:
        known = self._known(identifier)
        if known is None:
            return _not_found("Block header not found")
        root, block = known
        message = {
            "slot": str(block.slot),
            "proposer_index": str(block.proposer),
            "parent_root": _hex(block.parent_root),
            "state_root": _hex(block.state_root),
            "body_root": _hex(block.body_root),
        }
        header = {"message": message, "signature": _hex(bytes(96))}
        return _data({"root": _hex(root), "canonical": True, "header": header})

    def _block(self, identifier: str, *, accepts_ssz: bool) -> Reply:
        known = self._known(identifier)
        if known is None or not known[1].encoded:
            return _not_found("Block not found")
        block, of_fork = known[1], {"Eth-Consensus-Version": known[1].version}
        if accepts_ssz:
            return HTTPStatus.OK, _SSZ, block.encoded, of_fork
        if block.message is None:
            return _error(HTTPStatus.NOT_ACCEPTABLE, "Blocks are served as SSZ alone")
        signed = {"message": block.message(), "signature": _hex(bytes(96))}
        return _data(signed, of_fork, version=block.version)

    def _state(self, identifier: str, *, accepts_ssz: bool) -> Reply:
        slot, state = self._known_state(identifier)
        if state is None or state.encode is None:
            return _not_found("State not found")
        if not accepts_ssz:
            return _error(HTTPStatus.NOT_ACCEPTABLE, "States are served as SSZ alone")
        version = self.node.blocks[self.node.roots[slot]].version
        return HTTPStatus.OK, _SSZ, state.encode(), {"Eth-Consensus-Version": version}

    def _finality(self, identifier: str) -> Reply:
        _, state = self._known_state(identifier)
        if state is None or not state.checkpoints:
            return _not_found("State not found")
        checkpoints = state.checkpoints.items()
        return _data({name: {"epoch": str(epoch), "root": _hex(root)} for name, (epoch, root) in checkpoints})

    def _known_state(self, identifier: str) -> tuple[int, BeaconState | None]:
        known = self._known(identifier)
        # A root in the path is a state root.
        slot = int(identifier) if identifier.isdigit() else known[1].slot if known else None
        if identifier.startswith("0x"):
            of = (block.slot for block in self.node.blocks.values() if _hex(block.state_root) == identifier)
            slot = next(of, None)
        return (-1, None) if slot is None else (slot, self.node.states.get(slot))

    def _summaries(self, identifier: str) -> Reply:
        slot, state = self._known_state(identifier)
        if state is None:
            return _not_found("State not found")
        summaries = [
            {"block_summary_root": _hex(blocks), "state_summary_root": _hex(states)}
            for blocks, states in state.summaries
        ]
        branch = [_hex(sibling) for sibling in state.branch]
        return _data({"historical_summaries": summaries, "proof": branch, "slot": str(slot)})


def _hex(data: bytes) -> str:
    return "0x" + data.hex()


def _data(data: Any, headers: Mapping[str, str] | None = None, **more: str) -> Reply:
    answer = {**more, "execution_optimistic": False, "finalized": True, "data": data}
    return HTTPStatus.OK, _JSON, json.dumps(answer).encode(), headers or {}


def _not_found(message: str) -> Reply:
    return _error(HTTPStatus.NOT_FOUND, message)


def _error(status: HTTPStatus, message: str) -> Reply:
    return status, _JSON, json.dumps({"code": status.value, "message": message}).encode(), {}
