"""ENS names, on a chain with ENS; and what names, resolvers, gateways and nodes may do to us."""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from eth_abi.abi import encode

from chains import ccip_read, ens
from chains.ccip_read import NotAnswered
from chains.chains_file import Chain
from chains.encoding import hex_data
from chains.rpc import NodeUnavailable
from devnet.devchain import ACCOUNTS, DevChain
from tests.chains.hostile_node import dripped_reply, endless_reply, hostile_node, silence
from tests.chains.lying_node import ask, error, lying_node, recording
from tests.names import Names, gateway

ALICE, BOB = (address for address, _ in ACCOUNTS[:2])


@pytest.fixture(scope="module")
def names() -> Iterator[Names]:
    with DevChain() as chain:
        yield Names(chain)


def at(*urls: str) -> Chain:
    return Chain(id=31337, name="Test chain", rpc_urls=urls)


def resolved(names: Names, *wanted: str, gateways: tuple[str, ...] = ()) -> list[str]:
    """Addresses, or why there is none."""
    found = ens.resolve(at(names.chain.url), wanted, gateways)
    return [one if isinstance(one, str) else str(one) for one in found]


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
    ("name", "said"),
    [
        (".", "is empty"),
        ("a..eth", "is not as ENSIP-15 has it: Labels cannot be empty"),
        (".eth", "is not as ENSIP-15 has it: "),
        ("vitalik.eth ", "is not as ENSIP-15 has it: Invalid character"),
        ("аlice.eth", "is not as ENSIP-15 has it: "),  # noqa: RUF001 (that is what it is about)
        ("xn--ls8h.eth", "is not as ENSIP-15 has it: "),
        ("a" * 252 + ".eth", "is longer than 255 bytes"),
        ("é" * 126 + ".eth", "is longer than 255 bytes"),
        # A letter that stands for six.
        ("㌖" * 60 + ".eth", "is longer than 255 bytes"),
    ],
    ids=["dot", "empty label", "begins with a dot", "space", "confusable", "punycode", "long", "bytes", "grows"],
)
def test_what_is_no_name_is_said_in_words(name, said):
    with pytest.raises(ens.InvalidName) as caught:
        ens.normalized(name)
    assert str(caught.value).startswith(said)


# --- On a chain -------------------------------------------------------------------------------------------------------


def test_names_have_the_addresses_that_their_resolvers_say(names):
    names.set("alice.eth", ALICE)
    names.set("pay.bob.eth", BOB)
    names.set_below("below.eth", BOB)
    names.set("nobody.eth", "0x" + "00" * 20)
    names.resolved_by("wallet.eth", ALICE)
    nonsense = names.extended("nonsense.eth")
    nonsense.send("talkNonsense", b"\xff" * 40)
    wanted = {
        "alice.eth": ALICE,
        "pay.bob.eth": BOB,
        "deep.in.below.eth": None,
        "any.below.eth": BOB,
        "unknown.eth": None,
        "nobody.eth": None,
        # A resolver that resolves one name and none below, one without code, and one that answers anything.
        "sub.alice.eth": None,
        "wallet.eth": None,
        "nonsense.eth": None,
    }
    assert resolved(names, *wanted) == [
        address or "has no address on chain Test chain (31337)" for address in wanted.values()
    ]


def test_many_names_take_few_exchanges(names):
    wanted = [f"name-{number}.many.eth" for number in range(40)]
    names.set_below("many.eth", ALICE)
    asked: list[Any] = []
    with lying_node(recording(asked, lambda body: ask(names.chain.url, body))) as url:
        assert ens.resolve(at(url), wanted) == [ALICE] * 40
    # The chain's id, the newest block, and all of the calls.
    assert [len(body) if isinstance(body, list) else body["method"] for body in asked] == [
        "eth_chainId",
        "eth_getBlockByNumber",
        40,
    ]


def test_a_resolver_that_runs_for_ever_leaves_the_others_their_addresses(names):
    endless = "0x" + "e0" * 20
    names.chain.rpc("anvil_setCode", endless, "0x5b5f56")
    names.resolved_by("endless.eth", endless)
    names.set("quick.eth", BOB)
    first, second = resolved(names, "endless.eth", "quick.eth")
    assert (first.startswith("has "), second) == (True, BOB)


