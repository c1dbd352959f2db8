"""A part of each campaign of `make fuzz`. Nothing diverges, each kind is tried, and planted faults are found."""

import re
import subprocess
import sys
from collections import Counter

import pytest

import chains.header
from campaigns.fuzzing import __main__ as command
from campaigns.fuzzing import boundaries, headers, jumps, mutated, receipts, steps, transactions
from campaigns.fuzzing.coverage import OPERATIONS, sentences
from campaigns.fuzzing.mutated import compile_with
from campaigns.fuzzing.tally import Divergence, Tally
from contracts import code_digest
from tests.contracts import decoder
from tests.contracts.decoder import AccountFacts

HARNESS = "test/StepHarness.sol"


@pytest.fixture(scope="module")
def tallies(chain) -> dict[str, Tally]:
    return {
        "steps": steps.run(chain, 1, 20_000),
        "boundaries": boundaries.run(chain, 1, 5_000),
        "transactions": transactions.run(chain, 1, 2_000),
        "headers": headers.run(chain, 2, 5_000),
        "jumps": jumps.run(chain, 1, 4_000),
        "receipts": receipts.run(chain, 1, 5_000),
    }


# --- Coverage ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_each_operation_is_taken_in_each_of_its_forms(tallies):
    accepted = tallies["steps"].accepted
    forms = {f"{operation:02x}" for operation in OPERATIONS}
    assert {form for form in accepted if len(form) == 2} == forms
    forms |= {"00 again", "node child", "same empty place", "same leaf", "same extension"}
    assert {form: accepted[form] for form in forms if accepted[form] < 10} == {}


@pytest.mark.long
def test_whole_proofs_of_each_kind_are_taken(tallies):
    accepted = tallies["transactions"].accepted
    kinds = ["block by number", "1 headers", "2 headers", "3 headers", "header alone", "hash of the parent"]
    kinds += ["fields of the header", "account", "absent account", "slot", "zero slot", "block hash"]
    assert {kind: accepted[kind] for kind in kinds if accepted[kind] < 20} == {}
    accepted = tallies["headers"].accepted
    assert {kind: accepted[kind] for kind in ("header alone", "timestamp") if accepted[kind] < 100} == {}
    assert {index for index in range(21) if accepted[f"field {index}"] < 5} == {3, 8}
    accepted = tallies["jumps"].accepted
    assert {kind: accepted[kind] for kind in ("hash", "header") if accepted[kind] < 200} == {}


@pytest.mark.long
def test_everything_is_tried_that_the_model_refuses(tallies):
    refused: Counter[str] = sum((tally.refused for tally in tallies.values()), Counter())
    known = sentences(decoder, "InvalidPacked") | sentences(chains.header, "InvalidHeader", "read_|_read_")
    assert len(known) > 50
    assert {pattern for pattern in known if not any(re.fullmatch(pattern, each) for each in refused)} == set()


def test_what_a_campaign_tries_depends_on_its_seed_alone(chain):
    for run, count in ((steps.run, 300), (boundaries.run, 300), (transactions.run, 50), (headers.run, 50)):
        assert run(chain, 7, count) == run(chain, 7, count) != run(chain, 8, count)


# --- Planted faults ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "check", "without"),
    [
        # Without this comparison, a branch could take subtrees below the open stack.
        pytest.param("SubtreeStack", "or(lt(lowest, bottom), ", "or(0, ", id="the stack's bottom"),
        pytest.param("SubtreeStack", "size_ > 31 || depth_ > MAX_DEPTH", "size_ > 31", id="the greatest depth"),
        pytest.param("PackedTrie", "if (child.reach() != 0) revert InvalidProof();", "", id="extensions to branches"),
        pytest.param("PackedTrie", "if (node.depth() != 0) revert InvalidProof();", "", id="the root's depth"),
        pytest.param("BranchWriter", "if lt(at, next) { refuse() }", "", id="the order of children"),
        pytest.param("NodeWriter", "ref >> rest << rest", "ref", id="what earlier nodes have left"),
    ],
)
def test_a_check_that_is_taken_out_is_missed_within_seconds(chain, source, check, without):
    contract = compile_with(HARNESS, f"src/{source}.sol", check, without)
    with pytest.raises(Divergence, match=r"steps\.run, seed 1, count 50000, trial \d+.* was sent 0x"):
        steps.run(chain, 1, 50_000, artifact=contract)


@pytest.mark.parametrize("check", ["_checkHash(nextNumber, keccak256(next));", "_checkHash(blockNumber, headerHash);"])
def test_a_header_whose_hash_is_not_checked_is_missed(chain, check):
    registry = "src/FactsRegistry.sol"
    contract = compile_with(registry, registry, check, "{}")
    with pytest.raises(Divergence, match=r"the contract takes it\. headers\.run, seed 1, count 4000, call \d+: 0x"):
        headers.run(chain, 1, 4_000, artifact=contract)


def test_a_comment_makes_no_other_code_and_a_string_that_looks_like_one_does():
    def digest(text: str) -> str:
        return mutated._digest("A.sol", {"A.sol": text})

    assert digest("a; // It's so.\nb;") == digest("a; /* c; */ b;") != digest("a; b; c;")
    assert digest('a("//1");') != digest('a("//2");')


def test_transactions_find_a_model_that_reads_another_number(chain, monkeypatch):
    monkeypatch.setattr(decoder, "AccountFacts", lambda **each: AccountFacts(**{**each, "nonce": each["nonce"] + 1}))
    with pytest.raises(Divergence, match=r"takes what py-trie denies\. transactions\.run, seed 1, count 5000, transa"):
        transactions.run(chain, 1, 5_000)


def test_headers_find_a_model_that_takes_more(chain, monkeypatch):
    monkeypatch.setattr(decoder, "IMPLIED_HEADER_FIELDS", frozenset())
    with pytest.raises(Divergence, match=r"the contract refuses it. headers\.run, seed 1, count 2000, call \d+: 0x"):
        headers.run(chain, 1, 2_000)


def test_the_judge_of_headers_takes_no_string_that_is_cut():
    assert headers._items(b"\xf9\x00\x04\x83abc", 1) == [b"abc"]
    with pytest.raises(headers._Malformed, match="This is cut"):
        headers._items(b"\xf9\x00\x03\x83ab", 1)


# --- The command ------------------------------------------------------------------------------------------------------


def test_the_command_tells_how_to_see_a_divergence_again(capsys, monkeypatch):
    def diverge(*_: object) -> Tally:
        raise Divergence("Contract and model differ.")

    monkeypatch.setattr(command, "BY_NAME", {"steps": command.Campaign("steps", diverge, 100, 100_000)})
    result = command.work(command.Job("steps", 77, 9))
    totals = {"steps": command.Totals()}
    totals["steps"].add(result)
    monkeypatch.setattr(command, "work_on", lambda *_: totals)
    monkeypatch.setattr(sys, "argv", ["fuzzing"])
    assert command.main() == 1
    output = capsys.readouterr().out
    assert "Contract and model differ.\nAgain: make fuzz AGAIN=steps/77/9\n" in output
    assert "steps: 0, 0 a second in each process, 1 divergences" in output


def test_the_command_runs_campaigns_in_processes():
    result = subprocess.run(
        [sys.executable, "-m", "campaigns.fuzzing", "AGAIN=headers/5/40"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert re.match(
        r"headers: 40, \d+ a second in each process, 0 divergences\n  accepted: .*header alone: \d+",
        result.stdout,
        re.DOTALL,
    )
    assert result.stdout.endswith(f"\nThe code's digest: {code_digest()}\n")
