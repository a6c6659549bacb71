"""API sources: OpenAPI documents whose operations are tools of a tenant, with the revisions of each document."""

import re
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, RegexValidator
from django.db import models
from django.utils import timezone

from tools_app.catalog.kinds.http.config import ConfigProblem
from tools_app.catalog.kinds.openapi.config import checked_base
from tools_app.catalog.kinds.openapi.documents.selection import faults_of
from tools_app.catalog.models import SECRET_NAME
from tools_app.catalog.versioned import Versioned
from tools_app.core.http.urls import InvalidUrl, Url, parse_url
from tools_app.core.ids import new_id
from tools_app.tenants.models import Tenant

SOURCE_NAME = RegexValidator(
    r"^[A-Za-z0-9_.-]{1,64}\Z", "Use letters, digits, underscore, hyphen and dot, at most 64 characters."
)

MAX_CYCLE_DEPTH = 5
MAX_SOURCES = 100
# Of server variables, and of secrets.
MAX_ENTRIES = 50
MAX_VALUE_LENGTH = 500


class RevisionState(models.TextChoices):
    """Whether the document of a revision was read."""

    PENDING = "pending", "Being read"
    READY = "ready", "Ready"
    FAILED = "failed", "Failed"


class ApiSource(Versioned):
    """An API that an OpenAPI document describes. Without a `url`, the document is uploaded.

    `servers` and `schemes` are those of the document whose revision was applied last. `secrets` maps security schemes
    to names of the tenant's secrets.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="api_sources")
    name = models.CharField(max_length=64, validators=[SOURCE_NAME])
    url = models.CharField(
        "URL of the document", max_length=2000, blank=True, help_text="Empty: the document is uploaded."
    )
    base_url = models.CharField(
        "base URL",
        max_length=2000,
        blank=True,
        help_text="Where requests are sent. Empty: the first server that the document names.",
    )
    server_variables = models.JSONField(
        default=dict, blank=True, help_text='Values of variables in the URL of the server, such as {"region": "eu"}.'
    )
    secrets = models.JSONField(
        default=dict,
        blank=True,
        help_text='The secret that each security scheme sends, such as {"bearerAuth": "GITHUB_TOKEN"}.',
    )
    cycle_depth = models.PositiveIntegerField(
        "depth of cycles",
        default=0,
        validators=[MaxValueValidator(MAX_CYCLE_DEPTH)],
        help_text="How many levels of a schema that refers to itself are kept before it is cut, for clients that "
        "cannot follow such references. 0: it stays a reference.",
    )
    output_schemas = models.BooleanField(
        "output schemas",
        default=False,
        help_text="Import the schemas of responses too. A response that differs from its schema is then an error.",
    )
    selection = models.JSONField(
        "selected operations",
        default=list,
        blank=True,
        help_text="Patterns of the operations that are read: paths, methods with paths, tags, names or operationIds, "
        'such as ["/users/*", "GET /teams*", "tag:mail", "list_*"]. Empty: all, at most 5000.',
    )
    servers = models.JSONField(default=list, blank=True, editable=False)
    schemes = models.JSONField(default=dict, blank=True, editable=False)
    revision = models.PositiveIntegerField("applied revision", default=0, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["tenant", "name"]
        verbose_name = "API source"
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="source_name_once_per_tenant")]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Raise ValidationError for settings that no request can be built with, and for a source too many."""
        super().clean()
        faults: dict[str, list[str]] = {}
        for name, check in (("url", parse_url), ("base_url", checked_base)):
            if fault := _url_fault(getattr(self, name), check):
                faults[name] = [fault]
        for name in ("server_variables", "secrets"):
            if not _are_texts(getattr(self, name)):
                faults[name] = [f"Enter an object of at most {MAX_ENTRIES} names with texts as values."]
        if fault := faults_of(self.selection):
            faults["selection"] = [fault]
        unnamed = (
            []
            if "secrets" in faults
            else [
                f"{scheme}: enter the name of a secret."
                for scheme, secret in self.secrets.items()
                if not re.fullmatch(SECRET_NAME.regex, secret)
            ]
        )
        if unnamed:
            faults["secrets"] = unnamed
        same = type(self)._default_manager.filter(tenant_id=self.tenant_id)
        if self._state.adding and same.count() >= MAX_SOURCES:
            faults["name"] = [f"A tenant has at most {MAX_SOURCES} API sources. Delete one first."]
        if faults:
            raise ValidationError(faults)


def _url_fault(url: str, check: Callable[[str], Url]) -> str:
    try:
        if url:
            check(url)
    except InvalidUrl as problem:
        return f"Invalid URL: {problem}."
    except ConfigProblem as problem:
        return problem.message
    return ""


def _are_texts(value: Any) -> bool:
    if not isinstance(value, dict) or len(value) > MAX_ENTRIES:
        return False
    return all(
        isinstance(text, str) and "\x00" not in name + text and len(name) <= MAX_VALUE_LENGTH >= len(text)
        for name, text in value.items()
    )


class ApiSourceRevision(models.Model):
    """One version of a source's document. Immutable once it was read.

    `content` is the document and `parsed` its operations, both compressed.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    source = models.ForeignKey(ApiSource, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=RevisionState, default=RevisionState.PENDING)
    problem = models.TextField(blank=True)
    content = models.BinaryField(default=bytes)
    parsed = models.BinaryField(default=bytes)
    digest = models.CharField(max_length=64, blank=True)
    size = models.PositiveIntegerField(default=0)
    title = models.CharField(max_length=200, blank=True)
    version = models.CharField(max_length=200, blank=True)
    operations = models.PositiveIntegerField(default=0)
    skipped = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    claimed_at = models.DateTimeField(null=True, help_text="When a process began to read it.")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    applied_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["source", "-number"]
        verbose_name = "API source revision"
        indexes = [
            models.Index(
                fields=["created_at"], condition=models.Q(state=RevisionState.PENDING), name="revision_to_be_read"
            )
        ]
        constraints = [models.UniqueConstraint(fields=["source", "number"], name="number_once_per_source")]

    def __str__(self) -> str:
        return f"{self.source} r{self.number}"
