import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from eth_account import Account

from chains import chains_file, cross_checks
from chains.chains_file import Chains, ChainsError, Connection, UnknownChain, load_chains
from chains.configured_signers import SignerError, SignerKey
from chains.prices import AMSTERDAM, OSAKA
from devnet.devchain import ACCOUNTS, PROJECT

Load = Callable[..., Chains]

ADDRESS, KEY = ACCOUNTS[0]

ONE = """
[[chains]]
id = 31337
name = "Development chain"
rpc_urls = ["http://127.0.0.1:8545"]
[chains.signer]
key = "${SIGNER_KEY}"

[[connections]]
source = 31337
destination = 31337
block_hash_source = "native"
"""


@pytest.fixture
def load(tmp_path):
    def write_and_load(content, environ=None):
        path = tmp_path / "chains.toml"
        path.write_text(content)
        return load_chains(path, environ or {})

    return write_and_load


def faults_of(load: Load, content: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ChainsError) as caught:
        load(content, environ)
    for fault in caught.value.faults:
        assert fault in str(caught.value)
    return list(caught.value.faults)


def test_the_committed_file_has_a_development_chain_connected_to_itself():
    chains = load_chains(PROJECT / "chains.toml", {"SIGNER_KEY": KEY})
    (chain,) = chains.chains
    assert (chain.id, chain.confirmations, chain.test_network) == (31337, 1, True)
    assert chains.connection(31337, 31337) is not None
    assert chain.signer is not None
    assert chain.signer.address == ADDRESS


def test_the_commented_examples_of_the_committed_file_are_valid(load):
    # A paragraph's prose ends with a bare "#", and its example follows.
    paragraphs = (PROJECT / "chains.toml").read_text().split("# Sepolia", 1)[1].split("\n\n")
    examples = [paragraph.split("\n#\n", 1)[1] for paragraph in paragraphs if "\n#\n" in paragraph]
    commented = "\n".join(line.removeprefix("#").strip() for line in "\n".join(examples).splitlines())
    secrets = (
        "SEPOLIA_RPC_KEY",
        "MAINNET_RPC_KEY",
        "OPTIMISM_RPC_KEY",
        "ARBITRUM_RPC_KEY",
        "BASE_RPC_KEY",
        "ATTESTER_PATH",
    )
    chains = load(commented, dict.fromkeys(secrets, "a"))
    assert [chain.id for chain in chains.chains] == [11155111, 1, 10, 42161, 8453]
    assert [chain.test_network for chain in chains.destinations()] == [True, False, False, False]
    sources = {
        (connection.source_id, connection.destination_id): connection.block_hash_source
        for connection in chains.connections
    }
    assert sources == {
        (11155111, 11155111): "native",
        (1, 1): "native",
        (1, 11155111): "attested",
        (1, 10): "op-stack",
        (42161, 1): "arbitrum",
        (8453, 1): "op-stack-games",
        (1, 42161): "arbitrum-buffer",
    }


def test_defaults_of_a_chain_are_cautious(load):
    (chain,) = load(ONE).chains
    assert chain.confirmations == "finalized"
    assert chain.test_network is False
    assert chain.native_currency == "ETH"
    assert chain.explorer_url is None
    assert chain.max_fee_per_gas == 200 * 10**9
    assert chain.minimum_signer_balance_wei == 10**16


def test_amounts_are_exact(load):
    written = ONE.replace(
        "[chains.signer]",
        'max_fee_per_gas_gwei = 0.123456789\nminimum_signer_balance = "0.100000000000000001"\n[chains.signer]',
    )
    (chain,) = load(written).chains
    assert chain.max_fee_per_gas == 123456789
    assert chain.minimum_signer_balance_wei == 10**17 + 1


def test_a_window_reaches_as_far_as_the_history_of_its_source_chain(load):
    written = ONE.replace("[chains.signer]", "history_window = 393168\n[chains.signer]")
    chains = load(written.replace('"native"', '"native"\nwindow = 393168'))
    assert chains.chain(31337).history_window == chains.connections[0].window == 393168


ATTESTER = '[attester]\nkey_file = "attester.key"\n'


def with_nodes(count: int, fields: str = "") -> str:
    """Return `ONE` with `count` nodes and additional lines for its chain."""
    urls = json.dumps([f"https://{number}.example/secret-token" for number in range(count)])
    return ONE.replace('["http://127.0.0.1:8545"]', f"{urls}\n{fields}")


