"""Run `make demo-cluster` as a new user does, with fewer batches."""

import re

import pytest

from tests.demo.commands import demo, processes_with, run

pytestmark = pytest.mark.long

BATCHES = 16


@pytest.fixture
def command(tmp_path) -> list[str]:
    return [*demo("demo.cluster", tmp_path / "demo"), "--once", "--batches", str(BATCHES)]


@pytest.mark.release
def test_with_a_worker_killed_every_value_is_right_and_nothing_is_paid_twice(command, tmp_path):
    done = run(command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"kill -9 of worker 2, with \d+ batches under way", done.stdout)
    assert f"{BATCHES} of {BATCHES} DONE" in done.stdout
    assert f"{BATCHES} read, {BATCHES} equal to eth_getBalance" in done.stdout
    assert f"{2 * BATCHES} of {BATCHES} headers and {BATCHES} accounts" in done.stdout
    sent, named = re.findall(r"(\d+) sent by the signer, (\d+) named", done.stdout)[0]
    assert sent == named
    assert "WRONG" not in done.stdout
    assert not processes_with(str(tmp_path))
