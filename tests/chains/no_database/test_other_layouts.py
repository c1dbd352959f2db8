"""Blocks whose JSON fields don't make an Ethereum header, or whose bodies are pruned. Other methods have it."""

from collections.abc import Callable
from typing import Any

import pytest
import rlp
from eth_utils.crypto import keccak

from chains.nodes import questions
from chains.nodes.node_errors import InvalidReply, UnreadableHeader
from chains.tries.header import SHARED_FIELDS
from tests import headers
from tests.chains import geth_answers
from tests.chains.lying_node import error, is_chain_id, lying_node, result

HEAD = 420


class Node:
    """A node of a chain whose blocks have the same layout. It returns raw headers only if it is `raw`.

    `spoil` changes the raw header.
    """

    def __init__(
        self, fields: headers.Fields, *, raw: bool = True, spoil: Callable[[bytes], bytes] | None = None
    ) -> None:
        self.blocks = [fields | {"number": number} for number in range(HEAD + 1)]
        self._by_hash = {headers.as_json(block)["hash"]: number for number, block in enumerate(self.blocks)}
        self._raw = raw
        self._spoil = spoil or bytes
        self.asked: list[str] = []

    def __call__(self, body: Any) -> Any:
        return [self._answer(question) for question in body] if isinstance(body, list) else self._answer(body)

    def _answer(self, body: Any) -> Any:
        method, params = body["method"], body["params"]
        if is_chain_id(body):
            return result(body, "0x7a69")
        self.asked.append(method)
        if method == "debug_getRawHeader" and self._raw:
            return result(body, "0x" + self._spoil(headers.encode(self.blocks[int(params[0], 16)])).hex())
        if method == "eth_getBlockByNumber" and params[0] == "finalized":
            return error(body, *geth_answers.REFUSALS["no final block"])
        if method in {"eth_getBlockByNumber", "eth_getBlockByHash"}:
            number = self._by_hash.get(params[0])
            if number is None:
                number = HEAD if params[0] == "latest" else int(params[0], 16)
            return result(body, headers.as_json(self.blocks[number]) if number <= HEAD else None)
        if method == "eth_feeHistory":
            return result(body, {"baseFeePerGas": ["0x64", "0x65"]})
        return error(body, *geth_answers.no_method(method))

    def count(self) -> list[str]:
        """Return the methods called since the last call."""
        methods, self.asked = self.asked, []
        return methods


def encoded(fields: headers.Fields, number: int) -> bytes:
    return headers.encode(fields, number=number)


@pytest.mark.parametrize(
    "fields", [*headers.ETHEREUM.values(), *headers.TOLD.values()], ids=[*headers.ETHEREUM.keys(), *headers.TOLD.keys()]
)
def test_a_header_that_its_block_tells_takes_one_exchange(client_of, fields):
    node = Node(fields)
    with lying_node(node) as url:
        header = client_of(url).head()
    assert header.encode() == encoded(fields, HEAD)
    known = len(rlp.decode(header.encode())) if fields in headers.ETHEREUM.values() else SHARED_FIELDS
    assert len(header.fields) == known
    assert node.count() == ["eth_getBlockByNumber"]


@pytest.mark.parametrize("fields", [headers.UNTOLD, headers.UNTOLD_LONDON, headers.PRAGUE | {"own": b"\x01" * 48}])
def test_another_header_is_asked_for_as_it_is(client_of, fields):
    node = Node(fields)
    with lying_node(node) as url:
        header = client_of(url).header(7)
    assert header is not None
    assert header.encode() == encoded(fields, 7)
    assert header.hash == keccak(header.encode())
    assert (header.number, len(header.fields)) == (7, 13)
    assert node.count() == ["eth_getBlockByNumber", "debug_getRawHeader"]


def test_a_header_of_another_layout_is_read_by_head_number_and_hash(client_of):
    fields = headers.UNTOLD
    with lying_node(Node(fields)) as url:
        client = client_of(url)
        head = client.head()
        assert head.encode() == encoded(fields, HEAD)
        assert client.answer(questions.header_by_hash(keccak(encoded(fields, 5)))) == client.header(5)
        assert client.header(HEAD + 1) is None
        assert client.headers([3, HEAD + 1, HEAD]) == [client.header(3), None, head]


def test_fields_whose_names_a_node_does_not_tell_are_not_known_although_they_look_like_ethereums(client_of):
    """The node leaves out the base fee of a London block."""

    class Unnamed(Node):
        def _answer(self, body: Any) -> Any:
            answer = super()._answer(body)
            if body["method"] == "eth_getBlockByNumber":
                del answer["result"]["baseFeePerGas"]
            return answer

    with lying_node(Unnamed(headers.LONDON)) as url:
        header = client_of(url).head()
    assert header.encode() == encoded(headers.LONDON, HEAD)
    assert not header.is_ethereums


class Pruned(Node):
    """A node that has pruned the bodies of all blocks (EIP-4444), as geth answers then."""

    def _answer(self, body: Any) -> Any:
        method = body["method"]
        if method.startswith("eth_getHeaderBy") and self._raw:
            answer: Any = super()._answer(body | {"method": method.replace("Header", "Block")})
            self.asked[-1] = method
            return answer
        answer = super()._answer(body)
        is_pruned = method.startswith("eth_getBlockBy")
        return error(body, *geth_answers.REFUSALS["a pruned block"]) if is_pruned else answer


