"""Radio buttons and checkboxes, each in its label. Django's own template for each takes a millisecond of a page."""

from django import template
from django.forms import BoundField
from django.forms.utils import flatatt
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag
def choices(field: BoundField) -> SafeString:
    return format_html_join("", "{}", ((_choice(one.data),) for one in field.subwidgets))


def _choice(option: dict[str, object]) -> SafeString:
    attributes = option["attrs"]
    assert isinstance(attributes, dict)
    return format_html(
        '<label for="{}"><input type="{}" name="{}" value="{}"{}>{}</label>',
        attributes["id"],
        option["type"],
        option["name"],
        option["value"],
        flatatt(attributes),
        option["label"],
    )
