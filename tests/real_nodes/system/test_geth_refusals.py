"""Refusals of geth, by the tables of its words, and what the service makes of them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from eth_account.signers.local import LocalAccount
from eth_utils.crypto import keccak

from chains.nodes import questions
from chains.nodes.node_errors import SEND, RpcRefused, plain, read_refusal
from config.configured_chains import get_rpc
from devnet.devchain import ACCOUNTS
from proving.models import SignedTransaction, Signer, Transaction
from proving.sending import signing
from proving.sending.signing import RefusalCause
from tests.chains.lying_node import ask
from tests.factories import until
from tests.real_nodes.driven_geth import CHAIN_ID, DrivenGeth, geth_fixture
from tests.service import ALICE, BOB, chains_toml

pytestmark = [pytest.mark.geth, pytest.mark.django_db]

_TESTS = Path(__file__).parents[2]


def rows(path: str) -> list[Any]:
    """Return a pytest parameter for each of the table's rows about geth."""
    table = json.loads((_TESTS / path).read_text("utf-8"))
    return [pytest.param(row, id=row["case"]) for row in table if row["client"] == "Geth 1.17"]


GWEI, ETHER = 10**9, 10**18
USUAL = {"gas": 21_000, "maxFeePerGas": 10 * GWEI, "maxPriorityFeePerGas": 2 * GWEI}
DEAR = {"gas": 6_000_000, "maxFeePerGas": 100 * GWEI}
NO_MONEY = Account.create()
node = geth_fixture(lambda node: node.mine(2))


def send(node: DrivenGeth, raw: bytes) -> Any:
    return ask(node.url, {"jsonrpc": "2.0", "id": 1, "method": SEND, "params": ["0x" + raw.hex()]})


@dataclass
class Sender:
    """An account whose transactions are stored as a signer's."""

    node: DrivenGeth
    account: LocalAccount
    row: Signer

    def version(self, nonce: int = 0, **changed: Any) -> SignedTransaction:
        """Store a signed version of the transaction with this nonce."""
        fields = {"type": 2, "chainId": CHAIN_ID, "nonce": nonce, "to": ALICE, "value": 1} | USUAL | changed
        if fields["type"] == 0:
            fields = {name: fields[name] for name in ("nonce", "to", "value", "gas")} | {"gasPrice": 10 * GWEI}
        # A transaction without a recipient creates a contract.
        signed = {name: value for name, value in fields.items() if value is not None}
        raw = bytes(self.account.sign_transaction(signed).raw_transaction)
        of_nonce = {"to": fields["to"] or "", "data": fields.get("data", b""), "gas_limit": fields["gas"]}
        tx, _ = Transaction.objects.get_or_create(signer=self.row, nonce=nonce, defaults=of_nonce)
        return SignedTransaction.objects.create(
            transaction=tx,
            hash="0x" + keccak(raw).hex(),
            raw=raw,
            gas_limit=fields["gas"],
            max_fee_per_gas=fields.get("maxFeePerGas", 10 * GWEI),
            max_priority_fee_per_gas=fields.get("maxPriorityFeePerGas", 10 * GWEI),
        )

    def sent(self, nonce: int = 0, **changed: Any) -> SignedTransaction:
        """Store a version that geth takes."""
        version = self.version(nonce, **changed)
        assert "result" in send(self.node, bytes(version.raw))
        return version

    def mined(self, **changed: Any) -> SignedTransaction:
        version = self.sent(**changed)
        while self.node.rpc("eth_getTransactionReceipt", version.hash) is None:
            self.node.mine()
        # The pool forgets mined transactions soon after the block.
        until(lambda: not self.node.rpc("txpool_contentFrom", self.account.address)["pending"], "an empty pool")
        return version

    def without_money(self) -> SignedTransaction:
        self.account = NO_MONEY
        self.row = Signer.objects.create(chain_id=CHAIN_ID, address=NO_MONEY.address)
        return self.version()


@pytest.fixture
def sender(node, settings, tmp_path) -> Sender:
    """Return a new account with 10 ether."""
    settings.CHAINS_FILE = chains_toml(tmp_path, node.url, chain_id=CHAIN_ID)
    account, rich = Account.create(), Account.from_key(ACCOUNTS[0][1])
    nonce = int(node.rpc("eth_getTransactionCount", rich.address, "latest"), 16)
    fields = {"type": 2, "chainId": CHAIN_ID, "nonce": nonce, "to": account.address, "value": 10 * ETHER}
    assert "result" in send(node, bytes(rich.sign_transaction(fields | USUAL).raw_transaction))
    # A block may leave out a transaction that has just come.
    while int(node.rpc("eth_getBalance", account.address, "latest"), 16) == 0:
        node.mine()
    return Sender(node, account, Signer.objects.create(chain_id=CHAIN_ID, address=account.address))


