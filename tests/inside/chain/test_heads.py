"""Proofs of a block stay when its header arrives again. A head that a stale node tells is compared."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.utils import timezone

from chains.chains_file import Chain
from chains.nodes.rpc import RpcClient
from config.configured_chains import get_chains, get_rpc
from devnet.devchain import DevChain
from proving.models import ChainHead, ChainWatch
from proving.working import heads
from tests.chains.lying_node import lying_node
from tests.proving.money_node import STALE_BLOCKS, Liar, Node, block_with
from tests.real_nodes.driven_geth import CHAIN_ID, DrivenGeth
from tests.service import chains_toml, reconfigure


@contextmanager
def before_another(node: Callable[[Any], Any], service: DevChain, settings) -> Iterator[tuple[Chain, RpcClient]]:
    """Let the chain have this node first, and an honest one second."""
    with lying_node(node) as url:
        reconfigure(settings, f'"{service.url}"', f'"{url}", "{service.url}"')
        yield get_chains().chain(31337), get_rpc(31337)


@pytest.mark.parametrize("knows_by", ["an earlier reading", "another process"])
def test_a_stale_node_rests_where_another_one_tells_a_later_head(service, settings, knows_by):
    reconfigure(settings, "block_seconds = 1", "block_seconds = 12")
    stale = Node(service)
    with before_another(stale, service, settings) as (chain, rpc):
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
    assert f"tells block {service.head() - STALE_BLOCKS} as the newest" in str(problem)


def test_a_node_of_a_test_network_that_stops_is_compared_with_another_after_a_while(service, settings, monkeypatch):
    reconfigure(settings, "block_seconds = 1", "block_seconds = 12")
    stale = Node(service)
    with before_another(stale, service, settings) as (chain, rpc):
        before = heads.read(chain, rpc).latest.number
        service.mine(STALE_BLOCKS)
        stale.lie = "stale"
        assert heads.read(chain, rpc).latest.number == before
        monotonic = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: monotonic() + 61)
        assert heads.read(chain, rpc).latest.number == service.head() == before + STALE_BLOCKS


@pytest.mark.parametrize("is_read_before", [True, False])
def test_a_node_rests_that_lacks_the_blocks_before_the_newest_that_it_tells(service, settings, is_read_before):
    liar = Liar(service)
    with before_another(liar, service, settings) as (chain, rpc):
        if is_read_before:
            heads.read(chain, rpc)
        liar.changes = {"eth_getBlockByNumber": block_with("number", 50)}
        assert heads.read(chain, rpc).latest.number == service.head()
        (problem,) = rpc.resting_nodes().values()
    assert f"tells block {service.head() + 50} as the newest" in str(problem)


@pytest.mark.geth
def test_the_watch_is_due_when_a_head_shows_a_fork(db, settings, tmp_path):
    """The watch measures the prices."""
    with DrivenGeth(CHAIN_ID, amsterdam_time=int(time.time()) + 1000) as node:
        settings.CHAINS_FILE = chains_toml(tmp_path, node.url, chain_id=CHAIN_ID)
        ChainWatch.objects.create(chain_id=CHAIN_ID, due_at=timezone.now())
        due = []
        for mine in (node.mine, node.mine, node.mine_until_amsterdam):
            mine()
            heads.read(get_chains().chain(CHAIN_ID), get_rpc(CHAIN_ID))
            due.append(ChainWatch.objects.get().due_at is None)
    assert due == [False, False, True]