@pytest.mark.parametrize(("nodes", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4)])
def test_more_than_half_of_the_nodes_must_agree_by_default(load, nodes, needed):
    assert load(with_nodes(nodes)).chains[0].needed_nodes == needed


@pytest.mark.parametrize(("nodes", "quorum"), [(1, 1), (2, 2), (5, 2), (5, 5)])
def test_how_many_nodes_must_agree_may_be_set(load, nodes, quorum):
    chains = load(with_nodes(nodes, f"node_quorum = {quorum}") + ATTESTER)
    assert chains.chains[0].needed_nodes == quorum


SEVERAL_NODES = (
    "chains[0].node_quorum: must be a number from 2 to 3, because 3 nodes: with 1, a lying node would decide alone "
    "while the others are down"
)


def test_a_node_that_is_named_twice_is_refused_without_being_shown(load):
    written = with_nodes(2).replace("1.example/secret-token", "0.example/${TOKEN}")
    assert faults_of(load, written, {"TOKEN": "secret-token"}) == ["chains[0].rpc_urls: a node is listed twice"]


def test_chains_and_connections_are_found_by_id(load):
    second = '[[chains]]\nid = 5\nname = "Other"\nrpc_urls = ["https://example.org"]\n'
    chains = load(ONE + second)
    assert chains.chain(5).name == "Other"
    connection = chains.connection(31337, 31337)
    assert connection is not None
    assert connection.window == chains.chain(31337).history_window == 8191
    assert chains.connection(5, 31337) is None
    assert [chain.id for chain in chains.destinations()] == [31337]
    assert [chain.id for chain in chains.sources(31337)] == [31337]
    assert chains.sources(5) == ()
    with pytest.raises(UnknownChain, match="No chain with id 6 is configured"):
        chains.chain(6)


# --- Secrets ----------------------------------------------------------------------------------------------------------


def test_variables_in_urls_come_from_the_environment_or_a_file(load, tmp_path):
    (tmp_path / "key").write_text("from-file\n")
    content = ONE.replace('["http://127.0.0.1:8545"]', '["https://a.example/${A}/x", "https://u:${B}@b.example:99/"]')
    (chain,) = load(content, {"A": "from-environment", "B_FILE": str(tmp_path / "key")}).chains
    assert chain.rpc_urls == ("https://a.example/from-environment/x", "https://u:from-file@b.example:99/")
    assert chain.hosts == ("a.example", "b.example:99")


def test_secrets_are_in_no_representation(load, tmp_path):
    content = ONE.replace("http://127.0.0.1:8545", "https://a.example/${A}")
    chains = load(content, {"A": "secret-a", "SIGNER_KEY": KEY})
    signer = chains.chains[0].signer
    assert signer is not None
    signer.account()
    shown = f"{chains!r} {chains} {chains.chains[0]} {signer!r} {signer}"
    assert "secret-a" not in shown
    assert KEY.removeprefix("0x") not in shown


@pytest.mark.parametrize(
    "url", ["ftp://secret", "https://", "secret", "http://h:0/secret", "http://h:x/secret", "${S}"]
)
def test_a_wrong_url_is_named_by_its_place_alone(load, url):
    (fault,) = faults_of(load, ONE.replace("http://127.0.0.1:8545", url), {"S": "secret://x"})
    assert fault.startswith("chains[0].rpc_urls[0]: must be an http or https URL")
    assert "secret" not in fault


@pytest.mark.parametrize(("content", "fault"), [(None, "can't be read"), ("", "is empty"), (" \n", "is empty")])
def test_a_secret_file_that_gives_nothing_is_named(load, tmp_path, content, fault):
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
    (told,) = faults_of(load, ONE.replace("8545", "8545/${RPC_KEY}"), {"RPC_KEY_FILE": str(path)})
    assert told == f"chains[0].rpc_urls[0]: the file that RPC_KEY_FILE names {fault}"


# --- Signers ----------------------------------------------------------------------------------------------------------


def signer_of(load: Load, fields: str, environ: dict[str, str] | None = None) -> SignerKey:
    signer = load(ONE.replace('key = "${SIGNER_KEY}"', fields), environ).chains[0].signer
    assert isinstance(signer, SignerKey)
    return signer


