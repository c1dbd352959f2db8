"""Error messages of nodes: the meaning that the service gives them, and no keys from them on public pages."""

import pytest

from chains.node_errors import (
    MAX_CHARS,
    Cause,
    LimitsRequests,
    Reverted,
    RpcRefused,
    plain,
    read_refusal,
)
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


# --- Limits, in the wording of each provider --------------------------------------------------------------------------

# Messages by the end of the service's sentence. A comment names the source of the lines below it.
LIMITS: dict[str, list[tuple[int | str, str]]] = {
    "limits our requests": [
        # Infura
        (-32005, "daily request count exceeded, request rate limited"),
        (-32005, "project ID request rate exceeded"),
        # latticexyz/mud issue 1522: Alchemy
        (429, "Your app has exceeded its compute units per second capacity. If you have retries enabled, ignore this"),
        # Ankr-network/ankr-docs
        (-32090, "Too many requests, reason: call rate limit exhausted, retry in 10s"),
        # ethereum-optimism/infra proxyd/rpc.go, and drpcorg/nodecore pkg/errors_config/errors.yaml
        (-32016, "over rate limit"),
        (-32017, "sender is over rate limit"),
        (-32000, "Your app has reached maximum qps limit"),
        (-32000, "Public RPC Rate Limit Hit"),
        (-32000, "rate-limited due to unusually high global traffic"),
        (-32000, "exceeded its requests per second capacity"),
        (-32000, "RequestRateLimitExceeded"),
        # drpc.org
        (15, "You reached Public endpoint rate limit, please upgrade to paid plan"),
        # QuickNode
        (-32007, "50/second request limit reached - reduce calls per second or upgrade your account at quicknode.com"),
        # QuickNode's reference of errors
        (429, "The requests per second (RPS) of your requests are higher than your plan allows."),
        # Other forms of these words
        (-32000, "Request was throttled"),
        (-32000, "rate limit exceeded for transactions"),
        (-32000, "requests limited to 100 a second"),
        # QuickNode, EIP-1474 and similar messages
        (-32000, "account limited to 15/sec"),
        (-32000, "limit exceeded"),
        (-32000, "Too many concurrent requests"),
        (-32000, "too many in flight, try again"),
        ("429", "archive requests: slow"),
    ],
    "limits our requests by a quota or plan": [
        # nodecore, and erpc/erpc architecture/evm/error_normalizer.go
        (-32001, "Exceeded the quota usage"),
        (-32000, "You have reached the maximum CUPS limit"),
        (-32000, "There are not enough CUPs"),
        (-32000, "you have reached the quota"),
        (-32000, "you have reached the free tier limit"),
        (-32000, "has exceeded its concurrent requests capacity"),
        (-32000, "please upgrade to paid tier"),
        # bnb-chain/bnb-chain.github.io issue 38: NodeReal
        (-32000, "You have reached the maximum API usage limit of public. If you need higher throughput, please check"),
        # mud issue 1522: QuickNode
        (-32012, "credits limited to 6000/sec"),
        # a16z/zkdocs issue 9: Alchemy
        (-32000, "Monthly capacity limit exceeded. Visit the dashboard to upgrade your scaling policy for continued"),
        # enviodev/hyperindex issue 715: dRPC
        (30, "Request timeout on the free tier, please upgrade your tier to the paid one"),
        (402, "Payment Required"),
        (35, "chain is not available on free plan, please upgrade to paid plan"),
        # Quotas in words that usually refer to a single request
        (-32000, "daily archive request count exceeded"),
        (-32000, "Your credit balance is exhausted"),
        (-32000, "transaction quota exceeded: no results"),
        (-32000, "no quota left"),
        (-32000, "subscription expired"),
        # NodeReal, Ankr
        (-32000, "You've reached your monthly quota limit."),
        # These words in another order
        (-32000, "Quota has been exceeded"),
        (-32000, "The daily limit for your current plan is used up"),
        (-32000, "You are out of credits"),
        (-32000, "Monthly cap reached"),
        (-32000, "capacity exceeded"),
        (-32000, "Usage of this key surpassed its allowance"),
    ],
    "limits our requests, because it has too much load": [
        (-32000, "we are under too much load"),
        (-32000, "Server is busy"),
        (-32000, "node is overloaded"),
        (-32000, "slow down"),
        (-32000, "please retry later"),
        (-32000, "503 Service Unavailable"),
        (-32000, "code = ResourceExhausted"),
        # shardeum/bug-reporting issue 338
        (-32000, "Maximum load exceeded"),
        # drpc.org, and subsquid/squid-sdk
        (19, "Temporary internal error. Please retry, trace-id: 1f"),
        (-32001, "Unable to complete request at this time."),
    ],
}


@pytest.mark.parametrize("method", ["eth_getProof", "eth_call"])
@pytest.mark.parametrize(
    ("code", "message", "sentence"), [(*words, kind) for kind, all_ in LIMITS.items() for words in all_]
)
def test_limits_are_told_apart(code, message, sentence, method):
    with pytest.raises(LimitsRequests) as caught:
        read_refusal("host", method, {"code": code, "message": message})
    assert str(caught.value) == f"host {sentence}"


