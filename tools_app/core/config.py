"""Cached Django settings: each access to `django.conf.settings` costs a microsecond.

Values are cached on first access. The cache is cleared when a test overrides a setting (`setting_changed`).
"""

from typing import Any

from django.conf import settings
from django.core.signals import setting_changed


class Config:
    """Settings by name, as in `django.conf.settings`."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(settings, name)
        self.__dict__[name] = value
        return value


config = Config()


def _forget(**_changed: Any) -> None:
    config.__dict__.clear()


setting_changed.connect(_forget)
