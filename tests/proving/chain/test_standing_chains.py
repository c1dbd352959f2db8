"""Chains that stand still, and chains whose newest final block does."""

import io
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models import F
from django.test import Client

from devnet.devchain import DevChain
from proving.models import ChainHead, ChainWatch, FactsRegistry, Transaction
from queries.models import Batch, BatchStatus
from tests.chains.lying_node import refusing
from tests.deployed import deploy_on
from tests.explorer.batches import beat, page
from tests.explorer.pages import text_of
from tests.service import ALICE, chains_toml, changed_replies, done, fresh, header, reconfigure, request, submit, work

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

HOUR = 3600


@contextmanager
def final_block(settings: Any, chain: DevChain, number: Callable[[], int]) -> Iterator[None]:
    """Let the chain's node report this block as the newest final one."""

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getBlockByNumber" and question["params"][0] == "finalized":
            reply["result"] = chain.rpc("eth_getBlockByNumber", hex(number()), False)
        return [reply]

    with changed_replies(settings, chain, change):
        yield


def mine_apart(chain: DevChain, blocks: int, seconds: int) -> None:
    """Make blocks that are so many seconds apart, the first one too."""
    chain.rpc("evm_increaseTime", seconds)
    chain.mine()
    chain.rpc("anvil_mine", hex(blocks - 1), hex(seconds))


def wait_of(batch: Batch) -> dict[str, Any]:
    """Return the only wait of the batch."""
    (told,) = Client().get(f"/explorer/query/{batch.pk}.json").json()["waits"]
    return dict(told)


def is_on_page(sentence: str, batch: Batch) -> bool:
    beat()
    return sentence.replace("chain 31337", "Development chain") in text_of(page(batch))


def health() -> Any:
    beat()
    return Client().get("/healthz").json()


def status(key: Any, batch: Batch) -> Any:
    return Client().get("/batch-query-status", {"batchQueryId": batch.pk}, headers=header(key)).json()


@pytest.mark.parametrize(
    ("blocks", "seconds", "is_told"),
    [
        pytest.param(360, 60, True, id="six hours in time and in blocks"),
        pytest.param(359, 60, False, id="a minute less"),
        pytest.param(66, 6 * HOUR, False, id="few blocks of a chain that makes them on demand"),
    ],
)
def test_a_final_block_that_is_six_hours_older_than_the_newest_is_told(service, settings, blocks, seconds, is_told):
    reconfigure(settings, "block_seconds = 1", "block_seconds = 60")
    final = service.head()
    with final_block(settings, service, lambda: final):
        mine_apart(service, blocks, seconds)
        work()
        sentence = (
            f"The newest final block of chain 31337 is {final}, 6.0 hours older than its newest block, "
            f"{service.head()}. If the chain is a rollup, its batcher may publish nothing, or its node may not read it."
        )
        assert (health()["codes"], health()["notices"]) == ([], [sentence] * is_told)
        output = io.StringIO()
        call_command("check_chains", stdout=output)
        assert (f"Notice: {sentence}" in output.getvalue().splitlines()) == is_told
        assert (sentence in text_of(Client().get("/chains").text)) == is_told


def test_a_final_block_is_told_by_time_alone_where_blocks_have_their_true_times(service, settings):
    reconfigure(settings, "test_network = true", "test_network = false")
    final = service.head()
    with final_block(settings, service, lambda: final):
        mine_apart(service, 2, 3 * HOUR)
        work()
        (notice,) = health()["notices"]
        assert f"is {final}, 6.0 hours older than its newest block" in notice


@pytest.mark.parametrize(
    ("confirmations", "blocks", "is_told"), [("1", 360, False), ('"finalized"', 360, True), ('"finalized"', 64, False)]
)
def test_the_first_block_as_the_final_one_is_told_where_a_later_one_is_expected(
    db, settings, tmp_path, confirmations, blocks, is_told
):
    """Some nodes always report the first block as final. After that of a young chain, none is final yet."""
    seconds = 6 * HOUR // blocks + 1
    with DevChain(slots_in_an_epoch=1000) as chain:
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, chain=f"confirmations = {confirmations}")
        reconfigure(settings, "block_seconds = 1", f"block_seconds = {seconds}")
        mine_apart(chain, blocks, seconds)
        work()
        assert (health()["notices"] != []) == is_told


