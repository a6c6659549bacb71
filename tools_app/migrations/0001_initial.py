"""The tables of a new database, all created in one operation.

Separate operations would render the models again after each of them, which takes most of the time of a migration. On
PostgreSQL, the audit log is in monthly partitions.
"""

from typing import Any

import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import django.utils.timezone
import tools_app.identity.models.issuers
import tools_app.tenants.models
import tools_app.core.validators
import uuid_utils.compat
from django.conf import settings
from django.db import migrations, models
from django.db.migrations.operations.base import Operation
from django.utils import timezone

from tools_app.audit import partitions


class CreateTables(Operation):
    """Creates the tables of all models, which `operations` describe."""

    reduces_to_sql = True
    reversible = True

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations

    def state_forwards(self, app_label: str, state: Any) -> None:
        # Rendered again, once, when the tables are created.
        state.__dict__.pop('apps', None)
        for operation in self.operations:
            operation.state_forwards(app_label, state)

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        in_months = {table.name: table for table in partitions.TABLES} if schema_editor.connection.vendor == 'postgresql' else {}
        for model in self._models(app_label, schema_editor, to_state):
            if table := in_months.get(model._meta.db_table):
                create_in_partitions(schema_editor, model, table)
            else:
                schema_editor.create_model(model)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        for model in reversed(self._models(app_label, schema_editor, from_state)):
            schema_editor.delete_model(model)

    def describe(self) -> str:
        return 'Create all tables'

    def _models(self, app_label: str, schema_editor: Any, state: Any) -> list[Any]:
        names = [operation.name for operation in self.operations if isinstance(operation, migrations.CreateModel)]
        models = [state.apps.get_model(app_label, name) for name in names]
        return [model for model in models if self.allow_migrate_model(schema_editor.connection.alias, model)]


