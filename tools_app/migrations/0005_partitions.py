"""An event is known by its call and its number, and on PostgreSQL the audit log lies in partitions by month.

Every row is kept, in both directions. The tables are locked meanwhile: a large audit log takes a while to copy.
"""

from typing import Any

from django.db import migrations, models
from django.utils import timezone

from tools_app.audit import partitions
from tools_app.audit.partitions import MONTHS_AHEAD, Month, Parted
from tools_app.models.ids import made_at

MODELS = ("CallEvent", "Call", "CallPayload")
# Rows whose ids tell of an earlier time go to the default partition.
MOST_MONTHS = 120


def forwards(apps: Any, editor: Any) -> None:
    if editor.connection.vendor != "postgresql":
        _make_anew(editor, apps.get_model("tools_app", "CallEvent"))
        return
    months = _months(editor)
    parted = {table.name: table for table in partitions.TABLES}
    for name in MODELS:
        model = apps.get_model("tools_app", name)
        _make_in_partitions(editor, model, parted[model._meta.db_table], months)


def backwards(apps: Any, editor: Any) -> None:
    for name in MODELS if editor.connection.vendor == "postgresql" else ("CallEvent",):
        _make_anew(editor, apps.get_model("tools_app", name))


def _months(editor: Any) -> list[Month]:
    """From that of the first call to the last one that is made ahead."""
    with editor.connection.cursor() as cursor:
        cursor.execute(f'SELECT "id" FROM "{partitions.CALLS.name}" ORDER BY "id" LIMIT 1')
        first = cursor.fetchone()
    this = Month.of(timezone.now())
    back = 0
    while first and back < MOST_MONTHS and made_at(first[0]) < this.after(-back).begin:
        back += 1
    return [this.after(ahead) for ahead in range(-back, MONTHS_AHEAD + 1)]


def _make_anew(editor: Any, model: Any) -> None:
    """A plain table as `model` says, with the rows of the one that is there."""
    old = _put_aside(editor, model)
    editor.create_model(model)
    _move(editor, model, old)


def _make_in_partitions(editor: Any, model: Any, table: Parted, months: list[Month]) -> None:
    """The same in partitions."""
    old = _put_aside(editor, model)
    definition, parameters = editor.table_sql(model)
    editor.execute(f'{definition} PARTITION BY RANGE ("{table.key}")', parameters or None)
    editor.execute(f'CREATE TABLE "{table.default}" PARTITION OF "{table.name}" DEFAULT')
    with editor.connection.cursor() as cursor:
        for month in months:
            partitions.attach(cursor, table, month, month.begin)
    _move(editor, model, old)
    for index in model._meta.indexes:
        editor.add_index(model, index)


def _put_aside(editor: Any, model: Any) -> str:
    """Give the table and its indexes other names; the table's new one."""
    table = model._meta.db_table
    if editor.connection.vendor == "postgresql":
        with editor.connection.cursor() as cursor:
            cursor.execute(
                "SELECT relname FROM pg_index JOIN pg_class ON oid = indexrelid WHERE indrelid = %s::regclass", [table]
            )
            indexes = [row[0] for row in cursor.fetchall()]
        for index in indexes:
            editor.execute(f'ALTER INDEX "{index}" RENAME TO "{index}_old"')
    editor.execute(f'ALTER TABLE "{table}" RENAME TO "{table}_old"')
    return f"{table}_old"


def _move(editor: Any, model: Any, old: str) -> None:
    """Copy the rows of `old`, and drop it. What numbers itself gets new numbers."""
    fields = [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]
    columns = ", ".join(f'"{field.column}"' for field in fields)
    editor.execute(f'INSERT INTO "{model._meta.db_table}" ({columns}) SELECT {columns} FROM "{old}"')
    editor.execute(f'DROP TABLE "{old}"')


class Migration(migrations.Migration):

    dependencies = [
        ('tools_app', '0004_tamper_evidence'),
    ]

    operations = [
        # Undone last, when the models are as they were.
        migrations.RunPython(migrations.RunPython.noop, backwards),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterModelOptions(
                    name='callevent',
                    options={'ordering': ['call_id', 'sequence']},
                ),
                migrations.RemoveConstraint(
                    model_name='callevent',
                    name='event_sequence_once_per_call',
                ),
                migrations.RemoveField(
                    model_name='callevent',
                    name='id',
                ),
                migrations.AddField(
                    model_name='callevent',
                    name='pk',
                    field=models.CompositePrimaryKey('call_id', 'sequence', blank=True, editable=False, primary_key=True, serialize=False),
                ),
            ],
        ),
        migrations.RunPython(forwards, migrations.RunPython.noop),
    ]