def test_the_header_of_a_pruned_block_is_asked_for_without_its_body(client_of):
    node = Pruned(headers.PRAGUE)
    with lying_node(node) as url:
        client = client_of(url)
        header = client.header(7)
        assert header.encode() == encoded(headers.PRAGUE, 7)
        assert node.count() == ["eth_getBlockByNumber", "eth_getHeaderByNumber"]
        assert client.answer(questions.header_by_hash(header.hash)) == header
        assert node.count() == ["eth_getBlockByHash", "eth_getHeaderByHash"]
    with lying_node(Pruned(headers.PRAGUE, raw=False)) as url, pytest.raises(UnreadableHeader) as caught:
        client_of(url).header(7)
    assert f"{url.removeprefix('http://')} has pruned block 0x7, and refuses eth_getHeaderByNumber" in str(caught.value)


def test_without_such_a_node_it_is_said_what_is_missing(client_of):
    node = Node(headers.UNTOLD, raw=False)
    with lying_node(node) as url, pytest.raises(UnreadableHeader) as caught:
        client_of(url).header(7)
    host = url.removeprefix("http://")
    assert caught.value.for_operators == (
        f"No node of Test chain (31337) can be used: {host} sent block 7, which has no mixHash, and refuses "
        "debug_getRawHeader, which the service needs for other header layouts "
        "(-32601); the node said: “the method debug_getRawHeader does not exist/is not available”."
    )


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"stateRoot": "0x" + 32 * "00"}, "The header has no state root: the field is zero."),
        ({"mixHash": headers.IBFT_BLOCK["mixHash"]}, "neither with nor without the seals of IBFT or QBFT."),
    ],
)
def test_the_header_as_it_is_is_not_asked_for_where_it_would_not_help(client_of, changes, fault):
    class Other(Node):
        def _answer(self, body: Any) -> Any:
            answer = super()._answer(body)
            if body["method"] == "eth_getBlockByNumber":
                block = answer["result"] | changes
                answer["result"] = headers.with_hash(block) if "stateRoot" in changes else block
            return answer

    node = Other(headers.LONDON)
    with lying_node(node) as url, pytest.raises(UnreadableHeader) as caught:
        client_of(url).header(7)
    assert "answered eth_getBlockByNumber with block 7, which can't be read: " in str(caught.value)
    assert str(caught.value).endswith(fault)
    assert node.count() == ["eth_getBlockByNumber"]


def test_a_hash_of_another_size_is_named(client_of):
    class Short(Node):
        def _answer(self, body: Any) -> Any:
            answer = super()._answer(body)
            return answer | {"result": answer["result"] | {"hash": "0x12"}} if "result" in answer else answer

    def answer(body: Any) -> Any:
        return result(body, "0x7a69") if is_chain_id(body) else Short(headers.LONDON)(body)

    with lying_node(answer) as url, pytest.raises(InvalidReply, match="hash is 1 bytes instead of 32"):
        client_of(url).header(7)


def test_the_next_node_is_asked_after_one_that_refuses_headers(client_of):
    near, far = Node(headers.UNTOLD, raw=False), Node(headers.UNTOLD)
    with lying_node(near) as first, lying_node(far) as second:
        client = client_of(first, second)
        assert client.head().number == HEAD
        assert near.count() == ["eth_getBlockByNumber", "debug_getRawHeader"]
        assert client.headers([1, 2])[1] == client.header(2)


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda raw: raw[:-1] + b"\x01", "hash is not the block's"),
        (lambda _: b"", "hash is not the block's"),
        (lambda _: headers.encode(headers.UNTOLD, number=8), "hash is not the block's"),
    ],
)
def test_a_header_of_another_hash_is_a_lie(client_of, spoil, fault):
    liar, honest = Node(headers.UNTOLD, spoil=spoil), Node(headers.UNTOLD)
    with lying_node(liar) as first, lying_node(honest) as second:
        with pytest.raises(
            InvalidReply, match=f"answered debug_getRawHeader with no header of block 7: The header's {fault}"
        ):
            client_of(first).header(7)
        header = client_of(first, second).header(7)
    assert header is not None
    assert header.encode() == encoded(headers.UNTOLD, 7)


def test_a_header_of_another_number_is_a_lie(client_of):
    """The node returns another block's header, with that header's hash."""

    class Shifted(Node):
        def _answer(self, body: Any) -> Any:
            if body["method"] == "debug_getRawHeader":
                body["params"] = ["0x8"]
            answer = super()._answer(body)
            if body["method"] == "eth_getBlockByNumber":
                answer["result"]["hash"] = headers.as_json(self.blocks[8])["hash"]
            return answer

    with (
        lying_node(Shifted(headers.UNTOLD)) as url,
        pytest.raises(InvalidReply, match="the header of block 8 instead of block 7"),
    ):
        client_of(url).header(7)


def test_a_header_that_the_registry_could_not_read_is_refused(client_of):
    """Celo's first headers had no field for uncles."""
    fields = {name: value for name, value in headers.FRONTIER.items() if name != "sha3Uncles"}
    assert len(rlp.decode(headers.encode(fields))) == 14
    with lying_node(Node(fields)) as url, pytest.raises(UnreadableHeader, match="first fields have wrong sizes"):
        client_of(url).head()


@pytest.mark.parametrize(("fields", "base_fee"), [(headers.AVALANCHE, 100), (headers.LONDON, 1_234_567_890)])
def test_the_base_fee_of_another_layout_is_what_the_node_says(client_of, fields, base_fee):
    with lying_node(Node(fields)) as url:
        fees = client_of(url).fees()
    assert (fees.base_fee, fees.priority_fee) == (base_fee, 10**6)
