"""Alert rules: what is watched, from which threshold on, and who is notified."""

from types import MappingProxyType
from typing import Any, ClassVar, Final

import orjson
from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import Exists, OuterRef, QuerySet
from django.forms.widgets import Script
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from tools_app.alerts import destinations
from tools_app.alerts.admin.log import send_tests
from tools_app.alerts.models import MEASURES, Alert, AlertDelivery, AlertDestination, AlertKind, AlertRule
from tools_app.tenants import permissions
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.scoping import ScopedAdmin, TenantFilter, badge
from tools_app.web.admin.site import site
from tools_app.web.admin.times import moment

RECENT: Final = 10
FIRST_FIELDS: Final = ("tenant", "name", "kind", "enabled")
LAST_FIELDS: Final = ("quiet_minutes", "notify_resolved", "destinations")
NO_DESTINATIONS: Final = "There are none yet: add one under Alerts > Destinations, or the rule sends nothing."


def threshold_help(kind: AlertKind) -> str:
    """Return what the threshold of a kind means."""
    measure = MEASURES[kind]
    return f"Fires from this value on: {measure.lowest:,.10g} to {measure.highest:,.10g} {measure.unit}."


def own_fields(kind: AlertKind) -> list[str]:
    """Return the fields of a kind that not every kind has."""
    measure = MEASURES[kind]
    fields = {
        "threshold": measure.lowest < measure.highest,
        "window_minutes": measure.has_window,
        "min_calls": measure.has_min_calls,
        "tool_pattern": measure.has_pattern,
    }
    return [name for name, has in fields.items() if has]


def measures_as_json() -> str:
    """Return the fields and the unit of every kind for the form's script."""
    return orjson.dumps(
        {kind.value: {"fields": own_fields(kind), "help": threshold_help(kind)} for kind in MEASURES}
    ).decode()


