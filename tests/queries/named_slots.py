"""Slots by name with their numbers, and wrong names."""

from typing import Any

from tests.service import ALICE


def member(place: int) -> dict[str, str]:
    return {"member": str(place)}


def element(index: str, **about: str) -> dict[str, str]:
    return {"index": index, **about}


TEXT, BYTES, BYTES4 = (
    {"key": "clé", "type": "string"},
    {"key": "0x00fF", "type": "bytes"},
    {"key": "0x12345678", "type": "bytes4"},
)
GAUGE, VOTER, WEEK = (
    "0x26f7786de3e6d9bd37fcf47be6f2bc455a21b74a",
    "0xfac2f11ba2577d5122dc1ec5301d35b16688251e",
    "1730937600",
)
# The layout, the variable's slot, the keys, and the value's slot, which `cast` has computed by formulas. First those by
# which vote markets prove votes of gauge controllers on other chains: of Curve's (Vyper 0.2.4), Balancer's (Vyper 0.3)
# and Pendle's (Solidity). Then one for each form of a key.
_ROWS: list[tuple[str, int, list[Any], str]] = [
    ("vyper-0.2.12", 12, [GAUGE, WEEK, member(0)], "417a34ca18288c939253cc4e9712b1eb86999cfb3357eeb75749f6fa948f598e"),
    ("vyper-0.2.12", 9, [VOTER, GAUGE, member(0)], "177db78194b62d3faa4a843f54c88e74adb096e11b710a2d9ca871090ba58e75"),
    ("vyper-0.2.12", 9, [VOTER, GAUGE, member(2)], "177db78194b62d3faa4a843f54c88e74adb096e11b710a2d9ca871090ba58e77"),
    ("vyper-0.2.12", 11, [VOTER, GAUGE], "932574e7ded7899e6f06e556403a0e1e6a98527c65abf840171efb71ca27f0bb"),
    ("vyper", 10**9 + 8, [GAUGE, WEEK], "ed72d9186fb8679741f2a69b0469990a1f84cad910407d181613bbdc67552fcd"),
    ("vyper", 10**9 + 5, [VOTER, GAUGE], "fc09da830ed3450f5d23213139e5913e257d46202cd8f039592c64884c86d698"),
    ("vyper", 10**9 + 7, [VOTER, GAUGE], "1cf3f5cb55dcd28d47f4ccecec4245d2cb2283d7b212de8d5ff416faeef1e03c"),
    ("solidity", 161, [WEEK, member(1), GAUGE], "905ea756d44cccb3cc4bb5e069aafd2c862044dda036d39f8e0c121c454ad37d"),
    ("solidity", 162, [VOTER, member(1), GAUGE], "910da7511f3065d3142d0ee2d99c76c6a41b71964b9f675e35776f6502821fc0"),
    ("solidity", 3, [TEXT], "2eeb6b7ce2e6a3f168fd3abb045c014abfd4ae28f21a8b25d7e6acd915943aad"),
    ("solidity", 4, [BYTES], "1b56a1dd48dceba63b356dc76147d8f79296ff8939af6b887906539803354846"),
    ("solidity", 5, [BYTES4], "819e92e97628c2e288a6484d2b2c89ac2dc3b35cb18e86c4bbcb77aaa596ed4f"),
    ("solidity", 6, ["-887272"], "320c01cfc5204af76378f4fb0013d5c6b985e8874073c6da7fc74f9cf20432b3"),
    ("solidity", 7, [element("17", size="2")], "a66cc928b5edb82af9bd49922954155ab7b0942694bea4ce44661d9a8736c689"),
    ("solidity", 8, [element("3", size="12")], "f3f7a9fe364faab93b216da50a3214154f22a0a2b415b23a84c8169e8b636ee4"),
    ("solidity", 7, [element("2", size="40")], "a66cc928b5edb82af9bd49922954155ab7b0942694bea4ce44661d9a8736c68c"),
    ("solidity", 7, [element("18", size="2", length="20")], f"{8:064x}"),
    ("solidity", 7, [element("3", size="0x40", length="4")], f"{13:064x}"),
    ("solidity", 2**256 - 1, [element("3", length="4")], f"{2:064x}"),
    ("vyper", 3, [TEXT], "1a8cbcbf3a2f4e5d463130a058e14205e4b50d9aa7c6151bc1bef19dec4b215a"),
    ("vyper", 5, [BYTES4], "8ecdd5978d278e299a2772e1196983b14a76f28ffb74a0150587490f2b998957"),
    ("vyper", 7, [element("2", size="33")], f"{12:064x}"),
    ("vyper", 7, [element("2", size="1", length="4")], f"{9:064x}"),
    ("vyper-0.2.12", 4, [BYTES], "cb140e8db271f9db1e9abb4c9ccb7486ea338cdad8db0c3b6c055d0a5a65fdf5"),
    (
        "vyper-0.2.12",
        7,
        [element("2", size="64", length="3")],
        "a66cc928b5edb82af9bd49922954155ab7b0942694bea4ce44661d9a8736c68a",
    ),
    ("vyper-0.2.12", 7, [element("5")], "a66cc928b5edb82af9bd49922954155ab7b0942694bea4ce44661d9a8736c68e"),
]
NAMED_SLOTS: list[tuple[dict[str, Any], str]] = [
    ({"slot": f"{slot:x}", "keys": keys, "layout": layout}, f"0x{number}") for layout, slot, keys, number in _ROWS
]

