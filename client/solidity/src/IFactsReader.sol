// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// @title Reads proven facts of several source chains, and verifies proofs in the caller's own call.
/// @notice The reads are those of Herodotus' Satellite. Each reverts with a text where nothing is proven; its form with
/// `Safe` answers (false, 0) then.
interface IFactsReader {
    /// @notice A proof isn't exactly the nodes on the way to what it shows, each in its only encoding.
    error InvalidProof();

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
}