@pytest.mark.parametrize("key", [KEY, KEY.removeprefix("0x"), f"{KEY}\n"])
def test_a_signer_may_be_a_key_file_beside_the_chains_file(load, tmp_path, key):
    (tmp_path / "signer").write_text(key)
    assert signer_of(load, 'key_file = "signer"').address == ADDRESS


def test_a_signer_may_be_a_keystore_with_its_password(load, tmp_path):
    keystore = Account.encrypt(bytes.fromhex(KEY[2:]), "pass word", kdf="pbkdf2", iterations=2)
    (tmp_path / "keystore.json").write_text(json.dumps(keystore))
    (tmp_path / "password").write_text("pass word\n")
    fields = 'keystore_file = "keystore.json"\npassword_file = "password"'
    signer = signer_of(load, fields)
    assert signer.address == ADDRESS
    (tmp_path / "password").write_text("wrong")
    assert signer.address == ADDRESS  # from memory
    with pytest.raises(SignerError, match="can't be decrypted with its password"):
        signer_of(load, fields).account()


def test_a_signer_may_be_a_variable_or_a_file_that_one_names(load, tmp_path):
    (tmp_path / "secret").write_text(KEY)
    for environ in ({"SIGNER_KEY": KEY}, {"SIGNER_KEY_FILE": str(tmp_path / "secret")}):
        assert signer_of(load, 'key = "${SIGNER_KEY}"', environ).address == ADDRESS


def test_a_missing_key_is_told_only_when_it_is_needed(load):
    signer = signer_of(load, 'key = "${SIGNER_KEY}"')
    with pytest.raises(SignerError, match="neither SIGNER_KEY nor SIGNER_KEY_FILE is set"):
        signer.account()
    with pytest.raises(SignerError, match="nowhere can't be read"):
        signer_of(load, 'key_file = "nowhere"').account()


@pytest.mark.parametrize("key", ["secret", KEY[:-1], KEY + "00", "0x" + "00" * 32, "0x" + "ff" * 32])
def test_a_wrong_key_is_refused_without_being_shown(load, key):
    with pytest.raises(SignerError, match="not a private key") as caught:
        signer_of(load, 'key = "${SIGNER_KEY}"', {"SIGNER_KEY": key}).account()
    assert key not in str(caught.value)


BOTH = '[[chains.signers]]\nkey = "${SIGNER_KEY}"\n[[chains.signers]]\nkey_file = "second"'


def test_a_chain_may_have_several_signers(load, tmp_path):
    (tmp_path / "second").write_text(ACCOUNTS[1][1])
    (chain,) = load(ONE.replace('[chains.signer]\nkey = "${SIGNER_KEY}"', BOTH), {"SIGNER_KEY": KEY}).chains
    assert [*chain.signers_by_address()] == [ADDRESS, ACCOUNTS[1][0]]
    assert KEY.removeprefix("0x") not in f"{chain!r} {chain}"


def test_a_key_that_two_ways_lead_to_is_refused_when_it_is_read(load, tmp_path):
    (tmp_path / "second").write_text(KEY)
    (chain,) = load(ONE.replace('[chains.signer]\nkey = "${SIGNER_KEY}"', BOTH), {"SIGNER_KEY": KEY}).chains
    with pytest.raises(SignerError) as caught:
        chain.signers_by_address()
    assert str(caught.value) == (f"Two signers of Development chain (31337) have the same key, that of {ADDRESS}.")


# --- Connections ------------------------------------------------------------------------------------------------------


def connection_of(load: Load, fields: str, environ: dict[str, str] | None = None) -> Connection:
    (connection,) = load(with_connection(fields), environ).connections
    return connection


def with_connection(fields: str, *, source: int = 31337) -> str:
    """Return `ONE` with additional lines for its connection, whose source is another chain."""
    other = '[[chains]]\nid = 5\nname = "Other"\nrpc_urls = ["https://example.org"]\n'
    return other + ONE.replace("source = 31337", f"source = {source}").replace('"native"', fields)


def attested(count: int = 2, *, threshold: str = "threshold = 1") -> str:
    attesters = (
        f'[[connections.attesters]]\naddress = "0x{number:040x}"\nurl = "https://{number}.example/${{TOKEN}}"\n'
        for number in range(1, count + 1)
    )
    return "\n".join([f'"attested"\n{threshold}', *attesters])


