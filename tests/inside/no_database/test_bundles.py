"""The client's verifier reads headers like the service."""

import pytest

from batch_query_client.block_header import decode
from chains.tries.header import Header
from proving import facts
from tests import headers

FORMS = {**headers.ETHEREUM, **headers.OTHERS}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_headers_of_all_chains_are_read_as_the_service_reads_them(form):
    encoded = headers.encode(form)
    mine, theirs = decode(encoded), Header.decode(encoded)
    assert (mine.hash, mine.number, mine.timestamp) == (theirs.hash, theirs.number, theirs.timestamp)
    assert (mine.state_root, mine.parent_hash) == (theirs.state_root, theirs.parent_hash)
    assert mine.words == {field.name: word for field, word in facts.header_words(theirs).items()}
