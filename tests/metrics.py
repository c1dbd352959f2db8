"""Read metrics as a scraper does."""

from collections import Counter
from collections.abc import Iterator

from django.test import Client
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        yield from family.samples


def value(text: str, name: str, **labels: object) -> float | None:
    """Return the sum of all samples with this name and these labels, or None if there are none."""
    wanted_labels = {(label, str(sample)) for label, sample in labels.items()}
    values = [
        sample.value for sample in samples(text) if sample.name == name and wanted_labels <= set(sample.labels.items())
    ]
    return sum(values) if values else None


def chain_events() -> Counter[str]:
    """Return the number of times that each event of a chain was counted in this process."""
    counters = [
        sample for sample in samples(Client().get("/metrics").text) if sample.name == "batchquery_chain_events_total"
    ]
    return Counter(
        {sample.labels["event"]: int(sample.value) for sample in counters if sample.labels["chain"] == "31337"}
    )


def invalid_replies() -> int:
    """Return how often a node's reply was refused in this process."""
    return int(value(Client().get("/metrics").text, "batchquery_node_exchanges_total", outcome="invalid_reply") or 0)
