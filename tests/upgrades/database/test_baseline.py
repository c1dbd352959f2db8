"""This version's code writes a database as those in `baseline/`. `BASELINE=write` keeps it there."""

import os

import pytest
from django.apps import apps
from django.db.models import CharField

from batch_query_client import __version__
from devnet.devchain import DevChain
from proving.models import Problem, SignedTransaction, Signer
from queries.models import Batch, Block
from tests.proving.sources import THERE, grow
from tests.upgrades import writing
from tests.upgrades.baselines import APPS, empty_tables, keep

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside, pytest.mark.long]

# A development chain has no archive of epochs before the Merge, and no node with whole beacon states.
NEVER = {"JumpLeaves.kind": {"epoch", "state"}}

# Rows that no column with choices tells.
OF_EACH = [
    Batch.objects.filter(rejecting_checks__gt=0, status="RECEIVED"),
    Problem.objects.exclude(seen_by=""),
    Problem.objects.exclude(ended_at=None),
    Problem.objects.exclude(failing_since=None),
    Signer.objects.exclude(signing_problem=None),
    SignedTransaction.objects.filter(hash=None),
    SignedTransaction.objects.filter(is_cancellation=True),
    Block.objects.filter(path_unit="jumps", path_left__gt=0, queries__step__isnull=False),
]


@pytest.mark.release
def test_a_written_baseline_has_rows_in_each_table_and_of_each_kind(settings, tmp_path, monkeypatch):
    settings.API_KEY_SECRET = writing.SECRET
    with DevChain(chain_id=THERE, hardfork="cancun") as there, DevChain(slots_in_an_epoch=4) as here:
        grow(there, 60)
        here.mine(5)
        with writing.connected(here, there, settings, tmp_path, monkeypatch):
            writing.write(here, there, settings, tmp_path, monkeypatch)
        assert empty_tables() == []
        assert missing_kinds() == {}
        for rows in OF_EACH:
            assert rows.exists(), str(rows.query)
        if os.environ.get("BASELINE") == "write":
            keep(__version__.partition(".dev")[0], tmp_path, here=here, there=there)


def missing_kinds() -> dict[str, set[str]]:
    """Return for each column with choices those that no row has."""
    missing = {
        f"{model.__name__}.{field.attname}": {choice for choice, _ in field.flatchoices}.difference(
            model._base_manager.values_list(field.attname, flat=True)
        )
        for model in apps.get_models()
        for field in model._meta.concrete_fields
        if model._meta.app_label in APPS and isinstance(field, CharField) and field.choices
    }
    return {name: choices for name in missing if (choices := missing[name] - NEVER.get(name, set()))}
