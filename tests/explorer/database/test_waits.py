"""Waits are codes with values. Their list, columns and sentences are tested for each reader."""

import ast
import re
from dataclasses import replace
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from devnet.devchain import PROJECT
from explorer.formatting.wait_words import in_words
from proving.models import FactsRegistry, Signer, Transaction
from queries.models import Batch, Block, Step
from queries.waits import ACTORS, SENTENCES, Actor, Value, WaitReason, wait
from tests.explorer.batches import a_batch, accept, beat, page, path
from tests.explorer.pages import text_of

WHO = {
    Actor.NOBODY: "Nobody must act on waits for:",
    Actor.OPERATOR: "The operator of this service must act, at least if it lasts:",
    Actor.USER: "The user must act, because what the batch asks for can't be had so:",
    Actor.PAYER: "The payer of a self-funded batch must act:",
    Actor.OTHERS: "Others must act, who run attesters or another chain:",
}
SERVICE = [
    path for app in ("queries", "proving", "explorer", "api", "chains") for path in (PROJECT / app).rglob("*.py")
]
MUST_ACT = "operator of this service must act"
TOO_FAR = wait("block_too_far_ahead", block=1_000_000, chain=31337, ahead=999_990, head=10, most=50)
FAILS = {"failing_since": timezone.now() - timedelta(minutes=1), "due_at": timezone.now()}


def any_value(form: str) -> Value:
    return "any" if form in {"", "then", "given", "capital"} else 12_345_678


def example(code: str, **values: Value) -> WaitReason:
    """Return a reason with this code and made-up values."""
    whole = re.sub(r"\{operators:((?:[^{}]|\{[^}]*\})*)\}", r"\1", SENTENCES[code])
    forms = re.findall(r"\{(\w+)(?::([^}]*))?\}", whole)
    inner: dict[str, Value] = {"reason": TOO_FAR, "reasons": (TOO_FAR,), "waits": (TOO_FAR,), "error": TOO_FAR}
    filled = {name: inner[name] if name in inner else any_value(form) for name, form in forms}
    return wait(code, **{"chain": 31337, **filled, **values})


def details(batch: Batch) -> dict[str, object]:
    answer: dict[str, object] = Client().get(f"{path(batch)}.json").json()
    return answer


# --- The list ---------------------------------------------------------------------------------------------------------


def told_of(actor: Actor) -> str:
    """Return the list in the specification of the codes on which this party must act."""
    text = (PROJECT / "docs/specification.md").read_text("utf-8")
    return text.partition(f"\n{WHO[actor]}\n\n")[2].partition("\n\n")[0]


@pytest.mark.parametrize("actor", WHO)
def test_the_documents_list_by_who_must_act_each_code_once(actor):
    listed = re.findall(r"`(\w+)`", told_of(actor))
    assert sorted(listed) == sorted(code for code in SENTENCES if ACTORS[code] == actor)


def test_the_documents_tell_who_must_act_of_each_code():
    assert {*WHO, Actor.INNER} == set(ACTORS.values())


@pytest.mark.long
def test_each_code_is_used_and_each_that_is_used_is_in_the_table_with_its_values():
    literals: set[str] = set()
    for module in SERVICE:
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                literals.add(node.value)
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "wait"):
                continue
            match node.args:
                case [ast.Constant(str(code))]:
                    named = {keyword.arg: 0 for keyword in node.keywords if keyword.arg}
                    if len(named) == len(node.keywords):
                        assert wait(code, **named), (module, node.lineno)
                    assert set(named) <= {"chain", *re.findall(r"\{(\w+)", SENTENCES[code])}, (module, node.lineno)
    assert set(SENTENCES) <= literals


@pytest.mark.parametrize("code", SENTENCES)
def test_each_has_a_sentence_in_the_words_of_the_api_and_of_pages(code):
    reason = example(code)
    for sentence in (str(reason), in_words(reason), reason.for_operators):
        assert sentence
        assert not re.search(r"[{}]|None|  ", sentence)
    # Users read no address of a signer, and no command.
    signed = replace(
        reason, values=tuple((name, "0x90F7" if name == "signer" else value) for name, value in reason.values)
    )
    assert not re.search("0x90F7|manage.py|deploy_registry", str(signed) + in_words(signed))
    assert all(part.actor != Actor.INNER for part in reason.parts)
    if ACTORS[code] == Actor.USER:
        assert "operator" not in SENTENCES[code]


