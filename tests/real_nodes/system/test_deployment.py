"""Contracts are deployed on geth with Amsterdam's rules, where a byte of code takes 1,530 gas."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from eth_account import Account
from eth_utils.crypto import keccak

from config.configured_chains import forget_chains
from proving.models import FactsRegistry, SignedTransaction, Transaction
from tests import service
from tests.proving.sources import KEYS
from tests.real_nodes.deploying import mining
from tests.real_nodes.driven_geth import CHAIN_ID, DrivenGeth
from tests.real_nodes.driven_node import give

pytestmark = [pytest.mark.django_db, pytest.mark.outside, pytest.mark.geth]

SIGNER = Account.from_key(keccak(b"has money only where a test sends it"))
ATTESTED = 5
# Receipts of geth 1.17.10.
REGISTRY, READER, NATIVE_SOURCE, MULTICALL = 29_891_321, 18_461_917, 1_055_540, 1_007_362
BEACON_CHAIN = """
[chains.beacon_chain]
preset = "minimal"
genesis_time = 1_700_000_000
bellatrix = 0
capella = 0
deneb = 0
electra = 64
"""


@pytest.fixture
def geth(request, settings, tmp_path: Path) -> Iterator[DrivenGeth]:
    """Yield a node with the options of the test's parameter, as the only chain of the service."""
    with DrivenGeth(CHAIN_ID, amsterdam_time=0, **getattr(request, "param", {})) as node:
        node.mine(2)
        configure(node, settings, tmp_path)
        yield node


def configure(node: DrivenGeth, settings: Any, folder: Path) -> None:
    settings.CHAINS_FILE = service.chains_toml(folder, node.url, chain_id=CHAIN_ID)
    (folder / "signer.key").write_text(SIGNER.key.to_0x_hex())


def run(node: DrivenGeth, command: str, *arguments: object) -> str:
    output = io.StringIO()
    with mining(node.mine):
        call_command(command, *map(str, arguments), stdout=output, stderr=io.StringIO())
    return output.getvalue()


def to_begin(node: DrivenGeth) -> tuple[int, int]:
    """Return what `check_chains` wants the signer to get, and what the deployment takes of it at most, in wei."""
    output = io.StringIO()
    with pytest.raises(CommandError, match="no_registry: "):
        call_command("check_chains", stdout=output)
    named = re.search(
        rf"To begin on .+, send (\S+) ETH to {SIGNER.address}: deploying 1 registry takes at most (\S+) ETH",
        output.getvalue(),
    )
    assert named, output.getvalue()
    return round(float(named[1]) * 10**18), round(float(named[2]) * 10**18)


def send(node: DrivenGeth, wei: int) -> None:
    give(node, SIGNER.address, wei)
    node.mine()


def balance(node: DrivenGeth) -> int:
    return int(node.rpc("eth_getBalance", SIGNER.address, "latest"), 16)


def gas_of_creations() -> list[int]:
    """Return the gas of each transaction. All succeeded at the first try, with limits that were not much too high."""
    rows = list(Transaction.objects.order_by("nonce"))
    for tx in rows:
        (version,) = SignedTransaction.objects.filter(transaction=tx)
        assert tx.succeeded
        assert version.gas_limit in {None, tx.gas_limit}
        assert 1.0 <= tx.gas_limit / (tx.gas_used or 1) <= 1.6
    return [tx.gas_used or 0 for tx in rows]


def test_everything_is_deployed_with_the_money_that_check_chains_names(geth):
    base_fee = int(geth.rpc("eth_getBlockByNumber", "latest", False)["baseFeePerGas"], 16)
    amount, most = to_begin(geth)
    send(geth, amount)
    registry = run(geth, "deploy_registry", CHAIN_ID, CHAIN_ID).split()[-1]
    assert gas_of_creations() == [NATIVE_SOURCE, MULTICALL, REGISTRY]
    assert 1.0 < most / base_fee / sum(gas_of_creations()) < 3.0
    assert amount - balance(geth) < most
    assert FactsRegistry.in_use.get().address == registry
    send(geth, 10**18)
    run(geth, "deploy_reader", CHAIN_ID)
    run(geth, "deploy_prover", CHAIN_ID, CHAIN_ID)
    assert gas_of_creations()[3] == READER
    assert len(gas_of_creations()) == 6


