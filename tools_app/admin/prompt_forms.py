"""The forms of a prompt: the messages that an admin writes, and the little that code leaves open."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from tools_app.admin.icons import icons_field
from tools_app.admin.json_field import JsonTextField
from tools_app.execution.checks.prompts import check_arguments, check_messages, names_of
from tools_app.execution.offers import prompts
from tools_app.models import Prompt, PromptKind
from tools_app.protocol.authoring_schema import SchemaProblem

NEW_MESSAGES = [{"role": "user", "text": ""}]


class PythonPromptForm(forms.ModelForm):  # type: ignore[type-arg]
    """What an admin decides about a function whose code says the rest."""

    class Meta:
        model = Prompt
        fields = ("enabled",)

    def clean(self) -> dict[str, Any] | None:
        """Refuse to save a prompt that cannot be asked for. Raises ValidationError."""
        function = self.instance.config.get("function", "")
        if function not in prompts.all_registered():
            raise ValidationError(
                f"No installed app registers the prompt {function} any more: it can be switched off, in the list of"
                " prompts, or deleted."
            )
        return super().clean()


class TemplatePromptForm(forms.ModelForm):  # type: ignore[type-arg]
    """Messages with placeholders."""

    arguments = JsonTextField(
        kind=list,
        empty=list,
        check=check_arguments,
        required=False,
        rows=10,
        help_text='What people fill in, e.g. [{"name": "city", "description": "Where?", "required": true, "values":'
        ' ["Bern", "Oslo"]}]. Clients suggest the values.',
    )
    messages = JsonTextField(
        kind=list,
        rows=14,
        help_text='E.g. [{"role": "user", "text": "What is the weather in {city}?"}]. The role is user or assistant;'
        " {city} stands for the argument of that name.",
    )

    icons = icons_field()

    class Meta:
        model = Prompt
        fields = ("tenant", "name", "title", "description", "enabled", "icons", "arguments", "messages")

    def __init__(self, *args: Any, **options: Any) -> None:
        if not options.get("instance"):
            options["initial"] = {"messages": NEW_MESSAGES, **(options.get("initial") or {})}
        super().__init__(*args, **options)
        self.fields["messages"].check = self._check_messages  # type: ignore[attr-defined]

    def clean_name(self) -> str:
        """The name. Raises ValidationError if another prompt of the same tenant has it."""
        name: str = self.cleaned_data["name"]
        # The tenant of a prompt that exists is no field of the form, so the model does not look.
        row = self.instance
        if row.tenant_id and Prompt.objects.filter(tenant=row.tenant_id, name=name).exclude(pk=row.pk).exists():
            raise ValidationError("This tenant has another prompt of this name.")
        return name

    def clean_messages(self) -> list[Any]:
        """The messages. Raises ValidationError if there are none."""
        messages: list[Any] = self.cleaned_data["messages"]
        if not messages:
            raise ValidationError("Write at least one message.")
        return messages

    def clean(self) -> dict[str, Any] | None:
        """Mark the prompt as one that is written here."""
        self.instance.kind = PromptKind.TEMPLATE
        return super().clean()

    def _check_messages(self, messages: list[Any]) -> list[SchemaProblem]:
        # The arguments were checked before; of those that are wrong, the names are not known.
        arguments = self.cleaned_data.get("arguments")
        return check_messages(messages, None if arguments is None else names_of(arguments))
