"""Prompts: messages with placeholders that an admin writes, and Python functions."""

from drf_spectacular.utils import OpenApiExample, extend_schema_serializer

from tools_app.api.v1.fields import Choice, JsonObject, JsonObjects
from tools_app.api.v1.offers import Faults, OfferRow, OfferView
from tools_app.api.v1.rows import TenantField
from tools_app.api.v1.scoped import OfferQuery
from tools_app.execution import authoring
from tools_app.execution.checks.offers import prompt_faults
from tools_app.models import Prompt, PromptKind

MESSAGES = OpenApiExample(
    "Messages",
    request_only=True,
    value={
        "tenant": "demo",
        "name": "weather",
        "kind": "template",
        "arguments": [{"name": "city", "required": True, "values": ["Bern", "Oslo"]}],
        "messages": [{"role": "user", "text": "What is the weather in {city}?"}],
    },
)


@extend_schema_serializer(examples=[MESSAGES])
class PromptRow(OfferRow):
    """A prompt that clients offer to their users."""

    tenant = TenantField()
    icons = JsonObjects(required=False, help_text="Objects of src, mimeType and sizes.")
    arguments = JsonObjects(required=False, help_text="Objects of name, description, required and values.")
    messages = JsonObjects(
        required=False, help_text="Objects of role (user, assistant) and text, in which `{name}` is an argument."
    )
    config = JsonObject(required=False, help_text='Of a Python function: `{"function": NAME}`.')

    class Meta:
        model = Prompt
        fields = (
            "id",
            "tenant",
            "name",
            "kind",
            "enabled",
            "title",
            "description",
            "icons",
            "arguments",
            "messages",
            "config",
            "created_at",
            "updated_at",
        )
        fixed = ("tenant", "kind")

    def adopt(self, row: Prompt) -> None:
        """Copy what the code declares."""
        authoring.adopt_prompt(row)

    def faults(self, row: Prompt) -> Faults:
        """What is wrong with messages that are written by an admin."""
        return prompt_faults(row)


class PromptsQuery(OfferQuery):
    """By tenant, name, kind, and whether it is switched on."""

    searched = ("name", "title", "description")

    kind = Choice(PromptKind.choices, required=False, help_text="Where its messages come from.")


class Prompts(OfferView):
    """The prompts of tenants: messages with placeholders, and Python functions."""

    queryset = Prompt.objects.select_related("tenant")
    serializer_class = PromptRow
    query_class = PromptsQuery

    def save(self, row: Prompt) -> Prompt:
        """Write the prompt."""
        return authoring.save_prompt(row)
