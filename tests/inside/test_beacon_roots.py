"""How records of beacon roots are searched for and planned with."""

from collections.abc import Sequence

import pytest

from chains.rpc import RpcClient
from proving.connections import open_connection
from proving.paths import planning
from proving.sources import beacon_roots
from queries.models import BatchStatus, Block
from tests.proving.chain_state import balance_at
from tests.proving.sources import HERE, THERE, balance_proven, of_chains
from tests.proving.test_beacon_roots import made, roots, service, there  # noqa: F401  # fixtures
from tests.service import CHARLIE, submit, work_until_done

pytestmark = pytest.mark.django_db


def test_a_record_comes_before_a_hop_which_is_dearer(service, roots, key, monkeypatch):  # noqa: F811
    for number in (41, 45):
        roots.derive(number)
    assert work_until_done(submit(key, of_chains(there=[44])), service.here).status == BatchStatus.DONE
    connection = open_connection(HERE, THERE)
    # As if the state of block 44 knew the hash of block 40.
    monkeypatch.setattr(planning, "_hashes", lambda _, wanted: [1] * len(wanted))
    header = connection.source_rpc.known_header(40)
    plan = planning.survey(connection, header, extend_lease=lambda: None, may_jump=False)
    assert isinstance(plan, planning.Plan)
    assert (plan.origin, list(plan.hops), plan.walk) == (40, [], 0)
    # One whose root isn't held is a hop away.
    header = connection.source_rpc.known_header(30)
    plan = planning.survey(connection, header, extend_lease=lambda: None, may_jump=False)
    assert isinstance(plan, planning.Plan)
    assert (plan.origin, list(plan.hops)) == (44, [30])


def test_of_many_moments_some_are_asked_about(service, roots, there, key, monkeypatch):  # noqa: F811
    roots.derive(31, blocks=20)
    asked: list[int] = []
    held = beacon_roots._held

    def counting(rpc: RpcClient, times: Sequence[int]) -> list[bytes]:
        asked.append(len(times))
        return held(rpc, times)

    monkeypatch.setattr(beacon_roots, "_held", counting)
    monkeypatch.setattr(beacon_roots, "_MOMENTS", 4)
    assert work_until_done(submit(key, of_chains(there=[30])), service.here).status == BatchStatus.DONE
    assert max(asked) == 5
    assert balance_proven(service.here, 30) == balance_at(there, CHARLIE, 30)
    assert Block.objects.get(number=30).path_length == 0
