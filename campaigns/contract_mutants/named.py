"""Changes that audits made by hand. Two layers of tests must notice each: `make mutants LAYERS=1`.

A change that `generate.py` makes as well is written as it writes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from campaigns.contract_mutants.generate import NAMED, Mutant
from tests.contracts.weakened import Removal


@dataclass(frozen=True)
class Change:
    name: str
    edits: tuple[Removal, ...]
    """All in one source, from top to bottom."""
    properties: tuple[str, ...] = ()
    """Properties in `contracts/proofs`. With the change, halmos must find one of them false."""

    @property
    def source(self) -> str:
        """Return the path below `contracts/`."""
        return f"src/{self.edits[0].source}.sol"


_OWN_CHILD = "xor(shr(bits, mload(add(child, KEY))), or(parent, place))"

CHANGES = (
    # --- Keys that are absent -----------------------------------------------------------------------------------------
    Change(
        "another extension may be anywhere",
        (
            Removal(
                "PackedTrie",
                "_pushExtension(stack, other, depth, reach, input.takeHash(), 0, 0);\n            attach(stack, key);",
                "_pushExtension(stack, other, depth, reach, input.takeHash(), 0, 0);\n            {}",
            ),
        ),
        ("OperationsProofs.check_another_extension",),
    ),
    Change(
        "another slot may be anywhere",
        (
            Removal(
                "StateProof",
                "value);\n                PackedTrie.attach(proof.stack, key);",
                "value);\n                {}",
            ),
        ),
        ("OperationsProofs.check_another_slot",),
    ),
    Change(
        "another account may be anywhere",
        (
            Removal(
                "StateProof",
                "codeHash);\n                PackedTrie.attach(proof.stack, key);",
                "codeHash);\n                {}",
            ),
        ),
    ),
    Change(
        "an extension reaches a nibble too far",
        (
            Removal(
                "PackedTrie",
                "stack.push(ref, size, key, depth, reach, last)",
                "stack.push(ref, size, key, depth, reach + 1, last)",
            ),
        ),
        ("OperationsProofs.check_an_extension",),
    ),
    Change(
        "a full branch reaches a nibble far",
        (
            Removal(
                "PackedTrie", "stack.push(hash, 0, key, depth, 0, 0)", "stack.push(hash, 0, key, depth, depth + 1, 0)"
            ),
        ),
        ("OperationsProofs.check_a_full_branch",),
    ),
    Change(
        "absent keys are compared at even depths only",
        (
            Removal(
                "PackedTrie",
                "if (prefix(difference, node.depth()) != 0 ||",
                "if (node.depth() & 1 == 0 && prefix(difference, node.depth()) != 0 ||",
            ),
        ),
        ("OperationsProofs.check_the_same_place",),
    ),
    Change(
        "the last absent key isn't kept",
        (Removal("PackedTrie", "node.setLast(key);", "{}"),),
        ("OperationsProofs.check_another_slot",),
    ),
    # --- Branches -----------------------------------------------------------------------------------------------------
    Change(
        "a branch's path is compared but for its last nibble",
        (Removal("BranchWriter", f"if {_OWN_CHILD}", f"if and({_OWN_CHILD}, not(0xf0))"),),
        ("OperationsProofs.check_a_branch_takes_its_own_children_only",),
    ),
    Change(
        "of a branch's path only four nibbles are compared",
        (Removal("BranchWriter", f"if {_OWN_CHILD}", f"if and({_OWN_CHILD}, 0xfffff)"),),
        ("OperationsProofs.check_a_branch_takes_its_own_children_only",),
    ),
    Change(
        "a branch's real children aren't counted",
        (Removal("BranchWriter", "if lt(real, 2) ", "if 0 "),),
        ("OperationsProofs.check_a_branch_of_one_is_refused",),
    ),
    Change(
        "the places after a branch's child aren't empty",
        (Removal("BranchWriter", "mstore(add(at, length), EMPTY_STRINGS)", "{}"),),
        ("OperationsProofs.check_a_branch_of_two",),
    ),
    Change(
        "a branch's path is folded to 32 bits before it is compared",
        (
            Removal(
                "BranchWriter",
                f"if {_OWN_CHILD} {{ refuse() }}",
                f"{{ let x := {_OWN_CHILD} x := xor(x, shr(128, x)) x := xor(x, shr(64, x)) x := xor(x, shr(32, x))"
                " if and(x, 0xffffffff) { refuse() } }",
            ),
        ),
    ),
    Change(
        "a branch's children may be in any order at depth 41",
        (
            Removal("BranchWriter", "if lt(form, next)", "if mul(xor(depth, 41), lt(form, next))"),
            Removal("BranchWriter", "if lt(place, next)", "if mul(xor(depth, 41), lt(place, next))"),
        ),
    ),
    Change(
        "a branch may leave subtrees over at depth 41",
        (Removal("BranchWriter", "if lt(child, behind) ", "if mul(xor(depth, 41), lt(child, behind)) "),),
    ),
    # --- Facts --------------------------------------------------------------------------------------------------------
    Change(
        "zero slots are kept by 192 bits of their number",
        (
            Removal("Facts", "facts.zeroSlots[uint256(slot) >> 8]", "facts.zeroSlots[uint192(uint256(slot) >> 8)]"),
            Removal(
                "Facts", "neighbours = facts.zeroSlots[slot >> 8]", "neighbours = facts.zeroSlots[uint192(slot >> 8)]"
            ),
            Removal(
                "Facts", "facts.zeroSlots[slot >> 8] = neighbours", "facts.zeroSlots[uint192(slot >> 8)] = neighbours"
            ),
        ),
        ("FactsProofs.check_storing_a_slot",),
    ),
    Change(
        "a nonce is kept a bit too low",
        (Removal("Facts", "NONCE_SHIFT = 184", "NONCE_SHIFT = 183"),),
        ("FactsProofs.check_storing_an_account",),
    ),
    Change(
        "a time is taken from headers that nobody vouches for",
        (Removal("FactsRegistry", "_checkHash(nextNumber, keccak256(next));", "{}"),),
    ),
    Change(
        "a known hash is kept by 16 of its bytes",
        (
            Removal("Facts", "if (_blockHashes[blockHash]) return;", "if (_blockHashes[bytes16(blockHash)]) return;"),
            Removal("Facts", "_blockHashes[blockHash] = true;", "_blockHashes[bytes16(blockHash)] = true;"),
            Removal("Facts", "return _blockHashes[blockHash];", "return _blockHashes[bytes16(blockHash)];"),
        ),
    ),
    Change(
        "of a header's hash 64 bits are compared",
        (Removal("FactsRegistry", "headerHash == hash ||", "uint64(uint256(headerHash)) == uint64(uint256(hash)) ||"),),
    ),
    Change(
        "a known hash that the source answers makes other headers trusted",
        (
            Removal(
                "FactsRegistry",
                "|| _isBlockHash(headerHash)) return;",
                "|| _isBlockHash(headerHash) || _isBlockHash(hash)) return;",
            ),
        ),
    ),
    Change(
        "a walk goes on to any header whose hash is known",
        (
            Removal(
                "FactsRegistry",
                "if (headerHash != expected ||",
                "if ((headerHash != expected && !_isBlockHash(headerHash)) ||",
            ),
        ),
    ),
    Change(
        "a time is taken from any header whose number is accumulated",
        (
            Removal(
                "FactsRegistry",
                "_checkHash(nextNumber, keccak256(next));",
                "if (stateRoot[nextNumber] == 0) _checkHash(nextNumber, keccak256(next));",
            ),
        ),
    ),
    Change(
        "a time is compared by its lowest 64 bits",
        (Removal("FactsRegistry", "timestamp >= nextTime", "uint64(timestamp) >= nextTime"),),
    ),
    Change(
        "six bits of a mask of header fields don't count for its parity",
        (Removal("FactsRegistry", "_isEven(fields);", "_isEven(fields & 0xc0ffffff);"),),
    ),
    # --- Jumps --------------------------------------------------------------------------------------------------------
    Change(
        "a jump starts at another field of the header",
        (Removal("PackedHeader", "PARENT_BEACON_BLOCK_ROOT = 19", "PARENT_BEACON_BLOCK_ROOT = 20"),),
    ),
    Change(
        "after a jump any header is taken",
        (
            Removal(
                "FactsRegistry",
                "if (headerHash != expected || (op == PARENT && blockNumber + 1 != child)) {",
                "if (op == PARENT && (headerHash != expected || blockNumber + 1 != child)) {",
            ),
        ),
    ),
    Change(
        "after a constant any header is taken",
        (Removal("FactsRegistry", "else if (headerHash != expected) revert", "else if (expected == 0) revert"),),
    ),
    Change(
        "a jump may start at a header that nobody vouches for",
        (Removal("FactsRegistry", "if (expected == 0) _checkHash(blockNumber, headerHash);", "if (expected == 0) {}"),),
    ),
    Change(
        "something may follow a hash alone",
        (
            Removal(
                "FactsRegistry",
                "if (!input.atEnd()) revert InvalidProof();\n        _storeBlockHash(blockHash);",
                "_storeBlockHash(blockHash);",
            ),
        ),
    ),
    *(
        Change(name, (Removal("BeaconHistory", check, by),), (f"BeaconHistoryProofs.check_{claim}",))
        for name, check, by, claim in (
            ("an execution payload is elsewhere in a body", "EXECUTION_PAYLOAD = 9", "EXECUTION_PAYLOAD = 8", "own"),
            ("a block's hash is elsewhere in a payload", "BLOCK_HASH = 12", "BLOCK_HASH = 10", "own"),
            (
                "summaries are elsewhere in a state",
                "HISTORICAL_SUMMARIES = 27",
                "HISTORICAL_SUMMARIES = 26",
                "old_by_anchor",
            ),
            (
                "historical roots are elsewhere in a state",
                "HISTORICAL_ROOTS = 7",
                "HISTORICAL_ROOTS = 6",
                "historical_roots",
            ),
            ("blocks of Deneb are laid out as before", "slot < deneb ? 4 : 5", "slot <= deneb ? 4 : 5", "own"),
            (
                "states of Electra are laid out as before",
                "slot < electra ? 5 : 6",
                "slot <= electra ? 5 : 6",
                "old_by_anchor",
            ),
            ("a fork that is not known is taken", "if (slot >= end)", "if (slot > end)", "own"),
            (
                "an anchor may be from before Capella",
                "if (slot < capella) revert InvalidProof();",
                "{}",
                "old_by_anchor",
            ),
            ("a block may be from before Bellatrix", "if (slot < bellatrix) revert InvalidProof();", "{}", "own"),
            (
                "an empty payload has a hash",
                "// A block before the Merge has an empty payload.\n        if (blockHash == 0) revert InvalidProof();",
                "{}",
                "own",
            ),
            ("an element may be beyond the end", "if (index >= count) revert InvalidProof();", "{}", "old_by_slot"),
            (
                "a period's places are shifted",
                "_climb(input, node, slot, periodDepth)",
                "_climb(input, node, slot + 1, periodDepth)",
                "old_by_slot",
            ),
            (
                "a branch may be longer than what is read",
                "input.cursor != place || root != trusted",
                "root != trusted",
                "a_branch_has_its_size",
            ),
            (
                "a branch may lead to any root",
                "input.cursor != place || root != trusted",
                "input.cursor != place",
                "own",
            ),
            (
                "an epoch before the Merge may have more records",
                "if (size > 1 << RECORDS_DEPTH) size = 1 << RECORDS_DEPTH;",
                "{}",
                "before_merge",
            ),
        )
    ),
    # --- Attesters ----------------------------------------------------------------------------------------------------
    Change(
        "signatures of one change of attesters are good for the next",
        (Removal("AttestedBlockHashSource", "++nonce;", "{}"),),
        ("AttestedBlockHashSourceProofs.check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed",),
    ),
    Change(
        "an attester may sign twice",
        (Removal("AttestedBlockHashSource", "previous = signer;", "{}"),),
        ("AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",),
    ),
    Change(
        "a former attester stays one",
        (Removal("AttestedBlockHashSource", "isAttester[_attesters[place]] = false;", "{}"),),
        ("AttestedBlockHashSourceProofs.check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed",),
    ),
    # --- Arbitrum -----------------------------------------------------------------------------------------------------
    Change(
        "a block counts that the Outbox doesn't hold",
        (Removal("ArbitrumBlocks", "hash != confirmed", "false"),),
        ("ArbitrumBlocksProofs.check_a_hash_is_stored_if_and_only_if_it_is_the_confirmed_one",),
    ),
    Change(
        "of a confirmed hash 64 bits are compared",
        (Removal("ArbitrumBlocks", "hash != confirmed", "uint64(uint256(hash)) != uint64(uint256(confirmed))"),),
        ("ArbitrumBlocksProofs.check_a_hash_is_stored_if_and_only_if_it_is_the_confirmed_one",),
    ),
    Change(
        "a confirmed block takes the place of another of its number",
        (Removal("RecordedBlocks", "known != 0", "false"),),
        ("ArbitrumBlocksProofs.check_a_hash_is_stored_if_and_only_if_it_is_the_confirmed_one",),
    ),
    Change(
        "a send root may have fewer than 32 bytes",
        (Removal("ArbitrumBlocks", "size != 32", "size > 32"),),
        ("ArbitrumBlocksProofs.check_the_send_root_is_the_whole_extra_data",),
    ),
    Change(
        "bytes may follow a header that the Outbox confirms",
        (Removal("RecordedBlocks", "end - start != header.length", "false"),),
        ("ArbitrumBlocksProofs.check_the_send_root_is_the_whole_extra_data",),
    ),
    # --- Dispute games ------------------------------------------------------------------------------------------------
    Change(
        "any claim of any contract counts as an output root",
        (Removal("OpStackGamesBlockHashSource", "valid != bytes32(uint256(1))", "false"),),
        ("OpStackGamesProofs.check_a_block_is_recorded_if_and_only_if_a_valid_claim_is_its_output",),
    ),
    Change(
        "any answer of the AnchorStateRegistry but zero is a yes",
        (Removal("OpStackGamesBlockHashSource", "valid != bytes32(uint256(1))", "valid < bytes32(uint256(1))"),),
        ("OpStackGamesProofs.check_a_block_is_recorded_if_and_only_if_a_valid_claim_is_its_output",),
    ),
    Change(
        "a valid game vouches for any block",
        (Removal("OpStackGamesBlockHashSource", "claim != outputRoot", "false"),),
        ("OpStackGamesProofs.check_a_block_is_recorded_if_and_only_if_a_valid_claim_is_its_output",),
    ),
    Change(
        "of an output root the hash of its block isn't looked at",
        (Removal("OpStackGamesBlockHashSource", "messagePasserStorageRoot, hash)", "messagePasserStorageRoot)"),),
        ("OpStackGamesProofs.check_a_block_is_recorded_if_and_only_if_a_valid_claim_is_its_output",),
    ),
    Change(
        "a contract's answer may have any size",
        (
            Removal(
                "RecordedBlocks",
                "and(eq(returndatasize(), 32), staticcall(gas(), asked, add(data, 32), mload(data), 0, 32))",
                "staticcall(gas(), asked, add(data, 32), mload(data), 0, 32)",
            ),
        ),
        ("OpStackGamesProofs.check_an_answer_is_one_word",),
    ),
    Change(
        "the buffer's answer may have any size",
        (
            Removal(
                "ArbitrumBufferBlockHashSource",
                "and(eq(returndatasize(), 32), staticcall(gas(), asked, 0, 36, 0, 32))",
                "staticcall(gas(), asked, 0, 36, 0, 32)",
            ),
        ),
        ("ArbitrumBufferProofs.check_a_hash_is_the_one_word_that_the_buffer_answers",),
    ),
)


def named(
    sources: Mapping[str, str], generated: Iterable[Mutant], changes: Sequence[Change] = CHANGES
) -> dict[Change, Mutant]:
    """Return the mutant of each change: the generated one, if the generator makes the same.

    Raises ValueError where what is to be changed isn't there once.
    """
    found = {}
    by_source: dict[str, list[Mutant]] = {}
    for mutant in generated:
        by_source.setdefault(mutant.source, []).append(mutant)
    for change in changes:
        mutant = _mutant(change, sources[change.source])
        text = mutant.apply(sources[change.source])
        same = (
            each
            for each in by_source.get(change.source, [])
            if mutant.start <= each.start and each.end <= mutant.end and each.apply(sources[change.source]) == text
        )
        found[change] = next(same, mutant)
    return found


def _mutant(change: Change, text: str) -> Mutant:
    """Return one replacement that begins with the first edit and ends with the last."""
    changed = text
    for edit in change.edits:
        changed = edit.apply(changed)
    start = text.index(change.edits[0].check)
    rest = len(text) - text.index(change.edits[-1].check) - len(change.edits[-1].check)
    original, replacement = text[start : len(text) - rest], changed[start : len(changed) - rest]
    begin = len(text[:start].encode())
    end = begin + len(original.encode())
    line = text.count("\n", 0, start) + 1
    column = start - text.rfind("\n", 0, start)
    return Mutant(change.source, change.name, begin, end, original, replacement, line, column, kind=NAMED)
