"""The four steps, on a real chain."""

from queries.models import BatchStatus, Step, StepKind, StepStatus
from tests.service import ALICE, a_key, request, submit, work_until_done


def test_it_proves_a_balance_through_all_four_steps(service):
    batch = submit(a_key(), request(ALICE, block=service.head()))
    work_until_done(batch, service)
    assert batch.status == BatchStatus.DONE
    steps = Step.objects.filter(query__batch=batch).order_by("pk")
    assert [step.kind for step in steps] == list(StepKind)
    assert {step.status for step in steps} == {StepStatus.COMPLETED}
    assert all(step.started_at <= step.completed_at for step in steps)
    assert steps[3].transaction_hash.startswith("0x")
