// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

import {ERC20 as OldERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Votes as OldVotes} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Votes.sol";
import {ERC20Permit as OldPermit} from "@openzeppelin/contracts/token/ERC20/extensions/draft-ERC20Permit.sol";
import {ERC721 as OldERC721} from "@openzeppelin/contracts/token/ERC721/ERC721.sol";
import {ERC721Enumerable} from "@openzeppelin/contracts/token/ERC721/extensions/ERC721Enumerable.sol";
import {BeaconProxy as OldBeaconProxy} from "@openzeppelin/contracts/proxy/beacon/BeaconProxy.sol";
import {TransparentUpgradeableProxy} from "@openzeppelin/contracts/proxy/transparent/TransparentUpgradeableProxy.sol";
import {ERC20Upgradeable as OldUpgradeable} from "@openzeppelin/contracts-upgradeable/token/ERC20/ERC20Upgradeable.sol";
import {ERC20} from "openzeppelin-contracts-5/token/ERC20/ERC20.sol";
import {ERC20Votes} from "openzeppelin-contracts-5/token/ERC20/extensions/ERC20Votes.sol";
import {EIP712} from "openzeppelin-contracts-5/utils/cryptography/EIP712.sol";
import {AccessControl} from "openzeppelin-contracts-5/access/AccessControl.sol";
import {ERC1967Proxy} from "openzeppelin-contracts-5/proxy/ERC1967/ERC1967Proxy.sol";
import {BeaconProxy} from "openzeppelin-contracts-5/proxy/beacon/BeaconProxy.sol";
import {UpgradeableBeacon} from "openzeppelin-contracts-5/proxy/beacon/UpgradeableBeacon.sol";
import {ERC20VotesUpgradeable} from
    "openzeppelin-contracts-upgradeable-5/token/ERC20/extensions/ERC20VotesUpgradeable.sol";
import {ERC721Upgradeable} from "openzeppelin-contracts-upgradeable-5/token/ERC721/ERC721Upgradeable.sol";
import {ERC20 as SolmateERC20} from "solmate/src/tokens/ERC20.sol";
import {ERC4626} from "solmate/src/tokens/ERC4626.sol";
import {ERC20 as SoladyERC20} from "solady/src/tokens/ERC20.sol";
import {ERC1155 as SoladyERC1155} from "solady/src/tokens/ERC1155.sol";

contract OldToken is OldERC20("Old", "OLD") {
    function fill(address account) external { _mint(account, 1001); _approve(account, address(this), 1002); }
}

contract OldVotesToken is OldVotes {
    constructor() OldERC20("Old", "OLD") OldPermit("Old") {}

    function fill(address account) external {
        _delegate(account, account);
        _mint(account, 1001);
    }

    function more(address account) external { _mint(account, 2); }
}

contract OldNft is ERC721Enumerable {
    constructor() OldERC721("Old", "OLD") {}

    function fill(address account) external { _mint(account, 7); _mint(account, 9); }
}

contract OldUpgradeableToken is OldUpgradeable {
    function fill(address account) external { _mint(account, 1001); }
}

contract OldProxy is TransparentUpgradeableProxy {
    constructor(address code) TransparentUpgradeableProxy(code, address(0xAD), "") {}
}

contract Token is ERC20("New", "NEW") {
    function fill(address account) external { _mint(account, 1001); _approve(account, address(this), 1002); }
}

contract VotesToken is ERC20Votes {
    constructor() ERC20("New", "NEW") EIP712("New", "1") {}

    function fill(address account) external { _delegate(account, account); _mint(account, 1001); }
    function more(address account) external { _mint(account, 2); }
}

contract Roles is AccessControl {
    function fill(address account) external { _grantRole(keccak256("MINTER"), account); }
}

contract UpgradeableToken is ERC20VotesUpgradeable {
    function fill(address account) external { _mint(account, 1001); _delegate(account, account); }
}

contract UpgradeableNft is ERC721Upgradeable {
    function fill(address account) external { _mint(account, 7); }
}

