"""Blocks of a geth whose two layers fork together, proven on a rollup that holds its beacon roots."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from devnet.consensus_client import SLOTS_PER_PERIOD
from devnet.devchain import DevChain
from proving.models import BeaconAnchor, JumpLeaves, Transaction
from queries.models import Batch, Block, PathUnit
from tests import http_server, service
from tests.proving.estimated_batches import estimate
from tests.real_nodes import l1 as forked
from tests.real_nodes.facts import Facts, facts_of, send_transactions, wrong
from tests.real_nodes.l1 import CHAIN_ID, GLOAS, L1, Rollup4788, connect, roots_of
from tests.service import asking, done, submit, waiting, work
from tests.specifications import with_specifications

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.geth,
    pytest.mark.outside,
    with_specifications,
]

# Slots from Gloas's first one on. The period's last slot is full, and the next block, which names it, is empty.
AROUND = "FFFFEFFSFEEFLFEFEFFFFFFF"
NEXT = "EFFFEF"
# Most of the next period is skipped. With the slots after it, a block is final whose state summarises that period.
LATER = "S" * 34 + "F" * 56
KINDS = AROUND + NEXT + LATER
assert GLOAS + len(AROUND) == SLOTS_PER_PERIOD


@pytest.fixture(scope="module")
def l1() -> Iterator[L1]:
    with forked.running(KINDS) as chain:
        send_transactions(chain.node)
        chain.consensus.advance(GLOAS + 10)
        send_transactions(chain.node)
        chain.consensus.advance(len(KINDS) - 10)
        yield chain


@pytest.fixture
def rollup(chain: DevChain) -> Rollup4788:
    return Rollup4788(chain)


def request(key, facts: Facts) -> Batch:
    return submit(key, asking(facts.asked, source=CHAIN_ID))


def read(key, rollup: Rollup4788, registry: Any, facts: Facts) -> None:
    """Prove the facts, and read them on the rollup."""
    done(request(key, facts), rollup.chain, rounds=25)
    assert wrong(rollup.chain, registry.address, facts) == []
    assert set(Transaction.objects.values_list("succeeded", flat=True)) == {True}


def test_each_block_around_the_fork_is_recorded_by_the_root_that_names_it_or_the_next_one(
    l1, rollup, key, settings, tmp_path
):
    first, last = l1.number_at(GLOAS - 2), l1.number_at(SLOTS_PER_PERIOD + 1)
    rollup.derive(l1, range(first, last + 3))
    registry = connect(settings, tmp_path, rollup.chain, l1)
    assert [l1.version(slot) for slot in (GLOAS - 1, GLOAS, GLOAS + 1)] == ["fulu", "gloas", "gloas"]
    read(key, rollup, registry, roots_of(l1, range(first, last + 1)))
    ways = {
        number: tuple(l1.naming(later)[1] - number for later in (number + 1, number + 2))
        for number in range(first, last + 1)
    }
    # One of two roots names the block, both do, or neither does.
    assert {*ways.values()} == {(-1, 0), (0, 1), (0, 0), (-1, 1)}
    # Where neither does, one parent hash leads on from the next block, which is always named.
    lengths = dict(Block.objects.filter(source_chain_id=CHAIN_ID).values_list("number", "path_length"))
    assert lengths == {number: way == (-1, 1) for number, way in ways.items()}
    # The block of the period's last slot is named in the next period.
    assert ways[l1.number_at(SLOTS_PER_PERIOD - 1)] == (0, 0)


def test_old_blocks_of_both_layouts_are_proven_by_jumps_from_a_block_of_gloas(l1, rollup, key, settings, tmp_path):
    head = l1.node.head()
    rollup.derive(l1, range(head - 32, head + 1))
    registry = connect(settings, tmp_path, rollup.chain, l1)
    slots = (1, GLOAS - 1, GLOAS, GLOAS + 3, SLOTS_PER_PERIOD - 1, SLOTS_PER_PERIOD + 1)
    numbers = [l1.number_at(slot) for slot in slots]
    read(key, rollup, registry, roots_of(l1, numbers))
    for each in (numbers[0], l1.number_at(GLOAS + 11)):
        read(key, rollup, registry, facts_of(l1.node, each))
    rows = Block.objects.filter(source_chain_id=CHAIN_ID)
    assert {(row.path_unit, l1.time(row.path_origin) > l1.time(numbers[-1])) for row in rows} == {
        (PathUnit.JUMPS, True)
    }


def test_the_newest_block_is_the_one_that_the_newest_root_names(l1, rollup, key, settings, tmp_path):
    head = l1.number_at(SLOTS_PER_PERIOD + 1)
    # The slot before this block is empty, so the root in the next header names no later block than that in its own.
    rollup.derive(l1, [head + 1])
    registry = connect(settings, tmp_path, rollup.chain, l1)
    older, named, unnamed = (roots_of(l1, [number]) for number in (head - 4, head - 1, head))
    read(key, rollup, registry, older)
    # No root of these is held, so a hop leads from the newest block.
    assert Block.objects.get(number=head - 4).path_length == 1
    batch = request(key, unnamed)
    work(2)
    (sentence,) = waiting()
    assert f"does not hold a beacon root yet that names block {head} of" in sentence
    read(key, rollup, registry, named)
    rollup.derive(l1, [head + 2])
    done(batch, rollup.chain)
    assert wrong(rollup.chain, registry.address, unnamed) == []


@contextmanager
def without_states(l1: L1) -> Iterator[str]:
    """Yield the URL of a beacon node like that of `l1`, but for whole states, which most nodes don't serve."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            kind = self.headers["Accept"]
            asked = urllib.request.Request(l1.consensus.url + self.path, headers={"Accept": kind})
            try:
                assert not self.path.startswith("/eth/v2/debug/")
                with urllib.request.urlopen(asked) as answer:
                    status, content = 200, answer.read()
            except (AssertionError, urllib.error.HTTPError):
                status, content = 404, b"{}"
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    with http_server.serving(Handler) as url:
        yield url