def test_hops_are_bounded_where_nothing_is_written(load):
    connection = connection_of(load, '"native"')
    assert connection.max_hops == 50
    assert (connection.attesters, connection.threshold) == ((), None)


def test_beacon_roots_need_a_beacon_node_of_a_known_beacon_chain(load):
    fields = '"beacon-roots"'
    needed = r"connections\[0\]: block_hash_source beacon-roots needs a known beacon chain and beacon_urls of chain "
    of_ethereum = with_connection(fields, source=1).replace("id = 5", "id = 1")
    for source, written in ((5, with_connection(fields, source=5)), (1, of_ethereum)):
        with pytest.raises(ChainsError, match=f"{needed}{source}$"):
            load(written)
    with_node = of_ethereum.replace("id = 1\n", 'id = 1\nbeacon_urls = ["http://127.0.0.1:5052"]\n')
    (connection,) = load(with_node).connections
    assert connection.block_hash_source == "beacon-roots"


def test_an_op_stack_chain_is_connected_to_the_one_below_by_its_games(load):
    fields = f'"op-stack-games"\nanchor_state_registry = "{ADDRESS.lower()}"\n'
    (connection,) = load(with_connection(fields, source=5)).connections
    assert (connection.block_hash_source, connection.anchor_state_registry) == ("op-stack-games", ADDRESS)
    assert connection.known_implementations == ()
    known = f'known_implementations = ["{ADDRESS.lower()}"]'
    (connection,) = load(with_connection(fields + known, source=5)).connections
    assert connection.known_implementations == (ADDRESS,)


@pytest.mark.parametrize(
    ("kind", "rollup"),
    [
        *((f'"op-stack-games"\nanchor_state_registry = "{ADDRESS}"', 5), (f'"arbitrum"\noutbox = "{ADDRESS}"', 5)),
        *((f'"arbitrum-slot"\noutbox = "{ADDRESS}"\nparent = 7', 5), ('"op-stack"', 31337)),
        *(('"beacon-roots"', 31337), ('"arbitrum-buffer"', 31337)),
    ],
)
def test_a_rollup_has_no_beacon_chain(load, kind, rollup):
    """A rollup's blocks name beacon roots of the chain below. Facts of that chain would pass as the rollup's."""
    table = "beacon_chain = {genesis_time = 0, bellatrix = 0, capella = 0, deneb = 0, electra = 0}"
    text = with_connection(kind, source=5)
    told = " ".join(faults_of(load, text.replace(f"id = {rollup}\n", f"id = {rollup}\n{table}\n")))
    assert f"connections[0]: chain {rollup} is a rollup, so it has no beacon chain" in told


def test_the_parent_of_an_arbitrum_chain_needs_a_connection_of_its_own(load):
    fields = f'"arbitrum-slot"\noutbox = "{ADDRESS}"\nparent = '
    assert faults_of(load, with_connection(fields + "7", source=5)) == [
        "connections[0].parent: no connection from 7 to 31337 is configured"
    ]
    told = faults_of(load, with_connection(fields + "5", source=5))
    assert "connections[0]: parent is neither source nor destination" in told


def test_no_chain_is_above_itself(load):
    """Each of the two chains would wait for the other, and the page's list of trusted parties would never end."""
    text = with_connection(f'"arbitrum-slot"\noutbox = "{ADDRESS}"\nparent = 6', source=5)
    text = text.replace(
        "[[chains]]", '[[chains]]\nid = 6\nname = "Sixth"\nrpc_urls = ["https://example.org"]\n[[chains]]', 1
    )

    def connected(source: int, more: str) -> str:
        return f"\n[[connections]]\nsource = {source}\ndestination = 31337\nblock_hash_source = {more}\n"

    over = f'"arbitrum-slot"\noutbox = "{ADDRESS}"\nparent = '
    assert load(text + connected(6, '"op-stack"')).connections[0].parent_id == 6
    assert faults_of(load, text + connected(6, over + "5")) == [
        "connections[0].parent: its parents lead back to chain 5",
        "connections[1].parent: its parents lead back to chain 6",
    ]