def raised(most: int, priority: int) -> dict[str, int]:
    """Return the usual fees, each raised to so many percent."""
    percent = {"maxFeePerGas": most, "maxPriorityFeePerGas": priority}
    return {name: USUAL[name] * part // 100 for name, part in percent.items()}


def _replaced(sender: Sender) -> SignedTransaction:
    first = sender.sent()
    sender.sent(**raised(113, 113))
    return first


SENDS: Mapping[str, Callable[[Sender], SignedTransaction]] = {
    "the same bytes again": Sender.sent,
    "the bytes of a mined transaction": Sender.mined,
    "another transaction with a used nonce": lambda sender: sender.mined() and sender.version(value=2),
    "both fees 9 % higher": lambda sender: sender.sent() and sender.version(**raised(109, 109)),
    "a priority fee 10 %, and a maximum fee 9 % higher": lambda sender: (
        sender.sent() and sender.version(**raised(109, 110))
    ),
    "the version that was replaced": _replaced,
    "no money": Sender.without_money,
    "no money after earlier ones": lambda sender: (
        sender.mined(value=9 * ETHER) and sender.sent(1, **DEAR) and sender.version(2, **DEAR)
    ),
    "less gas than a transaction takes": lambda sender: sender.version(gas=20_000),
    "less gas than its calldata takes (EIP-7623)": lambda sender: sender.version(gas=30_000, data=b"\x11" * 400),
    "no priority fee": lambda sender: sender.version(maxPriorityFeePerGas=0),
    "a priority fee above the maximum fee": lambda sender: sender.version(maxPriorityFeePerGas=11 * GWEI),
    "a fee above --rpc.txfeecap": lambda sender: sender.version(gas=10**7, maxFeePerGas=160 * GWEI),
    "gas above 2^24 (EIP-7825)": lambda sender: sender.version(gas=2**24 + 1),
    "too much code to run": lambda sender: sender.version(to=None, gas=10**7, data=bytes(49_153)),
    "too much data": lambda sender: sender.version(gas=10**7, data=b"\x11" * 131_000),
    "another chain's": lambda sender: sender.version(chainId=CHAIN_ID + 1),
    "no chain's": lambda sender: sender.version(type=0),
}


@pytest.mark.parametrize("row", rows("proving/budget/refused_sends.json"))
def test_the_state_of_the_chain_explains_what_geth_refuses(sender, row, caplog):
    version = SENDS[row["case"]](sender)
    refusal = read_refusal("geth", SEND, send(sender.node, bytes(version.raw))["error"])
    assert type(refusal) is RpcRefused
    assert refusal.is_like(RpcRefused(-32000, plain(row["message"]))), refusal.message
    signing.broadcast(get_rpc(CHAIN_ID), [version])
    version.refresh_from_db()
    if row["cause"] == "SENT":
        assert version.broadcast_at
    else:
        (logged,) = (line for line in caplog.messages if line.startswith("broadcasting "))
        assert RefusalCause[row["cause"]].value in logged
    assert bool(version.refused_at) == (row["cause"] != "SENT")


@pytest.mark.parametrize("fields", [{"nonce": 100}, {"maxFeePerGas": 2, "maxPriorityFeePerGas": 1}])
def test_geth_takes_a_transaction_that_it_can_mine_only_later(sender, fields):
    version = sender.version(**fields)
    signing.broadcast(get_rpc(CHAIN_ID), [version])
    version.refresh_from_db()
    assert version.broadcast_at


HISTORY = "0x0000F90827F1C53a10cb7A02335B175320002935"
REVERTS = {"to": HISTORY, "data": "0x" + "ff" * 32}
ENDLESS = {"from": BOB, "data": "0x5b5f56"}
CALLS: Mapping[str, list[Any]] = {
    "a call that reverts": [REVERTS, "latest"],
    "a call with too little gas": [{"to": HISTORY, "data": "0x" + "00" * 32, "gas": "0x5300"}, "latest"],
    "a call that runs out of gas": [ENDLESS, "latest"],
    "a call of no opcode": [{"data": "0xfe"}, "latest"],
    "an estimate that reverts": [REVERTS, "latest"],
    "an estimate above the most gas": [ENDLESS, "latest"],
    "an estimate without money": [{"from": NO_MONEY.address, "to": ALICE, "value": "0x1"}, "latest"],
    "a proof of too many slots": [ALICE, [hex(slot) for slot in range(1025)], "latest"],
    "logs beyond the head": [{"fromBlock": "0x0", "toBlock": "0xffff"}],
    "logs of no range": [{"fromBlock": "0x2", "toBlock": "0x1"}],
    "an unknown method": [],
    "a missing parameter": [],
}


@pytest.mark.parametrize("row", rows("chains/refused_calls.json"))
def test_a_refused_call_of_geth_has_its_type(node, settings, tmp_path, row):
    settings.CHAINS_FILE = chains_toml(tmp_path, node.url, chain_id=CHAIN_ID)
    (answer,) = get_rpc(CHAIN_ID).ask([questions.plain(row["method"], *CALLS[row["case"]])])
    assert type(answer).__name__ == row["class"]
    assert isinstance(answer, RpcRefused)
    assert answer.code == row["code"]
    assert answer.is_like(RpcRefused(row["code"], plain(row["message"]))), answer.message
