"""Which problems get a person out of bed: those by which money is lost, or all batches to a chain of value stand still.

Others wait for the morning, and so does all that concerns test networks and sources.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

from chains.chains_file import Chain
from config.configured_chains import get_chains
from proving.health.findings import DATABASE_UNAVAILABLE, NETWORKS, STOP, Problem
from proving.health.standstill import Stage


class Severity(StrEnum):
    CRITICAL = "critical"
    WARNING = "warning"


# Nothing is served or proven.
_OF_SERVICE = frozenset({DATABASE_UNAVAILABLE, "storage", "no_worker", "chains_file"})
_OF_CHAIN = frozenset({"chain_unavailable", "foreign_transactions", "signer_waits"})
# Another signer of the chain, or another URL, may go on.
_OF_EACH_SIGNER = frozenset({"signer_unfunded", "signer_unreadable", "signer_not_signing"})
_OF_EACH_URL = "wrong_chain"
CODES = _OF_SERVICE | _OF_CHAIN | _OF_EACH_SIGNER | {_OF_EACH_URL, "standstill", "node_doubtful"}
"""The codes of problems that may be critical."""


def of_chain(chain: Chain) -> Severity:
    """Return the severity of a standstill of all batches to this chain."""
    is_of_value = chain in get_chains().destinations() and not chain.test_network
    return Severity.CRITICAL if is_of_value else Severity.WARNING


def critical(problems: Sequence[Problem]) -> list[Problem]:
    """Return the critical ones of the problems, which are all that are known."""
    chains = {str(chain.id): chain for chain in get_chains().chains if of_chain(chain) == Severity.CRITICAL}
    troubled = _troubled(filter(_is_of_signer, problems), "signer")
    wrong = _troubled((problem for problem in problems if problem.code == _OF_EACH_URL), "url")
    found: list[Problem] = []
    for problem in problems:
        chain = chains.get(problem.values.get("chainId", ""))
        if problem.code == "standstill":
            is_critical = problem.values["kind"] != Stage.WEBHOOKS and NETWORKS not in problem.values
        elif problem.code in _OF_SERVICE or chain is None:
            is_critical = problem.code in _OF_SERVICE
        elif _is_of_signer(problem):
            is_critical = troubled[str(chain.id)] >= len(chain.all_signers)
        elif problem.code == _OF_EACH_URL:
            is_critical = wrong[str(chain.id)] >= len(chain.rpc_urls)
        else:
            is_critical = problem.code in _OF_CHAIN
        if is_critical:
            found.append(problem)
    return found


def _is_of_signer(problem: Problem) -> bool:
    return problem.code in _OF_EACH_SIGNER or STOP in problem.values


def _troubled(problems: Iterable[Problem], kind: str) -> Counter[str]:
    """Return for each chain how many of its signers, or URLs, have one of these problems. `kind` is their value."""
    return Counter(chain for chain, _ in {(each.values.get("chainId", ""), each.values.get(kind)) for each in problems})
