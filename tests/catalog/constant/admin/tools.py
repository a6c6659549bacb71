"""The page of a constant."""

from typing import Any

from django import forms

from tools_app.catalog.admin.base import Fieldsets
from tools_app.catalog.admin.tool_pages import ToolPage, WrittenToolForm
from tools_app.models import Tool


class ConstantForm(WrittenToolForm):
    answer = forms.CharField()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.initial |= self.instance.config

    def clean(self) -> dict[str, Any] | None:
        self.instance.kind, self.instance.config = "constant", {"answer": self.cleaned_data.get("answer")}
        return super().clean()


class ConstantPage(ToolPage):
    form = ConstantForm
    add_title = "Add constant"

    def fieldsets(self, _tool: Tool | None) -> Fieldsets:
        return [(None, {"fields": ("tenant", "name", "enabled", "answer", "input_schema", "task", "timeout_seconds")})]


PAGE = ConstantPage()
