// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

// Kinds of contracts that people use, mostly from packages. Tokens.sol has others.

import {ERC20 as OldERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Snapshot} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Snapshot.sol";
import {ERC20VotesComp} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20VotesComp.sol";
import {ERC20Permit as OldPermit} from "@openzeppelin/contracts/token/ERC20/extensions/draft-ERC20Permit.sol";
import {ERC1155 as OldERC1155} from "@openzeppelin/contracts/token/ERC1155/ERC1155.sol";
import {PaymentSplitter} from "@openzeppelin/contracts/finance/PaymentSplitter.sol";
import {TimelockController} from "@openzeppelin/contracts/governance/TimelockController.sol";
import {BitMaps} from "@openzeppelin/contracts/utils/structs/BitMaps.sol";
import {EnumerableSet} from "@openzeppelin/contracts/utils/structs/EnumerableSet.sol";
import {ERC20} from "openzeppelin-contracts-5/token/ERC20/ERC20.sol";
import {ERC20Permit} from "openzeppelin-contracts-5/token/ERC20/extensions/ERC20Permit.sol";
import {ERC4626} from "openzeppelin-contracts-5/token/ERC20/extensions/ERC4626.sol";
import {ERC721} from "openzeppelin-contracts-5/token/ERC721/ERC721.sol";
import {ERC721Enumerable} from "openzeppelin-contracts-5/token/ERC721/extensions/ERC721Enumerable.sol";
import {ERC721Votes} from "openzeppelin-contracts-5/token/ERC721/extensions/ERC721Votes.sol";
import {EIP712} from "openzeppelin-contracts-5/utils/cryptography/EIP712.sol";
import {ERC1155} from "openzeppelin-contracts-5/token/ERC1155/ERC1155.sol";
import {ERC1155Supply} from "openzeppelin-contracts-5/token/ERC1155/extensions/ERC1155Supply.sol";
import {ERC6909} from "openzeppelin-contracts-5/token/ERC6909/ERC6909.sol";
import {Ownable, Ownable2Step} from "openzeppelin-contracts-5/access/Ownable2Step.sol";
import {Pausable} from "openzeppelin-contracts-5/utils/Pausable.sol";
import {VestingWallet} from "openzeppelin-contracts-5/finance/VestingWallet.sol";
import {AccessControlUpgradeable} from "openzeppelin-contracts-upgradeable-5/access/AccessControlUpgradeable.sol";
import {OwnableUpgradeable} from "openzeppelin-contracts-upgradeable-5/access/OwnableUpgradeable.sol";
import {PausableUpgradeable} from "openzeppelin-contracts-upgradeable-5/utils/PausableUpgradeable.sol";
import {ERC1155Upgradeable} from "openzeppelin-contracts-upgradeable-5/token/ERC1155/ERC1155Upgradeable.sol";
import {ERC721 as SolmateERC721} from "solmate/src/tokens/ERC721.sol";
import {ERC1155 as SolmateERC1155} from "solmate/src/tokens/ERC1155.sol";
import {ERC6909 as SolmateERC6909} from "solmate/src/tokens/ERC6909.sol";
import {WETH as SolmateWETH} from "solmate/src/tokens/WETH.sol";
import {ERC721 as SoladyERC721} from "solady/src/tokens/ERC721.sol";
import {ERC1155 as SoladyERC1155} from "solady/src/tokens/ERC1155.sol";
import {ERC6909 as SoladyERC6909} from "solady/src/tokens/ERC6909.sol";
import {WETH as SoladyWETH} from "solady/src/tokens/WETH.sol";
import {OwnableRoles} from "solady/src/auth/OwnableRoles.sol";

contract OldSnapshot is OldERC20("Old", "OLD"), ERC20Snapshot {
    function fill(address account) external { _mint(account, 1001); _snapshot(); _mint(account, 7); }

    function _beforeTokenTransfer(address from, address to, uint256 amount) internal override(OldERC20, ERC20Snapshot) {
        super._beforeTokenTransfer(from, to, amount);
    }
}

