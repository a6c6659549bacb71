"""Prompts: messages with placeholders written by an admin, and Python functions."""

from drf_spectacular.utils import OpenApiExample, extend_schema_serializer

from tools_app.catalog import authoring
from tools_app.catalog.api.catalog_items import Faults, OfferRow, OfferView
from tools_app.catalog.validation.items import prompt_faults
from tools_app.models import Prompt, PromptKind
from tools_app.web.api.fields import Choice, JsonObject, JsonObjects
from tools_app.web.api.serializers import TenantField
from tools_app.web.api.viewsets import OfferQuery

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
    icons = JsonObjects(required=False, help_text="Objects with src, mimeType and sizes.")
    arguments = JsonObjects(required=False, help_text="Objects with name, description, required and values.")
    messages = JsonObjects(
        required=False, help_text="Objects with role (user or assistant) and text. `{name}` is replaced by an argument."
    )
    config = JsonObject(required=False, help_text='For a Python function: `{"function": NAME}`.')

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
        authoring.update_prompt_from_code(row)

    def faults(self, row: Prompt) -> Faults:
        """Return the problems of messages written by an admin."""
        return prompt_faults(row)


class PromptsQuery(OfferQuery):
    """Filter by tenant, name, kind, and whether the prompt is enabled."""

    searched = ("name", "title", "description")

    kind = Choice(PromptKind.choices, required=False, help_text="Source of the messages.")


class Prompts(OfferView):
    """The prompts of tenants: messages with placeholders, and Python functions."""

    queryset = Prompt.objects.select_related("tenant")
    serializer_class = PromptRow
    query_class = PromptsQuery

    def save(self, row: Prompt) -> Prompt:
        """Save the prompt."""
        return authoring.save_prompt(row)
