"""Template filters and tags: how pages write times, amounts, states and long hexadecimal values."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from explorer.pages.amounts import cost, in_millions, whole_units
from explorer.pages.daily_charts import Chart
from explorer.pages.query_cards import ShownQuery, ShownStep
from explorer.pages.shown_facts import ADDRESS_ENDS, InShort
from explorer.pages.timelines import Segment
from explorer.pages.timelines import Timeline as BatchTimeline

register = template.Library()

register.filter("whole_units", whole_units)
register.filter("cost", cost)
register.filter("in_millions", in_millions)

_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)

# --- Times ------------------------------------------------------------------------------------------------------------


def _iso(when: datetime) -> str:
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")


@register.filter
def moment(when: datetime) -> SafeString:
    """A `<time>` element, to the second and in UTC; the attribute is exact."""
    return format_html(
        '<time datetime="{}">{} UTC</time>', _iso(when), when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    )


@register.filter
def clock(when: datetime) -> SafeString:
    """As `moment`, the time of day alone."""
    return format_html('<time datetime="{}">{}</time>', _iso(when), when.astimezone(UTC).strftime("%H:%M:%S"))


@register.filter
def span(duration: timedelta) -> str:
    """A length of time in its two largest units, such as `4.2 s`, `3 min 20 s` or `2 h 5 min`."""
    if duration < _MINUTE:
        return f"{max(0.0, duration.total_seconds()):.1f} s"
    return _whole_span(duration)


def _whole_span(duration: timedelta) -> str:
    """As `span`, without fractions and up to days: what a clock that ticks shows (times.js writes the same)."""
    seconds = max(0, int(duration.total_seconds()))
    if duration >= _DAY:
        return f"{seconds // 86_400} d {seconds % 86_400 // 3600} h"
    if duration >= _HOUR:
        return f"{seconds // 3600} h {seconds % 3600 // 60} min"
    return f"{seconds // 60} min {seconds % 60} s" if duration >= _MINUTE else f"{seconds} s"


@register.filter
def ago(when: datetime) -> SafeString:
    """How long ago it was, as of now; the browser counts on."""
    return format_html('<span data-since="{}">{}</span> ago', _iso(when), _whole_span(timezone.now() - when))


@register.filter
def since(when: datetime) -> SafeString:
    """How long it has lasted, as of now; the browser counts on."""
    return format_html('<span data-since="{}">{}</span>', _iso(when), _whole_span(timezone.now() - when))


@register.filter
def until(when: datetime) -> SafeString:
    """`in 8 s`, as of now, or `now`; the browser counts down."""
    left = when - timezone.now()
    text = f"in {_whole_span(left)}" if left >= timedelta(seconds=1) else "now"
    return format_html('<span data-until="{}">{}</span>', _iso(when), text)


@register.filter
def roughly(seconds: int) -> str:
    """An estimated length of time, in round numbers."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    return f"about {minutes} min" if minutes < 120 else f"about {round(seconds / 3600)} h"


