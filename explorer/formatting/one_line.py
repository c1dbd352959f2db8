"""Rendering of templates as one line of text, for titles and attributes."""

import re
from collections.abc import Mapping

from django.template.loader import render_to_string
from django.utils.safestring import SafeString


def one_line(template: str, context: Mapping[str, object]) -> SafeString:
    """Render a template and replace each run of spaces and line breaks with one space. Keep non-breaking spaces."""
    return SafeString(re.sub(r"[ \n]+", " ", render_to_string(template, dict(context))).strip())
