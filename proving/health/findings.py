"""Everything that is wrong with the service, or may become so: `findings`.

`/healthz`, `/metrics` and the operator's page tell these. No chain is asked: workers store what they see, and
`check_chains` also looks itself.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import NamedTuple

from django.db.models import Exists, OuterRef
from django.db.models.functions import Now

from config.configured_chains import get_chains
from proving.models import ChainWatch, FactsRegistry, Signer, Stop, StopCode, WorkerHeartbeat
from proving.registry import deployments
from queries import storage
from queries.models import OPEN_STATUSES, Batch, Sender

CODES = (
    *("storage", "no_worker", "clock", "chain_unavailable", "wrong_chain", "chain_not_watched", "head_went_back"),
    *("signer_unfunded", "signer_unreadable", "signer_waits", "nonce_gap", "node_doubtful", "signing_stopped"),
    *("no_registry", "registry_refused", "connection_paused", "signer_paused"),
)
"""The codes of `/healthz`, as docs/operating/watching.md explains them, besides `database_unavailable`."""


class Problem(NamedTuple):
    code: str
    """Stable: what watches the service may rely on it."""
    sentence: str
    """For people; it names what to do where that isn't plain. It holds no secret and names no file."""


# What was seen of a chain counts for so long, and a worker has so long for its first observations.
_COUNTS, _FIRST_OBSERVATIONS = timedelta(minutes=3), timedelta(minutes=1)


def workers() -> Iterator[Problem]:
    if not WorkerHeartbeat.running().exists():
        yield Problem("no_worker", "No worker is running. Batches are stored, but none is proven.")


def chains() -> Iterator[Problem]:
    """Yield the problems of chains, as a running worker has seen them."""
    configured = {chain.id: chain for chain in get_chains().chains}
    seen = ChainWatch.objects.filter(pk__in=configured, looked_at__range=(Now() - _COUNTS, Now() + _COUNTS))
    problems = dict(seen.values_list("chain_id", "problems"))
    is_observing = WorkerHeartbeat.running().filter(started_at__lt=Now() - _FIRST_OBSERVATIONS).exists()
    for chain_id, chain in configured.items():
        if chain_id in problems:
            yield from (Problem(*pair) for pair in problems[chain_id])
        elif is_observing:
            minutes = _COUNTS.total_seconds() / 60
            sentence = f"No worker has observed {chain.label} for {minutes:.0f} minutes, so nothing is known of it."
            yield Problem("chain_not_watched", sentence)


def stopped() -> Iterator[Problem]:
    destinations = [chain.id for chain in get_chains().destinations()]
    for stop in Stop.objects.filter(chain_id__in=destinations).order_by("chain_id", "source_chain_id", "signer"):
        if stop.code == StopCode.NOT_BELIEVED:
            yield Problem("node_doubtful", stop.sentence)
        elif stop.signer:
            yield Problem("signer_paused", stop.sentence)
        elif not stop.source_chain_id:
            yield Problem("signing_stopped", stop.sentence)
        elif get_chains().connection(stop.source_chain_id, stop.chain_id):
            yield Problem("connection_paused", stop.sentence)
    for problem in (
        Signer.objects.filter(chain_id__in=destinations).values_list("nonce_problem", flat=True).order_by("pk")
    ):
        if problem:
            yield Problem("nonce_gap", problem)


def signers() -> Iterator[Problem]:
    """Yield what keeps transactions from being sent, while there is something to send."""
    waiting = Batch.objects.filter(
        status__in=OPEN_STATUSES, sender=Sender.OPERATOR, destination_chain_id=OuterRef("chain_id")
    )
    # What is stopped is told by itself.
    stops = Stop.objects.filter(chain_id=OuterRef("chain_id"), source_chain_id=0, signer__in=["", OuterRef("address")])
    told = Signer.objects.filter(Exists(waiting), ~Exists(stops)).exclude(notice="").order_by("pk")
    notices = list(told.values_list("chain_id", "notice"))
    for chain in get_chains().destinations():
        # Some are about all signers of the chain.
        for notice in dict.fromkeys(notice for chain_id, notice in notices if chain_id == chain.id):
            yield Problem("signer_waits", notice)


def facts_registries() -> Iterator[Problem]:
    deployed = FactsRegistry.in_use.exclude(deployed_at=None)
    rows = {(row.source_chain_id, row.destination_chain_id): row for row in deployed}
    for connected in get_chains().connections:
        row = rows.get((connected.source_id, connected.destination_id))
        if row is None:
            yield Problem("no_registry", deployments.not_deployed(connected.destination_id, connected.source_id))
        elif row.refused:
            yield Problem("registry_refused", row.refused_with_remedy)


def storing() -> Iterator[Problem]:
    if sentence := storage.problem():
        yield Problem("storage", sentence)


def attesters() -> Iterator[Problem]:
    """Yield notices, which have no code: what the operator must look into about configured connections that work.

    Those of other connections are left out: nothing would ever remove them.
    """
    for row in FactsRegistry.in_use.exclude(notice="").order_by("pk"):
        if get_chains().connection(row.source_chain_id, row.destination_chain_id):
            yield Problem("", row.notice)


CHECKS: tuple[Callable[[], Iterator[Problem]], ...] = (
    workers,
    chains,
    stopped,
    signers,
    facts_registries,
    storing,
)
"""Each raises `django.db.DatabaseError` where the database does not answer."""


def findings() -> tuple[list[Problem], list[Problem]]:
    """Return the problems, and the notices. Raises `django.db.DatabaseError`."""
    return [problem for check in CHECKS for problem in check()], list(attesters())
