import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tools_app', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='SessionMessage',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('session_id', models.UUIDField(db_index=True)),
                ('sealed', models.BinaryField()),
                ('created_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.RenameField(
            model_name='callanswer',
            old_name='created_at',
            new_name='expires_at',
        ),
        migrations.AddField(
            model_name='callanswer',
            name='is_task',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='prompt',
            name='icons',
            field=models.JSONField(blank=True, default=list, help_text='A JSON list of {src, mimeType, sizes}.'),
        ),
        migrations.AddField(
            model_name='resource',
            name='icons',
            field=models.JSONField(blank=True, default=list, help_text='A JSON list of {src, mimeType, sizes}.'),
        ),
        migrations.AddField(
            model_name='runningcall',
            name='asked',
            field=models.JSONField(default=dict, help_text='Questions of a task that waits for its client, by their keys.'),
        ),
        migrations.AddField(
            model_name='runningcall',
            name='changed_at',
            field=models.DateTimeField(default=django.utils.timezone.now, help_text='When its state as a task changed last.'),
        ),
        migrations.AddField(
            model_name='runningcall',
            name='task_seconds',
            field=models.FloatField(help_text='How long it lives as a task; empty for no task.', null=True),
        ),
        migrations.AddField(
            model_name='session',
            name='listener',
            field=models.UUIDField(help_text='The one of its streams that hears of changes.', null=True),
        ),
    ]
