"""Code to paste: the calls that read a fact from its registry, and the request that asks for it."""

import json
from dataclasses import dataclass

from queries.models import AccountField

_SIGNATURE = "accountField(address,uint256,uint8)(bytes32)"
_ABI = [
    {
        "type": "function",
        "name": "accountField",
        "stateMutability": "view",
        "inputs": [
            {"name": "account", "type": "address"},
            {"name": "blockNumber", "type": "uint256"},
            {"name": "field", "type": "uint8"},
        ],
        "outputs": [{"name": "", "type": "bytes32"}],
    }
]


@dataclass(frozen=True)
class Snippet:
    language: str
    code: str


def reading(registry: str, address: str, block_number: int, field: AccountField) -> tuple[Snippet, ...]:
    """How to read one fact: from a shell, from Python and from a contract."""
    arguments = f"{address}, {block_number}, {field.value}"
    return (
        Snippet("cast", f"cast call --rpc-url \"$RPC_URL\" {registry} '{_SIGNATURE}' {arguments.replace(',', '')}"),
        Snippet(
            "web3.py",
            f"""import os

from web3 import Web3

w3 = Web3(Web3.HTTPProvider(os.environ["RPC_URL"]))
registry = w3.eth.contract(
    address="{registry}",
    abi={json.dumps(_ABI, separators=(",", ":"))},
)
word = registry.functions.accountField("{address}", {block_number}, {field.value}).call()
print({"int.from_bytes(word)" if field in {AccountField.BALANCE, AccountField.NONCE} else '"0x" + word.hex()'})""",
        ),
        Snippet(
            "Solidity",
            f"""interface IFactsRegistry {{
    function accountField(address account, uint256 blockNumber, uint8 field) external view returns (bytes32);
}}

contract Reader {{
    IFactsRegistry constant REGISTRY = IFactsRegistry({registry});

    // {field.name}; reverts where nothing is proven.
    function read() external view returns (bytes32) {{
        return REGISTRY.accountField({arguments});
    }}
}}""",
        ),
    )


def submitting(base_url: str, body: str) -> str:
    """A shell command that submits `body`, with a placeholder for the key."""
    quoted = body.replace("'", "'\\''")
    return f"curl --header \"api-key: $API_KEY\" --json '{quoted}' '{base_url}/submit-batch-query'"
