"""SIGINT and SIGTERM: a run saves at its next safe place and stops; a second signal stops it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """A signal ended the program. What lets Ctrl-C through lets this through too."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


def exit_code(error: KeyboardInterrupt) -> int:
    """128 and the number of the signal, as a shell has it.

    >>> exit_code(KeyboardInterrupt()), exit_code(Stopped(signal.SIGTERM))
    (130, 143)
    """
    return 128 + getattr(error, "number", signal.SIGINT)


class Stop:
    """Whether a signal has asked to stop."""

    def __init__(self) -> None:
        self.number: int | None = None

    @property
    def asked(self) -> bool:
        """Whether a signal came."""
        return self.number is not None

    def check(self) -> None:
        """Raise Stopped if a signal came: call it where all is saved."""
        if self.number is not None:
            raise Stopped(self.number)


NEVER = Stop()  # for who takes no signals


@contextmanager
def stop_when_safe() -> Iterator[Stop]:
    """Within it SIGINT and SIGTERM wait until the code calls `check`, or for the end; a second signal does not wait.

    Python takes signals in the main thread alone: in another thread nothing is changed. A signal that is ignored, as
    SIGINT is under nohup, stays ignored.
    """
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.check()
        stop.number = number

    with _handlers(ask):
        yield stop
    stop.check()


@contextmanager
def stop_at_once() -> Iterator[None]:
    """Within it SIGINT and SIGTERM raise Stopped, so that `finally` is run and workers are stopped."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise Stopped(number)

    with _handlers(leave):
        yield


@contextmanager
def _handlers(handle: signal._HANDLER) -> Iterator[None]:
    main = threading.current_thread() is threading.main_thread()
    before = {each: signal.getsignal(each) for each in SIGNALS} if main else {}
    taken = [each for each, handler in before.items() if handler is not signal.SIG_IGN]
    for each in taken:
        signal.signal(each, handle)
    try:
        yield
    finally:
        for each in taken:
            signal.signal(each, before[each] or signal.SIG_DFL)
