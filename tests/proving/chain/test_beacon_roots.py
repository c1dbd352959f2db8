"""Blocks of a chain whose beacon roots the destination stores (EIP-4788)."""

import re
from collections.abc import Iterator

import pytest
from django.core.management import CommandError
from eth_utils.crypto import keccak

from chains.contract_artifacts import DEPLOYER, load_artifact
from devnet.devchain import DevChain
from proving.models import FactsRegistry, Transaction
from queries.models import BatchStatus, Block
from tests.chain_fixtures import chain_fixture
from tests.chains.lying_node import hiding
from tests.contracts.beacon_roots import ADDRESS, BeaconRoots
from tests.contracts.deployed import Deployed
from tests.deployed import deploy
from tests.proving.chain_state import balance_at, registry
from tests.proving.jumping import Jumping, Pointing, World, beacon_chain_of, jumping
from tests.proving.sources import HERE, THERE, balance_proven, grow, of_chains
from tests.service import CHARLIE, fresh, reconfigure, submit, waiting, work, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

BLOCKS = 60
# Seconds: from a source block to the first block derived from it, between two blocks, and while blocks derive from one
# source block.
AFTER, STEP, LASTS = 5, 2, 60


there = chain_fixture(lambda chain: grow(chain, BLOCKS), chain_id=THERE, hardfork="cancun")


@pytest.fixture(scope="module")
def made(there) -> tuple[Pointing, World]:
    return beacon_chain_of(there)


