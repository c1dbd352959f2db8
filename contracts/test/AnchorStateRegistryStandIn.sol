// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;

/// @notice What is asked of the real DisputeGameFactory.
interface IDisputeGameFactory {
    function games(uint32 gameType, bytes32 rootClaim, bytes calldata extraData)
        external
        view
        returns (address game, uint64 createdAt);
}

/// @notice What is asked of a real FaultDisputeGame.
interface IFaultDisputeGame {
    function gameData() external view returns (uint32 gameType, bytes32 rootClaim, bytes memory extraData);
    function anchorStateRegistry() external view returns (address);
    function createdAt() external view returns (uint64);
    function resolvedAt() external view returns (uint64);
    function status() external view returns (uint8);
    function rootClaim() external view returns (bytes32);
    function l2BlockNumber() external view returns (uint256);
}

/// @title For tests only: stands in for the AnchorStateRegistry of an OP Stack chain, version 3. Anybody is its guardian.
/// @dev It decides as "AnchorStateRegistry" of the OP Stack specification says. One thing differs: a game is respected if
/// its type is respected now. Games of version 1.2.0, the newest whose code a package has, don't tell what was respected
/// when they were made.
contract AnchorStateRegistryStandIn {
    uint8 private constant DEFENDER_WINS = 2;

    IDisputeGameFactory public disputeGameFactory;
    uint256 public disputeGameFinalityDelaySeconds;
    IFaultDisputeGame public anchorGame;
    bool public paused;
    uint32 public respectedGameType;
    uint64 public retirementTimestamp;
    mapping(address game => bool) public disputeGameBlacklist;

    constructor(IDisputeGameFactory factory, uint256 delaySeconds) {
        (disputeGameFactory, disputeGameFinalityDelaySeconds) = (factory, delaySeconds);
    }

    function setPaused(bool paused_) external {
        paused = paused_;
    }

    function setRespectedGameType(uint32 gameType) external {
        respectedGameType = gameType;
    }

    function updateRetirementTimestamp() external {
        retirementTimestamp = uint64(block.timestamp);
    }

    function blacklistDisputeGame(address game) external {
        disputeGameBlacklist[game] = true;
    }

    function setAnchorState(IFaultDisputeGame game) external {
        (, uint256 number) = getAnchorRoot();
        require(isGameClaimValid(game) && game.l2BlockNumber() > number);
        anchorGame = game;
    }

    /// @notice Games of version 1.2.0 call it when they are resolved.
    function tryUpdateAnchorState() external {}

    /// @notice Games of version 1.2.0 ask it when they are made.
    function anchors(uint32) external view returns (bytes32 root, uint256 number) {
        return getAnchorRoot();
    }

    function getAnchorRoot() public view returns (bytes32 root, uint256 number) {
        if (address(anchorGame) == address(0)) return (bytes32(uint256(1)), 0);
        return (anchorGame.rootClaim(), anchorGame.l2BlockNumber());
    }

    function isGameClaimValid(IFaultDisputeGame game) public view returns (bool) {
        (uint32 gameType, bytes32 rootClaim, bytes memory extraData) = game.gameData();
        (address registered,) = disputeGameFactory.games(gameType, rootClaim, extraData);
        if (registered != address(game) || game.anchorStateRegistry() != address(this)) return false;
        if (disputeGameBlacklist[address(game)] || game.createdAt() <= retirementTimestamp || paused) return false;
        if (gameType != respectedGameType) return false;
        uint256 resolvedAt = game.resolvedAt();
        if (resolvedAt == 0 || block.timestamp - resolvedAt <= disputeGameFinalityDelaySeconds) return false;
        return game.status() == DEFENDER_WINS;
    }
}