contract NewProxy is ERC1967Proxy {
    constructor(address code) ERC1967Proxy(code, "") {}

    function _unsafeAllowUninitialized() internal pure override returns (bool) { return true; }
}

contract Beacon is UpgradeableBeacon {
    constructor(address code) UpgradeableBeacon(code, address(0xAD)) {}
}

contract NewBeaconProxy is BeaconProxy {
    constructor(address beacon) BeaconProxy(beacon, "") {}
}

contract SolmateToken is SolmateERC20("Mate", "MATE", 18) {
    function fill(address account) external { _mint(account, 1001); allowance[account][address(this)] = 1002; }
}

contract Vault is ERC4626 {
    constructor(address token) ERC4626(SolmateERC20(token), "Vault", "VLT") {}

    function fill(address) external { SolmateToken(address(asset)).fill(address(this)); }

    function totalAssets() public view override returns (uint256) { return asset.balanceOf(address(this)); }
}

contract SoladyToken is SoladyERC20 {
    function name() public pure override returns (string memory) { return "Lady"; }
    function symbol() public pure override returns (string memory) { return "LADY"; }

    function fill(address account) external { _mint(account, 1001); _approve(account, address(this), 1002); }
}

contract OlderBeaconProxy is OldBeaconProxy {
    constructor(address beacon) OldBeaconProxy(beacon, "") {}
}

/// As Gnosis Safe's proxy: the code's address is in slot 0.
contract SlotZeroProxy {
    address private code;

    constructor(address to) { code = to; }

    fallback() external payable {
        (bool done, bytes memory data) = code.delegatecall(msg.data);
        assembly {
            if iszero(done) { revert(add(data, 32), mload(data)) }
            return(add(data, 32), mload(data))
        }
    }
}

contract BehindSlotZero {
    address private code;
    mapping(address => uint256) public balanceOf;

    function fill(address account) external { balanceOf[account] = 1001; }
}

contract Registered {
    address private token;

    function fill(address) external { token = address(new BehindSlotZero()); }

    function tokenOf(address account) external view returns (address) {
        (bool done,) = token.staticcall(abi.encodeWithSignature("balanceOf(address)", account));
        done;
        return token;
    }
}

/// Tokens whose balance isn't the word of one slot.
contract Rebasing {
    mapping(address => uint256) public shares;
    uint256 public total;
    uint256 public supply;
    uint256 private unread = 5;

    function fill(address account) external { shares[account] = 10; total = 20; supply = 10_010; }

    function balanceOf(address account) external view returns (uint256) { return shares[account] * supply / total; }
}

contract Sum {
    mapping(address => uint256) private liquid;
    mapping(address => uint256) private staked;
    bool private paused;

    function fill(address account) external { liquid[account] = 1001; }

    function balanceOf(address account) external view returns (uint256) { return liquid[account] + staked[account]; }

    function stakedOrLiquid(address account) external view returns (uint256) {
        return staked[account] != 0 ? staked[account] : liquid[account];
    }

    function stakedOrSeven(address account) external view returns (uint256) {
        return staked[account] != 0 ? staked[account] : 7;
    }

    function balanceUnlessPaused(address account) external view returns (uint256) {
        return paused ? 0 : liquid[account];
    }
}

