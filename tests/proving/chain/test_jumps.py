"""Old blocks of a chain are proven by jumps: by its beacon chain, from a block that the registry trusts."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from eth_utils.crypto import keccak

from batch_query_client.bundles import verify_bundle
from devnet.devchain import DevChain
from proving.models import FactsRegistry, Transaction
from queries.models import Batch, BatchStatus, Block
from tests.chains.lying_node import error
from tests.contracts.deployed import Deployed
from tests.explorer.batches import beat, bundle_of
from tests.factories import client_of
from tests.proving import chain_state, estimated_batches, self_funded
from tests.proving.jumping import Jumping, Pointing, World, beacon_chain_of, jumping
from tests.proving.logs import LOG, RETURNS, are_right
from tests.proving.sources import KEYS, THERE, grow
from tests.service import asking, balances, changed_replies, fresh, reconfigure, submit, waiting, work, work_until_done
from tests.users import ALICE, CHARLIE

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

# Block numbers on a chain of 60 blocks, whose beacon chain has periods of eight slots.
OLD, NEWEST = 10, 59
# The block with a log.
LOGGED = 14


@pytest.fixture(scope="module")
def there() -> Iterator[DevChain]:
    # The chain is from before EIP-2935, because its history contract would contain hashes of the unchanged headers.
    with DevChain(chain_id=THERE, hardfork="cancun") as chain:
        grow(chain, LOGGED - 1)
        chain.rpc("eth_sendTransactionSync", {"from": ALICE, "data": f"0x{LOG}{RETURNS}", "gas": hex(200_000)})
        grow(chain, 60 - LOGGED)
        yield chain


@pytest.fixture(scope="module")
def made(there) -> tuple[Pointing, World]:
    return beacon_chain_of(there)


@pytest.fixture
def service(chain, made, settings, tmp_path) -> Iterator[Jumping]:
    with jumping(chain, made, settings, tmp_path) as jump:
        jump.tell(NEWEST)
        yield jump


def of_there(*numbers: int) -> dict[str, Any]:
    return asking(balances(numbers, CHARLIE), source=THERE)


def header_of(number: int, *properties: str) -> dict[str, Any]:
    return asking({f"block:{number}": {"header": list(properties)}}, source=THERE)


def proven(service: Jumping, there: DevChain, *numbers: int) -> bool:
    return all(
        chain_state.field_on_chain(service.here, CHARLIE, number, chain_state.AccountField.BALANCE, source=THERE)
        == chain_state.balance_at(there, CHARLIE, number)
        for number in numbers
    )


NO_HISTORY = "the chain has no history of block hashes (EIP-2935) that goes back so far."


def vouches(service: Jumping, number: int) -> bool:
    """Return whether the registry would accept the block's header."""
    contract = Deployed(service.here, "FactsRegistry", address=chain_state.registry(THERE).address)
    return bool(contract.call("vouches", number, service.relaid.hash(number)))


def of_batch(batch: Batch) -> list[Transaction]:
    return list(Transaction.objects.filter(queries__batch=batch).distinct().order_by("pk"))


# --- The whole way ----------------------------------------------------------------------------------------------------


