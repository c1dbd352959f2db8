from django.urls import path

from explorer import health, views

app_name = "explorer"

urlpatterns = [
    path("", views.home, name="home"),
    path("explorer/query/<internal_id>.json", views.batch_as_json, name="batch_json"),
    path("explorer/query/<internal_id>", views.batch, name="batch"),
    path("healthz", health.healthz, name="health"),
]