/// Balances that are the word of one slot as long as another slot has its word, and contracts that fool a search.
contract Switched {
    mapping(address => uint256) private liquid;
    mapping(address => uint256) private staked;
    bool private open = true;
    uint256 private status;
    address private owner = address(0xAD);
    uint8 private level = 2;
    uint256 private kind = 2;
    mapping(address => uint256) private numbers;
    mapping(uint256 => uint256) private byNumber;
    uint256[3] private list;
    uint256[] private more;

    function fill(address account) external {
        more.push(); more.push();
        liquid[account] = 1001; staked[account] = 1001; numbers[account] = 1; byNumber[1] = 1001; list[1] = 1001;
    }

    function whileOpen(address account) external view returns (uint256) { return open ? liquid[account] : 0; }
    function unlessBlocked(address account) external view returns (uint256) { return status == 1 ? 0 : liquid[account]; }
    function belowLevel(address account) external view returns (uint256) { return level == 1 ? 0 : liquid[account]; }
    function ofNumber(address account) external view returns (uint256) { return byNumber[numbers[account]]; }
    function listed(address account) external view returns (uint256) { return list[numbers[account]]; }
    function ofDust(address account) external view returns (uint256) { return liquid[account] < 100 ? 0 : liquid[account]; }
    function seen(address account) external view returns (uint256) { return liquid[account] + staked[msg.sender]; }
    function lengthAndLast() external view returns (uint256) { return more.length + more[more.length - 1]; }
    function mine() external view returns (uint256) { return liquid[msg.sender]; }

    function orElse(address account) external view returns (uint256 balance) {
        uint256 other = staked[account];
        balance = liquid[account];
        if (balance == 0) balance = other;
    }

    function beneathHash(address account) external view returns (uint256) {
        return sha256(abi.encode(account)) != 0 && kind == 2 ? liquid[account] : 0;
    }

    function decoyOrReal(address account) external view returns (uint256) {
        (uint256 decoy, uint256 real) = (liquid[account], staked[account]);
        return (decoy | real) >> 200 != 0 ? decoy : real;
    }
}

/// Answers that another slot, an account or the time changes, but not while the words are those of `fill` or 0.
contract Lazy {
    mapping(address => bool) private registered;
    mapping(address => bool) private blocked;
    mapping(address => bool) private chosen;
    mapping(address => uint256) private liquid;
    mapping(address => uint256) private staked;
    mapping(address => address) private delegate;
    mapping(uint256 => uint256) private byTime;
    uint256 private rate = 1e18;
    uint256 private current;
    uint256[] private list;
    mapping(address => address) private owner;
    string private name = "Hello";
    string private long = "0123456789012345678901234567890123456789";

    function fill(address account) external {
        liquid[account] = 1001; list.push(1001); owner[account] = account; chosen[account] = true;
    }

    function isEither(address account) external view returns (bool either) {
        either = blocked[account];
        if (chosen[account]) either = true;
    }
    function isAllowed(address account) external view returns (bool) { return registered[account] && !blocked[account]; }
    function free(address account) external view returns (uint256) {
        return liquid[account] == 0 ? 0 : liquid[account] - staked[account];
    }
    function worth(address account) external view returns (uint256) {
        return liquid[account] == 0 ? 0 : liquid[account] * rate / 1e18;
    }
    function withoutFrozen(address account) external view returns (uint256) {
        return blocked[account] ? liquid[account] - staked[account] : liquid[account];
    }
    function halfIfStaked(address account) external view returns (uint256) {
        if (!blocked[account] || !registered[account] || staked[account] == 0) return liquid[account];
        return liquid[account] / 2;
    }
    function unlessOwn(address account) external view returns (uint256) {
        return delegate[account] == account ? 0 : liquid[account];
    }
    function ownerOf(address account) external view returns (address) {
        return owner[account] == address(this) ? address(0) : owner[account];
    }
    function latest() external view returns (uint256) { return list[current]; }
    function atThisTime() external view returns (uint256) { return byTime[block.timestamp / 1 days]; }
    function atThisNumber() external view returns (uint256) { return byTime[block.number / 1000]; }
    function title() external view returns (string memory) { return name; }
    function longTitle() external view returns (string memory) { return long; }
}

contract Flagged {
    mapping(address => uint256) private words;

    function fill(address account) external { words[account] = 1001 | (1 << 255); }

    function balanceOf(address account) external view returns (uint256) { return words[account] & ((1 << 255) - 1); }
}

/// Amounts that are no part on the right of a word, or look like an address or a boolean.
contract Odd {
    struct Packed { uint160 votes; uint96 other; }

    mapping(address => uint256) private cleared;
    mapping(address => uint256) private shifted;
    mapping(address => Packed) private packed;
    mapping(address => uint8) private flags;

    function fill(address account) external {
        cleared[account] = 0x123456; shifted[account] = 0x7890; packed[account] = Packed(8, 9); flags[account] = 2;
    }

    function balanceOf(address account) external view returns (uint256) { return cleared[account] & ~uint256(0xff); }
    function sharesOf(address account) external view returns (uint256) { return shifted[account] << 8; }
    function votes(address account) external view returns (uint256) { return packed[account].votes; }
    function stakeOf(address account) external view returns (uint256) { return flags[account] != 0 ? 1 : 0; }
}

