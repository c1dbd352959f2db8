"""The small server of a worker's metrics."""

import urllib.error
import urllib.request
from ipaddress import ip_network

import pytest

from config import metrics_server
from devnet.ports import free_port


def test_a_worker_serves_its_metrics_to_who_may_read_them(settings):
    port = free_port()
    metrics_server.serve(port)
    url = f"http://127.0.0.1:{port}"
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "batchquery_job_run_seconds" in text
    assert "process_cpu_seconds_total" in text
    for path, headers, status in [
        ("/metrics", {"X-Forwarded-For": "192.0.2.1"}, 403),
        ("/", {}, 404),
        ("/metrics?a", {}, 404),
    ]:
        asked = urllib.request.Request(url + path, headers=headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked)
        assert refused.value.code == status
        refused.value.close()
    # Nothing stands before a worker that would write this header over.
    settings.CLIENT_ADDRESS_HEADER = "Client"
    settings.METRICS_ALLOWED_NETWORKS = [ip_network("10.0.0.0/8")]
    with pytest.raises(urllib.error.HTTPError, match="403") as forged:
        urllib.request.urlopen(urllib.request.Request(f"{url}/metrics", headers={"Client": "10.0.0.1"}))
    forged.value.close()
    settings.METRICS_TOKEN = "right"
    asked = urllib.request.Request(f"{url}/metrics", headers={"Authorization": "Bearer right"})
    with urllib.request.urlopen(asked) as answer:
        assert answer.status == 200
