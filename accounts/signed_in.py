"""Views for people who are signed in."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache

from accounts.models import User
from config.error_answers import error_answer, wants_json

_P = ParamSpec("_P")


def signed_in(
    view: Callable[Concatenate[HttpRequest, User, _P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, _P], HttpResponse]:
    """Call the view with the user, and send everybody else to sign in. No cache may store the answer."""

    @wraps(view)
    @never_cache
    def checked(request: HttpRequest, /, *args: _P.args, **kwargs: _P.kwargs) -> HttpResponse:
        if request.user.is_authenticated:
            response = view(request, request.user, *args, **kwargs)
        elif wants_json(request):
            response = error_answer(401, "not_signed_in", "Sign in first.")
        else:
            # A redirect loses what was posted, and nobody can return by GET to an address that takes only posts.
            back = request.get_full_path() if request.method == "GET" else resolve_url(settings.LOGIN_REDIRECT_URL)
            response = redirect_to_login(back)
        patch_vary_headers(response, ["Accept"])
        return response

    return checked
