"""Faults that the proofs must notice: for each property, at least one change of the contracts that makes it false.

`make prove` applies each change, and expects halmos to find a counterexample. A property that no change makes false
would look proven although it tests nothing.
"""

from dataclasses import dataclass

from contracts.build import LIBRARY

FACTS = "src/Facts.sol"
ATTESTED = "src/AttestedBlockHashSource.sol"
ARBITRUM = "src/ArbitrumBlocks.sol"
BEACON = "src/BeaconHistory.sol"
GLOAS = "src/GloasBeaconHistory.sol"
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
TRANSACTION_FACTS = "src/TransactionFacts.sol"
TRANSACTIONS = "src/TransactionProof.sol"
READER = "src/FactsReader.sol"
RECEIPT = "src/ReceiptReader.sol"
RECEIPT_FORM = "src/ReceiptForm.sol"
RLP = f"{LIBRARY}CalldataRlp.sol"
UNBOUNDED_RLP = "src/UnboundedRlp.sol"
WALK = f"{LIBRARY}TrieWalk.sol"
PROVER = f"{LIBRARY}erc7888/RegistryStateProver.sol"
POINTER = f"{LIBRARY}erc7888/FixedStateProverPointer.sol"


@dataclass(frozen=True)
class SourceFault:
    """A change of a source, and the property that it makes false. `before` must occur exactly once in the source."""

    check: str
    source: str
    before: str
    after: str


