// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// @title Reads proven facts of several source chains, and verifies proofs in the caller's own call.
/// @notice The reads of headers, accounts, slots and times are those of Herodotus' Satellite. Each reverts with a text where
/// nothing is proven; its form with `Safe` answers (false, 0) then.
interface IFactsReader {
    /// @param exists Whether the block has a transaction of the index. If not, all is zero.
    /// @param hasStatus Whether the receipt has a status, which receipts before Byzantium don't.
    /// @param status 1 (success) or 0; 0 without a status, too.
    /// @param transactionType The type (EIP-2718).
    /// @param cumulativeGasUsed Gas of the block's transactions up to this one, with it.
    struct Receipt {
        bool exists;
        bool hasStatus;
        uint8 status;
        uint8 transactionType;
        uint64 cumulativeGasUsed;
        uint32 logCount;
    }

    /// @notice A proof isn't exactly the nodes on the way to what it shows, each in its only encoding.
    error InvalidProof();

    /// @notice The proof shows that the block has no transaction of this index, or that its receipt has no such log.
    error NoSuchLog(uint256 chainId, uint256 blockNumber, uint256 txIndex, uint256 logIndex);

    /// @notice The proof shows that the block has no withdrawal at this place. On OP Stack chains since Isthmus that can be
    /// shown of every place, and means nothing.
    error NoSuchWithdrawal(uint256 chainId, uint256 blockNumber, uint256 place);

    /// @notice The facts registry of a source chain; zero where this reader has none.
    function registryOf(uint256 chainId) external view returns (address);

    /// @param field The place in the header's RLP: 0 to 14, but 6 and 12 are never saved.
    function headerField(uint256 chainId, uint256 blockNumber, uint8 field) external view returns (bytes32);
    function headerFieldSafe(uint256 chainId, uint256 blockNumber, uint8 field) external view returns (bool, bytes32);

    /// @param field NONCE 0, BALANCE 1 (wei), STORAGE_ROOT 2, CODE_HASH 3.
    function accountField(uint256 chainId, uint256 blockNumber, address account, uint8 field)
        external
        view
        returns (bytes32);
    function accountFieldSafe(uint256 chainId, uint256 blockNumber, address account, uint8 field)
        external
        view
        returns (bool, bytes32);

    function storageSlot(uint256 chainId, uint256 blockNumber, address account, bytes32 slot)
        external
        view
        returns (bytes32);
    function storageSlotSafe(uint256 chainId, uint256 blockNumber, address account, bytes32 slot)
        external
        view
        returns (bool, bytes32);

    /// @notice The latest block whose timestamp isn't after `time` (seconds since 1970).
    function timestamp(uint256 chainId, uint256 time) external view returns (uint256 blockNumber);
    function timestampSafe(uint256 chainId, uint256 time) external view returns (bool, uint256 blockNumber);

    /// @param field STATUS 0, TYPE 1, CUMULATIVE_GAS_USED 2, LOG_COUNT 3, EXISTS 4.
    function receiptField(uint256 chainId, uint256 blockNumber, uint256 txIndex, uint8 field)
        external
        view
        returns (bytes32);
    function receiptFieldSafe(uint256 chainId, uint256 blockNumber, uint256 txIndex, uint8 field)
        external
        view
        returns (bool, bytes32);

    /// @notice `keccak256(abi.encodePacked(uint256(uint160(emitter)), topics, keccak256(data)))` of a log, where `topics` is
    /// a `bytes32[]`. `logIndex` counts within the receipt.
    function logHash(uint256 chainId, uint256 blockNumber, uint256 txIndex, uint256 logIndex)
        external
        view
        returns (bytes32);
    function logHashSafe(uint256 chainId, uint256 blockNumber, uint256 txIndex, uint256 logIndex)
        external
        view
        returns (bool, bytes32);

    function transactionHash(uint256 chainId, uint256 blockNumber, uint256 txIndex) external view returns (bytes32);
    function transactionHashSafe(uint256 chainId, uint256 blockNumber, uint256 txIndex)
        external
        view
        returns (bool, bytes32);

    // --- Proofs in the caller's own call, under roots that are facts ---------------------------------------------------

    /// @notice The value of a slot under the account's STORAGE_ROOT, which must be a fact; zero if the proof shows that
    /// there is none.
    /// @param proof One RLP list of the nodes of `eth_getProof`, each as a byte string, the root first. Nodes behind it of
    /// less than 32 bytes are left out, because they are in the node above.
    function slotByProof(uint256 chainId, uint256 blockNumber, address account, bytes32 slot, bytes calldata proof)
        external
        view
        returns (bytes32);

    /// @notice An account under the state root of a block whose header was accumulated. Of an absent one: zeros, the
    /// keccak256 of nothing, and the root of the empty trie.
    function accountByProof(uint256 chainId, uint256 blockNumber, address account, bytes calldata proof)
        external
        view
        returns (uint256 nonce, uint256 balance, bytes32 codeHash, bytes32 storageRoot);

    /// @notice The receipt of a transaction under the receipts' root (header field 5), which must be a fact.
    /// @param proof As `slotByProof`, of the trie that all receipts of the block make.
    function receiptByProof(uint256 chainId, uint256 blockNumber, uint256 txIndex, bytes calldata proof)
        external
        view
        returns (Receipt memory receipt);

    /// @notice A log of a receipt that is shown as by `receiptByProof`. The status isn't looked at.
    /// @param logIndex Counted from 0 within the receipt, not within the block.
    function logByProof(
        uint256 chainId,
        uint256 blockNumber,
        uint256 txIndex,
        uint256 logIndex,
        bytes calldata proof
    ) external view returns (address emitter, bytes32[] memory topics, bytes memory data);

    /// @notice A withdrawal from the beacon chain (EIP-4895) under the withdrawals' root (header field 16), which must be a
    /// fact. On OP Stack chains since Isthmus this field is the root of a contract's storage: there no withdrawal can be
    /// shown, but every place can be shown absent (NoSuchWithdrawal). The amount is in Gwei, which is 10^9 wei; on Gnosis it
    /// is GNO that is paid, by that chain's own rule.
    /// @param place Counted from 0 within the block. The withdrawal's index counts over all blocks: where a withdrawal must
    /// count once, remember its index.
    /// @param proof As `slotByProof`, of the trie that all withdrawals of the block make.
    function withdrawalByProof(uint256 chainId, uint256 blockNumber, uint256 place, bytes calldata proof)
        external
        view
        returns (uint64 index, uint64 validatorIndex, address recipient, uint64 amount);

    // --- Proofs under a root that the caller knows to be true: never one that somebody else gives ----------------------

    /// @notice As `slotByProof`, under this storage root.
    function verifyOnlyStorage(bytes32 slot, bytes32 storageRoot, bytes calldata proof) external pure returns (bytes32);

    /// @notice As `accountByProof`, under this state root. The chain's id makes no difference.
    function verifyOnlyAccount(uint256 chainId, address account, bytes32 stateRoot, bytes calldata proof)
        external
        pure
        returns (uint256 nonce, uint256 balance, bytes32 codeHash, bytes32 storageRoot);

    /// @notice Reverts unless a time is from `timeLow` on and before `timeHigh`: the timestamps of block `blockLow` and of
    /// the one after it.
    function verifyOnlyTimestamp(uint256 time, uint256 blockLow, uint256 timeLow, uint256 timeHigh) external pure;
}
