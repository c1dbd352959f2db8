"""`manage.py check_chains`."""

import io
import re

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from chains.devchain import DevChain
from config.chains import forget_chains
from tests.chains.lying_node import ask, error, lying_node
from tests.service import SIGNER, chains_toml

pytestmark = pytest.mark.django_db

DEAD = "http://127.0.0.1:1/secret-path"


def check(expected_error: str = "") -> list[str]:
    said = io.StringIO()
    if expected_error:
        with pytest.raises(CommandError, match=expected_error) as caught:
            call_command("check_chains", stdout=said)
        assert "secret" not in str(caught.value)
    else:
        call_command("check_chains", stdout=said)
    assert "secret" not in said.getvalue()
    return said.getvalue().splitlines()


@pytest.fixture(scope="module")
def devchain():
    with DevChain() as chain:
        chain.mine(200)
        yield chain


@pytest.fixture
def configure(settings, tmp_path):
    def write(*urls: str, **tables):
        settings.CHAINS_FILE = chains_toml(tmp_path, *urls, **tables)
        return settings.CHAINS_FILE

    return write


def test_it_tells_of_every_node_and_of_the_signer(configure, devchain):
    configure(f"{devchain.url}?key=secret", DEAD)
    name, columns, good, dead, signer = check()
    host = devchain.url.removeprefix("http://")
    assert name == "Development chain (31337)"
    assert columns.split() == ["node", "head", "age", "finalized", "EIP-2935", "proofs"]
    assert re.fullmatch(rf"  {host} +200 +-?\d+ s +198 +yes +back to block 1", good)
    assert good.index("back to") == columns.index("proofs")
    assert re.fullmatch(r"  127\.0\.0\.1:1 +can't be reached", dead)
    assert dead.index("can't") == columns.index("head")
    assert signer == f"  The signer {SIGNER} holds 10000.000000 ETH; it stops below 0.01 ETH."


def test_it_tells_how_far_back_a_pruned_node_proves(configure):
    with DevChain(extra_args=("--prune-history", "150")) as pruned:
        pruned.mine(200)
        configure(pruned.url)
        assert check()[2].endswith("at least 128 blocks back")


def test_it_fails_when_no_node_of_a_chain_can_be_used(configure, devchain):
    configure(DEAD)
    *_, signer = check(r"^No node can be used of Development chain \(31337\)\.$")
    assert "can't be reached" in signer


def test_a_node_of_another_chain_can_not_be_used(configure, devchain):
    configure(devchain.url, chain_id=5)
    assert check("No node can be used")[2].endswith("is a node of chain 31337, not of 5")


def test_a_source_needs_a_node_that_proves(configure, devchain):
    def without_proofs(body):
        return error(body, -32601, "no") if body["method"] == "eth_getProof" else ask(devchain.url, body)

    with lying_node(without_proofs) as url:
        path = configure(url)
        assert check("No node can be used")[2].endswith("none")
        path.write_text(path.read_text().split("[[connections]]", maxsplit=1)[0])
        forget_chains()
        assert len(check()) == 3, "a chain that is no destination has no signer to tell of"


def test_a_node_that_refuses_everything_is_told_with_its_words(configure, devchain):
    def refuses(body):
        return ask(devchain.url, body) if body["method"] == "eth_chainId" else error(body, -32000, "members only")

    with lying_node(refuses) as url:
        configure(url)
        assert check("No node can be used")[2].endswith("The node refused (-32000); the node said: “members only”.")


def test_a_signer_below_its_minimum_is_told(configure, devchain):
    configure(devchain.url, chain='minimum_signer_balance = "10001"')
    assert check()[-1].endswith("ETH, less than the 10001 ETH at which it stops. Fund it.")


def test_a_signer_without_key_is_told(configure, devchain):
    path = configure(devchain.url)
    (path.parent / "signer.key").unlink()
    assert re.fullmatch(r"  The signer's file .*signer\.key can't be read\.", check()[-1])


def test_nodes_can_be_checked_before_there_is_a_database(configure, devchain):
    configure(devchain.url)

    def fail(_execute, _sql, _params, _many, _context):
        raise OperationalError("no such table: proving_factsregistry")

    with connection.execute_wrapper(fail):
        assert len(check()) == 4


def test_a_wrong_chains_file_is_told(settings, tmp_path):
    settings.CHAINS_FILE = tmp_path / "chains.toml"
    assert check("can't be used:\n- it can't be read") == []
