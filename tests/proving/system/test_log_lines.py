"""The lines that a worker logs while a failure lasts."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from devnet.devchain import DevChain
from tests import chain_fixtures, deployed, factories
from tests.chains.lying_node import Raw, ask, each, error, lying_node
from tests.proving.signing_service import name_service
from tests.service import a_key, asking, balances, chains_toml, reconfigure, submit

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.outside,
    pytest.mark.long,
]

chain = chain_fixtures.chain_fixture(lambda chain: chain.mine(10), scope="function", block_seconds=0.5)
FAILURES = 12


@pytest.fixture
def service(chain: DevChain, settings, tmp_path, transactional_db) -> DevChain:
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url)
    deployed.deploy()
    return chain


def warnings(folder: Path) -> list[str]:
    lines = (folder / "worker0.log").read_text().splitlines()
    return [line for line in lines if " WARNING " in line or " ERROR " in line]


def submit_until_it_failed_often(service: DevChain, failures: Sequence[Any]) -> int:
    """Submit a batch after each failure, because pauses between attempts for the same batches grow.

    Return the number of minutes that have begun.
    """
    key, began = a_key(), time.monotonic()
    while len(failures) < FAILURES:
        submit(key, asking(balances([service.head()])))
        factories.until(partial(lambda count: len(failures) > count, len(failures)), "a failure")
    return 1 + int((time.monotonic() - began) // 60)


def test_a_signing_service_that_is_down_has_one_line_of_its_own_and_one_about_its_signer(
    service, start_worker, settings, tmp_path
):
    asked: list[Any] = []

    def answer(body: Any) -> Raw:
        asked.append(body)
        return Raw(b"", 503)

    with lying_node(answer) as url:
        name_service(settings, url)
        start_worker()
        minutes = submit_until_it_failed_often(service, asked)
    # The second one is about the signer.
    assert minutes * 2 >= len(warnings(tmp_path)) >= 1


def test_nodes_that_refuse_fees_as_too_low_have_one_line_whatever_they_say(service, start_worker, settings, tmp_path):
    refused: list[Any] = []

    def answer(question: Any) -> Any:
        if question["method"] != "eth_sendRawTransaction":
            return ask(service.url, question)
        refused.append(question)
        return error(question, -32000, f"max fee per gas less than block base fee: {len(refused)} gwei")

    with lying_node(each(answer)) as url:
        reconfigure(settings, service.url, url)
        start_worker()
        minutes = submit_until_it_failed_often(service, refused)
    assert minutes >= len(warnings(tmp_path)) >= 1