class RuleForm(forms.ModelForm):  # type: ignore[type-arg]
    """A rule with the destinations of its own tenant."""

    class Meta:
        model = AlertRule
        fields = (*FIRST_FIELDS, "threshold", "window_minutes", "min_calls", "tool_pattern", *LAST_FIELDS)
        help_texts: ClassVar = {
            "kind": "It cannot be changed later.",
            "destinations": "Who is notified. Only destinations of the rule's tenant are valid.",
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "kind" in self.fields:
            self.fields["kind"].widget.attrs["data-kinds"] = measures_as_json()
        if "threshold" in self.fields:
            kind = AlertKind(self.instance.kind or AlertKind.ERROR_RATE)
            # unfold gives it no id, by which the field refers to it and the script finds it.
            help_text = format_html('<span id="id_threshold_helptext">{}</span>', threshold_help(kind))
            self.fields["threshold"].help_text = help_text
        if "destinations" in self.fields:
            self._narrow_destinations(self.fields["destinations"])

    def _narrow_destinations(self, field: Any) -> None:
        """Offer a saved rule the destinations of its tenant only, and say so where there are none."""
        if not self.instance._state.adding:
            field.queryset = field.queryset.filter(tenant=self.instance.tenant_id)
            field.help_text = "Who is notified."
        if not field.queryset.exists():
            field.help_text = NO_DESTINATIONS

    def clean(self) -> dict[str, Any] | None:
        """Check the number of rules, and that the destinations belong to the tenant. Raises ValidationError."""
        cleaned = super().clean() or self.cleaned_data
        if "tenant" in cleaned:
            self.instance.tenant = cleaned["tenant"]
        destinations.check_count(self.instance)
        if any(row.tenant_id != self.instance.tenant_id for row in cleaned.get("destinations", ())):
            raise ValidationError({"destinations": "Choose destinations of the rule's own tenant."})
        return cleaned


@admin.register(AlertRule, site=site)
class RuleAdmin(ScopedAdmin):
    """The alert rules of the user's tenants; those of the whole hub for superusers."""

    form = RuleForm
    list_display = ("name", "tenant", "kind", "threshold_text", "status", "enabled")
    list_filter = ("kind", "enabled", TenantFilter)
    list_select_related = ("tenant",)
    search_fields = ("name",)
    actions_detail = ("send_test",)
    deleted_with_it = (Alert, AlertDelivery)
    blank_labels = MappingProxyType({"tenant": "The whole hub"})
    empty_hint = "A rule watches error rates, durations, denials and more, and notifies its destinations."

    class Media:
        js = (Script("tools_app/alerts/kinds.js", type="module"),)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows with whether an alert is open."""
        open_alerts = Alert.objects.filter(rule=OuterRef("pk"), resolved_at=None)
        rows: QuerySet[Any] = super().get_queryset(request).annotate(is_firing=Exists(open_alerts))
        return rows

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Return all fields for a new rule, and those of its kind for an existing one."""
        if obj is None:
            return list(RuleForm.Meta.fields)
        return [*FIRST_FIELDS, *own_fields(AlertKind(obj.kind)), *LAST_FIELDS, "recent_alerts"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        fixed = super().get_readonly_fields(request, obj)
        return [*fixed, "kind", "recent_alerts"] if obj else fixed

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        """Require a tenant, except from superusers, whose rules may watch the whole hub."""
        field = super().formfield_for_foreignkey(db_field, request, **options)
        if field is not None and db_field.name == "tenant":
            field.required = not tenant_permissions_of(request).is_superuser
            field.help_text = "" if field.required else field.help_text
        return field

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        """Offer the destinations of tenants that this user administers."""
        rows = AlertDestination.objects.select_related("tenant")
        options["queryset"] = self.rows_run(request, permissions.rows_seen_by(request.user, rows))
        options["widget"] = UnfoldAdminCheckboxSelectMultipleWidget
        return super().formfield_for_manytomany(db_field, request, **options)

    def save_model(self, request: HttpRequest, obj: AlertRule, form: Any, change: bool) -> None:
        """Save the changed columns; the destinations are set by `save_related`."""
        if not change:
            obj.save()
        elif columns := [name for name in form.changed_data if name != "destinations"]:
            obj.save(update_fields=columns)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Set the destinations through the service, which records the change."""
        if "destinations" in form.cleaned_data:
            destinations.set_recipients(form.instance, list(form.cleaned_data["destinations"]))

    def has_test_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may send a test."""
        row = self.get_object(request, object_id) if object_id else None
        return self.has_change_permission(request, row)

    @button("Send test", url_path="test", permissions=["test"], icon="send")
    def send_test(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Send a test message to each enabled destination of the rule after confirmation."""
        rule = self.get_object(request, object_id)
        back = reverse("admin:tools_app_alertrule_change", args=[rule.pk])
        if request.method != "POST":
            chosen = list(rule.destinations.filter(enabled=True))
            page = {"title": "Send test messages?", "destinations": chosen, "back": back, "opts": self.opts}
            context = {**self.admin_site.each_context(request), **page}
            return TemplateResponse(request, "alerts/test.html", context)
        send_tests(request, list(rule.destinations.filter(enabled=True)), rule)
        return HttpResponseRedirect(back)

    @column("threshold")
    def threshold_text(self, row: AlertRule) -> str:
        return "-" if row.kind == AlertKind.PROCESS_DIED else f"{row.threshold:,.10g} {row.measure.unit}"

    @column("status")
    def status(self, row: Any) -> SafeString:
        if not row.enabled:
            return badge("Disabled", "warning")
        return badge("Firing", "danger") if row.is_firing else badge("OK", "success")

    @column("recent alerts")
    def recent_alerts(self, row: AlertRule) -> SafeString | str:
        alerts = list(row.alerts.all()[:RECENT])
        if not alerts:
            return "No alerts yet."
        lines = [
            (reverse("admin:tools_app_alert_change", args=[alert.pk]), alert.summary, moment(alert.fired_at))
            for alert in alerts
        ]
        return format_html_join("", '<p><a href="{}" class="underline">{}</a> ({})</p>', lines)
