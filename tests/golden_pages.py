"""Compare pages with those in `golden/`. `GOLDEN=write` writes these anew, so `git diff` shows the changes."""

import os
import re
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
_BLOCKS = "h1|h2|h3|p|li|ol|ul|dl|div|dt|dd|tr|td|th|table|form|section|article|label|nav|summary|details|figure|pre"
# Patterns of values that differ in each run, with their replacements.
_PASSING = (
    (r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "ULID"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+(\+00:00|Z)?", "INSTANT"),
    (r"\b\d{4}-\d\d-\d\d(?: \d\d:\d\d(?::\d\d)?)?", "DATE"),
    (r"(?<![\d:])\d\d:\d\d:\d\d\b", "CLOCK"),
    (r"(?<![\w.,])(?:\d+ (?:d|h|min)(?: \d+ (?:h|min|s))?|[\d.]+ s)\b", "SPAN"),
    (r"msg_\w+", "MESSAGE"),
)
# Patterns of a page's parts to remove or rename, in this order.
_OF_PAGES = (
    (r"<svg.*?</svg>|<template>.*?</template>", ""),
    (r'<button[^>]* class="copy".*?</button>', ""),
    (r"<pre[^>]*>\s*<code.*?</pre>", "CODE"),
    (r'<tr class="group"[^>]*>(?:(?!</tr>).)*\d{4}-\d\d-\d\d.*?</tr>|<p class="axis".*?</p>', ""),
    (r'<tbody><tr><th scope="row">\d{4}-.*?</tbody>|</tbody>\s*<tbody[^>]*>', ""),
    (r'<span class="(?:mid|g)">([\w.]*)</span>(?:<wbr>)?', r"\1"),
    (r'((?:csrfmiddlewaretoken|"token)" value=)"[^"]+"', r'\1"TOKEN"'),
    (r'(data-user=)"\d+"', r'\1"N"'),
    (r'(data-(?:since|until|aged|now)|datetime)="[^"]+"', r'\1="MOMENT"'),
    (r"(version=)\w+", r"\1VERSION"),
    (r'(name="newest" value=)"[^"]+"', r'\1"N"'),
    (r"bqs_\w+…\w+", "KEY"),
    (r"(key[s]?[/-])\d+", r"\1N"),
    (r"(cursor=)[\d.]+", r"\1PLACE"),
    (r"\s+", " "),
    (rf" ?(</?(?:{_BLOCKS})\b)", r"\n\1"),
    (r"\n(</)", r"\1"),
)


def compare(text: str, name: str) -> None:
    """Compare a page's title and main part, or a text of another kind, with the file of this name."""
    if name.endswith(".html"):
        title, _, body = text[text.index("<title") :].partition("</title>")
        text = f"{title}\n{body[body.index('<main') : body.index('</main>')]}"
        for pattern, word in _OF_PAGES:
            text = re.sub(pattern, word, text, flags=re.DOTALL)
    for pattern, word in _PASSING:
        text = re.sub(pattern, word, text)
    text = f"{text.strip()}\n"
    if os.environ.get("GOLDEN") == "write":
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()