contract Hidden {
    mapping(bytes32 => uint256) private balances;

    function fill(address account) external { balances[keccak256(abi.encode(account, "salt"))] = 1001; }

    function balanceOf(address account) external view returns (uint256) {
        return balances[keccak256(abi.encode(account, "salt"))];
    }

    function half(address account) external view returns (uint128) {
        return uint128(balances[keccak256(abi.encode(account, "salt"))]);
    }
    function constantOf(address) external pure returns (uint256) { return 1001; }
    function failing(address) external pure returns (uint256) { revert("no"); }
    function two(address account) external view returns (uint256, uint256) {
        return (5, balances[keccak256(abi.encode(account, "salt"))]);
    }
    function burning(address account) external view returns (uint256) {
        uint256 start = gasleft();
        while (start - gasleft() < 7_000_000) {}
        return balances[keccak256(abi.encode(account, "salt"))];
    }
    function many() external view returns (uint256 sum) {
        for (uint256 at = 1000; at < 1060; ++at) assembly { sum := add(sum, sload(at)) }
    }
    function long(address account) external view returns (uint256[512] memory all) { all[0] = balances[keccak256(abi.encode(account, "salt"))]; }
    function longer(address) external pure returns (uint256[513] memory all) {}
    function endless() external view returns (uint256 sum) { while (true) assembly { sum := add(sum, sload(sum)) } }
}

contract Many {
    struct Point { uint128 bias; uint128 slope; uint256 end; }
    struct Box { uint8 tag; mapping(address => uint256) inner; uint256[] list; }
    struct Packed { uint96 votes; address delegate; int24 tick; bool frozen; }

    uint256 public plain;
    bool private first;
    bool public paused;
    bool public open;
    int24 public tick;
    uint256[3] public list;
    mapping(address => mapping(uint256 => Point)) public points;
    mapping(address => Packed) private packed;
    mapping(address => mapping(address => mapping(uint256 => uint256))) public deep;
    mapping(string => uint256) public byText;
    mapping(bytes => uint256) private byBytes;
    mapping(bytes4 => uint256) public byBytes4;
    mapping(bytes32 => uint256) public byWord;
    mapping(int24 => uint256) public byTick;
    mapping(bool => uint256) public byFlag;
    mapping(uint256 => Box) private boxes;
    uint256[] public numbers;
    uint16[] public small;
    Point[] private structs;
    mapping(address => uint256[]) public lists;
    mapping(address => bytes4) public tags;
    mapping(address => bool) public frozen;
    address public owner;

    function fill(address account) external {
        plain = 1; paused = true; tick = -5; list[2] = 2; owner = account;
        points[account][7] = Point(3, 4, 5);
        packed[account] = Packed(6, address(this), -7, true);
        deep[account][address(this)][1] = 8;
        byText["a key"] = 9; byBytes[hex"00ff"] = 10; byBytes4[0x12345678] = 11; byWord[bytes32("x")] = 12;
        byTick[-887272] = 13; byFlag[true] = 14;
        boxes[3].inner[account] = 15; boxes[3].list.push(); boxes[3].list.push(16);
        for (uint256 at; at < 20; ++at) { numbers.push(); small.push(); structs.push(); lists[account].push(); }
        numbers[19] = 17; small[17] = 18; structs[2].end = 19; lists[account][3] = 20;
        tags[account] = 0x12345678; frozen[account] = true;
    }

    function votes(address account) external view returns (uint96) { return packed[account].votes; }
    function delegateOf(address account) external view returns (address) { return packed[account].delegate; }
    function tickOf(address account) external view returns (int24) { return packed[account].tick; }
    function isFrozen(address account) external view returns (bool) { return packed[account].frozen; }
    function ofBytes(bytes calldata key) external view returns (uint256) { return byBytes[key]; }
    function inBox(uint256 box, address account) external view returns (uint256) { return boxes[box].inner[account]; }
    function lastInBox(uint256 box) external view returns (uint256) { return boxes[box].list[boxes[box].list.length - 1]; }
    function turned(address inner, address account, uint256 at) external view returns (uint256) {
        return deep[account][inner][at];
    }
    function endOf(uint256 at) external view returns (uint256) { return structs[at].end; }
}

