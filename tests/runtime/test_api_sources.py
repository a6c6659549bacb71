"""Documents of API sources are read by the hub's worker."""

from collections.abc import Callable
from typing import Any

import orjson

from tests.catalog.openapi.documents import document, get
from tests.web_services import Service, http_response, serve
from tools_app.models import ApiSource, ApiSourceRevision, RevisionState, Tenant
from tools_app.runtime import api_sources
from tools_app.server.embedded import EmbeddedHub

__all__ = ["serve"]


def test_a_worker_fetches_and_reads_the_document(
    hub: EmbeddedHub, serve: Callable[..., Service], eventually: Callable[..., Any]
) -> None:
    service = serve(http_response(200, orjson.dumps(document({"/a": get()})), "application/json"))
    tenant = Tenant.objects.create(slug="acme", name="Acme", allowed_networks=["127.0.0.0/8"])
    source = ApiSource.objects.create(tenant=tenant, name="api", url=f"{service.url}/openapi.json")

    revision = api_sources.refresh(source, None)

    def read() -> ApiSourceRevision | None:
        return ApiSourceRevision.objects.filter(pk=revision.pk).exclude(state=RevisionState.PENDING).first()

    found = eventually(read)
    assert (found.state, found.operations, found.title) == (RevisionState.READY, 1, "T")


def test_an_answer_that_is_no_document_is_told(
    hub: EmbeddedHub, serve: Callable[..., Service], eventually: Callable[..., Any]
) -> None:
    service = serve(http_response(404))
    tenant = Tenant.objects.create(slug="acme", name="Acme", allowed_networks=["127.0.0.0/8"])
    source = ApiSource.objects.create(tenant=tenant, name="api", url=service.url)

    revision = api_sources.refresh(source, None)

    found = eventually(lambda: ApiSourceRevision.objects.filter(pk=revision.pk, state=RevisionState.FAILED).first())
    assert found.problem == "HTTP 404 for the URL of the document."