def test_attesters_are_accounts_and_where_they_are_asked(load, tmp_path):
    (tmp_path / "token").write_text("secret-token\n")
    fields = attested(threshold="threshold = 2").replace(f"0x{1:040x}", ADDRESS.lower())
    for environ in ({"TOKEN": "secret-token"}, {"TOKEN_FILE": str(tmp_path / "token")}):
        connection = connection_of(load, fields, environ)
        assert connection.threshold == 2
        first, second = connection.attesters
        assert first.address == ADDRESS, "with its checksum"
        assert (first.url, second.url) == ("https://1.example/secret-token", "https://2.example/secret-token")
        assert (first.host, second.host) == ("1.example", "2.example")


def test_urls_of_attesters_are_in_no_representation(load):
    chains = load(with_connection(attested()), {"TOKEN": "secret-token"})
    attester = chains.connections[0].attesters[0]
    shown = f"{chains!r} {chains} {chains.connections[0]!r} {chains.connections[0]} {attester!r} {attester}"
    assert f"0x{1:040x}" in shown
    assert "secret-token" not in shown
    assert "example" not in shown.replace("example.org", "")


def test_an_installation_may_have_a_key_to_attest_with(load, tmp_path):
    (tmp_path / "attester.key").write_text(KEY)
    attester = load(ONE + '[attester]\nkey_file = "attester.key"\n').attester
    assert attester is not None
    assert attester.address == ADDRESS
    assert load(ONE).attester is None
    chains = load(ONE + '[attester]\nkey = "${ATTESTER_KEY}"\n', {"ATTESTER_KEY": KEY})
    assert chains.attester is not None
    assert chains.attester.address == ADDRESS
    assert KEY.removeprefix("0x") not in f"{chains!r} {chains.attester!r} {chains.attester}"


NEEDS_ATTESTERS = ": block_hash_source attested needs 1 to 100 attesters"
NEEDS_THRESHOLD = ": block_hash_source attested needs a threshold, at most the number of attesters"
OUTBOX = ": outbox belongs to block_hash_source arbitrum and arbitrum-slot, which need it"
WITH_GAMES = f'"op-stack-games"\nanchor_state_registry = "{ADDRESS}"'
ON_TOP = "block_hash_source op-stack-games needs an OP Stack chain on top of the destination as source"
GAMES = ": anchor_state_registry belongs to block_hash_source op-stack-games, which needs it"
PARENT = ": parent belongs to block_hash_source arbitrum-slot, which needs it"
BELONG_TO_ATTESTED = ": attesters and threshold belong to block_hash_source attested"


# --- Faults: the written text, and the beginning of the sentence ------------------------------------------------------

