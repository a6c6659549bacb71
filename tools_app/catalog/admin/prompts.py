"""Prompts and their forms: message templates written in the admin, and Python functions registered by apps."""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.forms.widgets import Script
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter

from tools_app.catalog import authoring
from tools_app.catalog import prompt_functions as prompts
from tools_app.catalog.admin.base import NOT_WRITTEN, Fieldsets, OfferAdmin, SettingsForm, WrittenForm
from tools_app.catalog.stored import PLACEHOLDER
from tools_app.catalog.validation.shapes import check_prompt_arguments, check_prompt_messages, names_of
from tools_app.models import Prompt, PromptKind, Tenant
from tools_app.protocol.authoring_schema import SchemaProblem
from tools_app.web.admin.columns import cut_column, moment_column
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.fields import ARGUMENT_ROWS_CSS, JsonTextField
from tools_app.web.admin.scoping import TenantFilter
from tools_app.web.admin.site import site

NEW_MESSAGES = [{"role": "user", "text": ""}]


class TemplatePromptForm(WrittenForm):
    """Messages with placeholders."""

    kind = PromptKind.TEMPLATE

    arguments = JsonTextField(
        kind=list,
        empty=list,
        check=check_prompt_arguments,
        required=False,
        rows=10,
        help_text='Arguments that users fill in. Example: [{"name": "city", "description": "Where?", "required": true,'
        ' "values": ["Bern", "Oslo"]}]. Clients suggest the values.',
    )
    messages = JsonTextField(
        kind=list,
        rows=14,
        help_text='Example: [{"role": "user", "text": "What is the weather in {city}?"}]. The role is user or'
        " assistant; {city} is replaced by the argument of that name.",
    )

    class Meta:
        model = Prompt
        fields = ("tenant", "name", "title", "description", "enabled", "icons", "arguments", "messages")

    class Media:
        css = {"all": ARGUMENT_ROWS_CSS}
        js = (Script("tools_app/catalog/prompt.js", type="module"),)

    def __init__(self, *args: Any, **options: Any) -> None:
        if not options.get("instance"):
            options["initial"] = {"messages": NEW_MESSAGES, **(options.get("initial") or {})}
        super().__init__(*args, **options)
        self.fields["messages"].check = self._check_messages  # type: ignore[attr-defined]

    def clean_name(self) -> str:
        """Return the name. Raises ValidationError if another prompt of the tenant has it."""
        return self.unique("name")

    def _check_messages(self, messages: list[Any]) -> list[SchemaProblem]:
        # The arguments have been validated; the names of invalid ones are unknown.
        arguments = self.cleaned_data.get("arguments")
        return check_prompt_messages(messages, None if arguments is None else names_of(arguments))


MARK = '<strong class="text-primary-600 dark:text-primary-500">{{{}}}</strong>'
DECLARED = ("title", "description", "icons_json", "arguments_shown")


@admin.register(Prompt, site=site)
class PromptAdmin(OfferAdmin):
    """Prompts of the user's tenants."""

    list_display = (
        cut_column("name", "name"),
        cut_column("title", "title"),
        "tenant",
        "kind_label",
        "enabled",
        moment_column("updated_at", "updated"),
    )
    list_filter = (("kind", ChoicesDropdownFilter), "enabled", TenantFilter)
    search_fields = ("name", "title", "description")
    empty_hint = "A prompt is a template of messages that users of a client fill in."
    actions_list = ("add_python_prompts", "add_prompt")
    readonly_fields = ("kind_label", "config_json", "icons_json", "arguments_shown", "messages_shown")

    def registered(self) -> Mapping[str, Any]:
        return prompts.all_registered()

    def add_code(self, request: HttpRequest, tenant: Tenant, names: list[str]) -> list[Prompt]:
        return authoring.add_code_prompts(tenant, names)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any) -> Any:
        options["form"] = SettingsForm if obj and obj.kind in NOT_WRITTEN else TemplatePromptForm
        return super().get_form(request, obj, change, **options)

    def get_fieldsets(self, request: HttpRequest, obj: Prompt | None = None) -> Fieldsets:
        """Return the fieldsets of a template, of a function, or of a read-only prompt."""
        if obj and obj.kind in NOT_WRITTEN:
            title, description = NOT_WRITTEN[obj.kind]
            declared = {"description": description, "fields": ("config_json", *DECLARED)}
            return [(None, {"fields": ("tenant", "name", "kind_label", "enabled")}), (title, declared)]
        if obj and not self.has_change_permission(request, obj):
            return [
                (None, {"fields": ("tenant", "name", "kind_label", "enabled")}),
                ("Definition", {"fields": (*DECLARED, "messages_shown")}),
            ]
        preview: Fieldsets = [("Preview", {"fields": ("messages_shown",)})] if obj else []
        return [
            (None, {"fields": ("tenant", "name", "title", "description", "enabled", "icons")}),
            ("Messages", {"fields": ("arguments", "messages")}),
            *preview,
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Prompt | None = None) -> list[str]:
        fixed = super().get_readonly_fields(request, obj)
        return [*fixed, "name", "title", "description"] if obj and obj.kind in NOT_WRITTEN else fixed

    def save_model(self, request: HttpRequest, obj: Prompt, form: Any, change: bool) -> None:
        authoring.save_prompt(obj)

    @button("Add Python prompts", url_path="add-python", permissions=["add"], icon="code")
    def add_python_prompts(self, request: HttpRequest) -> HttpResponse:
        """Add registered functions to a tenant that this user administers."""
        return self.python_page(request)

    @button("Add prompt", url_path="add-template", permissions=["add"], icon="chat")
    def add_prompt(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the form of a new template."""
        return HttpResponseRedirect(reverse("admin:tools_app_prompt_add"))

    @column("arguments")
    def arguments_shown(self, prompt: Prompt) -> SafeString:
        # For an argument without `values`, a template would look up the dictionary's method of this name.
        shown = [{"values": [], **argument} for argument in prompt.arguments]
        return render_to_string("catalog/prompt/arguments.html", {"arguments": shown})

    @column("messages")
    def messages_shown(self, prompt: Prompt) -> SafeString:
        """Return the messages as a conversation with highlighted placeholders."""
        shown = []
        for message in prompt.messages:
            # Splitting by a pattern with one group alternates texts and names.
            pieces = enumerate(PLACEHOLDER.split(message["text"]))
            marked = ((format_html(MARK, piece) if place % 2 else piece,) for place, piece in pieces)
            shown.append({"role": message["role"], "text": format_html_join("", "{}", marked)})
        return render_to_string("catalog/prompt/messages.html", {"messages": shown})
