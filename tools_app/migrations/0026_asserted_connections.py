from datetime import timedelta
from typing import Any

from django.db import migrations, models
from django.db.models import OuterRef, Subquery
from django.utils import timezone


def note_ends(apps: Any, _schema_editor: Any) -> None:
    """Take the ends of connections without a consent as those that assertions set, which are at most a day away."""
    rows = apps.get_model("tools_app", "Connection").objects.filter(redirect_uri="").exclude(person=None)
    rows = rows.filter(key__expires_at__lte=timezone.now() + timedelta(days=1))
    ends = apps.get_model("tools_app", "ApiKey").objects.filter(pk=OuterRef("key")).values("expires_at")
    rows.exclude(pk__in=_of_devices(apps)).update(asserted_until=Subquery(ends[:1]))


def _of_devices(apps: Any) -> Any:
    """Return the connections that a person allowed to a device, which has no address to be sent back to."""
    used = apps.get_model("tools_app", "RefreshToken").objects.values("connection")
    return used.union(apps.get_model("tools_app", "DeviceCode").objects.exclude(connection=None).values("connection"))


class Migration(migrations.Migration):

    dependencies = [
        ('tools_app', '0025_saml'),
    ]

    operations = [
        migrations.AddField(
            model_name='connection',
            name='asserted_until',
            field=models.DateTimeField(editable=False, help_text='The end of the key that the last assertion of the company set. Another end is a choice of somebody.', null=True),
        ),
        migrations.RunPython(note_ends, migrations.RunPython.noop),
    ]
