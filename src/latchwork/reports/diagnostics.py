"""Pictures of what the latches of a model do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latchwork.extras import optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from latchwork.evaluation.diagnostics import LatchReport

# From the top of a bar to its bottom. Okabe and Ito's colours, which the colour-blind tell apart.
COLOURS = {"set": "#0072b2", "reset": "#d55e00", "moved": "#f0e442", "held": "#c8c8c8", "dead zone": "#333333"}


def plot_latches(report: LatchReport) -> Figure:
    """One row a layer; in it a bar for each state scalar, sorted: the shares of steps held, moved, reset and set.

    The dead zone is the dark part of held, at its bottom. "moved" is shown where it occurs, for degree n only.
    """
    dead, held, moved, reset = (report.share(name).cpu().numpy() for name in ("dead", "held", "moved", "reset"))
    heights = {  # each is drawn from 0, over those before it: no seams
        "set": held + moved + reset + report.share("set").cpu().numpy(),
        "reset": held + moved + reset,
        "moved": held + moved,
        "held": held,
        "dead zone": dead,
    }
    kinds = [name for name in COLOURS if name != "moved" or moved.any()]
    n_layers, d_state = held.shape
    figure: Figure = optional("plots", "matplotlib.figure").Figure(
        figsize=(9, 1 + 1.5 * n_layers), layout="constrained"
    )
    rows = figure.subplots(n_layers, sharex=True, squeeze=False)[:, 0]
    for layer, axes in enumerate(rows):
        order = (-held[layer] - 1e-6 * dead[layer]).argsort(kind="stable")
        for kind in kinds:
            bars = heights[kind][layer][[*order, order[-1]]]  # with step="post", the last only says where to end
            axes.fill_between(range(d_state + 1), bars, step="post", color=COLOURS[kind], linewidth=0, label=kind)
        axes.set(xlim=(0, d_state), ylim=(0, 1), yticks=(0, 0.5, 1), yticklabels=("0", "50%", "100%"))
        axes.set_ylabel(f"layer {layer}")
        if stuck := int((~report.left[layer]).sum()):
            axes.set_title(f"{stuck} of {d_state} never left x0", fontsize="small", loc="right", pad=2)
    rows[-1].set_xlabel(f"state scalars, sorted by how many of the {report.steps:,} steps they hold")
    handles, labels = rows[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure
