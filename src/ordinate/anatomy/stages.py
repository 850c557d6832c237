"""The stacks of layers in a model that is not ours: one in most, several that merge patches between them in Swin."""

from collections.abc import Sequence

from torch import nn

from ordinate.checks import need

Stage = list[tuple[nn.Module, nn.Module]]
"""Layers that pass one residual stream on, each with its attention: the members of one list of modules."""


def stages(model: nn.Module, attending: Sequence[nn.Module]) -> list[Stage]:
    """The stacks of layers that attend, in the order in which they run: one in most models, several in Swin.

    Args:
        model: what holds them.
        attending: the modules that compute attention, in the order in which they run.
    """
    order = {id(module): place for place, module in enumerate(attending)}
    left, found = set(order), list[Stage]()
    while best := _largest(model, set(order), left):
        found.append(best)
        left -= {id(attention) for _, attention in best}
    return sorted(found, key=lambda stage: order[id(stage[0][1])])


def chosen(found: list[Stage], stage: int | None) -> Stage:
    """The stage of this number, counted from 1; None: the one of the most layers.

    Raises:
        ValueError: there is none.
    """
    if stage is None:
        return max(found, key=len)
    there = f"the stages of this model count from 1 to {len(found)}"
    need(1 <= stage <= len(found), there, f"got stage {stage}", "give one of these, or none")
    return found[stage - 1]


def left_out(model: nn.Module, asked: list[nn.Module], found: list[Stage], layers: Stage) -> str:
    """What is not measured: of several stages, as in Swin, all but one; layers that do not attend."""
    if len(asked) == len(layers):
        held = (list(part) for part in model.modules() if isinstance(part, nn.ModuleList))
        whole = max((len(members) for members in held if layers[0][0] in members), default=len(layers))
        few = f"only the {len(layers)} of {whole} layers that attend are measured, each with all that came before it"
        return few if whole > len(layers) else ""
    first, stage = asked.index(layers[0][1]) + 1, found.index(layers) + 1
    return (
        f"only layers {first} to {first + len(layers) - 1} of {len(asked)} are measured, stage {stage} of "
        f"{len(found)}: the others pass on other numbers of vectors, of another width, which are no part of the same "
        "residual stream; each stage is measured by itself (--stage)"
    )


def _largest(model: nn.Module, attending: set[int], left: set[int]) -> Stage:
    """The list of modules with the most members that hold exactly one of what is left each; empty: there is none.

    Members that hold several, as stages of layers do, speak against a list; of several as good it is the outermost.
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