@register.filter
def lasting(seconds: float) -> str:
    """As `roughly`, from seconds up to days."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 48 * 3600:
        return roughly(round(seconds))
    return f"about {seconds / 86_400:,.0f} days"


@register.simple_tag
def server_time() -> str:
    """The time by which the browser sets its clock."""
    return _iso(timezone.now())


@register.filter
def grouped(number: int) -> str:
    """A count in groups of three digits."""
    return f"{number:,}"


# --- States -----------------------------------------------------------------------------------------------------------

# Drawn in a square of 16, with the text's colour.
_RING = '<circle cx="8" cy="8" r="6.25"/>'
_DISC = '<circle class="f" cx="8" cy="8" r="7"/>'
_ICONS = {
    "RECEIVED": '<circle cx="8" cy="8" r="6.25" stroke-dasharray="2.2 2.6"/>',
    "ACCEPTED": f'{_RING}<circle class="f" cx="8" cy="8" r="2.25"/>',
    "IN_PROGRESS": f'{_RING}<path class="f spin" d="M8 4a4 4 0 0 1 0 8z"/>',
    "DONE": f'{_DISC}<path class="k" d="m5 8.2 2.1 2.1L11 6.2"/>',
    "REJECTED": f'{_DISC}<path class="k" d="m5.7 5.7 4.6 4.6m0-4.6-4.6 4.6"/>',
    "STOPPED": f'{_RING}<path d="M5 8h6"/>',
    "WENT_BACK": '<path d="M3 6.5h7a3.5 3.5 0 0 1 0 7H6"/><path d="M6 3 2.5 6.5 6 10"/>',
    "WAITING": f'{_RING}<path d="M8 4.5V8l2.5 1.5"/>',
    "PROBLEM": '<path d="M8 2.2 14.3 13H1.7z"/><path d="M8 6.5v3"/><circle class="f" cx="8" cy="11.2" r=".9"/>',
    "TO": '<path d="M3 8h10m-4-4 4 4-4 4"/>',
    "": '<circle cx="8" cy="8" r="4.5"/>',
}
_ICONS["COMPLETED"] = _ICONS["DELIVERED"] = _ICONS["DONE"]
_ICONS["FAILED"] = _ICONS["REJECTED"]
_ICONS["PENDING"] = _ICONS["WAITING"]


@register.simple_tag
def icon(name: str) -> SafeString:
    """An icon for those who see it. The word beside it is for everybody."""
    return mark_safe(  # noqa: S308 (constants of this module)
        f'<svg class="ic" viewBox="0 0 16 16" aria-hidden="true">{_ICONS[name]}</svg>'
    )


@register.simple_tag
def status(name: str, element: str = "span") -> SafeString:
    """A state by word, icon and colour. As `strong` it is tinted, which a page does once."""
    return format_html('<{0} class="chip {1}">{2}{1}</{0}>', element, name, icon(name))


# --- Long values ------------------------------------------------------------------------------------------------------


@register.simple_tag
def hexadecimal(value: str, what: str) -> SafeString:
    """A long value with a button that copies it. `what` names it."""
    return format_html('<span class="hex">{}</span> {}', value, copy(value, what))


@register.simple_tag
def short(value: str, start: int = ADDRESS_ENDS[0], end: int = ADDRESS_ENDS[1]) -> SafeString:
    """A long value by its ends, such as 0x7099…79C8; whole where the pointer is, and wherever it is copied to."""
    return format_html(
        '<span class="short" title="{0}">{1}<span class="mid">{2}</span>{3}</span>',
        value,
        value[:start],
        value[start:-end],
        value[-end:],
    )


@register.simple_tag
def in_short(value: InShort) -> SafeString:
    """What a fact is, with its unit."""
    if value.ends:
        return short(value.text, *value.ends)
    return (
        format_html('{}\xa0<span class="unit">{}</span>', value.text, value.unit)
        if value.unit
        else format_html("{}", value.text)
    )


@register.filter
def slot_number(slot: str) -> str:
    """A storage slot without leading zeros."""
    return f"{int(slot, 16):#x}"


# Drawn once, in base.html. The style sheet hides buttons if scripts are off. The empty part says what came of it.
_COPY_ICON = mark_safe('<svg class="ic" aria-hidden="true"><use href="#copy-icon"/></svg><span></span>')


@register.simple_tag
def copy(text: str, what: str) -> SafeString:
    """A button that copies the text."""
    return format_html(
        '<button type="button" class="copy" data-copy="{}" aria-label="Copy {}">{}</button>', text, what, _COPY_ICON
    )


@register.simple_tag
def copy_from(element_id: str, what: str) -> SafeString:
    """As `copy`, of the text of an element, so that the page holds it once."""
    return format_html(
        '<button type="button" class="copy" data-copy-from="{}" aria-label="Copy {}">{}</button>',
        element_id,
        what,
        _COPY_ICON,
    )


# --- Charts of days ---------------------------------------------------------------------------------------------------

# As text in one piece: a template takes longer for hundreds of values than the rest of a page.


@register.simple_tag
def bars(chart: Chart) -> SafeString:
    """The bars of a chart, for its `svg`."""
    return mark_safe(  # noqa: S308 (numbers, dates and constants)
        "".join(
            f'<rect class="{bar.kind}" x="{bar.x}%" y="{bar.y}%" width="{bar.width}%" height="{bar.height}%">'
            f"<title>{bar.title}</title></rect>"
            for bar in chart.bars
        )
    )


@register.simple_tag
def day_rows(chart: Chart) -> SafeString:
    """The rows of a chart's table."""
    return mark_safe(  # noqa: S308 (as `bars`)
        "".join(
            f'<tr><th scope="row">{day}</th><td class="r">'
            + '</td><td class="r">'.join(f"{count:,}" for count in counts)
            + "</td></tr>"
            for day, counts in chart.rows
        )
    )


# --- Where the time went ----------------------------------------------------------------------------------------------

