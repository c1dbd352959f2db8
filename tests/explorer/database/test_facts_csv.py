"""A batch's facts as CSV for spreadsheets."""

import codecs
import csv
import io
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from queries.models import Batch, Block, Query, StepKind
from tests.explorer import batches
from tests.service import ALICE

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


def lines(batch: Batch) -> list[dict[str, str]]:
    answer = get(batch)
    assert answer.status_code == 200
    assert answer.content.startswith(codecs.BOM_UTF8)  # tells Excel the encoding
    return list(csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"))))


def get(batch: Batch) -> Any:
    return Client().get(f"{batches.path(batch)}/facts.csv")


def test_each_fact_has_a_line_with_its_value():
    accounts = {ALICE: {"props": ["BALANCE", "CODE_HASH"], "slots": ["0x5"]}}
    batch = batches.batch_at(timestamp_1700000005={"accounts": accounts, "header": ["GAS_USED"]})
    batches.find_block(batch)
    batches.finish(batch)
    Block.objects.update(hash=batches.HASH)
    rows = lines(batch)
    assert [(line["query"], line["property"], line["slot"], line["value"], line["word"]) for line in rows] == [
        ("1", "BALANCE", "", str(batches.BALANCE), batches.word(batches.BALANCE)),
        ("1", "CODE_HASH", "", "", "0x" + "22" * 32),
        ("1", "SLOT", batches.word(5), "5", batches.word(5)),
        ("1", "BLOCK_AT_TIMESTAMP", "", "12", batches.word(12)),
        ("2", "GAS_USED", "", "21000", batches.word(21_000)),
        ("2", "BLOCK_AT_TIMESTAMP", "", "12", batches.word(12)),
    ]
    assert [line["account"] for line in rows] == [ALICE] * 3 + [""] * 3
    assert {(line["source_chain_id"], line["block"], line["block_hash"], line["state"]) for line in rows} == {
        ("31337", "12", batches.HASH, "proven")
    }


def test_unproven_and_rejected_facts_have_no_value():
    batch = batches.fetch_proofs(batches.accept(batches.a_batch(*batches.many_accounts(2))))
    batches.complete(batch, *StepKind, of=batches.queries_of(batch)[:1])
    assert [(line["state"], line["value"]) for line in lines(batch)] == [("proven", str(batches.BALANCE)), ("open", "")]
    batches.reject(batch)
    assert [(line["state"], line["value"]) for line in lines(batch)] == [("rejected", "")] * 2


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", '=HYPERLINK("http://x")'])
def test_no_cell_is_taken_for_a_formula(name):
    batch = batches.a_batch()
    Query.objects.update(name=name)
    for cell in next(csv.reader(io.StringIO(get(batch).text.partition("\n")[2]))):
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert lines(batch)[0]["name"] == f"'{name}"


def test_facts_csv_is_a_download_and_an_unknown_batch_has_none():
    batch = batches.a_batch()
    answer = get(batch)
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="facts-{batch.pk}.csv"'
    assert "no-store" in answer.headers["Cache-Control"]
    assert Client().get("/explorer/query/x/facts.csv").status_code == 404


def test_facts_csv_has_all_queries_and_reads_them_in_large_parts():
    batch = batches.accept(batches.a_batch(*batches.many_accounts(501)))
    with CaptureQueriesContext(connection) as statements:
        rows = lines(batch)
    assert [line["query"] for line in rows] == [str(number) for number in range(1, 502)]
    # One statement finds the batch, four count the read, two size the file, and three read each part.
    assert len(statements) <= 1 + 4 + 2 + 3 * 2
