// SPDX-License-Identifier: MIT
pragma solidity ^0.8.24;

import {ERC20} from "openzeppelin-contracts-5/token/ERC20/ERC20.sol";
import {ERC20Votes} from "openzeppelin-contracts-5/token/ERC20/extensions/ERC20Votes.sol";
import {ERC721} from "openzeppelin-contracts-5/token/ERC721/ERC721.sol";
import {EIP712} from "openzeppelin-contracts-5/utils/cryptography/EIP712.sol";

/// @title A token with votes, as OpenZeppelin's wizard writes it. Anybody may mint.
contract Votes is ERC20, EIP712, ERC20Votes {
    constructor() ERC20("Votes", "VOTE") EIP712("Votes", "1") {}

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function _update(address from, address to, uint256 value) internal override(ERC20, ERC20Votes) {
        super._update(from, to, value);
    }
}

/// @title An NFT. Anybody may mint.
contract Picture is ERC721 {
    constructor() ERC721("Picture", "PIC") {}

    function mint(address to, uint256 id) external {
        _mint(to, id);
    }
}
