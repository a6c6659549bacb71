"""Messages about what a request refers to and is not there, with links to where it is corrected."""

from collections.abc import Iterator
from typing import Any

from django import forms
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from tools_app.catalog.kinds.http.references import ReferenceFault, reference_faults
from tools_app.models import Tenant


class ReferencingForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form of a tool or resource that sends an HTTP request."""

    # Whether the user may change the networks of tenants. Set for each request.
    may_allow_networks = False

    def reference_messages(self, config: dict[str, Any]) -> Iterator[tuple[ReferenceFault, SafeString]]:
        """Yield each fault of a valid `config` that the stored row does not have already, with its message."""
        tenant = self.cleaned_data.get("tenant") or self.instance.tenant
        for fault in reference_faults(tenant, config, before=self.instance.config):
            yield fault, self._explained(fault, tenant)

    def _explained(self, fault: ReferenceFault, tenant: Tenant) -> SafeString:
        """Return the message of a fault, with a link to where it is corrected. The link opens a new tab."""
        if fault.kind == "secret":
            query = urlencode({"tenant": str(tenant.pk), "name": fault.name})
            return _linked(fault.message, f"{reverse('admin:tools_app_secret_add')}?{query}", "Add it in a new tab")
        if self.may_allow_networks:
            url = f"{reverse('admin:tools_app_tenant_change', args=[tenant.pk])}#id_allowed_networks"
            return _linked(fault.message, url, "Allow its network in a new tab")
        return format_html("{} Ask a hub admin to allow its network under Tenant > Allowed networks.", fault.message)


def _linked(message: str, url: str, label: str) -> SafeString:
    link = '{} <a class="underline" href="{}" target="_blank" rel="noopener">{}</a>, then save again.'
    return format_html(link, message, url, label)
