"""How the pages write times and amounts."""

from datetime import UTC, datetime, timedelta

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from explorer.amounts import whole_units

register = template.Library()

register.filter("whole_units", whole_units)


@register.filter
def moment(when: datetime) -> SafeString:
    """A `<time>` element, to the second and in UTC; the attribute is exact."""
    utc = when.astimezone(UTC)
    return format_html(
        '<time datetime="{}">{} UTC</time>', utc.isoformat().replace("+00:00", "Z"), utc.strftime("%Y-%m-%d %H:%M:%S")
    )


@register.filter
def span(duration: timedelta) -> str:
    """A length of time in its two largest units, such as `4.2 s`, `3 min 20 s` or `2 h 5 min`."""
    if duration < timedelta(minutes=1):
        return f"{duration.total_seconds():.1f} s"
    minutes, seconds = divmod(int(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