def test_without_states_hops_are_sent_and_expected_in_place_of_jumps(l1, rollup, client, key, settings, tmp_path):
    head = l1.number_at(SLOTS_PER_PERIOD - 1)
    rollup.derive(l1, [head])
    registry = connect(settings, tmp_path, rollup.chain, l1)
    with_states, *older = (roots_of(l1, [head - behind]) for behind in (12, 9, 6))
    read(key, rollup, registry, with_states)
    with without_states(l1) as url:
        service.reconfigure(settings, l1.consensus.url, url)
        BeaconAnchor.objects.all().delete()
        JumpLeaves.objects.all().delete()
        expected = []
        for facts in older:
            (told,) = estimate(client, key, asking(facts.asked, source=CHAIN_ID))["sources"]
            expected.append("jumps" in told)
            read(key, rollup, registry, facts)
    # The first request has found that no node has a state.
    assert expected == [True, False]
    units = dict(Block.objects.filter(queries__isnull=False).values_list("number", "path_unit"))
    assert units == {head - 12: PathUnit.JUMPS, head - 9: PathUnit.HOPS, head - 6: PathUnit.HOPS}


def test_the_last_block_before_the_fork_is_proven_by_both_layouts(l1, chain, key, settings, tmp_path):
    number = l1.number_at(GLOAS - 1)
    assert [l1.naming(later) for later in (number + 1, number + 2)] == [("fulu", number), ("gloas", number)]
    for held, folder in ((number + 1, "before"), (number + 2, "since")):
        (tmp_path / folder).mkdir()
        rollup = Rollup4788(chain)
        rollup.derive(l1, [held])
        registry = connect(settings, tmp_path / folder, chain, l1)
        read(key, rollup, registry, roots_of(l1, [number]))


def test_an_empty_first_block_of_gloas_names_the_last_block_before_the_fork(chain, key, settings, tmp_path):
    with forked.running("EFFF") as l1:
        l1.consensus.advance(GLOAS + 4)
        number = l1.number_at(GLOAS - 1)
        assert l1.naming(number + 1) == ("gloas", number)
        rollup = Rollup4788(chain)
        rollup.derive(l1, range(number - 1, number + 4))
        registry = connect(settings, tmp_path, chain, l1)
        read(key, rollup, registry, roots_of(l1, range(number - 2, number + 2)))


def test_the_beacon_node_serves_blocks_and_states_of_both_layouts_as_real_ones_do(l1):
    for slot, fork in ((GLOAS - 1, "fulu"), (GLOAS, "gloas"), (GLOAS + 4, "gloas")):
        version, block = l1.ssz(f"/eth/v2/beacon/blocks/{slot}")
        message = l1.beacon(f"/eth/v2/beacon/blocks/{slot}")["data"]["message"]
        header = l1.beacon(f"/eth/v1/beacon/headers/{slot}")["data"]["header"]["message"]
        # An offset and a signature come first, then the same fields in every fork.
        assert (version, block[100:108], message["slot"]) == (fork, slot.to_bytes(8, "little"), str(slot))
        roots = [message[name] for name in ("parent_root", "state_root")]
        assert block[116:180].hex() == "".join(root[2:] for root in roots)
        assert roots == [header[name] for name in ("parent_root", "state_root")]
        version, state = l1.ssz(f"/eth/v2/debug/beacon/states/{slot}")
        assert (version, state[40:48]) == (fork, slot.to_bytes(8, "little"))
    checkpoints = l1.beacon("/eth/v1/beacon/states/head/finality_checkpoints")["data"]
    final = l1.beacon("/eth/v1/beacon/headers/finalized")["data"]
    assert checkpoints["finalized"]["root"] == final["root"]
    assert int(final["header"]["message"]["slot"]) > 2 * SLOTS_PER_PERIOD
