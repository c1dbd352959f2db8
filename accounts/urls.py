from django.urls import path

from accounts import views

app_name = "accounts"

urlpatterns = [
    path("sign-in", views.sign_in_page, name="sign_in"),
    path("sign-in/message", views.sign_in_message, name="sign_in_message"),
    path("sign-in/verify", views.sign_in_verify, name="sign_in_verify"),
    path("sign-out", views.sign_out, name="sign_out"),
    path("dashboard", views.dashboard, name="dashboard"),
    path("dashboard/keys", views.new_key, name="new_key"),
    path("dashboard/keys/<int:key_id>/reveal", views.reveal_key, name="reveal_key"),
]
