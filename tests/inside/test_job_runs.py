"""What is counted of a look at a row that was due."""

import pytest
from prometheus_client import REGISTRY

from proving import job_runs


def counted(outcome: str) -> float:
    labels = {"kind": "of this test", "outcome": outcome}
    return REGISTRY.get_sample_value("batchquery_job_run_seconds_count", labels) or 0


@pytest.mark.parametrize("outcome", ["done", "waits", "fails", "lost"])
def test_a_look_is_counted_by_its_outcome(outcome):
    before = counted(outcome)
    with job_runs.job_run("of this test") as job_run:
        assert job_run.outcome == "lost"
        job_run.outcome = outcome
    assert counted(outcome) == before + 1


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_exception_is_a_defect_whatever_came_of_the_row(error):
    before, done = counted("defect"), counted("done")
    with pytest.raises(error):
        fail_after_the_outcome(error)
    assert (counted("defect"), counted("done")) == (before + 1, done)


def fail_after_the_outcome(error: type[BaseException]) -> None:
    with job_runs.job_run("of this test") as job_run:
        job_run.outcome = "done"
        raise error
