"""Read the visible text of pages."""

import re


def text_of(html: str) -> str:
    """Return the visible text of a page's main part."""
    main = html[html.index("<main") : html.index("</main>")]
    main = re.sub(r"<button[^>]*class=.copy.*?</button>|<svg.*?</svg>", "", main, flags=re.DOTALL)
    main = re.sub(r'<span class="g">([\d.]+)</span>(?:<wbr>)?', r"\1", main).replace("&nbsp;", " ")
    main = re.sub(r'<span class="mid">(\w*)</span>', r"\1", main)  # an abbreviated value, whose middle is hidden
    return " ".join(re.sub(r"<[^>]+>", " ", main).split())
