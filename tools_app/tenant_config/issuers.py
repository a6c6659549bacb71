"""Issuers in a tenant's file: their problems, and how a change of one is applied.

The client secret of an issuer and the token of its directory are never in a file: they stay as they are, and a new
issuer has none until somebody sets it.
"""

from collections.abc import Iterator
from typing import Final

from django.core.exceptions import ValidationError

from tools_app.identity.issuers import saml_metadata, setup
from tools_app.models import Issuer, IssuerProtocol, IssuerUse
from tools_app.tenant_config.document import Problem
from tools_app.tenant_config.fields import ISSUERS
from tools_app.tenant_config.reader import Path
from tools_app.tenant_config.steps import Plan, Step, StepAction

# People and workloads are known by them.
FIXED_FIELDS: Final = (*setup.PROVIDER_FIELDS, "use")
FIXED: Final = "this cannot be changed. Use another name."


def faults_of(row: Issuer, path: Path) -> Iterator[Problem]:
    """Yield the problems of an issuer as the file describes it. Nothing is read from its provider."""
    stored = Issuer.objects.filter(pk=row.pk).values(*FIXED_FIELDS).first()
    for name, value in (stored or {}).items():
        if value != getattr(row, name):
            yield Problem((*path, name), FIXED)
    for name, wrong in setup.url_problems(row).items() if row.issuer else ():
        yield Problem((*path, name), wrong)
    if row.protocol == IssuerProtocol.SAML and (missing := saml_metadata.missing_extra()):
        yield Problem((*path, "protocol"), missing)
    same = Issuer.objects.filter(tenant=row.tenant_id, issuer=row.issuer, use=row.use).exclude(pk=row.pk).first()
    if same is not None:
        yield Problem((*path, "issuer"), f"This issuer is set up already, as {same.name}.")
    try:
        row.clean()
    except ValidationError as problem:
        for name, messages in problem.message_dict.items():
            yield from (Problem((*path, name), message) for message in messages)


def note_secrets(plan: Plan) -> None:
    """Note which issuers of a plan have no client secret, and refuse two of the same provider and use."""
    seen: set[tuple[str, str]] = set()
    for step in plan.steps:
        row = step.row
        if not isinstance(row, Issuer) or step.doing == StepAction.DELETE:
            continue
        if (row.issuer, row.use) in seen:
            plan.problems.append(Problem((ISSUERS.name, step.name, "issuer"), "Another row has this issuer and use."))
        seen.add((row.issuer, row.use))
        if row.use == IssuerUse.PEOPLE and row.protocol == IssuerProtocol.OIDC and not row.ciphertext:
            plan.missing_client_secrets.append(step.name)


def take(step: Step, row: Issuer) -> None:
    """Apply a step to its issuer and to everybody who came from it, in the transaction of the import."""
    if step.doing == StepAction.DELETE:
        setup.delete(row)
        return
    # Not its secret, which may have been set since the plan was made.
    setup.save(row, fields=None if step.doing == StepAction.CREATE else ISSUERS.fields)
