# Compiled by vyper VERSION DynArrays.vy > DynArrays-VERSION.hex.

struct Point:
    bias: uint256
    slope: uint256

plain: uint256
numbers: DynArray[uint256, 5]
bools: DynArray[bool, 5]
points: DynArray[Point, 5]
lists: DynArray[DynArray[uint256, 3], 4]
mapped: HashMap[address, DynArray[Point, 5]]
by_bytes4: HashMap[bytes4, uint256]
last: uint256

@external
def fill(account: address):
    self.plain = 201
    self.numbers = [1, 202, 3]
    self.bools = [False, True, True]
    self.points = [Point({bias: 1, slope: 2}), Point({bias: 3, slope: 203})]
    self.lists = [[1], [2, 204], [3]]
    self.mapped[account] = [Point({bias: 1, slope: 2}), Point({bias: 3, slope: 205})]
    self.by_bytes4[0x12345678] = 206
    self.last = 207