contract OldCompVotes is ERC20VotesComp {
    constructor() OldERC20("Old", "OLD") OldPermit("Old") {}

    function fill(address account) external { _delegate(account, account); _mint(account, 1001); }
}

contract Old1155 is OldERC1155("") {
    function fill(address account) external { _mint(account, 7, 1001, ""); _setApprovalForAll(account, address(this), true); }
}

contract Splitter is PaymentSplitter {
    constructor() PaymentSplitter(_payees(), _shares()) {}

    function _payees() private pure returns (address[] memory all) { all = new address[](1); all[0] = address(0xAD); }
    function _shares() private pure returns (uint256[] memory all) { all = new uint256[](1); all[0] = 25; }
    function fill(address) external {}
}

contract Timelock is TimelockController {
    uint256 private salt = 4;

    constructor() TimelockController(1000, new address[](0), new address[](0)) { _setupRole(PROPOSER_ROLE, address(this)); }

    function fill(address account) external {
        this.schedule(account, 0, "", 0, bytes32(salt++), 1000);
    }
}

contract Claims {
    using BitMaps for BitMaps.BitMap;

    BitMaps.BitMap private claimed;

    function fill(address) external { claimed.set(300); }
    function isClaimed(uint256 index) external view returns (bool) { return claimed.get(index); }
}

contract Members {
    using EnumerableSet for EnumerableSet.AddressSet;

    EnumerableSet.AddressSet private all;

    function fill(address account) external { all.add(account); all.add(address(uint160(block.number))); }
    function contains(address account) external view returns (bool) { return all.contains(account); }
    function length() external view returns (uint256) { return all.length(); }
    function at(uint256 index) external view returns (address) { return all.at(index); }
}

contract Permit is ERC20Permit {
    constructor() ERC20("New", "NEW") ERC20Permit("New") {}

    function fill(address account) external { _useNonce(account); _mint(account, 1001); _approve(account, account, type(uint256).max); }
}

contract Plain is ERC20("New", "NEW") {
    function fill(address account) external { _mint(account, 1001); }
}

contract Vault5 is ERC4626 {
    constructor(ERC20 token) ERC20("Vault", "VLT") ERC4626(token) {}

    function fill(address account) external { Plain(asset()).fill(address(this)); _mint(account, 500); }
}

contract Enumerable721 is ERC721("New", "NEW"), ERC721Enumerable {
    uint256 private next = 7;

    function fill(address account) external { _mint(account, next++); _setApprovalForAll(account, address(this), true); _approve(address(this), next - 1, address(0)); }

    function _update(address to, uint256 token, address auth) internal override(ERC721, ERC721Enumerable) returns (address) { return super._update(to, token, auth); }
    function _increaseBalance(address account, uint128 value) internal override(ERC721, ERC721Enumerable) { super._increaseBalance(account, value); }
    function supportsInterface(bytes4 id) public view override(ERC721, ERC721Enumerable) returns (bool) { return super.supportsInterface(id); }
}

contract Votes721 is ERC721Votes {
    uint256 private next = 7;

    constructor() ERC721("New", "NEW") EIP712("New", "1") {}

    function fill(address account) external { _mint(account, next++); _delegate(account, account); }
}

contract Supply1155 is ERC1155(""), ERC1155Supply {
    function fill(address account) external { _mint(account, 7, 1001, ""); _setApprovalForAll(account, address(this), true); }

    function _update(address from, address to, uint256[] memory ids, uint256[] memory values) internal override(ERC1155, ERC1155Supply) { super._update(from, to, ids, values); }
}

contract New6909 is ERC6909 {
    function fill(address account) external { _mint(account, 7, 1001); _setOperator(account, address(this), true); _approve(account, address(this), 7, 55); }
}

contract TwoStep is Ownable2Step {
    constructor() Ownable(msg.sender) {}

    function fill(address account) external { _transferOwnership(address(this)); Ownable2Step(address(this)).transferOwnership(account); }
}

contract Switch is Pausable {
    function fill(address) external { if (!paused()) _pause(); }
}

contract Vesting is VestingWallet {
    constructor() VestingWallet(msg.sender, 1, 2) {}

    function fill(address) external {}
}

