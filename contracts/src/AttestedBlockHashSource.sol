// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IBlockHashSource} from "./IBlockHashSource.sol";

/// @title Attesters vouch for the blocks of any chain: m of n, by EIP-712 signatures.
/// @notice Anybody may submit enough signatures. There is no owner and no upgrade, so all trust is in the attesters: a
/// threshold of them can vouch for any hash, or hand over to other attesters.
contract AttestedBlockHashSource is IBlockHashSource {
    /// @notice The most attesters that there may be.
    uint256 public constant MAX_ATTESTERS = 100;

    string private constant NAME = "Batch Query Service Attestation";
    string private constant VERSION = "1";

    bytes32 private constant DOMAIN_TYPE = keccak256(
        "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
    );
    bytes32 private constant BLOCK_HASH_TYPE = keccak256(
        "BlockHash(uint256 sourceChainId,uint256 blockNumber,bytes32 blockHash)"
    );
    bytes32 private constant ATTESTER_SET_TYPE = keccak256(
        "AttesterSet(address[] attesters,uint256 threshold,uint256 nonce)"
    );

    // r and s, 32 bytes each, and v.
    uint256 private constant SIGNATURE_SIZE = 65;

    // Half of the order of secp256k1. Each signature has a twin with a higher s, which is refused (EIP-2).
    bytes32 private constant MAX_S = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0;

    /// @inheritdoc IBlockHashSource
    uint256 public immutable sourceChainId;

    /// @inheritdoc IBlockHashSource
    mapping(uint256 blockNumber => bytes32) public blockHash;

    /// @notice Whether this account is an attester at present.
    mapping(address account => bool) public isAttester;

    address[] private _attesters;

    /// @notice How many attesters must agree.
    uint256 public threshold;

    /// @notice How often the attesters were changed, which is the nonce of the next change.
    uint256 public nonce;

    /// @notice A block is vouched for from now on.
    event BlockAttested(uint256 indexed blockNumber, bytes32 blockHash);

    /// @notice These are the attesters from now on, and nobody else.
    event AttestersChanged(address[] attesters, uint256 threshold);

    /// @notice Attesters must be 1 to MAX_ATTESTERS accounts, none of them zero, in strictly ascending order.
    error InvalidAttesters();

    /// @notice The threshold must be from 1 to the number of attesters.
    error InvalidThreshold();

    /// @notice Signatures are 65 bytes each (r, s, v), one after the other, and nothing else.
    error InvalidLength();

    /// @notice Fewer signatures than the threshold.
    error TooFewSignatures(uint256 given, uint256 needed);

    /// @notice Nobody can have made the signature at this place, counted from 0; or its s is high (EIP-2), or v is
    /// neither 27 nor 28.
    error InvalidSignature(uint256 place);

    /// @notice This account has signed and isn't an attester. It is an account that nobody knows where something else
    /// was signed: other values, or for another contract or chain.
    error NotAnAttester(address signer);

    /// @notice This attester's signature isn't in its place, or is there twice: signers come in strictly ascending order.
    error WrongOrder(address signer);

    /// @notice Zero stands for unknown and is no hash of a block.
    error ZeroHash();

    /// @notice The attesters have vouched for another hash of this block before. What is known doesn't change.
    error Conflict(uint256 blockNumber);

    /// @dev Reverts with InvalidAttesters or InvalidThreshold.
    constructor(uint256 sourceChainId_, address[] memory attesters_, uint256 threshold_) {
        sourceChainId = sourceChainId_;
        _setAttesters(attesters_, threshold_);
    }

    /// @notice Stores the hash of a block that enough attesters have signed. Once more changes nothing, at no error; the
    /// signatures must be valid all the same.
    /// @param signatures Signatures of `BlockHash(sourceChainId, blockNumber, blockHash)`, in ascending order of their signers'
    /// addresses. An invalid one invalidates all.
    /// @dev Reverts with ZeroHash, Conflict, and as `changeAttesters` does for the signatures.
    function attest(uint256 blockNumber, bytes32 hash, bytes calldata signatures) external {
        if (hash == 0) revert ZeroHash();
        _checkSigned(keccak256(abi.encode(BLOCK_HASH_TYPE, sourceChainId, blockNumber, hash)), signatures);

        bytes32 known = blockHash[blockNumber];
        if (known == hash) return;
        if (known != 0) revert Conflict(blockNumber);
        blockHash[blockNumber] = hash;
        emit BlockAttested(blockNumber, hash);
    }

    /// @notice Puts other attesters in the place of the present ones. What those have attested stays.
    /// @param attesters_ All attesters after the change, in strictly ascending order.
    /// @param signatures Signatures of `AttesterSet(attesters, threshold, nonce)` with the present nonce, by present
    /// attesters, in ascending order of their addresses.
    /// @dev Reverts with InvalidLength, TooFewSignatures, InvalidSignature, NotAnAttester or WrongOrder for the signatures,
    /// with InvalidAttesters or InvalidThreshold for the new ones.
    function changeAttesters(address[] calldata attesters_, uint256 threshold_, bytes calldata signatures) external {
        // An array is encoded as the hash of its members, a word each (EIP-712).
        bytes32 members = keccak256(abi.encodePacked(attesters_));
        _checkSigned(keccak256(abi.encode(ATTESTER_SET_TYPE, members, threshold_, nonce)), signatures);

        ++nonce;
        _setAttesters(attesters_, threshold_);
    }

    /// @notice All present attesters, in ascending order.
    function attesters() external view returns (address[] memory) {
        return _attesters;
    }

    /// @notice The domain of all signatures, as EIP-5267 describes it.
    function eip712Domain()
        external
        view
        returns (
            bytes1 fields,
            string memory name,
            string memory version,
            uint256 chainId,
            address verifyingContract,
            bytes32 salt,
            uint256[] memory extensions
        )
    {
        // The lowest four bits: name, version, chainId and verifyingContract, without salt.
        return (0x0f, NAME, VERSION, block.chainid, address(this), 0, new uint256[](0));
    }

    function _setAttesters(address[] memory attesters_, uint256 threshold_) private {
        if (attesters_.length == 0 || attesters_.length > MAX_ATTESTERS) revert InvalidAttesters();
        if (threshold_ == 0 || threshold_ > attesters_.length) revert InvalidThreshold();

        for (uint256 place = 0; place < _attesters.length; ++place) {
            isAttester[_attesters[place]] = false;
        }
        address previous = address(0);
        for (uint256 place = 0; place < attesters_.length; ++place) {
            address attester = attesters_[place];
            if (attester <= previous) revert InvalidAttesters();
            isAttester[attester] = true;
            previous = attester;
        }
        _attesters = attesters_;
        threshold = threshold_;
        emit AttestersChanged(attesters_, threshold_);
    }

    /// @dev Reverts unless enough present attesters have signed the struct of that hash.
    function _checkSigned(bytes32 structHash, bytes calldata signatures) private view {
        if (signatures.length % SIGNATURE_SIZE != 0) revert InvalidLength();
        uint256 count = signatures.length / SIGNATURE_SIZE;
        if (count < threshold) revert TooFewSignatures(count, threshold);

        bytes32 digest = keccak256(abi.encodePacked("\x19\x01", _domainSeparator(), structHash));
        address previous = address(0);
        for (uint256 place = 0; place < count; ++place) {
            address signer = _signer(digest, signatures[place * SIGNATURE_SIZE:], place);
            if (!isAttester[signer]) revert NotAnAttester(signer);
            if (signer <= previous) revert WrongOrder(signer);
            previous = signer;
        }
    }

    /// @param signature Begins with the signature at this place.
    function _signer(bytes32 digest, bytes calldata signature, uint256 place) private pure returns (address signer) {
        bytes32 s = bytes32(signature[32:64]);
        uint8 v = uint8(signature[64]);
        // `ecrecover` refuses every v but 27 and 28.
        if (s <= MAX_S) signer = ecrecover(digest, v, bytes32(signature[:32]), s);
        if (signer == address(0)) revert InvalidSignature(place);
    }

    /// @dev Computed each time, because a chain that splits gets another id.
    function _domainSeparator() private view returns (bytes32) {
        return keccak256(
            abi.encode(DOMAIN_TYPE, keccak256(bytes(NAME)), keccak256(bytes(VERSION)), block.chainid, address(this))
        );
    }
}
