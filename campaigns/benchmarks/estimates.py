"""Accuracy of estimates: the expected gas and its upper bound compared with the spent gas.

Proofs are generated in mainnet's shape, or recorded if there are recordings. Each is measured in one transaction, as in
`benchmarks.gas`. Like admission, the estimate reads only a few of the proofs.
"""

from collections.abc import Iterator

from eth_utils.address import to_checksum_address

from campaigns.benchmarks.gas import Case, Lab, generated, generated_cases, recorded_cases
from chains.nodes.questions import ProofRequest, VerifiedAccountProof, VerifiedSlotProof
from chains.prices import OSAKA
from chains.tries.header import Header
from chains.tries.trie import verify_account, verify_slot
from proving.facts import AccountFact, Fact, SlotFact
from proving.packing import gas
from proving.packing.gas import Amount, Paths, Sample, UnprovenBlock
from queries.columns import AccountField
from tests.proving.estimated_batches import Result

_LARGE_CONTRACT = (16, 16, 16, 16, 16, 16, 9, 2)
# Depth of a key that an attacker found by computing 2**44 hashes.
_CHOSEN_DEEP = (16,) * 9 + (2,)


HEAD = f"{'case':<58} {'expected':>11} {'spent':>11} {'':>7} {'at most':>11}"


def proof_cases() -> Iterator[Case]:
    """Yield cases of accounts, some with slots, each in one transaction."""
    yield from (case for case in recorded_cases() if case.accounts)
    yield from (case for case in generated_cases() if case.accounts)
    for count in (2, 5, 40):
        yield generated(f"{count} mainnet-shaped accounts", count)
    for slots in (1, 24):
        for levels in ((16, 16, 9, 2), _LARGE_CONTRACT, _CHOSEN_DEEP):
            name = f"{slots} slots of a contract, {len(levels) + 1} nodes to each"
            yield generated(name, 1, slots=slots, slot_levels=levels)


def of_proof(lab: Lab, case: Case) -> Result:
    result, likely = lab.run(case), estimated(case)
    return Result(case.name, likely.expected, likely.bound, result.tx * result.heads)


def estimated(case: Case) -> Amount:
    """Return admission's estimate, from only a few of the proofs."""
    header = Header.decode(case.header)
    facts: list[Fact] = []
    for account in case.accounts:
        address = to_checksum_address(account.address)
        facts += [AccountFact(address, AccountField.BALANCE)] if account.fields else []
        facts += [SlotFact(address, f"0x{slot:064x}") for slot in account.slots]
    sample = Sample.of(_served(case, gas.sampled(header, facts)))
    missing = [UnprovenBlock(case.number, facts, is_known=bool(case.before), header=header)]
    return gas.estimate(missing, sample, Paths(), OSAKA).gas


def _served(case: Case, request: ProofRequest) -> VerifiedAccountProof:
    (proven,) = (account for account in case.accounts if to_checksum_address(account.address) == request.address)
    account = verify_account(request.state_root, request.address, proven.nodes)
    slots = (
        VerifiedSlotProof(slot, verify_slot(account.storage_root, slot, proven.slots[slot]), tuple(proven.slots[slot]))
        for slot in request.slots
    )
    return VerifiedAccountProof(request.address, account, tuple(proven.nodes), tuple(slots))
