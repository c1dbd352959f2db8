"""The page of what can be proven where, for everybody. Caches may keep it for some seconds."""

import time

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.cache import patch_cache_control, patch_vary_headers
from django.views.decorators.http import require_safe

from accounts.models import User
from explorer.lists import chains_json, chains_page
from queries.api_endpoint import conditional

# The page counts how old things are, in a browser without scripts as of when it was made.
_AGES_SECONDS = 60


@require_safe
def chains(request: HttpRequest) -> HttpResponse:
    page = chains_page.read()
    user = request.user.address if isinstance(request.user, User) else ""
    # The button that signs out holds a token, which is another one after signing in anew.
    token = request.COOKIES.get(settings.CSRF_COOKIE_NAME, "") if user else ""
    # The page depends on more than its content: the user, the theme, and the ages that it shows.
    variant = (user, token, request.COOKIES.get("theme", ""), int(time.time()) // _AGES_SECONDS)
    etag = chains_json.etag(chains_json.as_json(page), *variant)
    content = render_to_string("explorer/chains.html", {"page": page}, request).encode()
    response = conditional(request, content, etag, content_type="text/html; charset=utf-8")
    patch_cache_control(response, max_age=chains_json.KEPT_SECONDS, **{"private" if user else "public": True})
    patch_vary_headers(response, ["Cookie"])
    return response
