"""Messages about what a request refers to and is not there, with links to where it is corrected."""

from collections.abc import Iterator
from typing import Any

from django import forms
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from tools_app.catalog.kinds.http.references import ReferenceFault, reference_faults


class ReferencingForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form of a tool or resource that sends an HTTP request."""

    # Whether the user may change the networks of tenants. Set for each request.
    may_allow_networks = False

    def reference_messages(self, config: dict[str, Any]) -> Iterator[tuple[ReferenceFault, SafeString]]:
        """Yield each fault of a valid `config` that the stored row does not have already, with its message."""
        tenant = self.cleaned_data.get("tenant") or self.instance.tenant
        link = '{} <a class="underline" href="{}" target="_blank" rel="noopener">{}</a>, then save again.'
        for fault in reference_faults(tenant, config, before=self.instance.config):
            if fault.kind == "secret":
                query = urlencode({"tenant": str(tenant.pk), "name": fault.name})
                url = f"{reverse('admin:tools_app_secret_add')}?{query}"
                yield fault, format_html(link, fault.message, url, "Add it in a new tab")
            elif self.may_allow_networks:
                url = f"{reverse('admin:tools_app_tenant_change', args=[tenant.pk])}#id_allowed_networks"
                yield fault, format_html(link, fault.message, url, "Allow its network in a new tab")
            else:
                advice = "{} Ask a hub admin to allow its network under Tenant > Allowed networks."
                yield fault, format_html(advice, fault.message)
