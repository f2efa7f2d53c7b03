"""Which operations of the layer's kernel run, seen from outside, whatever calls them."""

from contextlib import contextmanager

from torch.utils._python_dispatch import TorchDispatchMode


class _Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "latchwork" and "layer_" in (name := function._opname):
            self.names.append(name.removeprefix("layer_"))
        return function(*args, **(kwargs or {}))


@contextmanager
def seen_operations():
    """A list that fills with "drive", "respond", "drive_backward" and "respond_backward" as they run."""
    with _Recorder() as recorder:
        yield recorder.names
