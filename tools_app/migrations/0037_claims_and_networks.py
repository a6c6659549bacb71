from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tools_app", "0036_single_use")]

    operations = [
        migrations.AddField(
            model_name="apisourcerevision",
            name="claimed_at",
            field=models.DateTimeField(help_text="When a process began to read it.", null=True),
        ),
        migrations.AddIndex(
            model_name="apisourcerevision",
            index=models.Index(
                condition=models.Q(("state", "pending")), fields=["created_at"], name="revision_to_be_read"
            ),
        ),
        migrations.AddField(
            model_name="oauthclient",
            name="network",
            field=models.CharField(
                blank=True, default="", editable=False, help_text="From where it registered itself.", max_length=50
            ),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="devicecode",
            name="network",
            field=models.CharField(blank=True, default="", help_text="From where the device asked.", max_length=50),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="devicecode",
            name="entered_at",
            field=models.DateTimeField(help_text="When a person entered the code that it shows.", null=True),
        ),
    ]
