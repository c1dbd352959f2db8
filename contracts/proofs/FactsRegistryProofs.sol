// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {FactsRegistry} from "../src/FactsRegistry.sol";
import {IBeaconHistory} from "../src/IBeaconHistory.sol";
import {IBlockHashSource} from "../src/IBlockHashSource.sol";
import {Rlp} from "./Rlp.sol";
import {Symbolic} from "./Symbolic.sol";

/// @title Vouches for any hash of each block, fails, or answers more or less than a word: as its storage says.
contract AnySource is IBlockHashSource, Symbolic {
    uint256 public constant sourceChainId = 1;

    mapping(uint256 blockNumber => bytes32) private _hashes;
    mapping(uint256 blockNumber => uint256) private _forms;

    function blockHash(uint256 blockNumber) external view returns (bytes32) {
        bytes32 hash = _hashes[blockNumber];
        uint256 form = _forms[blockNumber];
        if (form == 0) return hash;
        uint256 size = form == 1 ? 32 : form == 2 ? 31 : 64;
        assembly {
            mstore(0, hash)
            if eq(form, 1) { revert(0, size) }
            return(0, size)
        }
    }

    /// @dev Returns whether the source vouches for this hash, without a path of its own for each answer.
    function vouches(uint256 blockNumber, bytes32 hash) external view returns (bool) {
        return _both(_hashes[blockNumber] == hash, _forms[blockNumber] == 0);
    }
}

/// @title The registry, with a read of whether it knows a hash.
contract AskedRegistry is FactsRegistry {
    constructor(IBlockHashSource source, uint256 historyWindow)
        FactsRegistry(source.sourceChainId(), source, historyWindow, IBeaconHistory(address(0)))
    {}

    function isBlockHash(bytes32 hash) external view returns (bool) {
        return _isBlockHash(hash);
    }
}

