"""Proofs of a block stay when its header arrives again. A head that a stale node tells is compared."""

import pytest
from django.utils import timezone

from config.configured_chains import get_chains, get_rpc
from proving import heads
from proving.models import ChainHead
from tests.chains.lying_node import lying_node
from tests.proving.money_node import STALE_BLOCKS, Node
from tests.service import reconfigure


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
            ChainHead.objects.create(chain_id=31337, number=service.head(), final=0, seen_at=timezone.now())
        stale.lie = "stale"
        assert rpc.head().number == service.head() - STALE_BLOCKS
        assert heads.read(chain, rpc).latest.number == service.head()
        (problem,) = rpc.resting_nodes().values()
    assert f"tells block {service.head() - STALE_BLOCKS} as the newest" in problem
