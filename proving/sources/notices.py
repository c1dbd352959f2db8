"""What a block hash source tells the operator beside its answers: `/healthz` shows it."""

import logging
from collections.abc import Iterable

from proving.connections import OpenConnection
from proving.models import FactsRegistry

logger = logging.getLogger(__name__)


def note(connection: OpenConnection, sentences: Iterable[str]) -> None:
    """Tell the operator what is wrong, or that all is right again."""
    notice = " ".join(filter(None, sentences))
    rows = FactsRegistry.objects.filter(pk=connection.registry.row_id)
    if rows.exclude(notice=notice).update(notice=notice) and notice:
        logger.error("%s", notice)
