"""Tracebacks of handled exceptions, which keep the objects of a request in memory."""


def clear_traceback(problem: BaseException) -> None:
    """Remove the tracebacks of an exception that was handled, and of its causes.

    Their frames hold the request, and one of them often holds the exception: such a cycle would keep a large body in
    memory until the next full garbage collection.
    """
    cause: BaseException | None = problem
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__
