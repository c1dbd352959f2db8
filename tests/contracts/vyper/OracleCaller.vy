# pragma version 0.4.3
"""
@title Asks an oracle of block hashes, as contracts that are written in Vyper do
@license MIT
@notice `vyper -f bytecode OracleCaller.vy > OracleCaller.hex`, by vyper 0.4.3
"""

interface IBlockHashOracle:
    def get_block_hash(_number: uint256) -> bytes32: view
    def get_state_root(_number: uint256) -> bytes32: view
    def find_known_block_number(_before: uint256) -> uint256: view


@view
@external
def block_hash(_oracle: address, _number: uint256) -> bytes32:
    return staticcall IBlockHashOracle(_oracle).get_block_hash(_number)


@view
@external
def state_root(_oracle: address, _number: uint256) -> bytes32:
    return staticcall IBlockHashOracle(_oracle).get_state_root(_number)


@view
@external
def known_block_number(_oracle: address, _before: uint256) -> uint256:
    return staticcall IBlockHashOracle(_oracle).find_known_block_number(_before)
