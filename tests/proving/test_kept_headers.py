"""Headers kept accumulated, so that any later block is one hop away."""

import itertools
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from devnet.devchain import DevChain
from proving.models import FactsRegistry, Transaction
from queries.models import Batch, BatchStatus, Block
from tests.chains.lying_node import between, error
from tests.deployed import deploy_on
from tests.factories import until
from tests.proving.chain_state import HEADER_ACCUMULATED, events
from tests.proving.self_funded import itself, left_of, send
from tests.service import CHARLIE, a_key, chains_toml, reconfigure, request, submit, work, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

WINDOW = 16


@pytest.fixture
def kept(chain: DevChain, db, settings, tmp_path) -> DevChain:
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, connection=f"window = {WINDOW}\nkeep_headers = true")
    deploy_on(chain)
    return chain


def accumulated(chain: DevChain) -> list[int]:
    return sorted(int(log["topics"][1], 16) for log in events(chain, HEADER_ACCUMULATED))


def test_every_window_gets_a_header(kept):
    for _ in range(60):
        work()
        kept.mine()
    numbers = accumulated(kept)
    assert len(numbers) >= 3
    assert all(later - earlier <= WINDOW for earlier, later in itertools.pairwise(numbers))
    # And not more than are needed.
    assert all(later - earlier > WINDOW // 2 for earlier, later in itertools.pairwise(numbers))


def test_any_later_block_is_then_one_hop_away(kept):
    for _ in range(60):
        work()
        kept.mine()
    block = accumulated(kept)[0] + 3
    before = Transaction.objects.exclude(extends=None).count()
    assert work_until_done(submit(a_key(), request(CHARLIE, block=block)), kept).status == BatchStatus.DONE
    assert Block.objects.get(number=block).path_length <= 1
    assert Transaction.objects.exclude(extends=None).count() == before + 1


def test_windows_that_were_missed_are_made_up_for(kept):
    work()
    work()
    kept.mine(5 * WINDOW)
    for _ in range(12):
        work()
        kept.mine()
    numbers = accumulated(kept)
    assert all(later - earlier <= WINDOW for earlier, later in itertools.pairwise(numbers))
    assert numbers[-1] > kept.head() - 2 * WINDOW


def test_it_is_done_once_although_it_is_asked_for_often(kept):
    for _ in range(10):
        work()
    assert len(accumulated(kept)) == 1
    assert Transaction.objects.exclude(extends=None).count() == 1


def test_without_the_setting_nothing_is_kept(chain, service):
    work()
    work()
    assert not events(service, HEADER_ACCUMULATED)


def test_what_somebody_else_has_accumulated_is_learned_and_built_upon(chain, db, settings, tmp_path):
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, connection="window = 10")
    deploy_on(chain)
    work()
    chain.mine(20)
    block = chain.head() - 4
    batch = submit(a_key(), itself(request(CHARLIE, block=block)))
    work()
    transactions = left_of(batch)["transactions"]
    # The service knows of no one who would send it.
    for rows in (Batch, Block):
        rows.objects.all().delete()
    send(chain, transactions)
    chain.mine(50)
    work()
    assert Block.objects.get(number=block).is_checkpoint
    batch = submit(a_key(name="another"), request(CHARLIE, block=block - 10))
    assert work_until_done(batch, chain).status == BatchStatus.DONE
    assert Block.objects.get(number=block - 10).path_length == 1
    # Each block's events are read once.
    assert (FactsRegistry.objects.get().events_read_to or 0) > block


@pytest.mark.parametrize("most", [10, 0])
def test_headers_are_kept_although_nodes_bound_what_they_serve_of_events(kept, settings, most):
    def bounded(question, reply):
        if question["method"] == "eth_getLogs":
            first, last = (int(question["params"][0][name], 16) for name in ("fromBlock", "toBlock"))
            if last - first >= most:
                reply = error(question, -32602, f"eth_getLogs is limited to a range of {most} blocks")
        return [reply]

    kept.mine(100)
    with between(kept.url, bounded) as url:
        reconfigure(settings, kept.url, url)
        work()
    # The node mines soon after it has answered.
    kept.mine()
    assert len(accumulated(kept)) == 1
    assert (FactsRegistry.objects.get().events_read_to or 0) > (90 if most else 0)


def test_while_nothing_can_be_sent_it_waits_and_says_why(kept):
    call_command("stop")
    work()
    row = FactsRegistry.objects.get()
    assert (row.waiting_for, row.attempts) == ("The operator has stopped sending on chain 31337.", 0)
    assert not accumulated(kept)
    call_command("resume")
    work()
    assert accumulated(kept)


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_starts_does_the_upkeep_at_once_whatever_was_due_when(kept, start_worker):
    FactsRegistry.objects.update(due_at=timezone.now() + timedelta(minutes=9))
    start_worker()
    until(lambda: bool(accumulated(kept)), "a header")
