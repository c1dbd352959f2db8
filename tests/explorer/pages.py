"""What a reader sees of pages."""

import re
from html import unescape


def text_of(html: str) -> str:
    """Return what a reader sees of the page's main part."""
    main = html[html.index("<main") : html.index("</main>")]
    main = re.sub(r"<button[^>]*class=.copy.*?</button>|<svg.*?</svg>", "", main, flags=re.DOTALL)
    main = re.sub(r'<span class="g">([\d.]+)</span>(?:<wbr>)?', r"\1", main).replace("&nbsp;", " ")
    main = re.sub(r'<span class="mid">(\w*)</span>', r"\1", main)  # of a value that is shown by its ends
    return " ".join(re.sub(r"<[^>]+>", " ", main).split())


def sent(html: str) -> list[str]:
    """Return what is said of each transaction."""
    rows = re.findall(r'<tr role="row" id="tx-.*?</tr>', html, re.DOTALL)
    return [text_of(f"<main>{row}</main>") for row in rows]


def ids(html: str) -> list[str]:
    return re.findall(
        r'<th scope="row" role="rowheader" class="full"><a class="title" href="/explorer/query/(\w{26})">', html
    )


def lines_of(html: str) -> str:
    """Return what a reader sees of the page's main part, a line for each block."""
    main = html[html.index("<main") : html.index("</main>")]
    main = re.sub(
        r"<template>.*?</template>|<button[^>]*class=.copy.*?</button>|<svg.*?</svg>", "", main, flags=re.DOTALL
    )
    main = re.sub(r"<pre.*?</pre>", "CODE", re.sub(r"\s+", " ", main))
    main = re.sub(r"<(?:p|div|li|tr|h\d|section|summary|pre|nav|form|dl|label|button)\b", r"\n\g<0>", main)
    main = re.sub(r"</?(?:span|wbr|strong|b|i|code|time|a|wbr)\b[^>]*>", "", main)
    lines = (" ".join(unescape(re.sub(r"<[^>]+>", " ", line)).split()) for line in main.split("\n"))
    return "\n".join(line for line in lines if line) + "\n"
