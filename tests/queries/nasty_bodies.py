"""Bodies of the maximum size that would be expensive to parse completely."""

import json
from collections.abc import Callable, Mapping

from chains.encoding import checksummed
from devnet.devchain import ACCOUNTS

ALICE = ACCOUNTS[0][0]
BYTES = 4 * 1024 * 1024
_SLOT = '"0x' + "{:064x}" + '"'


def _body(blocks: str) -> bytes:
    return f'{{"destinationChainId": "31337", "fee": "0", "data": {{"31337": {{{blocks}}}}}}}'.encode()


def _repeated(form: str, most: int = BYTES) -> str:
    """Repeat `form`, with a number inserted, up to the maximum size."""
    return ",".join(form.format(number) for number in range((most - 1000) // (len(form.format(10**6)) + 1)))


def _account(content: str) -> bytes:
    return _body(f'"block:1": {{"accounts": {{"{ALICE}": {{{content}}}}}}}')


# The largest body that a service with default limits accepts.
GOOD = _account(f'"slots": [{",".join(_SLOT.format(number) for number in range(9_999))}]')
# A service checks each checksum.
_CHECKSUMMED = [checksummed(f"0xabcdefabcdef{number:028x}") for number in range(10_000)]
GOOD_ACCOUNTS = _body(
    '"block:1": {"accounts": {'
    + ",".join(f'"{address}": {{"props": ["BALANCE", "NONCE"]}}' for address in _CHECKSUMMED)
    + "}}"
)

_NAMES = [
    {"slot": "2", "keys": [ALICE, {"index": f"{number}", "size": "64", "length": "9999"}]} for number in range(9_999)
]
GOOD_NAMES = _account(f'"slots": {json.dumps(_NAMES)}')

# Functions make the bodies on demand, because making all of them takes seconds.
NASTY: Mapping[str, Callable[[], bytes]] = {
    "bad slots": lambda: _account(f'"slots": [{_repeated("null")}]'),
    "bad properties": lambda: _body(
        '"block:1": {"accounts": {'
        + ",".join(f'"0x{number:040x}": {{"props": [{",".join("1" * 16)}]}}' for number in range(10_000))
        + "}}"
    ),
    "bad header properties": lambda: _body(
        ",".join(f'"block:{number}": {{"header": [{",".join("1" * 64)}]}}' for number in range(10_000))
    ),
    "bad addresses": lambda: _body(
        f'"block:1": {{"accounts": {{{_repeated(chr(34) + "0x{}" + chr(34) + ": {{}}")}}}}}'
    ),
    "accounts that are none": lambda: _body(
        '"block:1": {"accounts": {' + ",".join(f'"0x{number:040x}": 1' for number in range(10_000)) + "}}"
    ),
    "bad blocks": lambda: _body(_repeated('"{}": 1')),
    "unknown fields": lambda: b"{" + _repeated('"{}": 1').encode() + b"}",
    "one key": lambda: b'{"fee": 1' + b', "fee": 1' * 99_999 + b"}",
    "deep lists": lambda: b"[" * BYTES,
    "long numbers": lambda: b"[" + (b"1" * 999 + b",") * (BYTES // 1000 - 1) + b"1]",
    "one address": lambda: _body('"block:1": {"accounts": {"0x' + "1" * (BYTES - 1000) + '": {}}}'),
    "escapes in slots": lambda: _account(f'"slots": [{_repeated(chr(34) + chr(92) + "u0031{}" + chr(34))}]'),
}
