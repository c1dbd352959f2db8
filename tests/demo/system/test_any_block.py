"""Run `make demo-any-block` as a new user does."""

import re
from collections import Counter

import pytest

from demo.any_block import GLOAS_BLOCK, OLD_BLOCK
from tests.demo.commands import demo, processes_with, run
from tests.specifications import with_specifications

pytestmark = [
    pytest.mark.long,
    with_specifications,
]
STEPS = {"INITIAL_STATE": 1, "BLOCKHASH_AVAILABLE": 1, "HEADER_ACCUMULATED": 2, "ACCOUNT_ACCUMULATED": 2}


@pytest.mark.release
def test_demo_any_block_proves_old_blocks_from_both_sides_of_a_fork(tmp_path):
    done = run([*demo("demo.any_block", tmp_path / "demo"), "--once"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert Counter(re.findall(r"chain 31338  (\w+) +COMPLETED", done.stdout)) == STEPS
    assert re.findall(r"Chain 31338, block (\d+), as", done.stdout) == [str(OLD_BLOCK), str(GLOAS_BLOCK)]
    assert done.stdout.count("equal to eth_getBalance on chain 31338 at that block") == 2
    assert not processes_with(str(tmp_path))
