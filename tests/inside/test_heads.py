"""Proofs of a block stay when its header arrives again. A head that a stale node tells is compared."""

import time
from typing import Any

import pytest
from django.utils import timezone

from config.configured_chains import get_chains, get_rpc
from proving import heads
from proving.models import AccountProof, ChainHead
from proving.reconcile import rows
from proving.reconcile.decide import TakeHeader
from queries.models import Block
from tests.chains.lying_node import ask, lying_node, recording
from tests.proving.money_node import STALE_BLOCKS, Liar, Node, block_with
from tests.service import ALICE, a_key, reconfigure, request, submit, work_until_done


def test_proofs_stay_where_the_header_that_is_stored_comes_again(service):
    """Admission may store a block's header while a reconcile requests it."""
    work_until_done(submit(a_key(), request(ALICE, block=service.head())))
    block = Block.objects.get()
    header = get_rpc(31337).header(block.number)
    assert header is not None
    rows._take_header(block, TakeHeader(header))
    assert AccountProof.objects.filter(block=block).exists()


@pytest.mark.parametrize("knows_by", ["an earlier reading", "another process"])
def test_a_stale_node_rests_where_another_one_tells_a_later_head(service, settings, knows_by):
    reconfigure(settings, "block_seconds = 1", "block_seconds = 12")
    stale = Node(service)
    with lying_node(stale) as url:
        reconfigure(settings, f'"{service.url}"', f'"{url}", "{service.url}"')
        chain, rpc = get_chains().chain(31337), get_rpc(31337)
        if knows_by == "an earlier reading":
            heads.read(chain, rpc)
            ChainHead.objects.all().delete()
        else:
            values = {"number": service.head(), "final": 0, "seen_at": timezone.now()}
            ChainHead.objects.update_or_create(pk=31337, defaults=values)
        stale.lie = "stale"
        assert rpc.head().number == service.head() - STALE_BLOCKS
        assert heads.read(chain, rpc).latest.number == service.head()
        (problem,) = rpc.resting_nodes().values()
    assert f"tells block {service.head() - STALE_BLOCKS} as the newest" in problem


@pytest.mark.parametrize("is_read_before", [True, False])
def test_a_node_rests_that_lacks_the_blocks_before_the_newest_that_it_tells(service, settings, is_read_before):
    liar = Liar(service)
    with lying_node(liar) as url:
        reconfigure(settings, f'"{service.url}"', f'"{url}", "{service.url}"')
        chain, rpc = get_chains().chain(31337), get_rpc(31337)
        if is_read_before:
            heads.read(chain, rpc)
        liar.changes = {"eth_getBlockByNumber": block_with("number", 50)}
        assert heads.read(chain, rpc).latest.number == service.head()
        (problem,) = rpc.resting_nodes().values()
    assert f"tells block {service.head() + 50} as the newest" in problem


def test_nodes_of_a_chain_that_stands_still_are_compared_once_a_minute(service, settings, monkeypatch, pass_time):
    reconfigure(settings, "test_network = true", "test_network = false")
    now, asked = time.time() + 100, list[Any]()
    monkeypatch.setattr(time, "time", lambda: now)
    with lying_node(recording(asked, lambda body: ask(service.url, body))) as url:
        reconfigure(settings, f'"{service.url}"', f'"{service.url}", "{url}"')
        for seconds, times in ((0, 1), (0, 1), (70, 2)):
            pass_time(seconds)
            heads.read(get_chains().chain(31337), get_rpc(31337))
            assert [body["method"] for body in asked].count("eth_getBlockByNumber") == times
    assert get_rpc(31337).resting_nodes() == {}
