"""The API's page in a real browser, and requests that a visitor tries on it."""

import json

import pytest
from playwright.sync_api import Page, expect

from tests.service import ALICE, a_key, header, request

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.long
def test_a_batch_is_submitted_by_the_page_with_a_key_that_only_a_header_has(page: Page):
    secret, sent_requests = header(a_key())["api-key"], []
    page.on("request", lambda each: sent_requests.append(f"{each.url} {each.post_data or ''}"))
    page.goto("/api/docs")
    operation = page.get_by_role("region", name="POST /submit-batch-query")

    def send() -> None:
        operation.get_by_text("Try it").click()
        operation.get_by_label("Body").fill(json.dumps(request(ALICE, block=1)))
        operation.get_by_role("button", name="Send").click()

    page.get_by_label("API key").fill(secret)
    send()
    expect(operation.get_by_label("Answer")).to_contain_text('"internalId"')

    assert secret not in "".join(sent_requests)
    page.reload()
    send()
    expect(operation.get_by_label("Answer")).to_contain_text('"unauthorized"')


@pytest.mark.long
def test_each_schema_that_the_page_names_is_on_it(page: Page):
    page.goto("/api/docs")
    names = {link.get_attribute("href") for link in page.locator("main a[href^='#']").all()}
    assert {"#BatchRequest", "#Error", "#submit_batch_query"} <= names
    assert [name for name in names if page.locator(str(name)).count() != 1] == []


_BROKEN_WORDS = """() => {
  const broken = [], range = document.createRange();
  const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const parent = texts.currentNode.parentElement;
    if (parent.closest("pre, .under") || !parent.checkVisibility()) continue;
    for (const word of texts.currentNode.data.matchAll(/[A-Za-z]{2,}/g)) {
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""


@pytest.mark.long
@pytest.mark.parametrize("width", [390, 1280])
def test_no_word_of_the_page_is_broken(page: Page, width: int):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/api/docs")
    page.locator("main details").evaluate_all("all => all.forEach(one => (one.open = true))")
    assert page.evaluate(_BROKEN_WORDS) == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.long
def test_an_index_with_a_colour_for_each_method_stays_beside_what_is_read(page: Page):
    page.goto("/api/docs")
    index = page.get_by_role("navigation", name="Endpoints")
    colours = index.locator(".method").evaluate_all(
        "all => Object.fromEntries(all.map(one => [one.textContent, getComputedStyle(one).backgroundColor]))"
    )
    assert len(set(colours.values())) == len(colours) >= 2
    index.get_by_role("link", name="/chains.json").click()
    section = page.get_by_role("region", name="GET /chains.json")
    expect(section).to_be_in_viewport()
    expect(index).to_be_in_viewport()
    left, right = index.bounding_box(), section.bounding_box()
    assert left
    assert right
    assert left["x"] + left["width"] <= right["x"]


@pytest.mark.long
def test_the_choice_of_colours_stays_on_the_footers_first_line(page: Page, context, alice, settings):
    settings.SOURCE_URL = "https://forge.example/bqs"
    page.goto("/keys")
    boxes = [page.locator(f".foot .{name}").bounding_box() for name in ("about", "theme")]
    about, theme = (box["y"] + box["height"] / 2 for box in boxes if box)
    assert about == pytest.approx(theme, abs=3)


@pytest.mark.long
def test_paper_has_what_is_read_and_no_controls(page: Page):
    page.emulate_media(media="print", color_scheme="dark")
    page.goto("/api/docs")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("button:visible, input:visible, nav:visible, footer:visible").count() == 0
    expect(page.get_by_role("region", name="GET /chains.json")).to_be_visible()
    cut = "all => all.filter(one => one.scrollHeight > one.clientHeight || one.scrollWidth > one.clientWidth).length"
    assert page.locator("pre:visible").evaluate_all(cut) == 0
