"""Counts of a process's exchanges with nodes and attesters, which are served as metrics.

A label has a node's host and never its URL, which may hold a key.
"""

from prometheus_client import Counter, Histogram

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

NODE_EXCHANGES = Counter(
    "batchquery_node_exchanges_total",
    "HTTP requests to nodes, by what came of them: answered, or why there was no usable answer.",
    ("chain", "node", "outcome"),
)
NODE_EXCHANGE_SECONDS = Histogram(
    "batchquery_node_exchange_seconds", "How long an HTTP request to a node took.", ("chain", "node"), buckets=_SECONDS
)
ATTESTER_ANSWERS = Counter(
    "batchquery_attester_answers_total",
    "Answers of attesters: signed, or the code of a refusal, or why there was no usable answer.",
    ("source", "destination", "attester", "answer"),
)