@pytest.mark.long
def test_a_batch_names_the_final_block_that_stands_until_it_goes_on(service, key, settings):
    reconfigure(settings, "confirmations = 1", 'confirmations = "finalized"')
    reconfigure(settings, "block_seconds = 1", "block_seconds = 60")
    final = service.head()
    with final_block(settings, service, lambda: final):
        mine_apart(service, 60, 60)
        service.rpc("evm_setAutomine", False)
        batch = submit(key, request(ALICE, block=final))
        work(2)
        assert wait_of(batch)["code"] == "next_block"
        service.mine()
        work(2)
        told, newest = wait_of(batch), service.head()
        assert told["code"] == "finality_stands"
        assert re.search(rf"31337 is {final}, 6. minutes older than its newest block, {newest}\.", told["sentence"])
        assert status(key, batch)["info"] == [told["sentence"]]
        assert is_on_page(told["sentence"], batch)
        reconfigure(settings, '"finalized"', "99")
        assert wait_of(batch)["code"] == "confirming"
        reconfigure(settings, "99", '"finalized"')
        final = newest
        service.rpc("evm_setAutomine", True)
        done(batch)


def test_a_batch_names_at_once_that_no_block_after_the_first_one_is_final(db, key, settings, tmp_path):
    """A registry that is newer than the newest final block is not there for a batch."""
    with DevChain(slots_in_an_epoch=1000) as chain:
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
        deploy_on(chain)
        chain.mine(64 - chain.head())
        reconfigure(settings, "confirmations = 1", 'confirmations = "finalized"')
        batch = submit(key, request(ALICE, block=chain.head()))
        work()
        assert wait_of(batch)["code"] != "finality_stands"
        chain.mine()
        work()
        told = wait_of(batch)
        assert told["code"] == "finality_stands"
        assert re.search(rf"31337 is 0, \d+ s older than its newest block, {chain.head()}\.", told["sentence"])
        assert status(key, batch)["info"] == [told["sentence"]]
        assert is_on_page(told["sentence"], batch)
        assert health()["notices"] == []


@pytest.mark.long
def test_deploy_registry_names_once_that_no_block_after_the_first_one_is_final(db, settings, tmp_path, pass_time):
    output, asked = io.StringIO(), itertools.count(1)

    def change(question: Any, reply: Any) -> list[Any]:
        """After the sentence, let ten minutes pass at once, but not before the command has looked again."""
        is_told = "newest final block" in output.getvalue() and question["params"][:1] == ["finalized"]
        if is_told and next(asked) == 3:
            pass_time(600)
        return [reply]

    with DevChain(slots_in_an_epoch=1000) as chain:
        chain.mine(65)
        settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, chain='confirmations = "finalized"')
        with changed_replies(settings, chain, change):
            with pytest.raises(CommandError) as raised:
                call_command("deploy_registry", "31337", "31337", stderr=output)
            *_, waits, stands = output.getvalue().splitlines()
            assert waits.endswith("is mined; waiting for confirmations.")
            finality = r"The newest final block of chain 31337 is 0, \d+ s older than its newest block, "
            assert re.match(rf"{finality}\d", stands)
            assert re.search(rf"not confirmed within .* {finality}\d+\..* run the command", str(raised.value))
            reconfigure(settings, 'confirmations = "finalized"', "confirmations = 1")
            chain.mine()
            call_command("deploy_registry", "31337", "31337")
    assert FactsRegistry.objects.get().deployed_at


