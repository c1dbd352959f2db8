// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {AttestedBlockHashSource} from "../src/AttestedBlockHashSource.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title The attested source believes enough present attesters, and nobody else.
/// @dev Who recovers from a signature is left open by halmos: anyone may, the zero address included, but always the same
/// from the same digest and signature.
contract AttestedBlockHashSourceProofs is Symbolic {
    uint256 private constant SOURCE_CHAIN_ID = 1;
    uint256 private constant MAX_S = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0;

    /// @dev Where the compiler puts the number of attesters.
    bytes32 private constant ATTESTERS_PLACE = bytes32(uint256(2));

    AttestedBlockHashSource private source;

    function setUp() external {
        address[] memory attesters = new address[](1);
        attesters[0] = address(1);
        source = new AttestedBlockHashSource(SOURCE_CHAIN_ID, attesters, 1);
    }

    /// @dev From any state, with any number of attesters.
    /// @custom:halmos --array-lengths signatures={0,1,64,65,66,130,195,260,325}
    function check_a_hash_is_stored_if_and_only_if_enough_attesters_have_signed(
        uint256 blockNumber,
        bytes32 blockHash,
        bytes memory signatures
    ) external {
        svm.enableSymbolicStorage(address(source));
        bytes32 known = source.blockHash(blockNumber);
        bool signed = _areSigned(
            keccak256(
                abi.encode(
                    keccak256("BlockHash(uint256 sourceChainId,uint256 blockNumber,bytes32 blockHash)"),
                    SOURCE_CHAIN_ID,
                    blockNumber,
                    blockHash
                )
            ),
            signatures
        );
        bool expected = signed && blockHash != 0 && (known == 0 || known == blockHash);
        try source.attest(blockNumber, blockHash, signatures) {
            assert(expected);
            assert(source.blockHash(blockNumber) == blockHash);
        } catch {
            assert(!expected);
        }
    }

    /// @dev At most three attesters before. The new attesters, and the one that is read afterwards, are symbolic.
    /// @custom:halmos --array-lengths signatures={65,130},attesters={0,1,2,3}
    function check_attesters_are_changed_if_and_only_if_enough_of_them_have_signed(
        uint256 present,
        address[] memory attesters,
        uint256 threshold,
        bytes memory signatures,
        address anyone
    ) external {
        _presentAttesters(present, anyone);
        uint256 nonce = source.nonce();
        vm.assume(nonce < type(uint256).max);
        bool signed = _areSigned(
            keccak256(
                abi.encode(
                    keccak256("AttesterSet(address[] attesters,uint256 threshold,uint256 nonce)"),
                    keccak256(abi.encodePacked(attesters)),
                    threshold,
                    nonce
                )
            ),
            signatures
        );
        bool expected = signed && _areValid(attesters, threshold);
        try source.changeAttesters(attesters, threshold, signatures) {
            assert(expected);
            assert(source.nonce() == nonce + 1);
            _assertAttesters(source, attesters, threshold, anyone);
        } catch {
            assert(!expected);
        }
    }

    /// @custom:halmos --array-lengths attesters={0,1,2,3,4}
    function check_the_first_attesters_are_those_given(
        address[] memory attesters,
        uint256 threshold,
        address anyone
    ) external {
        try new AttestedBlockHashSource(SOURCE_CHAIN_ID, attesters, threshold) returns (AttestedBlockHashSource made) {
            assert(_areValid(attesters, threshold));
            _assertAttesters(made, attesters, threshold, anyone);
        } catch {
            assert(!_areValid(attesters, threshold));
        }
    }

    /// @dev From any state of at most three attesters, by any call.
    /// @custom:halmos --default-bytes-lengths 65,130 --default-array-lengths 1,2
    function check_no_call_changes_a_known_hash(uint256 present, uint256 blockNumber) external {
        _presentAttesters(present, address(0));
        bytes32 known = source.blockHash(blockNumber);
        vm.assume(known != 0);
        (bool success,) = address(source).call(svm.createCalldata("AttestedBlockHashSource"));
        success;
        assert(source.blockHash(blockNumber) == known);
    }

    /// @dev The state has one to three attesters. The source answers correctly whether `anyone` is one of them.
    function _presentAttesters(uint256 present, address anyone) private {
        svm.enableSymbolicStorage(address(source));
        uint256 count = present == 1 ? 1 : present == 2 ? 2 : 3;
        vm.store(address(source), ATTESTERS_PLACE, bytes32(count));
        vm.assume(source.isAttester(anyone) == _isAmong(anyone, source.attesters()));
    }

    function _assertAttesters(
        AttestedBlockHashSource source_,
        address[] memory attesters,
        uint256 threshold,
        address anyone
    ) private view {
        assert(source_.threshold() == threshold);
        assert(keccak256(abi.encode(source_.attesters())) == keccak256(abi.encode(attesters)));
        assert(source_.isAttester(anyone) == _isAmong(anyone, attesters));
    }

    /// @dev Returns true if a threshold of present attesters has signed, each once.
    function _areSigned(bytes32 structHash, bytes memory signatures) private view returns (bool) {
        uint256 count = signatures.length / 65;
        if (count * 65 != signatures.length || count < source.threshold()) return false;

        bytes32 domain = keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256("Batch Query Service Attestation"),
                keccak256("1"),
                block.chainid,
                address(source)
            )
        );
        bytes32 digest = keccak256(abi.encodePacked(hex"1901", domain, structHash));
        address[] memory signers = new address[](count);
        for (uint256 place = 0; place < count; ++place) {
            bytes32 r;
            bytes32 s;
            uint8 v;
            assembly {
                let signature := add(add(signatures, 32), mul(place, 65))
                r := mload(signature)
                s := mload(add(signature, 32))
                v := byte(0, mload(add(signature, 64)))
            }
            signers[place] = ecrecover(digest, v, r, s);
            if (uint256(s) > MAX_S || !source.isAttester(signers[place])) return false;
        }
        return _ascend(signers);
    }

    function _areValid(address[] memory attesters, uint256 threshold) private pure returns (bool) {
        return threshold != 0 && threshold <= attesters.length && _ascend(attesters);
    }

    /// @dev Returns true if each is greater than its predecessor. Then all differ, and none is zero.
    function _ascend(address[] memory accounts) private pure returns (bool) {
        for (uint256 place = 0; place < accounts.length; ++place) {
            if (accounts[place] <= (place == 0 ? address(0) : accounts[place - 1])) return false;
        }
        return true;
    }

    function _isAmong(address anyone, address[] memory accounts) private pure returns (bool) {
        for (uint256 place = 0; place < accounts.length; ++place) {
            if (accounts[place] == anyone) return true;
        }
        return false;
    }
}
