"""A started Prometheus with the shipped rules reads web server and worker, and answers the dashboard's queries."""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import requests
import yaml

from demo import client
from demo.installation import CHAIN_ID, chain_toml
from devnet.devchain import ACCOUNTS, PROJECT
from devnet.ports import free_port
from tests.chain_fixtures import chain_fixture
from tests.factories import until
from tests.fresh_installation import FreshService
from tests.service import ALICE, request

FOLDER = PROJECT / "deploy/monitoring"
PROMETHEUS = shutil.which("prometheus")
# A chain of value has limits, so that each panel has its metrics.
CHAINS = (
    chain_toml(CHAIN_ID, "Development chain").replace("test_network = true", 'daily_limit = "1"')
    + f"""
[[connections]]
source = {CHAIN_ID}
destination = {CHAIN_ID}
block_hash_source = "native"
"""
)
# Panels that are empty while all is well, and without attesters.
EMPTY = {"Open batches", "Problems by code", "Answers of attesters", "Answers that are no success", "Nonces"}

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed (Debian's package has its name)"),
]
chain = chain_fixture(chain_id=CHAIN_ID, block_seconds=1)


@pytest.fixture
def prometheus(chain, tmp_path) -> Iterator[str]:
    """Start the service and Prometheus, and prove a batch. Yield Prometheus' URL."""
    with ExitStack() as running:
        port, own_port = free_port(), free_port()
        variables = {"METRICS_PORT": str(free_port()), "ALLOWED_ADDRESSES": "*"}
        service = FreshService(running, tmp_path, CHAINS % chain.url, ACCOUNTS[3][1], port, **variables)
        service.deploy_registry(CHAIN_ID, CHAIN_ID)
        service.serve()
        example = yaml.safe_load((FOLDER / "prometheus.example.yml").read_text())
        # Minutes would pass until there are two values of each counter. No alert leaves this machine.
        example["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        del example["alerting"]
        example["rule_files"] = [str(FOLDER / "alerts.yml")]
        targets = {"batch-query-service": port, "batch-query-service-workers": variables["METRICS_PORT"]}
        for job in example["scrape_configs"]:
            job["static_configs"] = [{"targets": [f"127.0.0.1:{targets.pop(job['job_name'])}"]}]
        assert not targets
        config = tmp_path / "prometheus.json"
        config.write_text(json.dumps(example))
        assert PROMETHEUS
        options = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
        service.start("prometheus", PROMETHEUS, *options, f"--web.listen-address=127.0.0.1:{own_port}")
        key = client.take_api_key(service.base_url, *ACCOUNTS[0], CHAIN_ID)
        batch = client.submit(service.base_url, key, request(ALICE, block=chain.head(), fee=10**18))
        client.follow(service.base_url, key, batch, lambda _: None, 90)
        yield f"http://127.0.0.1:{own_port}/api/v1"


def data(url: str, **parameters: str) -> Any:
    answer = requests.get(url, parameters, timeout=10).json()
    assert answer["status"] == "success", answer
    return answer["data"]


def test_prometheus_evaluates_each_rule_and_answers_each_query_of_the_dashboard(prometheus):
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    queries = [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", ())]

    def empty() -> set[str]:
        return {title for title, query in queries if not data(f"{prometheus}/query", query=query)["result"]}

    until(lambda: empty() == EMPTY, "values", says=lambda: empty() ^ EMPTY)
    (group,) = data(f"{prometheus}/rules")["groups"]
    assert {rule["health"] for rule in group["rules"]} == {"ok"}, group
    assert not data(f"{prometheus}/alerts")["alerts"]
    assert {target["health"] for target in data(f"{prometheus}/targets")["activeTargets"]} == {"up"}
