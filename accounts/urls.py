from django.urls import path

from accounts import key_views, sign_in_views

app_name = "accounts"

urlpatterns = [
    path("sign-in", sign_in_views.sign_in_page, name="sign_in"),
    path("sign-in/message", sign_in_views.sign_in_message, name="sign_in_message"),
    path("sign-in/verify", sign_in_views.sign_in_verify, name="sign_in_verify"),
    path("sign-in/development", sign_in_views.sign_in_as_development_account, name="sign_in_as_development_account"),
    path("sign-out", sign_in_views.sign_out, name="sign_out"),
    path("sign-out/everywhere", sign_in_views.sign_out_everywhere, name="sign_out_everywhere"),
    path("keys", key_views.keys_page, name="keys"),
    # Programs still use these paths. Keys used to be on the dashboard.
    path("dashboard/log", key_views.log, name="log"),
    path("dashboard/keys", key_views.new_key, name="new_key"),
    path("dashboard/keys/<int:key_id>/reveal", key_views.reveal_key, name="reveal_key"),
    path("dashboard/keys/<int:key_id>/rotate", key_views.rotate_key, name="rotate_key"),
    path("dashboard/keys/<int:key_id>/revoke", key_views.revoke_key, name="revoke_key"),
    path("dashboard/webhooks/reveal", key_views.reveal_webhook_secret, name="reveal_webhook_secret"),
    path("dashboard/webhooks/rotate", key_views.rotate_webhook_secret, name="rotate_webhook_secret"),
]
