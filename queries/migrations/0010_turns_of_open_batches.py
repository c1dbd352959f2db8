from django.db import migrations
from django.db.models import Count, OuterRef, Subquery, Sum
from django.db.models.functions import Length


def give_turns(apps, schema_editor):
    Block, Query = apps.get_model("queries", "Block"), apps.get_model("queries", "Query")
    asking = Query.objects.filter(block=OuterRef("pk"), is_admitted=True).order_by("-pk").values("batch__user")
    Block.objects.filter(due_at__isnull=False).update(turn_of=Subquery(asking[:1]))


def count_what_is_stored(apps, schema_editor):
    Batch, User = apps.get_model("queries", "Batch"), apps.get_model("accounts", "User")
    counted = Batch.objects.order_by("pk").annotate(
        length=Length("request"), asked=Count("queries"), blocks=Count("queries__block", distinct=True)
    )
    for pk, length, asked, blocks in list(counted.values_list("pk", "length", "asked", "blocks")):
        Batch.objects.filter(pk=pk).update(
            size=asked, block_count=blocks, stored_bytes=length + asked * 400 + blocks * 130
        )
    totals = Batch.objects.order_by().values_list("user").annotate(Sum("stored_bytes"))
    for user, total in list(totals):
        User.objects.filter(pk=user).update(stored_bytes=total)


class Migration(migrations.Migration):
    dependencies = [
        ("queries", "0009_turns"),
    ]

    operations = [
        migrations.RunPython(give_turns, migrations.RunPython.noop),
        migrations.RunPython(count_what_is_stored, migrations.RunPython.noop),
    ]
