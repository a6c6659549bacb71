"""Test clients of logged-in users, without a server."""

from django.contrib.auth.models import User
from django.test import Client

from tools_app.models import Membership, Role, Tenant


def browser_of(user: User) -> Client:
    """A test client logged in as this user."""
    client = Client()
    client.force_login(user)
    return client


def browser_of_admin(tenant: Tenant, name: str) -> Client:
    """A test client logged in as a new admin of a tenant."""
    user = User.objects.create_user(name)
    Membership.objects.create(user=user, tenant=tenant, role=Role.ADMIN)
    return browser_of(user)
