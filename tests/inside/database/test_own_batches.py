"""A user cancels a batch while another transaction completes it."""

import pytest

from queries import batch_states
from queries.models import Batch, BatchStatus, StepKind
from tests.service import ALICE, header, request, submit
from tests.side_by_side import meet


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgresql_only(reason="SQLite runs whole transactions one after another")
@pytest.mark.parametrize("done_first", [True, False])
def test_of_cancelling_and_becoming_done_one_comes_first(client, key, unreachable_chain, done_first):
    batch = submit(key, request(ALICE, block=1))
    batch.estimated_gas = batch.estimated_wei = 1
    batch_states.admit([batch])
    queries = list(batch.queries.values_list("pk", flat=True))
    for kind in list(StepKind)[:-1]:
        batch_states.complete(queries, kind)

    def cancel() -> int:
        return int(client.post(f"/batch-queries/{batch.pk}/cancel", headers=header(key)).status_code)

    def finish() -> int:
        batch_states.complete(queries, StepKind.FACTS_PROVEN)
        return 409

    met = meet(finish, cancel) if done_first else meet(cancel, finish)
    assert met.waited
    assert (met.first, met.second) == ((409, 409) if done_first else (200, 409))
    assert Batch.objects.get().status == (BatchStatus.DONE if done_first else BatchStatus.REJECTED)
