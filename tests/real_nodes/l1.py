"""geth driven by a beacon chain of the executable specifications, and a rollup that holds its beacon roots.

Both layers of the chain fork together: geth gets Amsterdam's rules when the beacon chain gets those of Gloas.
"""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from config.configured_chains import forget_chains
from devnet.consensus_client import SLOTS_PER_EPOCH, ConsensusClient
from devnet.devchain import DevChain
from devnet.execution_client import ExecutionClient
from devnet.geth import Geth
from proving.models import FactsRegistry
from tests import service
from tests.contracts.beacon_roots import BeaconRoots
from tests.deployed import deploy
from tests.real_nodes.facts import Facts

CHAIN_ID = 424242
SLOT_SECONDS = 12
GLOAS = 5 * SLOTS_PER_EPOCH
# Seconds from a block of L1 to the first block of the rollup that is derived from it, between two blocks of the rollup,
# and while blocks derive from the newest block of L1.
_AFTER, STEP, _LASTS = 2, 2, 600


class L1:
    """The two clients of the chain. `kinds` has the kinds of its slots (see `devnet.beacon_chain`)."""

    chain_id = CHAIN_ID

    def __init__(self, node: Geth, consensus: ConsensusClient, gloas: int, kinds: str) -> None:
        self.node, self.consensus, self.gloas, self._kinds = node, consensus, gloas, kinds

    def mine(self) -> None:
        """Make the next slot."""
        self.consensus.advance()

    def header(self, number: int) -> Any:
        return self.node.rpc("eth_getBlockByNumber", hex(number), False)

    def time(self, number: int) -> int:
        return int(self.header(number)["timestamp"], 16)

    def number_at(self, slot: int) -> int:
        """Return the number of the execution block of a full slot."""
        number = self._kinds[1 : slot + 1].count("F")
        assert self.time(number) == int(self.header(0)["timestamp"], 16) + slot * SLOT_SECONDS
        return number

    def naming(self, number: int) -> tuple[str, int]:
        """Return the fork of the beacon block whose root is in a header, and the number of the block that it names."""
        block = self.beacon(f"/eth/v2/beacon/blocks/{self.header(number)['parentBeaconBlockRoot']}")
        body = block["data"]["message"]["body"]
        if block["version"] == "gloas":
            named = body["signed_execution_payload_bid"]["message"]["parent_block_hash"]
        else:
            named = body["execution_payload"]["block_hash"]
        return block["version"], int(self.node.rpc("eth_getBlockByHash", named, False)["number"], 16)

    def version(self, slot: int) -> str:
        """Return the fork whose layout a slot's beacon block has."""
        version: str = self.beacon(f"/eth/v2/beacon/blocks/{slot}")["version"]
        return version

    def beacon(self, path: str) -> Any:
        """Return the JSON with which the beacon node answers."""
        with urllib.request.urlopen(self.consensus.url + path) as answer:
            return json.load(answer)

    def ssz(self, path: str) -> tuple[str, bytes]:
        """Return the fork that the beacon node names, and its answer as SSZ."""
        request = urllib.request.Request(self.consensus.url + path, headers={"Accept": "application/octet-stream"})
        with urllib.request.urlopen(request) as answer:
            return answer.headers["Eth-Consensus-Version"], answer.read()


@contextmanager
def running(
    since_gloas: str,
    *,
    gloas: int = GLOAS,
    spare: int = SLOTS_PER_EPOCH,
    prepare: Callable[[Geth], object] = lambda _: None,
) -> Iterator[L1]:
    """Yield the chain, which has no block yet. `gloas` is the fork's first slot, which begins an epoch.

    `since_gloas` has the kinds of the slots from there on. Now is `spare` slots after these. `prepare` may change the
    genesis.
    """
    kinds = "F" * gloas + since_gloas
    genesis_time = int(time.time()) - (len(kinds) + spare) * SLOT_SECONDS
    amsterdam_time = genesis_time + gloas * SLOT_SECONDS
    node = Geth(CHAIN_ID, genesis_time=genesis_time, amsterdam_time=amsterdam_time)
    prepare(node)
    with node:
        consensus = ConsensusClient(
            node,
            genesis_time=genesis_time,
            slot_seconds=SLOT_SECONDS,
            # Electra's blocks have the layout of Fulu's.
            forks={"electra": 0, "fulu": gloas // SLOTS_PER_EPOCH // 2, "gloas": gloas // SLOTS_PER_EPOCH},
            slots=dict(enumerate(kinds)),
        )
        with consensus:
            yield L1(node, consensus, gloas, kinds)


class Rollup4788(BeaconRoots):
    """A rollup whose blocks derive from blocks of L1, and hold the beacon roots in these."""

    def __init__(self, chain: DevChain) -> None:
        super().__init__(chain)
        chain.rpc("anvil_setBlockTimestampInterval", STEP)
        chain.mine(2)

    def derive(self, l1: L1, numbers: Sequence[int]) -> None:
        """Derive the blocks up to now from blocks of L1, and the later ones from the last of these."""
        head = int(self.chain.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
        for number in numbers:
            root = bytes.fromhex(l1.header(number)["parentBeaconBlockRoot"][2:])
            begins = l1.time(number) + _AFTER
            ends = head + _LASTS if number == numbers[-1] else l1.time(number + 1) + _AFTER
            for moment in range(begins + (head - begins) % STEP, ends, STEP):
                self.tell(moment, root)


def connect(settings: Any, folder: Path, rollup: DevChain | ExecutionClient, l1: L1) -> FactsRegistry:
    """Configure the service on the rollup for facts of L1, and deploy the registry."""
    path = service.chains_toml(folder, rollup.url, chain_id=rollup.chain_id)
    table = f"""
test_network = true
block_seconds = {SLOT_SECONDS}
beacon_urls = ["{l1.consensus.url}"]
[chains.beacon_chain]
preset = "minimal"
genesis_time = {int(l1.header(0)["timestamp"], 16)}
slot_seconds = {SLOT_SECONDS}
bellatrix = 0
capella = 0
deneb = 0
electra = 0
gloas = {l1.gloas}
"""
    trust = 'block_hash_source = "beacon-roots"'
    of_l1 = service.source_tables(CHAIN_ID, "L1", l1.node.url, trust, chain=table, destination=rollup.chain_id)
    path.write_text(path.read_text() + of_l1)
    settings.CHAINS_FILE = path
    forget_chains()
    return deploy(rollup.chain_id, CHAIN_ID)


def roots_of(l1: L1, numbers: Sequence[int]) -> Facts:
    """Return requests for the state root and the parent's hash in the headers of blocks, with the node's answers."""
    fields = {"PARENT_HASH": (0, "parentHash"), "STATE_ROOT": (3, "stateRoot")}
    headers: Mapping[int, Any] = {number: l1.header(number) for number in numbers}
    return Facts(
        {f"block:{number}": {"header": list(fields)} for number in numbers},
        {
            ("headerField(uint256,uint8)", number, index): int(header[name], 16)
            for number, header in headers.items()
            for index, name in fields.values()
        },
    )
