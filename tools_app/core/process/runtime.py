"""The services that a process has one of, such as its recorder: created on first use and renewed after a fork.

    current = Service(Recorder, Recorder.close)  # in a module
    current().submit(entry)                      # the recorder of this process
    current.stop()                               # the next call creates another one

`runtime.process` starts and stops the services of a process in order.
"""

import os
from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, ParamSpec, Self, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class HubRuntime:
    """The services of one process, by their declaration. Tests enter one of their own instead of the process's."""

    def __init__(self) -> None:
        self.instances: dict[Service[..., Any], Any] = {}
        # A service may create another one.
        self.starting = RLock()

    def __enter__(self) -> Self:
        global _runtime
        self._replaced, _runtime = _runtime, self
        return self

    def __exit__(self, *_problem: object) -> None:
        global _runtime  # noqa: PLW0603 - as below
        _runtime = self._replaced


class Service(Generic[P, T]):
    """A service of the runtime. Calling it returns the instance of this process.

    `create` runs on first use, with the arguments of that call. `close` ends an instance.
    """

    def __init__(self, create: Callable[P, T], close: Callable[[T], object] | None = None) -> None:
        self._create = create
        self._close = close

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the instance of this process."""
        # On the hot path.
        instances = _runtime.instances
        if self in instances:
            instance: T = instances[self]
            return instance
        runtime = _runtime
        with runtime.starting:
            if self not in runtime.instances:
                runtime.instances[self] = self._create(*args, **kwargs)
            created: T = runtime.instances[self]
            return created

    def running(self) -> T | None:
        """Return the instance of this process, without creating one."""
        return _runtime.instances.get(self)

    def stop(self) -> None:
        """Close the instance of this process, if there is one."""
        runtime = _runtime
        with runtime.starting:
            instance = runtime.instances.pop(self, None)
        if instance is not None and self._close is not None:
            self._close(instance)


_runtime = HubRuntime()


def _renew() -> None:
    """A forked child has the memory of its parent, but none of its threads: nothing is closed."""
    global _runtime  # noqa: PLW0603 - a process has one at a time
    _runtime = HubRuntime()


os.register_at_fork(after_in_child=_renew)
