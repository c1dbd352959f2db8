"""The operator's page: what needs a person now, with links to where the admin shows it."""

from dataclasses import dataclass

from django.urls import reverse

from proving.health import findings
from proving.health.findings import Problem

# The admin's list about a finding, by its code.
_LISTS = {
    **dict.fromkeys(("signer_unfunded", "signer_unreadable", "signer_waits", "nonce_gap"), "proving_signer"),
    **dict.fromkeys(("signing_stopped", "connection_paused", "signer_paused", "node_doubtful"), "proving_stop"),
    **dict.fromkeys(("no_registry", "registry_refused", ""), "proving_factsregistry"),
    "webhooks_fail": "queries_webhookdelivery",
}


@dataclass(frozen=True)
class Need:
    """Something that waits for a person."""

    sentence: str
    is_urgent: bool  # the service doesn't work until it is done
    admin: str  # the address of the admin's list about it; empty: there is none


def needs() -> list[Need]:
    """Return what `/healthz` tells, and what fails without keeping the service from working.

    Raises `django.db.DatabaseError`.
    """
    problems, notices = findings.findings()
    notices += [*findings.failing_rows(), *findings.webhooks()]
    return [*(_need(one, is_urgent=True) for one in problems), *(_need(one, is_urgent=False) for one in notices)]


def _need(problem: Problem, *, is_urgent: bool) -> Need:
    name = _LISTS.get(problem.code)
    return Need(problem.sentence, is_urgent, reverse(f"admin:{name}_changelist") if name else "")
