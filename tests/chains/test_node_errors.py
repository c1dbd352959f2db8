"""The words of nodes: what they mean, and that no key in them ends on public pages."""

import pytest

from chains.node_errors import (
    MAX_CHARS,
    AlreadyKnown,
    FeeTooLow,
    InsufficientFunds,
    NonceTooLow,
    ReplacementUnderpriced,
    Reverted,
    RpcRefused,
    plain,
    read_refusal,
)
from tests.chains.lying_node import error, is_chain_id, lying_node, result

KEY = "8f3a0cB71d4e4b6f9a52c0de77aa1b23"
HASH = "0x" + "ab1" * 21 + "f"


def _parts(secret: str) -> list[str]:
    """Four letters of it in a row, or all."""
    letters = secret.lower()
    return [letters[start : start + 4] for start in range(max(1, len(letters) - 3))]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("missing trie node", "missing trie node"),
        ("", ""),
        (None, "None"),
        ({"a": [1]}, "{'a': [1]}"),
        ("two\nlines\x1b[31m and\ttabs\x00", "two lines [31m and tabs"),
        ("left\u202eright\u2066isolated\u200bhidden\u2028line", "left right isolated hidden line"),
        (f"see https://rpc.example/v3/{KEY}?x=1 for more", "see [redacted] for more"),
        ("wss://user:word@rpc.example", "[redacted]"),
        (f"project {KEY} has no credit", "project [redacted] has no credit"),
        ("the key bqs_0123456789abcdefghijklmnopq is unknown", "the key [redacted] is unknown"),
        ("api_key=short, token: other", "api_key=[redacted] token: [redacted]"),
        (f"no state of {HASH}", f"no state of {HASH}"),
        ("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266 is poor", "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266 is poor"),
        ("uncharacteristically long words stay", "uncharacteristically long words stay"),
        ("end”. The service is closed. “", 'end". The service is closed. "'),
    ],
)
def test_words_are_one_plain_line_without_keys(said, shown):
    assert plain(said) == shown


@pytest.mark.parametrize("said", ["x " * 10_000, "y" * 1_000_000, f"{KEY} " * 100_000, "=" * 100_000])
def test_words_are_few(said):
    assert len(plain(said)) <= MAX_CHARS


@pytest.mark.parametrize("place", range(3950, 4010))
def test_a_key_that_is_cut_is_no_rest_of_a_key(place):
    filler = f"https://{'x' * (place - 20)} "
    shown = plain(f"{filler}{KEY} and more words {'z' * 100}")
    assert not any(KEY[:size] in shown for size in range(4, len(KEY)))


# As a node may echo what is in its URL: every form in which a part of it can be told.
SHORT = "q7%2Bx"
FORMS = [
    KEY,
    KEY.upper(),
    KEY.swapcase(),
    KEY[:16],
    KEY[-12:],
    KEY[:15],
    f"{KEY[:6]}...{KEY[-4:]}",
    f"{KEY[:4]}***",
    "-".join(KEY[place : place + 4] for place in range(0, 32, 4)),
    " ".join(KEY),
    f"{KEY[:16]} and {KEY[16:]}",
    "\u200b".join(KEY),
    "".join(f"%{ord(letter):02x}" for letter in KEY),
    "".join(f"%25{ord(letter):02X}" for letter in KEY),
    SHORT,
    "q7+x",
    "Q7 X",
    "pa$$Word",
    "PA%24%24word",
    "user",
    "xy",
    "dXNlcjpwYSQk",
]
ECHOED = {letters for part in (KEY, "q7x", "paword", "user", "dxnlcjpwysqk") for letters in _parts(part)}


def refusing(said: str):
    return lambda body: result(body, "0x7a69") if is_chain_id(body) else error(body, -32000, said)


@pytest.mark.parametrize("form", FORMS)
def test_no_part_of_a_node_s_url_is_told_in_any_form(client_of, form):
    with lying_node(refusing(f"unknown project <{form}>, sorry")) as url, pytest.raises(RpcRefused) as caught:
        client_of(f"{url.replace('//', '//user:pa%24%24Word@')}/xy/{KEY}?token={SHORT}").balance("0x" + "11" * 20)
    told = caught.value.for_operators
    assert "unknown project" in told
    assert told.endswith("sorry”.")
    left = "".join(letter for letter in told.partition("project")[2].lower() if letter.isalnum())
    assert not [part for part in ECHOED if part in left.replace("redacted", "")]
    assert str(caught.value) == "The node refused (-32000)."


def test_ordinary_words_of_a_node_stay(client_of):
    said = "invalid API key, header not found, exceeded 10,000 rpc calls"
    with lying_node(refusing(said)) as url, pytest.raises(RpcRefused) as caught:
        client_of(f"{url}/v3/{KEY}?apikey={KEY}&x=1").balance("0x" + "11" * 20)
    assert caught.value.message == said


@pytest.mark.parametrize("method", ["eth_getBalance", "eth_call"])
def test_only_operators_read_a_node_s_words(client_of, method):
    said = f"no quarter for\u202e secret-path, ask https://rpc.example/{KEY}" + "!" * 1000

    def refuse(body):
        return result(body, "0x7a69") if is_chain_id(body) else error(body, 3, said)

    with lying_node(refuse) as url, pytest.raises(RpcRefused) as caught:
        client_of(f"{url}/secret-path").call(method, "0x" + "11" * 20, "latest")
    assert str(caught.value) == "The node refused (3)."
    told = "The node refused (3); the node said: “no quarter for [redacted], ask [redacted]”."
    assert caught.value.for_operators == told
    assert isinstance(caught.value, Reverted) == (method == "eth_call")


