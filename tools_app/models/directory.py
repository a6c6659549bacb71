"""Directories: what a company's directory says of its people and groups, by SCIM (RFC 7643).

A directory belongs to an issuer, and so to one tenant. Each of its people has an identity of that issuer, whose account
was made for it.
"""

from uuid import UUID

from django.db import models
from django.utils import timezone

from tools_app.models.ids import new_id
from tools_app.models.issuers import Identity, Issuer

MAX_VALUE = 254
MAX_EMAILS = 10


class Directory(models.Model):
    """The access of a company's directory to its issuer: one token, of which only a digest is stored."""

    issuer = models.OneToOneField(Issuer, primary_key=True, on_delete=models.CASCADE, related_name="directory")
    prefix = models.CharField(max_length=20)
    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "directories"

    def __str__(self) -> str:
        return f"directory of {self.issuer}"


class DirectoryUser(models.Model):
    """A person as the directory describes them (RFC 7643, section 4.1)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    issuer = models.ForeignKey(Issuer, on_delete=models.CASCADE, related_name="directory_users")
    identity = models.OneToOneField(Identity, on_delete=models.CASCADE, related_name="directory_user")
    user_name = models.CharField(max_length=MAX_VALUE)
    user_name_key = models.CharField(max_length=MAX_VALUE, help_text="The user name as it is compared.")
    external_id = models.CharField(max_length=MAX_VALUE, blank=True)
    active = models.BooleanField(default=True)
    resource = models.JSONField(default=dict, help_text="The other attributes, as the directory gave them.")
    # Each on a line of its own, also the first and the last: RFC 7643 compares e-mails without case.
    emails_key = models.TextField(blank=True, help_text="The e-mails as they are compared.")
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [models.Index(fields=["issuer", "created_at", "id"], name="directory_user_by_age")]
        constraints = [
            models.UniqueConstraint(fields=["issuer", "user_name_key"], name="directory_user_name_once"),
            models.UniqueConstraint(
                fields=["issuer", "external_id"],
                condition=~models.Q(external_id=""),
                name="directory_user_external_id_once",
            ),
        ]

    def __str__(self) -> str:
        return self.user_name

    @property
    def tenant_id(self) -> UUID:
        """The tenant of the issuer, under which changes are recorded."""
        return self.issuer.tenant_id


class DirectoryGroup(models.Model):
    """A group of the directory with the people in it (RFC 7643, section 4.2)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    issuer = models.ForeignKey(Issuer, on_delete=models.CASCADE, related_name="directory_groups")
    display_name = models.CharField(max_length=MAX_VALUE)
    # Directories have groups of the same name.
    display_name_key = models.CharField(max_length=MAX_VALUE, help_text="The name as it is compared.")
    external_id = models.CharField(max_length=MAX_VALUE, blank=True)
    members = models.ManyToManyField(DirectoryUser, related_name="groups")
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["created_at", "id"]
        indexes = [models.Index(fields=["issuer", "display_name_key"], name="directory_group_by_name")]
        constraints = [
            models.UniqueConstraint(
                fields=["issuer", "external_id"],
                condition=~models.Q(external_id=""),
                name="directory_group_external_id_once",
            ),
        ]

    def __str__(self) -> str:
        return self.display_name

    @property
    def tenant_id(self) -> UUID:
        """The tenant of the issuer, under which changes are recorded."""
        return self.issuer.tenant_id