contract UpgradeableRoles is AccessControlUpgradeable, PausableUpgradeable, OwnableUpgradeable {
    function fill(address account) external {
        _grantRole(keccak256("MINTER"), account);
        if (!paused()) _pause();
        _transferOwnership(account);
    }
}

contract Upgradeable1155 is ERC1155Upgradeable {
    function fill(address account) external { _mint(account, 7, 1001, ""); }
}

contract Mate721 is SolmateERC721("Mate", "MATE") {
    uint256 private next = 7;

    function tokenURI(uint256) public pure override returns (string memory) { return ""; }
    function fill(address account) external { _mint(account, next++); getApproved[7] = address(this); }
}

contract Mate1155 is SolmateERC1155 {
    function uri(uint256) public pure override returns (string memory) { return ""; }
    function fill(address account) external { _mint(account, 7, 1001, ""); isApprovedForAll[account][address(this)] = true; }
}

contract Mate6909 is SolmateERC6909 {
    function fill(address account) external { _mint(account, 7, 1001); }
}

contract MateWeth is SolmateWETH {
    function fill(address account) external { _mint(account, 1001); }
}

contract Lady721 is SoladyERC721 {
    uint256 private next = 7;

    function name() public pure override returns (string memory) { return "Lady"; }
    function symbol() public pure override returns (string memory) { return "LADY"; }
    function tokenURI(uint256) public pure override returns (string memory) { return ""; }
    function fill(address account) external { _mint(account, next++); _setAux(account, 99); _setExtraData(7, 98); }
}

contract Lady1155 is SoladyERC1155 {
    function uri(uint256) public pure override returns (string memory) { return ""; }
    function fill(address account) external { _mint(account, 7, 1001, ""); }
}

contract Lady6909 is SoladyERC6909 {
    function name(uint256) public pure override returns (string memory) { return "Lady"; }
    function symbol(uint256) public pure override returns (string memory) { return "LADY"; }
    function tokenURI(uint256) public pure override returns (string memory) { return ""; }
    function fill(address account) external { _mint(account, 7, 1001); }
}

contract LadyWeth is SoladyWETH {
    function fill(address account) external { _mint(account, 1001); }
}

contract LadyRoles is OwnableRoles {
    function fill(address account) external { _setOwner(account); _grantRoles(account, 6); }
}

/// As USDC: one word has the balance and, in its highest bit, whether the account is blocked. The contract may pause.
contract FiatToken {
    address public pauser = address(0xAD);
    bool public paused;
    uint8 private initialized = 3;
    mapping(address => uint256) private states;
    mapping(address => mapping(address => uint256)) public allowance;

    function fill(address account) external { states[account] += 1001; allowance[account][address(this)] += 5; }
    function balanceOf(address account) external view returns (uint256) { return states[account] & (1 << 255) - 1; }
    function isBlacklisted(address account) external view returns (bool) { return states[account] >> 255 == 1; }
    function version() external view returns (uint8) { return initialized; }
}

/// As ERC721A: the owner, the time, a burnt bit, and one bit for the next token, which may have no owner of its own.
contract Packed721 {
    mapping(uint256 => uint256) private packed;
    mapping(address => uint256) private counts;
    uint256 private next = 1;

    function fill(address account) external {
        packed[next] = uint160(account) | block.timestamp << 160;
        next += 3;
        counts[account] += 3 | 3 << 64;
    }
    function ownerOf(uint256 token) external view returns (address) {
        require(token != 0 && token < next, "none");
        while (packed[token] == 0) --token;
        require(packed[token] & 1 << 224 == 0, "burnt");
        return address(uint160(packed[token]));
    }
    function balanceOf(address account) external view returns (uint256) { return uint64(counts[account]); }
    function numberMinted(address account) external view returns (uint256) { return uint64(counts[account] >> 64); }
}

/// As stETH: the balance follows from shares and two totals.
contract Shares {
    mapping(address => uint256) private shares;
    uint256 private totalShares = 1;
    uint256 private pooled = 1;

    function fill(address account) external { shares[account] += 1000; totalShares += 1000; pooled += 1100; }
    function balanceOf(address account) external view returns (uint256) { return shares[account] * pooled / totalShares; }
    function sharesOf(address account) external view returns (uint256) { return shares[account]; }
}

