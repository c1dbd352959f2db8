"""The client sends missing transactions in order and each once. It signs only transactions that prove something."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from batch_query_client import NotDoneInTime, Payer, TransactionFailed, UnsafeTransaction, WrongChain
from batch_query_client.json_rpc import Node
from batch_query_client.operations import Access
from batch_query_client.paying import send
from batch_query_client.registry import selector
from tests.chains import geth_answers
from tests.client.answers import ID, batch
from tests.client.world import PATIENCE, World, answer

pytestmark = pytest.mark.outside

REGISTRY, TOKEN, ME = ("0x" + digit * 40 for digit in "123")
ACCESS = Access("https://service.example", "bqs_key", PATIENCE)
PROOF = "0x02" + "ab" * 40
HASH = "0x" + "cd" * 32


def transaction(**changed: Any) -> dict[str, Any]:
    fields = {"to": REGISTRY, "data": PROOF, "value": "0x0", "gas": "0x5208", "chainId": "0x7a69", "what": "Prove it."}
    return fields | {"queries": [1]} | changed


def to_send(*transactions: dict[str, Any], **changed: Any) -> Any:
    return answer(200, {"chainId": "31337", "isComplete": False, "waits": [], "transactions": transactions} | changed)


# The service's answer when no transaction is missing.
COMPLETE = to_send(isComplete=True)
OURS = answer(200, batch(sourceChainIds=["1"]))


@dataclasses.dataclass
class Chain:
    """A node that records requests. `others` replaces its answers."""

    others: dict[str, Any] = dataclasses.field(default_factory=dict)
    sent: list[bytes] = dataclasses.field(default_factory=list)
    would_revert: bool = False

    def make_request(self, method: str, params: Any) -> Any:
        if method in self.others:
            return self.others[method]
        if method == "eth_call" and "from" in params[0] and self.would_revert:
            return {"error": {"code": 3, "message": "execution reverted", "data": "0x"}}
        if method == "eth_sendRawTransaction":
            self.sent.append(bytes.fromhex(params[0][2:]))
        results = {
            "eth_chainId": "0x7a69",
            "eth_call": f"0x{int(params[0]['to'] == REGISTRY):064x}" if method == "eth_call" else "",
            "eth_getTransactionCount": hex(len(self.sent)),
            "eth_getBlockByNumber": {"baseFeePerGas": "0x64"},
            "eth_maxPriorityFeePerGas": "0x1",
            "eth_sendRawTransaction": HASH,
            "eth_getTransactionReceipt": {"status": "0x1", "gasUsed": "0x5208", "effectiveGasPrice": "0x65"},
        }
        return {"jsonrpc": "2.0", "id": 1, "result": results[method]}


def pay(chain: Chain, *answers: Any, timeout: float = 60, **payer: Any) -> Any:
    signed: list[dict[str, Any]] = []

    def sign(fields: dict[str, Any]) -> Any:
        signed.append(fields)
        return SimpleNamespace(raw_transaction=bytes.fromhex(fields["data"][2:]))

    who = Payer(SimpleNamespace(address=ME, sign_transaction=sign), **{"confirm": lambda _: True, **payer})
    world = World(OURS, *answers)
    return world.run(send(ACCESS, ID, Node(chain, PATIENCE), who, timeout=timeout)), signed


def test_missing_transactions_are_sent_in_order_and_each_once():
    chain = Chain()
    other = transaction(data="0xf9" + "cd" * 40)
    # The service lists the first transaction again, because it hasn't noticed the block yet.
    (sent, signed) = pay(chain, to_send(transaction(), other), to_send(other, isComplete=True))
    assert [fields["data"] for fields in signed] == [PROOF, other["data"]]
    assert [fields["nonce"] for fields in signed] == [0, 1]
    assert signed[0] | {"data": ""} == {
        "type": 2,
        "chainId": 31337,
        "nonce": 0,
        "to": REGISTRY,
        "value": 0,
        "data": "",
        "gas": 21000,
        "maxFeePerGas": 201,
        "maxPriorityFeePerGas": 1,
    }
    assert [(payment.gas_used, payment.cost, payment.what) for payment in sent] == [
        (21000, 21000 * 101, "Prove it.")
    ] * 2


@pytest.mark.parametrize(
    "function",
    ["proveTimestamp(bytes,bytes,uint256)", "attest(uint256,bytes32,bytes)", "record()", "run((address,bytes)[])"],
)
def test_calls_that_tell_registries_and_sources_more_are_sent(function):
    chain = Chain()
    pay(chain, to_send(transaction(data=f"0x{selector(function).hex()}")), COMPLETE)
    assert len(chain.sent) == 1


def test_a_transaction_undone_by_a_reorg_is_sent_once_more():
    chain = Chain()
    waiting = to_send(transaction(), waits=["One block more."])
    (sent, _) = pay(chain, *[waiting] * 10, COMPLETE, timeout=200)
    assert len(sent) == 2


UNSAFE = {
    "money": {"value": "0x1"},
    "a transfer of a token": {"to": TOKEN, "data": f"0x{selector('transfer(address,uint256)').hex()}" + "00" * 64},
    "an approval": {"to": TOKEN, "data": f"0x{selector('approve(address,uint256)').hex()}" + "00" * 64},
    # The selector's first byte is the same as a proof's.
    "a swap": {"to": TOKEN, "data": "0x04e45aaf" + "00" * 224},
    "a proof to something else": {"to": TOKEN},
    "nothing at all": {"data": "0x"},
    "another chain": {"chainId": "0x1"},
}


@pytest.mark.parametrize("changed", UNSAFE.values(), ids=UNSAFE)
def test_nothing_else_is_signed(changed):
    chain = Chain()
    with pytest.raises(UnsafeTransaction, match="It was not signed"):
        pay(chain, to_send(transaction(**changed)))
    assert chain.sent == []


def test_a_node_of_another_chain_gets_nothing():
    chain = Chain({"eth_chainId": {"result": "0x1"}})
    with pytest.raises(WrongChain):
        pay(chain, to_send(transaction()))


@pytest.mark.parametrize(
    ("would_revert", "payer", "sentence"),
    [
        (True, {}, r"would revert, so it was not sent\. The node refused: execution reverted"),
        (False, {"confirm": lambda _: False}, "not confirmed, so it was not signed"),
        (False, {"most_wei": 21000 * 201 - 1}, "may cost 4221000 wei, which is above the limit"),
    ],
)
def test_reverting_unwanted_and_too_expensive_transactions_are_not_signed(would_revert, payer, sentence):
    chain = Chain(would_revert=would_revert)
    with pytest.raises(TransactionFailed, match=sentence):
        pay(chain, to_send(transaction()), **payer)
    assert chain.sent == []


def test_the_spending_limit_is_for_all_transactions_together():
    chain = Chain()
    twice = [transaction(), transaction(data=PROOF + "00")]
    with pytest.raises(TransactionFailed, match="above the limit"):
        pay(chain, to_send(*twice), most_wei=21000 * (101 + 201) - 1)
    assert len(chain.sent) == 1


def test_a_reverted_transaction_is_reported():
    reverted = {"result": {"status": "0x0", "gasUsed": "0x1"}}
    with pytest.raises(TransactionFailed, match=f"{HASH} has reverted"):
        pay(Chain({"eth_getTransactionReceipt": reverted}), to_send(transaction()))


@dataclasses.dataclass
class IndexingChain(Chain):
    """A geth that has just started, and refuses so many receipts."""

    refused: int = 0

    def make_request(self, method: str, params: Any) -> Any:
        if method == "eth_getTransactionReceipt" and self.refused:
            self.refused -= 1
            refusal = geth_answers.REFUSALS["transactions that are not indexed"]
            return {"error": dict(zip(("code", "message", "data"), refusal, strict=True))}
        return super().make_request(method, params)


def test_a_node_that_refuses_receipts_for_a_while_is_asked_again():
    pay(chain := IndexingChain(refused=3), to_send(transaction()), COMPLETE)
    assert (len(chain.sent), chain.refused) == (1, 0)
    with pytest.raises(TransactionFailed, match=r"not mined within 60 s\. The node refused: transaction indexing"):
        pay(IndexingChain(refused=1000), to_send(transaction()))


def test_an_unmined_transaction_and_an_incomplete_batch_are_waited_for_with_a_limit():
    with pytest.raises(TransactionFailed, match="not mined within 60 s"):
        pay(Chain({"eth_getTransactionReceipt": {"result": None}}), to_send(transaction()))
    waits = to_send(waits=["The block is not there yet."])
    with pytest.raises(NotDoneInTime, match=r"not complete after 10 s\. The block is not there yet\.$"):
        pay(Chain(), *[waits] * 99, timeout=10)
