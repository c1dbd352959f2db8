"""Transfers that tests of the client sign and send."""

from eth_account import Account

from chains.nodes import questions
from chains.nodes.rpc import RpcClient
from devnet.devchain import ACCOUNTS

ALICE, BOB = (address for address, _ in ACCOUNTS[:2])
CONTRACT = "0x" + "33" * 20


def signed(nonce: int, *, key: str = ACCOUNTS[0][1], value: int = 1, tip: int = 10**9) -> bytes:
    return bytes(
        Account.sign_transaction(
            {
                "chainId": 31337,
                "nonce": nonce,
                "to": BOB,
                "value": value,
                "gas": 21_000,
                "maxFeePerGas": 20 * 10**9 + tip,
                "maxPriorityFeePerGas": tip,
            },
            key,
        ).raw_transaction
    )


def send(client: RpcClient, raw: bytes) -> bytes:
    return client.sent(raw, client.ask([questions.raw_transaction(raw)])[0])
