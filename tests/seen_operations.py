"""Which operations of ours run, seen from outside, whatever calls them."""

from contextlib import contextmanager

from torch.utils._python_dispatch import TorchDispatchMode


class _Recorder(TorchDispatchMode):
    def __init__(self, prefix):
        super().__init__()
        self.prefix, self.names = prefix, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "latchwork" and function._opname.startswith(self.prefix):
            self.names.append(function._opname.removeprefix(self.prefix))
        return function(*args, **(kwargs or {}))


@contextmanager
def seen_operations(prefix="layer_"):
    """A list that fills with the names of the operations as they run, those that start with prefix, without it."""
    with _Recorder(prefix) as recorder:
        yield recorder.names
