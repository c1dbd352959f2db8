"""Transactions that geth refuses, and the causes that the service finds. tests/chains/geth_answers.py has the words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from eth_account import Account
from eth_account.signers.local import LocalAccount
from eth_utils.crypto import keccak

from chains.nodes.node_errors import SEND, RpcRefused, plain, read_refusal
from config.configured_chains import get_rpc
from devnet.devchain import ACCOUNTS
from proving.models import SignedTransaction, Signer, Transaction
from proving.sending import signing
from proving.sending.signing import RefusalCause
from tests.chains.geth_answers import RARELY_REFUSED_SENDS, REFUSED_SENDS
from tests.chains.lying_node import ask
from tests.factories import until
from tests.real_nodes.driven_geth import CHAIN_ID, DrivenGeth, geth_fixture
from tests.service import ALICE, chains_toml

pytestmark = [pytest.mark.geth, pytest.mark.django_db]

GWEI, ETHER = 10**9, 10**18
USUAL = {"gas": 21_000, "maxFeePerGas": 10 * GWEI, "maxPriorityFeePerGas": 2 * GWEI}
DEAR = {"gas": 6_000_000, "maxFeePerGas": 100 * GWEI}
NO_MONEY = Account.create()
node = geth_fixture(lambda node: node.mine(2), namespaces="eth,txpool")


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
        fields: dict[str, Any] = (
            {"type": 2, "chainId": CHAIN_ID, "nonce": nonce, "to": ALICE, "value": 1} | USUAL | changed
        )
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
        # The pool takes a block over later, here one that has the account's money.
        until(lambda: "result" in send(self.node, bytes(version.raw)), "a taken transaction")
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
    raw = bytes(rich.sign_transaction(fields | USUAL).raw_transaction)
    until(lambda: "result" in send(node, raw), "a taken transaction")
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


@dataclass(frozen=True)
class Case:
    words: str
    """The name of geth's words in tests/chains/geth_answers.py."""
    cause: RefusalCause
    arrange: Callable[[Sender], SignedTransaction]
    """Returns a version that geth refuses."""


WORDS = {**REFUSED_SENDS, **RARELY_REFUSED_SENDS}
REPLACEMENT, GAS, UNEXPLAINED = RefusalCause.REPLACEMENT, RefusalCause.GAS, RefusalCause.UNEXPLAINED
CASES: Mapping[str, Case] = {
    "the same bytes again": Case("already known", RefusalCause.SENT, Sender.sent),
    "the bytes of a mined transaction": Case("nonce too low", RefusalCause.SENT, Sender.mined),
    "another transaction with a used nonce": Case(
        "nonce too low", RefusalCause.NONCE_USED, lambda sender: sender.mined() and sender.version(value=2)
    ),
    "both fees 9 % higher": Case(
        "replacement underpriced", REPLACEMENT, lambda sender: sender.sent() and sender.version(**raised(109, 109))
    ),
    "a priority fee 10 %, and a maximum fee 9 % higher": Case(
        "replacement underpriced", REPLACEMENT, lambda sender: sender.sent() and sender.version(**raised(109, 110))
    ),
    "the version that was replaced": Case("replacement underpriced", REPLACEMENT, _replaced),
    "no money": Case("insufficient funds", RefusalCause.FUNDS, Sender.without_money),
    "no money after earlier ones": Case(
        "insufficient funds behind others",
        RefusalCause.FUNDS,
        lambda sender: sender.mined(value=9 * ETHER) and sender.sent(1, **DEAR) and sender.version(2, **DEAR),
    ),
    "less gas than a transaction takes": Case("gas too low", GAS, lambda sender: sender.version(gas=20_000)),
    "less gas than its calldata takes": Case(
        "gas too low for the data", GAS, lambda sender: sender.version(gas=30_000, data=b"\x11" * 400)
    ),
    "no priority fee": Case("fee too low", UNEXPLAINED, lambda sender: sender.version(maxPriorityFeePerGas=0)),
    "a priority fee above the maximum fee": Case(
        "priority fee too high", UNEXPLAINED, lambda sender: sender.version(maxPriorityFeePerGas=11 * GWEI)
    ),
    "a fee above --rpc.txfeecap": Case(
        "fee too high", UNEXPLAINED, lambda sender: sender.version(gas=10**7, maxFeePerGas=160 * GWEI)
    ),
    "gas above 2^24": Case("gas too high", UNEXPLAINED, lambda sender: sender.version(gas=2**24 + 1)),
    "too much code to run": Case(
        "code too long", UNEXPLAINED, lambda sender: sender.version(to=None, gas=10**7, data=bytes(49_153))
    ),
    "too much data": Case(
        "data too long", UNEXPLAINED, lambda sender: sender.version(gas=10**7, data=b"\x11" * 131_000)
    ),
    "another chain's": Case("other chain", UNEXPLAINED, lambda sender: sender.version(chainId=CHAIN_ID + 1)),
    "no chain's": Case("no chain", UNEXPLAINED, lambda sender: sender.version(type=0)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_state_of_the_chain_explains_what_geth_refuses(sender, case, caplog):
    version = case.arrange(sender)
    refusal = read_refusal("geth", SEND, send(sender.node, bytes(version.raw))["error"])
    assert type(refusal) is RpcRefused
    assert refusal.is_like(RpcRefused(-32000, plain(WORDS[case.words]))), refusal.message
    signing.broadcast(get_rpc(CHAIN_ID), [version])
    version.refresh_from_db()
    is_sent = case.cause == RefusalCause.SENT
    assert (bool(version.broadcast_at), bool(version.refused_at)) == (is_sent, not is_sent)
    logged = [line for line in caplog.messages if line.startswith("broadcasting ")]
    assert [case.cause.value in line for line in logged] == [True] * (not is_sent)


@pytest.mark.parametrize("fields", [{"nonce": 100}, {"maxFeePerGas": 2, "maxPriorityFeePerGas": 1}])
def test_geth_takes_a_transaction_that_it_can_mine_only_later(sender, fields):
    version = sender.version(**fields)
    signing.broadcast(get_rpc(CHAIN_ID), [version])
    version.refresh_from_db()
    assert version.broadcast_at
