// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @title For tests only: stands in for what rollups tell of their fees for data.
/// @dev The GasPriceOracle of an OP Stack chain since Isthmus, and Arbitrum's NodeInterface.
contract FeeOracleStandIn {
    /// @notice Wei for each byte, and for each unit of gas; on Arbitrum, gas for each byte.
    uint256 public perByte;
    uint256 public perGas;
    bool public isBeforeFjord;

    function set(uint256 perByte_, uint256 perGas_, bool isBeforeFjord_) external {
        (perByte, perGas, isBeforeFjord) = (perByte_, perGas_, isBeforeFjord_);
    }

    function getL1FeeUpperBound(uint256 size) external view returns (uint256) {
        require(!isBeforeFjord);
        return size * perByte;
    }

    function getL1Fee(bytes calldata data) external view returns (uint256) {
        return data.length * perByte;
    }

    function getOperatorFee(uint256 gas) external view returns (uint256) {
        require(!isBeforeFjord);
        return gas * perGas;
    }

    function gasEstimateL1Component(address, bool, bytes calldata data)
        external
        payable
        returns (uint64, uint256, uint256)
    {
        return (uint64(data.length * perByte), 0, 0);
    }
}