# Statements of the sender, which the slot doesn't depend on.
STATED: dict[str, Any] = {
    "call": "balanceOf(address)",
    "part": {"offset": 0, "size": 128, "form": "unsigned"},
    "decimals": 18,
    "symbol": "USD₮0",
}
WRONG_STATEMENTS: list[tuple[str, dict[str, Any], str]] = [
    *(
        ("/call", {"call": call}, "A call is a view function's name and full types without spaces")
        for call in [
            *("", "f", "f()x", "f( )", "f(uint)", "f(uint7)", "f(address, address)", "f(uint256[])", "f(address,)"),
            *("<b>()", "f()\n", "balanc\u0435Of()", f"{'f' * 65}()", f"f({','.join(['bool'] * 5)})", 5, ["f()"]),
        ]
    ),
    *(
        (f"/part/{field}", {"part": STATED["part"] | {field: value}}, sentence)
        for field, value, sentence in [
            ("offset", -1, "It is an integer from 0 to 255."),
            ("offset", "0", "It is an integer from 0 to 255."),
            ("size", 0, "It is an integer from 1 to 256."),
            ("size", True, "It is an integer from 1 to 256."),
            ("form", "hex", "'hex' must be 'unsigned', 'signed', 'left' or 'bool'."),
        ]
    ),
    ("/part", {"part": STATED["part"] | {"offset": 129}}, "A part ends within the 256 bits of its word."),
    ("/decimals", {"decimals": 78}, "It is an integer from 0 to 77."),
    ("/decimals", {"decimals": "18"}, "It is an integer from 0 to 77."),
    *(
        ("/symbol", {"symbol": symbol}, "A symbol is up to 20 letters and digits, two letters first")
        for symbol in [
            "",
            "M",
            "1,000 USDC",
            "USDC: 5",
            "=cmd",
            "<b>",
            "USDC\n",
            "\u202eCDSU",
            "claim.xyz",
            "A" * 21,
            5,
        ]
    ),
]

WRONG_NAMES: list[tuple[str, dict[str, Any], str]] = [
    ("/keys", {"slot": "1"}, "'keys' is missing."),
    ("", {"slot": "1", "keys": []}, "'keys' is empty: nothing to prove."),
    ("/keys", {"slot": "1", "keys": ["1"] * 17}, "'keys' has more than 16 entries."),
    ("/slot", {"slot": "0x", "keys": ["1"]}, "A storage slot is up to 64 hexadecimal digits, not '0x'."),
    ("/layout", {"slot": "1", "keys": ["1"], "layout": "fe"}, "'fe' must be 'solidity', 'vyper' or 'vyper-0.2.12'."),
    ("/offset", {"slot": "1", "keys": ["1"], "offset": "1"}, "'offset' is not a field of the request."),
    # pydantic names kinds of slots and keys like this.
    ("/[mapping]", {"slot": "1", "keys": ["1"], "[mapping]": "1"}, "'[mapping]' is not a field of the request."),
    *(
        (f"/keys/1{where}", {"slot": "1", "keys": ["1", key]}, sentence)
        for where, key, sentence in [
            ("", "abc", "A key is a number in decimal, or up to 64 hexadecimal digits with 0x"),
            ("", 5, "A key is a number in decimal"),
            ("", str(2**256), "A key is a number in decimal"),
            ("", str(-(2**255) - 1), "A key is a number in decimal"),
            (
                "",
                ALICE.replace("f39F", "F39f"),
                "'0xF39fd6e51aad88F6F4ce6aB8827279cffFb92266' has a wrong EIP-55 checksum",
            ),
            ("/key", {}, "'key' is missing."),
            ("/[value]", {"key": "1", "type": "string", "[value]": "1"}, "'[value]' is not a field of the request."),
            ("/type", {"key": ALICE, "type": "address"}, "The type of a key is string, bytes, or bytes1 to bytes32"),
            ("/type", {"key": f"0x{0:066x}", "type": "bytes33"}, "The type of a key is string, bytes, or bytes1 to"),
            ("", {"key": "0x123", "type": "bytes"}, "A key of the type bytes is 0x and two hexadecimal digits"),
            ("", {"key": "0x1234", "type": "bytes4"}, "A key of the type bytes4 has 4 bytes, not 2."),
            ("", {"key": "é" * 513, "type": "string"}, "A key has at most 1024 bytes."),
            ("", {"key": "\0", "type": "string"}, "Write a text with a zero byte as bytes."),
            ("/index", {"index": "-0"}, "A number is up to 256 bits in decimal"),
            ("", {"index": "3", "length": "3"}, "The index is not below the length."),
            ("", {"index": "3", "size": "0"}, "An element has at least one byte."),
            ("/member", {"member": str(2**256)}, "A number is up to 256 bits in decimal"),
            ("", {"member": str(2**64)}, "The place of a member is below 2^64."),
            *(
                ("", f"0x{'a' * count}", f"An address has 40 digits after 0x, and '0x{'a' * count}' has {count}:")
                for count in (37, 39, 41, 43)
            ),
            ("/member", {"index": "1", "member": "1"}, "'member' is not a field of the request."),
        ]
    ),
]
