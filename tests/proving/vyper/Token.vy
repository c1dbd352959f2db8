# Compiled by vyper VERSION Token.vy > Token-VERSION.hex.

struct Lock:
    amount: uint256
    end: uint256

struct Slope:
    bias: uint256
    slope: uint256
    end: uint256

name: public(String[40])
balanceOf: public(HashMap[address, uint256])
allowance: public(HashMap[address, HashMap[address, uint256]])
locked: public(HashMap[address, Lock])
slopes: public(HashMap[address, HashMap[address, Slope]])
frozen: public(HashMap[address, bool])

@external
def fill(account: address):
    self.name = "Token"
    self.balanceOf[account] = 1001
    self.allowance[account][self] = 1002
    self.locked[account].amount = 1003
    self.locked[account].end = 1004
    self.slopes[account][self].end = 1005
    self.frozen[account] = True

@external
@view
def lockedEnd(account: address) -> uint256:
    return self.locked[account].end

@external
@view
def slopeEnd(account: address, gauge: address) -> uint256:
    return self.slopes[account][gauge].end
