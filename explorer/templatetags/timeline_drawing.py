"""Draws the timeline of a batch, as SVG.

Without a viewBox, with places in percent: so letters keep their size at every width. It is written here and not by a
template, which would take a fifth of the time of a page.

While the batch is open, static/js/timeline.js draws it on by the times that are in it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape

from django import template
from django.utils import timezone
from django.utils.safestring import SafeString

from explorer.batch.timelines import Segment, Timeline
from explorer.formatting.utc_times import iso
from explorer.templatetags.explorer_values import html, span

register = template.Library()

# The least visible width, in percent. timeline.js has it too.
_THINNEST = 0.8
# In pixels: a lane without its tracks, where the first track begins, a track with the space below it, letters, and the
# axis.
_LANE_HEIGHT, _TRACK_AT, _TRACK_HEIGHT, _TEXT_AT, _AXIS_HEIGHT = 30, 20, 18, 12, 20
# A narrower segment has no room for its label, in percent. timeline.js has it too.
_LEAST_LABELLED = 4
# Between two ticks of the axis, in tenths of seconds, and the most ticks. Beyond this percentage, the end of the axis
# has its own label. timeline.js has them too.
_SECOND, _MINUTE, _HOUR, _DAY = 10, 600, 36_000, 864_000
_TICKS = (
    *(1, 2, 5),
    *(_SECOND * count for count in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * count for count in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * count for count in (1, 2, 3, 6, 12)),
    *(_DAY * count for count in (1, 2, 5, 10, 30)),
)
_MOST_TICKS, _LAST_TICK = 4, 80
_LEGEND = {
    "ok": "completed",
    "run": "under way",
    "stopped": "stopped or failed",
    "wait": "waiting",
    "lost": "lost: rolled back",
}
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
    times: str = ""
    """Attributes that tell its start and end, in seconds from that of the timeline, where it is drawn on."""

    @property
    def middle(self) -> float:
        return round(self.x + self.width / 2, 2)

    def svg(self, top: int) -> str:
        rect = (
            f'<rect class="{self.kind}" x="{self.x}%" y="{top}" width="{self.width}%" height="16" rx="2"{self.times}>'
            f"<title>{escape(self.what)}</title></rect>"
        )
        has_room = self.width >= _LEAST_LABELLED
        if not self.label or not (has_room or self.times):
            return rect
        hidden = "" if has_room else ' display="none"'
        place = f'x="{self.middle}%" y="{top + _TEXT_AT}"'
        return f'{rect}<text class="in of-{self.kind}" {place}{hidden}>{self.label}</text>'


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
    def is_of_one_day(self) -> bool:
        return self.start.astimezone(UTC).date() == self.end.astimezone(UTC).date()

    @property
    def text(self) -> str:
        """Return the drawing in words. They stay true while it is drawn on."""
        lanes = (f"{lane.name}: {', '.join(one.what for one in lane.segments)}." for lane in self.lanes)
        begins = f"It goes on since {self.start:%H:%M:%S} UTC." if self.goes_on else f"{span(self.took)} in all."
        return f"{begins} {' '.join(lanes)}"

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Return the ticks of the axis before its end: the place in percent, and the time since the start."""
        whole = max(1.0, 10 * self.took.total_seconds())
        step = next((one for one in _TICKS if whole / one <= _MOST_TICKS), _TICKS[-1])
        unit, size = next(
            (unit, size) for unit, size in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE), ("s", 1)) if step % size == 0
        )
        size = _SECOND if unit == "s" else size
        places = ((100 * at / whole, f"{at / size:g} {unit}") for at in range(0, int(whole) + 1, step))
        return [(round(place, 2), label) for place, label in places if place <= _LAST_TICK]

    def _axis(self, top: int) -> Iterator[str]:
        yield f'<g class="axis" data-top="{top}">'
        for at, (place, label) in enumerate(self.ticks):
            yield f'<rect class="tick" x="{place}%" y="{top}" width="1" height="4"/>'
            yield f'<text class="{"" if at else "first"}" x="{place}%" y="{top + 17}">{label}</text>'
        yield "</g>"
        yield f'<text class="end" x="100%" y="{top + 17}">{"now" if self.goes_on else span(self.took)}</text>'
        if self.goes_on:
            yield f'<rect class="now" x="100%" y="{_TRACK_AT - 2}" width="2" height="{top - _TRACK_AT + 6}"/>'

    @property
    def svg(self) -> SafeString:
        parts: list[str] = []
        top = 0
        for lane in self.lanes:
            parts += lane.svg(top)
            top += lane.height
        parts += self._axis(top - 6)
        drawn_on = html(' data-start="{}"', iso(self.start)) if self.goes_on else SafeString("")
        return html(
            '<svg class="tl" height="{}" role="img" aria-labelledby="timeline-title timeline-text"{}>'
            '<title id="timeline-title">Timeline of the batch</title><desc id="timeline-text">{}</desc>{}{}</svg>',
            str(top + _AXIS_HEIGHT),
            drawn_on,
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
    goes_on = timeline.end is None
    end = timeline.end or timezone.now()
    length = max(end - timeline.start, timedelta(milliseconds=1))

    def segment(one: Segment) -> DrawnSegment:
        start, until = max(one.start, timeline.start), min(one.end or end, end)
        width = min(max(100 * (until - start) / length, _THINNEST), 100)
        x = max(0.0, min(100 * (start - timeline.start) / length, 100 - width))
        if one.end is None and goes_on:
            lasted = f", since {one.start:%H:%M:%S} UTC"
        else:
            lasted = f", {span(until - start)}" if until > start else ""
        times = ""
        if goes_on:
            ends = f' data-b="{(until - timeline.start).total_seconds():.2f}"' if one.end else ""
            times = f' data-a="{(start - timeline.start).total_seconds():.2f}"{ends}'
        return DrawnSegment(one.kind, one.what + lasted, one.label, round(x, 2), round(width, 2), times)

    return DrawnTimeline(
        start=timeline.start,
        end=end,
        goes_on=goes_on,
        lanes=tuple(
            DrawnLane(lane.name, lane.note, tuple(tuple(map(segment, track)) for track in lane.tracks))
            for lane in timeline.lanes
        ),
    )
