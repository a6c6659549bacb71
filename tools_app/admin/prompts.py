"""Prompts: messages with placeholders that an admin writes, and Python functions that an app registers."""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter

from tools_app.admin.decorators import button, column
from tools_app.admin.offers import Fieldsets, OfferAdmin
from tools_app.admin.prompt_forms import PythonPromptForm, TemplatePromptForm
from tools_app.admin.scoped import TenantFilter, json_block
from tools_app.admin.site import site
from tools_app.execution import authoring
from tools_app.execution.kinds.written import PLACEHOLDER
from tools_app.execution.offers import prompts
from tools_app.models import Prompt, PromptKind, Tenant

MARK = '<strong class="text-primary-600 dark:text-primary-500">{{{}}}</strong>'
DECLARED = ("title", "description", "icons_json", "arguments_shown")


@admin.register(Prompt, site=site)
class PromptAdmin(OfferAdmin):
    """Prompts of the tenants within reach."""

    list_display = ("name", "title", "tenant", "kind_label", "enabled", "updated_at")
    list_filter = (("kind", ChoicesDropdownFilter), "enabled", TenantFilter)
    search_fields = ("name", "title", "description")
    actions_list = ("add_python_prompts", "add_prompt")
    readonly_fields = ("kind_label", "config_json", "icons_json", "arguments_shown", "messages_shown")

    def registered(self) -> Mapping[str, Any]:
        return prompts.all_registered()

    def add_code(self, request: HttpRequest, tenant: Tenant, names: list[str]) -> list[Prompt]:
        return authoring.add_code_prompts(tenant, names)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any) -> Any:
        options["form"] = PythonPromptForm if obj and obj.kind == PromptKind.PYTHON else TemplatePromptForm
        return super().get_form(request, obj, change, **options)

    def get_fieldsets(self, request: HttpRequest, obj: Prompt | None = None) -> Fieldsets:
        """The page of written messages, of a function that its code describes, or of a prompt that is only read."""
        if obj and obj.kind == PromptKind.PYTHON:
            return _python_page()
        if obj and not self.has_change_permission(request, obj):
            return _read_only_page()
        return _template_page(new=obj is None)

    def get_readonly_fields(self, request: HttpRequest, obj: Prompt | None = None) -> list[str]:
        fixed = super().get_readonly_fields(request, obj)
        return [*fixed, "name", "title", "description"] if obj and obj.kind == PromptKind.PYTHON else fixed

    def save_model(self, request: HttpRequest, obj: Prompt, form: Any, change: bool) -> None:
        authoring.save_prompt(obj)

    @button("Add Python prompts", url_path="add-python", permissions=["add"], icon="code")
    def add_python_prompts(self, request: HttpRequest) -> HttpResponse:
        """Offer functions of installed apps to a tenant that this person runs."""
        return self.python_page(request)

    @button("Add prompt", url_path="add-template", permissions=["add"], icon="chat")
    def add_prompt(self, request: HttpRequest) -> HttpResponse:
        """Go to the form of new messages."""
        return HttpResponseRedirect(reverse("admin:tools_app_prompt_add"))

    @column("icons")
    def icons_json(self, prompt: Prompt) -> SafeString:
        return json_block(prompt.icons)

    @column("arguments")
    def arguments_shown(self, prompt: Prompt) -> SafeString:
        # A template would take the `values` of an argument without any for the method of its dictionary.
        shown = [{"values": [], **argument} for argument in prompt.arguments]
        return render_to_string("admin/tools_app/prompt/arguments.html", {"arguments": shown})

    @column("messages")
    def messages_shown(self, prompt: Prompt) -> SafeString:
        """The messages as a conversation, with the placeholders in them marked."""
        shown = [{"role": message["role"], "text": _marked(message["text"])} for message in prompt.messages]
        return render_to_string("admin/tools_app/prompt/messages.html", {"messages": shown})


def _marked(text: str) -> SafeString:
    # Splitting by a pattern with one group gives texts and names by turns.
    pieces = enumerate(PLACEHOLDER.split(text))
    return format_html_join("", "{}", ((format_html(MARK, piece) if place % 2 else piece,) for place, piece in pieces))


def _template_page(*, new: bool) -> Fieldsets:
    preview: Fieldsets = [] if new else [("Preview", {"fields": ("messages_shown",)})]
    return [
        (None, {"fields": ("tenant", "name", "title", "description", "enabled", "icons")}),
        ("What it says", {"fields": ("arguments", "messages")}),
        *preview,
    ]


def _python_page() -> Fieldsets:
    said = {"description": "The function's code declares these.", "fields": ("config_json", *DECLARED)}
    return [(None, {"fields": ("tenant", "name", "kind_label", "enabled")}), ("Declared in code", said)]


def _read_only_page() -> Fieldsets:
    return [
        (None, {"fields": ("tenant", "name", "kind_label", "enabled")}),
        ("Definition", {"fields": (*DECLARED, "messages_shown")}),
    ]
