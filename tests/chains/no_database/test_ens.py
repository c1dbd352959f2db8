"""ENS names are resolved on a chain, within limits on names, resolvers and nodes."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from chains import ens
from chains.chains_file import Chain
from chains.nodes.node_errors import NodeUnavailable
from devnet.devchain import ACCOUNTS, DevChain
from tests.chains.hostile_node import dripped_reply, hostile_node, silence
from tests.chains.lying_node import ask, between, error, lying_node, recording
from tests.names import Names

ALICE, BOB = (address for address, _ in ACCOUNTS[:2])


@pytest.fixture(scope="module")
def names() -> Iterator[Names]:
    with DevChain() as chain:
        yield Names(chain)


def at(*urls: str) -> Chain:
    return Chain(id=31337, name="Test chain", rpc_urls=urls)


def resolved(names: Names, *wanted_names: str) -> list[str]:
    """Return for each name its address, or the reason why it has none."""
    answers = ens.resolve(at(names.chain.url), wanted_names)
    return [answer if isinstance(answer, str) else str(answer) for answer in answers]


# --- Names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("vitalik.eth", "vitalik.eth"),
        ("VitaliK.ETH", "vitalik.eth"),
        ("Faß.eth", "faß.eth"),
        ("👨‍👩‍👧.eth", "👨‍👩‍👧.eth"),
        ("a" * 251 + ".eth",) * 2,
    ],
    ids=["plain", "capitals", "letters", "emoji", "longest"],
)
def test_names_are_normalised(name, normal):
    assert ens.normalized(name) == normal


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (".", "is empty"),
        ("a..eth", "is not a valid name (ENSIP-15): Labels cannot be empty"),
        (".eth", "is not a valid name (ENSIP-15): "),
        ("vitalik.eth ", "is not a valid name (ENSIP-15): Invalid character"),
        ("аlice.eth", "is not a valid name (ENSIP-15): "),  # noqa: RUF001 (that is what it is about)
        ("xn--ls8h.eth", "is not a valid name (ENSIP-15): "),
        ("a" * 252 + ".eth", "is longer than 255 bytes"),
        ("é" * 126 + ".eth", "is longer than 255 bytes"),
        # Normalization replaces this letter by six.
        ("㌖" * 60 + ".eth", "is longer than 255 bytes"),
    ],
    ids=["dot", "empty label", "begins with a dot", "space", "confusable", "punycode", "long", "bytes", "grows"],
)
def test_an_invalid_ens_name_is_refused_with_its_reason(name, sentence):
    with pytest.raises(ens.InvalidName) as caught:
        ens.normalized(name)
    assert str(caught.value).startswith(sentence)


# --- On a chain -------------------------------------------------------------------------------------------------------


def test_names_have_the_addresses_that_their_resolvers_say(names):
    names.set("alice.eth", ALICE)
    names.set("pay.bob.eth", BOB)
    names.set_below("below.eth", BOB)
    names.set("nobody.eth", "0x" + "00" * 20)
    names.resolved_by("wallet.eth", ALICE)
    nonsense = names.extended("nonsense.eth")
    nonsense.send("talkNonsense", b"\xff" * 40)
    addresses = {
        "alice.eth": ALICE,
        "pay.bob.eth": BOB,
        "deep.in.below.eth": None,
        "any.below.eth": BOB,
        "unknown.eth": None,
        "nobody.eth": None,
        # Resolvers: one that resolves its own name only, one without code, and one that returns nonsense.
        "sub.alice.eth": None,
        "wallet.eth": None,
        "nonsense.eth": None,
    }
    assert resolved(names, *addresses) == [
        address or "has no address on chain Test chain (31337)" for address in addresses.values()
    ]


def test_a_resolver_that_runs_for_ever_leaves_the_others_their_addresses(names):
    endless = "0x" + "e0" * 20
    names.chain.rpc("anvil_setCode", endless, "0x5b5f56")
    names.resolved_by("endless.eth", endless)
    names.set("quick.eth", BOB)
    first, second = resolved(names, "endless.eth", "quick.eth")
    assert (first.startswith("has "), second) == (True, BOB)


def test_a_resolver_that_refers_to_gateways_is_not_followed(names):
    gateway_requests: list[Any] = []
    with lying_node(recording(gateway_requests, lambda body: ask(names.chain.url, body))) as url:
        names.refer("elsewhere.eth", [url])
        (reason,) = resolved(names, "elsewhere.eth")
    assert reason == "has a resolver that refers to a gateway (EIP-3668), and this service asks no gateways"
    assert gateway_requests == []


# --- Nodes ------------------------------------------------------------------------------------------------------------


def test_a_node_that_is_down_of_another_chain_or_days_behind_is_no_answer(names):
    names.set("here.eth", ALICE)
    assert ens.resolve(at("http://127.0.0.1:1", names.chain.url), ["here.eth"]) == [ALICE]
    with pytest.raises(NodeUnavailable, match="can't be reached"):
        ens.resolve(at("http://127.0.0.1:1"), ["here.eth"])
    with pytest.raises(NodeUnavailable, match="is a node of chain 31337, not of 1"):
        ens.resolve(Chain(id=1, name="Ethereum", rpc_urls=(names.chain.url,)), ["here.eth"])
    with (
        DevChain(extra_args=["--timestamp", "1700000000"]) as old,
        pytest.raises(NodeUnavailable, match="are days behind"),
    ):
        ens.resolve(at(old.url), ["here.eth"])
    with DevChain() as without, pytest.raises(NodeUnavailable, match="has no universal resolver"):
        ens.resolve(at(without.url), ["here.eth"])


@pytest.mark.parametrize("hostile", [silence, dripped_reply], ids=["silence", "dripped_reply"])
def test_a_slow_node_is_not_waited_for(hostile, monkeypatch):
    monkeypatch.setattr(ens, "_NODE_SECONDS", 0.2)
    began = time.monotonic()
    with hostile_node(hostile) as url, pytest.raises(NodeUnavailable, match=r"did not answer eth_\w+ within"):
        ens.resolve(at(url), ["slow.eth", "other.eth"])
    assert time.monotonic() - began < 20


def test_a_node_that_refuses_calls_while_another_is_down_tells_nothing_of_a_name(names):
    def refusing(question: Any, reply: Any) -> list[Any]:
        return [error(question, -32000, "no such method") if question["method"] == "eth_call" else reply]

    with between(names.chain.url, refusing) as url:
        with pytest.raises(NodeUnavailable, match="The node refused"):
            ens.resolve(at(url, "http://127.0.0.1:1"), ["alice.eth"])
        (reason,) = ens.resolve(at(url), ["alice.eth"])
        assert str(reason) == "has a resolver that no node of chain Test chain (31337) can ask"
