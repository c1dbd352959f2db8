"""Templates as one line of text, for titles and attributes."""

import re
from collections.abc import Mapping

from django.template.loader import render_to_string
from django.utils.safestring import SafeString


def one_line(template: str, context: Mapping[str, object]) -> SafeString:
    """Render a template, with one space for each white space but those that don't break."""
    return SafeString(re.sub(r"[ \n]+", " ", render_to_string(template, dict(context))).strip())
