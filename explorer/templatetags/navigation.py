"""What the head and the header of every page link to."""

from typing import Any

from django import template
from django.conf import settings
from django.templatetags.static import static
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag(takes_context=True)
def page_link(context: dict[str, Any], name: str, text: str) -> SafeString:
    """Return a link to the page of this URL name, marked where it is the present one."""
    # Pages of errors may come without a request, or without a place that it has led to.
    match = getattr(context.get("request"), "resolver_match", None)
    current = ' aria-current="page"' if match and match.view_name == name else ""
    return format_html('<a href="{}"{}>{}</a>', reverse(name), SafeString(current), text)


@register.simple_tag
def preview_image() -> str:
    """Return the whole address of the picture beside previews of links, which other hosts load."""
    return settings.BASE_URL + static("preview.png")