# --- Gateways ---------------------------------------------------------------------------------------------------------


def test_a_gateway_is_asked_by_get_or_post_and_taken_apart_where_that_is_left_to_us(names):
    asked: list[Any] = []
    with gateway(lambda request: asked.append(request) or BOB) as origin:  # type: ignore[func-returns-value]
        get = names.refer("get.eth", [f"{origin}/{{sender}}/{{data}}.json?a=b"])
        post = names.refer("post.eth", ["https://gateway.invalid", f"{origin}/post"])
        for gateways in ([], ["x-batch-gateway:true", "https://batch.invalid"]):
            names.universal.send("setGateways", gateways)
            asked.clear()
            assert resolved(names, "get.eth", "post.eth", gateways=(origin,)) == [BOB, BOB]
            (_, path, _), (_, _, body) = sorted(asked)
            sender, data = path.removeprefix("/").split("/")
            assert data.endswith(".json?a=b")
            assert data.startswith("0x3b3b57de")
            # Those of the resolver, whichever server hands them on.
            assert set(json.loads(body)) == {"data", "sender"}
            if gateways:
                assert (sender, json.loads(body)["sender"]) == (get.address.lower(), post.address.lower())
        names.universal.send("setGateways", [])


def test_a_batch_gateway_that_is_allowed_is_asked_for_all_at_once(names):
    def answer(request):
        return 200, json.dumps({"data": hex_data(encode(["bool[]", "bytes[]"], [[False], [word]]))}).encode()

    word = encode(["address"], [BOB])
    with gateway(answer) as origin:
        names.refer("batched.eth", ["https://somewhere.invalid/{data}"])
        names.universal.send("setGateways", [origin])
        assert resolved(names, "batched.eth", gateways=(origin,)) == [BOB]
    names.universal.send("setGateways", [])


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}", "https://127.0.0.1:{port}/{{sender}}/{{data}}"])
def test_a_gateway_that_is_not_allowed_is_not_asked(names, url):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        origin = f"{url[: url.index(':')]}://127.0.0.1:{listener.getsockname()[1]}"
        names.refer("elsewhere.eth", [url.format(port=listener.getsockname()[1])])
        allowed = (f"{origin}0", f"{origin}.example.org", "http://127.0.0.1", "https://127.0.0.1")
        (found,) = ens.resolve(at(names.chain.url), ["elsewhere.eth"], allowed)
        assert isinstance(found, NotAnswered)
        assert (str(found), found.is_allowed) == (f"is resolved by {origin}, which this service may not ask", False)
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://a.example", "https://a.example"),
        ("https://a.example/x?y", "https://a.example"),
        ("http://a.example:8080?x", "http://a.example:8080"),
        ("https://a.example@b.example/", None),
        ("https://a.example:x@b.example/", None),
        ("https://a.example\\@b.example/", None),
        ("https://a.example#@b.example/", None),
        ("https://a.example\t/", None),
        ("https://a.example/\n", None),
        ("https://Ａ.example/", None),  # noqa: RUF001 (that is what it is about)
        ("https://A.example/", None),
        ("https://[::1]/", None),
        ("//a.example/", None),
        ("file:///etc/passwd", None),
        ("ftp://a.example/", None),
        ("x-batch-gateway:true", None),
        ("", None),
    ],
)
def test_of_a_url_only_what_every_reader_takes_alike_has_an_origin(url, origin):
    assert ccip_read.origin_of(url) == origin


def test_only_what_a_contract_itself_asks_for_is_looked_up():
    """Not what one has asked that it has called, which expects the answer itself; nor what can't be read."""
    types = ["address", "string[]", "bytes", "bytes4", "bytes"]
    selector = bytes.fromhex("556f1830")
    asked = selector + encode(types, [ALICE, ["https://a.example"], b"data", b"back", b"extra"])
    found = ccip_read.lookup(asked, ALICE)
    assert found == ccip_read.Lookup(ALICE.lower(), ("https://a.example",), b"data", b"back", b"extra")
    assert ccip_read.lookup(asked, BOB) is None
    assert ccip_read.lookup(asked[:-40], ALICE) is None
    assert ccip_read.lookup(asked.replace(b"https", b"\xff" * 5), ALICE) is None
    assert ccip_read.lookup(b"\0" * 4 + asked[4:], ALICE) is None
    assert ccip_read.lookup(b"", ALICE) is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((404, b"no such name"), "is unknown to its gateway {origin}, which answered with HTTP status 404"),
        ((200, json.dumps({"data": "0x"}).encode()), "has no address on chain Test chain (31337)"),
        ((200, json.dumps({"data": hex_data(encode(["address"], ["0x" + "00" * 20]))}).encode()), "has no address on"),
    ],
    ids=["unknown", "nothing", "nobody"],
)
def test_a_name_that_its_gateway_does_not_know_has_no_address(names, answer, said):
    with gateway(lambda _: answer) as origin:
        names.refer("unknown-there.eth", [f"{origin}/{{data}}"])
        (found,) = resolved(names, "unknown-there.eth", gateways=(origin,))
    assert found.startswith(said.format(origin=origin))


