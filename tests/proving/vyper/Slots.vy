# Compiled by vyper VERSION Slots.vy > Slots-VERSION.hex, once, because old versions need an old Python.

struct Point:
    bias: uint256
    slope: uint256

struct Nested:
    first: uint256
    point: Point
    list: uint256[3]
    last: uint256

plain: uint256
text: String[70]
points: HashMap[address, HashMap[uint256, Point]]
votes: HashMap[address, HashMap[address, uint256]]
by_text: HashMap[String[40], uint256]
by_bytes: HashMap[Bytes[64], uint256]
by_bytes32: HashMap[bytes32, uint256]
by_int: HashMap[int128, uint256]
lists: uint256[3][2]
bools: bool[4]
nested: Nested
texts: HashMap[uint256, String[70]]
list_of_points: Point[3]
mappings: HashMap[uint256, uint256[4]]
last: uint256

@external
def fill(account: address):
    self.plain = 101
    self.text = "The quick brown fox jumps over the lazy dog and goes on"
    self.points[account][7].bias = 102
    self.points[account][7].slope = 103
    self.votes[account][self] = 104
    self.by_text["abc"] = 105
    self.by_bytes[b"abcd"] = 106
    self.by_bytes32[keccak256(b"x")] = 107
    self.by_int[-3] = 108
    self.lists[1][2] = 109
    self.bools[2] = True
    self.nested.point.slope = 110
    self.nested.list[2] = 111
    self.nested.last = 112
    self.texts[5] = "abcdefgh"
    self.list_of_points[2].slope = 113
    self.mappings[9][3] = 114
    self.last = 115
