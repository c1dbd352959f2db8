"""A mutant that is chosen by a balance answers as the mutant that is compiled alone."""

import pytest
from eth_abi.abi import encode

from campaigns.contract_mutants.generate import generate, syntax_trees
from campaigns.contract_mutants.replay import reaching
from campaigns.contract_mutants.schemata import CHEAP_SETTINGS, SWITCH, compile_schemata
from contracts.build import run_compiler
from devnet.devchain import ACCOUNTS, DevChain

PATH = "src/Sample.sol"
# It has an example of each form that a choice has.
SAMPLE = """\
pragma solidity ^0.8.28;

contract Sample {
    uint256 private constant LARGEST = 7;

    function answer(uint256 a, uint256 b) external pure returns (uint256 result) {
        uint256 limit = a;
        if (limit > LARGEST || b == 3 && a != 2) return 1 << 8;
        while (limit < 5) {
            limit += b & 0x0f;
            if (b == 0) break;
        }
        assembly ("memory-safe") {
            if gt(b, 4) { mstore(0, shr(1, b)) }
            if lt(mload(0), 9) { result := add(mload(0), limit) }
        }
        if (result == 11) revert();
    }
}
"""
INPUTS = [(a, b) for a in range(9) for b in range(7)]
SELECTOR = bytes.fromhex("446cca68")


def answers(chain: DevChain, code: str, number: int) -> list[tuple[str, str]]:
    """Return whether the code accepts each input, and its answer."""
    at = "0x" + "5a" * 20
    calls = [
        {"from": ACCOUNTS[0][0], "to": at, "input": "0x" + (SELECTOR + encode(["uint256"] * 2, each)).hex()}
        for each in INPUTS
    ]
    overrides = {at: {"code": code}, SWITCH: {"balance": hex(number)}}
    block = {"stateOverrides": overrides, "calls": [{**call, "gas": "0x30d40"} for call in calls]}
    [simulated] = chain.rpc("eth_simulateV1", {"blockStateCalls": [block], "validation": False}, "latest")
    return [(call["status"], call["returnData"]) for call in simulated["calls"]]


@pytest.mark.long
def test_a_chosen_mutant_answers_as_one_that_is_compiled_alone(chain: DevChain) -> None:
    sources = {PATH: SAMPLE}
    trees = syntax_trees(sources)
    mutants = [mutant for mutant in generate(sources, trees) if mutant.kind != "constant"]
    [(schema, code)] = compile_schemata(sources, trees, mutants, [PATH])
    whole = code["Sample"]["deployedBytecode"]

    alone = run_compiler(
        {f"{number}.sol": text for number, text in texts(schema.mutants).items()},
        {"*": {"*": ["evm.deployedBytecode.object"]}},
        settings=CHEAP_SETTINGS,
    )["contracts"]

    assert set(schema.mutants.values()) == set(mutants)
    for number in texts(schema.mutants):
        object_ = alone[f"{number}.sol"]["Sample"]["evm"]["deployedBytecode"]["object"]
        assert answers(chain, whole, number) == answers(chain, f"0x{object_}", 0), schema.mutants.get(number)


@pytest.mark.long
def test_calls_that_reach_no_mutant_are_left_out(chain: DevChain) -> None:
    # The code reads the balance of the address if the call has a byte.
    [with_choices, without] = ["0x" + "5b" * 20, "0x" + "5c" * 20]
    chain.rpc("anvil_setCode", with_choices, f"0x36600557005b73{SWITCH[2:]}31")
    calls = [
        {"from": ACCOUNTS[0][0], "to": to, "input": data} for to in (with_choices, without) for data in ("0x", "0x01")
    ]
    assert reaching(chain, calls) == [calls[1]]


def texts(mutants) -> dict[int, str]:
    """Return the original by 0, and the source of each mutant by its number."""
    return {0: SAMPLE} | {number: mutant.apply(SAMPLE) for number, mutant in mutants.items()}