# The least visible width, in percent.
_THINNEST = 0.8
# Of a timeline, in pixels.
_LANE_HEIGHT, _BAR_AT, _LABEL_AT = 48, 20, 32
# A narrower segment has no room for its label, in percent.
_LEAST_LABELLED = 4


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


@dataclass(frozen=True)
class DrawnLane:
    name: str
    note: str
    top: int  # pixels
    segments: tuple[DrawnSegment, ...]

    @property
    def text_y(self) -> int:
        return self.top + 12

    @property
    def y(self) -> int:
        return self.top + _BAR_AT

    @property
    def label_y(self) -> int:
        return self.top + _LABEL_AT


@dataclass(frozen=True)
class DrawnTimeline:
    """A timeline as it stands now."""

    start: datetime
    end: datetime
    goes_on: bool
    lanes: tuple[DrawnLane, ...]
    leaves_steps_out: bool

    @property
    def took(self) -> timedelta:
        return self.end - self.start

    @property
    def height(self) -> int:
        return _LANE_HEIGHT * len(self.lanes)

    @property
    def text(self) -> str:
        """The same in words."""
        lanes = (f"{lane.name}: {', '.join(one.what for one in lane.segments)}." for lane in self.lanes)
        return f"{span(self.took)} {'so far' if self.goes_on else 'in all'}. {' '.join(lanes)}"


@register.filter
def drawn(timeline: BatchTimeline) -> DrawnTimeline:
    now = timezone.now()
    end = timeline.end or now
    length = max(end - timeline.start, timedelta(milliseconds=1))

    def segment(one: Segment) -> DrawnSegment:
        start, until = max(one.start, timeline.start), min(one.end or end, end)
        width = min(max(100 * (until - start) / length, _THINNEST), 100)
        x = max(0.0, min(100 * (start - timeline.start) / length, 100 - width))
        label = one.label if width >= _LEAST_LABELLED else ""
        lasted = f", {span(until - start)}" if until > start else ""
        return DrawnSegment(one.kind, one.what + lasted, label, round(x, 2), round(width, 2))

    return DrawnTimeline(
        start=timeline.start,
        end=end,
        goes_on=timeline.end is None,
        lanes=tuple(
            DrawnLane(lane.name, lane.note, _LANE_HEIGHT * at, tuple(map(segment, lane.segments)))
            for at, lane in enumerate(timeline.lanes)
        ),
        leaves_steps_out=not any(one.label for lane in timeline.lanes for one in lane.segments),
    )


@dataclass(frozen=True)
class TimedStep:
    """A step and its place on the time axis of its query, in percent. Width 0: it has not begun.

    If it went back, the lost time comes before it, from the end of the previous step: its earlier end is not stored.
    """

    step: ShownStep
    x: float
    width: float
    back_x: float = 0
    back_width: float = 0  # 0: it never went back


@dataclass(frozen=True)
class Timeline:
    steps: tuple[TimedStep, ...]
    took: timedelta
    longest: ShownStep | None  # of those that ended
    went_back: timedelta  # the part of `took` that was lost because steps went back
    is_open: bool


@register.filter
def timeline(query: ShownQuery) -> Timeline:
    now = timezone.now()
    begun = [step.started_at for step in query.steps if step.started_at]
    if query.steps and query.steps[0].went_back_at:
        begun.append(query.received_at)
    start = min(begun, default=now)
    end = max((step.ended_at or now for step in query.steps if step.started_at), default=now)
    length = max(end - start, timedelta(milliseconds=1))

    # The lost time of each step: from the end of the previous step until it began again.
    ends = [start, *(step.ended_at or now for step in query.steps)]
    backs = [
        max(step.started_at - before, timedelta()) if step.went_back_at and step.started_at else timedelta()
        for step, before in zip(query.steps, ends, strict=False)
    ]

    def timed() -> Iterator[TimedStep]:
        for step, back in zip(query.steps, backs, strict=True):
            if step.started_at is None:
                yield TimedStep(step, 0, 0)
                continue
            width = max(100 * ((step.ended_at or now) - step.started_at) / length, _THINNEST)
            x = min(100 * (step.started_at - start) / length, 100 - width)
            x, back_width = round(max(x, 0), 2), round(100 * back / length, 2)
            yield TimedStep(step, x, round(width, 2), round(max(x - back_width, 0), 2), back_width)

    ended = [step for step in query.steps if step.took]
    return Timeline(
        steps=tuple(timed()),
        took=end - start,
        longest=max(ended, key=lambda step: step.took or timedelta(), default=None),
        went_back=sum(backs, timedelta()),
        is_open=any(step.started_at and not step.ended_at for step in query.steps),
    )