/// As MiniMe's tokens: the block of a checkpoint is in its word.
contract Checkpoints {
    struct Checkpoint { uint128 fromBlock; uint128 value; }

    mapping(address => Checkpoint[]) private balances;

    function fill(address account) external { push(account, 500); push(account, 1001); }
    function push(address account, uint128 value) public {
        balances[account].push(Checkpoint(uint128(block.number), value));
    }

    function balanceOf(address account) external view returns (uint256) { return balanceOfAt(account, block.number); }

    function balanceOfAt(address account, uint256 at) public view returns (uint256) {
        Checkpoint[] storage all = balances[account];
        if (all.length == 0) return 0;
        if (at >= all[all.length - 1].fromBlock) return all[all.length - 1].value;
        if (at < all[0].fromBlock) return 0;
        (uint256 low, uint256 high) = (0, all.length - 1);
        while (high > low) {
            uint256 middle = (high + low + 1) / 2;
            if (all[middle].fromBlock <= at) low = middle;
            else high = middle - 1;
        }
        return all[low].value;
    }
}

/// As COMP and UNI, with variables above slot 255: the number of checkpoints isn't the length of an array.
contract CountedVotes {
    struct Checkpoint { uint32 fromBlock; uint96 votes; }

    uint256[300] private gap;
    mapping(address => mapping(uint32 => Checkpoint)) private checkpoints;
    mapping(address => uint32) private counts;

    function fill(address account) external { push(account, 500); push(account, 1001); }
    function push(address account, uint96 votes) public {
        checkpoints[account][counts[account]++] = Checkpoint(uint32(block.number), votes);
    }

    function getCurrentVotes(address account) external view returns (uint96) {
        uint32 count = counts[account];
        return count > 0 ? checkpoints[account][count - 1].votes : 0;
    }

    function getPriorVotes(address account, uint256 number) external view returns (uint96) {
        uint32 count = counts[account];
        if (count == 0) return 0;
        if (checkpoints[account][count - 1].fromBlock <= number) return checkpoints[account][count - 1].votes;
        if (checkpoints[account][0].fromBlock > number) return 0;
        (uint32 low, uint32 high) = (0, count - 1);
        while (high > low) {
            uint32 middle = high - (high - low) / 2;
            Checkpoint memory found = checkpoints[account][middle];
            if (found.fromBlock == number) return found.votes;
            if (found.fromBlock < number) low = middle;
            else high = middle - 1;
        }
        return checkpoints[account][low].votes;
    }
}

/// As the feeds of prices: a round, packed between others, has the answer. A proxy leads to the feed of a phase.
contract Feed {
    struct State { uint32 epoch; uint8 threshold; uint32 round; bool isOpen; }
    struct Round { int192 answer; uint64 time; }

    uint256[300] private gap;
    State private state;
    mapping(uint32 => Round) private rounds;

    function fill(address) external {
        state = State(7, 2, 5, true); rounds[5] = Round(-123456, 99); rounds[4] = Round(55, 98);
    }

    function latestAnswer() external view returns (int256) { return rounds[state.round].answer; }
}

contract FeedProxy {
    struct Phase { uint16 id; address feed; }

    address private access;
    Phase private phase;
    mapping(uint16 => address) private feeds;

    constructor(address feed) { phase = Phase(3, feed); feeds[3] = feed; }

    function fill(address) external {}
    function latestAnswer() external view returns (int256) {
        require(access == address(0) || FeedProxy(access).latestAnswer() != 0);
        return Feed(phase.feed).latestAnswer();
    }
    function ofPhase() external view returns (int256) { return Feed(feeds[phase.id]).latestAnswer(); }
}

