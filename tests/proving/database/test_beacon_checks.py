"""`check_chains` for beacon nodes and era files."""

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from django.core.management import CommandError, call_command

from chains.beacon.jumps import MAINNET, BeaconChain
from devnet.beacon_api import BeaconApi, BeaconNode
from tests.chains.era_site import Site, served
from tests.proving import beacon_chains

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

SMALL = beacon_chains.small_world().chain
DEAD = "http://127.0.0.1:1/secret"


@pytest.fixture(scope="module")
def node() -> BeaconNode:
    return beacon_chains.node_of(beacon_chains.small_world(), [89])


@pytest.fixture
def check(settings, tmp_path):
    def check_nodes(
        *urls: str, chain: BeaconChain = SMALL, era_files: Sequence[str] = ()
    ) -> tuple[list[str], list[str]]:
        """Run `check_chains`. Return its lines about beacon nodes, and all faults."""
        beacon_chains.configure(settings, tmp_path, chain, beacon_urls=urls, era_files=era_files)
        printed = io.StringIO()
        with pytest.raises(CommandError) as failed:
            call_command("check_chains", stdout=printed)
        lines = [line.replace("127.0.0.1:", "") for line in printed.getvalue().splitlines()]
        problems = [line for line in str(failed.value).splitlines() if line.startswith(("no_beacon", "no_era"))]
        return [line for line in lines if line.startswith(("  Beacon node", "  Era files"))], problems

    return check_nodes


def test_each_node_is_told_of(check, node):
    with BeaconApi(node) as all_of_it, BeaconApi(replace(node, states={})) as some:
        lines, problems = check(DEAD, some.url, all_of_it.url)
        first, second, third = lines
        assert first == "  Beacon node 1 can't be reached."
        final = "slot 89, of 2023-11-14 22:31 UTC, is final"
        assert second.startswith(f"  Beacon node {some.url[17:]}: {final}. No beacon node in beacon_urls of")
        assert third == f"  Beacon node {all_of_it.url[17:]}: {final}, and its state has 7 summaries."
        assert problems == []


def test_nodes_of_which_none_tells_summaries(check, node):
    with BeaconApi(replace(node, state_paths=[])) as api:
        (problem,) = check(api.url)[1]
        assert problem.startswith(
            "no_beacon_node: No beacon node in beacon_urls of Development chain (31337) returns historical summ"
        )
    absent = "No beacon node in beacon_urls of Development chain (31337) can be used: 127.0.0.1:1 can't be reached."
    assert check(DEAD)[1] == [f"no_beacon_node: {absent} Batches about old blocks may wait."]
    assert check() == ([], [])


@pytest.mark.long
def test_nodes_of_another_network_or_without_the_fork_are_told_of(check, node):
    forked = beacon_chains.small_world(gloas=80).chain
    with BeaconApi(replace(node, genesis_time=1)) as other, BeaconApi(replace(node, spec={"A": "1"})) as old:
        lines, problems = check(*(api.url.replace("//", "//me:secret@") for api in (other, old)), chain=forked)
    network = "is of another network: its chain began at 1, and that of chain 31337 at 1700000000."
    fork = "doesn't know that Gloas begins at slot 80: update it."
    whys = [f"{other.url[7:]} in beacon_urls {network}", f"{old.url[7:]} in beacon_urls {fork}"]
    assert lines == [f"  Beacon node {why.replace('127.0.0.1:', '')}" for why in whys]
    lacking = "no_beacon_node: No beacon node in beacon_urls of Development chain (31337) can be used."
    assert problems == [" ".join([lacking, *whys])]


def test_each_place_of_era_files_is_told_of(check, tmp_path):
    """The world's era files get mainnet's names."""
    folder, name = tmp_path / "eras", "mainnet-01896-e6ebe562.era1"
    folder.mkdir()
    (folder / name).write_bytes(bytes(2_000_000))
    with served(Site(folder)) as site, served(Site(folder, understands_ranges=False)) as whole:
        lines, problems = check(chain=MAINNET, era_files=["nowhere", "eras", site, f"{whole}?key=secret", DEAD])
        has = f"{name}, 2 MB; no mainnet-00758-"
        missing, folders, sites, wholes, dead = lines
        assert missing == "  Era files, folder nowhere: there is no such folder."
        assert folders.startswith(f"  Era files, folder eras: {has}")
        assert folders.count("; no mainnet-0") == 1
        assert sites.startswith(f"  Era files, {site[17:].partition('/')[0]}: {has}")
        assert "doesn't serve parts of files" in wholes
        assert "can't be reached" in dead
        assert "secret" not in "".join(lines)
        assert problems == []
        problem = "no_era_files: No place of era_files of Development chain (1) is readable."
        assert check(chain=MAINNET, era_files=["nowhere", whole])[1] == [problem]


def test_places_of_files_whose_names_are_not_known(check, tmp_path):
    with served(Site(tmp_path)) as site:
        lines, problems = check(era_files=[site, DEAD])
    assert lines[0].endswith(": no small-00001-00000000.era.")
    assert problems == []
    assert check(era_files=[DEAD])[1] == [
        "no_era_files: No place of era_files of Development chain (31337) is readable."
    ]
