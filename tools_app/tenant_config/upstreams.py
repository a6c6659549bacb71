"""Upstreams in a tenant's file: their problems, the secrets that they name, and how a change of one is applied.

A file has the settings of an upstream, and nothing of what it offers: accepting a definition is a decision about what
the server lists now. Nor has it what the operator approved, so that a file cannot allow a command or an address.
"""

from collections.abc import Iterator

from django.core.exceptions import ValidationError

from tools_app.catalog.kinds import templates
from tools_app.catalog.kinds.templates import BadTemplate
from tools_app.models import Upstream
from tools_app.tenant_config.document import Problem
from tools_app.tenant_config.fields import UPSTREAMS
from tools_app.tenant_config.reader import Path
from tools_app.tenant_config.steps import Step, StepAction
from tools_app.upstreams import service
from tools_app.upstreams.drafts import upstream_faults


def faults_of(row: Upstream, path: Path) -> Iterator[Problem]:
    """Yield the problems of an upstream as the file describes it. It is not connected to."""
    invalid: dict[str, list[str]] = {}
    try:
        row.clean()
    except ValidationError as problem:
        invalid = dict(problem.message_dict)
    for name, messages in {**invalid, **upstream_faults(row)}.items():
        place = (*path, name) if name in UPSTREAMS.fields else path
        yield from (Problem(place, message) for message in messages)


def secrets_named_by(row: Upstream) -> set[str]:
    """Return the names of the secrets in its headers and variables. Invalid ones name none."""
    found: set[str] = {row.oauth_client_secret} - {""}
    for texts in (row.headers, row.environment):
        for text in texts.values() if isinstance(texts, dict) else ():
            try:
                found |= set(templates.parse(text).secrets) if isinstance(text, str) else set()
            except BadTemplate:
                continue
    return found


def take(step: Step, row: Upstream) -> None:
    """Apply a step to its upstream, in the transaction of the import. Deleting it deletes what it offers."""
    if step.doing == StepAction.DELETE:
        service.delete(row)
    elif step.doing == StepAction.CREATE:
        row.save()
    else:
        # Not what was approved, which may have changed since the plan was made.
        row.save(update_fields=UPSTREAMS.fields)
