"""`bqs proofs --erc7888` prints what receivers on real chains take."""

import io
import json
from typing import Any

import pytest
from django.core.management import call_command

from batch_query_client.command_line.running import run
from proving.models import FactsRegistry
from tests import chain_fixtures, users
from tests.contracts import deployed, state_provers
from tests.service import asking, submit, work_until_done

MESSAGE = b"\7" * 32
there = chain_fixtures.chain_fixture(chain_id=10)


@pytest.fixture
def printed(live_server, key, monkeypatch, capsys) -> Any:
    """Return a function that returns what `bqs proofs` prints as JSON, as a receiver takes it."""
    for name, value in {"URL": live_server.url, "API_KEY": users.secret_of(key), "PATIENCE": "0"}.items():
        monkeypatch.setenv(f"BQS_{name}", value)

    def printed(account: str, slot: int, *options: object, block: int) -> Any:
        where = ["--account", account, "--slot", hex(slot), "--chain", "31337", "--block", str(block)]
        assert run(["proofs", *where, "--destination", "31337", *map(str, options), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        return told["route"], [bytes.fromhex(each[2:]) for each in told["scpInputs"]], bytes.fromhex(told["proof"][2:])

    return printed


@pytest.fixture
def broadcaster(service) -> deployed.Deployed:
    broadcaster = deployed.Deployed(service, "test/Broadcaster")
    broadcaster.send("broadcastMessage", MESSAGE)
    return broadcaster


def deployed_pointer() -> str:
    output = io.StringIO()
    call_command("deploy_prover", "31337", "31337", stdout=output)
    return dict(line.split(maxsplit=1) for line in output.getvalue().splitlines())["pointer"]


def prove(service, key, block: int) -> None:
    header = {f"block:{block}": {"header": ["STATE_ROOT"]}}
    work_until_done(submit(key, asking(header)), service)


@pytest.mark.long
def test_a_message_is_taken_by_what_is_printed_over_one_hop_and_over_two(service, there, key, broadcaster, printed):
    block = state_provers.head(service)
    named, slot = deployed_pointer(), state_provers.message_slot(MESSAGE, deployed.SENDER)
    expected = state_provers.header_of(service, block).timestamp
    here = state_provers.receiver_on(service)
    one_hop = printed(broadcaster.address, slot, "--erc7888", named, block=block)
    refusal = here.refusal("verifyBroadcastMessage", one_hop, MESSAGE, deployed.SENDER)
    assert refusal == ("BlockNotKnown", block.to_bytes(32))
    prove(service, key, block)
    told = here.call("verifyBroadcastMessage", one_hop, MESSAGE, deployed.SENDER)
    assert told == (state_provers.remote_id(named, broadcaster.address), expected)

    # The other chain knows a later block of this one, whose registry knows the message's block.
    registry, later = FactsRegistry.objects.get().address, state_provers.head(service)
    known: state_provers.Home = state_provers.home_of(there, 31337)
    known.know(state_provers.header_of(service, later).encode(), later)
    first = state_provers.pointer(
        state_provers.prover(there, 10, known.registry.address, target_chain_id=31337)
    ).address
    away, copy = state_provers.receiver_on(there), state_provers.prover(there, 31337, registry, target_chain_id=31337)
    away.send(
        "updateStateProverCopy",
        printed(named, state_provers.POINTER_SLOT, "--erc7888", first, block=later),
        copy.address,
    )
    via = ("--via", 31337, later, registry, named)
    two_hops = printed(broadcaster.address, slot, "--erc7888", first, *via, block=block)
    assert two_hops[0] == [first, named]
    told = away.call("verifyBroadcastMessage", two_hops, MESSAGE, deployed.SENDER)
    assert told == (state_provers.remote_id(first, named, broadcaster.address), expected)


@pytest.mark.long
def test_a_person_reads_one_name_in_each_line_and_what_is_missing(service, broadcaster, printed, capsys):
    block, slot = state_provers.head(service), "0x" + "7" * 63
    where = ["--account", broadcaster.address, "--chain", "31337", "--block", str(block), "--destination", "31337"]
    address = "0x" + "aa" * 20
    assert run(["proofs", *where, "--slot", slot, "--erc7888", address]) == 0
    output = capsys.readouterr()
    names = [line.split()[0] for line in output.out.splitlines()]
    assert names == ["route", "scpInputs", "proof"]
    assert output.out.split()[1] == address
    assert f"The state root of block {block} is not a fact yet" in output.err
    for options, why in (
        (["--slot", slot, "--slot", "0x1", "--erc7888", address], "one account and one slot"),
        (["--erc7888", address], "one account and one slot"),
        (["--account", deployed.SENDER, "--erc7888", address], "one account and one slot"),
        (["--slot", slot, "--via", "1", "2", address, address], "--via is for --erc7888"),
    ):
        assert run(["proofs", *where, *options]) == 2
        assert why in capsys.readouterr().err
