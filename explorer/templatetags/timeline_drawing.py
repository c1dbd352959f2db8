"""Draws the timeline of a batch, as SVG.

Without a viewBox, with places in percent: so letters keep their size at every width. It is written here and not by a
template, which would take a fifth of the time of a page.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape

from django import template
from django.utils import timezone
from django.utils.safestring import SafeString

from explorer.batch.timelines import Segment, Timeline
from explorer.templatetags.explorer_values import html, span

register = template.Library()

# The least visible width, in percent.
_THINNEST = 0.8
# In pixels: a lane without its tracks, where the first track begins, a track with the space below it, and letters.
_LANE_HEIGHT, _TRACK_AT, _TRACK_HEIGHT, _TEXT_AT = 30, 20, 18, 12
# A narrower segment has no room for its label, in percent.
_LEAST_LABELLED = 4
_LEGEND = {"ok": "completed", "run": "under way", "stopped": "stopped", "wait": "waiting", "lost": "lost: rolled back"}
_HATCH = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path d="M0 0v6" stroke-width="2.5"/></pattern></defs>'
)


@dataclass(frozen=True)
class DrawnSegment:
    """A segment and its place, in percent."""

    kind: str
    what: str
    label: str
    x: float
    width: float

    @property
    def middle(self) -> float:
        return round(self.x + self.width / 2, 2)

    def svg(self, top: int) -> str:
        rect = (
            f'<rect class="{self.kind}" x="{self.x}%" y="{top}" width="{self.width}%" height="16" rx="2">'
            f"<title>{escape(self.what)}</title></rect>"
        )
        text = f'<text class="in" x="{self.middle}%" y="{top + _TEXT_AT}">{self.label}</text>' if self.label else ""
        return rect + text


@dataclass(frozen=True)
class DrawnLane:
    name: str
    note: str
    tracks: tuple[tuple[DrawnSegment, ...], ...]

    @property
    def segments(self) -> Sequence[DrawnSegment]:
        return [one for track in self.tracks for one in track]

    @property
    def height(self) -> int:
        return _LANE_HEIGHT + _TRACK_HEIGHT * len(self.tracks)

    def svg(self, top: int) -> Iterator[str]:
        yield f'<text class="name" x="0" y="{top + _TEXT_AT}">{escape(self.name)}</text>'
        yield f'<text class="end" x="100%" y="{top + _TEXT_AT}">{escape(self.note)}</text>'
        for at, track in enumerate(self.tracks):
            y = top + _TRACK_AT + _TRACK_HEIGHT * at
            yield f'<rect class="track" x="0" y="{y}" width="100%" height="16" rx="2"/>'
            yield from (one.svg(y) for one in track)


@dataclass(frozen=True)
class DrawnTimeline:
    """A timeline as it stands now."""

    start: datetime
    end: datetime
    goes_on: bool
    lanes: tuple[DrawnLane, ...]

    @property
    def took(self) -> timedelta:
        return self.end - self.start

    @property
    def text(self) -> str:
        """Return the drawing in words."""
        lanes = (f"{lane.name}: {', '.join(one.what for one in lane.segments)}." for lane in self.lanes)
        return f"{span(self.took)} {'so far' if self.goes_on else 'in all'}. {' '.join(lanes)}"

    @property
    def svg(self) -> SafeString:
        parts: list[str] = []
        top = 0
        for lane in self.lanes:
            parts += lane.svg(top)
            top += lane.height
        return html(
            f'<svg class="tl" height="{top}" role="img" aria-labelledby="timeline-title timeline-text">'
            '<title id="timeline-title">Timeline of the batch</title><desc id="timeline-text">{}</desc>{}{}</svg>',
            self.text,
            SafeString(_HATCH),
            SafeString("".join(parts)),
        )

    @property
    def legend(self) -> SafeString:
        kinds = {one.kind for lane in self.lanes for one in lane.segments}
        return SafeString(
            "".join(
                '<span><svg class="tl" aria-hidden="true">'
                f'<rect class="{kind}" width="100%" height="100%" rx="2"/></svg>{meaning}</span>'
                for kind, meaning in _LEGEND.items()
                if kind in kinds
            )
        )


@register.filter
def drawn(timeline: Timeline) -> DrawnTimeline:
    end = timeline.end or timezone.now()
    length = max(end - timeline.start, timedelta(milliseconds=1))

    def segment(one: Segment) -> DrawnSegment:
        start, until = max(one.start, timeline.start), min(one.end or end, end)
        width = min(max(100 * (until - start) / length, _THINNEST), 100)
        x = max(0.0, min(100 * (start - timeline.start) / length, 100 - width))
        lasted = f", {span(until - start)}" if until > start else ""
        label = one.label if width >= _LEAST_LABELLED else ""
        return DrawnSegment(one.kind, one.what + lasted, label, round(x, 2), round(width, 2))

    return DrawnTimeline(
        start=timeline.start,
        end=end,
        goes_on=timeline.end is None,
        lanes=tuple(
            DrawnLane(lane.name, lane.note, tuple(tuple(map(segment, track)) for track in lane.tracks))
            for lane in timeline.lanes
        ),
    )