def test_a_refusal_is_known_by_words_that_are_not_shown(client_of):
    def refuse(body):
        return result(body, "0x7a69") if is_chain_id(body) else error(body, -32000, "x" * 200 + " execution reverted")

    with lying_node(refuse) as url, pytest.raises(Reverted):
        client_of(url).eth_call("0x" + "11" * 20, b"")


def test_a_code_is_short_too(client_of):
    def refuse(body):
        return result(body, "0x7a69") if is_chain_id(body) else error(body, 10**4000, "")

    with lying_node(refuse) as url, pytest.raises(RpcRefused) as caught:
        client_of(url).balance("0x" + "11" * 20)
    assert str(caught.value) == "The node refused (0)."


# --- Refusals of transactions, in the words of each kind of node ------------------------------------------------------

# The words of geth, Nethermind, Besu, Erigon, Reth, EthereumJS, hardhat, ganache and anvil, old versions too, as their
# sources have them or as they answered, with the values that they put in.
REFUSALS: dict[type[RpcRefused], list[str]] = {
    AlreadyKnown: [
        "already known",
        "known transaction: 12",
        "AlreadyKnown",
        "existing txn with same hash",
        "existing tx with same hash",
        "0x12: this transaction is already in the TxPool",
        "transaction already imported",
    ],
    NonceTooLow: [
        "nonce too low: next nonce 5, tx nonce 4",
        "OldNonce",
        "INTERNAL_ERROR: nonce too low",
        "0x12 tries to send a tx with nonce 0, but account has nonce 1 (tx nonce too low)",
        "Transaction nonce too low. Expected nonce to be at least 1 but got 0.",
    ],
    ReplacementUnderpriced: [
        "replacement transaction underpriced: new tx gas fee cap 1 < 2 queued",
        "ReplacementNotAllowed",
        "could not replace existing tx",
        "replacement gas too low, got tip 1, min: 2, got fee 3, min: 4",
        "Replacement transaction underpriced. A gasPrice/maxFeePerGas of at least 3 is necessary to replace",
    ],
    InsufficientFunds: [
        "insufficient funds for gas * price + value: balance 0, tx cost 1, overshot 1",
        "InsufficientFunds, Account balance: 0, cumulative cost: 1",
        "Upfront cost exceeds account balance",
        "insufficient funds",
        "0x12 does not have enough balance to cover transaction costs, need 1, but have 0 (insufficient balance)",
        "Sender doesn't have enough funds to send tx. The max upfront cost is: 1 and the sender's balance is: 0.",
    ],
    FeeTooLow: [
        "transaction underpriced",
        "transaction gas price below minimum: gas tip cap 1, minimum needed 1000000",
        "max fee per gas less than block base fee: address 0x12, maxFeePerGas: 1, baseFee: 7",
        "FeeTooLow",
        "FeeTooLowToCompete",
        "Gas price below configured minimum gas price",
        "Gas price below current base fee",
        "underpriced",
        "fee too low",
        "transaction priority fee below minimum required priority fee 1000000",
        "Tx does not pay the minimum gas price of 1",
        "Tx cannot pay basefee of 7, have 1 (not within 50% range of current basefee)",
        "Transaction maxFeePerGas (1) is too low for the next block, which has a baseFeePerGas of 7",
    ],
    RpcRefused: [
        "nonce too high",
        "exceeds block gas limit",
        "in-flight transaction limit reached for delegated accounts",
        "nonce too far in future",
        "An invalid transaction with a lower nonce exists",
        "gas limit is too high",
        "txpool is full",
        "Tx gaslimit of 2 exceeds block gas limit of 1 (exceeds last block gas limit)",
        "Transaction requires at least 21000 gas but got 20000",
        "intrinsic gas too low",
    ],
}


@pytest.mark.parametrize(("message", "kind"), [(words, kind) for kind, all_ in REFUSALS.items() for words in all_])
def test_refused_transactions_are_told_apart(message, kind):
    refusal = read_refusal("host", "eth_sendRawTransaction", {"code": -32000, "message": message})
    assert type(refusal) is kind


@pytest.mark.parametrize(
    ("method", "message"),
    [
        # Those of Besu.
        ("eth_sendRawTransaction", "Transaction gas limit exceeds block gas limit"),
        ("eth_sendRawTransaction", "Transaction gas limit cap exceeded"),
        ("eth_getLogs", "Requested range exceeds maximum RPC range limit"),
        ("eth_getProof", "Number of requests exceeds max batch size"),
        # One that providers send.
        ("eth_getLogs", "query returned more than 10000 results"),
    ],
)
def test_a_limit_of_one_request_is_no_limit_of_how_many_may_be_sent(method, message):
    """They have the code of EIP-1474 for "limit exceeded", by which others refuse too many requests a second."""
    assert type(read_refusal("host", method, {"code": -32005, "message": message})) is RpcRefused


@pytest.mark.parametrize(
    ("given", "data"),
    [
        ({"code": 3, "message": "execution reverted", "data": "0x12"}, b"\x12"),
        ({"code": -32015, "message": "VM execution error.", "data": "Reverted 0x12"}, b"\x12"),
        ({"code": -32000, "message": "execution reverted"}, b""),
        ({"code": -32000, "message": "VM Exception: revert", "data": {"data": "0x12"}}, b"\x12"),
        ({"code": 3, "message": "execution reverted: rate limit", "data": "0x12"}, b"\x12"),
        ({"code": 3, "message": "execution reverted: insufficient funds", "data": 12}, b""),
    ],
)
def test_reverts_are_known_in_every_form(given, data):
    refusal = read_refusal("host", "eth_call", given)
    assert isinstance(refusal, Reverted)
    assert refusal.data == data
