"""Faults that the proofs must notice: for each property at least one change of the contracts that makes it false.

`make prove` makes each of these changes, and expects halmos to find a counterexample. Else a property that holds
whatever the contracts do would look proven.
"""

from dataclasses import dataclass

FACTS = "src/Facts.sol"
ATTESTED = "src/AttestedBlockHashSource.sol"
HEADER = "src/PackedHeader.sol"
STACK = "src/SubtreeStack.sol"
NODE = "src/NodeWriter.sol"
STATE = "src/StateProof.sol"
TRIE = "src/PackedTrie.sol"
BRANCH = "src/BranchWriter.sol"


@dataclass(frozen=True)
class Fault:
    """One change of one source, in which `before` is exactly once, and the property that is false with it."""

    check: str
    source: str
    before: str
    after: str


FAULTS = (
    # --- Facts --------------------------------------------------------------------------------------------------------
    # A nonce is cut short.
    Fault(
        "FactsProofs.check_storing_an_account",
        FACTS,
        "uint256(uint64(summary >> NONCE_SHIFT))",
        "uint256(uint56(summary >> NONCE_SHIFT))",
    ),
    # A balance that doesn't fit beside a nonce spills into it.
    Fault("FactsProofs.check_storing_an_account", FACTS, "balance <= type(uint184).max", "balance <= 1 << 184"),
    # What is stored is stored again.
    Fault(
        "FactsProofs.check_storing_an_account",
        FACTS,
        "fields & CODE_HASH != 0 && facts.codeHash == 0",
        "fields & CODE_HASH != 0",
    ),
    # An account that exists becomes absent.
    Fault(
        "FactsProofs.check_storing_an_absent_account",
        FACTS,
        "        if (facts.summary == 0) {\n            facts.summary = ABSENT",
        "        {\n            facts.summary = ABSENT",
    ),
    Fault(
        "FactsProofs.check_storing_an_absent_account",
        FACTS,
        "value = PackedTrie.EMPTY_TRIE_ROOT",
        "value = bytes32(0)",
    ),
    # A zero slot proves its neighbour zero.
    Fault("FactsProofs.check_storing_a_slot", FACTS, "1 << (slot & 0xff)", "1 << (slot & 0xfe)"),
    Fault("FactsProofs.check_storing_a_slot", FACTS, "if (facts.slots[slot] != 0) return;", ""),
    Fault(
        "FactsProofs.check_storing_a_field_of_a_header",
        FACTS,
        "if (facts.fields[field] != 0) return false;",
        "",
    ),
    # One zero field takes the place of the others.
    Fault("FactsProofs.check_storing_a_field_of_a_header", FACTS, "zeroFields | 1 << field", "1 << field"),
    Fault(
        "FactsProofs.check_storing_the_block_at_a_time",
        FACTS,
        "if (_blocksAtTimestamps[timestamp] != 0) return;",
        "",
    ),
    # The first block of all isn't told from none.
    Fault("FactsProofs.check_storing_the_block_at_a_time", FACTS, "TIMESTAMP_PROVEN | blockNumber", "blockNumber"),
    Fault(
        "FactsProofs.check_storing_a_state_root",
        FACTS,
        "stateRoot[blockNumber] = root;",
        "stateRoot[uint64(blockNumber)] = root;",
    ),
    Fault(
        "FactsProofs.check_storing_the_hash_of_a_block",
        FACTS,
        "_blockHashes[blockHash] = true",
        "_blockHashes[blockHash >> 1 << 1] = true",
    ),
    # --- Attesters ----------------------------------------------------------------------------------------------------
    Fault(
        "AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",
        ATTESTED,
        "count < threshold",
        "count + 1 < threshold",
    ),
    # An attester may sign twice.
    Fault(
        "AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",
        ATTESTED,
        "signer <= previous",
        "signer < previous",
    ),
    # Anyone may sign.
    Fault(
        "AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",
        ATTESTED,
        "if (!isAttester[signer]) revert NotAnAttester(signer);",
        "",
    ),
    # The second valid signature passes too.
    Fault(
        "AttestedBlockHashSourceProofs.check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed",
        ATTESTED,
        "if (s <= MAX_S) signer",
        "signer",
    ),
    # The last signature isn't looked at.
    Fault(
        "AttestedBlockHashSourceProofs.check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed",
        ATTESTED,
        "place < count;",
        "place + 1 < count;",
    ),
    # Signatures of one change are good for another.
    Fault(
        "AttestedBlockHashSourceProofs.check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed",
        ATTESTED,
        "threshold_, nonce)), signatures);",
        "threshold_, uint256(0))), signatures);",
    ),
    # Who was an attester stays one.
    Fault(
        "AttestedBlockHashSourceProofs.check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed",
        ATTESTED,
        "isAttester[_attesters[place]] = false;",
        "",
    ),
    Fault(
        "AttestedBlockHashSourceProofs.check_the_first_attesters_are_those_given",
        ATTESTED,
        "threshold_ > attesters_.length",
        "threshold_ > attesters_.length + 1",
    ),
    Fault(
        "AttestedBlockHashSourceProofs.check_the_first_attesters_are_those_given",
        ATTESTED,
        "attester <= previous",
        "attester < previous",
    ),
    Fault(
        "AttestedBlockHashSourceProofs.check_no_call_changes_a_known_hash",
        ATTESTED,
        "if (known != 0) revert Conflict(blockNumber);",
        "",
    ),
    # --- Headers ------------------------------------------------------------------------------------------------------
    # A byte below 0x80 has a second encoding.
    Fault(
        "PackedHeaderProofs.check_a_string_is_taken_from_its_one_encoding_only",
        HEADER,
        "if (size == 1 && _number(content, 1) < 0x80) revert InvalidHeader();",
        "",
    ),
    # A string of 55 bytes has a second encoding.
    Fault(
        "PackedHeaderProofs.check_a_string_is_taken_from_its_one_encoding_only",
        HEADER,
        "size < 56",
        "size < 55",
    ),
    # A string goes on beyond the header's end.
    Fault(
        "PackedHeaderProofs.check_a_string_is_taken_from_its_one_encoding_only",
        HEADER,
        "if (next > end) revert InvalidHeader();",
        "",
    ),
    # A string of 256 bytes has no encoding.
    Fault("PackedHeaderProofs.check_every_string_is_taken", HEADER, "size < 256", "size <= 256"),
    # A leading zero passes.
    Fault(
        "PackedHeaderProofs.check_an_integer_is_taken_from_its_one_encoding_only",
        HEADER,
        "if (size != 0 && value >> (8 * size - 8) == 0) revert InvalidHeader();",
        "",
    ),
    # A prefix isn't looked at.
    Fault(
        "PackedHeaderProofs.check_the_first_fields_are_taken_from_their_one_encoding_only",
        HEADER,
        "|| _number(cursor + RECEIPTS_ROOT_PLACE, 1) != HASH_PREFIX",
        "",
    ),
    # The transactions' root is taken for that of the state.
    Fault(
        "PackedHeaderProofs.check_the_first_fields_are_taken_from_their_one_encoding_only",
        HEADER,
        "root = bytes32(_number(cursor + STATE_ROOT_PLACE + 1, 32));",
        "root = bytes32(_number(cursor + TRANSACTIONS_ROOT_PLACE + 1, 32));",
    ),
    # A header is longer than what was sent.
    Fault("PackedHeaderProofs.check_a_header_ends_within_calldata", HEADER, "|| end > msg.data.length", ""),
    # --- The stack ----------------------------------------------------------------------------------------------------
    # What lies below the bottom poses as subtrees.
    Fault(
        "SubtreeStackProofs.check_pop_takes_what_is_in_the_open_stack_and_nothing_else",
        STACK,
        "lt(lowest, bottom)",
        "0",
    ),
    Fault(
        "SubtreeStackProofs.check_pop_takes_what_is_in_the_open_stack_and_nothing_else",
        STACK,
        "gt(sub(count, 1), 15)",
        "gt(count, 16)",
    ),
    Fault(
        "SubtreeStackProofs.check_peek_shows_what_is_in_the_open_stack_and_nothing_else",
        STACK,
        "gt(top, STACK_END)",
        "0",
    ),
    # Only the topmost of several is looked at.
    Fault(
        "SubtreeStackProofs.check_only_shows_the_one_subtree_of_the_open_stack",
        STACK,
        "if (Subtree.unwrap(lowest) != stack.bottom) revert InvalidProof();",
        "",
    ),
    # The last subtree ends behind the zone.
    Fault(
        "SubtreeStackProofs.check_push_refuses_what_has_no_room_in_the_zone",
        STACK,
        "MemoryZones.STACK_END - MemoryZones.STACK - SUBTREE",
        "MemoryZones.STACK_END - MemoryZones.STACK - SUBTREE + 1",
    ),
    Fault(
        "SubtreeStackProofs.check_push_refuses_what_has_no_room_in_the_zone",
        STACK,
        "size_ > 31 || depth_ > MAX_DEPTH",
        "size_ > 32 || depth_ > MAX_DEPTH",
    ),
    # A word is written behind the subtree.
    Fault(
        "SubtreeStackProofs.check_push_writes_the_subtree_and_nothing_else",
        STACK,
        "mstore(add(top, 0xa0), last_)",
        "mstore(add(top, 0xc0), last_)",
    ),
    # What is below stays reachable.
    Fault(
        "SubtreeStackProofs.check_a_stack_is_opened_above_what_there_is_and_closed_to_it",
        STACK,
        "stack.bottom = stack.top;",
        "",
    ),
    # What was pushed isn't forgotten.
    Fault(
        "SubtreeStackProofs.check_a_stack_is_opened_above_what_there_is_and_closed_to_it",
        STACK,
        "stack.top = stack.bottom;",
        "",
    ),
    # --- Nodes --------------------------------------------------------------------------------------------------------
    Fault(
        "NodeWriterProofs.check_an_integer_has_as_many_bytes_as_it_needs",
        NODE,
        "size := add(size, iszero(iszero(value)))",
        "size := add(size, 1)",
    ),
    # Below the list there is room for all.
    Fault(
        "NodeWriterProofs.check_pieces_outside_of_the_longest_list_are_refused",
        NODE,
        "end - PAYLOAD > MAX_LENGTH - size",
        "end > PAYLOAD + MAX_LENGTH - size",
    ),
    Fault(
        "NodeWriterProofs.check_pieces_outside_of_the_longest_list_are_refused",
        NODE,
        "_checkRoom(end, 33);",
        "_checkRoom(end, 32);",
    ),
    Fault(
        "NodeWriterProofs.check_a_byte_is_written_and_nothing_else",
        NODE,
        "mstore8(place, value)",
        "mstore(place, shl(248, value))",
    ),
    Fault(
        "NodeWriterProofs.check_bytes_are_written_and_nothing_else",
        NODE,
        "mstore(end, word)",
        "mstore(add(end, 1), word)",
    ),
    Fault("NodeWriterProofs.check_a_hash_is_written_and_nothing_else", NODE, "mstore8(end, 0xa0)", "mstore(end, 0xa0)"),
    # An odd number of nibbles is taken for an even one.
    Fault(
        "NodeWriterProofs.check_a_path_is_written_and_nothing_else",
        NODE,
        "flags |= 0x10 | nibbles >> 252;",
        "flags |= nibbles >> 252;",
    ),
    # Zero is written as a byte.
    Fault(
        "NodeWriterProofs.check_an_integer_is_written_and_nothing_else",
        NODE,
        "value != 0 && value < 0x80",
        "value < 0x80",
    ),
    Fault(
        "NodeWriterProofs.check_a_reference_is_written_and_nothing_else",
        NODE,
        "if (size == 0) return putHash(end, ref);",
        "",
    ),
    Fault("NodeWriterProofs.check_a_list_gets_its_prefix_and_nothing_else", NODE, "length < 56", "length < 57"),
    # What lay behind the node becomes part of the reference.
    Fault(
        "NodeWriterProofs.check_a_list_gets_its_prefix_and_nothing_else",
        NODE,
        "return (ref >> rest << rest, size);",
        "return (ref, size);",
    ),
    # --- Operations ---------------------------------------------------------------------------------------------------
    # The forgery that the first version had.
    Fault("OperationsProofs.check_a_branch_takes_nothing_from_below_the_bottom", STACK, "lt(lowest, bottom)", "0"),
    Fault("OperationsProofs.check_nothing_else_takes_from_below_the_bottom", STACK, "lt(lowest, bottom)", "0"),
    # A storage is closed with a part of its trie.
    Fault(
        "OperationsProofs.check_a_storage_is_closed_with_one_subtree_only",
        TRIE,
        "if (node.depth() != 0) revert InvalidProof();",
        "",
    ),
    # Ours goes to another place.
    Fault(
        "OperationsProofs.check_a_full_branch",
        BRANCH,
        "let ours := add(add(NODE, 3), mul(33, place))",
        "let ours := add(add(NODE, 3), mul(33, and(place, 7)))",
    ),
    # A branch is hashed without its value.
    Fault("OperationsProofs.check_a_branch_of_two", BRANCH, "end := add(base, 17)", "end := add(base, 16)"),
    # Places needn't rise.
    Fault("OperationsProofs.check_a_branch_of_two", BRANCH, "if lt(place, next) { refuse() }", ""),
    # An empty place counts as a child.
    Fault("OperationsProofs.check_a_branch_of_one_is_refused", BRANCH, "gt(length, 1)", "1"),
    # A subtree of another part of the trie is taken.
    Fault(
        "OperationsProofs.check_a_branch_takes_its_own_children_only",
        BRANCH,
        "xor(shr(bits, mload(add(child, KEY))), or(parent, place))",
        "xor(and(shr(bits, mload(add(child, KEY))), 0x0f), place)",
    ),
    # An extension leads to a leaf.
    Fault(
        "OperationsProofs.check_an_extension",
        TRIE,
        "if (child.reach() != 0) revert InvalidProof();",
        "",
    ),
    # A leaf is deeper than any is.
    Fault("OperationsProofs.check_a_slot", STACK, "depth_ > MAX_DEPTH", "depth_ > MAX_DEPTH + 1"),
    # An account that stores nothing is there.
    Fault(
        "OperationsProofs.check_an_account",
        STATE,
        "proof.isStorageOpen || op & STORE_ANYTHING == 0",
        "proof.isStorageOpen",
    ),
    # Something is pushed without a key.
    Fault(
        "OperationsProofs.check_an_empty_place",
        TRIE,
        "stack.push(EMPTY, 1, key, depth, NIBBLES, key);",
        "stack.push(EMPTY, 1, key, depth, NIBBLES, 0);",
    ),
    # A key is absent where it is present.
    Fault(
        "OperationsProofs.check_the_same_place",
        TRIE,
        "|| prefix(difference, node.reach()) == 0",
        "",
    ),
    Fault(
        "OperationsProofs.check_another_extension",
        TRIE,
        "|| prefix(difference, node.reach()) == 0",
        "",
    ),
    Fault(
        "OperationsProofs.check_another_slot",
        TRIE,
        "|| prefix(difference, node.reach()) == 0",
        "",
    ),
)
