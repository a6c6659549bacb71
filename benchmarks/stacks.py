"""Hubs that run: embedded, in one process over SQLite, and scaled, over PostgreSQL and Redis with a Celery worker."""

import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import redis

from benchmarks import ask, contestants, databases, hub, processes, workloads
from benchmarks.contestants import Contestant
from benchmarks.hub import Hub
from benchmarks.plan import Plan
from benchmarks.processes import Running

WORKER = [sys.executable, "-m", "celery", "-A", "mcphub", "worker", "--pool", "threads", "--concurrency", "8"]


@dataclass(frozen=True)
class Stack:
    """A hub that runs: `web` is loaded, and an admin works at `pages`, another process where there are two."""

    label: str
    hub: Hub
    web: Running
    pages: Running


@contextmanager
def embedded(plan: Plan) -> Iterator[Stack]:
    """`manage.py up`: Daphne, a worker in threads, SQLite."""
    own = plan.new_hub()
    with _serving(plan, contestants.hub_on_daphne(own)) as web:
        yield Stack("embedded (`up`: Daphne, SQLite)", own, web, web)


@contextmanager
def alone(plan: Plan) -> Iterator[Stack]:
    """One process of uvicorn over SQLite."""
    own = plan.new_hub()
    with _serving(plan, contestants.hub_on_uvicorn(own)) as web:
        yield Stack("uvicorn, SQLite", own, web, web)


@contextmanager
def scaled(plan: Plan, *, worker: bool) -> Iterator[Stack]:
    """Two processes of uvicorn, PostgreSQL, Redis and, if it is wanted, a Celery worker. Raises NoDatabase."""
    with ExitStack() as stack:
        url = stack.enter_context(databases.fresh(plan.database_url))
        unique = stack.enter_context(name_in_redis(plan))
        settings = {"REDIS_URL": plan.redis_url, "MCPHUB_PREFIX": unique}
        own = hub.prepare(plan.new_folder(), DATABASE_URL=url, MCPHUB_SECRET_KEY=unique * 2, **settings)
        one = contestants.hub_on_uvicorn(own)
        web, pages = (stack.enter_context(_serving(plan, one)) for _ in range(2))
        if worker:
            command = [*WORKER, "--hostname", f"{unique}@%h", "--loglevel", "WARNING"]
            stack.enter_context(processes.started(command, own.environment, plan.cores.server, plan.new_folder()))
            # Answered by the worker, so it runs.
            ask.check(web.port, workloads.REPORT_IN_WORKER, workloads.REPORT_IN_WORKER.request(own.key))
        yield Stack("scaled (uvicorn, PostgreSQL, Redis)", own, web, pages)


@contextmanager
def name_in_redis(plan: Plan) -> Iterator[str]:
    """A unique prefix of names in Redis. What has it is deleted in the end."""
    name = f"benchmark-{uuid.uuid4().hex}"
    yield name
    with redis.Redis.from_url(plan.redis_url) as server:
        for key in server.scan_iter(f"*{name}*"):
            server.delete(key)


@contextmanager
def _serving(plan: Plan, one: Contestant) -> Iterator[Running]:
    with processes.started(one.command, one.environment, plan.cores.server, plan.new_folder()) as web:
        web.wait_for("/readyz")
        yield web