/// As veCRV: the balance follows from the last point, and from the time.
contract Escrow {
    struct Point { int128 bias; int128 slope; uint256 time; }

    mapping(address => uint256) private epochs;
    mapping(address => Point[1000]) private history;

    function fill(address account) external {
        epochs[account] = 2;
        history[account][1] = Point(5e17, 900, block.timestamp - 1000);
        history[account][2] = Point(1e18, 1000, block.timestamp - 100);
    }

    function balanceOf(address account) external view returns (uint256) {
        uint256 epoch = epochs[account];
        if (epoch == 0) return 0;
        Point memory last = history[account][epoch];
        last.bias -= last.slope * int128(int256(block.timestamp - last.time));
        return last.bias < 0 ? 0 : uint128(last.bias);
    }
}

/// Runs the code that `_code` names.
abstract contract Forwarder {
    function _code() internal view virtual returns (address);

    fallback() external payable {
        address code = _code();
        assembly {
            calldatacopy(0, 0, calldatasize())
            let done := delegatecall(gas(), code, 0, calldatasize(), 0, 0)
            returndatacopy(0, 0, returndatasize())
            if iszero(done) { revert(0, returndatasize()) }
            return(0, returndatasize())
        }
    }
}

/// As diamonds (EIP-2535): the code of each function, beside a number.
contract Diamond is Forwarder {
    struct Facet { address code; uint96 place; }
    struct Facets { mapping(bytes4 => Facet) facets; }

    constructor(address code) {
        _facets()[BehindNamespace.fill.selector] = Facet(code, 1);
        _facets()[BehindNamespace.balanceOf.selector] = Facet(code, 2);
    }

    function _code() internal view override returns (address code) {
        code = _facets()[msg.sig].code;
        require(code != address(0), "no such function");
    }

    function _facets() private view returns (mapping(bytes4 => Facet) storage) {
        Facets storage all;
        bytes32 slot = keccak256("diamond.standard.diamond.storage");
        assembly { all.slot := slot }
        return all.facets;
    }
}

contract BehindNamespace {
    struct Balances { mapping(address => uint256) balances; }

    function fill(address account) external { _all().balances[account] = 1001; }
    function balanceOf(address account) external view returns (uint256) { return _all().balances[account]; }

    function _all() private pure returns (Balances storage all) {
        bytes32 slot = keccak256("own.storage");
        assembly { all.slot := slot }
    }
}

/// The code's address is in a word with others: in the lowest bits, and in the highest.
contract LowPackedProxy is Forwarder {
    address private code;
    bool private isOpen = true;
    uint64 private version = 9;

    constructor(address to) { code = to; }

    function _code() internal view override returns (address) { require(isOpen, "closed"); return code; }
}

contract HighPackedProxy is Forwarder {
    bytes32 private code;

    constructor(address to) { code = bytes32(bytes20(to)) | bytes32(uint256(5)); }

    function _code() internal view override returns (address) { return address(bytes20(code)); }
}

/// As Aragon's: another contract has the code's address.
contract Kernel {
    mapping(bytes32 => address) public apps;

    constructor(address code) { apps["app"] = code; }

    function fill(address) external {}
}

contract AppProxy is Forwarder {
    constructor(address kernel) { assembly { sstore(0x4172f0f7d2289153072b0a6ca36959e0cbe2efc3afe50fc81636caa96338137b, kernel) } }

    function _code() internal view override returns (address) {
        Kernel kernel;
        assembly { kernel := sload(0x4172f0f7d2289153072b0a6ca36959e0cbe2efc3afe50fc81636caa96338137b) }
        return kernel.apps("app");
    }
}

/// The answer changes with bits beside the code's address.
contract FrozenProxy is Forwarder {
    address private code;
    bool private isFrozen;

    constructor(address to) { code = to; }

    function _code() internal view override returns (address) {
        if (isFrozen) assembly { mstore(0, 0) return(0, 32) }
        return code;
    }
}

