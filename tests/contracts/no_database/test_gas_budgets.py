"""Gas budgets of whole transactions by the present rules, measured like `make bench-gas`."""

import re
from collections.abc import Iterator

import pytest

from campaigns.benchmarks.gas import (
    PUBLISHED_MESSAGES,
    Lab,
    a_withdrawal,
    gas_over,
    generated,
    generated_cases,
    jump_cases,
    measure_branches,
    measure_messages,
    measure_package,
    measure_reads,
    measure_sources,
    measure_votes,
    recorded,
)
from chains.prices import OSAKA
from devnet.devchain import PROJECT
from tests.contracts import tries
from tests.fixtures_folder import fixture_names, load_fixture, needs_fixtures

MAINNET_BLOCK = 17_463_226
MAINNET = fixture_names(f"mainnet_{MAINNET_BLOCK}_*.json")

# Gas of a transaction with its header for each of its accounts.
ONE_ACCOUNT, FOUR_ACCOUNTS, SIXTEEN_ACCOUNTS, THIRTY_TWO_ACCOUNTS = 176_000, 120_000, 107_000, 101_000
# 10 % above the gas in the first format.
FOUR_SLOTS = 272_629 * 11 // 10
# Gas of jumps to older blocks. A hop by EIP-2935 uses 211,220 for a hash, and 241,950 with the header.
JUMPS = {
    "jump since Capella: hash": 126_000,
    "jump since Capella: header, no hash kept": 140_000,
    "jump by block roots: hash": 108_000,
    "jump by block roots: header, no hash kept": 122_000,
    "jump Merge to Capella: hash": 90_000,
    "jump Merge to Capella: header, no hash kept": 103_000,
    "jump before the Merge: hash": 80_000,
    "jump before the Merge: header, no hash kept": 87_000,
}
# Gas of a call's execution, without its transaction.
# Each function of the registry with a lower selector takes 22 of it.
ACCOUNT_FIELD = 2_930
SHOWN_SLOT = 30_000
SHOWN_WITHDRAWAL = 21_500
MESSAGE, COPY_OF_A_PROVER = 60_000, 65_000
# In the order of `measure_package`.
PACKAGE = (22_000, 28_000, 6_000, 11_500, 31_000, 36_500, 6_500, 9_000, 28_000, 22_000)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(MAINNET_BLOCK) as lab:
        yield lab


@needs_fixtures
@pytest.mark.parametrize("name", MAINNET)
def test_a_mainnet_account_costs_what_its_bytes_cost_alone(lab, name):
    result = lab.run(recorded(name, [load_fixture(name)]))
    assert result.tx == result.floor <= ONE_ACCOUNT


def test_a_generated_account_costs_what_its_bytes_cost_alone(lab):
    result = lab.run(generated("one account", 1))
    assert result.tx == result.floor <= ONE_ACCOUNT


@needs_fixtures
def test_four_mainnet_accounts_share_a_transaction(lab):
    result = lab.run(recorded("four accounts", [load_fixture(name) for name in MAINNET]))
    assert result.heads == 4
    assert result.tx <= FOUR_ACCOUNTS


@pytest.mark.parametrize(("count", "budget"), [(16, SIXTEEN_ACCOUNTS), (32, THIRTY_TWO_ACCOUNTS)])
def test_many_accounts_share_a_transaction(lab, count, budget):
    assert lab.run(generated("accounts", count)).tx <= budget


def test_four_slots_come_with_their_account(lab):
    cases = {case.name: case for case in generated_cases()}
    assert lab.run(cases["contract account and four slots, 3 nodes"]).tx <= FOUR_SLOTS


def test_a_fact_is_read_for_little_more_than_a_cold_read():
    reads = {result.case: result.exec for result in measure_reads()}
    assert reads["read accountField"] <= ACCOUNT_FIELD


def test_a_slot_of_seven_nodes_is_shown_for_little_beside_its_calldata(lab):
    case = generated("", 1, slots=1, slot_levels=(16, 16, 16, 16, 9, 2))
    [(slot, proof)] = case.accounts[0].slots.items()
    assert len(proof) == 7
    result = lab.show(case, "a slot shown", "slotByProof", slot.to_bytes(32), tries.encode(proof))
    # The look at the root is in it.
    assert result.exec <= SHOWN_SLOT
    assert result.tx == result.floor


def test_showing_one_of_sixteen_withdrawals_keeps_its_gas_budget(lab):
    case, arguments = a_withdrawal()
    assert lab.show(case, "a withdrawal shown", "withdrawalByProof", *arguments).exec <= SHOWN_WITHDRAWAL


def test_a_message_of_another_chain_costs_what_its_bytes_cost_alone():
    results = {result.case: result for result in measure_messages()}
    for kind in ("state root", "block hash"):
        message = results[f"a message, by a {kind}"]
        assert message.exec <= MESSAGE
        assert message.tx == message.floor < min(PUBLISHED_MESSAGES.values()) / 5
    assert results["a copy of a prover"].exec - OSAKA.new_word <= COPY_OF_A_PROVER
    assert results["a message over two hops"].exec <= 2 * MESSAGE


@pytest.mark.parametrize("name", JUMPS)
def test_a_jump_costs_about_half_a_hop(lab, name):
    cases = {case.name: case for case in jump_cases()}
    assert lab.run(cases[name]).tx <= JUMPS[name]


def test_branches_of_gloas_keep_their_gas_budgets():
    assert [name for name, _, gas, most, _ in gas_over(list(measure_branches())) if not 0 < gas <= most] == []


def test_the_page_about_paths_says_what_a_jump_costs(lab):
    page = (PROJECT / "docs/concepts/paths.md").read_text()
    results = [lab.run(case) for case in jump_cases() if case.name.endswith("no hash kept")]
    assert len(results) == 4
    for result in results:
        assert re.search(rf"\| {result.tx:,} \| [\d,]+ \| {result.calldata_bytes:,} \|", page), result.case


def test_the_page_about_sources_says_what_a_block_costs():
    page = (PROJECT / "docs/concepts/block-hash-sources.md").read_text()
    for result in measure_sources():
        assert re.search(rf"\| {result.tx:,}\b", page), result.case


@pytest.mark.long
@needs_fixtures
def test_the_page_about_contracts_says_what_a_vote_costs():
    page = (PROJECT / "docs/using/contracts.md").read_text()
    for result in measure_votes():
        assert f"| {result.tx:,} |" in page, result.case


def test_what_users_compile_in_keeps_its_gas_budget():
    assert [result.case for result, most in zip(measure_package(), PACKAGE, strict=True) if result.exec > most] == []