@pytest.mark.story
def test_old_blocks_are_proven_by_jumps_that_go_with_their_own_proofs(service, there, key):
    batch = submit(key, of_there(OLD, OLD + 1, OLD + 20))
    assert work_until_done(batch, service.here).status == BatchStatus.DONE
    assert proven(service, there, OLD, OLD + 1, OLD + 20)
    recorded, *proofs = of_batch(batch)
    # The recorded block is the origin of all jumps. No hash of an old block was stored.
    assert recorded.extends_id is not None
    assert [tx.extends_id for tx in proofs] == [None] * len(proofs)
    assert FactsRegistry.objects.get(source_chain_id=THERE).jump_origin == NEWEST
    assert vouches(service, NEWEST)
    assert not any(vouches(service, number) for number in (OLD, OLD + 1, OLD + 20))
    row = Block.objects.get(number=OLD)
    assert (row.path_unit, row.path_length, row.path_left, row.path_origin) == ("jumps", 1, 0, NEWEST)
    path = f"/explorer/query/{batch.pk}"
    assert f"Reached by the beacon chain, from block {NEWEST}" in " ".join(Client().get(path).text.split())
    hashes = {(THERE, OLD): service.relaid.hash(OLD)}
    assert verify_bundle(json.dumps(bundle_of(batch, 1)), block_hashes=hashes).queries[1].facts.keys() == {"BALANCE"}

    # The next jump has the same origin, so it needs no record and no state.
    earlier = len(service.api.requested_paths)
    later = submit(key, of_there(OLD + 2))
    assert work_until_done(later, service.here).status == BatchStatus.DONE
    (tx,) = of_batch(later)
    assert tx.extends_id is None
    assert [path for path in service.api.requested_paths[earlier:] if "summaries" in path] == []


@pytest.mark.long
def test_a_log_of_an_old_block_is_proven_by_the_header_that_a_jump_makes_known(service, there, key):
    asked = {"0": {"props": ["STATUS"], "logs": ["0"]}}
    batch = submit(key, asking({f"block:{LOGGED}": {"transactions": asked}}, source=THERE))
    assert work_until_done(batch, service.here, rounds=15).status == BatchStatus.DONE
    assert are_right(there, LOGGED, asked, on=service.here, source=THERE)


@pytest.mark.long
def test_a_time_is_proven_by_the_header_that_a_jump_makes_known(service, there, key):
    time = service.relaid.timestamp(OLD)
    data = {f"timestamp:{time}": {"accounts": {CHARLIE: {"props": ["BALANCE"]}}}}
    batch = submit(key, asking(data, source=THERE))
    assert work_until_done(batch, service.here, rounds=15).status == BatchStatus.DONE
    # The header of the block after the time is used twice, so its hash is stored.
    assert vouches(service, OLD + 1)
    assert proven(service, there, OLD)


@pytest.mark.long
def test_a_payer_is_told_of_the_jump(service, there, key):
    with self_funded.nothing_spent(service.here):
        batch = submit(key, self_funded.itself(of_there(OLD)))
        for _ in range(8):
            work()
            if fresh(batch).status == BatchStatus.DONE:
                break
            self_funded.send(service.here, self_funded.left_of(batch)["transactions"])
    assert fresh(batch).status == BatchStatus.DONE
    assert proven(service, there, OLD)


@pytest.mark.long
def test_an_attested_block_is_what_jumps_begin_at(chain, made, settings, tmp_path, key, there):
    """Attesters would also sign the old block's hash, but a jump from a newer block is preferred."""
    with jumping(chain, made, settings, tmp_path, attested_by=KEYS[0]) as service:
        batch = submit(key, of_there(OLD))
        assert work_until_done(batch, chain).status == BatchStatus.DONE
        # The attestation, the jump and the proof are in one transaction.
        (tx,) = of_batch(batch)
        assert tx.extends_id is not None
        origin = FactsRegistry.objects.get(source_chain_id=THERE).jump_origin
        assert origin is not None
        assert vouches(service, origin)
        assert not vouches(service, OLD)
        assert proven(service, there, OLD)
        later = submit(key, of_there(OLD + 1))
        assert work_until_done(later, chain).status == BatchStatus.DONE
        (tx,) = of_batch(later)
        assert tx.extends_id is None


