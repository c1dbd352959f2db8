from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_keys_end_and_are_counted"),
    ]

    operations = [
        migrations.AddField(
            model_name="signinnonce",
            name="message_hash",
            # No message has it: whoever was signing in when this ran begins anew.
            field=models.CharField(default="", max_length=64),
            preserve_default=False,
        ),
    ]
