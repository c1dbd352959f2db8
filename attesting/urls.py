"""The paths of an attester's HTTP API."""

from django.urls import path

from attesting import views

urlpatterns = [
    path("attest", views.attest_block),
    path("healthz", views.healthz),
]
handler404 = "attesting.views.not_found"
handler500 = "attesting.views.internal_error"