# --- Obstacles --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_without_a_branch_it_waits_and_takes_another_path_only_after_long(service, there, key, monkeypatch):
    node = service.node
    states, node.states = node.states, {}
    batch = submit(key, of_there(OLD))
    work(4)
    sent = Transaction.objects.count()
    (sentence,) = waiting()
    assert sentence.startswith(
        "The data for a jump is not available. No beacon node in beacon_urls of The other chain (31338) has the "
        "historical summaries "
    )
    # The branch is missing, so no block has been recorded.
    assert not of_batch(batch)
    # Failures of another kind don't count toward giving up the beacon node.
    Block.objects.filter(number=OLD).update(attempts=8, waits_for_path=False)
    work()
    # After eight failures about the path, three minutes have passed.
    Block.objects.filter(number=OLD).update(attempts=8)
    work()
    assert waiting() == [f"Block {OLD} of chain {THERE} is out of reach: {NO_HISTORY}"]
    assert Transaction.objects.count() == sent
    node.states = states
    assert work_until_done(batch, service.here).status == BatchStatus.DONE
    assert proven(service, there, OLD)


@pytest.mark.long
def test_an_absent_beacon_node_is_reported_until_it_is_back_and_batches_go_on(service, there, key):
    service.api.__exit__()
    batch = submit(key, of_there(OLD))
    work(2)
    beat()
    told = Client().get("/healthz").json()
    assert told["codes"] == ["no_beacon_node"]
    assert told["critical"] == []
    lacking = "No beacon node in beacon_urls of The other chain (31338) can be used: 127.0.0.1:"
    assert told["problems"][0].startswith(lacking)
    assert "can't be reached. Batches about old blocks may wait." in told["problems"][0]
    service.api.__enter__()
    assert work_until_done(batch, service.here).status == BatchStatus.DONE
    assert proven(service, there, OLD)
    assert Client().get("/healthz").json()["codes"] == []


@pytest.mark.long
def test_a_branch_that_the_registry_refuses_is_sent_to_nobody(service, there, settings, key):
    contract, refusal = chain_state.registry(THERE).address.lower(), "0x" + keccak(text="InvalidProof()")[:4].hex()

    def refuse(question: Any, reply: Any) -> list[Any]:
        is_refused = question["method"] == "eth_estimateGas" and question["params"][0].get("to", "").lower() == contract
        return [error(question, 3, "execution reverted", refusal) if is_refused else reply]

    nonce = chain_state.signer_nonce(service.here)
    batch = submit(key, of_there(OLD))
    with changed_replies(settings, service.here, refuse) as url:
        work(6, service.here)
        reconfigure(settings, url, service.here.url)
    (sentence,) = waiting()
    assert sentence == "The registry does not accept the proof: InvalidProof()."
    row = Block.objects.get(number=OLD)
    # The origin was recorded, and the interval between further tries grows.
    assert chain_state.signer_nonce(service.here, "pending") == nonce + 1
    assert row.attempts > 2
    assert work_until_done(batch, service.here).status == BatchStatus.DONE
    assert proven(service, there, OLD)


@pytest.mark.long
def test_blocks_that_are_too_far_are_rejected_with_the_way_out(service, settings, key):
    reconfigure(settings, f'beacon_urls = ["{service.api.url}"]', "max_fee_per_gas_gwei = 100")
    batch = submit(key, of_there(OLD))
    assert work_until_done(batch).rejection_code == "block_too_old"
    assert batch.rejection_reason == (
        f"Block {OLD} of chain {THERE} is out of reach: {NO_HISTORY} The other chain (31338) has no beacon_urls, "
        f"which have the data for proofs."
    )


