"""A real development chain with all its states, whose headers are changed to another layout."""

from typing import Any

from eth_utils.crypto import keccak

from devnet.devchain import DevChain
from tests import headers
from tests.chains.lying_node import ask, error, result


class Relaid:
    """A node of the changed chain. `layout` has the fields after the shared ones, and replacements of shared ones.

    With `raw` the node serves raw headers.
    """

    def __init__(self, chain: DevChain, layout: headers.Fields, *, raw: bool) -> None:
        self._chain = chain
        self._own = {name: value for name, value in layout.items() if headers.SHARED.get(name) != value}
        self._raw = raw
        self._known: dict[int, headers.Fields] = {}

    def fields(self, number: int) -> headers.Fields:
        if number not in self._known:
            block = self._chain.rpc("eth_getBlockByNumber", hex(number), False)
            shared = {
                name: int(block[name], 16) if isinstance(like, int) else bytes.fromhex(block[name][2:])
                for name, like in headers.SHARED.items()
            }
            if number:
                shared["parentHash"] = self.hash(number - 1)
            self._known[number] = shared | self._own
        return self._known[number]

    def hash(self, number: int) -> bytes:
        return keccak(headers.encode(self.fields(number)))

    def timestamp(self, number: int) -> int:
        return int(self.fields(number)["timestamp"])

    def __call__(self, body: Any) -> Any:
        if isinstance(body, list):
            return [self(question) for question in body]
        if body["method"] == "debug_getRawHeader":
            if self._raw:
                return result(body, "0x" + headers.encode(self.fields(int(body["params"][0], 16))).hex())
            return error(body, -32601, "Method not found")
        if body["method"] == "eth_getProof":
            *account, block = body["params"]
            body = body | {"params": [*account, self._of_chain(block)]}
        reply = ask(self._chain.url, body)
        if body["method"] == "eth_getBlockByNumber" and reply.get("result"):
            reply["result"] = headers.as_json(self.fields(int(reply["result"]["number"], 16)))
        return reply

    def _of_chain(self, block: Any) -> Any:
        """Return the real chain's block for a block of the changed chain, whose hash differs."""
        if not isinstance(block, dict):
            return block
        return next(hex(number) for number in self._known if self.hash(number).hex() == block["blockHash"][2:])
