// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

enum SatelliteAccountField {
    NONCE,
    BALANCE,
    STORAGE_ROOT,
    CODE_HASH,
    APE_FLAGS,
    APE_FIXED,
    APE_SHARES,
    APE_DEBT,
    APE_DELEGATE
}

enum SatelliteHeaderField {
    PARENT_HASH,
    OMMERS_HASH,
    BENEFICIARY,
    STATE_ROOT,
    TRANSACTIONS_ROOT,
    RECEIPTS_ROOT,
    LOGS_BLOOM,
    DIFFICULTY,
    NUMBER,
    GAS_LIMIT,
    GAS_USED,
    TIMESTAMP,
    EXTRA_DATA,
    MIX_HASH,
    NONCE
}

/// @notice Satellite's reads, as its users declare them. Nothing here is of this project.
interface ISatellite {
    function headerField(uint256 chainId, uint256 blockNumber, SatelliteHeaderField field)
        external
        view
        returns (bytes32);
    function headerFieldSafe(uint256 chainId, uint256 blockNumber, SatelliteHeaderField field)
        external
        view
        returns (bool, bytes32);
    function accountField(uint256 chainId, uint256 blockNumber, address account, SatelliteAccountField field)
        external
        view
        returns (bytes32);
    function accountFieldSafe(uint256 chainId, uint256 blockNumber, address account, SatelliteAccountField field)
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
    function timestamp(uint256 chainId, uint256 time) external view returns (uint256);
    function timestampSafe(uint256 chainId, uint256 time) external view returns (bool, uint256);
}

/// @notice Reads whose arguments had another order before May 2025.
interface IEarlierSatellite {
    function accountField(uint256 chainId, address account, uint256 blockNumber, SatelliteAccountField field)
        external
        view
        returns (bytes32);
    function accountFieldSafe(uint256 chainId, address account, uint256 blockNumber, SatelliteAccountField field)
        external
        view
        returns (bool, bytes32);
    function storageSlot(uint256 chainId, address account, uint256 blockNumber, bytes32 slot)
        external
        view
        returns (bytes32);
    function storageSlotSafe(uint256 chainId, address account, uint256 blockNumber, bytes32 slot)
        external
        view
        returns (bool, bytes32);
}

/// @title A contract that was written for Satellite, and reads one fact in each way.
contract SatelliteReads {
    struct Place {
        uint256 chainId;
        uint256 blockNumber;
        uint256 time;
        address account;
        bytes32 slot;
    }

    ISatellite private immutable _satellite;
    IEarlierSatellite private immutable _earlier;

    constructor(address satellite) {
        _satellite = ISatellite(satellite);
        _earlier = IEarlierSatellite(satellite);
    }

    /// @return facts The timestamp of the block, the balance, the slot, and the block at the time; then the balance and
    /// the slot by the earlier order of arguments.
    function read(Place calldata place) external view returns (bytes32[6] memory facts) {
        facts[0] = _satellite.headerField(place.chainId, place.blockNumber, SatelliteHeaderField.TIMESTAMP);
        facts[1] =
            _satellite.accountField(place.chainId, place.blockNumber, place.account, SatelliteAccountField.BALANCE);
        facts[2] = _satellite.storageSlot(place.chainId, place.blockNumber, place.account, place.slot);
        facts[3] = bytes32(_satellite.timestamp(place.chainId, place.time));
        facts[4] =
            _earlier.accountField(place.chainId, place.account, place.blockNumber, SatelliteAccountField.BALANCE);
        facts[5] = _earlier.storageSlot(place.chainId, place.account, place.blockNumber, place.slot);
    }

    function readSafe(Place calldata place) external view returns (bool[6] memory saved, bytes32[6] memory facts) {
        uint256 blockNumber;
        (saved[0], facts[0]) =
            _satellite.headerFieldSafe(place.chainId, place.blockNumber, SatelliteHeaderField.TIMESTAMP);
        (saved[1], facts[1]) =
            _satellite.accountFieldSafe(place.chainId, place.blockNumber, place.account, SatelliteAccountField.BALANCE);
        (saved[2], facts[2]) = _satellite.storageSlotSafe(place.chainId, place.blockNumber, place.account, place.slot);
        (saved[3], blockNumber) = _satellite.timestampSafe(place.chainId, place.time);
        facts[3] = bytes32(blockNumber);
        (saved[4], facts[4]) =
            _earlier.accountFieldSafe(place.chainId, place.account, place.blockNumber, SatelliteAccountField.BALANCE);
        (saved[5], facts[5]) = _earlier.storageSlotSafe(place.chainId, place.account, place.blockNumber, place.slot);
    }

    /// @return reasons The texts that the reads revert with, in the order of `read`.
    function reasonsOf(Place calldata place) external view returns (string[6] memory reasons) {
        try _satellite.headerField(place.chainId, place.blockNumber, SatelliteHeaderField.TIMESTAMP) {}
        catch Error(string memory reason) {
            reasons[0] = reason;
        }
        try _satellite.accountField(place.chainId, place.blockNumber, place.account, SatelliteAccountField.BALANCE) {}
        catch Error(string memory reason) {
            reasons[1] = reason;
        }
        try _satellite.storageSlot(place.chainId, place.blockNumber, place.account, place.slot) {}
        catch Error(string memory reason) {
            reasons[2] = reason;
        }
        try _satellite.timestamp(place.chainId, place.time) {}
        catch Error(string memory reason) {
            reasons[3] = reason;
        }
        try _earlier.accountField(place.chainId, place.account, place.blockNumber, SatelliteAccountField.BALANCE) {}
        catch Error(string memory reason) {
            reasons[4] = reason;
        }
        try _earlier.storageSlot(place.chainId, place.account, place.blockNumber, place.slot) {}
        catch Error(string memory reason) {
            reasons[5] = reason;
        }
    }
}
