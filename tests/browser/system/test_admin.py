"""The admin's lists in a window of 1280 px."""

from io import StringIO

import pytest
from django.core.management import call_command

from tests.browser.conftest import overflows
from tests.explorer.batches import a_batch
from tests.service import ALICE

LISTS = ("accounts/user", "accounts/apikey", "admin/logentry")


@pytest.mark.long
def test_each_list_fits_its_window(page, context, stage, settings, sign_in_as):
    settings.OPERATOR_ADDRESSES = [ALICE]
    call_command("cancel", a_batch().pk, reason="A test. " * 20, stdout=StringIO())
    call_command("stop", "31337", reason="The node of this chain is replaced. " * 5, stdout=StringIO())
    sign_in_as(context)
    too_wide = []
    for rows_of in LISTS:
        page.goto(f"/admin/{rows_of}/")
        beyond = page.locator(".results").evaluate("element => element.scrollWidth - element.clientWidth")
        too_wide += [(rows_of, beyond)] if beyond or overflows(page) else []
    assert too_wide == []