OF_QUORUM = [
    (3, "1", SEVERAL_NODES),
    (3, "4", SEVERAL_NODES),
    (3, "true", SEVERAL_NODES),
    (1, "0", "chains[0].node_quorum: must be 1, because there is one node"),
    (1, "2", "chains[0].node_quorum: must be 1, because there is one node"),
    (1, "true", "chains[0].node_quorum: "),
    (0, "2", "chains[0].rpc_urls: at least one is needed"),
]
OF_SIGNER = [
    "",
    'keystore_file = "a"',
    'password_file = "a"',
    'key_file = "a"\nkey = "${A}"',
    'key_file = "a"\nkeystore_file = "a"\npassword_file = "a"',
]
OF_ATTESTER = [
    ("[attester]", "attester: must have keystore_file and password_file, or"),
    ('[attester]\nkey_file = "a"\nkey = "${A}"', "attester: must have keystore_file and password_file, or"),
    ('[attester]\nkey_file = "a"\ncolour = 1', "attester.colour: "),
    (f'[attester]\nkey = "{KEY}"', 'attester.key: must be "${NAME}"'),
    ('[[attester]]\nkey_file = "a"', "attester: must be a table"),
    ("[attester.key]", "attester.key: "),
]
SIGNER, FIRST, SECOND = "[chains.signer]", f"0x{1:040x}", f"0x{2:040x}"
WITH_OUTBOX = f'"arbitrum"\noutbox = "{ADDRESS}"'
OF_CONNECTION = [
    ('"native"\nmax_hops = -1', ".max_hops: "),
    ('"native"\nmax_hops = 10001', ".max_hops: "),
    ('"native"\nthreshold = 1', BELONG_TO_ATTESTED),
    (attested(threshold="").replace("attested", "native"), BELONG_TO_ATTESTED),
    ('"op-stack"', ": block_hash_source op-stack needs the chain below as source"),
    (WITH_OUTBOX, ": block_hash_source arbitrum needs an Arbitrum chain on top of the destination as source"),
    ('"beacon-roots"', ": block_hash_source beacon-roots needs a chain whose beacon roots the destination holds"),
    ('"arbitrum-buffer"', ": block_hash_source arbitrum-buffer needs the parent chain as source"),
    (f'"arbitrum-buffer"\noutbox = "{ADDRESS}"', OUTBOX),
    ('"arbitrum"', OUTBOX),
    ('"arbitrum-slot"\nparent = 1', OUTBOX),
    (f'"arbitrum-slot"\noutbox = "{ADDRESS}"', PARENT),
    (f"{WITH_OUTBOX}\nparent = 1", PARENT),
    (f'"op-stack"\noutbox = "{ADDRESS}"', OUTBOX),
    ('"arbitrum"\noutbox = "0x12"', ".outbox: must be 0x and 40"),
    (WITH_GAMES, f": {ON_TOP}"),
    ('"op-stack-games"', GAMES),
    (f'"op-stack"\nanchor_state_registry = "{ADDRESS}"', GAMES),
    (
        f'"native"\nknown_implementations = ["{ADDRESS}"]',
        ": known_implementations belongs to block_hash_source arbitrum and op-stack-games",
    ),
    (f'{WITH_GAMES}\nknown_implementations = ["0x1"]', ".known_implementations[0]: must be 0x and 40"),
    ('"attested"', NEEDS_ATTESTERS),
    (attested(101), NEEDS_ATTESTERS),
    (attested(threshold=""), NEEDS_THRESHOLD),
    (attested(threshold="threshold = 3"), NEEDS_THRESHOLD),
    (attested(threshold="threshold = 0"), ".threshold: "),
    (attested().replace(SECOND, FIRST), ": an attester is listed twice"),
    (attested().replace(FIRST, ADDRESS).replace(SECOND, ADDRESS.lower()), ": an attester is listed twice"),
    (attested().replace(SECOND, "0x12"), ".attesters[1].address: must be 0x and 40 hexadecimal digits"),
    (
        attested().replace(FIRST, ADDRESS.replace("f", "F", 1)),
        ".attesters[0].address: must be 0x and 40 hexadecimal digits",
    ),
    (attested().replace("https://2", "ftp://2"), ".attesters[1].url: must be an http or https URL"),
    (attested(1).replace("TOKEN", "NOPE"), ".attesters[0].url: neither NOPE nor NOPE_FILE is set in the environment"),
    (attested(1) + "colour = 1", ".attesters[0].colour: "),
    ('"attested"\nthreshold = 1\nattesters = ["https://secret-token@1.example"]', ".attesters[0]: must be a table"),
]
OF_CHAIN = [
    ('gas_prices = "paris"', "gas_prices: the known records are osaka and amsterdam"),
    ("gas_prices = 5", "gas_prices: must be the name of a record, or a table of prices"),
    ('gas_prices = {record = "paris"}', "gas_prices: the known records are osaka and amsterdam"),
    ("gas_prices = {colour = 1}", "gas_prices: has no price colour; the prices are call, code_byte_state"),
    ("gas_prices = {scale = 2}", "gas_prices: has no price scale"),
    ("gas_prices = {word = 2.5}", "gas_prices: word must be a whole number from 0 to 4294967295"),
    ("gas_prices = {word = -1}", "gas_prices: word must be a whole number from 0 to 4294967295"),
    ("gas_prices = {word = true}", "gas_prices: word must be a whole number from 0 to 4294967295"),
    ("charges_gas_limit = 1", "charges_gas_limit: Input should be a valid boolean"),
    ("colour = 1", "colour"),
    ("confirmations = 0", "confirmations: must be a number of blocks"),
    ("confirmations = 'latest'", "confirmations: must be a number"),
    ("test_network = 1", "test_network"),
    ("block_seconds = 0", "block_seconds"),
    ("max_fee_per_gas_gwei = inf", "max_fee_per_gas_gwei"),
    ("minimum_signer_balance = 0.1", "minimum_signer_balance: must be"),
    ("minimum_signer_balance = '-1'", "minimum_signer_balance"),
    ("minimum_signer_balance = 'NaN'", "minimum_signer_balance"),
    ("explorer_url = 'javascript:x'", "explorer_url: must be an http"),
]
OF_FILE = [
    ("id = 31337", "id = 0", "chains[0].id"),
    ("id = 31337", "id = 9223372036854775808", "chains[0].id"),
    ("id = 31337", 'id = "31337"', "chains[0].id"),
    ('name = "Development chain"', 'name = ""', "chains[0].name"),
    ('["http://127.0.0.1:8545"]', "[]", "chains[0].rpc_urls: at least one is needed"),
    ('["http://127.0.0.1:8545"]', '"http://127.0.0.1:8545"', "chains[0].rpc_urls"),
    ("destination = 31337", "destination = 9", "connections[0].destination: no chain with id 9"),
    ('"native"', '"magic"', "connections[0].block_hash_source"),
    ('"native"', '"native"\nwindow = 0', "connections[0].window"),
    ('"native"', '"native"\nwindow = 8192', "connections[0].window: must be at most 8191"),
    (SIGNER, "history_window = 8190\n[chains.signer]", "connections[0].window: must be at most 8190"),
    ("[[connections]]", "[[bridges]]", "bridges: is not known here"),
    ("[[connections]]", "[connections]", "connections: must be a list; write its tables in double brackets"),
    (SIGNER, "[[chains.signer]]", "chains[0].signer: must be a table"),
    (SIGNER, "[chains.signers]", "chains[0].signers: must be a list; write its tables in double brackets"),
    ('[chains.signer]\nkey = "${SIGNER_KEY}"', "signers = []", "chains[0].signers: at least one is needed"),
    (
        SIGNER,
        '[[chains.signers]]\nkey = "${OTHER}"\n[chains.signer]',
        "chains[0]: must have [chains.signer] or [[chains.signers]], not both",
    ),
    (SIGNER, '[[chains.signers]]\nkey = "${OTHER}"\n[[chains.signers]]\ncolour = 1', "chains[0].signers[1].colour"),
]
OF_NAMES = [
    ("[ens]", "ens.chain: Field required"),
    ("[ens]\nchain = 1", "ens.chain: no chain with id 1 is configured"),
    ("[[ens]]\nchain = 31337", "ens: must be a table"),
    ("[ens]\nchain = 31337\nhosts = []", "ens.hosts: is not known here"),
]
FAULTS: list[tuple[str, str]] = [
    *((with_nodes(nodes, f"node_quorum = {written}") + ATTESTER, fault) for nodes, written, fault in OF_QUORUM),
    (with_nodes(3, "node_quorum = 2"), "chains[0].node_quorum: belongs to the file of an attester, which has a table"),
    *(
        (
            ONE.replace('key = "${SIGNER_KEY}"', fields),
            "chains[0].signer: must have keystore_file and password_file, or",
        )
        for fields in OF_SIGNER
    ),
    (ONE.replace("${SIGNER_KEY}", KEY), 'chains[0].signer.key: must be "${NAME}"'),
    (
        ONE.replace("8545", "8545/${NOPE}"),
        "chains[0].rpc_urls[0]: neither NOPE nor NOPE_FILE is set in the environment",
    ),
    *((f"{ONE}\n{written}\n", fault) for written, fault in OF_ATTESTER),
    *((with_connection(fields), f"connections[0]{fault}") for fields, fault in OF_CONNECTION),
    *((ONE.replace("[chains.signer]", f"{line}\n[chains.signer]"), f"chains[0].{fault}") for line, fault in OF_CHAIN),
    *((ONE.replace(old, new), fault) for old, new, fault in OF_FILE),
    *((ONE + written, fault) for written, fault in OF_NAMES),
    ("", "chains: at least one is needed"),
    ("chains = 1", "chains: must be a list"),
    ("[[chains", "it is not TOML"),
]


