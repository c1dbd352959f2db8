"""`make demo-cluster` as a new user runs it, with fewer batches."""

import re
from unittest import mock

import pytest

from demo import client, cluster
from tests.demo.commands import demo, processes_with, run

BATCHES = 16
SECONDS = 240


@pytest.fixture
def command(tmp_path) -> list[str]:
    return [*demo("demo.cluster", tmp_path / "demo"), "--once", "--batches", str(BATCHES)]


def test_with_a_worker_killed_every_value_is_right_and_nothing_is_paid_twice(command, tmp_path):
    done = run(command, SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"kill -9 of worker 2, with \d+ batches under way", done.stdout)
    assert f"{BATCHES} of {BATCHES} DONE" in done.stdout
    assert f"{BATCHES} read, {BATCHES} equal to eth_getBalance" in done.stdout
    assert f"{2 * BATCHES} of {BATCHES} headers and {BATCHES} accounts" in done.stdout
    sent, named = re.findall(r"(\d+) sent by the signer, (\d+) named", done.stdout)[0]
    assert sent == named
    assert "WRONG" not in done.stdout
    assert not processes_with(str(tmp_path))


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [({}, ""), ({"word": 8}, "values"), ({"named": 1}, "transactions"), ({"events": 3}, "proofs")],
    ids=["all is right", "a value", "a transaction that proved nothing", "a proof"],
)
def test_it_says_what_is_wrong_and_fails(monkeypatch, capsys, changed, wrong):
    found = {"word": 7, "named": 2, "events": 2} | changed
    answers = {"eth_getBalance": "0x7", "eth_getLogs": ["a log"] * found["events"]}
    monkeypatch.setattr(client, "account_field", lambda *_: found["word"].to_bytes(32))
    monkeypatch.setattr(client, "rpc", lambda _, method, *__: answers[method])
    is_right = cluster.is_proven_once(mock.Mock(), "0x", [1], sent=2, named=found["named"])
    assert is_right == (not wrong)
    assert re.findall(r"^  (\w+) .*WRONG$", capsys.readouterr().out, re.MULTILINE) == [wrong] * bool(wrong)


def test_what_is_not_done_in_time_is_said(monkeypatch):
    monkeypatch.setattr(client, "status", lambda *_: "IN_PROGRESS")
    demo = mock.Mock(**{"options.done_seconds": 0})
    with pytest.raises(client.ClientError, match=r"^Only 0 of 1 batches are DONE after 0 s\.$"):
        cluster.wait_until_done(demo, {"an id": "a key"}, 1)