@pytest.mark.parametrize(
    "answer",
    [(500, b""), (302, b"http://127.0.0.1:1/"), (200, b"{"), (200, b"[]"), (200, b'{"data": 5}'), (200, b"[" * 10**5)],
    ids=["500", "redirect", "no JSON", "list", "number", "nested"],
)
def test_a_gateway_that_fails_is_down_unless_another_one_answers(names, answer):
    with gateway(lambda _: answer) as failing, gateway(lambda _: ALICE) as working:
        names.refer("failing.eth", [f"{failing}/a", f"{working}/b"])
        assert resolved(names, "failing.eth", gateways=(failing, working)) == [ALICE]
        with pytest.raises(NodeUnavailable, match=r"No gateway of a name can be used: http://127\.0\.0\.1"):
            resolved(names, "failing.eth", gateways=(failing,))


@pytest.mark.parametrize("hostile", [silence, dripped_reply, endless_reply])
def test_a_gateway_is_not_waited_for(names, hostile, monkeypatch):
    monkeypatch.setattr(ens, "SECONDS", 1)
    began = time.monotonic()
    with hostile_node(hostile, chain_id=None) as url:
        names.refer("slow.eth", [url])
        with pytest.raises(NodeUnavailable):
            resolved(names, "slow.eth", gateways=(url,))
    assert time.monotonic() - began < 4


def test_a_resolver_that_refers_to_gateways_for_ever_is_left(names):
    asked: list[Any] = []
    with gateway(lambda request: asked.append(request) or ALICE) as origin:  # type: ignore[func-returns-value]
        names.refer("again.eth", [origin], is_endless=True)
        (said,) = resolved(names, "again.eth", gateways=(origin,))
    assert (said, len(asked)) == ("has a resolver that refers to gateways again and again", 4)


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
        pytest.raises(NodeUnavailable, match="is days behind"),
    ):
        ens.resolve(at(old.url), ["here.eth"])
    with DevChain() as without, pytest.raises(NodeUnavailable, match="has no universal resolver"):
        ens.resolve(at(without.url), ["here.eth"])


@pytest.mark.parametrize("hostile", [silence, dripped_reply])
def test_a_slow_node_is_not_waited_for(hostile, monkeypatch):
    monkeypatch.setattr(ens, "_NODE_SECONDS", 0.2)
    began = time.monotonic()
    with hostile_node(hostile) as url, pytest.raises(NodeUnavailable, match="did not answer within"):
        ens.resolve(at(url), ["slow.eth", "other.eth"])
    assert time.monotonic() - began < 3


def test_all_of_it_is_bounded_in_time(names, monkeypatch):
    monkeypatch.setattr(ens, "SECONDS", 0)
    with pytest.raises(NodeUnavailable, match="took more than 0 s"):
        resolved(names, "alice.eth")


def test_a_node_that_refuses_calls_while_another_is_down_tells_nothing_of_a_name(names):
    def refusing(body: Any) -> Any:
        if isinstance(body, dict) and body["method"] == "eth_call":
            return error(body, -32000, "no such method")
        return ask(names.chain.url, body)

    with lying_node(refusing) as url:
        with pytest.raises(NodeUnavailable, match="The node refused"):
            ens.resolve(at(url, "http://127.0.0.1:1"), ["alice.eth"])
        (said,) = ens.resolve(at(url), ["alice.eth"])
        assert str(said) == "has a resolver that no node of chain Test chain (31337) can ask"
