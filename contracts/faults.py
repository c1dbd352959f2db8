"""Faults that the proofs must notice: for each property at least one change of the contracts that makes it false.

`make prove` makes each of these changes, and expects halmos to find a counterexample. Otherwise a
property that no change of the contracts makes false would look proven.
"""

from dataclasses import dataclass

FACTS = "src/Facts.sol"
ATTESTED = "src/AttestedBlockHashSource.sol"
ARBITRUM = "src/ArbitrumBlocks.sol"
BEACON = "src/BeaconHistory.sol"
RECORDED = "src/RecordedBlocks.sol"
BUFFER = "src/ArbitrumBufferBlockHashSource.sol"
GAMES = "src/OpStackGamesBlockHashSource.sol"
HEADER = "src/PackedHeader.sol"
STACK = "src/SubtreeStack.sol"
NODE = "src/NodeWriter.sol"
STATE = "src/StateProof.sol"
TRIE = "src/PackedTrie.sol"
BRANCH = "src/BranchWriter.sol"
REGISTRY = "src/FactsRegistry.sol"


@dataclass(frozen=True)
class SourceFault:
    """A change of a source, in which `before` stands exactly once, and the property that fails with it."""

    check: str
    source: str
    before: str
    after: str


FAULTS = (
    # --- Facts --------------------------------------------------------------------------------------------------------
    # A nonce is cut short.
    SourceFault(
        "FactsProofs.check_storing_an_account",
        FACTS,
        "uint256(uint64(summary >> NONCE_SHIFT))",
        "uint256(uint56(summary >> NONCE_SHIFT))",
    ),
    # A nonce and a balance share a bit.
    SourceFault("FactsProofs.check_storing_an_account", FACTS, "NONCE_SHIFT = 184;", "NONCE_SHIFT = 183;"),
    # A balance that doesn't fit beside a nonce spills into it.
    SourceFault("FactsProofs.check_storing_an_account", FACTS, "balance <= type(uint184).max", "balance <= 1 << 184"),
    # A stored value is stored again.
    SourceFault(
        "FactsProofs.check_storing_an_account",
        FACTS,
        "fields & CODE_HASH != 0 && facts.codeHash == 0",
        "fields & CODE_HASH != 0",
    ),
    # An account that exists becomes absent.
    SourceFault(
        "FactsProofs.check_storing_an_absent_account",
        FACTS,
        "        if (facts.summary == 0) {\n            facts.summary = ABSENT",
        "        {\n            facts.summary = ABSENT",
    ),
    SourceFault(
        "FactsProofs.check_storing_an_absent_account",
        FACTS,
        "value = PackedTrie.EMPTY_TRIE_ROOT",
        "value = bytes32(0)",
    ),
    # A zero slot proves its neighbour zero.
    SourceFault("FactsProofs.check_storing_a_slot", FACTS, "1 << (slot & 0xff)", "1 << (slot & 0xfe)"),
    # One of the highest slots, too.
    SourceFault(
        "FactsProofs.check_storing_a_slot",
        FACTS,
        "facts.zeroSlots[slot >> 8] = neighbours | bit;",
        "facts.zeroSlots[uint192(slot >> 8)] = neighbours | bit;",
    ),
    SourceFault("FactsProofs.check_storing_a_slot", FACTS, "if (facts.slots[slot] != 0) return;", ""),
    SourceFault(
        "FactsProofs.check_storing_a_field_of_a_header",
        FACTS,
        "if (facts.fields[field] != 0) return false;",
        "",
    ),
    # One zero field takes the place of the others.
    SourceFault("FactsProofs.check_storing_a_field_of_a_header", FACTS, "zeroFields | 1 << field", "1 << field"),
    SourceFault(
        "FactsProofs.check_storing_the_block_at_a_time",
        FACTS,
        "if (_blocksAtTimestamps[timestamp] != 0) return;",
        "",
    ),
    # The first block of all isn't told from none.
    SourceFault(
        "FactsProofs.check_storing_the_block_at_a_time", FACTS, "TIMESTAMP_PROVEN | blockNumber", "blockNumber"
    ),
    SourceFault(
        "FactsProofs.check_storing_a_state_root",
        FACTS,
        "stateRoot[blockNumber] = root;",
        "stateRoot[uint64(blockNumber)] = root;",
    ),
    SourceFault(
        "FactsProofs.check_storing_the_hash_of_a_block",
        FACTS,
        "_blockHashes[blockHash] = true",
        "_blockHashes[blockHash >> 1 << 1] = true",
    ),
    # --- Attesters ----------------------------------------------------------------------------------------------------
    SourceFault(
        "AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",
        ATTESTED,
        "count < threshold",
        "count + 1 < threshold",
    ),
    # An attester may sign twice.
    SourceFault(
        "AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",
        ATTESTED,
        "signer <= previous",
        "signer < previous",
    ),
    SourceFault(
        "AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",
        ATTESTED,
        "previous = signer;",
        "",
    ),
    # Anyone may sign.
    SourceFault(
        "AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",
        ATTESTED,
        "if (!isAttester[signer]) revert NotAnAttester(signer);",
        "",
    ),
    # The second valid signature passes too.
    SourceFault(
        "AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",
        ATTESTED,
        "if (s <= MAX_S) signer",
        "signer",
    ),
    # The last signature isn't looked at.
    SourceFault(
        "AttestedBlockHashSourceProofs.check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed",
        ATTESTED,
        "place < count;",
        "place + 1 < count;",
    ),
    # Signatures of one change are good for another.
    SourceFault(
        "AttestedBlockHashSourceProofs.check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed",
        ATTESTED,
        "threshold_, nonce)), signatures);",
        "threshold_, uint256(0))), signatures);",
    ),
    # Signatures of a change are valid for the same change later.
    SourceFault(
        "AttestedBlockHashSourceProofs.check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed",
        ATTESTED,
        "++nonce;",
        "",
    ),
    # A former attester stays an attester.
    SourceFault(
        "AttestedBlockHashSourceProofs.check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed",
        ATTESTED,
        "isAttester[_attesters[place]] = false;",
        "",
    ),
    SourceFault(
        "AttestedBlockHashSourceProofs.check_the_first_attesters_are_those_given",
        ATTESTED,
        "threshold_ > attesters_.length",
        "threshold_ > attesters_.length + 1",
    ),
    SourceFault(
        "AttestedBlockHashSourceProofs.check_the_first_attesters_are_those_given",
        ATTESTED,
        "attester <= previous",
        "attester < previous",
    ),
    SourceFault(
        "AttestedBlockHashSourceProofs.check_no_call_changes_a_known_hash",
        ATTESTED,
        "if (known != 0) revert Conflict(blockNumber);",
        "",
    ),
    # --- Arbitrum -----------------------------------------------------------------------------------------------------
    SourceFault(
        "ArbitrumBlocksProofs.check_a_hash_is_stored_if_and_only_if_it_is_the_confirmed_one",
        ARBITRUM,
        "if (hash != confirmed) revert NotConfirmed(blockNumber);",
        "",
    ),
    # A block takes the place of another.
    SourceFault(
        "ArbitrumBlocksProofs.check_a_hash_is_stored_if_and_only_if_it_is_the_confirmed_one",
        RECORDED,
        "if (known != 0) revert Conflict(blockNumber);",
        "",
    ),
    SourceFault(
        "ArbitrumBlocksProofs.check_a_hash_is_stored_if_and_only_if_it_is_the_confirmed_one",
        RECORDED,
        "blockHash[blockNumber] = hash;",
        "blockHash[uint64(blockNumber)] = hash;",
    ),
    # A send root may be shorter.
    SourceFault(
        "ArbitrumBlocksProofs.check_the_send_root_is_the_whole_extra_data", ARBITRUM, "size != 32", "size > 32"
    ),
    # Bytes may follow the header, or be a part of its hash and not of it.
    SourceFault(
        "ArbitrumBlocksProofs.check_the_send_root_is_the_whole_extra_data",
        RECORDED,
        "if (end - start != header.length) revert InvalidHeader();",
        "",
    ),
    # Another field is taken for the extra data.
    SourceFault(
        "ArbitrumBlocksProofs.check_the_send_root_is_the_whole_extra_data",
        ARBITRUM,
        "PackedHeader.skip(cursor, end, 3)",
        "PackedHeader.skip(cursor, end, 4)",
    ),
    # --- Jumps --------------------------------------------------------------------------------------------------------
    # A block's hash is elsewhere in a payload, or the payload elsewhere in a body.
    SourceFault("BeaconHistoryProofs.check_own", BEACON, "BLOCK_HASH = 12;", "BLOCK_HASH = 13;"),
    SourceFault("BeaconHistoryProofs.check_own", BEACON, "EXECUTION_PAYLOAD = 9;", "EXECUTION_PAYLOAD = 8;"),
    # The layout is that of another fork's blocks.
    SourceFault("BeaconHistoryProofs.check_own", BEACON, "slot < deneb ? 4 : 5", "slot <= deneb ? 4 : 5"),
    SourceFault("BeaconHistoryProofs.check_own", BEACON, "if (slot < bellatrix) revert InvalidProof();", ""),
    SourceFault("BeaconHistoryProofs.check_own", BEACON, "if (slot >= end)", "if (slot > end)"),
    # An empty payload has a hash.
    SourceFault(
        "BeaconHistoryProofs.check_own",
        BEACON,
        "// A block before the Merge has an empty payload.\n        if (blockHash == 0) revert InvalidProof();",
        "",
    ),
    # Half of an integer is in another order.
    SourceFault(
        "BeaconHistoryProofs.check_own",
        BEACON,
        "value << 224 | (value >> 32) << 192",
        "(value >> 32) << 224 | value << 192",
    ),
    # Any root will do.
    SourceFault(
        "BeaconHistoryProofs.check_own", BEACON, "input.cursor != place || root != trusted", "input.cursor != place"
    ),
    # A block is shown in another place, another period or the other half of one.
    SourceFault(
        "BeaconHistoryProofs.check_old_by_slot",
        BEACON,
        "_climb(input, node, slot, periodDepth)",
        "_climb(input, node, slot ^ 1, periodDepth)",
    ),
    SourceFault("BeaconHistoryProofs.check_old_by_slot", BEACON, "period - first, input", "period, input"),
    SourceFault(
        "BeaconHistoryProofs.check_old_by_slot",
        BEACON,
        "return _hash(node, input.takeHash());\n    }\n\n    /// @dev From a field",
        "return _hash(input.takeHash(), node);\n    }\n\n    /// @dev From a field",
    ),
    # An element is behind the end.
    SourceFault("BeaconHistoryProofs.check_old_by_slot", BEACON, "if (index >= count)", "if (index > count)"),
    # Summaries are elsewhere in a state.
    SourceFault(
        "BeaconHistoryProofs.check_old_by_anchor", BEACON, "HISTORICAL_SUMMARIES = 27;", "HISTORICAL_SUMMARIES = 26;"
    ),
    SourceFault("BeaconHistoryProofs.check_old_by_anchor", BEACON, "slot < electra ? 5 : 6", "slot <= electra ? 5 : 6"),
    SourceFault("BeaconHistoryProofs.check_old_by_anchor", BEACON, "if (slot < capella) revert InvalidProof();", ""),
    # Siblings beyond the end are sent.
    SourceFault(
        "BeaconHistoryProofs.check_old_by_count", BEACON, "xor(side, 1)), count)", "xor(side, 1)), add(count, 1))"
    ),
    # A tree of zeros has another root.
    SourceFault("BeaconHistoryProofs.check_old_by_count", BEACON, 'hex"e71f0aa83cc3', 'hex"e71f0aa83cc2'),
    # The length isn't hashed in.
    SourceFault(
        "BeaconHistoryProofs.check_old_by_count", BEACON, "return _hash(node, _leaf(count));", "return _hash(node, 0);"
    ),
    # A constant is not compared.
    SourceFault(
        "BeaconHistoryProofs.check_before_capella",
        BEACON,
        "_finish(input, branch, node, historicalRoots);",
        "_finish(input, branch, node, node);",
    ),
    SourceFault(
        "BeaconHistoryProofs.check_before_capella",
        BEACON,
        "slot >> periodDepth, _periodsBefore(), HISTORY",
        "slot >> periodDepth, _periodsBefore() + 1, HISTORY",
    ),
    SourceFault(
        "BeaconHistoryProofs.check_before_merge",
        BEACON,
        "_finish(input, branch, node, accumulator);",
        "_finish(input, branch, node, node);",
    ),
    # An epoch has more records, or the list one epoch less.
    SourceFault(
        "BeaconHistoryProofs.check_before_merge",
        BEACON,
        "if (size > 1 << RECORDS_DEPTH) size = 1 << RECORDS_DEPTH;",
        "",
    ),
    SourceFault(
        "BeaconHistoryProofs.check_before_merge", BEACON, "((count - 1) >> RECORDS_DEPTH) + 1", "count >> RECORDS_DEPTH"
    ),
    # Another field is taken for the constant.
    SourceFault("BeaconHistoryProofs.check_historical_roots", BEACON, "HISTORICAL_ROOTS = 7;", "HISTORICAL_ROOTS = 6;"),
    # A branch continues after its end.
    SourceFault(
        "BeaconHistoryProofs.check_a_branch_has_its_size",
        BEACON,
        "input.cursor != place || root != trusted",
        "root != trusted",
    ),
    # --- Dispute games ------------------------------------------------------------------------------------------------
    SourceFault(
        "OpStackGamesProofs.check_a_block_is_recorded_if_and_only_if_a_valid_claim_is_its_output",
        GAMES,
        "if (valid != bytes32(uint256(1))) revert ClaimNotValid(game);",
        "",
    ),
    SourceFault(
        "OpStackGamesProofs.check_a_block_is_recorded_if_and_only_if_a_valid_claim_is_its_output",
        GAMES,
        "if (claim != outputRoot) revert NotClaimed(game, blockNumber);",
        "",
    ),
    # The roots are taken in another order.
    SourceFault(
        "OpStackGamesProofs.check_a_block_is_recorded_if_and_only_if_a_valid_claim_is_its_output",
        GAMES,
        "stateRoot, messagePasserStorageRoot, hash",
        "messagePasserStorageRoot, stateRoot, hash",
    ),
    SourceFault("OpStackGamesProofs.check_an_answer_is_one_word", RECORDED, "eq(returndatasize(), 32)", "1"),
    # --- An Arbitrum chain's parent -----------------------------------------------------------------------------------
    SourceFault(
        "ArbitrumBufferProofs.check_a_hash_is_the_one_word_that_the_buffer_answers",
        BUFFER,
        "eq(returndatasize(), 32)",
        "1",
    ),
    # --- Headers ------------------------------------------------------------------------------------------------------
    # A byte below 0x80 has a second encoding.
    SourceFault(
        "PackedHeaderProofs.check_a_string_is_taken_from_its_one_encoding_only",
        HEADER,
        "if (size == 1 && _number(content, 1) < 0x80) revert InvalidHeader();",
        "",
    ),
    # A string of 55 bytes has a second encoding.
    SourceFault(
        "PackedHeaderProofs.check_a_string_is_taken_from_its_one_encoding_only",
        HEADER,
        "size < 56",
        "size < 55",
    ),
    # A string goes on beyond the header's end.
    SourceFault(
        "PackedHeaderProofs.check_a_string_is_taken_from_its_one_encoding_only",
        HEADER,
        "if (next > end) revert InvalidHeader();",
        "",
    ),
    # A string of 256 bytes has no encoding.
    SourceFault("PackedHeaderProofs.check_every_string_is_taken", HEADER, "size < 256", "size <= 256"),
    # A leading zero passes.
    SourceFault(
        "PackedHeaderProofs.check_an_integer_is_taken_from_its_one_encoding_only",
        HEADER,
        "if (size != 0 && value >> (8 * size - 8) == 0) revert InvalidHeader();",
        "",
    ),
    # A prefix isn't looked at.
    SourceFault(
        "PackedHeaderProofs.check_the_first_fields_are_taken_from_their_one_encoding_only",
        HEADER,
        "|| _number(cursor + RECEIPTS_ROOT_PLACE, 1) != HASH_PREFIX",
        "",
    ),
    # The transactions' root is taken for that of the state.
    SourceFault(
        "PackedHeaderProofs.check_the_first_fields_are_taken_from_their_one_encoding_only",
        HEADER,
        "root = bytes32(_number(cursor + STATE_ROOT_PLACE + 1, 32));",
        "root = bytes32(_number(cursor + TRANSACTIONS_ROOT_PLACE + 1, 32));",
    ),
    # A header is longer than the calldata.
    SourceFault("PackedHeaderProofs.check_a_header_ends_within_calldata", HEADER, "|| end > msg.data.length", ""),
    # --- The stack ----------------------------------------------------------------------------------------------------
    # Memory below the bottom poses as subtrees.
    SourceFault(
        "SubtreeStackProofs.check_pop_takes_what_is_in_the_open_stack_and_nothing_else",
        STACK,
        "lt(lowest, bottom)",
        "0",
    ),
    SourceFault(
        "SubtreeStackProofs.check_pop_takes_what_is_in_the_open_stack_and_nothing_else",
        STACK,
        "gt(sub(count, 1), 15)",
        "gt(count, 16)",
    ),
    SourceFault(
        "SubtreeStackProofs.check_peek_shows_what_is_in_the_open_stack_and_nothing_else",
        STACK,
        "gt(top, STACK_END)",
        "0",
    ),
    # Only the topmost of several subtrees is checked.
    SourceFault(
        "SubtreeStackProofs.check_only_shows_the_one_subtree_of_the_open_stack",
        STACK,
        "if (Subtree.unwrap(lowest) != stack.bottom) revert InvalidProof();",
        "",
    ),
    # The last subtree ends behind the zone.
    SourceFault(
        "SubtreeStackProofs.check_push_refuses_what_has_no_room_in_the_zone",
        STACK,
        "MemoryZones.STACK_END - MemoryZones.STACK - SUBTREE",
        "MemoryZones.STACK_END - MemoryZones.STACK - SUBTREE + 1",
    ),
    SourceFault(
        "SubtreeStackProofs.check_push_refuses_what_has_no_room_in_the_zone",
        STACK,
        "size_ > 31 || depth_ > MAX_DEPTH",
        "size_ > 32 || depth_ > MAX_DEPTH",
    ),
    # A word is written behind the subtree.
    SourceFault(
        "SubtreeStackProofs.check_push_writes_the_subtree_and_nothing_else",
        STACK,
        "mstore(add(top, 0xa0), last_)",
        "mstore(add(top, 0xc0), last_)",
    ),
    # Subtrees below stay reachable.
    SourceFault(
        "SubtreeStackProofs.check_a_stack_is_opened_above_what_there_is_and_closed_to_it",
        STACK,
        "stack.bottom = stack.top;",
        "",
    ),
    # A pushed subtree isn't forgotten.
    SourceFault(
        "SubtreeStackProofs.check_a_stack_is_opened_above_what_there_is_and_closed_to_it",
        STACK,
        "stack.top = stack.bottom;",
        "",
    ),
    # --- Nodes --------------------------------------------------------------------------------------------------------
    SourceFault(
        "NodeWriterProofs.check_an_integer_has_as_many_bytes_as_it_needs",
        NODE,
        "size := add(size, iszero(iszero(value)))",
        "size := add(size, 1)",
    ),
    # Below the list there is room for all.
    SourceFault(
        "NodeWriterProofs.check_pieces_outside_of_the_longest_list_are_refused",
        NODE,
        "end - PAYLOAD > MAX_LENGTH - size",
        "end > PAYLOAD + MAX_LENGTH - size",
    ),
    SourceFault(
        "NodeWriterProofs.check_pieces_outside_of_the_longest_list_are_refused",
        NODE,
        "_checkRoom(end, 33);",
        "_checkRoom(end, 32);",
    ),
    SourceFault(
        "NodeWriterProofs.check_a_byte_is_written_and_nothing_else",
        NODE,
        "mstore8(place, value)",
        "mstore(place, shl(248, value))",
    ),
    SourceFault(
        "NodeWriterProofs.check_bytes_are_written_and_nothing_else",
        NODE,
        "mstore(end, word)",
        "mstore(add(end, 1), word)",
    ),
    SourceFault(
        "NodeWriterProofs.check_a_hash_is_written_and_nothing_else", NODE, "mstore8(end, 0xa0)", "mstore(end, 0xa0)"
    ),
    # An odd number of nibbles is taken for an even one.
    SourceFault(
        "NodeWriterProofs.check_a_path_is_written_and_nothing_else",
        NODE,
        "flags |= 0x10 | nibbles >> 252;",
        "flags |= nibbles >> 252;",
    ),
    # Zero is written as a byte.
    SourceFault(
        "NodeWriterProofs.check_an_integer_is_written_and_nothing_else",
        NODE,
        "value != 0 && value < 0x80",
        "value < 0x80",
    ),
    SourceFault(
        "NodeWriterProofs.check_a_reference_is_written_and_nothing_else",
        NODE,
        "if (size == 0) return putHash(end, ref);",
        "",
    ),
    SourceFault("NodeWriterProofs.check_a_list_gets_its_prefix_and_nothing_else", NODE, "length < 56", "length < 57"),
    # Bytes behind the node become a part of the reference.
    SourceFault(
        "NodeWriterProofs.check_a_list_gets_its_prefix_and_nothing_else",
        NODE,
        "return (ref >> rest << rest, size);",
        "return (ref, size);",
    ),
    # --- Operations ---------------------------------------------------------------------------------------------------
    # The forgery that the first version had.
    SourceFault(
        "OperationsProofs.check_a_branch_takes_nothing_from_below_the_bottom", STACK, "lt(lowest, bottom)", "0"
    ),
    SourceFault("OperationsProofs.check_nothing_else_takes_from_below_the_bottom", STACK, "lt(lowest, bottom)", "0"),
    # A storage is closed with a part of its trie.
    SourceFault(
        "OperationsProofs.check_a_storage_is_closed_with_one_subtree_only",
        TRIE,
        "if (node.depth() != 0) revert InvalidProof();",
        "",
    ),
    # Ours goes to another place.
    SourceFault(
        "OperationsProofs.check_a_full_branch",
        BRANCH,
        "let ours := add(add(NODE, 3), mul(33, place))",
        "let ours := add(add(NODE, 3), mul(33, and(place, 7)))",
    ),
    # Absent keys attach to a branch.
    SourceFault(
        "OperationsProofs.check_a_full_branch",
        TRIE,
        "stack.push(hash, 0, key, depth, 0, 0);",
        "stack.push(hash, 0, key, depth, depth + 1, 0);",
    ),
    # A branch is hashed without its value.
    SourceFault("OperationsProofs.check_a_branch_of_two", BRANCH, "end := add(base, 17)", "end := add(base, 16)"),
    # Places needn't rise.
    SourceFault("OperationsProofs.check_a_branch_of_two", BRANCH, "if lt(place, next) { refuse() }", ""),
    # Bytes of an earlier node behind a subtree pose as the next place.
    SourceFault(
        "OperationsProofs.check_a_branch_of_two",
        BRANCH,
        "mstore(add(at, length), EMPTY_STRINGS)",
        "",
    ),
    # An empty place counts as a child.
    SourceFault("OperationsProofs.check_a_branch_of_one_is_refused", BRANCH, "gt(length, 1)", "1"),
    # Real children aren't counted.
    SourceFault("OperationsProofs.check_a_branch_of_one_is_refused", BRANCH, "if lt(real, 2) { refuse() }", ""),
    # A subtree of another part of the trie is taken: the last nibble of the branch's path isn't compared.
    SourceFault(
        "OperationsProofs.check_a_branch_takes_its_own_children_only",
        BRANCH,
        "xor(shr(bits, mload(add(child, KEY))), or(parent, place))",
        "and(xor(shr(bits, mload(add(child, KEY))), or(parent, place)), not(0xf0))",
    ),
    # Only its last four nibbles are compared.
    SourceFault(
        "OperationsProofs.check_a_branch_takes_its_own_children_only",
        BRANCH,
        "xor(shr(bits, mload(add(child, KEY))), or(parent, place))",
        "and(xor(shr(bits, mload(add(child, KEY))), or(parent, place)), 0xfffff)",
    ),
    # A subtree of another depth is taken.
    SourceFault(
        "OperationsProofs.check_a_branch_takes_its_own_children_only",
        BRANCH,
        "if xor(mload(add(child, DEPTH)), depth) { refuse() }",
        "",
    ),
    # An extension leads to a leaf.
    SourceFault(
        "OperationsProofs.check_an_extension",
        TRIE,
        "if (child.reach() != 0) revert InvalidProof();",
        "",
    ),
    # An extension ends a nibble further down than where it leads to.
    SourceFault(
        "OperationsProofs.check_an_extension",
        TRIE,
        "stack.push(ref, size, key, depth, reach, last);",
        "stack.push(ref, size, key, depth, reach + 1, last);",
    ),
    # It is hashed as a leaf.
    SourceFault("OperationsProofs.check_an_extension", TRIE, "key, depth, reach, false)", "key, depth, reach, true)"),
    # A value is a string, not a string in a string.
    SourceFault(
        "OperationsProofs.check_a_slot",
        TRIE,
        "if (value >= 0x80) end = NodeWriter.putByte(end, 0x81 + valueSize);",
        "",
    ),
    # A leaf is deeper than any is.
    SourceFault("OperationsProofs.check_a_slot", STACK, "depth_ > MAX_DEPTH", "depth_ > MAX_DEPTH + 1"),
    # An account that stores nothing is there.
    SourceFault(
        "OperationsProofs.check_an_account",
        STATE,
        "proof.isStorageOpen || op & STORE_ANYTHING == 0",
        "proof.isStorageOpen",
    ),
    # Its hashes change places.
    SourceFault(
        "OperationsProofs.check_an_account",
        TRIE,
        "end = NodeWriter.putHash(end, storageRoot);\n            end = NodeWriter.putHash(end, codeHash);",
        "end = NodeWriter.putHash(end, codeHash);\n            end = NodeWriter.putHash(end, storageRoot);",
    ),
    # A subtree is pushed without a key.
    SourceFault(
        "OperationsProofs.check_an_empty_place",
        TRIE,
        "stack.push(EMPTY, 1, key, depth, NIBBLES, key);",
        "stack.push(EMPTY, 1, key, depth, NIBBLES, 0);",
    ),
    # A key is absent where it is present.
    SourceFault(
        "OperationsProofs.check_the_same_place",
        TRIE,
        "|| prefix(difference, node.reach()) == 0",
        "",
    ),
    # At odd depths, the last nibble above the node isn't compared.
    SourceFault(
        "OperationsProofs.check_the_same_place",
        TRIE,
        "prefix(difference, node.depth()) != 0",
        "prefix(difference, node.depth() & 0x7e) != 0",
    ),
    # A nibble below the extension counts.
    SourceFault(
        "OperationsProofs.check_the_same_place",
        TRIE,
        "prefix(difference, node.reach()) == 0",
        "prefix(difference, node.reach() + 1) == 0",
    ),
    # A key is absent twice.
    SourceFault("OperationsProofs.check_the_same_place", TRIE, "node.setLast(key);", ""),
    # The key may be one that is there.
    SourceFault(
        "OperationsProofs.check_another_extension",
        TRIE,
        "input.takeHash(), 0, 0);\n            attach(stack, key);",
        "input.takeHash(), 0, 0);",
    ),
    SourceFault(
        "OperationsProofs.check_another_slot",
        STATE,
        "PackedTrie.pushSlot(proof.stack, other, depth, value);\n                PackedTrie.attach(proof.stack, key);",
        "PackedTrie.pushSlot(proof.stack, other, depth, value);",
    ),
    SourceFault(
        "OperationsProofs.check_another_account",
        STATE,
        "codeHash);\n                PackedTrie.attach(proof.stack, key);",
        "codeHash);",
    ),
    # --- The registry -------------------------------------------------------------------------------------------------
    # Any header is believed.
    SourceFault(
        "FactsRegistryProofs.check_a_time_is_stored_under_a_trusted_hash_only",
        REGISTRY,
        "_checkHash(nextNumber, keccak256(next));",
        "",
    ),
    # Any header is believed that goes before one.
    SourceFault(
        "FactsRegistryProofs.check_a_time_is_stored_under_a_trusted_hash_only",
        REGISTRY,
        "keccak256(header) != parentHash || blockNumber + 1 != nextNumber",
        "blockNumber + 1 != nextNumber",
    ),
    # A block is the latest when the next one is there.
    SourceFault(
        "FactsRegistryProofs.check_a_time_is_stored_under_a_trusted_hash_only",
        REGISTRY,
        "timestamp >= nextTime",
        "timestamp > nextTime",
    ),
    SourceFault(
        "FactsRegistryProofs.check_a_block_is_stored_under_a_trusted_hash_only",
        REGISTRY,
        "if (expected == 0) _checkHash(blockNumber, headerHash);",
        "if (expected == 0) {}",
    ),
    # A source vouches that answers too little or too much.
    SourceFault(
        "FactsRegistryProofs.check_a_block_is_stored_under_a_trusted_hash_only",
        REGISTRY,
        "if and(eq(returndatasize(), 32), staticcall(gas(), source, 0, 36, 0, 32))",
        "if staticcall(gas(), source, 0, 36, 0, 32)",
    ),
    # Any header is believed to be the parent.
    SourceFault(
        "FactsRegistryProofs.check_a_block_is_stored_under_a_trusted_hash_only",
        REGISTRY,
        "headerHash != expected || (op == PARENT && blockNumber + 1 != child)",
        "op == PARENT && blockNumber + 1 != child",
    ),
    # A parent has any number.
    SourceFault(
        "FactsRegistryProofs.check_a_block_is_stored_under_a_trusted_hash_only",
        REGISTRY,
        "headerHash != expected || (op == PARENT && blockNumber + 1 != child)",
        "headerHash != expected",
    ),
    # The first block has a parent.
    SourceFault(
        "FactsRegistryProofs.check_a_block_is_stored_under_a_trusted_hash_only",
        REGISTRY,
        "|| blockNumber == 0",
        "",
    ),
    # Any root is that of the block.
    SourceFault(
        "FactsRegistryProofs.check_a_block_hash_is_stored_under_a_known_state_root_only",
        REGISTRY,
        "if (_proveState(blockNumber, input.cursor) != root) revert InvalidProof();",
        "_proveState(blockNumber, input.cursor);",
    ),
    # The storage of any contract gives the hashes of blocks.
    SourceFault(
        "FactsRegistryProofs.check_a_block_hash_is_stored_under_a_known_state_root_only",
        STATE,
        "!proof.isStorageOpen || proof.owner != HISTORY",
        "!proof.isStorageOpen",
    ),
    # A slot counts that the protocol doesn't write to.
    SourceFault(
        "FactsRegistryProofs.check_a_block_hash_is_stored_under_a_known_state_root_only",
        STATE,
        "if (slot >= historyWindow) revert InvalidProof();",
        "",
    ),
)