FAULTS = (
    # --- Facts --------------------------------------------------------------------------------------------------------
    # The highest byte of a nonce is lost.
    SourceFault(
        "FactsProofs.check_storing_an_account",
        FACTS,
        "uint256(uint64(summary >> NONCE_SHIFT))",
        "uint256(uint56(summary >> NONCE_SHIFT))",
    ),
    # Nonce and balance overlap in one bit.
    SourceFault("FactsProofs.check_storing_an_account", FACTS, "NONCE_SHIFT = 184;", "NONCE_SHIFT = 183;"),
    # A balance that is too large for its bits overflows into the nonce.
    SourceFault("FactsProofs.check_storing_an_account", FACTS, "balance <= type(uint184).max", "balance <= 1 << 184"),
    # A code hash that is stored already is stored again.
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
    # A slot that is zero also marks its neighbour as zero.
    SourceFault("FactsProofs.check_storing_a_slot", FACTS, "1 << (slot & 0xff)", "1 << (slot & 0xfe)"),
    # The highest slots share their bit with other slots.
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
    # Marking a field as zero unmarks the other zero fields.
    SourceFault("FactsProofs.check_storing_a_field_of_a_header", FACTS, "zeroFields | 1 << field", "1 << field"),
    SourceFault(
        "FactsProofs.check_storing_the_block_at_a_time",
        FACTS,
        "if (_blocksAtTimestamps[timestamp] != 0) return;",
        "",
    ),
    # Block 0 can't be distinguished from no block.
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
    # A field of a header that isn't proven is read as zero.
    SourceFault(
        "FactsProofs.check_both_forms_of_a_read_agree",
        FACTS,
        "if (!proven) revert HeaderFieldNotProven(blockNumber, field);",
        "",
    ),
    SourceFault(
        "FactsProofs.check_both_forms_of_a_read_agree",
        FACTS,
        "return accountStorageSlotValues(account, blockNumber, slot);",
        "return bytes32(_accounts[account][blockNumber].slots[uint256(slot)]);",
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
    # Accounts that are not attesters may sign.
    SourceFault(
        "AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",
        ATTESTED,
        "if (!isAttester[signer]) revert NotAnAttester(signer);",
        "",
    ),
    # The malleated form of a signature (with the higher s) is accepted.
    SourceFault(
        "AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",
        ATTESTED,
        "if (s <= MAX_S) signer",
        "signer",
    ),
    # The last signature isn't checked.
    SourceFault(
        "AttestedBlockHashSourceProofs.check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed",
        ATTESTED,
        "place < count;",
        "place + 1 < count;",
    ),
    # Signatures don't depend on the nonce, so those for one change are valid for another.
    SourceFault(
        "AttestedBlockHashSourceProofs.check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed",
        ATTESTED,
        "threshold_, nonce)), signatures);",
        "threshold_, uint256(0))), signatures);",
    ),
    # Signatures for a change stay valid for the same change later.
    SourceFault(
        "AttestedBlockHashSourceProofs.check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed",
        ATTESTED,
        "++nonce;",
        "",
    ),
    # A removed attester remains an attester.
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
    # A second hash replaces the recorded hash of a block.
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
    # A send root may be shorter than 32 bytes.
    SourceFault(
        "ArbitrumBlocksProofs.check_the_send_root_is_the_whole_extra_data", ARBITRUM, "size != 32", "size > 32"
    ),
    # The hash may cover bytes after the header.
    SourceFault(
        "ArbitrumBlocksProofs.check_the_send_root_is_the_whole_extra_data",
        RECORDED,
        "if (end - start != header.length) revert InvalidHeader();",
        "",
    ),
    # The field after the extra data is read as the send root.
    SourceFault(
        "ArbitrumBlocksProofs.check_the_send_root_is_the_whole_extra_data",
        ARBITRUM,
        "PackedHeader.skip(cursor, end, 3)",
        "PackedHeader.skip(cursor, end, 4)",
    ),
    # --- Jumps --------------------------------------------------------------------------------------------------------
    # The block hash, or the payload, is read from another field.
    SourceFault("BeaconHistoryProofs.check_own", BEACON, "BLOCK_HASH = 12;", "BLOCK_HASH = 13;"),
    SourceFault("BeaconHistoryProofs.check_own", BEACON, "EXECUTION_PAYLOAD = 9;", "EXECUTION_PAYLOAD = 8;"),
    # The fork's layout begins or ends a slot too early or too late.
    SourceFault("BeaconHistoryProofs.check_own", BEACON, "slot < deneb ? 4 : 5", "slot <= deneb ? 4 : 5"),
    SourceFault("BeaconHistoryProofs.check_own", BEACON, "if (slot < bellatrix) revert InvalidProof();", ""),
    SourceFault("BeaconHistoryProofs.check_own", BEACON, "if (slot >= end)", "if (slot > end)"),
    # The zero hash of an empty payload is accepted.
    SourceFault(
        "BeaconHistoryProofs.check_own",
        BEACON,
        "// A block before the Merge has an empty payload.\n        if (blockHash == 0) revert InvalidProof();",
        "",
    ),
    # The two halves of an integer are swapped.
    SourceFault(
        "BeaconHistoryProofs.check_own",
        BEACON,
        "value << 224 | (value >> 32) << 192",
        "(value >> 32) << 224 | value << 192",
    ),
    # The root isn't compared with the trusted root.
    SourceFault(
        "BeaconHistoryProofs.check_own", BEACON, "input.cursor != place || root != trusted", "input.cursor != place"
    ),
    # A block is proven at another slot, in another period, or in the other half of a period's roots.
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
    # The index after the last element of a list is accepted.
    SourceFault("BeaconHistoryProofs.check_old_by_slot", BEACON, "if (index >= count)", "if (index > count)"),
    # Summaries are read from another field, depth or fork of the state.
    SourceFault(
        "BeaconHistoryProofs.check_old_by_anchor", BEACON, "HISTORICAL_SUMMARIES = 27;", "HISTORICAL_SUMMARIES = 26;"
    ),
    SourceFault("BeaconHistoryProofs.check_old_by_anchor", BEACON, "slot < electra ? 5 : 6", "slot <= electra ? 5 : 6"),
    SourceFault("BeaconHistoryProofs.check_old_by_anchor", BEACON, "if (slot < capella) revert InvalidProof();", ""),
    # A sibling beyond the end of the list is read from the input instead of being zeros.
    SourceFault(
        "BeaconHistoryProofs.check_old_by_count", BEACON, "xor(side, 1)), count)", "xor(side, 1)), add(count, 1))"
    ),
    # The root of a tree of zeros is wrong.
    SourceFault("BeaconHistoryProofs.check_old_by_count", BEACON, 'hex"e71f0aa83cc3', 'hex"e71f0aa83cc2'),
    # The root of a list omits its length.
    SourceFault(
        "BeaconHistoryProofs.check_old_by_count", BEACON, "return _hash(node, _leaf(count));", "return _hash(node, 0);"
    ),
    # The computed root isn't compared with the constant.
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
    # The last epoch may have too many records, or the list of epochs is one too short.
    SourceFault(
        "BeaconHistoryProofs.check_before_merge",
        BEACON,
        "if (size > 1 << RECORDS_DEPTH) size = 1 << RECORDS_DEPTH;",
        "",
    ),
    SourceFault(
        "BeaconHistoryProofs.check_before_merge", BEACON, "((count - 1) >> RECORDS_DEPTH) + 1", "count >> RECORDS_DEPTH"
    ),
    # Historical roots are read from another field.
    SourceFault("BeaconHistoryProofs.check_historical_roots", BEACON, "HISTORICAL_ROOTS = 7;", "HISTORICAL_ROOTS = 6;"),
    # A branch may have bytes after its end.
    SourceFault(
        "BeaconHistoryProofs.check_a_branch_has_its_size",
        BEACON,
        "input.cursor != place || root != trusted",
        "root != trusted",
    ),
    # --- Jumps since Gloas --------------------------------------------------------------------------------------------
    # The promised hash is proven, or the layout begins a slot too late.
    SourceFault("GloasBeaconHistoryProofs.check_own", GLOAS, "PARENT_BLOCK_HASH = 2856;", "PARENT_BLOCK_HASH = 2857;"),
    SourceFault(
        "GloasBeaconHistoryProofs.check_own",
        GLOAS,
        "if (slot < gloas) {\n            body",
        "if (slot <= gloas) {\n            body",
    ),
    # A tree of before Gloas is accepted.
    SourceFault("GloasBeaconHistoryProofs.check_own", GLOAS, "if (beyond != 0) revert InvalidProof();", ""),
    SourceFault("GloasBeaconHistoryProofs.check_own", GLOAS, "beyond := shl(128,", "beyond := shl(136,"),
    SourceFault("GloasBeaconHistoryProofs.check_own", GLOAS, "if (slot >= end)", "if (slot > end)"),
    # A block is proven at another slot, in another period, or in the other half of a period's roots.
    SourceFault(
        "GloasBeaconHistoryProofs.check_old_by_slot",
        GLOAS,
        "roots = _climb(input, node, slot, periodDepth)",
        "roots = _climb(input, node, slot ^ 1, periodDepth)",
    ),
    SourceFault("GloasBeaconHistoryProofs.check_old_by_slot", GLOAS, "period - first, count", "period, count"),
    SourceFault(
        "GloasBeaconHistoryProofs.check_old_by_slot", GLOAS, "_hash(roots, stateRoots)", "_hash(stateRoots, roots)"
    ),
    SourceFault("GloasBeaconHistoryProofs.check_old_by_slot", GLOAS, "if (index >= count)", "if (index > count)"),
    # Summaries are read from another field, depth or fork of the state.
    SourceFault(
        "GloasBeaconHistoryProofs.check_old_by_anchor", GLOAS, "GLOAS_SUMMARIES = 2950;", "GLOAS_SUMMARIES = 2951;"
    ),
    SourceFault(
        "GloasBeaconHistoryProofs.check_old_by_anchor",
        GLOAS,
        "if (slot < gloas) {\n            state",
        "if (slot <= gloas) {\n            state",
    ),
    # A sibling beyond the end of the list is read from the input instead of being zeros.
    SourceFault(
        "GloasBeaconHistoryProofs.check_old_by_count", GLOAS, "xor(side, 1)), count)", "xor(side, 1)), add(count, 1))"
    ),
    # A state's block roots are read from another field, or a root of state roots stands beside them.
    SourceFault(
        "GloasBeaconHistoryProofs.check_block_roots_by_anchor",
        GLOAS,
        "GLOAS_BLOCK_ROOTS = 352;",
        "GLOAS_BLOCK_ROOTS = 353;",
    ),
    SourceFault("GloasBeaconHistoryProofs.check_block_roots_by_anchor", GLOAS, "BLOCK_ROOTS = 5;", "BLOCK_ROOTS = 6;"),
    SourceFault(
        "GloasBeaconHistoryProofs.check_block_roots_by_slot", GLOAS, "if (stateRoots != 0) revert InvalidProof();", ""
    ),
    # The computed root isn't compared with the constant.
    SourceFault(
        "GloasBeaconHistoryProofs.check_before_capella",
        GLOAS,
        "_finish(input, branch, node, historicalRoots);",
        "_finish(input, branch, node, node);",
    ),
    SourceFault(
        "GloasBeaconHistoryProofs.check_before_merge",
        GLOAS,
        "_finish(input, branch, node, accumulator);",
        "_finish(input, branch, node, node);",
    ),
    SourceFault(
        "GloasBeaconHistoryProofs.check_historical_roots", GLOAS, "HISTORICAL_ROOTS = 7;", "HISTORICAL_ROOTS = 6;"
    ),
    # A branch may have bytes after its end.
    SourceFault(
        "GloasBeaconHistoryProofs.check_a_branch_has_its_size",
        GLOAS,
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
    # The roots of an output are hashed in the wrong order.
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
    # A byte below 0x80 gets a second encoding.
    SourceFault(
        "PackedHeaderProofs.check_a_string_is_taken_from_its_one_encoding_only",
        HEADER,
        "if (size == 1 && CalldataRlp.number(content, 1) < 0x80) revert InvalidHeader();",
        "",
    ),
    # A string of 55 bytes gets a second encoding.
    SourceFault(
        "PackedHeaderProofs.check_a_string_is_taken_from_its_one_encoding_only",
        HEADER,
        "size < 56",
        "size < 55",
    ),
    # A string may extend beyond the header's end.
    SourceFault(
        "PackedHeaderProofs.check_a_string_is_taken_from_its_one_encoding_only",
        HEADER,
        "if (next > end) revert InvalidHeader();",
        "",
    ),
    # A string of 256 bytes is refused.
    SourceFault("PackedHeaderProofs.check_every_string_is_taken", HEADER, "size < 256", "size <= 256"),
    # An integer may have a leading zero.
    SourceFault(
        "PackedHeaderProofs.check_an_integer_is_taken_from_its_one_encoding_only",
        HEADER,
        "if (size != 0 && value >> (8 * size - 8) == 0) revert InvalidHeader();",
        "",
    ),
    # The prefix of the receipts root isn't checked.
    SourceFault(
        "PackedHeaderProofs.check_the_first_fields_are_taken_from_their_one_encoding_only",
        HEADER,
        "|| CalldataRlp.number(cursor + RECEIPTS_ROOT_PLACE, 1) != HASH_PREFIX",
        "",
    ),
    # The transactions root is read as the state root.
    SourceFault(
        "PackedHeaderProofs.check_the_first_fields_are_taken_from_their_one_encoding_only",
        HEADER,
        "root = bytes32(CalldataRlp.number(cursor + STATE_ROOT_PLACE + 1, 32));",
        "root = bytes32(CalldataRlp.number(cursor + TRANSACTIONS_ROOT_PLACE + 1, 32));",
    ),
    # A header may extend beyond the calldata.
    SourceFault("PackedHeaderProofs.check_a_header_ends_within_calldata", HEADER, "|| end > msg.data.length", ""),
    # --- The stack ----------------------------------------------------------------------------------------------------
    # Memory below the bottom of the stack is popped as if it were subtrees.
    SourceFault(
        "SubtreeStackProofs.check_fold_takes_what_is_in_the_open_stack_and_nothing_else",
        STACK,
        "lt(lowest, bottom)",
        "0",
    ),
    SourceFault(
        "SubtreeStackProofs.check_fold_takes_what_is_in_the_open_stack_and_nothing_else",
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
    # Subtrees below the topmost are not checked.
    SourceFault(
        "SubtreeStackProofs.check_only_shows_the_one_subtree_of_the_open_stack",
        STACK,
        "if (Subtree.unwrap(lowest) != stack.bottom) revert InvalidProof();",
        "",
    ),
    # The last subtree may end beyond the memory zone.
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
    # A word is written after the end of the subtree.
    SourceFault(
        "SubtreeStackProofs.check_push_writes_the_subtree_and_nothing_else",
        STACK,
        "mstore(add(top, 0xa0), last_)",
        "mstore(add(top, 0xc0), last_)",
    ),
    # Subtrees below the opened stack stay reachable.
    SourceFault(
        "SubtreeStackProofs.check_a_stack_is_opened_above_what_there_is_and_closed_to_it",
        STACK,
        "stack.bottom = stack.top;",
        "",
    ),
    # A subtree of the closed stack stays on it.
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
    # Space before the start of the list counts as room.
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
    # A path with an odd number of nibbles is encoded as an even one.
    SourceFault(
        "NodeWriterProofs.check_a_path_is_written_and_nothing_else",
        NODE,
        "flags |= 0x10 | nibbles >> 252;",
        "flags |= nibbles >> 252;",
    ),
    # Zero is encoded as a byte instead of an empty string.
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
    # Bytes after the node become part of its reference.
    SourceFault(
        "NodeWriterProofs.check_a_list_gets_its_prefix_and_nothing_else",
        NODE,
        "return (ref >> rest << rest, size);",
        "return (ref, size);",
    ),
    # --- Operations ---------------------------------------------------------------------------------------------------
    # This is the forgery that the first version allowed.
    SourceFault(
        "OperationsProofs.check_a_branch_takes_nothing_from_below_the_bottom", STACK, "lt(lowest, bottom)", "0"
    ),
    SourceFault("OperationsProofs.check_nothing_else_takes_from_below_the_bottom", STACK, "lt(lowest, bottom)", "0"),
    # A storage trie is closed although the subtree isn't its root.
    SourceFault(
        "OperationsProofs.check_a_storage_is_closed_with_one_subtree_only",
        TRIE,
        "if (node.depth() != 0) revert InvalidProof();",
        "",
    ),
    # The child in question is written to another index.
    SourceFault(
        "OperationsProofs.check_a_full_branch",
        BRANCH,
        "let ours := add(add(NODE, 3), mul(33, place))",
        "let ours := add(add(NODE, 3), mul(33, and(place, 7)))",
    ),
    # A branch is as deep as its child.
    SourceFault(
        "OperationsProofs.check_a_full_branch",
        TRIE,
        "child.setBranch(hash, 0, depth);",
        "child.setBranch(hash, 0, depth + 1);",
    ),
    # A branch is hashed without its value.
    SourceFault(
        "OperationsProofs.check_a_branch_of_two",
        BRANCH,
        "end := sub(add(end, 17), cursor)",
        "end := sub(add(end, 16), cursor)",
    ),
    # The subtrees of a branch may come in any order.
    SourceFault("OperationsProofs.check_a_branch_of_two", BRANCH, "if iszero(gt(bit, own)) { refuse() }", ""),
    # A place may have two children.
    SourceFault("OperationsProofs.check_a_branch_of_two", BRANCH, "if and(own, others) { refuse() }", ""),
    # Leftover bytes of an earlier node are read as the last places.
    SourceFault("OperationsProofs.check_a_branch_of_two", BRANCH, "mstore(at, EMPTY_STRINGS)", ""),
    # An empty child counts as a child.
    SourceFault("OperationsProofs.check_a_branch_of_one_is_refused", BRANCH, "xor(mload(add(child, SIZE)), 1)", "1"),
    # The number of children isn't checked.
    SourceFault(
        "OperationsProofs.check_a_branch_of_one_is_refused",
        BRANCH,
        "if iszero(and(real, sub(real, 1))) { refuse() }",
        "",
    ),
    # A child of another branch is accepted, because the last nibble of the branch's path isn't compared.
    SourceFault(
        "OperationsProofs.check_a_branch_takes_its_own_children_only",
        BRANCH,
        "xor(shr(4, path), parent)",
        "and(xor(shr(4, path), parent), not(0x0f))",
    ),
    # A child of another branch is accepted, because only the last four nibbles of the path are compared.
    SourceFault(
        "OperationsProofs.check_a_branch_takes_its_own_children_only",
        BRANCH,
        "xor(shr(4, path), parent)",
        "and(xor(shr(4, path), parent), 0xffff)",
    ),
    # A child at another depth is accepted.
    SourceFault(
        "OperationsProofs.check_a_branch_takes_its_own_children_only",
        BRANCH,
        "or(xor(mload(add(child, DEPTH)), depth), xor(shr(4, path), parent))",
        "xor(shr(4, path), parent)",
    ),
    # An extension may lead to a leaf.
    SourceFault(
        "OperationsProofs.check_an_extension",
        TRIE,
        "if (child.reach() != 0) revert InvalidProof();",
        "",
    ),
    # The end of an extension is one nibble too deep.
    SourceFault(
        "OperationsProofs.check_an_extension",
        TRIE,
        "stack.push(ref, size, key, depth, reach, last);",
        "stack.push(ref, size, key, depth, reach + 1, last);",
    ),
    # An extension is hashed as a leaf.
    SourceFault("OperationsProofs.check_an_extension", TRIE, "key, depth, reach, false)", "key, depth, reach, true)"),
    # A value from 0x80 lacks the prefix of the inner string.
    SourceFault(
        "OperationsProofs.check_a_slot",
        TRIE,
        "if (value >= 0x80) end = NodeWriter.putByte(end, 0x81 + valueSize);",
        "",
    ),
    # A leaf may be deeper than the maximum.
    SourceFault(
        "OperationsProofs.check_a_slot",
        STACK,
        "size_ > 31 || depth_ > MAX_DEPTH",
        "size_ > 31 || depth_ > MAX_DEPTH + 1",
    ),
    # An account may store nothing and have no open storage.
    SourceFault(
        "OperationsProofs.check_an_account",
        STATE,
        "proof.isStorageOpen || op & STORE_ANYTHING == 0",
        "proof.isStorageOpen",
    ),
    # The storage root and the code hash are swapped.
    SourceFault(
        "OperationsProofs.check_an_account",
        TRIE,
        "end = NodeWriter.putHash(end, storageRoot);\n            end = NodeWriter.putHash(end, codeHash);",
        "end = NodeWriter.putHash(end, codeHash);\n            end = NodeWriter.putHash(end, storageRoot);",
    ),
    # A subtree is pushed without its last key.
    SourceFault(
        "OperationsProofs.check_an_empty_place",
        TRIE,
        "stack.push(EMPTY, 1, key, depth, NIBBLES, key);",
        "stack.push(EMPTY, 1, key, depth, NIBBLES, 0);",
    ),
    # A key that the extension leads to is proven absent.
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
    # A nibble below the extension is compared too.
    SourceFault(
        "OperationsProofs.check_the_same_place",
        TRIE,
        "prefix(difference, node.reach()) == 0",
        "prefix(difference, node.reach() + 1) == 0",
    ),
    # A key may be proven absent twice.
    SourceFault("OperationsProofs.check_the_same_place", TRIE, "node.setLast(key);", ""),
    # The key needn't differ from the node's own path.
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
    # A header needn't have a trusted hash.
    SourceFault(
        "FactsRegistryProofs.check_a_time_is_stored_under_a_trusted_hash_only",
        REGISTRY,
        "_checkHash(nextNumber, keccak256(next));",
        "",
    ),
    # The block before a trusted block needn't be its parent.
    SourceFault(
        "FactsRegistryProofs.check_a_time_is_stored_under_a_trusted_hash_only",
        REGISTRY,
        "keccak256(header) != parentHash || blockNumber + 1 != nextNumber",
        "blockNumber + 1 != nextNumber",
    ),
    # A block counts as the latest at the time of the next block.
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
    # A source whose answer is shorter or longer than a word is trusted.
    SourceFault(
        "FactsRegistryProofs.check_a_block_is_stored_under_a_trusted_hash_only",
        REGISTRY,
        "if and(eq(returndatasize(), 32), staticcall(gas(), source, 0, 36, 0, 32))",
        "if staticcall(gas(), source, 0, 36, 0, 32)",
    ),
    # A parent's header needn't have the hash in its child.
    SourceFault(
        "FactsRegistryProofs.check_a_block_is_stored_under_a_trusted_hash_only",
        REGISTRY,
        "headerHash != expected || (op == PARENT && blockNumber + 1 != child)",
        "op == PARENT && blockNumber + 1 != child",
    ),
    # A parent is accepted with any block number.
    SourceFault(
        "FactsRegistryProofs.check_a_block_is_stored_under_a_trusted_hash_only",
        REGISTRY,
        "headerHash != expected || (op == PARENT && blockNumber + 1 != child)",
        "headerHash != expected",
    ),
    # Block 0 may have a parent.
    SourceFault(
        "FactsRegistryProofs.check_a_block_is_stored_under_a_trusted_hash_only",
        REGISTRY,
        "|| blockNumber == 0",
        "",
    ),
    # The state root needn't be the block's.
    SourceFault(
        "FactsRegistryProofs.check_a_block_hash_is_stored_under_a_known_state_root_only",
        REGISTRY,
        "if (_proveState(blockNumber, input.cursor) != root) revert InvalidProof();",
        "_proveState(blockNumber, input.cursor);",
    ),
    # Slots of any contract may give block hashes.
    SourceFault(
        "FactsRegistryProofs.check_a_block_hash_is_stored_under_a_known_state_root_only",
        STATE,
        "!proof.isStorageOpen || proof.owner != HISTORY",
        "!proof.isStorageOpen",
    ),
    # Slots that the protocol doesn't write to may give block hashes.
    SourceFault(
        "FactsRegistryProofs.check_a_block_hash_is_stored_under_a_known_state_root_only",
        STATE,
        "if (slot >= historyWindow) revert InvalidProof();",
        "",
    ),
    # --- Facts about transactions -------------------------------------------------------------------------------------
    # The highest byte of the number of logs is lost.
    SourceFault(
        "TransactionFactsProofs.check_storing_a_receipt",
        TRANSACTION_FACTS,
        "uint256(uint32(receipt >> LOG_COUNT_SHIFT))",
        "uint256(uint24(receipt >> LOG_COUNT_SHIFT))",
    ),
    # The number of logs and the gas overlap in one bit.
    SourceFault(
        "TransactionFactsProofs.check_storing_a_receipt",
        TRANSACTION_FACTS,
        "LOG_COUNT_SHIFT = 152;",
        "LOG_COUNT_SHIFT = 153;",
    ),
    # A receipt that has no status has failed.
    SourceFault(
        "TransactionFactsProofs.check_storing_a_receipt",
        TRANSACTION_FACTS,
        "(presence == WITHOUT_STATUS && field != ReceiptField.STATUS)",
        "presence == WITHOUT_STATUS",
    ),
    SourceFault(
        "TransactionFactsProofs.check_storing_a_receipt", TRANSACTION_FACTS, "if (facts.receipt != 0) return;", ""
    ),
    SourceFault(
        "TransactionFactsProofs.check_storing_an_absent_transaction",
        TRANSACTION_FACTS,
        "if (proven && presence != ABSENT)",
        "if (proven)",
    ),
    SourceFault(
        "TransactionFactsProofs.check_storing_the_hash_of_a_log",
        TRANSACTION_FACTS,
        "value = _transactions[blockNumber][txIndex].logHashes[logIndex];",
        "value = _transactions[blockNumber][txIndex].logHashes[uint16(logIndex)];",
    ),
    SourceFault(
        "TransactionFactsProofs.check_storing_the_hash_of_a_log",
        TRANSACTION_FACTS,
        "if (hashes[logIndex] != 0) return;",
        "",
    ),
    SourceFault(
        "TransactionFactsProofs.check_storing_the_hash_of_a_transaction",
        TRANSACTION_FACTS,
        "if (facts.hash != 0) return;",
        "",
    ),
    SourceFault(
        "TransactionFactsProofs.check_both_forms_of_a_read_agree",
        TRANSACTION_FACTS,
        "if (!proven) revert LogNotProven(blockNumber, txIndex, logIndex);",
        "",
    ),
    # --- Items of RLP in calldata -------------------------------------------------------------------------------------
    SourceFault("CalldataRlpProofs.check_a_number_is_that_of_its_bytes", RLP, "shl(3, size)", "shl(2, size)"),
    # An item of 55 bytes gets a second encoding, or every longer one.
    SourceFault(
        "CalldataRlpProofs.check_an_item_is_taken_from_its_one_encoding_only",
        RLP,
        "size < 56 || number(content, 1) == 0",
        "number(content, 1) == 0",
    ),
    SourceFault(
        "CalldataRlpProofs.check_an_item_is_taken_from_its_one_encoding_only",
        RLP,
        "size < 56 || number(content, 1) == 0",
        "size < 56",
    ),
    # A byte below 0x80 gets a second encoding.
    SourceFault(
        "CalldataRlpProofs.check_an_item_is_taken_from_its_one_encoding_only",
        RLP,
        "first == STRING + 1 && number(content, 1) < STRING",
        "false",
    ),
    SourceFault(
        "CalldataRlpProofs.check_every_item_is_taken_within_its_end_only",
        RLP,
        "if (next > end) revert InvalidProof();",
        "",
    ),
    # A byte may be read where the text ends.
    SourceFault(
        "CalldataRlpProofs.check_every_item_is_taken_within_its_end_only",
        RLP,
        "if (place >= end) revert InvalidProof();",
        "",
    ),
    # A string of 55 bytes is refused.
    SourceFault(
        "CalldataRlpProofs.check_every_item_is_taken_within_its_end_only",
        RLP,
        "if (size > MAX_SHORT)",
        "if (size > MAX_SHORT - 1)",
    ),
    SourceFault(
        "CalldataRlpProofs.check_a_list_is_the_item_that_takes_all_to_the_end", RLP, "!isList || next != end", "!isList"
    ),
    SourceFault(
        "CalldataRlpProofs.check_an_integer_is_taken_from_its_one_encoding_only",
        RLP,
        "next - place > size",
        "next - place > size + 1",
    ),
    # An integer may have a leading zero.
    SourceFault(
        "CalldataRlpProofs.check_an_integer_is_taken_from_its_one_encoding_only",
        RLP,
        "if (next != place && value >> (8 * (next - place) - 8) == 0) revert InvalidProof();",
        "",
    ),
    SourceFault(
        "CalldataRlpProofs.check_a_word_is_taken_from_its_one_encoding_only",
        RLP,
        "next - place != WORD",
        "next - place < WORD",
    ),
    SourceFault(
        "CalldataRlpProofs.check_a_prefix_is_taken_from_its_one_encoding_only",
        UNBOUNDED_RLP,
        "if (size < 56) revert InvalidProof();",
        "",
    ),
    SourceFault(
        "CalldataRlpProofs.check_a_string_is_taken_from_its_one_encoding_only",
        UNBOUNDED_RLP,
        "if (size == 1 && CalldataRlp.number(content, 1) < CalldataRlp.STRING) revert InvalidProof();",
        "",
    ),
    # A string whose size takes three bytes is refused.
    SourceFault("CalldataRlpProofs.check_every_string_and_prefix_is_taken", UNBOUNDED_RLP, "form > 58", "form > 57"),
    SourceFault(
        "CalldataRlpProofs.check_an_integer_without_an_end_is_taken_from_its_one_encoding_only",
        UNBOUNDED_RLP,
        "size > 8 ||",
        "size > 9 ||",
    ),
    # --- Keys of indexes ----------------------------------------------------------------------------------------------
    SourceFault("IndexKeyProofs.check_the_key_of_an_index_is_its_rlp", WALK, "index < 0x100", "index <= 0x100"),
    # Index 128 has the key of index 0.
    SourceFault("IndexKeyProofs.check_no_key_begins_with_another", WALK, "index < 0x80", "index <= 0x80"),
    # A leaf may have a key that is no index's, of one byte, of two or of three.
    SourceFault("IndexKeyProofs.check_a_leaf_has_the_key_of_an_index_only", WALK, "key - 1 < 0x80", "key < 0x81"),
    SourceFault(
        "IndexKeyProofs.check_a_leaf_has_the_key_of_an_index_only", WALK, "key - 0x8180 < 0x80", "key - 0x8100 < 0x100"
    ),
    SourceFault(
        "IndexKeyProofs.check_a_leaf_has_the_key_of_an_index_only",
        WALK,
        "key - 0x820100 < 0xff00",
        "key - 0x820000 < 0x10000",
    ),
    # The nibbles above a leaf aren't looked at.
    SourceFault(
        "IndexKeyProofs.check_a_leaf_below_a_branch_has_the_key_of_an_index_only",
        WALK,
        "_checkKey(key >> (256 - 4 * depth) << (4 * length) | nibbles, reached);",
        "_checkKey(nibbles, length);",
    ),
    # The registry takes an index of three bytes, or one with a leading zero.
    SourceFault(
        "IndexKeyProofs.check_registry_and_walk_have_the_same_keys",
        TRANSACTIONS,
        "if (size > 2) revert InvalidProof();",
        "",
    ),
    SourceFault(
        "IndexKeyProofs.check_registry_and_walk_have_the_same_keys",
        TRANSACTIONS,
        "if (size != 0 && index >> (8 * size - 8) == 0) revert InvalidProof();",
        "",
    ),
    # The leaf's own index is proven absent.
    SourceFault(
        "IndexKeyProofs.check_an_index_is_absent_beside_another_only",
        TRANSACTIONS,
        "_wholeLeaf(stack, input);\n            PackedTrie.attach(stack, key);",
        "_wholeLeaf(stack, input);",
    ),
    # --- Receipts in plain nodes --------------------------------------------------------------------------------------
    # A status may be any byte.
    SourceFault(
        "ReceiptReaderProofs.check_a_receipt_is_taken_from_its_one_encoding_only",
        RECEIPT_FORM,
        "if (first != 0x80 && first != 0x01) revert InvalidProof();",
        "if (first == 0) revert InvalidProof();",
    ),
    # A typed receipt may have a root instead of a status.
    SourceFault(
        "ReceiptReaderProofs.check_a_receipt_is_taken_from_its_one_encoding_only",
        RECEIPT_FORM,
        "first == HASH_PREFIX && type_ == 0",
        "first == HASH_PREFIX",
    ),
    SourceFault(
        "ReceiptReaderProofs.check_a_receipt_is_taken_from_its_one_encoding_only",
        RECEIPT,
        "isList || next - place != BLOOM",
        "next - place != BLOOM",
    ),
    # A receipt of another type has more than four items.
    SourceFault(
        "ReceiptReaderProofs.check_a_receipt_is_taken_from_its_one_encoding_only",
        RECEIPT_FORM,
        "FIRST_OF_OTHER_CHAINS = 0x64;",
        "FIRST_OF_OTHER_CHAINS = 0x63;",
    ),
    SourceFault(
        "ReceiptReaderProofs.check_logs_are_taken_from_their_one_encoding_only",
        RECEIPT,
        "if (CalldataRlp.number(place, 1) != EMITTER_PREFIX) revert InvalidProof();",
        "",
    ),
    # A log may have five topics.
    SourceFault(
        "ReceiptReaderProofs.check_logs_are_taken_from_their_one_encoding_only",
        RECEIPT,
        "size > TOPICS * TOPIC || ",
        "",
    ),
    # The last log is read instead of the one in question.
    SourceFault(
        "ReceiptReaderProofs.check_logs_are_taken_from_their_one_encoding_only",
        RECEIPT,
        "count == logIndex",
        "count >= logIndex",
    ),
    # --- The reader's registries --------------------------------------------------------------------------------------
    SourceFault(
        "FactsReaderProofs.check_the_registry_of_a_chain_is_the_one_given",
        READER,
        "chainId < _entry9 >> CHAIN_SHIFT ? _entry8 : _entry9",
        "chainId < _entry9 >> CHAIN_SHIFT ? _entry9 : _entry8",
    ),
    # A chain without a registry gets another chain's.
    SourceFault(
        "FactsReaderProofs.check_the_registry_of_a_chain_is_the_one_given",
        READER,
        "entry >> CHAIN_SHIFT == chainId ? address(uint160(entry)) : address(0)",
        "address(uint160(entry))",
    ),
    # A chain may have two registries.
    SourceFault(
        "FactsReaderProofs.check_the_registry_of_a_chain_is_the_one_given",
        READER,
        "chainId <= former",
        "chainId < former",
    ),
    SourceFault(
        "FactsReaderProofs.check_other_registries_are_refused",
        READER,
        "count == 0 || count > REGISTRIES",
        "count > REGISTRIES",
    ),
    # --- State provers ------------------------------------------------------------------------------------------------
    SourceFault(
        "StateProverProofs.check_at_home_no_proof_is_taken",
        PROVER,
        "if (block.chainid == homeChainId) revert OnHomeChain();",
        "",
    ),
    SourceFault(
        "StateProverProofs.check_elsewhere_no_registry_is_asked",
        PROVER,
        "if (block.chainid != homeChainId) revert NotOnHomeChain(homeChainId);",
        "",
    ),
    # A block that the registry doesn't know has a commitment of zero.
    SourceFault(
        "StateProverProofs.check_a_commitment_is_what_the_registry_knows",
        PROVER,
        "if (commitment == 0) revert BlockNotKnown(bytes32(blockNumber));",
        "",
    ),
    SourceFault(
        "StateProverProofs.check_a_commitment_is_what_the_registry_knows",
        PROVER,
        "if (!IFactsRegistry(registry).vouches(blockNumber, commitment)) revert BlockNotKnown(commitment);",
        "",
    ),
    # Anybody may set the prover's code hash.
    SourceFault(
        "StateProverProofs.check_a_pointer_never_changes",
        POINTER,
        "    /// @inheritdoc IStateProverPointer\n    function implementationCodeHash()",
        "    function set(bytes32 codeHash) external { assembly { sstore(CODE_HASH_SLOT, codeHash) } }\n"
        "    /// @inheritdoc IStateProverPointer\n    function implementationCodeHash()",
    ),
)
