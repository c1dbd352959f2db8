"""Error messages of nodes: the meaning that the service gives them, and no keys from them on public pages."""

import pytest

from chains.nodes.node_errors import MAX_CHARS, SEND, LimitsRequests, Reverted, RpcRefused, plain, read_refusal
from tests.chains.geth_answers import RARELY_REFUSED_SENDS, REFUSALS, REFUSED_SENDS, REFUSED_SENDS_IF_NOT_KEPT
from tests.chains.lying_node import error, is_chain_id, lying_node, result

KEY = "8f3a0cB71d4e4b6f9a52c0de77aa1b23"
HASH = "0x" + "ab1" * 21 + "f"


def _parts(secret: str) -> list[str]:
    """Return all substrings of four characters, or the secret itself if it is shorter."""
    letters = secret.lower()
    return [letters[start : start + 4] for start in range(max(1, len(letters) - 3))]


@pytest.mark.parametrize(
    ("words", "shown"),
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
        # geth 1.17
        (f"historical state {HASH[2:]} is not available", f"historical state {HASH[2:]} is not available"),
        (f"project {HASH[2:-1]} has no credit", "project [redacted] has no credit"),
        ("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266 is poor", "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266 is poor"),
        ("uncharacteristically long words stay", "uncharacteristically long words stay"),
        ("end”. The service is closed. “", 'end". The service is closed. "'),
    ],
)
def test_words_are_one_plain_line_without_keys(words, shown):
    assert plain(words) == shown


@pytest.mark.parametrize("words", ["x " * 10_000, "y" * 1_000_000, f"{KEY} " * 100_000, "=" * 100_000])
def test_words_are_few(words):
    assert len(plain(words)) <= MAX_CHARS


@pytest.mark.parametrize("cut", range(3950, 4010))
def test_a_key_that_is_cut_is_no_rest_of_a_key(cut):
    filler = f"https://{'x' * (cut - 20)} "
    shown = plain(f"{filler}{KEY} and more words {'z' * 100}")
    assert not any(KEY[:size] in shown for size in range(4, len(KEY)))


# A node may repeat parts of its URL in any encoding.
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
    "-".join(KEY[start : start + 4] for start in range(0, 32, 4)),
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


def refusing(words: str):
    return lambda body: result(body, "0x7a69") if is_chain_id(body) else error(body, -32000, words)


@pytest.mark.parametrize("form", FORMS)
def test_no_part_of_a_node_s_url_is_told_in_any_form(client_of, form):
    with lying_node(refusing(f"unknown project <{form}>, sorry")) as url, pytest.raises(RpcRefused) as caught:
        client_of(f"{url.replace('//', '//user:pa%24%24Word@')}/xy/{KEY}?token={SHORT}").balance("0x" + "11" * 20)
    told = caught.value.for_operators
    assert "unknown project" in told
    assert told.endswith("sorry”.")
    letters = "".join(letter for letter in told.partition("project")[2].lower() if letter.isalnum())
    assert not [part for part in ECHOED if part in letters.replace("redacted", "")]
    assert str(caught.value) == "The node refused (-32000)."


def test_a_key_of_64_hexadecimal_digits_is_not_told_either(client_of):
    key = KEY.lower() * 2
    with lying_node(refusing(f"unknown project {key}")) as url, pytest.raises(RpcRefused) as caught:
        client_of(f"{url}/v3/{key}").balance("0x" + "11" * 20)
    assert caught.value.message == "unknown project [redacted]"


def test_ordinary_words_of_a_node_stay(client_of):
    words = "invalid API key, header not found, exceeded 10,000 rpc calls"
    with lying_node(refusing(words)) as url, pytest.raises(RpcRefused) as caught:
        client_of(f"{url}/v3/{KEY}?apikey={KEY}&x=1").balance("0x" + "11" * 20)
    assert caught.value.message == words


@pytest.mark.parametrize("method", ["eth_getBalance", "eth_call"])
def test_only_operators_read_a_node_s_words(client_of, method):
    words = f"no quarter for\u202e secret-path, ask https://rpc.example/{KEY}" + "!" * 1000

    def refuse(body):
        return result(body, "0x7a69") if is_chain_id(body) else error(body, 3, words)

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


# --- Limits that providers tell with status 200 -----------------------------------------------------------------------

# Messages with their codes. A comment names the source of the lines below it.
LIMITS: list[tuple[int | str, str]] = [
    # Infura
    (-32005, "daily request count exceeded, request rate limited"),
    (-32005, "project ID request rate exceeded"),
    # latticexyz/mud issue 1522: Alchemy
    (429, "Your app has exceeded its compute units per second capacity. If you have retries enabled, ignore this"),
    # Ankr-network/ankr-docs
    (-32090, "Too many requests, reason: call rate limit exhausted, retry in 10s"),
    # ethereum-optimism/infra proxyd/rpc.go, and drpcorg/nodecore pkg/errors_config/errors.yaml
    (-32016, "over rate limit"),
    (-32000, "Your app has reached maximum qps limit"),
    (-32000, "exceeded its requests per second capacity"),
    (-32000, "RequestRateLimitExceeded"),
    # drpc.org
    (15, "You reached Public endpoint rate limit, please upgrade to paid plan"),
    # QuickNode
    (-32007, "50/second request limit reached - reduce calls per second or upgrade your account at quicknode.com"),
    (429, "The requests per second (RPS) of your requests are higher than your plan allows."),
    # Codes without words, one of them as a string
    (-32005, ""),
    (402, "Payment Required"),
    ("429", "archive requests: slow"),
    # nodecore, and erpc/erpc architecture/evm/error_normalizer.go
    (-32001, "Exceeded the quota usage"),
    (-32000, "You have reached the maximum CUPS limit"),
    # mud issue 1522: QuickNode
    (-32012, "credits limited to 6000/sec"),
    # a16z/zkdocs issue 9: Alchemy
    (-32000, "Monthly capacity limit exceeded. Visit the dashboard to upgrade your scaling policy for continued"),
    (-32000, "daily archive request count exceeded"),
    (-32000, "Your credit balance is exhausted: you are out of credits"),
    (-32000, "transaction quota exceeded: no results"),
    (-32000, "Server is busy"),
    (-32000, "node is overloaded"),
    (-32000, "please retry later"),
]