def test_values_are_written_where_they_are_shown():
    assert str(TOO_FAR).startswith("Block 1000000 of chain 31337 is 999,990 blocks above the newest one, 10.")
    assert in_words(TOO_FAR).startswith("Block 1,000,000 of Development chain is 999,990 blocks above")
    fee = example("fee_too_low", cost=342 * 10**12, fee=10**14, data_wei=None, path_gas=None)
    assert "may cost 342,000,000,000,000 wei, more than its fee of 100,000,000,000,000 wei" in str(fee)
    assert "may cost 0.000342 ETH, more than its fee of 0.0001 ETH" in in_words(fee)
    assert (
        in_words(wait("chain_stopped", who="A worker", chain=77, why="")) == "A worker has stopped sending on chain 77."
    )


@pytest.mark.parametrize(
    ("code", "values", "sentence"),
    [
        ("fee_limit", {"left": 10**17 - 1}, "leaves 0.099999… ETH"),
        ("user_limit", {"needed": 10**17 + 1}, "may cost 0.100001 ETH of it"),
        ("user_limit", {"price": 1_000_000_001}, "1.001 gwei, this"),
        ("daily_limit", {"cheaper": 1_999_999_999}, "gas at 1.999… gwei or less"),
        ("limit_used_up", {"used": 10**12 + 1}, "0.000002 ETH of this are used"),
        ("nothing_allowed", {"most": 10**18 - 1}, "cost, on Development chain, 0.999999… ETH in"),
        (
            "signer_too_poor",
            {"balance": 10**18 - 1, "needed": 10**18 + 1},
            "0.999999… ETH, and may have to pay 1.000001 ETH",
        ),
        ("signer_below_minimum", {"balance": 1}, "has 0.000000000000000001 ETH"),
        ("fee_too_low", {"cost": 10**18 + 1, "fee": 10**18 - 1}, "1.000001 ETH, more than its fee of 0.999999… ETH"),
    ],
)
def test_only_costs_are_rounded_up(code, values, sentence):
    assert sentence in in_words(example(code, chain=31337, **values))


def test_values_that_a_sentence_lacks_or_has_no_place_for_are_a_defect():
    for values in ({}, {"block": 1, "number": 2}):
        with pytest.raises(TypeError, match="takes the values"):
            wait("block_after", **values)


# --- The columns ------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("model", "column"),
    [
        *((Batch, "wait"), (Batch, "rejected_because"), (Block, "wait"), (Step, "error")),
        *((FactsRegistry, "wait"), (Signer, "wait"), (Transaction, "error")),
    ],
)
def test_a_column_takes_no_sentence(model, column):
    with pytest.raises(TypeError, match="A reason is a code with values"):
        model.objects.update(**{column: "The node is down."})


@pytest.mark.django_db
def test_a_column_returns_what_it_was_given():
    batch = a_batch()
    for reason in (None, *map(example, SENTENCES)):
        Batch.objects.update(wait=reason)
        assert Batch.objects.get(pk=batch.pk).wait == reason


# --- Actors -----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("code", ["block_too_far_ahead", "out_of_reach", "fee_too_low"])
def test_a_mistake_of_a_user_is_never_the_operators_turn(code):
    batch = a_batch()
    Batch.objects.update(wait=wait("rejected_in_a_minute", reason=example(code)), **FAILS)
    told = text_of(page(batch))
    assert MUST_ACT not in told
    assert "only a batch that asks for something else can help" in told
    assert [each["code"] for each in details(batch)["waits"]] == [code]  # type: ignore[attr-defined]


@pytest.mark.django_db
@pytest.mark.parametrize("fails", [{}, FAILS], ids=["waits", "fails"])
def test_the_code_alone_tells_who_must_act(fails):
    batch = a_batch()
    accept(batch)
    for code in ("check", "attesters_missing", "out_of_reach", "node_fails", "rejected_in_a_minute", "chain_stopped"):
        Block.objects.update(**{"wait": example(code), "due_at": timezone.now(), **fails})
        assert (MUST_ACT in text_of(page(batch))) == (ACTORS[code] == Actor.OPERATOR), code


@pytest.mark.django_db
def test_a_batch_that_waits_for_several_source_chains_tells_each():
    batch = a_batch()
    reasons = (wait("node_fails", problem="One is down."), wait("not_deployed", chain=31337, source=5))
    Batch.objects.update(wait=wait("several", reasons=reasons))
    assert [(each["code"], each["sentence"]) for each in details(batch)["waits"]] == [  # type: ignore[attr-defined]
        (reason.code, str(reason)) for reason in reasons
    ]


@pytest.mark.django_db
def test_a_code_of_a_later_version_is_told_as_it_is():
    batch = a_batch()
    accept(batch)
    beat()
    Block.objects.update(wait=WaitReason("of_a_later_version"), due_at=timezone.now())
    assert details(batch)["waits"][0]["sentence"] == "Waiting: of_a_later_version."  # type: ignore[index]
    assert MUST_ACT not in text_of(page(batch))
