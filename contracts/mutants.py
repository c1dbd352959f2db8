"""Faults that the proofs must notice: for each property at least one change of the contracts that makes it false.

`make prove` makes each of these changes, and expects halmos to find a counterexample. Else a property that holds
whatever the contracts do would look proven.
"""

from dataclasses import dataclass

FACTS = "src/Facts.sol"
ATTESTED = "src/AttestedBlockHashSource.sol"


@dataclass(frozen=True)
class Mutant:
    """One change of one source, `before` being there exactly once, and the property that it falsifies."""

    check: str
    source: str
    before: str
    after: str


MUTANTS = (
    # --- Facts --------------------------------------------------------------------------------------------------------
    # A nonce is cut short.
    Mutant(
        "FactsProofs.check_storing_an_account",
        FACTS,
        "uint256(uint64(summary >> NONCE_SHIFT))",
        "uint256(uint56(summary >> NONCE_SHIFT))",
    ),
    # A balance that doesn't fit beside a nonce spills into it.
    Mutant("FactsProofs.check_storing_an_account", FACTS, "balance <= type(uint184).max", "balance <= 1 << 184"),
    # What is stored is stored again.
    Mutant(
        "FactsProofs.check_storing_an_account",
        FACTS,
        "fields & CODE_HASH != 0 && facts.codeHash == 0",
        "fields & CODE_HASH != 0",
    ),
    # An account that exists becomes absent.
    Mutant(
        "FactsProofs.check_storing_an_absent_account",
        FACTS,
        "        if (facts.summary == 0) {\n            facts.summary = ABSENT",
        "        {\n            facts.summary = ABSENT",
    ),
    Mutant(
        "FactsProofs.check_storing_an_absent_account",
        FACTS,
        "value = PackedTrie.EMPTY_TRIE_ROOT",
        "value = bytes32(0)",
    ),
    # A zero slot proves its neighbour zero.
    Mutant("FactsProofs.check_storing_a_slot", FACTS, "1 << (slot & 0xff)", "1 << (slot & 0xfe)"),
    Mutant("FactsProofs.check_storing_a_slot", FACTS, "if (facts.slots[slot] != 0) return;", ""),
    Mutant(
        "FactsProofs.check_storing_a_field_of_a_header",
        FACTS,
        "if (facts.fields[field] != 0) return false;",
        "",
    ),
    # One zero field takes the place of the others.
    Mutant("FactsProofs.check_storing_a_field_of_a_header", FACTS, "zeroFields | 1 << field", "1 << field"),
    Mutant(
        "FactsProofs.check_storing_the_block_at_a_time",
        FACTS,
        "if (_blocksAtTimestamps[timestamp] != 0) return;",
        "",
    ),
    # The first block of all isn't told from none.
    Mutant("FactsProofs.check_storing_the_block_at_a_time", FACTS, "TIMESTAMP_PROVEN | blockNumber", "blockNumber"),
    Mutant(
        "FactsProofs.check_storing_a_state_root",
        FACTS,
        "stateRoot[blockNumber] = root;",
        "stateRoot[uint64(blockNumber)] = root;",
    ),
    Mutant(
        "FactsProofs.check_storing_the_hash_of_a_block",
        FACTS,
        "_blockHashes[blockHash] = true",
        "_blockHashes[blockHash >> 1 << 1] = true",
    ),
    # --- Attesters ----------------------------------------------------------------------------------------------------
    Mutant(
        "AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",
        ATTESTED,
        "count < threshold",
        "count + 1 < threshold",
    ),
    # An attester may sign twice.
    Mutant(
        "AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",
        ATTESTED,
        "signer <= previous",
        "signer < previous",
    ),
    # Anyone may sign.
    Mutant(
        "AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",
        ATTESTED,
        "if (!isAttester[signer]) revert NotAnAttester(signer);",
        "",
    ),
    # The second valid signature passes too.
    Mutant(
        "AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",
        ATTESTED,
        "if (s <= MAX_S) signer",
        "signer",
    ),
    # The last signature isn't looked at.
    Mutant(
        "AttestedBlockHashSourceProofs.check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed",
        ATTESTED,
        "place < count;",
        "place + 1 < count;",
    ),
    # Signatures of one change are good for another.
    Mutant(
        "AttestedBlockHashSourceProofs.check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed",
        ATTESTED,
        "threshold_, nonce)), signatures);",
        "threshold_, uint256(0))), signatures);",
    ),
    # Who was an attester stays one.
    Mutant(
        "AttestedBlockHashSourceProofs.check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed",
        ATTESTED,
        "isAttester[_attesters[place]] = false;",
        "",
    ),
    Mutant(
        "AttestedBlockHashSourceProofs.check_the_first_attesters_are_those_given",
        ATTESTED,
        "threshold_ > attesters_.length",
        "threshold_ > attesters_.length + 1",
    ),
    Mutant(
        "AttestedBlockHashSourceProofs.check_the_first_attesters_are_those_given",
        ATTESTED,
        "attester <= previous",
        "attester < previous",
    ),
    Mutant(
        "AttestedBlockHashSourceProofs.check_no_call_changes_a_known_hash",
        ATTESTED,
        "if (known != 0) revert Conflict(blockNumber);",
        "",
    ),
)
