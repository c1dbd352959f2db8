// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {IBlockHashSource} from "./IBlockHashSource.sol";
import {MerklePatriciaProof} from "./MerklePatriciaProof.sol";
import {RLP} from "./RLP.sol";

/// @title Proven facts about the accounts of one source chain, readable on the destination chain this is deployed on.
/// @notice Anyone may submit a proof; nobody can write a fact without one. There is no owner, upgrade or pause: all
/// trust is in the block hash source, which can't be exchanged.
contract FactsRegistry {
    enum AccountField {
        NONCE,
        BALANCE,
        STORAGE_ROOT,
        CODE_HASH
    }

    /// @param fields What to store: a mask of `1 << AccountField`, at least one.
    /// @param nodes Nodes of the state trie from the root down, as `eth_getProof` answers in `accountProof`.
    struct AccountProof {
        address account;
        uint8 fields;
        bytes[] nodes;
    }

    /// @dev No account has a storage root or a code hash of zero: zero is "not proven", unless the account is absent.
    struct AccountFacts {
        // Presence, nonce and balance: 8, 64 and 184 bits, from the top. The compiler would pack a struct of three into
        // this word just so, and take 200 gas more for each read.
        uint256 summary;
        uint256 largeBalance;
        bytes32 storageRoot;
        bytes32 codeHash;
    }

    uint256 private constant PRESENCE_SHIFT = 248;
    uint256 private constant NONCE_SHIFT = 184;

    // Presence. Zero: neither nonce nor balance are proven.
    uint256 private constant EXISTS = 1;
    // The balance doesn't fit beside the nonce and has a word of its own.
    uint256 private constant EXISTS_WITH_LARGE_BALANCE = 2;
    // Proven not to exist: this one word tells all four fields.
    uint256 private constant ABSENT = 3;

    uint8 private constant NONCE_AND_BALANCE = uint8(1 << uint8(AccountField.NONCE) | 1 << uint8(AccountField.BALANCE));
    uint8 private constant STORAGE_ROOT = uint8(1 << uint8(AccountField.STORAGE_ROOT));
    uint8 private constant CODE_HASH = uint8(1 << uint8(AccountField.CODE_HASH));
    uint8 private constant ALL_FIELDS = NONCE_AND_BALANCE | STORAGE_ROOT | CODE_HASH;

    /// @notice The chain whose accounts are proven here, by its EIP-155 chain id.
    uint256 public immutable sourceChainId;

    /// @notice Who vouches for the block hashes of the source chain.
    IBlockHashSource public immutable blockHashSource;

    /// @notice The trusted state root of a block of the source chain; zero where its header isn't accumulated.
    mapping(uint256 blockNumber => bytes32) public stateRoot;

    mapping(address account => mapping(uint256 blockNumber => AccountFacts)) private _accounts;

    /// @notice A header was accumulated: accounts of this block can be proven from now on, whatever its age.
    event HeaderAccumulated(uint256 indexed blockNumber, bytes32 stateRoot);

    /// @notice Facts became readable.
    /// @param fields Those that weren't before, a mask of `1 << AccountField`. It can hold more than was asked for: nonce
    /// and balance come together, and of an account that doesn't exist all four.
    event AccountProven(address indexed account, uint256 indexed blockNumber, uint8 fields);

    /// @notice The block hash source doesn't vouch for this block.
    error UnknownBlock(uint256 blockNumber);

    /// @notice The header isn't that of the block: its hash differs.
    error HeaderMismatch(uint256 blockNumber);

    /// @notice The header has the right hash, but isn't one of a block with this number.
    error InvalidHeader(uint256 blockNumber);

    /// @notice The mask asks for nothing, or for fields that don't exist.
    error InvalidFields(address account, uint8 fields);

    /// @notice The nodes prove nothing about this account under the block's state root.
    error InvalidProof(address account);

    /// @notice Nobody has proven this field of this account at this block here.
    error NotProven(address account, uint256 blockNumber, AccountField field);

    constructor(uint256 sourceChainId_, IBlockHashSource blockHashSource_) {
        sourceChainId = sourceChainId_;
        blockHashSource = blockHashSource_;
    }

    /// @notice Stores facts about accounts at one block, all or none.
    /// @dev Facts that are stored already stay as they are, at no error; their proofs must be valid all the same.
    /// @param header RLP of the block's header. Not looked at when the block's state root is already stored.
    /// @param accounts May be empty, to accumulate the header alone.
    function prove(uint256 blockNumber, bytes calldata header, AccountProof[] calldata accounts) external {
        bytes32 root = stateRoot[blockNumber];
        if (root == 0) root = _accumulate(blockNumber, header);
        for (uint256 i = 0; i < accounts.length; ++i) {
            _proveAccount(root, blockNumber, accounts[i]);
        }
    }

    /// @notice One field of an account, left-padded to 32 bytes. Of an account that doesn't exist: nonce 0, balance 0,
    /// storage root of the empty trie, code hash 0 (as EXTCODEHASH, EIP-1052).
    /// @dev Reverts with NotProven where nothing is proven, and without a reason where there is no such field.
    function accountField(address account, uint256 blockNumber, AccountField field) external view returns (bytes32) {
        (bool proven, bytes32 value) = tryAccountField(account, blockNumber, field);
        if (!proven) revert NotProven(account, blockNumber, field);
        return value;
    }

    /// @notice As `accountField`, but answers (false, 0) where nothing is proven.
    function tryAccountField(address account, uint256 blockNumber, AccountField field)
        public
        view
        returns (bool proven, bytes32 value)
    {
        AccountFacts storage facts = _accounts[account][blockNumber];
        if (field == AccountField.NONCE || field == AccountField.BALANCE) {
            uint256 summary = facts.summary;
            uint256 presence = summary >> PRESENCE_SHIFT;
            proven = presence != 0;
            if (field == AccountField.NONCE) value = bytes32(uint256(uint64(summary >> NONCE_SHIFT)));
            else if (presence == EXISTS_WITH_LARGE_BALANCE) value = bytes32(facts.largeBalance);
            else value = bytes32(uint256(uint184(summary)));
        } else {
            value = field == AccountField.STORAGE_ROOT ? facts.storageRoot : facts.codeHash;
            proven = value != 0;
            if (!proven && facts.summary >> PRESENCE_SHIFT == ABSENT) {
                proven = true;
                if (field == AccountField.STORAGE_ROOT) value = MerklePatriciaProof.EMPTY_TRIE_ROOT;
            }
        }
    }

    function _accumulate(uint256 blockNumber, bytes calldata header) private returns (bytes32 root) {
        bytes32 hash = blockHashSource.blockHash(blockNumber);
        if (hash == 0) revert UnknownBlock(blockNumber);
        if (keccak256(header) != hash) revert HeaderMismatch(blockNumber);

        bool valid;
        (valid, root) = _decodeHeader(header, blockNumber);
        // A root of zero would read as "not accumulated".
        if (!valid || root == 0) revert InvalidHeader(blockNumber);

        stateRoot[blockNumber] = root;
        emit HeaderAccumulated(blockNumber, root);
    }

    /// @dev Fields 3 (state root) and 8 (number) have kept their places through all forks. What comes after is bound by
    /// the hash and not read, so that headers of later forks pass.
    function _decodeHeader(bytes calldata header, uint256 blockNumber) private pure returns (bool valid, bytes32 root) {
        bytes calldata rest;
        (valid, rest) = RLP.decodeList(header);
        for (uint256 i = 0; valid && i < 8; ++i) {
            if (i == 3) {
                (valid, root, rest) = RLP.takeWord(rest);
            } else {
                (RLP.Kind kind,, uint256 size) = RLP.decode(rest);
                valid = kind == RLP.Kind.STRING;
                rest = rest[size:];
            }
        }
        if (!valid) return (false, 0);
        uint256 number;
        (valid, number,) = RLP.takeInteger(rest);
        valid = valid && number == blockNumber;
    }

    function _proveAccount(bytes32 root, uint256 blockNumber, AccountProof calldata proof) private {
        address account = proof.account;
        uint8 fields = proof.fields;
        if (fields == 0 || fields > ALL_FIELDS) revert InvalidFields(account, fields);

        (bool valid, bytes calldata leaf) =
            MerklePatriciaProof.verify(root, keccak256(abi.encodePacked(account)), proof.nodes);
        if (!valid) revert InvalidProof(account);

        AccountFacts storage facts = _accounts[account][blockNumber];
        uint8 added = leaf.length == 0 ? _storeAbsent(facts) : _store(facts, account, fields, leaf);
        if (added != 0) emit AccountProven(account, blockNumber, added);
    }

    function _storeAbsent(AccountFacts storage facts) private returns (uint8 added) {
        if (facts.summary == 0) {
            facts.summary = ABSENT << PRESENCE_SHIFT;
            added = ALL_FIELDS;
        }
    }

    function _store(AccountFacts storage facts, address account, uint8 fields, bytes calldata leaf)
        private
        returns (uint8 added)
    {
        (bool valid, uint64 nonce, uint256 balance, bytes32 storageRoot, bytes32 codeHash) = _decodeAccount(leaf);
        if (!valid) revert InvalidProof(account);

        if (fields & NONCE_AND_BALANCE != 0 && facts.summary == 0) {
            uint256 packedNonce = uint256(nonce) << NONCE_SHIFT;
            if (balance <= type(uint184).max) {
                facts.summary = EXISTS << PRESENCE_SHIFT | packedNonce | balance;
            } else {
                facts.summary = EXISTS_WITH_LARGE_BALANCE << PRESENCE_SHIFT | packedNonce;
                facts.largeBalance = balance;
            }
            added |= NONCE_AND_BALANCE;
        }
        if (fields & STORAGE_ROOT != 0 && facts.storageRoot == 0) {
            facts.storageRoot = storageRoot;
            added |= STORAGE_ROOT;
        }
        if (fields & CODE_HASH != 0 && facts.codeHash == 0) {
            facts.codeHash = codeHash;
            added |= CODE_HASH;
        }
    }

    /// @dev An account is the RLP list of nonce, balance, storage root and code hash. Nonces have 64 bits (EIP-2681).
    function _decodeAccount(bytes calldata leaf)
        private
        pure
        returns (bool valid, uint64 nonce, uint256 balance, bytes32 storageRoot, bytes32 codeHash)
    {
        bytes calldata rest;
        uint256 longNonce;
        (valid, rest) = RLP.decodeList(leaf);
        if (valid) (valid, longNonce, rest) = RLP.takeInteger(rest);
        if (valid) (valid, balance, rest) = RLP.takeInteger(rest);
        if (valid) (valid, storageRoot, rest) = RLP.takeWord(rest);
        if (valid) (valid, codeHash, rest) = RLP.takeWord(rest);
        nonce = uint64(longNonce);
        valid = valid && rest.length == 0 && nonce == longNonce && storageRoot != 0 && codeHash != 0;
    }
}
