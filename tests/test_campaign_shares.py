"""Which share of a campaign a run takes: each case comes in some run, and the same seed takes the same ones."""

import pytest

from tests.campaign_shares import ALL, share

CASES = range(30)


def taken(monkeypatch: pytest.MonkeyPatch, seed: str, name: str = "kills") -> tuple[int, ...]:
    monkeypatch.setenv("CAMPAIGNS", seed)
    return tuple(share(name, CASES, one_in=4))


def test_each_case_is_in_one_of_the_shares(monkeypatch):
    shares = {taken(monkeypatch, f"commit {number}") for number in range(40)}
    assert len(shares) == 4
    assert sorted(case for each in shares for case in each) == list(CASES)


def test_campaigns_of_one_run_begin_at_different_cases(monkeypatch):
    assert len({taken(monkeypatch, "a commit", f"campaign {number}")[0] for number in range(40)}) == 4


def test_all_are_taken_where_that_is_asked_for(monkeypatch):
    assert taken(monkeypatch, ALL) == tuple(CASES)


CAMPAIGN = """
import pytest

@pytest.mark.campaign(one_in=5, always=["17"])
@pytest.mark.parametrize("case", range(20))
def test_it(case): ...

def test_beside(): ...
"""


@pytest.mark.parametrize(("seed", "count"), [("a commit", (5, 6)), (ALL, (21,))])
def test_a_marked_test_is_run_for_a_share_and_for_what_failed_once(pytester, monkeypatch, seed, count):
    monkeypatch.setenv("CAMPAIGNS", seed)
    pytester.makepyfile(CAMPAIGN)
    ran = pytester.inline_run("-p", "tests.campaign_shares", "-p", "no:django")
    names = [report.nodeid.partition("::")[2] for report in ran.getreports("pytest_runtest_logreport")]
    assert {"test_it[17]", "test_beside"} <= {*names}
    assert len({*names}) in count
