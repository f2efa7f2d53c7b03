"""A machine as one unit that sends states: the smallest network, of the machine's own degree."""

from __future__ import annotations

import numpy

from latchwork.automata.network import MAX_WEIGHTS, Size, as_array, check_weights, empty_model
from latchwork.machines import Machine
from latchwork.models import MinMaxRNC_LM, MinMaxRNCConfig, MinMaxRNCLMConfig
from latchwork.modules.layer import MinMaxLayer


class TransformationNetwork:
    """One layer with one transformation unit, with a place for each state: level 1 stands where the machine is.

    The stream holds a bit for each symbol and one for each output. A symbol's bit says where each place is sent; the
    neuron writes the output of the state. So that this is a matter of the state alone, the machine is made a Moore
    machine first, whose states are the places.
    """

    def __init__(self, machine: Machine, max_weights: int = MAX_WEIGHTS) -> None:
        self.machine, self.max_weights = machine.moore(), max_weights
        symbols, outputs = machine.n_symbols, self.machine.n_outputs
        places, d_model = max(2, self.machine.n_states), symbols + outputs
        check_weights(places**2 * d_model, max_weights)
        shape = MinMaxRNCConfig(
            d_model=d_model,
            n_layers=1,
            d_state=places,
            degree=places,
            reset_form="transformation",
            norm="none",
            postlayers_norm="none",
            ffn_type="basic",
            ffn_proj_factor=1 / d_model,
            ffn_dropout=0.0,
            output_gate=False,
        )
        self.config = MinMaxRNCLMConfig(backbone=shape, tie_weights=False)
        self.vocabulary = max(symbols, outputs)

    @property
    def size(self) -> Size:
        """What the model costs, without making it."""
        return Size.of(self.vocabulary, self.config)

    def build(self) -> MinMaxRNC_LM:
        """The model."""
        check_weights(self.size.weights, self.max_weights)
        machine, model = self.machine, empty_model(self.vocabulary, self.config)
        symbols, states, outputs = machine.n_symbols, numpy.arange(machine.n_states), numpy.arange(machine.n_outputs)
        layer = model.backbone.layers[0]
        assert isinstance(layer, MinMaxLayer)
        neuron, places = layer.neuron, layer.neuron.d_state
        as_array(model.embedding.weight)[numpy.arange(symbols), numpy.arange(symbols)] = 1
        as_array(model.head.weight)[outputs, symbols + outputs] = 1
        sends = as_array(neuron.projection.weight).reshape(places, places, -1)  # a view: from, to, stream
        for symbol, following in enumerate(machine.transitions.T):
            sends[states, following, symbol] = 1
        for unused in range(machine.n_states, places):
            sends[unused, unused, :symbols] = 1
        as_array(neuron.x0)[machine.start] = 1
        given = numpy.zeros(machine.n_states, int)
        given[machine.transitions] = machine.outputs
        as_array(neuron.output.weight)[symbols + given, states] = 1
        return model.eval()