@pytest.mark.parametrize("method", ["eth_getProof", "eth_call"])
@pytest.mark.parametrize(("code", "message"), LIMITS)
def test_limits_are_told_apart(code, message, method):
    with pytest.raises(LimitsRequests, match=rf"^host limits our requests \({code}\)$") as caught:
        read_refusal("host", method, {"code": code, "message": message})
    assert caught.value.message == plain(message)


@pytest.mark.parametrize(("code", "message"), LIMITS)
def test_a_refused_transaction_is_no_limit_whatever_the_words(code, message):
    """The node is asked for the transaction next, and may limit that."""
    assert type(read_refusal("host", "eth_sendRawTransaction", {"code": code, "message": message})) is RpcRefused


@pytest.mark.parametrize(
    "message",
    [
        "Too many requests",
        {"code": -32000, "message": "Error", "data": "Exceeded the quota usage"},
        {"code": -32000, "message": "Error", "data": {"message": "Exceeded the quota usage"}},
        # Nethermind
        {
            "code": -32017,
            "message": "Timeout",
            "data": "Unable to rent an instance of IEthRpcModule. Too many requests.",
        },
        # foundry-rs/foundry issue 10145: Infura
        {"code": -33200, "message": "Error", "details": "You have surpassed your allowed throughput limit."},
    ],
)
def test_a_limit_is_known_wherever_its_words_stand(message):
    with pytest.raises(LimitsRequests):
        read_refusal("host", "eth_getProof", message)


# Words that name a cause, which the service doesn't read.
REFUSED = [
    "missing trie node 8b1604e0d19d (path ) state 0x8b16 is not available, not found",
    "Archive requests require a personal token",
    "eth_getProof requests are limited to the most recent 128 blocks",
    "eth_getProof is not available on the free tier, please upgrade",
    "Account not found",
    "request timed out",
    "hash sort failed: loadIntoTable : failed to read branchdata empty branch data for key 009c",
    "Number of requests exceeds max batch size",
    "batch too large",
    "Batch of more than 3 requests are not allowed on free tier, please upgrade your plan",
    "too many requests in the batch",
    "response too large",
    "txpool is full",
    "gas required exceeds allowance (30000000)",
    "max fee per gas exceeds capacity",
    "tx fee (2.00 ether) exceeds the configured cap (1.00 ether)",
    "",
]


@pytest.mark.parametrize("method", ["eth_getProof", "eth_call", "eth_sendRawTransaction"])
@pytest.mark.parametrize("message", REFUSED)
def test_other_words_decide_nothing(method, message):
    refusal = read_refusal("host", method, {"code": -32000, "message": message})
    assert type(refusal) is RpcRefused
    assert refusal.about("the request") == "host refused the request (-32000)."


def test_a_method_that_is_missing_is_known_by_its_code():
    refusal = read_refusal("host", "eth_getProof", {"code": -32601, "message": "no"})
    assert refusal.about("the proof") == "host refused the proof (-32601): it doesn't serve that method."


@pytest.mark.parametrize("message", [*(message for _, message in LIMITS), *REFUSED])
def test_no_words_decide_about_a_range_of_logs(message):
    for code in (-32000, -32005, 35):
        assert type(read_refusal("host", "eth_getLogs", {"code": code, "message": message})) is RpcRefused


@pytest.mark.parametrize(
    ("node_error", "data"),
    [
        ({"code": 3, "message": "execution reverted", "data": "0x12"}, b"\x12"),
        ({"code": -32015, "message": "VM execution error.", "data": "Reverted 0x12"}, b"\x12"),
        ({"code": -32000, "message": "execution reverted"}, b""),
        ({"code": -32000, "message": "VM Exception: revert", "data": {"data": "0x12"}}, b"\x12"),
        ({"code": 3, "message": "execution reverted: rate limit", "data": "0x12"}, b"\x12"),
        ({"code": 3, "message": "execution reverted: insufficient funds", "data": 12}, b""),
    ],
)
def test_reverts_are_known_in_every_form(node_error, data):
    refusal = read_refusal("host", "eth_call", node_error)
    assert isinstance(refusal, Reverted)
    assert refusal.data == data


@pytest.mark.parametrize("words", [*(REFUSED_SENDS | RARELY_REFUSED_SENDS | REFUSED_SENDS_IF_NOT_KEPT).values()])
def test_no_refused_transaction_of_geth_counts_as_a_limit_of_requests(words):
    assert type(read_refusal("geth", SEND, {"code": -32000, "message": words})) is RpcRefused


@pytest.mark.parametrize("case", REFUSALS)
def test_each_refusal_of_geth_has_its_type(case):
    code, words, *data = REFUSALS[case]
    refusal = read_refusal("geth", "eth_estimateGas", {"code": code, "message": words, "data": next(iter(data), None)})
    assert type(refusal) is (Reverted if case == "a revert" else RpcRefused)