/// Parts of any width: bits, enums, and addresses beside flags.
contract Parts {
    enum Status { None, Active, Withdrawn }
    struct Validator { uint64 index; uint64 amount; uint64 time; Status status; }

    mapping(uint256 => uint256) private claims;
    mapping(bytes32 => Validator) private validators;
    mapping(address => Status) public status;
    mapping(uint256 => uint256) private owners;
    mapping(address => uint256) private states;
    address private admin;
    bool private isPaused;
    bool private isOpen = true;
    uint8 private kind = 3;

    function fill(address account) external {
        claims[1] = 1 << 44; status[account] = Status.Active; admin = account;
        validators[bytes32(uint256(5))] = Validator(9, 32e9, 3, Status.Active);
        owners[3] = uint160(account) | 1_700_000_000 << 160; states[account] = 1 << 255 | 1001;
    }

    function isClaimed(uint256 at) external view returns (bool) { return claims[at / 256] >> at % 256 & 1 == 1; }
    function statusOf(bytes32 key) external view returns (Status) { return validators[key].status; }
    function amountOf(bytes32 key) external view returns (uint64) {
        Validator memory found = validators[key];
        return found.amount;
    }
    function ownerOf(uint256 token) external view returns (address) {
        uint256 packed = owners[token];
        require(packed != 0 && packed & 1 << 224 == 0, "none");
        return address(uint160(packed));
    }
    function balanceOf(address account) external view returns (uint256) { return states[account] & (1 << 255) - 1; }
    function isBlacklisted(address account) external view returns (bool) { return states[account] >> 255 == 1; }
    function adminIfOpen() external view returns (address) {
        require(!isPaused && isOpen && kind < 5, "closed");
        return admin;
    }
    function kindOf() external view returns (uint8) { require(kind < 5, "kind"); return kind; }
    function adminOrNone() external view returns (address) { return isPaused ? address(0) : admin; }
}

/// Whole words and large parts of them, whose types their bits don't tell.
contract Typed {
    mapping(address => int256) public pnl;
    bytes32 public root;
    uint160 public price;

    function fill(address account) external { (pnl[account], root, price) = (-1001, "root", 1 << 159); }
}

/// Layouts without a name: above slot 255, in a namespace of its own, and with other seeds of Solady's.
contract Hinted is SoladyERC1155 {
    struct Main { uint256 total; mapping(address => uint256) staked; }
    struct Position { uint256 opened; mapping(address => uint256) shares; }

    uint256[300] private gap;
    mapping(address => uint256) public far;
    mapping(uint256 => Position) private positions;

    function fill(address account) external {
        far[account] = 1001; _main().staked[account] = 1002; positions[5].shares[account] = 1003;
        _mint(account, 7, 1004, "");
    }

    function staked(address account) external view returns (uint256) { return _main().staked[account]; }
    function sharesIn(uint256 id, address account) external view returns (uint256) { return positions[id].shares[account]; }
    function uri(uint256) public pure override returns (string memory) { return ""; }

    /// keccak256(abi.encode(uint256(keccak256("example.main")) - 1)) & ~bytes32(uint256(0xff))
    function _main() private pure returns (Main storage found) {
        assembly { found.slot := 0x183a6125c38840424c4a85fa12bab2ab606c4b6d0e7cc73c0c06ba5300eab500 }
    }
}

contract Far {
    uint256[300] private gap;
    mapping(address => uint256) public balanceOf;

    function fill(address account) external { balanceOf[account] = 1001; }
}

/// As tokens of 2017: its symbol is one word.
contract Lend {
    bytes32 public constant symbol = "LEND";
    uint8 public constant decimals = 18;
    mapping(address => uint256) public balanceOf;

    function fill(address account) external { balanceOf[account] = 1000e18; }
}

/// It answers the balance of one account, whoever is asked for. It has no symbol.
contract Own {
    mapping(address => uint256) private balances;

    function fill(address) external { balances[address(this)] = 5; }
    function balanceOf(address) external view returns (uint256) { return balances[address(this)]; }
    function symbol() external pure returns (string memory) { revert("none"); }
}
