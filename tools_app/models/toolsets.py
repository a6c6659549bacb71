"""Toolsets: sets of tools that a tenant names, so that a key sees only those."""

from django.db import models
from django.utils import timezone

from tools_app.models.ids import new_id
from tools_app.models.tenants import Tenant
from tools_app.models.validators import ONE_LINE, validate_patterns
from tools_app.models.versioned import Versioned

MAX_TOOLSETS = 100


class Toolset(Versioned):
    """Names of tools and patterns of names. A key with a toolset uses of its tools only those that match."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="toolsets")
    name = models.CharField(max_length=80, validators=[ONE_LINE])
    description = models.CharField(max_length=500, blank=True)
    tools = models.JSONField(
        default=list,
        validators=[validate_patterns],
        help_text="Names of tools, or patterns such as report_*, as a JSON list.",
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["tenant", "name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="toolset_name_once_per_tenant")]

    def __str__(self) -> str:
        return self.name