# --- Cost -------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_estimate_holds_and_names_where_the_jump_begins(service, client, key):
    bodies = {
        "a balance by a jump": of_there(OLD),
        "5 balances by jumps": of_there(*range(OLD + 1, OLD + 6)),
        "a field of a header by a jump": header_of(OLD + 6, "TIMESTAMP"),
        "a time by a jump": asking(
            {f"timestamp:{service.relaid.timestamp(OLD + 8)}": {"header": ["GAS_LIMIT"]}}, source=THERE
        ),
    }
    told = estimated_batches.estimate(client, key, bodies["5 balances by jumps"])
    (source,) = told["sources"]
    assert source["jumps"] == {"count": 5, "fromBlock": str(NEWEST)}
    assert source["parts"]["paths"]["count"] == 5
    # The form and the command line give the same sentence.
    row = {"source": str(THERE), "at": "block", "block": str(OLD), "accounts": CHARLIE, "props": ["BALANCE"]}
    form: dict[str, Any] = {
        "destination": "31337",
        "sender": "service",
        "fee": "",
        "token": "0" * 32,
    }
    form |= {"rows-TOTAL_FORMS": "1", "rows-INITIAL_FORMS": "1"} | {
        f"rows-0-{name}": value for name, value in row.items()
    }
    shown = client_of(ALICE).post("/new-batch/estimate", form, headers={"hx-request": "true"}).text
    assert f"by the beacon chain, from block {NEWEST}</span></dt> <dd>1</dd>" in " ".join(shown.split())
    for name, body in bodies.items():
        result = estimated_batches.measured(client, key, name, body, chain=service.here)
        assert result.spent <= result.bound
        assert result.spent <= result.expected * 1.1, result
        if "time" not in name:
            # Jumps are expected to be as long as mainnet's.
            sent = Transaction.objects.filter(queries__isnull=False).distinct()
            assert [tx.expected_gas / tx.gas_used for tx in sent] == [pytest.approx(1, rel=0.12)] * len(sent)


# --- Kills ------------------------------------------------------------------------------------------------------------


@pytest.mark.release
def test_a_block_is_jumped_to_once_wherever_the_worker_is_killed(service, there, key, killing):
    # A jump leads to these blocks. A slow machine makes a few more exchanges, for further turns.
    numbers = iter(range(1, NEWEST - 3))
    assert work_until_done(submit(key, of_there(next(numbers))), service.here).status == BatchStatus.DONE
    for exchange, number in zip(killing.exchanges(), numbers, strict=False):
        nonce = chain_state.signer_nonce(service.here)
        batch = submit(key, of_there(number))
        with killing.at(exchange, after=number % 2 == 0):
            work_until_done(batch, service.here)
        assert work_until_done(batch, service.here).status == BatchStatus.DONE
        work()
        assert (
            chain_state.signer_nonce(service.here) == chain_state.signer_nonce(service.here, "pending") == nonce + 1
        ), exchange
        assert proven(service, there, number)
    assert exchange > 5


# --- Origins of jumps -------------------------------------------------------------------------------------------------


def origin_of(number: int) -> int | None:
    return Block.objects.get(number=number).path_origin


@pytest.mark.long
def test_an_origin_serves_for_as_long_as_it_remembers_enough_and_the_chain_has_it(service, there, key):
    service.tell(30)
    # The chain has grown, but the destination knows no newer block.
    assert work_until_done(submit(key, of_there(OLD)), service.here).status == BatchStatus.DONE
    service.tell(NEWEST)
    assert work_until_done(submit(key, of_there(OLD + 1)), service.here).status == BatchStatus.DONE
    # The state before block 30 doesn't summarise block 40's period, so a newer origin is needed.
    assert work_until_done(submit(key, of_there(40)), service.here).status == BatchStatus.DONE
    assert work_until_done(submit(key, of_there(OLD + 2)), service.here).status == BatchStatus.DONE
    assert [origin_of(number) for number in (OLD, OLD + 1, 40, OLD + 2)] == [30, 30, NEWEST, NEWEST]
    # The stored origin is unknown to the registry, as after a reorg, so another one is recorded.
    FactsRegistry.objects.update(jump_origin=NEWEST - 1)
    assert work_until_done(submit(key, of_there(OLD + 3)), service.here).status == BatchStatus.DONE
    assert origin_of(OLD + 3) == NEWEST
    assert proven(service, there, OLD, OLD + 1, 40, OLD + 2, OLD + 3)
