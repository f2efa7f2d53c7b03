import os
import signal
import threading

import pytest

from latchwork.signals import SIGNALS, Stopped, exit_code, stop_at_once, stop_when_safe


def send(number):
    os.kill(os.getpid(), number)


def run_safely(*actions):
    """The actions in `stop_when_safe`, each with its Stop; how many were done, and what was raised."""
    done = 0
    with pytest.raises(BaseException) as error, stop_when_safe() as stop:  # noqa: PT011, PT012 - each test looks at it
        for action in actions:
            action(stop)
            done += 1
    return done, error.value


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_waits_for_a_safe_place(number):
    before = signal.getsignal(number)
    done, error = run_safely(lambda stop: stop.check(), lambda stop: send(number), lambda stop: stop.check())
    assert done == 2
    assert isinstance(error, Stopped)
    assert exit_code(error) == 128 + number
    assert signal.getsignal(number) is before


def test_a_second_signal_does_not_wait():
    done, error = run_safely(*[lambda stop: send(signal.SIGTERM)] * 3)
    assert done == 1
    assert isinstance(error, Stopped)


def test_a_signal_that_no_safe_place_followed_is_raised_at_the_end():
    done, error = run_safely(lambda stop: send(signal.SIGTERM), lambda stop: None)
    assert done == 2
    assert isinstance(error, Stopped)


def test_an_error_is_not_hidden_by_a_signal():
    done, error = run_safely(lambda stop: send(signal.SIGTERM), lambda stop: {}["mine"])
    assert done == 1
    assert isinstance(error, KeyError)


@pytest.mark.parametrize("number", SIGNALS)
def test_outside_of_training_a_signal_stops_at_once_and_cleans_up(number):
    done = []

    def work():
        with stop_at_once():
            try:
                send(number)
                done.append("waited")
            finally:
                done.append("cleaned")

    with pytest.raises(Stopped) as stopped:
        work()
    assert done == ["cleaned"]
    assert exit_code(stopped.value) == 128 + number


def test_a_signal_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_when_safe() as stop, stop_at_once():
            send(signal.SIGINT)
        assert not stop.asked
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_takes_no_signals():
    errors = []

    def work():
        try:
            with stop_when_safe() as stop:
                stop.check()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not errors
