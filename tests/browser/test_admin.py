"""The admin in a browser: Django's pages under our content security policy."""

import re

from playwright.sync_api import expect

from proving import stops
from tests.accounts.wallets import ALICE


def test_an_operator_stops_and_resumes_sending(page, context, sign_in_as, settings):
    settings.OPERATOR_ADDRESSES = [ALICE.address]
    sign_in_as(context)
    page.goto("/admin/")
    page.get_by_role("row", name="Stops").get_by_role("link", name="Add").click()
    page.get_by_label("What").select_option("Development chain (31337)")
    page.get_by_label("Reason").fill("A test.")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("cell", name="A test.")).to_be_visible()
    assert stops.why_stopped(31337, source=0).endswith("The reason given: A test.")
    page.get_by_role("row", name="A test.").get_by_role("checkbox").check()
    page.get_by_role("combobox").select_option("delete_selected")
    page.get_by_role("button", name=re.compile("Go|Run")).click()
    page.get_by_role("button", name=re.compile("^Yes")).click()
    expect(page.get_by_text("Successfully deleted 1 stop.")).to_be_visible()
    assert stops.why_stopped(31337, source=0) == ""
