"""`/api/docs`: what the OpenAPI document says, for people."""

import re

import pytest
from django.test import Client

from accounts import keys
from accounts.models import ApiKey, User
from queries import api_docs
from tests.accounts.wallets import ALICE
from tests.queries.api_document import DOCUMENT, OPERATIONS, api
from tests.service import a_key


@pytest.fixture(scope="module")
def text() -> str:
    """The page's part about the API, without a database."""
    api_docs._rendered.cache_clear()
    return str(api_docs._rendered(api, "https://service.example")["operations"])


def test_every_operation_has_its_place_with_parameters_errors_and_examples(text):
    for path, method, operation in OPERATIONS:
        section = re.search(rf'id="{operation["operationId"]}".*?</details>\s*</section>', text, re.DOTALL)
        assert section, path
        for told in (
            f"{method.upper()}</span> <code>{path}</code>",
            *(f"<code>{each['name']}</code>" for each in operation["parameters"]),
            *(
                f"<dt>{status} <code>{code}</code></dt>"
                for status, answer in operation["responses"].items()
                for code in re.findall(r"^- `(\w+)`", answer["description"], re.MULTILINE)
                if int(status) >= 400
            ),
            *(["An example of the body"] if "requestBody" in operation else []),
            "An example of the answer",
            "https://service.example/",
        ):
            assert told in section[0], (path, told)


def test_every_link_leads_somewhere_and_every_object_is_described(text):
    anchors = set(re.findall(r'id="([^"]+)"', text))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= anchors
    assert {f"type-{name}" for name in DOCUMENT["components"]["schemas"]} <= anchors
    assert len(re.findall(r'id="', text)) == len(anchors)


def test_text_is_paragraphs_lists_and_code_and_no_html():
    assert api_docs.rich("One `a<b`:\n\n- `x`: <i>\n- y\n") == (
        "<p>One <code>a&lt;b</code>:</p><ul><li><code>x</code>: &lt;i&gt;</li><li>y</li></ul>"
    )


@pytest.mark.django_db
def test_only_one_s_own_living_keys_are_named_and_none_is_there(django_assert_num_queries):
    with django_assert_num_queries(0):
        anybody = Client().get("/api/docs").text
    assert "Use my key" not in anybody
    alice, other = (User.objects.for_address(address) for address in (ALICE.address, "0x" + "11" * 20))
    key, gone, others = keys.issue(alice, "nightly"), keys.issue(alice, "gone"), keys.issue(other, "others")
    keys.revoke(gone)
    client = Client()
    client.force_login(User.objects.get(address=ALICE.address))
    with django_assert_num_queries(3):  # session, user, keys
        answer = client.get("/api/docs")
    assert "no-store" in answer.headers["Cache-Control"]
    assert f'value="/dashboard/keys/{key.pk}/reveal"' in answer.text
    assert ">nightly</option>" in answer.text
    assert "gone</option>" not in answer.text
    assert others.ends not in answer.text
    for each in ApiKey.objects.all():
        secret = keys.reveal(each)
        assert secret is None or secret not in answer.text


@pytest.mark.django_db
def test_who_has_no_key_that_can_be_shown_is_led_to_where_they_are_made():
    key = a_key()
    keys.revoke(key)
    client = Client()
    client.force_login(key.user)
    text = client.get("/api/docs").text
    assert "Use my key" not in text
    assert '<a href="/keys">Make one</a>' in text
