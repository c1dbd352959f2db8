"""CSV (RFC 4180) that spreadsheets and programs read."""

import csv
import io
from collections.abc import Iterable

from django.http import HttpResponse

# A spreadsheet takes a cell that begins so for a formula.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")


def line(cells: Iterable[str]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(f"'{cell}" if cell.startswith(_FORMULAS) else cell for cell in cells)
    return out.getvalue()


def file(lines: Iterable[str], name: str, following: str = "") -> HttpResponse:
    """Return an answer that browsers keep as a file of this name. `following` is the address of the next one."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    if following:
        headers["Link"] = f'<{following}>; rel="next"'
    # Without the mark in front, Excel reads another code page.
    return HttpResponse("\ufeff" + "".join(lines), content_type="text/csv; charset=utf-8", headers=headers)
