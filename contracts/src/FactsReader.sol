// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IFacts} from "./IFacts.sol";
import {Receipt, ReceiptReader} from "./ReceiptReader.sol";
import {TrieWalk} from "@batch-query-service/contracts/src/TrieWalk.sol";
import {Withdrawal, WithdrawalReader} from "./WithdrawalReader.sol";

/// @title Reads the facts of all source chains, and verifies proofs in the caller's own call.
/// @notice A contract that was written for Herodotus' Satellite reads this one unchanged: same selectors, same errors.
/// There is no owner, upgrade, pause or storage: the registries are fixed for good, and facts are theirs.
/// @dev Where a registry doesn't answer, for want of gas too, every form of a read reverts. `Safe` never takes that for
/// "not saved".
contract FactsReader {
    /// @dev Fields of accounts and headers by Satellite's numbers. The first four are those of `Facts.AccountField`;
    /// after these come the fields of ApeChain's accounts, which no registry proves.
    uint8 private constant STORAGE_ROOT = 2;
    uint8 private constant CODE_HASH = 3;
    uint8 private constant LAST_ACCOUNT_FIELD = 8;
    uint8 private constant RECEIPTS_ROOT = 5;
    uint8 private constant LOGS_BLOOM = 6;
    uint8 private constant EXTRA_DATA = 12;
    uint8 private constant LAST_HEADER_FIELD = 14;

    /// @dev Satellite's reads don't know this field.
    uint8 private constant WITHDRAWALS_ROOT = 16;

    /// @dev The last field of receipts, EXISTS, by the numbers of `TransactionFacts.ReceiptField`.
    uint8 private constant LAST_RECEIPT_FIELD = 4;

    uint256 private constant REGISTRIES = 16;
    uint256 private constant CHAIN_SHIFT = 160;

    // A chain id of 96 bits above its registry's address, in rising order. Zeros come first, where there are fewer.
    uint256 private immutable _entry0;
    uint256 private immutable _entry1;
    uint256 private immutable _entry2;
    uint256 private immutable _entry3;
    uint256 private immutable _entry4;
    uint256 private immutable _entry5;
    uint256 private immutable _entry6;
    uint256 private immutable _entry7;
    uint256 private immutable _entry8;
    uint256 private immutable _entry9;
    uint256 private immutable _entry10;
    uint256 private immutable _entry11;
    uint256 private immutable _entry12;
    uint256 private immutable _entry13;
    uint256 private immutable _entry14;
    uint256 private immutable _entry15;

    /// @notice There must be 1 to 16 registries.
    error InvalidCount(uint256 count);

    /// @notice This address has no code; or the id of its source chain isn't above that of the registry before it, or
    /// takes more than 96 bits.
    error InvalidRegistry(address registry);

    /// @notice The proof shows that the block has no transaction of this index, or that its receipt has no such log.
    error NoSuchLog(uint256 chainId, uint256 blockNumber, uint256 txIndex, uint256 logIndex);

    /// @notice The proof shows that the block has no withdrawal at this place. See `withdrawalByProof`: of OP Stack chains
    /// that isn't true of any list.
    error NoSuchWithdrawal(uint256 chainId, uint256 blockNumber, uint256 place);

    /// @param registries One for each source chain, by rising chain id: one encoding for each set, and so one address.
    constructor(address[] memory registries) {
        uint256 count = registries.length;
        if (count == 0 || count > REGISTRIES) revert InvalidCount(count);
        uint256[REGISTRIES] memory entries;
        // No chain has the id zero.
        uint256 former = 0;
        for (uint256 place = 0; place < count; ++place) {
            address registry = registries[place];
            if (registry.code.length == 0) revert InvalidRegistry(registry);
            uint256 chainId = IFacts(registry).sourceChainId();
            if (chainId <= former || chainId > type(uint96).max) revert InvalidRegistry(registry);
            entries[REGISTRIES - count + place] = chainId << CHAIN_SHIFT | uint160(registry);
            former = chainId;
        }
        _entry0 = entries[0];
        _entry1 = entries[1];
        _entry2 = entries[2];
        _entry3 = entries[3];
        _entry4 = entries[4];
        _entry5 = entries[5];
        _entry6 = entries[6];
        _entry7 = entries[7];
        _entry8 = entries[8];
        _entry9 = entries[9];
        _entry10 = entries[10];
        _entry11 = entries[11];
        _entry12 = entries[12];
        _entry13 = entries[13];
        _entry14 = entries[14];
        _entry15 = entries[15];
    }

    /// @notice The registry of a source chain; zero where this reader has none.
    function registryOf(uint256 chainId) public view returns (address) {
        // The last entry whose chain isn't above this one.
        uint256 entry;
        if (chainId < _entry8 >> CHAIN_SHIFT) {
            if (chainId < _entry4 >> CHAIN_SHIFT) {
                if (chainId < _entry2 >> CHAIN_SHIFT) entry = chainId < _entry1 >> CHAIN_SHIFT ? _entry0 : _entry1;
                else entry = chainId < _entry3 >> CHAIN_SHIFT ? _entry2 : _entry3;
            } else {
                if (chainId < _entry6 >> CHAIN_SHIFT) entry = chainId < _entry5 >> CHAIN_SHIFT ? _entry4 : _entry5;
                else entry = chainId < _entry7 >> CHAIN_SHIFT ? _entry6 : _entry7;
            }
        } else {
            if (chainId < _entry12 >> CHAIN_SHIFT) {
                if (chainId < _entry10 >> CHAIN_SHIFT) entry = chainId < _entry9 >> CHAIN_SHIFT ? _entry8 : _entry9;
                else entry = chainId < _entry11 >> CHAIN_SHIFT ? _entry10 : _entry11;
            } else {
                if (chainId < _entry14 >> CHAIN_SHIFT) entry = chainId < _entry13 >> CHAIN_SHIFT ? _entry12 : _entry13;
                else entry = chainId < _entry15 >> CHAIN_SHIFT ? _entry14 : _entry15;
            }
        }
        return entry >> CHAIN_SHIFT == chainId ? address(uint160(entry)) : address(0);
    }

    // --- Facts ------------------------------------------------------------------------------------------------------

    /// @notice A field of a block's header, by its place in the RLP. Registries hold the hashes of LOGS_BLOOM (6) and
    /// EXTRA_DATA (12), which Satellite's readers don't expect: these two are never saved here.
    /// @dev Reverts with STORAGE_PROOF_HEADER_FIELD_NOT_SAVED, and without a reason from place 15 on.
    function headerField(uint256 chainId, uint256 blockNumber, uint8 field) public view returns (bytes32) {
        (bool saved, bytes32 value) = headerFieldSafe(chainId, blockNumber, field);
        require(saved, "STORAGE_PROOF_HEADER_FIELD_NOT_SAVED");
        return value;
    }

    /// @notice As `headerField`, but answers (false, 0) where nothing is proven.
    function headerFieldSafe(uint256 chainId, uint256 blockNumber, uint8 field) public view returns (bool, bytes32) {
        // A place that Satellite doesn't know.
        if (field > LAST_HEADER_FIELD) revert();
        address registry = registryOf(chainId);
        if (registry == address(0) || field == LOGS_BLOOM || field == EXTRA_DATA) return (false, 0);
        return _ask(registry, IFacts.tryHeaderField.selector, blockNumber, field, 0);
    }

    /// @notice NONCE (0), BALANCE (1), STORAGE_ROOT (2) or CODE_HASH (3) of an account. Of an absent one: zeros, and
    /// the hashes of the empty trie and of no code. (Registries answer a code hash of zero then.)
    /// @dev Reverts with STORAGE_PROOF_ACCOUNT_FIELD_NOT_SAVED, also for the fields of ApeChain's accounts (4 to 8);
    /// and without a reason beyond.
    function accountField(uint256 chainId, uint256 blockNumber, address account, uint8 field)
        public
        view
        returns (bytes32)
    {
        (bool saved, bytes32 value) = accountFieldSafe(chainId, blockNumber, account, field);
        require(saved, "STORAGE_PROOF_ACCOUNT_FIELD_NOT_SAVED");
        return value;
    }

    /// @notice As `accountField`, but answers (false, 0) where nothing is proven.
    function accountFieldSafe(uint256 chainId, uint256 blockNumber, address account, uint8 field)
        public
        view
        returns (bool saved, bytes32 value)
    {
        if (field > LAST_ACCOUNT_FIELD) revert();
        address registry = registryOf(chainId);
        if (registry == address(0) || field > CODE_HASH) return (false, 0);
        (saved, value) = _ask(registry, IFacts.tryAccountField.selector, uint160(account), blockNumber, field);
        if (saved && field == CODE_HASH && value == 0) value = TrieWalk.EMPTY_CODE_HASH;
    }

    /// @notice The value of a storage slot; zero if the slot, or the account, doesn't exist.
    /// @dev Reverts with STORAGE_PROOF_SLOT_NOT_SAVED.
    function storageSlot(uint256 chainId, uint256 blockNumber, address account, bytes32 slot)
        public
        view
        returns (bytes32)
    {
        (bool saved, bytes32 value) = storageSlotSafe(chainId, blockNumber, account, slot);
        require(saved, "STORAGE_PROOF_SLOT_NOT_SAVED");
        return value;
    }

    /// @notice As `storageSlot`, but answers (false, 0) where nothing is proven.
    function storageSlotSafe(uint256 chainId, uint256 blockNumber, address account, bytes32 slot)
        public
        view
        returns (bool, bytes32)
    {
        address registry = registryOf(chainId);
        if (registry == address(0)) return (false, 0);
        bytes4 selector = IFacts.tryAccountStorageSlotValues.selector;
        return _ask(registry, selector, uint160(account), blockNumber, uint256(slot));
    }

    /// @notice The latest block whose timestamp isn't after `time` (seconds since 1970).
    /// @dev Reverts with STORAGE_PROOF_TIMESTAMP_NOT_SAVED.
    function timestamp(uint256 chainId, uint256 time) external view returns (uint256) {
        (bool saved, uint256 blockNumber) = timestampSafe(chainId, time);
        require(saved, "STORAGE_PROOF_TIMESTAMP_NOT_SAVED");
        return blockNumber;
    }

    /// @notice As `timestamp`, but answers (false, 0) where nothing is proven.
    function timestampSafe(uint256 chainId, uint256 time) public view returns (bool saved, uint256 blockNumber) {
        address registry = registryOf(chainId);
        if (registry == address(0)) return (false, 0);
        bytes32 value;
        (saved, value) = _ask(registry, IFacts.tryBlockAtTimestamp.selector, time, 0, 0);
        blockNumber = uint256(value);
    }

    /// @notice A field of a transaction's receipt: STATUS (0), TYPE (1), CUMULATIVE_GAS_USED (2), LOG_COUNT (3), or
    /// EXISTS (4), which is 1, or 0 where the trie of receipts has none at this index.
    /// @dev Reverts with STORAGE_PROOF_RECEIPT_FIELD_NOT_SAVED, also for the STATUS of a receipt that has none, from
    /// before Byzantium; and without a reason for other fields. Satellite has none of the reads of transactions. A
    /// registry of a version before 0.3.0 hasn't either: then each form reverts with that registry's error. Indexes
    /// have 32 bits: beyond, each form reverts without a reason.
    function receiptField(uint256 chainId, uint256 blockNumber, uint256 txIndex, uint8 field)
        external
        view
        returns (bytes32)
    {
        (bool saved, bytes32 value) = receiptFieldSafe(chainId, blockNumber, txIndex, field);
        require(saved, "STORAGE_PROOF_RECEIPT_FIELD_NOT_SAVED");
        return value;
    }

    /// @notice As `receiptField`, but answers (false, 0) where nothing is proven.
    function receiptFieldSafe(uint256 chainId, uint256 blockNumber, uint256 txIndex, uint8 field)
        public
        view
        returns (bool, bytes32)
    {
        if (field > LAST_RECEIPT_FIELD) revert();
        return _askOf(chainId, IFacts.tryReceiptField.selector, blockNumber, txIndex, field);
    }

    /// @notice The hash of a log: `keccak256(abi.encodePacked(uint256(uint160(emitter)), topics, keccak256(data)))`, where
    /// `topics` is a `bytes32[]`.
    /// @param logIndex Counted from 0 within the receipt, not within the block.
    /// @dev Reverts with STORAGE_PROOF_LOG_NOT_SAVED; and as `receiptField` by its registry and its indexes.
    function logHash(uint256 chainId, uint256 blockNumber, uint256 txIndex, uint256 logIndex)
        external
        view
        returns (bytes32)
    {
        (bool saved, bytes32 value) = logHashSafe(chainId, blockNumber, txIndex, logIndex);
        require(saved, "STORAGE_PROOF_LOG_NOT_SAVED");
        return value;
    }

    /// @notice As `logHash`, but answers (false, 0) where nothing is proven.
    function logHashSafe(uint256 chainId, uint256 blockNumber, uint256 txIndex, uint256 logIndex)
        public
        view
        returns (bool, bytes32)
    {
        return _askOf(chainId, IFacts.tryLogHash.selector, blockNumber, txIndex, logIndex);
    }

    /// @notice The hash of what the trie of transactions holds at an index. Nodes tell another one of type 0x78.
    /// @dev Reverts with STORAGE_PROOF_TRANSACTION_NOT_SAVED; and as `receiptField` by its registry and its index.
    function transactionHash(uint256 chainId, uint256 blockNumber, uint256 txIndex) external view returns (bytes32) {
        (bool saved, bytes32 value) = transactionHashSafe(chainId, blockNumber, txIndex);
        require(saved, "STORAGE_PROOF_TRANSACTION_NOT_SAVED");
        return value;
    }

    /// @notice As `transactionHash`, but answers (false, 0) where nothing is proven.
    function transactionHashSafe(uint256 chainId, uint256 blockNumber, uint256 txIndex)
        public
        view
        returns (bool, bytes32)
    {
        return _askOf(chainId, IFacts.tryTransactionHash.selector, blockNumber, txIndex, 0);
    }

    /// @dev As `_ask`, by a chain's registry; nothing is saved where there is none.
    function _askOf(uint256 chainId, bytes4 selector, uint256 first, uint256 second, uint256 third)
        private
        view
        returns (bool, bytes32)
    {
        address registry = registryOf(chainId);
        if (registry == address(0)) return (false, 0);
        return _ask(registry, selector, first, second, third);
    }

    /// @dev What a registry answers to a `try...` function. Arguments that it doesn't have are ignored. Reverts with
    /// the registry's data where it fails, and where it doesn't answer two words: an address without code, for example.
    function _ask(address registry, bytes4 selector, uint256 first, uint256 second, uint256 third)
        private
        view
        returns (bool saved, bytes32 value)
    {
        assembly ("memory-safe") {
            // Memory that isn't allocated takes the call, and the scratch space the answer.
            let free := mload(0x40)
            mstore(free, selector)
            mstore(add(free, 4), first)
            mstore(add(free, 36), second)
            mstore(add(free, 68), third)
            // (Arguments are evaluated from the right: the call comes first.)
            if iszero(and(eq(returndatasize(), 64), staticcall(gas(), registry, free, 100, 0, 64))) {
                returndatacopy(free, 0, returndatasize())
                revert(free, returndatasize())
            }
            saved := iszero(iszero(mload(0)))
            value := mload(32)
        }
    }

    // --- The order of arguments that Satellite had before May 2025 --------------------------------------------------

    function accountField(uint256 chainId, address account, uint256 blockNumber, uint8 field)
        external
        view
        returns (bytes32)
    {
        return accountField(chainId, blockNumber, account, field);
    }

    function accountFieldSafe(uint256 chainId, address account, uint256 blockNumber, uint8 field)
        external
        view
        returns (bool, bytes32)
    {
        return accountFieldSafe(chainId, blockNumber, account, field);
    }

    function storageSlot(uint256 chainId, address account, uint256 blockNumber, bytes32 slot)
        external
        view
        returns (bytes32)
    {
        return storageSlot(chainId, blockNumber, account, slot);
    }

    function storageSlotSafe(uint256 chainId, address account, uint256 blockNumber, bytes32 slot)
        external
        view
        returns (bool, bytes32)
    {
        return storageSlotSafe(chainId, blockNumber, account, slot);
    }

    // --- Proofs in the caller's own call ----------------------------------------------------------------------------
    //
    // A proof is one RLP list: the nodes that `eth_getProof` gives, root first, each as a byte string. Those of receipts
    // and withdrawals come from the trie that all of the block make. A proof that isn't exactly that reverts with InvalidProof.

    /// @notice The value of a slot that is shown under the STORAGE_ROOT of the account, which must be a fact; zero
    /// where the proof shows that there is none.
    /// @dev Reverts with STORAGE_PROOF_ACCOUNT_FIELD_NOT_SAVED where the root is no fact.
    function slotByProof(uint256 chainId, uint256 blockNumber, address account, bytes32 slot, bytes calldata proof)
        external
        view
        returns (bytes32)
    {
        return verifyOnlyStorage(slot, accountField(chainId, blockNumber, account, STORAGE_ROOT), proof);
    }

    /// @notice An account that is shown under the state root of a block, whose header must be accumulated. Answers as
    /// `verifyOnlyAccount`.
    /// @dev Reverts with STORAGE_PROOF_HEADER_FIELD_NOT_SAVED where it isn't.
    function accountByProof(uint256 chainId, uint256 blockNumber, address account, bytes calldata proof)
        external
        view
        returns (uint256 nonce, uint256 balance, bytes32 codeHash, bytes32 storageRoot)
    {
        address registry = registryOf(chainId);
        bytes32 root = registry == address(0) ? bytes32(0) : IFacts(registry).stateRoot(blockNumber);
        require(root != 0, "STORAGE_PROOF_HEADER_FIELD_NOT_SAVED");
        return verifyOnlyAccount(chainId, account, root, proof);
    }

    /// @notice The receipt of a transaction that is shown under the receipts' root (header field 5), which must be a fact.
    /// @param txIndex Counted from 0 within the block, 65,535 at most. All is zero where the proof shows that the block has no
    /// transaction of this index.
    /// @dev Reverts with STORAGE_PROOF_HEADER_FIELD_NOT_SAVED where the root is no fact.
    function receiptByProof(uint256 chainId, uint256 blockNumber, uint256 txIndex, bytes calldata proof)
        external
        view
        returns (Receipt memory receipt)
    {
        (receipt,,) = ReceiptReader.read(proof, headerField(chainId, blockNumber, RECEIPTS_ROOT), txIndex, 0);
    }

    /// @notice A log of a transaction that is shown as by `receiptByProof`. The status isn't looked at.
    /// @param logIndex Counted from 0 within the receipt, not within the block.
    /// @dev Reverts with NoSuchLog where the proof shows that there is none, and else as `receiptByProof`.
    function logByProof(
        uint256 chainId,
        uint256 blockNumber,
        uint256 txIndex,
        uint256 logIndex,
        bytes calldata proof
    ) external view returns (address emitter, bytes32[] memory topics, bytes memory data) {
        bytes32 root = headerField(chainId, blockNumber, RECEIPTS_ROOT);
        (, uint256 place, uint256 end) = ReceiptReader.read(proof, root, txIndex, logIndex);
        if (end == 0) revert NoSuchLog(chainId, blockNumber, txIndex, logIndex);
        return ReceiptReader.logItems(place, end);
    }

    /// @notice A withdrawal from the beacon chain (EIP-4895) that is shown under the withdrawals' root (header field 16),
    /// which must be a fact.
    ///
    /// On OP Stack chains since Isthmus this field is another root: that of the storage of the contract which passes
    /// messages to the chain below. There no withdrawal can be shown, but every place can be shown absent: never take
    /// NoSuchWithdrawal for an answer about such a chain.
    /// @param place Counted from 0 within the block, 65,535 at most. (The withdrawal's index counts over all blocks.)
    /// @return index Counted over all blocks, from 0.
    /// @return validatorIndex The validator's index.
    /// @return recipient The account whose balance the withdrawal raised.
    /// @return amount In Gwei, which is 10^9 wei. On Gnosis it is GNO that is paid, by that chain's own rule.
    /// @dev Reverts with STORAGE_PROOF_HEADER_FIELD_NOT_SAVED where the root is no fact, and with NoSuchWithdrawal where the
    /// proof shows that there is none. A withdrawal of less than 29 bytes, and one beside it, reverts with InvalidProof.
    function withdrawalByProof(uint256 chainId, uint256 blockNumber, uint256 place, bytes calldata proof)
        external
        view
        returns (uint64 index, uint64 validatorIndex, address recipient, uint64 amount)
    {
        (bool saved, bytes32 root) = _askOf(chainId, IFacts.tryHeaderField.selector, blockNumber, WITHDRAWALS_ROOT, 0);
        require(saved, "STORAGE_PROOF_HEADER_FIELD_NOT_SAVED");
        Withdrawal memory withdrawal = WithdrawalReader.read(proof, root, place);
        if (!withdrawal.exists) revert NoSuchWithdrawal(chainId, blockNumber, place);
        return (withdrawal.index, withdrawal.validatorIndex, withdrawal.recipient, withdrawal.amount);
    }

    /// @notice The value of a slot under a storage root; zero where the proof shows that there is none.
    /// @dev It is as true as the root. Whoever takes the root from the caller is robbed: `slotByProof` looks it up.
    function verifyOnlyStorage(bytes32 slot, bytes32 storageRoot, bytes calldata proof) public pure returns (bytes32) {
        return bytes32(TrieWalk.slotValue(proof, storageRoot, slot));
    }

    /// @notice The items of an account under a state root. Of an account that the proof shows absent: zeros, the
    /// keccak256 of nothing, and the root of the empty trie.
    /// @dev It is as true as the root, as with `verifyOnlyStorage`. The chain's id, Satellite's first argument, makes
    /// no difference: accounts of another form than Ethereum's (ApeChain's) are refused.
    function verifyOnlyAccount(uint256, address account, bytes32 stateRoot, bytes calldata proof)
        public
        pure
        returns (uint256 nonce, uint256 balance, bytes32 codeHash, bytes32 storageRoot)
    {
        (nonce, balance, storageRoot, codeHash) = TrieWalk.accountItems(proof, stateRoot, account);
    }

    /// @notice Reverts unless a time is from `timeLow` on and before `timeHigh`, which the caller must know to be the
    /// timestamps of block `blockLow` and the one after it.
    function verifyOnlyTimestamp(uint256 time, uint256 blockLow, uint256 timeLow, uint256 timeHigh) external pure {
        require(blockLow != type(uint256).max, "STORAGE_PROOF_BLOCK_NUMBER_TOO_HIGH");
        require(timeLow <= time && time < timeHigh, "STORAGE_PROOF_TIMESTAMP_NOT_BETWEEN_BLOCKS");
    }
}
