"""Fixtures that start hubs in processes of their own."""

from tests.processes.hub import environment, manage, migrated, server, up

__all__ = ["environment", "manage", "migrated", "server", "up"]