@pytest.mark.parametrize(("code", "message"), [words for all_ in LIMITS.values() for words in all_])
def test_a_refused_transaction_is_no_limit_whatever_the_words(code, message):
    """The node is asked for the transaction next, and may limit that."""
    refusal = read_refusal("host", "eth_sendRawTransaction", {"code": code, "message": message})
    assert (type(refusal), refusal.cause) == (RpcRefused, None)


@pytest.mark.parametrize(
    "message",
    [
        "Too many requests",
        {"code": -32000, "message": "Error", "data": "Exceeded the quota usage"},
        {"code": -32000, "message": "Error", "data": {"message": "Exceeded the quota usage"}},
        # erpc/erpc
        {"code": -32601, "message": "Error", "data": {"cause": [{"code": "ErrEndpointCapacityExceeded"}]}},
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


# Messages of geth, Nethermind, Besu, Erigon, reth, bor, ethrex and providers, by the cause in the service's sentence.
CAUSES: dict[Cause | None, list[str]] = {
    Cause.STATE: [
        # dRPC, Erigon, publicnode
        "Unknown state. First available state is 5",
        "requested block is too old, block must be within 100000 blocks of the head",
        "Archive requests require a personal token",
        "unsupported block number 73212607",
        "Request exceeds the maximum block lookback of 128",
        "eth_getProof requests are limited to the most recent 128 blocks",
        "all upstream attempts exhausted for request: missing trie node",
        "missing trie node 8b1604e0d19d (path ) state 0x8b16 is not available, not found",
        "required historical state unavailable (reexec=128)",
        "historical state 0x12 is not available",
        "header not found",
        "block not found",
        "Unknown block",
        "No state available for block 7",
        "World state unavailable",
        "old data not available due to pruning",
        "pruned history unavailable: requested 1, earliest available 2",
        "Node state is pruned",
        "state does not maintain archive data",
        "no historical RPC is available for this historical (pre-bedrock) execution request",
        "distance to target block exceeds maximum proof window",
        "block is out of range",
        "requested block is not available",
        "Archive requests require a personal token.",
        "Access to archival, debug, or trace data is not included in your current plan",
        "this block is not available",
    ],
    Cause.ACCOUNT: ["Account not found"],
    Cause.METHOD: [
        "the method eth_getProof does not exist/is not available",
        "Method not found",
        "rpc method is not whitelisted",
        "Unsupported method",
        "eth_getProof is not available on the free tier, please upgrade",
        "no backends available for method",
    ],
    Cause.TIME: ["request timed out", "execution timeout", "context deadline exceeded"],
    Cause.DEFECT: [
        "Internal error",
        "hash sort failed: loadIntoTable : failed to read branchdata empty branch data for key 009c",
        "mismatch in expected state root computed 0x12 vs 0x13 indicates bug in proof implementation",
        "root hash mismatch witnessTrieRootHash(68)!=expectedRootHash(66)",
    ],
    None: [
        *("no such thing", "", "upstream unreachable, request failed", "node out of sync, call rejected"),
        *("cannot request more than 1024 storage keys", "exceeds block gas limit"),
    ],
}


@pytest.mark.parametrize(("message", "cause"), [(words, cause) for cause, all_ in CAUSES.items() for words in all_])
def test_a_refusal_tells_its_cause_in_our_words(message, cause):
    refusal = read_refusal("host", "eth_getProof", {"code": -32000, "message": message})
    assert refusal.cause == cause
    assert refusal.about("the proof") == f"host refused the proof (-32000){f': {cause}' if cause else ''}."


@pytest.mark.parametrize(
    ("method", "message"),
    [
        # Besu
        ("eth_getLogs", "Requested range exceeds maximum RPC range limit"),
        ("eth_getProof", "Number of requests exceeds max batch size"),
        # geth
        ("eth_getProof", "batch too large"),
        ("eth_getProof", "response too large"),
        # RPC providers
        ("eth_getLogs", "query returned more than 10000 results"),
        ("eth_getLogs", "query exceeds max block range 100000"),
        ("eth_getLogs", "eth_getLogs is limited to a 5 range, upgrade from discover plan"),
        ("eth_getLogs", "ranges over 10000 blocks are not supported on free plan"),
        ("eth_getLogs", "Log response size exceeded. You can make requests with up to a 2K block range"),
        ("eth_getProof", "Batch of more than 3 requests are not allowed on free tier, please upgrade your plan"),
        ("eth_getProof", "too many requests in the batch"),
    ],
)
def test_a_limit_of_one_request_is_no_limit_of_how_many_may_be_sent(method, message):
    """Code -32005 is EIP-1474's "limit exceeded". Other nodes use it for too many requests per second."""
    assert type(read_refusal("host", method, {"code": -32005, "message": message})) is RpcRefused


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