@pytest.mark.parametrize(("written", "fault"), FAULTS)
def test_a_fault_is_named_with_its_place_and_shows_no_secret(load, written, fault):
    assert written != ONE
    (told,) = faults_of(load, written, {"TOKEN": "secret-token"})
    assert told.startswith(fault)
    assert not [secret for secret in (KEY, "secret", "example") if secret in told]


@pytest.mark.parametrize(
    ("written", "records"),
    [
        ("", [OSAKA, AMSTERDAM]),
        ('gas_prices = "amsterdam"', [AMSTERDAM]),
        ("gas_prices = {word = 3}", [replace(OSAKA, word=3), replace(AMSTERDAM, word=3)]),
        ('gas_prices = {record = "osaka", word = 3, most_gas = 9}', [replace(OSAKA, word=3, most_gas=9)]),
    ],
)
def test_gas_prices_are_named_or_changed(load, written, records):
    (chain,) = load(ONE.replace("[chains.signer]", f"{written}\n[chains.signer]")).chains
    assert [*chain.gas_prices] == records


def test_the_known_networks_have_prices_of_chains_that_charge_otherwise():
    networks = load_chains(PROJECT / "deploy/known-networks.toml", {})
    assert [chain.name for chain in networks.chains if chain.charges_gas_limit] == ["Monad"]
    ((monad,), (today, _)) = (networks.chain(chain_id).gas_prices for chain_id in (143, 1))
    assert (monad.new_word, monad.max_gas, today) == (27_897, 30_000_000, OSAKA)


