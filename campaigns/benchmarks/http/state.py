"""Makes a database with a key and batches, and prints what asks for them as JSON: `python benchmarks/http/state.py`.

The environment says where, as for the service. It runs in the folder of the checkout that is measured.
"""

import json
import os
import sys
from pathlib import Path

import django

sys.path.insert(0, str(Path.cwd()))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from django.core.management import call_command  # noqa: E402 (Django is set up first)
from django.test.utils import setup_test_environment  # noqa: E402

from queries import progress  # noqa: E402
from queries.models import Batch, StepKind  # noqa: E402
from tests.explorer.batches import a_batch, accept, complete, fetch_proofs, settle  # noqa: E402
from tests.service import ALICE, a_key, request, secret_of  # noqa: E402


def main() -> None:
    setup_test_environment()
    call_command("migrate", interactive=False, verbosity=0)
    call_command("collectstatic", interactive=False, verbosity=0)
    key = a_key()
    waiting, proven = a_batch(), a_batch(block=13)
    for batch in (waiting, proven):
        accept(batch)
    progress.complete([query.pk for query in waiting.queries.all()], StepKind.INITIAL_STATE)
    fetch_proofs(proven)
    complete(proven, *StepKind)
    settle(proven)
    assert Batch.objects.get(pk=proven.pk).status == "DONE"
    print(
        json.dumps(
            {"key": secret_of(key), "open": waiting.pk, "done": proven.pk, "body": json.dumps(request(ALICE, block=12))}
        )
    )


main()
