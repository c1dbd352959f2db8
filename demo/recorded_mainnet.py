"""Old blocks of Ethereum mainnet, proven on a development chain by a registry with mainnet's values.

Headers and branches are recorded ones, from `../shared/fixtures/beacon` beside the project.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import rlp
from eth_abi.abi import encode
from eth_utils.abi import filter_abi_by_type, function_signature_to_4byte_selector, get_abi_input_types
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from chains import history, packed
from chains.beacon.jumps import MAINNET
from chains.encoding import hex_data
from chains.header import Header
from chains.packed import BLOCK_BEFORE_CAPELLA, BLOCK_BEFORE_MERGE, OLD_BLOCK, BlockBranch, HeaderParts
from contracts import load_artifact
from demo import client
from demo.installation import DemoError
from devnet.devchain import ACCOUNTS, DevChain
from tests.contracts import recorded_beacon

_SENDER = ACCOUNTS[0][0]
_NUMBER, _TIMESTAMP = 8, 11
# What is wanted of the header that a jump begins with.
_NEWER_NUMBER = 22_500_000


@dataclass(frozen=True)
class _Recorded:
    number: int
    era: str
    jump: HeaderParts
    """The branch; before it the header that it begins with, unless that is a constant."""
    header: bytes


def is_there() -> bool:
    """Return whether anything is recorded on this machine."""
    return bool(recorded_beacon.numbers())


def prove(chain: DevChain) -> bool:
    """Deploy, and prove number and time of each block. Returns whether they are those of the recorded headers."""
    beacon = _deploy(chain, "BeaconHistory", MAINNET.arguments)
    source = _deploy(chain, "test/SettableBlockHashSource", 1)
    registry = _deploy(chain, "FactsRegistry", 1, source, history.WINDOW, beacon)
    newer = _newer_header()
    data = encode(["uint256", "bytes32"], [_NEWER_NUMBER, keccak(newer)])
    _send(chain, source, function_signature_to_4byte_selector("set(uint256,bytes32)") + data)
    # All of them, also after one that is wrong.
    are_right = [_prove(chain, registry, recorded) for recorded in _all(newer)]
    return all(are_right)


def _prove(chain: DevChain, registry: str, recorded: _Recorded) -> bool:
    header = Header.decode(recorded.header)
    parts = [*recorded.jump, recorded.header]
    proof = packed.encode(parts, header.state_root, header_fields=[_NUMBER, _TIMESTAMP])
    receipt = _send(chain, registry, proof)
    words = [client.header_field(chain.url, registry, recorded.number, field) for field in (_NUMBER, _TIMESTAMP)]
    said = [int.from_bytes(word) for word in words]
    is_right = said == [header.number, header.timestamp] == [recorded.number, header.timestamp]
    moment = datetime.fromtimestamp(said[1], UTC)
    branch = next(part for part in recorded.jump if isinstance(part, BlockBranch))
    print(
        f"  block {recorded.number:>10,}  {recorded.era:<13}  branch {len(branch.branch):>5,} bytes  "
        f"{int(receipt['gasUsed'], 16):,} gas  time {moment:%Y-%m-%d %H:%M:%S}"
        + ("" if is_right else f"  WRONG: its header says {header.timestamp}"),
        flush=True,
    )
    return is_right


def _all(newer: bytes) -> Iterator[_Recorded]:
    for number in recorded_beacon.numbers_before_merge():
        # One of the ten that follow each other says as much as all.
        if recorded_beacon.is_in_the_epoch(number) and number != 1_000_001:
            continue
        branch = BlockBranch(BLOCK_BEFORE_MERGE, recorded_beacon.branch_before_merge(number))
        yield _Recorded(number, "proof of work", [branch], recorded_beacon.header(number))
    for number in recorded_beacon.numbers():
        is_early = recorded_beacon.is_before_capella(number)
        branch = BlockBranch(BLOCK_BEFORE_CAPELLA if is_early else OLD_BLOCK, recorded_beacon.branch(number))
        layout = MAINNET.layout(recorded_beacon.block(number).header.slot)
        jump: HeaderParts = [branch] if is_early else [newer, branch]
        yield _Recorded(number, layout.name.capitalize(), jump, recorded_beacon.header(number))


def _newer_header() -> bytes:
    """Return a header whose field 19 names the beacon block around the recorded state. None is recorded."""
    fields: list[Any] = [bytes(32), bytes(32), bytes(20), b"\x01" * 32, bytes(32), bytes(32), bytes(256), 0]
    fields += [_NEWER_NUMBER, 30_000_000, 0, 1_746_800_000, b"", bytes(32), bytes(8), 7, bytes(32), 0, 0]
    encoded: bytes = rlp.encode([*fields, recorded_beacon.anchor().header.root, bytes(32)])
    return encoded


# --- The chain --------------------------------------------------------------------------------------------------------


def _deploy(chain: DevChain, name: str, *arguments: Any) -> str:
    artifact = load_artifact(name)
    types = get_abi_input_types(filter_abi_by_type("constructor", artifact.abi)[0])
    receipt = _mined(chain, {"data": hex_data(artifact.bytecode + encode(types, arguments))})
    return to_checksum_address(receipt["contractAddress"])


def _send(chain: DevChain, to: str, data: bytes) -> dict[str, Any]:
    return _mined(chain, {"to": to, "data": hex_data(data)})


def _mined(chain: DevChain, transaction: dict[str, str]) -> dict[str, Any]:
    receipt: dict[str, Any] = chain.rpc("eth_sendTransactionSync", {"from": _SENDER, **transaction})
    if receipt["status"] != "0x1":
        raise DemoError(f"The transaction {receipt['transactionHash']} of a recorded block reverted.")
    return receipt