def test_a_destination_may_have_no_signer(load):
    assert load(ONE.replace('[chains.signer]\nkey = "${SIGNER_KEY}"', "")).chain(31337).signers_by_address() == {}


def test_all_faults_are_named_at_once(load):
    content = ONE.replace("id = 31337", "id = 0").replace("8545", "8545/${NOPE}").replace('"native"', '"magic"')
    assert [fault.split(":")[0] for fault in faults_of(load, content)] == [
        "chains[0].id",
        "chains[0].rpc_urls[0]",
        "connections[0].block_hash_source",
    ]


def test_nothing_may_be_there_twice(load):
    assert faults_of(load, ONE + ONE) == [
        "chains[1].id: 31337 is listed twice",
        "connections[1]: a connection from 31337 to 31337 is listed twice",
    ]


def test_a_connection_needs_its_chains(load):
    content = ONE + '[[connections]]\nsource = 9\ndestination = 9\nblock_hash_source = "native"\n'
    assert faults_of(load, content) == [
        "connections[1].source: no chain with id 9 is configured",
        "connections[1].destination: no chain with id 9 is configured",
    ]
    # The unknown source is the only fault. The block hash source gets none.
    content = ONE.replace("source = 31337", "source = 9")
    assert faults_of(load, content) == ["connections[0].source: no chain with id 9 is configured"]


def test_a_missing_file_is_told():
    with pytest.raises(ChainsError, match="No such file"):
        load_chains(Path("/nowhere/chains.toml"), {})


# --- Names ------------------------------------------------------------------------------------------------------------


def test_names_are_resolved_where_the_file_says(load):
    assert load(ONE).ens is None
    assert load(ONE + "[ens]\nchain = 31337\n").ens.chain_id == 31337


# --- Old blocks -------------------------------------------------------------------------------------------------------


def test_beacon_nodes_and_era_files(load, tmp_path):
    more = (
        'beacon_urls = ["https://${HOST}/${KEY}", "http://other:5052"]\nera_files = ["eras", "https://e.org/${KEY}"]\n'
    )
    content = ONE.replace("[chains.signer]", f"{more}[chains.signer]")
    (chain,) = load(content, {"HOST": "beacon.example.org", "KEY": "secret", "SIGNER_KEY": KEY}).chains
    assert chain.beacon_urls == ("https://beacon.example.org/secret", "http://other:5052")
    assert chain.beacon_hosts == ("beacon.example.org", "other:5052")
    assert chain.era_files == (tmp_path / "eras", "https://e.org/secret")
    assert "secret" not in repr(chain)
    faults = faults_of(load, content, {"KEY": "secret"})
    assert faults == ["chains[0].beacon_urls[0]: neither HOST nor HOST_FILE is set in the environment"]
    twice = content.replace("http://other:5052", "https://${HOST}/${KEY}").replace('"eras"', "7")
    assert faults_of(load, twice, {"HOST": "a", "KEY": "secret"})[0] == "chains[0].beacon_urls: a node is listed twice"
    for wrong in ("ftp://a.org", "https://", "${HOST}"):
        faults = faults_of(load, content.replace("https://e.org/${KEY}", wrong), {"HOST": "a b", "KEY": "secret"})
        assert any("era_files[1]" in fault and "must be an http or https URL" in fault for fault in faults), faults


def test_of_each_kind_it_is_known_which_chain_is_a_rollup():
    """A rollup must not have a beacon chain, because blocks of the chain below would pass as the rollup's."""
    kinds = set(get_args(chains_file.BlockHashSourceName))
    assert kinds - set(cross_checks.KINDS) == {"native", "attested"}