/// As a lending market and a perpetual exchange: mappings of structs, signed numbers and enums.
contract Market {
    enum Side { None, Long, Short }
    struct Position { Side side; int96 size; uint128 margin; int256 profit; address owner; bool isOpen; }
    struct Reserve { uint128 index; uint40 time; uint16 id; mapping(address => uint256) scaled; uint256[] caps; }

    mapping(bytes32 => Position) private positions;
    mapping(address => mapping(uint256 => Reserve)) private reserves;
    mapping(address => int256) public profitOf;
    int24[] private ticks;
    Position[] private all;

    function fill(address account) external {
        positions["BTC"] = Position(Side.Short, -500, 1001, -1e18, account, true);
        all.push(positions["BTC"]);
        Reserve storage reserve = reserves[account][7];
        (reserve.index, reserve.time, reserve.id) = (1e18, 1_700_000_000, 3);
        reserve.scaled[account] += 44;
        reserve.caps.push(1001);
        ticks.push(-887272);
        profitOf[account] -= 5;
    }

    function sideOf(bytes32 key) external view returns (Side) { return positions[key].side; }
    function sizeOf(bytes32 key) external view returns (int96) { return positions[key].size; }
    function marginOf(bytes32 key) external view returns (uint128) { return positions[key].margin; }
    function profit(bytes32 key) external view returns (int256) { return positions[key].profit; }
    function ownerOf(bytes32 key) external view returns (address) { return positions[key].owner; }
    function isOpen(bytes32 key) external view returns (bool) { return positions[key].isOpen; }
    function ofAll(uint256 index) external view returns (int256) { return all[index].profit; }
    function indexOf(address account, uint256 id) external view returns (uint128) { return reserves[account][id].index; }
    function scaled(address account, uint256 id) external view returns (uint256) { return reserves[account][id].scaled[account]; }
    function cap(address account, uint256 id, uint256 index) external view returns (uint256) { return reserves[account][id].caps[index]; }
    function tick(uint256 index) external view returns (int24) { return ticks[index]; }
}

/// As UNI, with the number of checkpoints in a mapping next to them, and fields of 96 bits.
contract UniVotes {
    struct Checkpoint { uint32 fromBlock; uint96 votes; }

    uint256 public totalSupply = 1e9;
    mapping(address => mapping(address => uint96)) private allowances;
    mapping(address => uint96) private balances;
    mapping(address => address) public delegates;
    mapping(address => mapping(uint32 => Checkpoint)) public checkpoints;
    mapping(address => uint32) public numCheckpoints;

    function fill(address account) external {
        balances[account] += 1001;
        delegates[account] = account;
        checkpoints[account][numCheckpoints[account]++] = Checkpoint(uint32(block.number), balances[account]);
    }
    function balanceOf(address account) external view returns (uint256) { return balances[account]; }
    function getCurrentVotes(address account) external view returns (uint96) {
        uint32 count = numCheckpoints[account];
        return count > 0 ? checkpoints[account][count - 1].votes : 0;
    }
}

/// As Chainlink's proxies: a feed of a phase, whose newest round has the answer.
contract RoundFeed {
    struct Round { int192 answer; uint64 time; }

    uint80 public latestRound;
    mapping(uint80 => Round) private rounds;

    function fill(address) external { rounds[++latestRound] = Round(2000e8 + int192(uint192(latestRound)), uint64(block.timestamp)); }
    function latestAnswer() external view returns (int256) { return rounds[latestRound].answer; }
    function latestTimestamp() external view returns (uint256) { return rounds[latestRound].time; }
    function getAnswer(uint80 round) external view returns (int256) { return rounds[round].answer; }
}

/// As an exchange's pair: two reserves and a time in one word; and its answer of three words.
contract Pair {
    uint112 private first;
    uint112 private second;
    uint32 private time;

    function fill(address) external { (first, second, time) = (first + 1001, second + 2002, uint32(block.timestamp)); }
    function getReserves() external view returns (uint112, uint112, uint32) { return (first, second, time); }
}
