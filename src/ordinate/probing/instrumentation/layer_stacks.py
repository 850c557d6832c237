"""Layer stacks (stages) of an external model: one in most models, several with patch merging in Swin."""

from collections.abc import Sequence

from torch import nn

from ordinate.core.checks import need

Stage = list[tuple[nn.Module, nn.Module]]
"""Layers that share a residual stream, each with its attention module: the members of one module list."""


def find_stages(model: nn.Module, attending: Sequence[nn.Module]) -> list[Stage]:
    """Return the stacks of layers with attention, in execution order.

    Args:
        model: the model.
        attending: the attention modules in execution order.
    """
    order = {id(module): place for place, module in enumerate(attending)}
    left, found = set(order), list[Stage]()
    while best := _largest(model, set(order), left):
        found.append(best)
        left -= {id(attention) for _, attention in best}
    return sorted(found, key=lambda stage: order[id(stage[0][1])])


def choose_stage(found: list[Stage], stage: int | None) -> Stage:
    """Return the stage with this number, counted from 1; None: the one with the most layers.

    Raises:
        ValueError: no such stage.
    """
    if stage is None:
        return max(found, key=len)
    there = f"the stages of this model are 1 to {len(found)}"
    need(1 <= stage <= len(found), there, f"got stage {stage}", "give one of these, or none")
    return found[stage - 1]


def describe_left_out(model: nn.Module, asked: list[nn.Module], found: list[Stage], layers: Stage) -> str:
    """Describe what is not probed: the other stages, and layers without attention; empty if nothing."""
    if len(asked) == len(layers):
        held = [list(part) for part in model.modules() if isinstance(part, nn.ModuleList)]
        whole = max((members for members in held if layers[0][0] in members), key=len, default=[])
        if len(whole) <= len(layers):
            return ""
        own = ", ".join(str(whole.index(layer)) for layer, _ in layers)
        few = f"only the layers with attention are probed, {own} of 0 to {len(whole) - 1}"
        return f"{few}, each with all that precedes it; their numbers here are 0 to {len(layers) - 1}"
    first, stage = asked.index(layers[0][1]) + 1, found.index(layers) + 1
    return (
        f"only layers {first} to {first + len(layers) - 1} of {len(asked)} are probed, stage {stage} of "
        f"{len(found)}: other stages have a residual stream with another number of vectors and another width; each "
        "stage is probed by itself (--layer-stack)"
    )


def _largest(model: nn.Module, attending: set[int], left: set[int]) -> Stage:
    """Return the module list with the most members that have exactly one remaining attention module each.

    Members with several attention modules, such as stages of layers, count against a list. The outermost of equally
    good lists is taken. Empty if there is none.
    """
    best, most = Stage(), (float("-inf"), False)
    for parent in model.modules():
        if not isinstance(parent, nn.ModuleList | nn.Sequential):
            continue
        held = [(member, [one for one in member.modules() if id(one) in attending]) for member in parent]
        found = [(member, ones[0]) for member, ones in held if len(ones) == 1 and id(ones[0]) in left]
        several = sum(len(ones) > 1 for _, ones in held)
        size = len(found) - several, several == 0
        best, most = (found, size) if found and size > most else (best, most)
    return best
