"""What a node says of itself may end on public pages."""

import pytest

from chains.node_errors import Reverted, RpcRefused
from chains.untrusted_text import MAX_CHARS, plain
from tests.chains.lying_node import error, is_chain_id, lying_node, result

KEY = "8f3a0cB71d4e4b6f9a52c0de77aa1b23"
HASH = "0x" + "ab1" * 21 + "f"


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


@pytest.mark.parametrize("method", ["eth_getBalance", "eth_call"])
def test_a_refusal_shows_the_node_s_words_as_its_own(client_of, method):
    said = f"no quarter for\u202e secret-path, ask https://rpc.example/{KEY}" + "!" * 1000

    def refuse(body):
        return result(body, "0x7a69") if is_chain_id(body) else error(body, 3, said)

    with lying_node(refuse) as url, pytest.raises(RpcRefused) as caught:
        client_of(f"{url}/secret-path").call(method, "0x" + "11" * 20, "latest")
    assert str(caught.value) == ("The node refused (3); the node said: “no quarter for [redacted], ask [redacted]”.")
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
