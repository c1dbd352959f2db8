"""What `check_chains` says of beacon nodes."""

from dataclasses import replace

import pytest

from config.configured_chains import get_chains
from devnet.beacon_api import BeaconApi, BeaconNode
from proving.health import beacon_checks
from proving.health.problems import Problem
from tests.proving import beacon_chains
from tests.proving.beacon_chains import CHAIN_ID

DEAD = "http://127.0.0.1:1/secret"


@pytest.fixture(scope="module")
def node() -> BeaconNode:
    return beacon_chains.node_of(beacon_chains.small_world(), [89])


@pytest.fixture
def said(settings, tmp_path):
    def check(*urls: str) -> tuple[list[str], list[Problem]]:
        beacon_chains.configure(settings, tmp_path, beacon_chains.small_world().chain, beacon_urls=urls)
        lines: list[str] = []
        problems = beacon_checks.check(get_chains().chain(CHAIN_ID), lines.append)
        return [line.replace("127.0.0.1:", "") for line in lines], problems

    return check


def test_each_node_is_told_of(said, node):
    with BeaconApi(node) as all_of_it, BeaconApi(replace(node, states={})) as some:
        lines, problems = said(DEAD, some.url, all_of_it.url)
        first, second, third = lines
        assert first == "  Beacon node 1: 1 can't be reached"
        assert second.startswith(f"  Beacon node {some.url[17:]}: slot 89 is final. No beacon node of")
        assert third == f"  Beacon node {all_of_it.url[17:]}: slot 89 is final, and its state has 7 summaries."
        assert problems == []


def test_nodes_of_which_none_tells_summaries(said, node):
    with BeaconApi(replace(node, state_paths=[])) as api:
        assert said(api.url)[1] == [
            Problem(
                "no_beacon_node",
                "No beacon node of Development chain (31337) tells historical summaries, so no new jump can begin.",
            )
        ]
    assert said(DEAD)[1] == [Problem("no_beacon_node", "No beacon node of Development chain (31337) can be used.")]
    assert said() == ([], [])
