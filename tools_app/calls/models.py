"""The audit log (insert-only) and the running calls (a small table that changes).

A call is in exactly one of two tables: in `RunningCall` from its intent until it is settled, then in `Call` forever.
Settling deletes the one row and inserts the other in one transaction, so the process that deletes the row decides
how the call ended.
"""

from typing import Final, NamedTuple

from django.conf import settings
from django.db import models
from django.utils import timezone

from tools_app.catalog.models import Tool
from tools_app.core.ids import new_id
from tools_app.core.packing import texts
from tools_app.core.relations import related
from tools_app.tenants.models import ApiKey, Tenant


class Session(models.Model):
    """The result of `initialize`, bound to the key that created it. Only a digest of the session id is stored."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="sessions")
    # Empty: a session of an anonymous client, in a public tenant.
    api_key = models.ForeignKey(ApiKey, null=True, on_delete=models.CASCADE, related_name="sessions")
    protocol_version = models.CharField(max_length=10)
    client_name = models.CharField(max_length=200, blank=True)
    client_version = models.CharField(max_length=100, blank=True)
    client_capabilities = models.JSONField(default=dict)
    log_level = models.CharField(max_length=10, default="info")
    subscriptions = models.JSONField(default=list, help_text="URIs of resources whose changes the client wants.")
    listener = models.UUIDField(null=True, help_text="The one of its streams that hears of changes.")
    remote_address = models.CharField(max_length=45, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    last_seen_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)
    end_reason = models.CharField(max_length=20, blank=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["tenant", "-created_at"], name="session_by_tenant"),
            models.Index(fields=["last_seen_at"], condition=models.Q(ended_at=None), name="session_by_idleness"),
            # Covers the count of open sessions. SQLite also reads the rows if a column of the condition is missing.
            models.Index(
                fields=["tenant", "last_seen_at", "ended_at"], condition=models.Q(ended_at=None), name="session_open"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.client_name or 'client'} {self.created_at:%Y-%m-%d %H:%M}"


class SessionMessage(models.Model):
    """An encrypted message from a session's client to the process that holds the session's stream (HTTP+SSE)."""

    id = models.BigAutoField(primary_key=True)
    session_id = models.UUIDField(db_index=True)
    sealed = models.BinaryField()
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.id} of {self.session_id}"


# The recorded method of a `tools/call` that came by the hub's tool `call_tool`. The record is that of the target.
TOOLS_CALL: Final = "tools/call"
BY_CALL_TOOL: Final = "tools/call (call_tool)"


def methods_like(method: str) -> list[str]:
    """Return the recorded methods that a search for `method` finds."""
    return [TOOLS_CALL, BY_CALL_TOOL] if method == TOOLS_CALL else [method]


class Outcome(models.TextChoices):
    """How a call ended. NOT_STARTED: the hub gave up and nothing ran. LOST: it may have run in part."""

    OK = "ok", "OK"
    TOOL_ERROR = "tool_error", "Tool error"
    REJECTED = "rejected", "Rejected"
    DENIED = "denied", "Denied"
    CANCELLED = "cancelled", "Cancelled"
    TIMEOUT = "timeout", "Timed out"
    NOT_STARTED = "not_started", "Not started"
    LOST = "lost", "Lost"
    INTERRUPTED = "interrupted", "Interrupted"
    INPUT_REQUIRED = "input_required", "Input required"


class CallStatus(models.TextChoices):
    """The status of a running call."""

    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    WAITING = "waiting", "Waiting for input"


class CallFacts(models.Model):
    """The facts of a call that are known from its start."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(
        Tenant, null=True, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    api_key = models.ForeignKey(
        ApiKey, null=True, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    session = models.ForeignKey(
        Session, null=True, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    tool = models.ForeignKey(
        Tool, null=True, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    tool_name = models.CharField(max_length=128, blank=True)
    tool_revision = models.PositiveIntegerField(null=True)
    method = models.CharField(max_length=100, blank=True)
    request_id = models.CharField(max_length=200, blank=True, help_text="The JSON-RPC id, as JSON.")
    protocol_version = models.CharField(max_length=10, blank=True)
    client_name = models.CharField(max_length=200, blank=True)
    client_version = models.CharField(max_length=100, blank=True)
    remote_address = models.CharField(max_length=45, blank=True)
    trace_id = models.CharField(max_length=32, blank=True, help_text="The trace that its client began, in hex.")
    started_at = models.DateTimeField(default=timezone.now)
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
        help_text="For whom the caller acted; empty where a key acted for itself.",
    )

    class Meta:
        abstract = True

    @property
    def person_name(self) -> str | None:
        """The username of the person for whom the caller acted, or the number of an account that was deleted."""
        if self.person_id is None:
            return None
        person = related(self, "person")
        return f"account {self.person_id} (deleted)" if person is None else person.get_username()


class RunningCall(CallFacts):
    """The intent of a call: durable before a tool that changes anything starts, deleted when the call is settled."""

    status = models.CharField(max_length=10, choices=CallStatus)
    background = models.BooleanField()
    owner = models.UUIDField(help_text="The process that runs it, or that queued it.")
    timeout_seconds = models.FloatField()
    cancel_requested = models.BooleanField(default=False)
    arguments = models.TextField(help_text="Redacted and capped, as the audit log will keep them.")
    sealed_arguments = models.BinaryField(null=True, help_text="Encrypted, for the worker that runs the call.")
    run_at = models.DateTimeField(null=True, help_text="When a worker began with it.")
    task_seconds = models.FloatField(null=True, help_text="How long it lives as a task; empty for no task.")
    asked = models.JSONField(default=dict, help_text="Questions of a task that waits for its client, by their keys.")
    changed_at = models.DateTimeField(default=timezone.now, help_text="When its state as a task changed last.")

    class Meta:
        ordering = ["-started_at"]

    def __str__(self) -> str:
        return f"{self.tool_name} {self.status}"

    def last_event_sequence(self) -> int:
        """Return the sequence of its last event so far; 0 without any."""
        last: int | None = CallEvent.objects.filter(call_id=self.pk).aggregate(last=models.Max("sequence"))["last"]
        return last or 0

    @property
    def is_promised(self) -> bool:
        """Whether it is a task that its client knows of, or may know of: such a task outlives its process."""
        return self.task_seconds is not None and self.changed_at > self.started_at

    @property
    def is_awaiting_input(self) -> bool:
        """Whether it is a task that no process runs, because it waits for input from its client."""
        return self.status == CallStatus.WAITING and bool(self.asked)


class Call(CallFacts):
    """A settled call or denial. HTTP status, JSON-RPC error and tool outcome are separate columns."""

    finished_at = models.DateTimeField()
    duration_us = models.PositiveBigIntegerField()
    waited_us = models.PositiveBigIntegerField(
        null=True, help_text="From its arrival until it began to run; empty where it never ran."
    )
    outcome = models.CharField(max_length=16, choices=Outcome)
    http_status = models.PositiveSmallIntegerField(null=True)
    rpc_error = models.IntegerField(null=True, help_text="The JSON-RPC error code, if the answer was one.")
    is_error = models.BooleanField(null=True, help_text="The tool's own verdict, if it gave one.")
    cause = models.TextField(blank=True, help_text="What went wrong, for the auditor; never sent to the client.")
    background = models.BooleanField(default=False)
    arguments_size = models.PositiveIntegerField(default=0)
    result_size = models.PositiveIntegerField(default=0)
    event_count = models.PositiveIntegerField(default=0)
    repeated = models.PositiveIntegerField(default=1, help_text="Denials of one kind that this row stands for.")
    writer = models.UUIDField(help_text="The process that recorded it.")
    shaped_size = models.PositiveIntegerField(
        null=True, help_text="Bytes of the answer, where the client received less than the recorded result."
    )
    chain_position = models.PositiveBigIntegerField(
        null=True, help_text="Its place among the records of its writer and tenant, from 1 on."
    )
    chain_hash = models.BinaryField(
        null=True, max_length=32, help_text="SHA-256 of the record before it in its chain, and of all that it says."
    )
    recorded_us = models.PositiveBigIntegerField(
        null=True, help_text="From its end until its record was written, without the commit."
    )
    hash_version = models.PositiveSmallIntegerField(null=True, help_text="By whose rules its hash was made.")

    class Meta:
        ordering = ["-started_at"]
        indexes = [
            # Ascending, so that a new call goes to the end of its tenant's part, which splits no page in the middle.
            models.Index(fields=["tenant", "started_at"], name="call_by_tenant"),
            models.Index(fields=["tenant", "tool_name", "started_at"], name="call_by_tool"),
            # Most calls succeed; they are found as quickly without this index.
            models.Index(
                fields=["tenant", "outcome", "started_at"],
                name="call_by_outcome",
                condition=~models.Q(outcome=Outcome.OK),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool_name or self.method or 'request'} {self.outcome}"


class Texts(NamedTuple):
    """What the audit log stores of a call's arguments and result, each as JSON text; empty if there is none."""

    arguments: str
    result: str


class CallPayload(models.Model):
    """Arguments and result of a call, apart from the index table: redacted, capped JSON text."""

    call = models.OneToOneField(
        Call, primary_key=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="payload"
    )
    arguments = models.TextField(blank=True)
    result = models.TextField(blank=True)
    packed = models.BinaryField(
        null=True, help_text="Both, compressed, where they are large; the texts above are empty then."
    )

    def __str__(self) -> str:
        return str(self.pk)

    def texts(self) -> Texts:
        """Return arguments and result, uncompressed. Raises packing.UnpackError if they cannot be decoded."""
        return Texts(*texts(self.arguments, self.result, self.packed))


class CallEvent(models.Model):
    """An event that a call sent before its result: `sequence` counts from 1 within the call, `data` is JSON text."""

    pk = models.CompositePrimaryKey("call_id", "sequence")
    call = models.ForeignKey(
        Call, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="events"
    )
    sequence = models.PositiveIntegerField()
    at = models.DateTimeField(default=timezone.now)
    kind = models.CharField(max_length=20)
    data = models.TextField()

    class Meta:
        ordering = ["call_id", "sequence"]

    def __str__(self) -> str:
        return f"{self.kind} {self.sequence}"


class CallAnswer(models.Model):
    """The whole response of a call, encrypted, kept until the waiting process has had time to read it."""

    call_id = models.UUIDField(primary_key=True)
    sealed = models.BinaryField()
    is_task = models.BooleanField(default=False)
    expires_at = models.DateTimeField(default=timezone.now, db_index=True)

    def __str__(self) -> str:
        return str(self.pk)


class CallInput(models.Model):
    """A client's response to an input request of a running call, encrypted, kept until the call has read it."""

    id = models.BigAutoField(primary_key=True)
    call_id = models.UUIDField()
    name = models.CharField(max_length=200)
    sealed = models.BinaryField()
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["call_id", "name"], name="input_once_per_call")]

    def __str__(self) -> str:
        return f"{self.name} of {self.call_id}"


class Process(models.Model):
    """A running process of the hub. `beats` grows while it lives; when it stops growing, its calls are lost."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    kind = models.CharField(max_length=10)
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    started_at = models.DateTimeField(default=timezone.now)
    beats = models.PositiveBigIntegerField(default=0)

    class Meta:
        verbose_name_plural = "processes"

    def __str__(self) -> str:
        return f"{self.kind} {self.pid}@{self.host}"


class ProcessDeath(models.Model):
    """A process of the hub that stopped without saying so, kept for a while for rules that watch for it."""

    id = models.UUIDField(primary_key=True, editable=False)
    kind = models.CharField(max_length=10)
    host = models.CharField(max_length=255)
    pid = models.PositiveIntegerField()
    died_at = models.DateTimeField(default=timezone.now, db_index=True)

    def __str__(self) -> str:
        return f"{self.kind} {self.pid}@{self.host}"


class SavedFilter(models.Model):
    """A saved search of the audit log."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_filters")
    name = models.CharField(max_length=100)
    query = models.TextField(help_text="The query string of the list.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]
        verbose_name = "saved search"
        verbose_name_plural = "saved searches"
        constraints = [models.UniqueConstraint(fields=["person", "name"], name="filter_name_once_per_person")]

    def __str__(self) -> str:
        return self.name
