"""The services of a process: one of each, and new ones after a fork."""

import threading

import pytest

from tests.forks import exit_code_of_child
from tools_app.core.process.runtime import HubRuntime, Service


class Part:
    """A service that records whether it was closed."""

    def __init__(self, name: str = "part") -> None:
        self.name = name
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def part() -> Service[..., Part]:
    return Service(Part, Part.close)


def test_a_service_is_created_once_with_the_arguments_of_its_first_use(part: Service[..., Part]) -> None:
    assert part.running() is None
    first = part("first")
    assert part("second") is part() is part.running() is first
    assert first.name == "first"


def test_a_stopped_service_is_closed_and_the_next_use_creates_another(part: Service[..., Part]) -> None:
    first = part()
    part.stop()
    part.stop()
    assert first.is_closed
    assert part.running() is None
    assert part() is not first


def test_threads_that_ask_at_once_share_one() -> None:
    begin, created = threading.Barrier(8), []

    def create() -> Part:
        created.append(Part())
        return created[-1]

    shared = Service(create)

    def get_part() -> None:
        begin.wait()
        shared()

    threads = [threading.Thread(target=get_part) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(created) == 1


def test_a_service_may_use_another_while_it_is_created(part: Service[..., Part]) -> None:
    outer = Service(lambda: Part(part("inner").name))
    assert outer().name == "inner"


def test_another_runtime_has_services_of_its_own(part: Service[..., Part]) -> None:
    first = part()
    with HubRuntime():
        assert part.running() is None
        part.stop()
        assert part() is not first
    assert part() is first


def test_a_forked_child_has_services_of_its_own_and_closes_none_of_its_parent(part: Service[..., Part]) -> None:
    first = part()
    assert exit_code_of_child(lambda: part.running() is None and part() is not first and not first.is_closed) == 0
    assert part() is first
