"""Workers as the documentation starts them read documents of API sources, also before their first call."""

import pytest

from tests.services.stack import START_SECONDS, Stack, eventually

ADD = """
from tools_app.catalog.kinds.openapi.sources import documents
from tools_app.models import ApiSource, Tenant
source = ApiSource.objects.create(tenant=Tenant.objects.get(), name="{name}")
text = b'{{"openapi": "3.1.0", "info": {{"title": "T", "version": "1"}}, "paths": {{}}}}'
documents.add_revision(source, data=text)
"""


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_worker_reads_what_waits(stack: Stack, pool: str) -> None:
    stack.shell(ADD.format(name=pool))
    worker = stack.worker("--pool", pool)
    states = "SELECT DISTINCT state FROM tools_app_apisourcerevision"
    eventually(lambda: ("pending",) not in stack.rows(states), START_SECONDS)
    assert stack.rows(states) == [("ready",)]
    assert worker.terminate() == 0
    assert "Traceback" not in worker.output()
