"""What a reader sees of pages."""

import re


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
