"""Problems that workers have stored: each place tells the same ones, and none that nobody sees any more."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from html import unescape
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from accounts.models import User
from proving.models import ChainWatch, FactsRegistry, Signer, Stop
from queries.waits import wait
from tests.explorer.batches import a_batch, beat, deployed
from tests.explorer.pages import text_of
from tests.stored_problems import saw
from tests.users import ALICE, SIGNER

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

HOUR = timedelta(hours=1)
CONTRADICTED = wait("attester_conflict", problem="An attester contradicts its nodes.")
LOST = wait("final_blocks_lost", chain=31337, signer=SIGNER)


def _signer(ago: timedelta, **columns: Any) -> None:
    Signer.objects.create(chain_id=31337, address=SIGNER, due_at=timezone.now() - ago, **columns)


def _registry(ago: timedelta) -> None:
    FactsRegistry.objects.update(risk=CONTRADICTED, risk_seen_at=timezone.now() - ago)


def _waiting(ago: timedelta) -> None:
    _signer(timedelta(), wait=UNPAID, wait_seen_at=timezone.now() - ago)


def _chain(ago: timedelta) -> None:
    saw(("clock", "The newest block is old.", {"chainId": "31337"}), ago=ago)


NOT_SIGNING = wait("signer_silent", chain=31337, signer=SIGNER, problem="is away")
WITHHELD = wait("receipt_withheld", chain=31337, transaction="0x12", lacking="One node", having="another")
UNPAID = wait("signer_cant_pay")
ROWS: Mapping[str, Callable[[timedelta], None]] = {
    UNPAID.for_operators: _waiting,
    LOST.for_operators: lambda ago: _signer(ago, nonce_fault=LOST),
    WITHHELD.for_operators: lambda ago: _signer(ago, receipt_fault=WITHHELD),
    NOT_SIGNING.for_operators: lambda ago: _signer(ago, signing_problem=NOT_SIGNING),
    str(CONTRADICTED): _registry,
    "The newest block is old.": _chain,
}
IDS = ("wait", "nonces", "receipt", "signing", "registry", "chain")
# Public pages tell everybody no signer.
OF_A_SIGNER = "A signer of this service has a problem: transactions on this chain may wait."
PUBLIC = {problem.for_operators: OF_A_SIGNER for problem in (UNPAID, LOST, WITHHELD, NOT_SIGNING)}


@pytest.fixture(autouse=True)
def stored(unreachable_chain, db, settings) -> None:
    """Store the rows of a service that works, with an open batch."""
    settings.OPERATOR_ADDRESSES = [ALICE]
    beat()
    deployed()
    ChainWatch.objects.create(chain_id=31337, looked_at=timezone.now())
    a_batch()


def health() -> list[str]:
    body = Client().get("/healthz").json()
    return [*body["problems"], *body["notices"]]


def chains() -> list[str]:
    body = Client().get("/chains.json").json()
    return [
        *(sentence for chain in body["chains"] for sentence in chain["problems"]),
        *(sentence for connection in body["connections"] for sentence in connection["notes"]),
    ]


def operator_page() -> str:
    operator = Client()
    operator.force_login(User.objects.get_or_create(address=ALICE)[0])
    return unescape(text_of(operator.get("/operator").text))


def checked() -> list[str]:
    """Return what `check_chains` tells as wrong, after the codes, and its notices."""
    output = StringIO()
    with pytest.raises(CommandError) as failed:
        call_command("check_chains", stdout=output)
    problems = [line.partition(": ")[2] for line in str(failed.value).splitlines()]
    notices = [line.partition(": ")[2] for line in output.getvalue().splitlines() if line.startswith("Notice: ")]
    return [*problems, *notices]


@pytest.mark.parametrize("sentence", ROWS, ids=IDS)
def test_a_stored_problem_is_told_everywhere_in_the_same_words(sentence):
    ROWS[sentence](timedelta())
    assert sentence in health()
    assert chains() == [PUBLIC.get(sentence, sentence)]
    # An address is an element of its own, which parts it from a full stop.
    assert sentence in operator_page().replace(" .", ".")
    # The command observes chains itself, and its observation replaces that of the worker.
    assert sentence in checked() or ROWS[sentence] is _chain


@pytest.mark.parametrize("sentence", ROWS, ids=IDS)
def test_a_stored_problem_that_nobody_sees_any_more_is_told_nowhere(sentence):
    ROWS[sentence](HOUR)
    assert sentence not in health()
    assert not chains()
    assert sentence not in operator_page()
    assert sentence not in checked()


def test_a_check_of_chains_and_health_tell_the_same_after_it():
    _signer(timedelta(), nonce_fault=LOST)
    _registry(timedelta())
    Stop.objects.create(chain_id=31337, reason="Gas is dear.", by=ALICE)
    told = checked()
    assert told == health()
    assert len(told) == 4  # with that of the node, which is down
    # Only operators are told who has stopped.
    assert {PUBLIC.get(sentence, sentence.replace(f" By {ALICE}.", "")) for sentence in told} == set(chains())


def test_nodes_that_nobody_sees_resting_any_more_are_not_shown():
    node = {"host": "node.example", "problem": "node.example is down", "since": timezone.now().isoformat()}
    ChainWatch.objects.update(resting_nodes=[node])
    assert "node.example rests since" in operator_page()
    ChainWatch.objects.update(looked_at=timezone.now() - HOUR)
    assert "node.example" not in operator_page()
