"""Run `make demo-cross-chain` as a new user does."""

import html
import re

import pytest
import requests

from tests.demo.commands import demo, processes_with, run, serving

pytestmark = pytest.mark.long

STEPS = ["INITIAL_STATE", "BLOCKHASH_AVAILABLE", "HEADER_ACCUMULATED", "ACCOUNT_ACCUMULATED"]


@pytest.fixture
def command(tmp_path) -> list[str]:
    return demo("demo.cross_chain", tmp_path / "demo")


def test_demo_cross_chain_proves_a_balance_on_each_chain_while_one_attester_is_down(command, tmp_path):
    done = run([*command, "--once"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"Attester (\d), \S+, is down", done.stdout) == ["3"]
    for chain in (31337, 31338):
        assert re.findall(rf"chain {chain}  (\w+) +COMPLETED", done.stdout) == STEPS
        assert f"equal to eth_getBalance on chain {chain} at that block" in done.stdout
    own, other = (int(balance) for balance in re.findall(r"decimal +(\d+) wei", done.stdout))
    assert own != other
    own_registry, other_registry = re.findall(r"BALANCE\) on (0x\w{40})", done.stdout)
    assert own_registry != other_registry
    # Workers also ask attesters between batches, so attester 3 may have been asked while it was running.
    assert done.stdout.index("Attester 3, ") < done.stdout.index("Asking for the balance")
    assert "Shutting down" in (tmp_path / "demo" / "attester-3" / "attester.log").read_text()
    assert not processes_with(str(tmp_path))


def unreachable(output: str) -> list[str]:
    """Return the words about the attesters that the demo has stopped."""
    hosts = re.findall(r"Attester \d, http://(\S+), is down", output)
    return [f"{host} can't be reached." for host in hosts]


@pytest.mark.release
def test_with_too_few_attesters_it_serves_and_the_page_names_those_that_are_down(command, tmp_path):
    with serving([*command, "--down", "2"]) as output:
        sentences = unreachable(output)
        assert len(sentences) == 2
        (url,) = re.findall(r"Explorer +(\S+)", output)
        page = html.unescape(requests.get(url, timeout=30).text)
        assert "1 of 2 required attesters has signed" in page
        for sentence in sentences:
            assert sentence in output
            assert sentence in page
        assert f"BASE_URL={url.partition('/explorer')[0]}\n" in (tmp_path / "demo" / "env").read_text()
    assert not processes_with(str(tmp_path))


@pytest.mark.release
def test_with_too_few_attesters_once_succeeds_as_soon_as_the_batch_waits_for_them(command):
    done = run([*command, "--down", "3", "--once"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 of 2 required attesters have signed" in done.stdout
    assert [sentence in done.stdout for sentence in unreachable(done.stdout)] == [True] * 3
    assert "chain 31338  ACCOUNT_ACCUMULATED" not in done.stdout


@pytest.mark.parametrize("down", ["4", "-1", "x", "1 2"])
def test_another_number_of_attesters_is_refused_in_a_sentence(command, tmp_path, down):
    done = run([*command, f"--down={down}"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"DOWN is '{down}', and must be 0 to 3: the number of attesters that are down.\n"
    assert not (tmp_path / "demo").exists()