class Derived(BeaconRoots):
    """A chain whose blocks derive from another chain's blocks, and store the beacon roots in them."""

    def __init__(self, here: DevChain, relaid: Pointing) -> None:
        super().__init__(here)
        self._relaid = relaid

    def derive(self, number: int, *, blocks: int = 2, later: int = 0) -> None:
        """Derive blocks from this source block, `later` seconds late. Blocks mined soon afterwards also
        derive from it.
        """
        head = int(self.chain.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
        first = max(self._relaid.timestamp(number) + AFTER, head + STEP) + later
        for time in range(first, first + LASTS):
            self.tell(time, bytes(self._relaid.fields(number)["parentBeaconBlockRoot"]))
        for time in range(first, first + blocks * STEP, STEP):
            self.chain.rpc("evm_setNextBlockTimestamp", time)
            self.chain.mine()


@pytest.fixture
def roots(chain, made) -> Derived:
    derived = Derived(chain, made[0])
    derived.derive(BLOCKS)
    return derived


@pytest.fixture
def service(chain, made, roots, settings, tmp_path) -> Iterator[Jumping]:
    with jumping(chain, made, settings, tmp_path, block_hash_source="beacon-roots") as opened:
        yield opened


def told(service: Jumping) -> str:
    work(2)
    (sentence,) = waiting()
    return sentence


def sent() -> list[Transaction]:
    return list(Transaction.objects.exclude(to=DEPLOYER).order_by("pk"))


@pytest.mark.story
def test_a_block_whose_root_is_held_is_recorded_and_needs_no_path(service, roots, there, key):
    for number in range(38, 46):
        roots.derive(number)
    assert work_until_done(submit(key, of_chains(there=[40])), service.here).status == BatchStatus.DONE
    assert balance_proven(service.here, 40) == balance_at(there, CHARLIE, 40)
    (recorded,) = [tx for tx in sent() if tx.queries.exists()]
    assert recorded.succeeded
    assert Block.objects.get(number=40).path_length == 0
    # The second batch about the block needs no record and no root.
    before = len(sent())
    roots.run("0x")
    assert work_until_done(submit(key, of_chains(there=[40])), service.here).status == BatchStatus.DONE
    assert len(sent()) == before


def test_the_source_creates_the_beacon_history_of_its_registry(service):
    row = registry(THERE)
    source = Deployed(service.here, "GloasBeaconBlockHashSource", address=row.block_hash_source)
    assert int(source.call("beaconChainHistory"), 16) == int(row.beacon_history, 16)
    code = bytes.fromhex(service.here.rpc("eth_getCode", row.beacon_history, "latest")[2:])
    assert code == load_artifact("GloasBeaconHistory").deployed(
        **service.world.chain.immutables | {"historicalRoots": 0}
    )


@pytest.mark.long
def test_a_block_is_waited_for_until_its_root_is_held(service, roots, there, key):
    batch = submit(key, of_chains(there=[40]))
    roots.derive(40)
    assert told(service) == (
        f"Chain {HERE} does not hold a beacon root yet that names block 40 of chain {THERE}. It is in the header of "
        "the first or second block after it."
    )
    assert sent() == []
    roots.derive(41)
    assert work_until_done(batch, service.here).status == BatchStatus.DONE
    assert balance_proven(service.here, 40) == balance_at(there, CHARLIE, 40)


@pytest.mark.long
def test_a_block_that_nodes_lack_is_no_fault_of_the_roots(service, roots, settings, key):
    roots.derive(41)
    submit(key, of_chains(there=[40]))
    (node,) = re.findall(r'The other chain"\nrpc_urls = \["(.*)"', settings.CHAINS_FILE.read_text())
    with hiding(node, 41) as url:
        reconfigure(settings, node, url)
        assert told(service) == f"Nodes of chain {THERE} lack block 41, although the chain has it."


NO_ROOT = f"Chain {HERE} has no beacon root at {ADDRESS} that a recent block of chain {THERE} names."


@pytest.mark.long
def test_without_the_contract_of_roots_it_says_so(service, roots, key):
    roots.run("0x")
    submit(key, of_chains(there=[40]))
    assert told(service) == NO_ROOT


def test_no_registry_is_deployed_where_the_roots_are_of_another_beacon_chain(service, roots):
    FactsRegistry.objects.all().delete()
    head = int(service.here.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
    for time in range(head, head + LASTS):
        roots.tell(time, b"\x66" * 32)
    with pytest.raises(CommandError) as refused:
        deploy(HERE, THERE)
    assert str(refused.value) == NO_ROOT


@pytest.mark.long
def test_a_root_that_is_soon_forgotten_is_not_built_upon(service, roots, there, key):
    roots.derive(11)
    roots.derive(59, later=7168 * STEP + LASTS)
    batch = submit(key, of_chains(there=[10]))
    for _ in range(8):
        work()
        # Each new block stores a root, which overwrites older ones.
        roots.derive(59)
    assert fresh(batch).status == BatchStatus.DONE
    assert balance_proven(service.here, 10) == balance_at(there, CHARLIE, 10)
    # The block is reached by a jump from the newest block whose root is stored.
    row = Block.objects.get(number=10)
    assert (row.path_unit, row.path_origin) == ("jumps", 58)


@pytest.mark.long
def test_a_block_that_no_beacon_node_has_is_waited_for(service, roots, there, key):
    roots.derive(51)
    root = service.relaid.fields(51)["parentBeaconBlockRoot"]
    block = service.node.blocks.pop(root)
    batch = submit(key, of_chains(there=[50]))
    assert "No beacon node in beacon_urls of The other chain" in told(service)
    assert sent() == []
    service.node.blocks[root] = block
    assert work_until_done(batch, service.here, rounds=20).status == BatchStatus.DONE


@pytest.mark.long
def test_a_block_that_was_recorded_of_another_branch_is_not_built_upon(service, roots, key):
    roots.derive(41)
    slot = keccak((40).to_bytes(32) + bytes(32)).hex()
    service.here.rpc("anvil_setStorageAt", registry(THERE).block_hash_source, f"0x{slot}", "0x" + "66" * 32)
    submit(key, of_chains(there=[40]))
    assert told(service) == f"The block hash source knows another block 40 of chain {THERE} than its nodes."
    assert sent() == []
