"""SIGTERM and SIGINT stop a worker."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """The first signal stops the worker, and is passed on to the previous handler: for example a server's, which also stops. A second signal goes only to
    the previous handler. Outside of the main thread this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: was for s in (signal.SIGTERM, signal.SIGINT) if (was := signal.getsignal(s)) is not None}

    def restore() -> None:
        for s, was in before.items():
            if signal.getsignal(s) is handler:
                signal.signal(s, was)

    over = False

    def handler(number: int, frame: FrameType | None) -> None:
        restore()
        if over:  # a handler that was set later has restored this one
            signal.raise_signal(number)
            return
        stop()
        was = before[signal.Signals(number)]
        if callable(was) and not ends_the_program(was):
            was(number, frame)

    for s in before:
        signal.signal(s, handler)
    try:
        yield
    finally:
        over = True
        restore()


def ends_the_program(handler: object) -> bool:
    """Whether it is one of Python's handlers for Ctrl-C. They would raise in work() or cancel it, although it must return."""
    return handler is signal.default_int_handler or getattr(getattr(handler, "func", handler), "__module__", None) == "asyncio.runners"
