"""Labels of batches: names by which their owners find them. Anybody who may see a batch sees its label."""

import re

from accounts.form_input import visible_line
from config.logs import redact_keys
from queries.models import Batch

MAX_CHARS = 100
# Characters of these kinds that separate words would become spaces.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
FAULT = (
    f"A label has 1 to {MAX_CHARS} visible characters, with at most 4 combining marks each, and no API key, because "
    "others may see it."
)


def valid(text: str) -> str:
    """Return the label as rows have it. Empty: it isn't valid."""
    label = "" if _CONTROL.search(text) else visible_line(text, MAX_CHARS)
    return label if redact_keys(label) == label else ""


def change(batch: Batch, label: str) -> None:
    """Give the batch another label, which is valid. An empty one removes it."""
    Batch.objects.filter(pk=batch.pk).update(label=label or None)
