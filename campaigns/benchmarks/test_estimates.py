"""Accuracy of estimates.

Each line shows the expected gas, the spent gas and the upper bound. It also shows by how much the expected gas and the
bound exceed the spent gas. Batches come from `tests/proving/chain/test_estimates.py`, proofs from
`campaigns.benchmarks.estimates`.
"""

from collections.abc import Iterable

import pytest

from campaigns.benchmarks import estimates
from campaigns.benchmarks.gas import Lab
from tests.inside.working import work_once
from tests.proving.estimated_batches import Result, cases_of, measured
from tests.service import a_key, asking


def show(capsys: pytest.CaptureFixture[str], results: Iterable[Result]) -> None:
    with capsys.disabled():
        print(f"\n{estimates.HEAD}")
        for result in results:
            print(result)


def test_proofs(capsys):
    cases = list(estimates.proof_cases())
    results = []
    for number in dict.fromkeys(case.number for case in cases):
        with Lab(number) as lab:
            results += [estimates.of_proof(lab, case) for case in cases if case.number == number]
    show(capsys, results)


def test_batches(service, client, settings, capsys):
    settings.MAX_BATCHES_PER_MINUTE = 1000
    service.rpc("anvil_mine", hex(80), hex(5))
    work_once()
    user = a_key()
    cases = cases_of(service)
    show(capsys, [measured(client, user, name, asking(blocks), work=work_once) for name, blocks in cases])
