// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {CalldataRlp} from "@batch-query-service/contracts/src/CalldataRlp.sol";
import {InvalidProof} from "@batch-query-service/contracts/src/InvalidProof.sol";
import {UnboundedRlp} from "./UnboundedRlp.sol";

/// @title The parts of a receipt that depend on its transaction's type (EIP-2718), in calldata.
/// @notice Every receipt is a list of status, cumulative gas, bloom and logs, behind a byte for the type, unless that is 0.
///
///     0x00 to 0x63            those four items and no other. Ethereum has the types 0 to 4
///     0x64 to 0x7f            then any number of strings: other chains' types. The OP Stack's deposits (0x7e) have four items,
///                             or six since Canyon; Celo's 0x7b has four, or five since it is a rollup. Those of Arbitrum (0x64
///                             to 0x6a, 0x78) and Polygon (0x7f) have four
///
/// @dev The caller checks that all that is read was sent. Behind the end of calldata there are zeros.
library ReceiptForm {
    /// @dev A root instead of a status, as receipts had before Byzantium.
    uint256 internal constant NO_STATUS = 2;

    // The first type with which more than four items may come.
    uint256 private constant FIRST_OF_OTHER_CHAINS = 0x64;

    // The prefix of a string of 32 bytes.
    uint256 private constant HASH_PREFIX = 0xa0;

    /// @dev The type, and where the receipt's list begins. `02 f9 01 09 …` has the type 2, and `f9 01 09 …` 0, whose byte
    /// isn't written.
    function readType(uint256 place) internal pure returns (uint256 type_, uint256 next) {
        type_ = CalldataRlp.number(place, 1);
        if (type_ >= CalldataRlp.STRING) return (0, place);
        if (type_ == 0) revert InvalidProof();
        unchecked {
            next = place + 1;
        }
    }

    /// @dev The first item: `80` (failure, 0) or `01` (success, 1); or, before Byzantium and so without a type, a root.
    /// @return status 0, 1 or NO_STATUS.
    function readStatus(uint256 place, uint256 type_) internal pure returns (uint256 status, uint256 next) {
        unchecked {
            uint256 first = CalldataRlp.number(place, 1);
            if (first == HASH_PREFIX && type_ == 0) return (NO_STATUS, place + 33);
            if (first != 0x80 && first != 0x01) revert InvalidProof();
            return (first & 1, place + 1);
        }
    }

    /// @dev Passes what comes behind the logs, which must end where the receipt does.
    function passMore(uint256 type_, uint256 place, uint256 end) internal pure {
        unchecked {
            if (type_ >= FIRST_OF_OTHER_CHAINS) {
                while (place < end) {
                    (uint256 content, uint256 size) = UnboundedRlp.string_(place);
                    place = content + size;
                }
            }
            if (place != end) revert InvalidProof();
        }
    }
}
