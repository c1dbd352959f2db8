"""Stands in for Foundry's `cast` where a machine has none: `call` and `codehash`, as the documentation uses them."""

import json
import sys
import urllib.request
from typing import Any

from eth_abi.abi import decode, encode
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak


def main(arguments: list[str]) -> None:
    command, option, url, *rest = arguments
    if option != "--rpc-url":
        raise SystemExit("--rpc-url must come first here")
    if command == "codehash":
        (address,) = rest
        print("0x" + keccak(_rpc(url, "eth_getCode", address, "latest")).hex())
    elif command == "call":
        contract, signature, *values = rest
        name, inputs, outputs = signature.removesuffix(")").replace(")(", "(").split("(")
        types = [each for each in inputs.split(",") if each]
        data = keccak(text=f"{name}({inputs})")[:4] + encode(
            types, [_value(*each) for each in zip(types, values, strict=True)]
        )
        answer = _rpc(url, "eth_call", {"to": contract, "data": "0x" + data.hex()}, "latest")
        for kind, value in zip(outputs.split(","), decode(outputs.split(","), answer), strict=True):
            print(_shown(kind, value))
    else:
        raise SystemExit(f"cast {command} is not known here")


def _rpc(url: str, method: str, *params: Any) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    asked = urllib.request.Request(url, body, {"content-type": "application/json"})
    # Each of its users starts it anew, and `requests` takes longer to import than all else.
    with urllib.request.urlopen(asked, timeout=30) as answer:
        reply = json.load(answer)
    if "error" in reply:
        raise SystemExit(reply["error"]["message"])
    return bytes.fromhex(reply["result"][2:])


def _value(kind: str, text: str) -> Any:
    return int(text, 0) if kind.startswith("uint") else bytes.fromhex(text[2:]) if kind.startswith("bytes") else text


def _shown(kind: str, value: Any) -> str:
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return to_checksum_address(value) if kind == "address" else str(value)


if __name__ == "__main__":
    main(sys.argv[1:])
