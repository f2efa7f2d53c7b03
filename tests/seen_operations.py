"""Which operations of ours run, seen from outside, whatever calls them."""

from contextlib import contextmanager

from torch.utils._python_dispatch import TorchDispatchMode

from latchwork.ops.cpu.layer import GIVEN, Weights

_OUTPUT = GIVEN + Weights._fields.index("output")


def _part(name, args):
    """layer: whole, its "drive" before the recurrence, or "respond", what follows; the same with _backward."""
    inputs = args if name == "layer" else args[4:]
    part = "respond" if inputs[1] is not None else "drive" if inputs[_OUTPUT] is None else "layer"
    return part + name.removeprefix("layer")


class _Recorder(TorchDispatchMode):
    def __init__(self, every):
        super().__init__()
        self.every, self.names = every, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "latchwork" and function._opname in ("layer", "layer_backward"):
            self.names.append(_part(function._opname, args))
        elif function.namespace == "latchwork" and self.every:
            self.names.append(function._opname)
        return function(*args, **(kwargs or {}))


@contextmanager
def seen_operations(*, every=False):
    """A list that fills with "layer", "drive" or "respond", or their "_backward", as these parts of layers run.

    every: with the names of other operations too.
    """
    with _Recorder(every) as recorder:
        yield recorder.names