def test_a_registry_is_replaced_and_one_of_attesters_is_deployed(geth, settings):
    send(geth, 10**19)
    first = run(geth, "deploy_registry", CHAIN_ID, CHAIN_ID)
    text = settings.CHAINS_FILE.read_text().replace("\n[[connections]]", f"{BEACON_CHAIN}\n[[connections]]")
    attested = service.attested_by({Account.from_key(KEYS[0]).address: "http://127.0.0.1:1"}, 1)
    more = service.source_tables(ATTESTED, "Attested", geth.url, attested, destination=CHAIN_ID)
    settings.CHAINS_FILE.write_text(text + more)
    forget_chains()
    assert run(geth, "deploy_registry", CHAIN_ID, CHAIN_ID) == first
    second = run(geth, "deploy_registry", CHAIN_ID, CHAIN_ID, "--replace")
    third = run(geth, "deploy_registry", CHAIN_ID, ATTESTED)
    assert len({first, second, third}) == 3
    assert len([gas for gas in gas_of_creations() if REGISTRY <= gas < 1.001 * REGISTRY]) == 3
    assert FactsRegistry.in_use.get(source_chain_id=CHAIN_ID).beacon_history


# In order: the node's options, the money in thousandths of an ETH, why the registry isn't created, and the contracts
# that are.
SHORTAGES = {
    "the node's cap": (
        {"flags": ["--rpc.gascap=25000000"]},
        1000,
        r" give calls and estimates only 25,000,000 gas, and .+ need 29,873,380\. .+--rpc\.gascap",
        2,
    ),
    "the block's limit": (
        {"gas_limit": 20_000_000},
        1000,
        r"FactsRegistry can't be created\. A transaction would need 30,127,617 gas, and a block allows at most 20,\d",
        0,
    ),
    "no money": ({}, 1, r"The signer 0x.+ has 0\.001000 ETH, and it stops below 0\.01\.", 0),
    "money for small contracts": ({}, 12, r"The signer 0x.+ has 0\.011.+ ETH, and may have to pay 0\.0\d+ ETH\.", 2),
}


@pytest.mark.parametrize(("geth", "milliether", "why", "created"), SHORTAGES.values(), ids=SHORTAGES, indirect=["geth"])
def test_a_shortage_is_named_and_nothing_is_sent_that_must_fail(geth, milliether, why, created):
    send(geth, milliether * 10**15)
    with pytest.raises(CommandError, match=why):
        run(geth, "deploy_registry", CHAIN_ID, CHAIN_ID)
    assert gas_of_creations() == [NATIVE_SOURCE, MULTICALL][:created]


@pytest.mark.long
def test_a_creation_above_the_node_s_cap_of_fees_names_its_flag_and_is_sent_when_gas_is_cheaper(settings, tmp_path):
    node = DrivenGeth(CHAIN_ID, amsterdam_time=0)
    node.genesis["baseFeePerGas"] = hex(60 * 10**9)
    told = io.StringIO()

    def mine() -> None:
        """Empty blocks make gas cheaper."""
        latest, pending = (node.rpc("eth_getTransactionCount", SIGNER.address, tag) for tag in ("latest", "pending"))
        if latest != pending or "exceeds the configured cap (1.00 ether)" in told.getvalue():
            node.mine()

    with node:
        configure(node, settings, tmp_path)
        send(node, 10**19)
        with mining(mine):
            call_command("deploy_registry", str(CHAIN_ID), str(CHAIN_ID), stdout=io.StringIO(), stderr=told)
    assert re.match(
        r"Creating FactsRegistry may cost \d\.\d+ ETH now\. .+ unless --rpc\.txfeecap allows it\.", told.getvalue()
    )
    assert Transaction.objects.filter(gas_used=REGISTRY, succeeded=True).count() == 1


def test_no_creation_is_signed_with_less_than_it_takes(geth, settings):
    send(geth, 10**18)

    def say_less(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_estimateGas" and int(reply.get("result", "0x0"), 16) > 2**24:
            reply["result"] = hex(29_800_000)
        return [reply]

    with service.changed_replies(settings, geth, say_less), pytest.raises(CommandError, match="29800000"):
        run(geth, "deploy_registry", CHAIN_ID, CHAIN_ID)
    assert gas_of_creations() == [NATIVE_SOURCE, MULTICALL]
