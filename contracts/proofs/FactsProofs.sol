// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {Facts} from "../src/Facts.sol";
import {PackedHeader} from "../src/PackedHeader.sol";
import {PackedTrie} from "../src/PackedTrie.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title What each write to the stored facts does to every answer, from any state of storage.
/// @dev Each check asks one question, which stands for all questions, before and after one write. What one write from
/// any state keeps, any number of writes keep.
contract FactsProofs is Facts, Symbolic {
    enum Kind {
        ACCOUNT_FIELD,
        SLOT,
        HEADER_FIELD,
        TIMESTAMP,
        STATE_ROOT,
        BLOCK_HASH
    }

    struct Question {
        Kind kind;
        address account;
        uint256 blockNumber;
        AccountField field;
        uint8 headerField;
        // A slot, a timestamp, or the hash of a block.
        uint256 slot;
    }

    struct Answer {
        bool proven;
        bytes32 value;
    }

    /// @dev Where the compiler puts the facts about accounts.
    uint256 private constant ACCOUNTS_PLACE = 1;
    /// @dev Of presence.
    uint256 private constant ABSENT = 3;
    // Both reads have one name.
    bytes4 private constant ACCOUNT_FIELD = bytes4(keccak256("accountField(address,uint256,uint8)"));
    bytes4 private constant SLOT_BY_ACCOUNT_FIELD = bytes4(keccak256("accountField(address,uint256,bytes32)"));

    function check_storing_an_account(
        Question memory asked,
        uint256 blockNumber,
        address account,
        uint8 fields,
        uint256 nonce,
        uint256 balance,
        bytes32 storageRoot,
        bytes32 codeHash
    ) external {
        vm.assume(nonce <= type(uint64).max);
        vm.assume(storageRoot != 0);
        vm.assume(codeHash != 0);
        Answer memory expected = _anyState(asked);
        uint8 needed = asked.field <= AccountField.BALANCE ? NONCE_AND_BALANCE : uint8(1 << uint8(asked.field));
        if (_both(_isAbout(asked, account, blockNumber), fields & needed != 0)) {
            bytes32 value = bytes32(nonce);
            if (asked.field == AccountField.BALANCE) value = bytes32(balance);
            if (asked.field == AccountField.STORAGE_ROOT) value = storageRoot;
            if (asked.field == AccountField.CODE_HASH) value = codeHash;
            // An account that was proven absent has neither.
            if (asked.field > AccountField.BALANCE) vm.assume(!_isAbsent(account, blockNumber));
            _becomesReadable(expected, value);
        }
        _storeAccount(blockNumber, account, fields, nonce, balance, storageRoot, codeHash);
        _assertAnswer(asked, expected);
    }

    function check_storing_an_absent_account(Question memory asked, uint256 blockNumber, address account) external {
        Answer memory expected = _anyState(asked);
        (bool exists,) = tryAccountField(account, blockNumber, AccountField.NONCE);
        if (_isAbout(asked, account, blockNumber) && !exists) {
            _becomesReadable(
                expected, asked.field == AccountField.STORAGE_ROOT ? PackedTrie.EMPTY_TRIE_ROOT : bytes32(0)
            );
        }
        _storeAbsentAccount(blockNumber, account);
        _assertAnswer(asked, expected);
    }

    function check_storing_a_slot(
        Question memory asked,
        uint256 blockNumber,
        address account,
        uint256 slot,
        uint256 value
    ) external {
        Answer memory expected = _anyState(asked);
        if (asked.kind == Kind.SLOT && asked.account == account && asked.blockNumber == blockNumber && asked.slot == slot)
        {
            // No slot is both zero and another value.
            vm.assume(!_both(_both(expected.proven, expected.value == 0), value != 0));
            _becomesReadable(expected, bytes32(value));
        }
        _storeSlot(blockNumber, account, slot, value);
        _assertAnswer(asked, expected);
    }

    function check_storing_a_field_of_a_header(
        Question memory asked,
        uint256 blockNumber,
        uint256 field,
        bytes32 value
    ) external {
        vm.assume(field < HEADER_FIELDS);
        Answer memory expected = _anyState(asked);
        bool isNew = true;
        if (_both(asked.kind == Kind.HEADER_FIELD, _both(asked.blockNumber == blockNumber, asked.headerField == field))) {
            // These two are read from what `_storeStateRoot` stores.
            if (!_both(field != PackedHeader.STATE_ROOT, field != PackedHeader.NUMBER)) return;
            isNew = !expected.proven;
            vm.assume(!_both(expected.proven, (expected.value == 0) != (value == 0)));
            _becomesReadable(expected, value);
            assert(_storeHeaderField(blockNumber, field, value) == isNew);
        } else {
            _storeHeaderField(blockNumber, field, value);
        }
        _assertAnswer(asked, expected);
    }

    function check_storing_the_block_at_a_time(Question memory asked, uint256 timestamp, uint64 blockNumber) external {
        Answer memory expected = _anyState(asked);
        if (_both(asked.kind == Kind.TIMESTAMP, asked.slot == timestamp)) {
            _becomesReadable(expected, bytes32(uint256(blockNumber)));
        }
        _storeTimestamp(timestamp, blockNumber);
        _assertAnswer(asked, expected);
    }

    function check_storing_a_state_root(Question memory asked, uint256 blockNumber, bytes32 root) external {
        vm.assume(root != 0);
        Answer memory expected = _anyState(asked);
        bytes32 known = stateRoot[blockNumber];
        vm.assume(!_both(known != 0, known != root));
        if (asked.blockNumber == blockNumber) {
            if (asked.kind == Kind.STATE_ROOT) _becomesReadable(expected, root);
            if (asked.kind == Kind.HEADER_FIELD) {
                if (asked.headerField == PackedHeader.STATE_ROOT) _becomesReadable(expected, root);
                if (asked.headerField == PackedHeader.NUMBER) _becomesReadable(expected, bytes32(blockNumber));
            }
        }
        _storeStateRoot(blockNumber, root);
        _assertAnswer(asked, expected);
    }

    function check_storing_the_hash_of_a_block(Question memory asked, bytes32 blockHash) external {
        Answer memory expected = _anyState(asked);
        if (_both(asked.kind == Kind.BLOCK_HASH, asked.slot == uint256(blockHash))) _becomesReadable(expected, 0);
        _storeBlockHash(blockHash);
        _assertAnswer(asked, expected);
    }

    /// @dev Both forms of a read answer the same. Where nothing is proven, one of them reverts and says what of.
    function check_both_forms_of_a_read_agree(Question memory asked) external {
        vm.assume(asked.kind <= Kind.TIMESTAMP);
        Answer memory answer = _anyState(asked);
        bytes memory read;
        bytes memory refusal;
        (address account, uint256 blockNumber, bytes32 slot) = (asked.account, asked.blockNumber, bytes32(asked.slot));
        if (asked.kind == Kind.ACCOUNT_FIELD) {
            read = abi.encodeWithSelector(ACCOUNT_FIELD, account, blockNumber, asked.field);
            refusal = abi.encodeWithSelector(NotProven.selector, account, blockNumber, asked.field);
        } else if (asked.kind == Kind.SLOT) {
            read = abi.encodeCall(this.accountStorageSlotValues, (account, blockNumber, slot));
            refusal = abi.encodeWithSelector(SlotNotProven.selector, account, blockNumber, slot);
            _assertRead(answer, abi.encodeWithSelector(SLOT_BY_ACCOUNT_FIELD, account, blockNumber, slot), refusal);
        } else if (asked.kind == Kind.HEADER_FIELD) {
            read = abi.encodeCall(this.headerField, (blockNumber, asked.headerField));
            refusal = abi.encodeWithSelector(HeaderFieldNotProven.selector, blockNumber, asked.headerField);
        } else {
            read = abi.encodeCall(this.blockAtTimestamp, (asked.slot));
            refusal = abi.encodeWithSelector(TimestampNotProven.selector, asked.slot);
        }
        _assertRead(answer, read, refusal);
    }

    function _assertRead(Answer memory answer, bytes memory read, bytes memory refusal) private view {
        (bool isAnswered, bytes memory told) = address(this).staticcall(read);
        assert(isAnswered == answer.proven);
        assert(keccak256(told) == keccak256(isAnswered ? abi.encode(answer.value) : refusal));
        assert(_either(isAnswered, answer.value == 0));
    }

    function _isAbout(Question memory asked, address account, uint256 blockNumber) private pure returns (bool) {
        return _both(
            asked.kind == Kind.ACCOUNT_FIELD, _both(asked.account == account, asked.blockNumber == blockNumber)
        );
    }

    function _becomesReadable(Answer memory answer, bytes32 value) private pure {
        if (!answer.proven) (answer.proven, answer.value) = (true, value);
    }

    function _anyState(Question memory asked) private returns (Answer memory) {
        svm.enableSymbolicStorage(address(this));
        vm.assume(_hasPresence(asked));
        return _answer(asked);
    }

    function _assertAnswer(Question memory asked, Answer memory expected) private view {
        Answer memory answer = _answer(asked);
        assert(_both(answer.proven == expected.proven, answer.value == expected.value));
        assert(_hasPresence(asked));
    }

    function _answer(Question memory asked) private view returns (Answer memory answer) {
        if (asked.kind == Kind.ACCOUNT_FIELD) {
            (answer.proven, answer.value) = tryAccountField(asked.account, asked.blockNumber, asked.field);
        } else if (asked.kind == Kind.SLOT) {
            (answer.proven, answer.value) =
                tryAccountStorageSlotValues(asked.account, asked.blockNumber, bytes32(asked.slot));
        } else if (asked.kind == Kind.HEADER_FIELD) {
            (answer.proven, answer.value) = tryHeaderField(asked.blockNumber, asked.headerField);
        } else if (asked.kind == Kind.TIMESTAMP) {
            uint256 blockNumber;
            (answer.proven, blockNumber) = tryBlockAtTimestamp(asked.slot);
            answer.value = bytes32(blockNumber);
        } else if (asked.kind == Kind.STATE_ROOT) {
            answer.value = stateRoot[asked.blockNumber];
            answer.proven = answer.value != 0;
        } else {
            answer.proven = _isBlockHash(bytes32(asked.slot));
        }
    }

    function _isAbsent(address account, uint256 blockNumber) private view returns (bool) {
        return _summary(account, blockNumber) >> 248 == ABSENT;
    }

    /// @dev Of every account: where nonce and balance are stored, so is its presence.
    function _hasPresence(Question memory asked) private view returns (bool) {
        uint256 summary = _summary(asked.account, asked.blockNumber);
        return !_both(summary != 0, summary >> 248 == 0);
    }

    function _summary(address account, uint256 blockNumber) private view returns (uint256 summary) {
        bytes32 place = keccak256(abi.encode(blockNumber, keccak256(abi.encode(account, ACCOUNTS_PLACE))));
        assembly {
            summary := sload(place)
        }
    }
}
