"""Checks of the hub's contents: tools without code, expired keys, unsigned records."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.cache import cache as default_cache
from django.core.cache.backends.locmem import LocMemCache
from django.utils import timezone

from tools_app.audit.checkpoints import statements, witness
from tools_app.audit.verification.claims import missing_from
from tools_app.audit.verification.report import Report
from tools_app.catalog import authoring
from tools_app.catalog.kinds import base as kinds
from tools_app.catalog.kinds.django.view_calls import ViewCall
from tools_app.catalog.kinds.python import runner as python
from tools_app.core import encryption
from tools_app.doctor import configuration
from tools_app.doctor.findings import Finding, grade, ok, problem
from tools_app.identity.issuers import saml_metadata
from tools_app.models import ApiKey, Call, Checkpoint, Issuer, IssuerProtocol, Secret, Tenant, Tool
from tools_app.protocol.schema import CompiledSchema, InvalidSchema
from tools_app.protocol.tool_schemas import arguments_schema, result_schema
from tools_app.tenants.keys import expiring_soon, without_connections

MAX_NAMED = 5
MAX_CHECKPOINT_AGE = timedelta(minutes=15)


def tools() -> Iterator[Finding]:
    """Check for tools that no installed app registers."""
    rows = Tool.objects.filter(kind__in=kinds.following_code(), enabled=True, tenant__is_active=True)
    rows = rows.select_related("tenant")
    missing = [f"{row.tenant.slug}/{row.name}" for row in rows if any(kinds.kind_of(row.kind).faults(row))]
    yield grade(
        "tools",
        f"no installed app registers {_name_list(missing)}" if missing else "the code of all tools is installed",
        "Install the app and add it to MCPHUB_APPS, or disable these tools in the admin.",
        is_problem=bool(missing),
    )


def saml() -> Iterator[Finding]:
    """Check that the extra for SAML is installed, if an issuer needs it."""
    if Issuer.objects.filter(protocol=IssuerProtocol.SAML, is_active=True).exists():
        missing = saml_metadata.missing_extra()
        message = missing or "the extra for SAML is installed"
        yield grade("saml", message, saml_metadata.INSTALL_COMMAND, is_problem=bool(missing))


def throttles() -> Iterator[Finding]:
    """Check for views of apps whose throttles count in each process alone."""
    views = {name: tool.run for name, tool in python.all_registered().items() if isinstance(tool.run, ViewCall)}
    throttled = {name: view.throttles for name, view in views.items() if view.throttles}
    per_process = [
        name for name, throttle_classes in throttled.items() if any(map(_counts_per_process, throttle_classes))
    ]
    if throttled:
        yield grade(
            "throttles",
            f"each process counts the calls of {_name_list(per_process)} by itself"
            if per_process
            else "all processes count together",
            "Give the throttle classes of these views a cache that all processes share: docs/django.md, Throttles.",
            is_warning=bool(per_process) and configuration.is_scaled(),
        )


def _counts_per_process(throttle: Any) -> bool:
    cache = getattr(throttle, "cache", None)
    if cache is default_cache:
        return "locmem" in str(settings.CACHES["default"]["BACKEND"])
    return isinstance(cache, LocMemCache)


def tool_schemas() -> Iterator[Finding]:
    """Check for written tools that are left out because a stored schema is no longer valid."""
    non_code_tools = Tool.objects.exclude(kind__in=kinds.following_code()).defer("generated")
    rows = non_code_tools.filter(enabled=True, tenant__is_active=True).select_related("tenant")
    faults = {}
    for row in rows.iterator():
        try:
            lenient = kinds.kind_of(row.kind).lenient
            CompiledSchema(arguments_schema(row.input_schema), lenient=lenient)
            CompiledSchema(result_schema(row.output_schema), lenient=lenient)
        except InvalidSchema as error:
            faults[f"{row.tenant.slug}/{row.name}"] = str(error)
    first_fault = next(iter(faults.values()), "")
    yield grade(
        "tool schemas",
        f"invalid, not offered to clients: {_name_list(list(faults))}: {first_fault}" if faults else "all valid",
        "Correct the schemas of these tools in the admin, or disable the tools.",
        is_problem=bool(faults),
    )


def secrets() -> Iterator[Finding]:
    """Check for secrets of tenants that the current secret key cannot decrypt."""
    undecryptable = []
    for secret in Secret.objects.select_related("tenant").iterator():
        try:
            authoring.decrypt_secret(secret)
        except encryption.DecryptionError:
            undecryptable.append(f"{secret.tenant.slug}/{secret.name}")
    yield grade(
        "secrets",
        f"encrypted with another key: {_name_list(undecryptable)}" if undecryptable else "all can be decrypted",
        "Add the key that encrypted them to MCPHUB_SECRET_KEY_FALLBACKS, or set them again in the admin.",
        is_problem=bool(undecryptable),
    )


def keys() -> Iterator[Finding]:
    """Check for API keys that have expired or expire soon."""
    now = timezone.now()
    valid = without_connections(ApiKey.objects.filter(revoked_at=None, tenant__is_active=True).select_related("tenant"))
    for about, rows, fix in (
        (
            "expired keys",
            valid.filter(expires_at__lte=now, replaced_by=None),
            "Issue new keys, and revoke these in the admin.",
        ),
        (
            "expiring keys",
            expiring_soon(valid),
            "Rotate them in the admin or with manage.py rotate_key before they expire.",
        ),
    ):
        names = [f"{row.tenant.slug}/{row.name}" for row in rows]
        yield grade(about, _name_list(names) if names else "none", fix, is_warning=bool(names))


def people() -> Iterator[Finding]:
    """Check that at least one user can sign in and see everything."""
    count = get_user_model().objects.filter(is_superuser=True, is_active=True).count()
    yield grade("admins", f"{count} superusers", "Create one: python manage.py createsuperuser.", is_warning=count == 0)
    public = list(Tenant.objects.filter(is_active=True, is_public=True).values_list("slug", flat=True))
    yield ok("public tenants", _name_list(public) if public else "none")


def checkpoints() -> Iterator[Finding]:
    """Check that the newest records are covered by a signed checkpoint."""
    last_signed = Checkpoint.objects.order_by("-made_at").values_list("made_at", flat=True).first()
    newest = Call.objects.order_by("-id").values_list("finished_at", flat=True).first()
    if newest is None:
        yield ok("checkpoints", "no records yet")
        return
    lag = newest - last_signed if last_signed else timedelta.max
    yield grade(
        "checkpoints",
        f"last checkpoint at {last_signed:%Y-%m-%d %H:%M} UTC" if last_signed else "no checkpoint yet",
        "See the log of the hub's processes. Records cannot be verified until a checkpoint signs them.",
        is_warning=lag > MAX_CHECKPOINT_AGE,
    )


def witness_file() -> Iterator[Finding]:
    """Check that the database contains all records in this host's witness file."""
    report = Report()
    try:
        lines = witness.lines()
        missing = missing_from(lines, statements.known_keys(), report)
    except OSError as error:
        yield problem(
            "witness file", f"{witness.path()}: {error.strerror}", "Allow the hub's user to read and write it."
        )
        return
    if missing.numbers:
        fix = "Run manage.py verify_audit; after a deliberate restore, manage.py accept_restore --reason TEXT."
        yield problem("witness file", missing.message(), fix)
        return
    is_missing = bool(not lines and Checkpoint.objects.exists())
    yield grade(
        "witness file",
        f"{witness.path()} is missing, although the database has checkpoints"
        if is_missing
        else f"the database contains all {len(lines)} checkpoints of the file",
        "It is created with the next checkpoint. If it existed before, it was deleted.",
        is_warning=is_missing or bool(report.findings),
    )


def _name_list(names: Sequence[str]) -> str:
    hidden_count = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {hidden_count} more" if hidden_count > 0 else "")