/// @title Nothing about a block is stored unless its hash is trusted: the block hash source vouches for it, it was proven
/// before, or it is the parent hash in a header whose hash is trusted and whose number is the next one.
/// @dev The state of the registry and the answers of the source are symbolic. A question stands for all questions.
/// Headers have any content, in the sizes that are named here, because halmos reads at known places.
contract FactsRegistryProofs is Symbolic {
    // Offsets in a header, which begins with three bytes of prefix.
    uint256 private constant FIRST_PLACE = 3;
    uint256 private constant PARENT_HASH_PLACE = FIRST_PLACE + 1;
    uint256 private constant STATE_ROOT_PLACE = FIRST_PLACE + 88;
    uint256 private constant DIFFICULTY_PLACE = FIRST_PLACE + 445;

    // The history contract of EIP-2935.
    bytes20 private constant HISTORY = hex"0000f90827f1c53a10cb7a02335b175320002935";
    uint256 private constant HISTORY_WINDOW = 8191;

    // Operations.
    bytes1 private constant PARENT = 0x38;
    bytes1 private constant HASH_ALONE = 0x39;
    bytes1 private constant OLD_BLOCK = 0x3a;

    struct Header {
        bytes encoded;
        bytes32 hash;
        bytes32 parentHash;
        bytes32 root;
        uint256 number;
        uint256 time;
    }

    struct Question {
        uint256 blockNumber;
        uint256 timestamp;
        bytes32 blockHash;
    }

    struct Answer {
        bytes32 root;
        bool isTimeProven;
        uint256 blockNumber;
        bool isKnown;
    }

    AnySource private source;
    AskedRegistry private registry;

    function setUp() external {
        source = new AnySource();
        registry = new AskedRegistry(source, HISTORY_WINDOW);
    }

    /// @dev The hash of the next header is trusted, and the first is its parent. Nothing else becomes readable than the
    /// first header's root, and its number at that time.
    function check_a_time_is_stored_under_a_trusted_hash_only(Question memory asked, uint256 timestamp, uint256 size)
        external
    {
        size = _each(size, 0, 3);
        Header memory next = _header(size, 1);
        Header memory header = _header(size, 0);
        Answer memory before = _anyState(asked);
        bool isRight = _both(_isTrusted(next), _isParent(header, next));
        isRight = _both(isRight, _both(header.time <= timestamp, timestamp < next.time));
        (bool accepted,) =
            address(registry).call(abi.encodeCall(registry.proveTimestamp, (header.encoded, next.encoded, timestamp)));

        if (!accepted) return;
        assert(isRight);
        Answer memory answer = _answer(asked);
        _assertRoot(asked, before, answer, header);
        assert(answer.isKnown == before.isKnown);
        bool isNew = _both(asked.timestamp == timestamp, answer.blockNumber == header.number);
        assert(_either(_isSameTime(before, answer), _both(!before.isTimeProven, isNew)));
    }

    /// @dev The first header's hash is trusted, and each of up to two more is the parent of its predecessor. A byte
    /// follows that begins no jump; after a single header, up to two bytes. The last header's root or its parent hash
    /// becomes readable.
    function check_a_block_is_stored_under_a_trusted_hash_only(
        Question memory asked,
        uint256 parents,
        uint256 rest,
        uint256 size
    ) external {
        parents = _each(parents, 0, 2);
        rest = parents == 0 ? _each(rest, 0, 2) : 1;
        size = parents == 1 ? _each(size, 0, 3) : 2;
        Header memory header = _header(size, parents);
        Answer memory before = _anyState(asked);
        bool isRight = _isTrusted(header);
        bytes memory input = header.encoded;
        for (uint256 left = parents; left != 0; --left) {
            Header memory parent = _header(size, left - 1);
            isRight = _both(isRight, _isParent(parent, header));
            input = abi.encodePacked(input, PARENT, parent.encoded);
            header = parent;
        }
        bytes memory operations = svm.createBytes(rest, "operations");
        // The length of a branch must be concrete, and so few bytes can hold none.
        if (rest != 0) vm.assume(operations[0] != OLD_BLOCK);
        (bool accepted,) = address(registry).call(abi.encodePacked(input, operations));

        if (!accepted) return;
        assert(isRight);
        Answer memory answer = _answer(asked);
        assert(_isSameTime(before, answer));
        bool isHashAlone = rest != 0 && operations[0] == HASH_ALONE;
        if (isHashAlone) assert(answer.root == before.root);
        else _assertRoot(asked, before, answer, header);
        bool isNew = _both(_both(isHashAlone, asked.blockHash == header.parentHash), header.number != 0);
        assert(answer.isKnown == _either(before.isKnown, isNew));
    }

    /// @dev A hash in a slot of the history contract. The storage has no other slot and the state no other account, so both
    /// tries are leaves. The hash becomes readable if that contract has it under the root of the block, and nothing else.
    function check_a_block_hash_is_stored_under_a_known_state_root_only(
        Question memory asked,
        bytes20 owner,
        bytes2 slot,
        bytes31 rest,
        bytes32 codeHash
    ) external {
        // halmos must know how many bytes it has.
        bytes memory value = abi.encodePacked(hex"80", rest);
        bytes memory number = svm.createBytes(4, "number");
        bytes memory operations = abi.encodePacked(
            abi.encodePacked(hex"30", owner, hex"4302", slot, hex"0020", value), hex"8a0000", codeHash
        );
        Answer memory before = _anyState(asked);
        bytes32 root = registry.stateRoot(_number(number));
        (bool accepted,) = address(registry).call(abi.encodePacked(hex"04", number, operations));

        if (!accepted) return;
        bytes memory storage_ = _leaf(keccak256(abi.encode(uint16(slot))), abi.encodePacked(hex"a0", value));
        bytes memory account = abi.encodePacked(hex"8080a0", keccak256(storage_), hex"a0", codeHash);
        assert(root == keccak256(_leaf(keccak256(abi.encodePacked(owner)), Rlp.list(account))));
        assert(owner == HISTORY && uint16(slot) < HISTORY_WINDOW);
        Answer memory answer = _answer(asked);
        assert(answer.root == before.root);
        assert(_isSameTime(before, answer));
        assert(answer.isKnown == _either(before.isKnown, asked.blockHash == bytes32(value)));
    }

    /// @dev The only node of a trie of one key.
    function _leaf(bytes32 key, bytes memory value) private pure returns (bytes memory) {
        return Rlp.list(abi.encodePacked(Rlp.path(uint256(key), 64, true), Rlp.string_(value)));
    }

    // --- Trust ------------------------------------------------------------------------------------------------------

    function _isTrusted(Header memory header) private view returns (bool) {
        return _either(source.vouches(header.number, header.hash), registry.isBlockHash(header.hash));
    }

    function _isParent(Header memory parent, Header memory header) private pure returns (bool) {
        return _both(parent.hash == header.parentHash, parent.number + 1 == header.number);
    }

    // --- State ------------------------------------------------------------------------------------------------------

    function _anyState(Question memory asked) private returns (Answer memory) {
        svm.enableSymbolicStorage(address(registry));
        svm.enableSymbolicStorage(address(source));
        return _answer(asked);
    }

    function _answer(Question memory asked) private view returns (Answer memory answer) {
        answer.root = registry.stateRoot(asked.blockNumber);
        (answer.isTimeProven, answer.blockNumber) = registry.tryBlockAtTimestamp(asked.timestamp);
        answer.isKnown = registry.isBlockHash(asked.blockHash);
    }

    function _isSameTime(Answer memory before, Answer memory answer) private pure returns (bool) {
        return _both(answer.isTimeProven == before.isTimeProven, answer.blockNumber == before.blockNumber);
    }

    /// @dev No root changes. A new root is that of this header.
    function _assertRoot(Question memory asked, Answer memory before, Answer memory answer, Header memory header)
        private
        pure
    {
        bool isNew = _both(asked.blockNumber == header.number, answer.root == header.root);
        assert(_either(answer.root == before.root, _both(before.root == 0, isNew)));
    }

    // --- Headers ----------------------------------------------------------------------------------------------------

    /// @dev A header whose difficulty has `size` bytes, and whose time has 1, 2, 4 or 8 for sizes of 0 to 3. So has the
    /// number; but for a size of 0 it is `small`, 0 to 2. Behind the time come three bytes.
    function _header(uint256 size, uint256 small) private pure returns (Header memory header) {
        bytes memory first = svm.createBytes(DIFFICULTY_PLACE - FIRST_PLACE, "first");
        bytes memory number = svm.createBytes(1 << size, "number");
        bytes memory time = svm.createBytes(1 << size, "time");
        bytes memory encodedNumber = abi.encodePacked(uint8(0x80 + number.length), number);
        if (size == 0) {
            number[0] = bytes1(uint8(small));
            encodedNumber = small == 0 ? bytes(hex"80") : number;
        }
        bytes memory rest = abi.encodePacked(
            abi.encodePacked(uint8(0x80 + size), svm.createBytes(size, "difficulty"), encodedNumber),
            abi.encodePacked(hex"84", svm.createBytes(4, "gas limit"), hex"83", svm.createBytes(3, "gas used")),
            abi.encodePacked(uint8(0x80 + time.length), time, svm.createBytes(3, "rest"))
        );
        header.encoded = abi.encodePacked(hex"f9", uint16(first.length + rest.length), first, rest);
        header.hash = keccak256(header.encoded);
        header.parentHash = _word(header.encoded, PARENT_HASH_PLACE);
        header.root = _word(header.encoded, STATE_ROOT_PLACE);
        (header.number, header.time) = (_number(number), _number(time));
    }

    function _word(bytes memory text, uint256 place) private pure returns (bytes32 word) {
        assembly {
            word := mload(add(add(text, 0x20), place))
        }
    }

    function _number(bytes memory digits) private pure returns (uint256) {
        return uint256(bytes32(digits)) >> 256 - 8 * digits.length;
    }
}
