"""The endpoints that the form of an HTTP tool uses: a draft from a pasted request, secrets, and trials.

All of them are for admins of the tenant. A tenant that the user does not see is a 404, one that the user may only read
is a 403.
"""

from dataclasses import asdict
from typing import Any
from uuid import UUID

from django import forms
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_GET, require_POST

from tools_app.catalog import authoring
from tools_app.catalog.kinds.http import trials
from tools_app.catalog.kinds.http.admin.forms import TrialForm
from tools_app.catalog.kinds.http.config import parse_config
from tools_app.catalog.kinds.http.curl import MAX_PASTE_LENGTH, InvalidPaste
from tools_app.catalog.kinds.http.draft import draft_of
from tools_app.catalog.kinds.http.trials import Preview, TrialRefused
from tools_app.catalog.models import SECRET_NAME
from tools_app.catalog.shaping import shaping_of
from tools_app.catalog.tool_api.results import ToolError
from tools_app.catalog.validation.sizes import MAX_SECRET_LENGTH
from tools_app.models import Secret, Tenant, Tool
from tools_app.protocol.schema import CompiledSchema, InvalidSchema
from tools_app.tenants import permissions
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.scoping import only

MAX_SECRETS = 500
DEFAULT_TIMEOUT: float = Tool._meta.get_field("timeout_seconds").get_default()


class StoreForm(forms.Form):
    """A credential of a pasted request, and the name to store it under. The credential is read from the text again."""

    text = forms.CharField(max_length=MAX_PASTE_LENGTH, strip=False)
    position = forms.IntegerField(min_value=0, max_value=1000)
    name = forms.CharField(max_length=64, validators=[SECRET_NAME])


def urls(site: AdminSite) -> list[URLPattern]:
    """Return the URL patterns of the endpoints."""
    return [
        path("draft/", site.admin_view(require_POST(write_draft)), name="tool_draft"),
        path("secrets/", site.admin_view(require_GET(list_secrets)), name="tool_secrets"),
        path("store-secret/", site.admin_view(require_POST(store_secret)), name="tool_store_secret"),
        path("trial/", site.admin_view(require_POST(run_trial)), name="tool_trial"),
    ]


def context_of(request: HttpRequest, tool: Tool | None) -> dict[str, Any]:
    """Return what the script of the form needs to know. `tenant` is empty where the user still has to choose one."""
    tenant = tool.tenant if tool else only(permissions.tenants_run_by(request.user))
    return {
        "isNew": tool is None,
        "tenant": str(tenant.pk) if tenant else "",
        "draftUrl": reverse("admin:tool_draft"),
        "secretsUrl": reverse("admin:tool_secrets"),
        "storeUrl": reverse("admin:tool_store_secret"),
        "addSecretUrl": reverse("admin:tools_app_secret_add"),
        "trialUrl": reverse("admin:tool_trial"),
        # The page of a tenant, with TENANT for its id, for those who can change its networks.
        "networksUrl": f"{reverse('admin:tools_app_tenant_change', args=['TENANT'])}#id_allowed_networks"
        if tenant_permissions_of(request).is_superuser
        else "",
    }


@never_cache
@sensitive_post_parameters()
@sensitive_variables()
def write_draft(request: HttpRequest) -> HttpResponse:
    """Return the fields of a tool for a pasted cURL command or URL, without its credentials."""
    if not tenant_permissions_of(request).is_admin_anywhere:
        raise PermissionDenied
    try:
        draft = draft_of(request.POST.get("text", ""))
    except InvalidPaste as problem:
        return _problem(str(problem))
    listed = [{"place": one.place, "name": one.name, "stored": not one.value} for one in draft.credentials]
    values = [asdict(value) for value in draft.values]
    return JsonResponse({"fields": draft.fields, "credentials": listed, "values": values, "notes": draft.notes})


@never_cache
def list_secrets(request: HttpRequest) -> HttpResponse:
    """Return the names of a tenant's secrets."""
    tenant = _tenant_run(request, request.GET.get("tenant"))
    names = tenant.secrets.order_by("name").values_list("name", flat=True)[:MAX_SECRETS]
    return JsonResponse({"names": list(names)})


@never_cache
@sensitive_post_parameters()
@sensitive_variables()
def store_secret(request: HttpRequest) -> HttpResponse:
    """Store a credential of a pasted request as a new secret. An existing secret is never replaced."""
    tenant = _tenant_run(request, request.POST.get("tenant"))
    form = StoreForm(request.POST)
    if not form.is_valid():
        return _problem(" ".join(str(text) for texts in form.errors.values() for text in texts))
    name = form.cleaned_data["name"]
    try:
        credential = draft_of(form.cleaned_data["text"]).credentials[form.cleaned_data["position"]].value
    except (InvalidPaste, IndexError):
        credential = ""
    if not credential:
        return _problem("This credential is not in the pasted text any more. Paste the request again.")
    if len(credential) > MAX_SECRET_LENGTH:
        return _problem(f"The credential has more than {MAX_SECRET_LENGTH} characters.")
    try:
        Secret(tenant=tenant, name=name).full_clean(exclude=["ciphertext"])
    except ValidationError:
        return _problem(f"There is a secret {name} already. Choose another name, or remove this value.", status=409)
    authoring.set_secret(tenant, name, credential)
    return JsonResponse({"name": name})


@never_cache
def run_trial(request: HttpRequest) -> HttpResponse:
    """Send the request of an unsaved definition once, and return the request and its response.

    Faults of the definition are returned by field, and those of the arguments by path.
    """
    tenant = _tenant_run(request, request.POST.get("tenant"))
    form = TrialForm(request.POST)
    if not form.is_valid():
        return JsonResponse({"errors": {name: [str(text) for text in texts] for name, texts in form.errors.items()}})
    chosen = form.cleaned_data
    try:
        problems = CompiledSchema(chosen["input_schema"]).problems(chosen["arguments"])
    except InvalidSchema as problem:
        return JsonResponse({"faults": [{"field": "", "message": str(problem)}]})
    if problems:
        return JsonResponse({"faults": [{"field": one.field, "message": one.message} for one in problems]})
    shaping = shaping_of(form.instance)
    preview = Preview(tenant.pk, shaping, chosen["output_schema"]) if shaping else None
    seconds = chosen["timeout_seconds"] or DEFAULT_TIMEOUT
    try:
        trial = trials.try_request(
            tenant, chosen["name"], parse_config(form.config), chosen["arguments"], seconds, preview=preview
        )
    except (ToolError, TrialRefused) as problem:
        return JsonResponse({"problem": str(problem)})
    shown = asdict(trial)
    if trial.reply is not None:
        shown["reply"]["success"] = trial.reply.is_success
    return JsonResponse(shown)


def _tenant_run(request: HttpRequest, tenant_id: str | None) -> Tenant:
    """Return a tenant that this user administers. Raises Http404 if not accessible, PermissionDenied if read-only."""
    try:
        tenant = Tenant.objects.filter(pk=UUID(tenant_id or "")).first()
    except ValueError:
        tenant = None
    if tenant is None or not tenant_permissions_of(request).sees(tenant.pk):
        raise Http404("Tenant not found.")
    if not tenant_permissions_of(request).changes(tenant.pk):
        raise PermissionDenied
    return tenant


def _problem(message: str, status: int = 400) -> JsonResponse:
    return JsonResponse({"problem": message}, status=status)