def create_in_partitions(editor: Any, model: Any, table: Any) -> None:
    """Create a table of the audit log with a partition for each month, as of now."""
    definition, parameters = editor.table_sql(model)
    editor.execute(f'{definition} PARTITION BY RANGE ("{table.key}")', parameters or None)
    editor.execute(f'CREATE TABLE "{table.default}" PARTITION OF "{table.name}" DEFAULT')
    this = partitions.Month.of(timezone.now())
    for ahead in range(partitions.MONTHS_AHEAD + 1):
        month = this.after(ahead)
        partitions.attach(editor, table, month, month.begin)
    for index in model._meta.indexes:
        editor.add_index(model, index)


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        CreateTables([
            migrations.CreateModel(
                name='AlertDestination',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=100, validators=[django.core.validators.RegexValidator('^[^\\x00-\\x1f\\x7f]*\\Z', 'Use a single line without control characters.')])),
                    ('kind', models.CharField(choices=[('email', 'E-mail'), ('webhook', 'Webhook')], max_length=10)),
                    ('email', models.EmailField(blank=True, help_text='For the kind E-mail.', max_length=254, verbose_name='e-mail')),
                    ('url', models.CharField(blank=True, help_text='For the kind Webhook. It receives a POST with JSON.', max_length=2000, verbose_name='URL')),
                    ('enabled', models.BooleanField(default=True)),
                    ('disabled_reason', models.CharField(blank=True, editable=False, max_length=200)),
                    ('ciphertext', models.BinaryField(null=True)),
                    ('previous_ciphertext', models.BinaryField(null=True)),
                    ('previous_secret_until', models.DateTimeField(editable=False, null=True)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ],
                options={
                    'verbose_name': 'alert destination',
                    'ordering': ['name'],
                },
            ),
            migrations.CreateModel(
                name='Call',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('tool_name', models.CharField(blank=True, max_length=128)),
                    ('tool_revision', models.PositiveIntegerField(null=True)),
                    ('method', models.CharField(blank=True, max_length=100)),
                    ('request_id', models.CharField(blank=True, help_text='The JSON-RPC id, as JSON.', max_length=200)),
                    ('protocol_version', models.CharField(blank=True, max_length=10)),
                    ('client_name', models.CharField(blank=True, max_length=200)),
                    ('client_version', models.CharField(blank=True, max_length=100)),
                    ('remote_address', models.CharField(blank=True, max_length=45)),
                    ('trace_id', models.CharField(blank=True, help_text='The trace that its client began, in hex.', max_length=32)),
                    ('started_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('finished_at', models.DateTimeField()),
                    ('duration_us', models.PositiveBigIntegerField()),
                    ('waited_us', models.PositiveBigIntegerField(help_text='From its arrival until it began to run; empty where it never ran.', null=True)),
                    ('outcome', models.CharField(choices=[('ok', 'OK'), ('tool_error', 'Tool error'), ('rejected', 'Rejected'), ('denied', 'Denied'), ('cancelled', 'Cancelled'), ('timeout', 'Timed out'), ('not_started', 'Not started'), ('lost', 'Lost'), ('interrupted', 'Interrupted'), ('input_required', 'Input required')], max_length=16)),
                    ('http_status', models.PositiveSmallIntegerField(null=True)),
                    ('rpc_error', models.IntegerField(help_text='The JSON-RPC error code, if the answer was one.', null=True)),
                    ('is_error', models.BooleanField(help_text="The tool's own verdict, if it gave one.", null=True)),
                    ('cause', models.TextField(blank=True, help_text='What went wrong, for the auditor; never sent to the client.')),
                    ('background', models.BooleanField(default=False)),
                    ('arguments_size', models.PositiveIntegerField(default=0)),
                    ('result_size', models.PositiveIntegerField(default=0)),
                    ('event_count', models.PositiveIntegerField(default=0)),
                    ('repeated', models.PositiveIntegerField(default=1, help_text='Denials of one kind that this row stands for.')),
                    ('writer', models.UUIDField(help_text='The process that recorded it.')),
                    ('shaped_size', models.PositiveIntegerField(help_text='Bytes of the answer, where the client received less than the recorded result.', null=True)),
                    ('chain_position', models.PositiveBigIntegerField(help_text='Its place among the records of its writer and tenant, from 1 on.', null=True)),
                    ('chain_hash', models.BinaryField(help_text='SHA-256 of the record before it in its chain, and of all that it says.', max_length=32, null=True)),
                    ('recorded_us', models.PositiveBigIntegerField(help_text='From its end until its record was written, without the commit.', null=True)),
                    ('hash_version', models.PositiveSmallIntegerField(help_text='By whose rules its hash was made.', null=True)),
                ],
                options={
                    'ordering': ['-started_at'],
                },
            ),
            migrations.CreateModel(
                name='CallAnswer',
                fields=[
                    ('call_id', models.UUIDField(primary_key=True, serialize=False)),
                    ('sealed', models.BinaryField()),
                    ('is_task', models.BooleanField(default=False)),
                    ('expires_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ],
            ),
            migrations.CreateModel(
                name='Issuer',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('name', models.CharField(help_text='Shown on the sign-in page.', max_length=100, validators=[django.core.validators.RegexValidator('^[^\\x00-\\x1f\\x7f]*\\Z', 'Use a single line without control characters.')])),
                    ('use', models.CharField(choices=[('people', 'People sign in'), ('workloads', 'Programs connect, without a stored secret'), ('direct', 'Its tokens are used as they are, without an exchange')], default='people', max_length=10)),
                    ('protocol', models.CharField(choices=[('oidc', 'OpenID Connect'), ('saml', 'SAML 2.0')], default='oidc', help_text='SAML 2.0 is for people only.', max_length=10)),
                    ('issuer', models.CharField(help_text='As in its tokens, such as https://login.microsoftonline.com/TENANT/v2.0. Its configuration is read from /.well-known/openid-configuration below it. SAML: the entity ID of the identity provider.', max_length=500, verbose_name='issuer URL')),
                    ('client_id', models.CharField(blank=True, help_text='Of the application that is registered for this hub.', max_length=200, verbose_name='client ID')),
                    ('ciphertext', models.BinaryField(null=True)),
                    ('audience', models.CharField(blank=True, help_text="What tokens of workloads, and those that are used as they are, have to be for. Empty: for workloads this hub's own address, otherwise the tenant's endpoint.", max_length=500)),
                    ('accepts_assertions', models.BooleanField(default=False, help_text='Applications that the company manages connect with an identity assertion (ID-JAG) of this issuer, without asking the person.', verbose_name='signs clients in, too')),
                    ('recheck_hours', models.PositiveIntegerField(default=24, help_text='People are checked with the issuer twice an hour, where it issues refresh tokens. Where it does not, or cannot be reached, their access ends after this time until they sign in again.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(720)], verbose_name='access without a check (hours)')),
                    ('sign_in_minutes', models.PositiveIntegerField(blank=True, help_text='After this time, people and the clients that they connected have no access until they sign in with the issuer again. Empty: no such end. With SAML and no directory (SCIM), an hour at most in any case.', null=True, validators=[django.core.validators.MinValueValidator(5), django.core.validators.MaxValueValidator(43200)], verbose_name='sign in again after (minutes)')),
                    ('rules', models.JSONField(blank=True, default=list, help_text='What claims of its tokens mean, as a JSON list. The first rule whose claims all fit counts; without one, nobody gets in. For people: [{"claims": {"groups": ["mcp-admins"]}, "role": "admin"}]. For others: [{"claims": {"repository": ["acme/*"]}, "names": ["report_*"], "methods": ["tools/*"]}].', validators=[tools_app.identity.models.issuers.validate_rules])),
                    ('directory_claim', models.CharField(default='sub', help_text='The claim that has the externalId by which the directory (SCIM) knows a person: sub, or oid for Microsoft Entra ID.', max_length=200, validators=[django.core.validators.RegexValidator('^[^\\x00-\\x1f\\x7f]*\\Z', 'Use a single line without control characters.')], verbose_name="claim of the directory's external ID")),
                    ('directory_only', models.BooleanField(default=False, help_text='On: only those sign in whom the directory (SCIM) has provisioned.', verbose_name='only people of the directory')),
                    ('metadata_url', models.CharField(blank=True, help_text='Where the identity provider publishes its metadata.', max_length=500, verbose_name='metadata URL')),
                    ('metadata', models.TextField(blank=True, help_text='For an identity provider without a metadata URL: the XML that it shows or lets you download.', max_length=131072, validators=[django.core.validators.MaxLengthValidator(131072)], verbose_name='metadata (XML)')),
                    ('certificates', models.TextField(blank=True, help_text='In PEM, one after the other: those that sign beside the ones in the metadata, such as the next one.', max_length=32768, validators=[django.core.validators.MaxLengthValidator(32768)], verbose_name='more certificates')),
                    ('subject_attribute', models.CharField(blank=True, help_text='The attribute that never changes for a person. Empty: the NameID, which must not be transient.', max_length=200)),
                    ('email_attribute', models.CharField(blank=True, default='email', max_length=200)),
                    ('groups_attribute', models.CharField(blank=True, default='groups', help_text='Rules see its values as the claim groups, and every attribute by its own name.', max_length=200)),
                    ('allows_unasked', models.BooleanField(default=False, help_text='Off: only answers to a request of this hub count, in the browser that made it. On: somebody can be signed in with an account of another person by a page that they open.', verbose_name='sign-in may begin at the identity provider')),
                    ('is_active', models.BooleanField(default=True, help_text='Off: nobody signs in, and everybody who did loses access.', verbose_name='active')),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ],
                options={
                    'verbose_name': 'issuer',
                    'ordering': ['tenant', 'name'],
                },
            ),
            migrations.CreateModel(
                name='Process',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('kind', models.CharField(max_length=10)),
                    ('host', models.CharField(max_length=255)),
                    ('pid', models.PositiveIntegerField()),
                    ('started_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('beats', models.PositiveBigIntegerField(default=0)),
                ],
                options={
                    'verbose_name_plural': 'processes',
                },
            ),
            migrations.CreateModel(
                name='ProcessDeath',
                fields=[
                    ('id', models.UUIDField(editable=False, primary_key=True, serialize=False)),
                    ('kind', models.CharField(max_length=10)),
                    ('host', models.CharField(max_length=255)),
                    ('pid', models.PositiveIntegerField()),
                    ('died_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ],
            ),
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
            migrations.CreateModel(
                name='Tenant',
                fields=[
                    ('calls_per_second', models.PositiveIntegerField(blank=True, help_text='Empty: no limit.', null=True)),
                    ('calls_per_minute', models.PositiveIntegerField(blank=True, help_text='Empty: no limit.', null=True)),
                    ('calls_per_day', models.PositiveIntegerField(blank=True, help_text='Empty: no limit. A day is the last 24 hours.', null=True)),
                    ('requests_per_second', models.PositiveIntegerField(blank=True, help_text='Requests of every kind, lists and pings too. Empty: no limit.', null=True)),
                    ('requests_per_day', models.PositiveIntegerField(blank=True, help_text='Empty: no limit.', null=True)),
                    ('open_streams', models.PositiveIntegerField(blank=True, help_text='Event streams and WebSockets at once. Empty: no limit.', null=True, verbose_name='open streams')),
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('slug', models.CharField(help_text="Part of the tenant's address: /t/SLUG/mcp.", max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\\Z', 'Use lower-case letters, digits and inner hyphens.')])),
                    ('name', models.CharField(max_length=200)),
                    ('is_active', models.BooleanField(default=True, help_text='Off: every key of this tenant is refused.')),
                    ('allow_query_key', models.BooleanField(default=False, help_text='Accept the key in the URL too. URLs end up in proxy logs and histories: prefer a header.', verbose_name='allow ?api_key=')),
                    ('allowed_networks', models.JSONField(blank=True, default=list, help_text='Private networks that HTTP tools may reach, as a JSON list of CIDRs, e.g. ["10.1.0.0/16"].', validators=[tools_app.core.validators.validate_networks])),
                    ('redacted_keys', models.JSONField(blank=True, default=list, help_text='More key names whose values the audit log hides, as a JSON list, e.g. ["ssn"].', validators=[tools_app.core.validators.validate_key_names])),
                    ('calls_in_flight', models.PositiveIntegerField(blank=True, help_text='In all processes together. Empty: no limit.', null=True, verbose_name='calls at once')),
                    ('most_sessions', models.PositiveIntegerField(blank=True, help_text='Of clients up to revision 2025-11-25. Empty: no limit.', null=True, verbose_name='open sessions')),
                    ('keep_days', models.PositiveIntegerField(blank=True, help_text='Older calls are pruned, with their arguments, results and events. Empty: as the hub is set.', null=True, verbose_name='keep records for days')),
                    ('is_public', models.BooleanField(default=False, help_text='Anybody may call this tenant at /t/SLUG/mcp without a key. Recorded as anonymous.', verbose_name='open to everybody')),
                    ('public_tools', models.JSONField(blank=True, default=list, help_text='What anonymous callers get, as a JSON list of names, e.g. ["tool=echo", "search_*"].', validators=[tools_app.core.validators.validate_names])),
                    ('public_calls_per_minute', models.PositiveIntegerField(default=60, help_text='For all anonymous callers of one address together.')),
                    ('requires_second_factor', models.BooleanField(default=False, help_text='Members who log in with a password need an authenticator app or a security key, too.', verbose_name='require a second factor')),
                    ('presentation', models.CharField(choices=[('full', 'List all tools'), ('search', 'Search tools'), ('auto', 'Search when the list is long')], default='full', help_text='With search, clients get find_tools, describe_tool and call_tool in place of a long list. A key can have its own setting.', max_length=6, verbose_name='tools are listed')),
                    ('search_above_tokens', models.PositiveIntegerField(default=20000, help_text='The estimated cost of a list in tokens from which on it is long.')),
                    ('catalog_version', models.PositiveBigIntegerField(default=1, editable=False)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ],
                options={
                    'ordering': ['slug'],
                },
            ),
            migrations.CreateModel(
                name='Upstream',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=64, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9_.-]{1,64}\\Z', 'Use letters, digits, underscore, hyphen and dot.')])),
                    ('prefix', models.CharField(blank=True, help_text="The hub offers the upstream's tool search as PREFIX_search. Empty: under its own name.", max_length=32, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9_.-]{1,32}\\Z', 'Use letters, digits, underscore, hyphen and dot.')])),
                    ('transport', models.CharField(choices=[('http', 'Streamable HTTP'), ('sse', 'HTTP+SSE (2024-11-05)'), ('stdio', 'Command (stdio)')], default='http', max_length=10)),
                    ('url', models.CharField(blank=True, help_text="The upstream's endpoint.", max_length=2000, verbose_name='URL')),
                    ('command', models.JSONField(blank=True, default=list, help_text='For stdio: the program and its arguments, as a JSON list.')),
                    ('approved', models.JSONField(default=dict, editable=False, help_text='What the operator approved by adding it at the command line: a command, or the digest of a URL and the private networks that it led to. It counts as long as the command or URL is the same.')),
                    ('era', models.CharField(choices=[('auto', 'Detect'), ('modern', 'From 2026-07-28'), ('handshake', 'Up to 2025-11-25')], default='auto', max_length=10, verbose_name='revisions')),
                    ('headers', models.JSONField(blank=True, default=dict, help_text='Sent with each request, as JSON, e.g. {"Authorization": "Bearer {secret:NAME}"}.')),
                    ('credential', models.CharField(blank=True, choices=[('header', 'Value of a header'), ('oauth', 'Sign-in (OAuth)')], default='', help_text='What calls need besides the headers above. It is entered under Connections, and kept encrypted.', max_length=10)),
                    ('credential_owner', models.CharField(choices=[('tenant', "The tenant's"), ('key', 'That of the API key'), ('person', 'That of the person')], default='tenant', help_text="Whose credential a call uses. The tenant's is also used to list what the upstream offers.", max_length=10, verbose_name='whose credential')),
                    ('credential_header', models.CharField(default='Authorization', help_text='For the value of a header: the name of the header.', max_length=100)),
                    ('oauth_client_id', models.CharField(blank=True, default='', help_text='For a sign-in at a server with which the hub cannot register itself.', max_length=2000, verbose_name='OAuth client ID')),
                    ('oauth_client_secret', models.CharField(blank=True, default='', help_text='The name of the secret of this tenant that contains it. Empty: a client without a secret.', max_length=64, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9_-]{1,64}\\Z', 'Enter the name of a secret.')], verbose_name='OAuth client secret')),
                    ('oauth_issuer', models.CharField(blank=True, default='', help_text='Where that client is registered, e.g. https://login.example.com. The secret is sent to no other authorization server.', max_length=2000, verbose_name='OAuth issuer')),
                    ('oauth_scopes', models.CharField(blank=True, default='', help_text='Empty: those that the upstream asks for.', max_length=1000, verbose_name='OAuth scopes')),
                    ('environment', models.JSONField(blank=True, default=dict, help_text='For stdio: environment variables, as JSON, e.g. {"TOKEN": "{secret:NAME}"}.')),
                    ('enabled', models.BooleanField(default=True)),
                    ('timeout_seconds', models.FloatField(default=60.0, help_text='The timeout of calls, for tools that are accepted from now on.', validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(86400.0)])),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('updated_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='upstreams', to='tools_app.tenant')),
                ],
                options={
                    'ordering': ['tenant', 'name'],
                },
            ),
            migrations.CreateModel(
                name='AlertRule',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=100, validators=[django.core.validators.RegexValidator('^[^\\x00-\\x1f\\x7f]*\\Z', 'Use a single line without control characters.')])),
                    ('kind', models.CharField(choices=[('error_rate', 'Error rate'), ('p95', 'Slow calls (p95)'), ('failures', 'A tool fails several times in a row'), ('denials', 'Denied requests'), ('key_expires', 'An API key expires soon'), ('queue_age', 'Background calls wait too long'), ('process_died', 'A process of the hub died')], max_length=20)),
                    ('enabled', models.BooleanField(default=True)),
                    ('threshold', models.FloatField(default=1, help_text='The alert fires at this value or above.')),
                    ('window_minutes', models.PositiveIntegerField(default=15, help_text='5 to 360, rounded up to statistics of five minutes.', validators=[django.core.validators.MinValueValidator(5), django.core.validators.MaxValueValidator(360)], verbose_name='window in minutes')),
                    ('min_calls', models.PositiveIntegerField(default=10, help_text='With fewer calls in the window, the alert does not fire.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000)], verbose_name='minimum number of calls')),
                    ('tool_pattern', models.CharField(blank=True, help_text='Names of tools, such as search_*. Empty: all.', max_length=128, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9_.*-]+\\Z', 'Use letters, digits, underscore, hyphen, dot, and * as the wildcard.')])),
                    ('quiet_minutes', models.PositiveIntegerField(default=60, help_text='After a notification, there is no other one about the same cause for this long.', validators=[django.core.validators.MinValueValidator(5), django.core.validators.MaxValueValidator(10080)], verbose_name='quiet time in minutes')),
                    ('notify_resolved', models.BooleanField(default=True, help_text='Also notify when the alert is resolved.')),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('destinations', models.ManyToManyField(blank=True, related_name='rules', to='tools_app.alertdestination')),
                    ('tenant', models.ForeignKey(blank=True, help_text='Empty: the whole hub.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='alert_rules', to='tools_app.tenant')),
                ],
                options={
                    'verbose_name': 'alert rule',
                    'ordering': ['name'],
                },
            ),
            migrations.CreateModel(
                name='Alert',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('subject', models.CharField(blank=True, max_length=128)),
                    ('summary', models.CharField(max_length=300)),
                    ('value', models.FloatField()),
                    ('threshold', models.FloatField()),
                    ('fired_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('notified_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('resolved_at', models.DateTimeField(null=True)),
                    ('rule', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='alerts', to='tools_app.alertrule')),
                    ('tenant', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tools_app.tenant')),
                ],
                options={
                    'ordering': ['-fired_at'],
                },
            ),
            migrations.CreateModel(
                name='ApiKey',
                fields=[
                    ('calls_per_second', models.PositiveIntegerField(blank=True, help_text='Empty: no limit.', null=True)),
                    ('calls_per_minute', models.PositiveIntegerField(blank=True, help_text='Empty: no limit.', null=True)),
                    ('calls_per_day', models.PositiveIntegerField(blank=True, help_text='Empty: no limit. A day is the last 24 hours.', null=True)),
                    ('requests_per_second', models.PositiveIntegerField(blank=True, help_text='Requests of every kind, lists and pings too. Empty: no limit.', null=True)),
                    ('requests_per_day', models.PositiveIntegerField(blank=True, help_text='Empty: no limit.', null=True)),
                    ('open_streams', models.PositiveIntegerField(blank=True, help_text='Event streams and WebSockets at once. Empty: no limit.', null=True, verbose_name='open streams')),
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=200)),
                    ('prefix', models.CharField(editable=False, max_length=16)),
                    ('digest', models.CharField(editable=False, max_length=64, unique=True)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('expires_at', models.DateTimeField(blank=True, help_text='Empty: never.', null=True)),
                    ('revoked_at', models.DateTimeField(blank=True, editable=False, null=True)),
                    ('last_used_at', models.DateTimeField(blank=True, editable=False, null=True)),
                    ('tool_patterns', models.JSONField(blank=True, default=list, help_text='Tools, prompts and resources that it may use, as a JSON list of names, URIs and patterns, e.g. ["tool=echo", "search_*"]. Empty: all.', validators=[tools_app.core.validators.validate_names], verbose_name='names')),
                    ('methods', models.JSONField(blank=True, default=list, help_text='Methods that it may use, as a JSON list of patterns, e.g. ["tools/*"]. Empty: all.', validators=[tools_app.core.validators.validate_patterns])),
                    ('networks', models.JSONField(blank=True, default=list, help_text='Where it may be used from, as a JSON list of CIDRs, e.g. ["203.0.113.0/24"]. Empty: anywhere.', validators=[tools_app.core.validators.validate_networks])),
                    ('acts_for_creator', models.BooleanField(default=False, help_text='Tools of Django apps that need a person run with your account, and upstream servers are called with your own credentials for them, also for other holders of the key. This cannot be changed later. Without it, such tools are not offered to the key.', verbose_name='acts for me')),
                    ('presentation', models.CharField(blank=True, choices=[('full', 'List all tools'), ('search', 'Search tools'), ('auto', 'Search when the list is long')], default='', help_text='Empty: as the tenant is set.', max_length=6, verbose_name='tools are listed')),
                    ('created_by', models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('replaced_by', models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='replaces', to='tools_app.apikey')),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='api_keys', to='tools_app.tenant')),
                ],
                options={
                    'verbose_name': 'API key',
                    'verbose_name_plural': 'API keys',
                    'ordering': ['tenant', 'name'],
                },
            ),
            migrations.CreateModel(
                name='ServiceClient',
                fields=[
                ],
                options={
                    'proxy': True,
                    'indexes': [],
                    'constraints': [],
                },
                bases=('tools_app.apikey',),
            ),
            migrations.CreateModel(
                name='CallPayload',
                fields=[
                    ('call', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, primary_key=True, related_name='payload', serialize=False, to='tools_app.call')),
                    ('arguments', models.TextField(blank=True)),
                    ('result', models.TextField(blank=True)),
                    ('packed', models.BinaryField(help_text='Both, compressed, where they are large; the texts above are empty then.', null=True)),
                ],
            ),
            migrations.AddField(
                model_name='call',
                name='api_key',
                field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tools_app.apikey'),
            ),
            migrations.AddField(
                model_name='call',
                name='person',
                field=models.ForeignKey(db_constraint=False, db_index=False, help_text='For whom the caller acted; empty where a key acted for itself.', null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to=settings.AUTH_USER_MODEL),
            ),
            migrations.CreateModel(
                name='CallEvent',
                fields=[
                    ('pk', models.CompositePrimaryKey('call_id', 'sequence', blank=True, editable=False, primary_key=True, serialize=False)),
                    ('sequence', models.PositiveIntegerField()),
                    ('at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('kind', models.CharField(max_length=20)),
                    ('data', models.TextField()),
                    ('call', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='events', to='tools_app.call')),
                ],
                options={
                    'ordering': ['call_id', 'sequence'],
                },
            ),
            migrations.CreateModel(
                name='CallFigures',
                fields=[
                    ('id', models.BigAutoField(primary_key=True, serialize=False)),
                    ('tenant_id', models.UUIDField(help_text='Nil: of no tenant.')),
                    ('begins_at', models.DateTimeField()),
                    ('seconds', models.PositiveIntegerField(help_text='How long the period is.')),
                    ('writer', models.UUIDField(help_text='The process that recorded them; nil: several.')),
                    ('tool_name', models.CharField(blank=True, max_length=128)),
                    ('api_key_id', models.UUIDField(help_text='Nil: none.')),
                    ('client_name', models.CharField(blank=True, max_length=60)),
                    ('calls', models.PositiveBigIntegerField(default=0, help_text='All that were let in, however they ended.')),
                    ('errors', models.PositiveBigIntegerField(default=0, help_text='Those of them that did not end well.')),
                    ('denials', models.PositiveBigIntegerField(default=0, help_text='Requests that were turned away.')),
                    ('took_us', models.PositiveBigIntegerField(default=0, help_text='Durations of `calls`, summed up.')),
                    ('took_00', models.PositiveIntegerField(default=0)),
                    ('took_01', models.PositiveIntegerField(default=0)),
                    ('took_02', models.PositiveIntegerField(default=0)),
                    ('took_03', models.PositiveIntegerField(default=0)),
                    ('took_04', models.PositiveIntegerField(default=0)),
                    ('took_05', models.PositiveIntegerField(default=0)),
                    ('took_06', models.PositiveIntegerField(default=0)),
                    ('took_07', models.PositiveIntegerField(default=0)),
                    ('took_08', models.PositiveIntegerField(default=0)),
                    ('took_09', models.PositiveIntegerField(default=0)),
                    ('took_10', models.PositiveIntegerField(default=0)),
                    ('took_11', models.PositiveIntegerField(default=0)),
                    ('took_12', models.PositiveIntegerField(default=0)),
                    ('took_13', models.PositiveIntegerField(default=0)),
                    ('took_14', models.PositiveIntegerField(default=0)),
                    ('took_15', models.PositiveIntegerField(default=0)),
                    ('took_16', models.PositiveIntegerField(default=0)),
                    ('took_17', models.PositiveIntegerField(default=0)),
                    ('took_18', models.PositiveIntegerField(default=0)),
                    ('took_19', models.PositiveIntegerField(default=0)),
                    ('took_20', models.PositiveIntegerField(default=0)),
                    ('took_21', models.PositiveIntegerField(default=0)),
                ],
                options={
                    'verbose_name_plural': 'call figures',
                    'indexes': [models.Index(fields=['seconds', 'begins_at'], name='figures_by_time')],
                    'constraints': [models.UniqueConstraint(fields=('tenant_id', 'begins_at', 'seconds', 'writer', 'tool_name', 'api_key_id', 'client_name'), name='figures_once_per_kind')],
                },
            ),
            migrations.CreateModel(
                name='CallInput',
                fields=[
                    ('id', models.BigAutoField(primary_key=True, serialize=False)),
                    ('call_id', models.UUIDField()),
                    ('name', models.CharField(max_length=200)),
                    ('sealed', models.BinaryField()),
                    ('created_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('call_id', 'name'), name='input_once_per_call')],
                },
            ),
            migrations.CreateModel(
                name='Checkpoint',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('writer', models.UUIDField(help_text='The process whose records it is about.')),
                    ('made_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('statement', models.TextField(help_text='What is signed, as JSON.')),
                    ('digest', models.BinaryField(help_text='SHA-256 of the statement.', max_length=32)),
                    ('signature', models.BinaryField(help_text='Ed25519, over the statement.', max_length=64)),
                    ('public_key', models.CharField(help_text='The key that verifies the signature, in hex.', max_length=64)),
                    ('sequence', models.PositiveBigIntegerField()),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('writer', 'sequence'), name='checkpoint_once_per_writer')],
                },
            ),
            migrations.CreateModel(
                name='Connection',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('scope', models.CharField(help_text='The scopes that the person allowed.', max_length=1000)),
                    ('redirect_uri', models.CharField(help_text='Where the last code was sent.', max_length=2000, verbose_name='redirect URI')),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('consented_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('asserted_until', models.DateTimeField(editable=False, help_text='The end of the key that the last assertion of the company set. Another end is a choice of somebody.', null=True)),
                    ('key', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='connection', to='tools_app.apikey')),
                    ('person', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='connections', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'ordering': ['-consented_at'],
                },
            ),
            migrations.CreateModel(
                name='AuthorizationCode',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('digest', models.CharField(max_length=80, unique=True)),
                    ('family', models.UUIDField(db_index=True)),
                    ('scope', models.CharField(max_length=1000)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('expires_at', models.DateTimeField(db_index=True)),
                    ('redirect_uri', models.CharField(max_length=2000)),
                    ('code_challenge', models.CharField(max_length=128)),
                    ('used_at', models.DateTimeField(null=True)),
                    ('connection', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tools_app.connection')),
                ],
                options={
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='AccessToken',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('digest', models.CharField(max_length=80, unique=True)),
                    ('family', models.UUIDField(db_index=True)),
                    ('scope', models.CharField(max_length=1000)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('expires_at', models.DateTimeField(db_index=True)),
                    ('connection', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tools_app.connection')),
                ],
                options={
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='Directory',
                fields=[
                    ('issuer', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='directory', serialize=False, to='tools_app.issuer')),
                    ('prefix', models.CharField(max_length=20)),
                    ('digest', models.CharField(max_length=64)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('last_used_at', models.DateTimeField(null=True)),
                ],
                options={
                    'verbose_name_plural': 'directories',
                },
            ),
            migrations.CreateModel(
                name='Export',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('query', models.TextField(blank=True, help_text='The query string of the list.')),
                    ('format', models.CharField(choices=[('jsonl', 'JSON lines'), ('csv', 'CSV')], max_length=10)),
                    ('state', models.CharField(choices=[('ready', 'Ready to download'), ('running', 'Running'), ('done', 'Done'), ('broken', 'Broken off')], default='ready', max_length=10)),
                    ('with_payloads', models.BooleanField(default=False, help_text='Arguments and results, too.')),
                    ('expected', models.PositiveBigIntegerField(help_text='How many calls it is about, if that was counted.', null=True)),
                    ('calls', models.PositiveBigIntegerField(default=0)),
                    ('bytes', models.PositiveBigIntegerField(default=0)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('finished_at', models.DateTimeField(null=True)),
                    ('problem', models.TextField(blank=True)),
                    ('person', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='exports', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'ordering': ['-created_at'],
                },
            ),
            migrations.CreateModel(
                name='Identity',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('subject', models.CharField(blank=True, help_text='Empty: the directory provisioned the person, who has not signed in.', max_length=255)),
                    ('claims', models.JSONField(default=dict, help_text='What the issuer last said of the person.')),
                    ('ciphertext', models.BinaryField(help_text='The sealed refresh token of the issuer.', null=True)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('verified_at', models.DateTimeField(default=django.utils.timezone.now, help_text='When the issuer last vouched for the person.')),
                    ('checked_at', models.DateTimeField(db_index=True, default=django.utils.timezone.now, help_text='When the issuer was last asked.')),
                    ('signed_in_at', models.DateTimeField(default=django.utils.timezone.now, help_text='When the person last came from the issuer, or with an assertion of it.')),
                    ('session_ends_at', models.DateTimeField(help_text='When the session of the last sign-in ends at the issuer, if it said so (SAML).', null=True)),
                    ('ended_at', models.DateTimeField(help_text='When the issuer no longer vouched for the person.', null=True)),
                    ('issuer', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='identities', to='tools_app.issuer')),
                    ('person', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='identity', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'verbose_name_plural': 'identities',
                },
            ),
            migrations.CreateModel(
                name='DirectoryUser',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('user_name', models.CharField(max_length=254)),
                    ('user_name_key', models.CharField(help_text='The user name as it is compared.', max_length=254)),
                    ('external_id', models.CharField(blank=True, max_length=254)),
                    ('active', models.BooleanField(default=True)),
                    ('resource', models.JSONField(default=dict, help_text='The other attributes, as the directory gave them.')),
                    ('emails_key', models.TextField(blank=True, help_text='The e-mails as they are compared.')),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('changed_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('issuer', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='directory_users', to='tools_app.issuer')),
                    ('identity', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='directory_user', to='tools_app.identity')),
                ],
                options={
                    'ordering': ['created_at', 'id'],
                },
            ),
            migrations.CreateModel(
                name='OAuthClient',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('client_id', models.CharField(editable=False, max_length=1000, unique=True, verbose_name='client ID')),
                    ('source', models.CharField(choices=[('document', 'Metadata document'), ('dynamic', 'Dynamic registration'), ('service', 'Service client of a tenant'), ('workload', 'Token of an issuer')], editable=False, max_length=10)),
                    ('name', models.CharField(editable=False, max_length=200)),
                    ('redirect_uris', models.JSONField(default=list, editable=False, verbose_name='redirect URIs')),
                    ('grant_types', models.JSONField(default=list, editable=False, help_text='What it may ask for tokens with.')),
                    ('auth_method', models.CharField(default='none', editable=False, max_length=30, verbose_name='authentication')),
                    ('auth_methods', models.JSONField(default=list, editable=False, help_text='Those that its metadata document names, the one that it prefers first. Empty: the one above.', verbose_name='ways to authenticate')),
                    ('secret_digest', models.CharField(blank=True, editable=False, max_length=64)),
                    ('jwks_uri', models.CharField(blank=True, editable=False, max_length=2000, verbose_name='JWKS URL')),
                    ('jwks', models.JSONField(editable=False, help_text='The public keys of a client that signs assertions.', null=True)),
                    ('keys_fetched_at', models.DateTimeField(editable=False, null=True)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('fetched_at', models.DateTimeField(editable=False, help_text='When its metadata document was read.', null=True)),
                    ('last_used_at', models.DateTimeField(editable=False, null=True)),
                    ('blocked_at', models.DateTimeField(editable=False, null=True)),
                    ('network', models.CharField(blank=True, editable=False, help_text='From where it registered itself.', max_length=50)),
                ],
                options={
                    'verbose_name': 'client',
                    'ordering': ['name', 'client_id'],
                    'indexes': [models.Index(fields=['source', 'created_at'], name='client_by_age')],
                },
            ),
            migrations.CreateModel(
                name='DeviceCode',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('digest', models.CharField(max_length=64, unique=True)),
                    ('user_digest', models.CharField(max_length=64, unique=True)),
                    ('tenant_slug', models.CharField(blank=True, max_length=63)),
                    ('scope', models.CharField(max_length=1000)),
                    ('interval', models.PositiveSmallIntegerField()),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('expires_at', models.DateTimeField(db_index=True)),
                    ('network', models.CharField(blank=True, help_text='From where the device asked.', max_length=50)),
                    ('polled_at', models.DateTimeField(null=True)),
                    ('entered_at', models.DateTimeField(help_text='When a person entered the code that it shows.', null=True)),
                    ('refused_at', models.DateTimeField(null=True)),
                    ('used_at', models.DateTimeField(null=True)),
                    ('connection', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tools_app.connection')),
                    ('client', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tools_app.oauthclient')),
                ],
            ),
            migrations.AddField(
                model_name='connection',
                name='client',
                field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='connections', to='tools_app.oauthclient'),
            ),
            migrations.CreateModel(
                name='PersonalToken',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=200)),
                    ('prefix', models.CharField(editable=False, max_length=16)),
                    ('digest', models.CharField(editable=False, max_length=64, unique=True)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('expires_at', models.DateTimeField(blank=True, help_text='Empty: never.', null=True)),
                    ('revoked_at', models.DateTimeField(editable=False, null=True)),
                    ('last_used_at', models.DateTimeField(editable=False, null=True)),
                    ('person', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tokens', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'verbose_name': 'personal token',
                    'ordering': ['-created_at'],
                },
            ),
            migrations.CreateModel(
                name='RefreshToken',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('digest', models.CharField(max_length=80, unique=True)),
                    ('family', models.UUIDField(db_index=True)),
                    ('scope', models.CharField(max_length=1000)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('expires_at', models.DateTimeField(db_index=True)),
                    ('rotated_at', models.DateTimeField(null=True)),
                    ('is_bound', models.BooleanField(default=False, help_text='Its client authenticated itself when it was issued, and has to when it is used.')),
                    ('connection', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tools_app.connection')),
                ],
                options={
                    'abstract': False,
                },
            ),
            migrations.CreateModel(
                name='SavedFilter',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=100)),
                    ('query', models.TextField(help_text='The query string of the list.')),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('person', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='saved_filters', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'verbose_name': 'saved search',
                    'verbose_name_plural': 'saved searches',
                    'ordering': ['name'],
                },
            ),
            migrations.CreateModel(
                name='Session',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('digest', models.CharField(editable=False, max_length=64, unique=True)),
                    ('protocol_version', models.CharField(max_length=10)),
                    ('client_name', models.CharField(blank=True, max_length=200)),
                    ('client_version', models.CharField(blank=True, max_length=100)),
                    ('client_capabilities', models.JSONField(default=dict)),
                    ('log_level', models.CharField(default='info', max_length=10)),
                    ('subscriptions', models.JSONField(default=list, help_text='URIs of resources whose changes the client wants.')),
                    ('listener', models.UUIDField(help_text='The one of its streams that hears of changes.', null=True)),
                    ('remote_address', models.CharField(blank=True, max_length=45)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('last_seen_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('ended_at', models.DateTimeField(null=True)),
                    ('end_reason', models.CharField(blank=True, max_length=20)),
                    ('api_key', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='sessions', to='tools_app.apikey')),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='sessions', to='tools_app.tenant')),
                ],
                options={
                    'ordering': ['-created_at'],
                },
            ),
            migrations.AddField(
                model_name='call',
                name='session',
                field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tools_app.session'),
            ),
            migrations.CreateModel(
                name='SignInEvent',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), db_index=True, default=django.utils.timezone.now)),
                    ('step', models.CharField(choices=[('challenged', 'Sent to sign in'), ('client_seen', 'Client registered'), ('asked', 'Access requested'), ('allowed', 'Allowed'), ('denied', 'Refused by the person'), ('issued', 'Tokens issued'), ('refreshed', 'Tokens renewed'), ('replayed', 'Used twice'), ('revoked', 'Ended'), ('rejected', 'Rejected'), ('signed_in', 'Signed in'), ('left', 'Access withdrawn')], max_length=12)),
                    ('reason', models.CharField(blank=True, max_length=500)),
                    ('connection_id', models.UUIDField(null=True)),
                    ('attempt', models.UUIDField(db_index=True, help_text='The same for all steps of one attempt to sign in, as far as is known.', null=True)),
                    ('client_id', models.CharField(blank=True, max_length=1000, verbose_name='client ID')),
                    ('client_name', models.CharField(blank=True, max_length=200)),
                    ('person_name', models.CharField(blank=True, max_length=150)),
                    ('host', models.CharField(blank=True, help_text='What a client policy names the client by.', max_length=255)),
                    ('remote_address', models.CharField(blank=True, max_length=45)),
                    ('tenant', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tools_app.tenant')),
                ],
                options={
                    'verbose_name': 'sign-in',
                    'ordering': ['-at', '-id'],
                },
            ),
            migrations.CreateModel(
                name='Secret',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=64, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9_-]{1,64}\\Z', 'Use letters, digits, underscore and hyphen.')])),
                    ('ciphertext', models.BinaryField()),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('updated_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='secrets', to='tools_app.tenant')),
                ],
                options={
                    'ordering': ['tenant', 'name'],
                },
            ),
            migrations.CreateModel(
                name='Resource',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('uri', models.CharField(max_length=500, validators=[django.core.validators.RegexValidator('^[A-Za-z][A-Za-z0-9+.-]*:[^\\s<>\\"\\\\^`]+\\Z', 'Write a URI, as in docs://guide, or a template, as in docs://{page}.')], verbose_name='URI')),
                    ('name', models.CharField(max_length=200)),
                    ('kind', models.CharField(choices=[('python', 'Python function'), ('text', 'Text'), ('file', 'File'), ('http', 'HTTP request'), ('upstream', 'Upstream MCP server')], max_length=10)),
                    ('enabled', models.BooleanField(default=True)),
                    ('title', models.CharField(blank=True, max_length=200)),
                    ('description', models.TextField(blank=True)),
                    ('mime_type', models.CharField(blank=True, max_length=200, verbose_name='MIME type')),
                    ('annotations', models.JSONField(blank=True, default=dict, help_text='audience, priority, lastModified.')),
                    ('icons', models.JSONField(blank=True, default=list, help_text='A JSON list of {src, mimeType, sizes}.')),
                    ('text', models.TextField(blank=True, help_text='What clients read, for a text.')),
                    ('blob', models.BinaryField(default=bytes)),
                    ('config', models.JSONField(blank=True, default=dict)),
                    ('timeout_seconds', models.FloatField(default=30.0, validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(3600.0)])),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('updated_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='resources', to='tools_app.tenant')),
                ],
                options={
                    'ordering': ['tenant', 'uri'],
                },
            ),
            migrations.CreateModel(
                name='Prompt',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=128, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9_./-]{1,128}\\Z', 'Use letters, digits, underscore, hyphen, dot and slash, at most 128 characters.')])),
                    ('kind', models.CharField(choices=[('python', 'Python function'), ('template', 'Messages with placeholders'), ('upstream', 'Upstream MCP server')], max_length=10)),
                    ('enabled', models.BooleanField(default=True)),
                    ('title', models.CharField(blank=True, max_length=200)),
                    ('description', models.TextField(blank=True)),
                    ('icons', models.JSONField(blank=True, default=list, help_text='A JSON list of {src, mimeType, sizes}.')),
                    ('arguments', models.JSONField(blank=True, default=list)),
                    ('messages', models.JSONField(blank=True, default=list)),
                    ('config', models.JSONField(blank=True, default=dict)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('updated_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='prompts', to='tools_app.tenant')),
                ],
                options={
                    'ordering': ['tenant', 'name'],
                },
            ),
            migrations.CreateModel(
                name='ParkedCall',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('upstream_id', models.UUIDField(help_text='The upstream that runs it.')),
                    ('api_key_id', models.UUIDField(help_text='The API key of its client.', null=True)),
                    ('call_id', models.UUIDField(help_text='The recorded call that was parked.')),
                    ('owner', models.UUIDField(help_text='The process that holds it, or records its end.')),
                    ('attender', models.UUIDField(help_text='The record of its outcome.', null=True)),
                    ('round', models.PositiveIntegerField(default=1, help_text='Grows with each set of questions.')),
                    ('writes', models.PositiveIntegerField(default=0, help_text='Grows with each output.')),
                    ('status', models.CharField(choices=[('asking', 'Waiting for its client'), ('answered', 'Running on'), ('ended', 'Ended')], default='asking', max_length=10)),
                    ('answers', models.BinaryField(null=True)),
                    ('output', models.BinaryField(null=True)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tools_app.tenant')),
                ],
            ),
            migrations.CreateModel(
                name='Membership',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('role', models.CharField(choices=[('admin', 'Admin'), ('auditor', 'Auditor'), ('operator', 'Operator')], max_length=10)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to=settings.AUTH_USER_MODEL)),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='memberships', to='tools_app.tenant')),
                ],
                options={
                    'verbose_name': 'member',
                    'ordering': ['tenant', 'user'],
                },
            ),
            migrations.AddField(
                model_name='issuer',
                name='tenant',
                field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='issuers', to='tools_app.tenant'),
            ),
            migrations.CreateModel(
                name='Invitation',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('email', models.EmailField(help_text='Who is invited. An account with another e-mail takes it only when its owner confirms that.', max_length=254, verbose_name='e-mail')),
                    ('role', models.CharField(choices=[('admin', 'Admin'), ('auditor', 'Auditor'), ('operator', 'Operator')], max_length=10)),
                    ('digest', models.CharField(editable=False, max_length=64, unique=True)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('expires_at', models.DateTimeField(default=tools_app.tenants.models._in_some_days)),
                    ('accepted_at', models.DateTimeField(editable=False, null=True)),
                    ('revoked_at', models.DateTimeField(editable=False, null=True)),
                    ('accepted_by', models.ForeignKey(editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('invited_by', models.ForeignKey(editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='invitations', to='tools_app.tenant')),
                ],
                options={
                    'ordering': ['-created_at'],
                },
            ),
            migrations.AddField(
                model_name='connection',
                name='tenant',
                field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='connections', to='tools_app.tenant'),
            ),
            migrations.CreateModel(
                name='ClientPolicy',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('host', models.CharField(help_text='The verified host of a client, or where it returns to: claude.ai, *.example.com, localhost, cursor:. * is every client.', max_length=255)),
                    ('decision', models.CharField(choices=[('allow', 'Members may connect it'), ('ask', 'An admin has to allow it first'), ('deny', 'Nobody may connect it')], max_length=10)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='client_policies', to='tools_app.tenant')),
                ],
                options={
                    'verbose_name_plural': 'client policies',
                    'ordering': ['tenant', 'host'],
                },
            ),
            migrations.CreateModel(
                name='Change',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('person_name', models.CharField(blank=True, help_text="As it was called then; empty: nobody's.", max_length=150)),
                    ('via', models.CharField(choices=[('admin', 'Admin pages'), ('api', 'REST API'), ('command', 'Command line'), ('sign_in', 'Sign-in'), ('directory', 'Directory (SCIM)'), ('tool', 'Tool of an app')], max_length=10)),
                    ('remote_address', models.CharField(blank=True, max_length=45)),
                    ('action', models.CharField(choices=[('created', 'Created'), ('changed', 'Changed'), ('deleted', 'Deleted'), ('issued', 'Issued'), ('revoked', 'Revoked'), ('rotated', 'Rotated'), ('restored', 'Restored'), ('invited', 'Invited'), ('exported', 'Exported')], max_length=10)),
                    ('kind', models.CharField(help_text="What sort of thing was changed, as in the model's name.", max_length=40)),
                    ('object_id', models.CharField(max_length=64)),
                    ('object_name', models.CharField(blank=True, max_length=500)),
                    ('before', models.TextField(default='{}')),
                    ('after', models.TextField(default='{}')),
                    ('position', models.PositiveBigIntegerField(unique=True)),
                    ('digest', models.BinaryField(max_length=32)),
                    ('person', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('tenant', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tools_app.tenant')),
                ],
                options={
                    'ordering': ['-position'],
                },
            ),
            migrations.CreateModel(
                name='ChainStart',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('writer', models.UUIDField(help_text='The process whose records it is about.')),
                    ('made_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('statement', models.TextField(help_text='What is signed, as JSON.')),
                    ('digest', models.BinaryField(help_text='SHA-256 of the statement.', max_length=32)),
                    ('signature', models.BinaryField(help_text='Ed25519, over the statement.', max_length=64)),
                    ('public_key', models.CharField(help_text='The key that verifies the signature, in hex.', max_length=64)),
                    ('kind', models.CharField(choices=[('records', 'Records'), ('checkpoints', 'Checkpoints')], max_length=11)),
                    ('position', models.PositiveBigIntegerField(help_text='The last one that was pruned.')),
                    ('tenant', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tools_app.tenant')),
                ],
            ),
            migrations.AddField(
                model_name='call',
                name='tenant',
                field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tools_app.tenant'),
            ),
            migrations.CreateModel(
                name='ApiSource',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=64, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9_.-]{1,64}\\Z', 'Use letters, digits, underscore, hyphen and dot, at most 64 characters.')])),
                    ('url', models.CharField(blank=True, help_text='Empty: the document is uploaded.', max_length=2000, verbose_name='URL of the document')),
                    ('base_url', models.CharField(blank=True, help_text='Where requests are sent. Empty: the first server that the document names.', max_length=2000, verbose_name='base URL')),
                    ('server_variables', models.JSONField(blank=True, default=dict, help_text='Values of variables in the URL of the server, such as {"region": "eu"}.')),
                    ('secrets', models.JSONField(blank=True, default=dict, help_text='The secret that each security scheme sends, such as {"bearerAuth": "GITHUB_TOKEN"}.')),
                    ('cycle_depth', models.PositiveIntegerField(default=0, help_text='How many levels of a schema that refers to itself are kept before it is cut, for clients that cannot follow such references. 0: it stays a reference.', validators=[django.core.validators.MaxValueValidator(5)], verbose_name='depth of cycles')),
                    ('output_schemas', models.BooleanField(default=False, help_text='Import the schemas of responses too. A response that differs from its schema is then an error.', verbose_name='output schemas')),
                    ('selection', models.JSONField(blank=True, default=list, help_text='Patterns of the operations that are read: paths, methods with paths, tags, names or operationIds, such as ["/users/*", "GET /teams*", "tag:mail", "list_*"]. Empty: all, at most 5000.', verbose_name='selected operations')),
                    ('servers', models.JSONField(blank=True, default=list, editable=False)),
                    ('schemes', models.JSONField(blank=True, default=dict, editable=False)),
                    ('revision', models.PositiveIntegerField(default=0, editable=False, verbose_name='applied revision')),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('updated_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='api_sources', to='tools_app.tenant')),
                ],
                options={
                    'verbose_name': 'API source',
                    'ordering': ['tenant', 'name'],
                },
            ),
            migrations.AddField(
                model_name='alertdestination',
                name='tenant',
                field=models.ForeignKey(blank=True, help_text='Empty: the whole hub.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='alert_destinations', to='tools_app.tenant'),
            ),
            migrations.CreateModel(
                name='AlertDelivery',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('event', models.CharField(choices=[('alert.fired', 'Fired'), ('alert.reminder', 'Still firing'), ('alert.resolved', 'Resolved'), ('alert.test', 'Test')], max_length=20)),
                    ('body', models.TextField(help_text='The message, as JSON.')),
                    ('status', models.CharField(choices=[('pending', 'Pending'), ('delivered', 'Delivered'), ('failed', 'Failed')], default='pending', max_length=10)),
                    ('attempts', models.PositiveIntegerField(default=0)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('next_attempt_at', models.DateTimeField(default=django.utils.timezone.now, null=True)),
                    ('claimed_until', models.DateTimeField(null=True)),
                    ('finished_at', models.DateTimeField(null=True)),
                    ('response_status', models.PositiveSmallIntegerField(null=True)),
                    ('error', models.CharField(blank=True, max_length=500)),
                    ('alert', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='tools_app.alert')),
                    ('destination', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='tools_app.alertdestination')),
                    ('tenant', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tools_app.tenant')),
                ],
                options={
                    'verbose_name': 'alert delivery',
                    'verbose_name_plural': 'alert deliveries',
                    'ordering': ['-created_at'],
                },
            ),
            migrations.CreateModel(
                name='TenantScope',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('name', models.CharField(help_text='What a client asks for, such as reports or crm:read: lower case, digits and . _ : -', max_length=40)),
                    ('description', models.CharField(blank=True, help_text='What the consent page says of it, such as: Read the sales reports.', max_length=200)),
                    ('tool_patterns', models.JSONField(blank=True, default=list, help_text='Tools, prompts and resources, e.g. report_* or tool=report_sales. Empty: all.', validators=[tools_app.core.validators.validate_names], verbose_name='names')),
                    ('methods', models.JSONField(blank=True, default=list, help_text='Methods, e.g. tools/call. Empty: all.', validators=[tools_app.core.validators.validate_patterns])),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='scopes', to='tools_app.tenant')),
                ],
                options={
                    'verbose_name': 'scope',
                    'ordering': ['tenant', 'name'],
                },
            ),
            migrations.CreateModel(
                name='Tool',
                fields=[
                    ('calls_per_second', models.PositiveIntegerField(blank=True, help_text='Empty: no limit.', null=True)),
                    ('calls_per_minute', models.PositiveIntegerField(blank=True, help_text='Empty: no limit.', null=True)),
                    ('calls_per_day', models.PositiveIntegerField(blank=True, help_text='Empty: no limit. A day is the last 24 hours.', null=True)),
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=128, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9_.-]{1,128}\\Z', 'Use letters, digits, underscore, hyphen and dot, at most 128 characters.')])),
                    ('kind', models.CharField(choices=[('python', 'Python function'), ('http', 'HTTP request'), ('operation', 'API operation'), ('upstream', 'Upstream MCP server')], max_length=10)),
                    ('enabled', models.BooleanField(default=True)),
                    ('title', models.CharField(blank=True, max_length=200)),
                    ('description', models.TextField(blank=True)),
                    ('input_schema', models.JSONField(blank=True, default=dict)),
                    ('output_schema', models.JSONField(blank=True, null=True)),
                    ('annotations', models.JSONField(blank=True, default=dict, help_text='readOnlyHint, destructiveHint, idempotentHint, openWorldHint.')),
                    ('config', models.JSONField(blank=True, default=dict)),
                    ('operation', models.CharField(blank=True, editable=False, max_length=255)),
                    ('generated', models.JSONField(blank=True, default=dict, editable=False)),
                    ('background', models.BooleanField(default=False, help_text='Run it in a Celery worker and stream its progress.')),
                    ('task', models.CharField(choices=[('never', 'Never'), ('optional', 'When it takes long'), ('required', 'Always')], default='never', help_text='Whether clients that know tasks get one: never, when the call takes long, or always.', max_length=10)),
                    ('icons', models.JSONField(blank=True, default=list, help_text='A JSON list of {src, mimeType, sizes}.')),
                    ('timeout_seconds', models.FloatField(default=60.0, validators=[django.core.validators.MinValueValidator(0.1), django.core.validators.MaxValueValidator(86400.0)])),
                    ('calls_in_flight', models.PositiveIntegerField(blank=True, help_text='In all processes together. Empty: no limit.', null=True, verbose_name='calls at once')),
                    ('aliases', models.JSONField(blank=True, default=list, help_text='Other words for the tool, by which a search finds it, as a JSON list, e.g. ["bug report"].', validators=[tools_app.core.validators.validate_aliases])),
                    ('pinned', models.BooleanField(default=False, help_text='Listed beside the search tools where tools are searched.', verbose_name='always listed')),
                    ('result_mask', models.CharField(blank=True, help_text='A JMESPath expression that selects what clients receive of a JSON result, e.g. items[*].{id: id}.', max_length=500, validators=[tools_app.core.validators.validate_mask], verbose_name='field mask')),
                    ('result_items', models.PositiveIntegerField(blank=True, help_text='At most so many items of each array of a JSON result. Empty: all.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(2147483647)], verbose_name='items of an array')),
                    ('result_bytes', models.PositiveIntegerField(blank=True, help_text='At most so many bytes of the content. A longer text is cut. Empty: no limit.', null=True, validators=[django.core.validators.MinValueValidator(100), django.core.validators.MaxValueValidator(2147483647)], verbose_name='bytes of a result')),
                    ('revision', models.PositiveIntegerField(default=0, editable=False)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('updated_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('source', models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='tools', to='tools_app.apisource')),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tools', to='tools_app.tenant')),
                ],
                options={
                    'ordering': ['tenant', 'name'],
                },
            ),
            migrations.CreateModel(
                name='RunningCall',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('tool_name', models.CharField(blank=True, max_length=128)),
                    ('tool_revision', models.PositiveIntegerField(null=True)),
                    ('method', models.CharField(blank=True, max_length=100)),
                    ('request_id', models.CharField(blank=True, help_text='The JSON-RPC id, as JSON.', max_length=200)),
                    ('protocol_version', models.CharField(blank=True, max_length=10)),
                    ('client_name', models.CharField(blank=True, max_length=200)),
                    ('client_version', models.CharField(blank=True, max_length=100)),
                    ('remote_address', models.CharField(blank=True, max_length=45)),
                    ('trace_id', models.CharField(blank=True, help_text='The trace that its client began, in hex.', max_length=32)),
                    ('started_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('status', models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('waiting', 'Waiting for input')], max_length=10)),
                    ('background', models.BooleanField()),
                    ('owner', models.UUIDField(help_text='The process that runs it, or that queued it.')),
                    ('timeout_seconds', models.FloatField()),
                    ('cancel_requested', models.BooleanField(default=False)),
                    ('arguments', models.TextField(help_text='Redacted and capped, as the audit log will keep them.')),
                    ('sealed_arguments', models.BinaryField(help_text='Encrypted, for the worker that runs the call.', null=True)),
                    ('run_at', models.DateTimeField(help_text='When a worker began with it.', null=True)),
                    ('task_seconds', models.FloatField(help_text='How long it lives as a task; empty for no task.', null=True)),
                    ('asked', models.JSONField(default=dict, help_text='Questions of a task that waits for its client, by their keys.')),
                    ('changed_at', models.DateTimeField(default=django.utils.timezone.now, help_text='When its state as a task changed last.')),
                    ('api_key', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tools_app.apikey')),
                    ('person', models.ForeignKey(db_constraint=False, db_index=False, help_text='For whom the caller acted; empty where a key acted for itself.', null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('session', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tools_app.session')),
                    ('tenant', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tools_app.tenant')),
                    ('tool', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tools_app.tool')),
                ],
                options={
                    'ordering': ['-started_at'],
                },
            ),
            migrations.AddField(
                model_name='call',
                name='tool',
                field=models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='tools_app.tool'),
            ),
            migrations.CreateModel(
                name='ToolRevision',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('number', models.PositiveIntegerField()),
                    ('definition', models.JSONField()),
                    ('digest', models.CharField(max_length=64)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('tool', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='revisions', to='tools_app.tool')),
                ],
                options={
                    'ordering': ['tool', '-number'],
                },
            ),
            migrations.CreateModel(
                name='Toolset',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('name', models.CharField(max_length=80, validators=[django.core.validators.RegexValidator('^[^\\x00-\\x1f\\x7f]*\\Z', 'Use a single line without control characters.')])),
                    ('description', models.CharField(blank=True, max_length=500)),
                    ('tools', models.JSONField(default=list, help_text='Names of tools, or patterns such as report_*, as a JSON list.', validators=[tools_app.core.validators.validate_patterns])),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('updated_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='toolsets', to='tools_app.tenant')),
                ],
                options={
                    'ordering': ['tenant', 'name'],
                },
            ),
            migrations.AddField(
                model_name='apikey',
                name='toolset',
                field=models.ForeignKey(blank=True, help_text='Of the tools that the names permit, only those of this toolset. Empty: all of them.', null=True, on_delete=django.db.models.deletion.RESTRICT, related_name='keys', to='tools_app.toolset'),
            ),
            migrations.CreateModel(
                name='UpstreamStatus',
                fields=[
                    ('upstream', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='status', serialize=False, to='tools_app.upstream')),
                    ('checked_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('reached_at', models.DateTimeField(null=True)),
                    ('refused_until', models.DateTimeField(help_text='Until when calls are refused after failures.', null=True)),
                    ('problem', models.TextField(blank=True)),
                    ('era', models.CharField(blank=True, max_length=10)),
                    ('version', models.CharField(blank=True, max_length=20)),
                    ('server_name', models.CharField(blank=True, max_length=200)),
                    ('server_version', models.CharField(blank=True, max_length=200)),
                    ('makes_tasks', models.BooleanField(default=False, help_text='Whether it may answer calls with tasks (2026-07-28).')),
                    ('left_out', models.JSONField(default=list, help_text='What it lists that cannot be offered: the kind, the name and the reason of each.')),
                ],
            ),
            migrations.CreateModel(
                name='UpstreamCredential',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('kind', models.CharField(choices=[('header', 'Value of a header'), ('oauth', 'Sign-in (OAuth)')], max_length=10)),
                    ('origin', models.CharField(help_text='The scheme, host and port that it is sent to.', max_length=300)),
                    ('ciphertext', models.BinaryField()),
                    ('scopes', models.CharField(blank=True, help_text='What was granted, as far as it is known.', max_length=1000)),
                    ('wanted_scopes', models.CharField(blank=True, help_text='What the upstream asked for when it refused a call.', max_length=1000)),
                    ('expires_at', models.DateTimeField(help_text='Empty: unknown, or never.', null=True)),
                    ('refresh_at', models.DateTimeField(help_text='When the hub refreshes it. Empty: it cannot.', null=True)),
                    ('claimed_until', models.DateTimeField(editable=False, help_text='Until when a process that began to refresh it is waited for.', null=True)),
                    ('failures', models.PositiveIntegerField(default=0, help_text='Failed refreshes in a row.')),
                    ('problem', models.CharField(blank=True, help_text='Why it was refused or could not be refreshed.', max_length=500)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('updated_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('key', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='upstream_credentials', to='tools_app.apikey')),
                    ('person', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='upstream_credentials', to=settings.AUTH_USER_MODEL)),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='upstream_credentials', to='tools_app.tenant')),
                    ('upstream', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='credentials', to='tools_app.upstream')),
                ],
                options={
                    'ordering': ['upstream', 'created_at'],
                },
            ),
            migrations.CreateModel(
                name='UpstreamItem',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('kind', models.CharField(choices=[('tool', 'Tool'), ('resource', 'Resource'), ('template', 'Resource template'), ('prompt', 'Prompt')], max_length=10)),
                    ('name', models.CharField(max_length=500)),
                    ('state', models.CharField(choices=[('new', 'New'), ('accepted', 'Accepted'), ('changed', 'Changed'), ('removed', 'Removed')], default='new', max_length=10)),
                    ('accepted', models.JSONField(blank=True, null=True)),
                    ('digest', models.CharField(blank=True, max_length=64)),
                    ('proposed', models.JSONField(blank=True, null=True)),
                    ('warnings', models.JSONField(blank=True, default=list)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('updated_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('prompt', models.OneToOneField(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='upstream_item', to='tools_app.prompt')),
                    ('resource', models.OneToOneField(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='upstream_item', to='tools_app.resource')),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='upstream_items', to='tools_app.tenant')),
                    ('tool', models.OneToOneField(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='upstream_item', to='tools_app.tool')),
                    ('upstream', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='items', to='tools_app.upstream')),
                ],
                options={
                    'ordering': ['upstream', 'kind', 'name'],
                },
            ),
            migrations.CreateModel(
                name='UpstreamRegistration',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('issuer', models.CharField(max_length=2000)),
                    ('redirect_uri', models.CharField(max_length=300)),
                    ('ciphertext', models.BinaryField(help_text="The client's id, secret and authentication method.")),
                    ('expires_at', models.DateTimeField(null=True)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                    ('upstream', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='registrations', to='tools_app.upstream')),
                ],
            ),
            migrations.CreateModel(
                name='UpstreamTask',
                fields=[
                    ('call_id', models.UUIDField(primary_key=True, serialize=False)),
                    ('upstream_id', models.UUIDField(help_text='The upstream that runs it.')),
                    ('owner', models.UUIDField(help_text='The process that waits for it.')),
                    ('sealed', models.BinaryField(help_text='What is needed to ask for it, encrypted.')),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tools_app.tenant')),
                ],
            ),
            migrations.CreateModel(
                name='UsedAssertion',
                fields=[
                    ('digest', models.CharField(max_length=64, primary_key=True, serialize=False)),
                    ('expires_at', models.DateTimeField(db_index=True)),
                    ('client', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tools_app.oauthclient')),
                    ('issuer', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tools_app.issuer')),
                ],
            ),
            migrations.CreateModel(
                name='ApiSourceRevision',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('number', models.PositiveIntegerField()),
                    ('state', models.CharField(choices=[('pending', 'Being read'), ('ready', 'Ready'), ('failed', 'Failed')], default='pending', max_length=10)),
                    ('problem', models.TextField(blank=True)),
                    ('content', models.BinaryField(default=bytes)),
                    ('parsed', models.BinaryField(default=bytes)),
                    ('digest', models.CharField(blank=True, max_length=64)),
                    ('size', models.PositiveIntegerField(default=0)),
                    ('title', models.CharField(blank=True, max_length=200)),
                    ('version', models.CharField(blank=True, max_length=200)),
                    ('operations', models.PositiveIntegerField(default=0)),
                    ('skipped', models.PositiveIntegerField(default=0)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('claimed_at', models.DateTimeField(help_text='When a process began to read it.', null=True)),
                    ('applied_at', models.DateTimeField(null=True)),
                    ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                    ('source', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='revisions', to='tools_app.apisource')),
                ],
                options={
                    'verbose_name': 'API source revision',
                    'ordering': ['source', '-number'],
                    'indexes': [models.Index(condition=models.Q(('state', 'pending')), fields=['created_at'], name='revision_to_be_read')],
                    'constraints': [models.UniqueConstraint(fields=('source', 'number'), name='number_once_per_source')],
                },
            ),
            migrations.CreateModel(
                name='DirectoryGroup',
                fields=[
                    ('id', models.UUIDField(default=uuid_utils.compat.uuid7, editable=False, primary_key=True, serialize=False)),
                    ('display_name', models.CharField(max_length=254)),
                    ('display_name_key', models.CharField(help_text='The name as it is compared.', max_length=254)),
                    ('external_id', models.CharField(blank=True, max_length=254)),
                    ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('changed_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('issuer', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='directory_groups', to='tools_app.issuer')),
                    ('members', models.ManyToManyField(related_name='groups', to='tools_app.directoryuser')),
                ],
                options={
                    'ordering': ['created_at', 'id'],
                    'indexes': [models.Index(fields=['issuer', 'display_name_key'], name='directory_group_by_name')],
                    'constraints': [models.UniqueConstraint(condition=models.Q(('external_id', ''), _negated=True), fields=('issuer', 'external_id'), name='directory_group_external_id_once')],
                },
            ),
            migrations.AddConstraint(
                model_name='identity',
                constraint=models.UniqueConstraint(condition=models.Q(('subject', ''), _negated=True), fields=('issuer', 'subject'), name='identity_once_per_issuer'),
            ),
            migrations.AddIndex(
                model_name='directoryuser',
                index=models.Index(fields=['issuer', 'created_at', 'id'], name='directory_user_by_age'),
            ),
            migrations.AddConstraint(
                model_name='directoryuser',
                constraint=models.UniqueConstraint(fields=('issuer', 'user_name_key'), name='directory_user_name_once'),
            ),
            migrations.AddConstraint(
                model_name='directoryuser',
                constraint=models.UniqueConstraint(condition=models.Q(('external_id', ''), _negated=True), fields=('issuer', 'external_id'), name='directory_user_external_id_once'),
            ),
            migrations.AddConstraint(
                model_name='savedfilter',
                constraint=models.UniqueConstraint(fields=('person', 'name'), name='filter_name_once_per_person'),
            ),
            migrations.AddIndex(
                model_name='signinevent',
                index=models.Index(fields=['tenant', '-at'], name='sign_in_by_tenant'),
            ),
            migrations.AddIndex(
                model_name='session',
                index=models.Index(fields=['tenant', '-created_at'], name='session_by_tenant'),
            ),
            migrations.AddIndex(
                model_name='session',
                index=models.Index(condition=models.Q(('ended_at', None)), fields=['last_seen_at'], name='session_by_idleness'),
            ),
            migrations.AddIndex(
                model_name='session',
                index=models.Index(condition=models.Q(('ended_at', None)), fields=['tenant', 'last_seen_at', 'ended_at'], name='session_open'),
            ),
            migrations.AddConstraint(
                model_name='secret',
                constraint=models.UniqueConstraint(fields=('tenant', 'name'), name='secret_name_once_per_tenant'),
            ),
            migrations.AddConstraint(
                model_name='resource',
                constraint=models.UniqueConstraint(fields=('tenant', 'uri'), name='resource_uri_once_per_tenant'),
            ),
            migrations.AddConstraint(
                model_name='prompt',
                constraint=models.UniqueConstraint(fields=('tenant', 'name'), name='prompt_name_once_per_tenant'),
            ),
            migrations.AddConstraint(
                model_name='membership',
                constraint=models.UniqueConstraint(fields=('user', 'tenant'), name='one_role_per_member'),
            ),
            migrations.AddConstraint(
                model_name='issuer',
                constraint=models.UniqueConstraint(fields=('tenant', 'issuer', 'use'), name='issuer_once_per_tenant', violation_error_message='This issuer is set up already. Change it instead.'),
            ),
            migrations.AddConstraint(
                model_name='issuer',
                constraint=models.UniqueConstraint(fields=('tenant', 'name'), name='issuer_name_once_per_tenant', violation_error_message='Another issuer has this name.'),
            ),
            migrations.AddIndex(
                model_name='connection',
                index=models.Index(fields=['tenant', '-consented_at'], name='connection_by_tenant'),
            ),
            migrations.AddConstraint(
                model_name='connection',
                constraint=models.UniqueConstraint(fields=('tenant', 'person', 'client'), name='one_connection_per_client'),
            ),
            migrations.AddConstraint(
                model_name='clientpolicy',
                constraint=models.UniqueConstraint(fields=('tenant', 'host'), name='one_policy_per_host'),
            ),
            migrations.AddIndex(
                model_name='change',
                index=models.Index(fields=['tenant', 'position'], name='change_by_tenant'),
            ),
            migrations.AddIndex(
                model_name='change',
                index=models.Index(fields=['kind', 'object_id', 'position'], name='change_by_object'),
            ),
            migrations.AddIndex(
                model_name='chainstart',
                index=models.Index(fields=['writer', 'tenant'], name='start_by_chain'),
            ),
            migrations.AddConstraint(
                model_name='apisource',
                constraint=models.UniqueConstraint(fields=('tenant', 'name'), name='source_name_once_per_tenant'),
            ),
            migrations.AddConstraint(
                model_name='alertrule',
                constraint=models.UniqueConstraint(fields=('tenant', 'name'), name='alert_rule_name_once', violation_error_message='There is already a rule with this name. Choose another one.'),
            ),
            migrations.AddConstraint(
                model_name='alertrule',
                constraint=models.UniqueConstraint(condition=models.Q(('tenant', None)), fields=('name',), name='hub_alert_rule_name_once', violation_error_message='There is already a rule with this name. Choose another one.'),
            ),
            migrations.AddConstraint(
                model_name='alertdestination',
                constraint=models.UniqueConstraint(fields=('tenant', 'name'), name='alert_destination_name_once', violation_error_message='There is already a destination with this name. Choose another one.'),
            ),
            migrations.AddConstraint(
                model_name='alertdestination',
                constraint=models.UniqueConstraint(condition=models.Q(('tenant', None)), fields=('name',), name='hub_alert_destination_name_once', violation_error_message='There is already a destination with this name. Choose another one.'),
            ),
            migrations.AddIndex(
                model_name='alertdelivery',
                index=models.Index(condition=models.Q(('status', 'pending')), fields=['next_attempt_at'], name='delivery_due'),
            ),
            migrations.AddIndex(
                model_name='alertdelivery',
                index=models.Index(fields=['created_at'], name='delivery_by_time'),
            ),
            migrations.AddIndex(
                model_name='alert',
                index=models.Index(fields=['rule', 'subject', '-notified_at'], name='alert_by_rule'),
            ),
            migrations.AddIndex(
                model_name='alert',
                index=models.Index(fields=['fired_at'], name='alert_by_time'),
            ),
            migrations.AddConstraint(
                model_name='alert',
                constraint=models.UniqueConstraint(condition=models.Q(('resolved_at', None)), fields=('rule', 'subject'), name='alert_open_once'),
            ),
            migrations.AddConstraint(
                model_name='tenantscope',
                constraint=models.UniqueConstraint(fields=('tenant', 'name'), name='one_scope_of_a_name'),
            ),
            migrations.AddConstraint(
                model_name='tool',
                constraint=models.UniqueConstraint(fields=('tenant', 'name'), name='tool_name_once_per_tenant'),
            ),
            migrations.AddConstraint(
                model_name='tool',
                constraint=models.UniqueConstraint(condition=models.Q(('operation', ''), _negated=True), fields=('source', 'operation'), name='tool_once_per_operation'),
            ),
            migrations.AddIndex(
                model_name='call',
                index=models.Index(fields=['tenant', 'started_at'], name='call_by_tenant'),
            ),
            migrations.AddIndex(
                model_name='call',
                index=models.Index(fields=['tenant', 'tool_name', 'started_at'], name='call_by_tool'),
            ),
            migrations.AddIndex(
                model_name='call',
                index=models.Index(condition=models.Q(('outcome', 'ok'), _negated=True), fields=['tenant', 'outcome', 'started_at'], name='call_by_outcome'),
            ),
            migrations.AddConstraint(
                model_name='toolrevision',
                constraint=models.UniqueConstraint(fields=('tool', 'number'), name='revision_number_once_per_tool'),
            ),
            migrations.AddConstraint(
                model_name='toolset',
                constraint=models.UniqueConstraint(fields=('tenant', 'name'), name='toolset_name_once_per_tenant'),
            ),
            migrations.AddConstraint(
                model_name='upstream',
                constraint=models.UniqueConstraint(fields=('tenant', 'name'), name='upstream_name_once_per_tenant'),
            ),
            migrations.AddIndex(
                model_name='upstreamcredential',
                index=models.Index(condition=models.Q(('refresh_at__isnull', False)), fields=['refresh_at'], name='credential_to_refresh'),
            ),
            migrations.AddConstraint(
                model_name='upstreamcredential',
                constraint=models.UniqueConstraint(condition=models.Q(('key', None), ('person', None)), fields=('upstream',), name='one_credential_per_tenant'),
            ),
            migrations.AddConstraint(
                model_name='upstreamcredential',
                constraint=models.UniqueConstraint(fields=('upstream', 'key'), name='one_credential_per_key'),
            ),
            migrations.AddConstraint(
                model_name='upstreamcredential',
                constraint=models.UniqueConstraint(fields=('upstream', 'person'), name='one_credential_per_person'),
            ),
            migrations.AddConstraint(
                model_name='upstreamcredential',
                constraint=models.CheckConstraint(condition=models.Q(('key', None), ('person', None), _connector='OR'), name='credential_of_one_owner'),
            ),
            migrations.AddConstraint(
                model_name='upstreamitem',
                constraint=models.UniqueConstraint(fields=('upstream', 'kind', 'name'), name='item_once_per_upstream'),
            ),
            migrations.AddConstraint(
                model_name='upstreamregistration',
                constraint=models.UniqueConstraint(fields=('upstream', 'issuer', 'redirect_uri'), name='one_registration_per_issuer'),
            ),
            migrations.AddIndex(
                model_name='usedassertion',
                index=models.Index(fields=['issuer', 'expires_at'], name='assertion_by_issuer'),
            ),
            migrations.AddIndex(
                model_name='usedassertion',
                index=models.Index(fields=['client', 'expires_at'], name='assertion_by_client'),
            ),
        ]),
    ]
