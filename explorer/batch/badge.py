"""A small image of a batch's status, for pages elsewhere, such as a README. Like the batch's page, it needs no key."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from queries import query_rows
from queries.api_endpoint import conditional
from queries.models import CANCELLED, Batch, BatchStatus

# Colours on which white text has a contrast of 4.5:1.
_COLOURS = {BatchStatus.DONE: "#0f6b3e", BatchStatus.REJECTED: "#b02219", CANCELLED: "#535b67", "unknown": "#535b67"}
_COLOUR_OF_OPEN = "#3847c6"
# Seconds for which caches keep a badge. A reorg can reopen a batch that is DONE until its last block is final.
_OPEN_SECONDS, _NOT_FINAL_SECONDS, _FINAL_SECONDS = 5, 60, 7 * 86_400
_WIDTH_OF_CAPITAL, _WIDTH_OF_SMALL, _PADDING = 8, 6, 6


@dataclass(frozen=True)
class Badge:
    status: str  # a word of pages, or `unknown`
    seconds: int  # for which it may be kept

    @classmethod
    def of(cls, batch: Batch) -> "Badge":
        if batch.is_open:
            seconds = _OPEN_SECONDS
        elif batch.status == BatchStatus.DONE and batch.queries.filter(block__due_at__isnull=False).exists():
            seconds = _NOT_FINAL_SECONDS
        else:
            seconds = _FINAL_SECONDS
        return cls(batch.shown_status, seconds)

    def drawn(self) -> str:
        """Return the badge as SVG. Its texts have fixed lengths, so that no font makes them too wide."""
        names = {"name": "batch", "status": self.status, "colour": _COLOURS.get(self.status, _COLOUR_OF_OPEN)}
        lengths = {f"{part}_length": _length(names[part]) for part in ("name", "status")}
        left = lengths["name_length"] + 2 * _PADDING
        right = lengths["status_length"] + 2 * _PADDING
        places = {"left": left, "right": right, "width": left + right, "padding": _PADDING, "start": left + _PADDING}
        return render_to_string("explorer/batch/badge.svg", {**names, **lengths, **places})


def _length(word: str) -> int:
    return len(word) * (_WIDTH_OF_CAPITAL if word.isupper() else _WIDTH_OF_SMALL)


@require_safe
def image(request: HttpRequest, internal_id: str) -> HttpResponse:
    """Answer with a batch's badge. That of an unknown batch says so, with the status 404."""
    batch = query_rows.find_batch(internal_id)
    badge = Badge.of(batch) if batch else Badge("unknown", _NOT_FINAL_SECONDS)
    response = conditional(request, badge.drawn().encode(), f'"{badge.status}"', content_type="image/svg+xml")
    response.headers["Cache-Control"] = f"public, max-age={badge.seconds}"
    if batch is None:
        response.status_code = 404
    return response
