"""Contracts of other projects on a development chain, with their original code from npm packages."""

import json
from typing import Any

from eth_abi.abi import encode
from eth_utils.abi import function_signature_to_4byte_selector
from eth_utils.address import to_checksum_address

from devnet.devchain import ACCOUNTS, PROJECT, DevChain

OWNER = ACCOUNTS[0][0]
PACKAGES = PROJECT / "node_modules"
# Gas limit of every transaction. If a contract stores the time, an estimate may be too low in the next block.
_GAS = hex(15_000_000)
# A minimal proxy (EIP-1167): the code before and after the address.
_PROXY = "3d602d80600a3d3981f3363d3d373d3d3d363d73", "5af43d82803e903d91602b57fd5bf3"


def bytecode(artifact: str) -> str:
    """Return the creation code of a contract as hex. `artifact` is a path below the packages."""
    code = json.loads((PACKAGES / artifact).read_text())["bytecode"]
    return str(code["object"] if isinstance(code, dict) else code)


def create(chain: DevChain, code: str) -> str:
    """Create a contract, and return its address."""
    return to_checksum_address(mined(chain, {"data": "0x" + code.removeprefix("0x")})["contractAddress"])


def create_behind_proxy(chain: DevChain, code: str) -> str:
    """Create a contract behind a proxy, because it can only be initialised there. Return the proxy's address."""
    return create(chain, _PROXY[0] + create(chain, code)[2:] + _PROXY[1])


def calldata(signature: str, *arguments: object) -> str:
    """Return the calldata for the function with this signature, as hex."""
    types = signature[signature.index("(") + 1 : -1]
    data = function_signature_to_4byte_selector(signature) + encode(types.split(",") if types else [], arguments)
    return "0x" + data.hex()


def send(chain: DevChain, to: str, signature: str, *arguments: object, sender: str = OWNER) -> Any:
    """Call a function in a transaction that must succeed. Return the receipt as the node sent it."""
    return mined(chain, {"from": sender, "to": to, "data": calldata(signature, *arguments)})


def ask(chain: DevChain, to: str, signature: str, *arguments: object) -> bytes:
    """Return what a function returns now."""
    call = {"to": to, "data": calldata(signature, *arguments)}
    return bytes.fromhex(chain.rpc("eth_call", call, "latest")[2:])


def mined(chain: DevChain, transaction: dict[str, str]) -> Any:
    """Send a transaction, by default from the owner, and return its receipt."""
    receipt = chain.rpc("eth_sendTransactionSync", {"from": OWNER, "gas": _GAS, **transaction})
    assert receipt["status"] == "0x1"
    return receipt