@pytest.mark.long("True")
@pytest.mark.parametrize("is_mined", [False, True])
def test_a_newest_block_that_stays_the_newest_is_told_while_a_transaction_waits(service, key, settings, is_mined):
    reconfigure(settings, "confirmations = 1", "confirmations = 3")
    service.mine(2)
    service.rpc("evm_setAutomine", is_mined)
    batch = submit(key, request(ALICE, block=service.head() - 2))
    work(1 + is_mined)
    assert wait_of(batch)["code"] == ("confirming" if is_mined else "next_block")
    newest, minute, code = service.head(), timedelta(minutes=1), wait_of(batch)["code"]
    heads, transactions = ChainHead.objects.all(), Transaction.objects.all()
    # The chain has made a block, or the transaction was sent, only seconds ago.
    transactions.update(spent_at=F("spent_at") - minute)
    assert wait_of(batch)["code"] == code
    transactions.update(spent_at=F("spent_at") + minute)
    heads.update(seen_at=F("seen_at") - minute)
    work()
    assert (wait_of(batch)["code"], health()["codes"]) == (code, [])
    transactions.update(spent_at=F("spent_at") - minute)
    work()
    told = wait_of(batch)
    assert told["code"] == "chain_stands"
    assert told["sentence"].startswith(f"Block {newest} of chain 31337 has been its newest block since 20")
    assert f"Its newest final block is {newest - 2}. The chain or its nodes stand still." in told["sentence"]
    assert status(key, batch)["info"] == [told["sentence"]]
    assert is_on_page(told["sentence"], batch)
    assert (health()["codes"][0], health()["problems"][0]) == ("clock", told["sentence"])
    # Nobody knows whether the chain still stands.
    ChainWatch.objects.update(seen_at=F("seen_at") - minute)
    assert wait_of(batch)["code"] != "chain_stands"
    service.rpc("evm_setAutomine", True)
    done(batch, service)
    assert health()["codes"] == []
    assert fresh(batch).status == BatchStatus.DONE


def age() -> None:
    """Let a minute have passed since the chain's newest block came, and since each transaction was stored."""
    ChainHead.objects.update(seen_at=F("seen_at") - timedelta(minutes=1))
    Transaction.objects.update(spent_at=F("spent_at") - timedelta(minutes=1))


@pytest.mark.long
def test_a_final_block_that_changes_is_no_newest_block(service, key, settings):
    """Two nodes behind one URL may differ about the newest final block."""
    service.mine(2)
    final = [service.head() - 1, service.head() - 2]
    service.rpc("evm_setAutomine", False)
    with final_block(settings, service, lambda: final[0]):
        batch = submit(key, request(ALICE, block=service.head() - 2))
        work()
        age()
        for _ in range(3):
            final.reverse()
            work()
            assert (wait_of(batch)["code"], health()["codes"][0]) == ("chain_stands", "clock")


@pytest.mark.long
@pytest.mark.parametrize("is_taken", [False, True])
def test_a_chain_that_got_no_transaction_does_not_stand_still(service, key, settings, is_taken):
    """A chain that makes blocks on demand makes none for a transaction that its node refuses."""
    refusals = {} if is_taken else {"eth_sendRawTransaction": (-32000, "txpool is full")}
    with refusing(service.url, refusals) as url:
        reconfigure(settings, service.url, url)
        service.rpc("evm_setAutomine", not is_taken)
        batch = submit(key, request(ALICE, block=service.head()))
        work()
        age()
        work()
        assert (wait_of(batch)["code"] == "chain_stands") == is_taken
        assert ("clock" in health()["codes"]) == is_taken


def test_only_a_test_network_that_makes_no_block_is_a_problem_of_the_clock(service, key, settings):
    """The newest block of another chain is compared with the clock."""
    service.rpc("evm_setAutomine", False)
    batch = submit(key, request(ALICE, block=service.head()))
    work()
    age()
    reconfigure(settings, "test_network = true", "test_network = false")
    work()
    assert (wait_of(batch)["code"], "clock" in health()["codes"]) == ("chain_stands", False)
