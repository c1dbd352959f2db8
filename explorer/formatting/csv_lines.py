"""CSV files (RFC 4180) for spreadsheets and programs."""

import csv
import io
import re
from collections.abc import Iterable

from django.http import HttpResponse

# Spreadsheets treat a cell that begins with one of these as a formula. Some take their wide forms for the same, and in
# many languages a new cell begins behind each semicolon.
_FORMULA = re.compile("(?:^|(?<=;))(?=[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-])")


def line(cells: Iterable[str]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(_FORMULA.sub("'", cell) for cell in cells)
    return out.getvalue()


def file(lines: Iterable[str], name: str, following: str = "") -> HttpResponse:
    """Return an answer that browsers save under this file name. `following` is the address of the next file."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    if following:
        headers["Link"] = f'<{following}>; rel="next"'
    # Excel recognizes UTF-8 only by a byte order mark.
    return HttpResponse("\ufeff" + "".join(lines), content_type="text/csv; charset=utf-8", headers=headers)
