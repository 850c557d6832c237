"""Replace the attention of a PyTorch model by attention with a positional scheme."""

from torch import nn

from ordinate.core.checks import need
from ordinate.models.drop_in_attention import DropInAttention
from ordinate.schemes._scheme import Scheme


def replace_attention(model: nn.Module, *, scheme: str | Scheme | None, cross_attention: bool = False) -> list[str]:
    """Replace each `torch.nn.MultiheadAttention` inside a model by a `DropInAttention` with the same parameters.

    Parameters are shared with the modules that are replaced, so that an optimizer keeps working. A scheme given as an
    instance, or by name if one serves all layers as T5's does, is shared by the layers of one size.

    Args:
        model: the model, such as a `torch.nn.TransformerEncoder`; changed in place.
        scheme: positional scheme, by name with options or as an instance; None: no positions.
        cross_attention: whether the cross-attention of `torch.nn.TransformerDecoderLayer` is replaced too, where an
            offset is the difference of target and source index.

    Returns:
        The names of the modules that were replaced.

    Raises:
        TypeError: a model that is no module, or attention of another class, which may compute something else.
        ValueError: a model without such a module, or one itself; as `DropInAttention.from_torch`; an instance of a
            scheme that needs one for each layer, for several layers. The model is then left as it was.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}; give the model")
    need(
        not isinstance(model, nn.MultiheadAttention),
        "attention is replaced inside of a model",
        f"got {type(model).__name__} itself",
        "call DropInAttention.from_torch(attention, scheme=...)",
    )
    found = [
        (f"{name}.{part}".lstrip("."), owner, part, child)
        for name, owner in model.named_modules(remove_duplicate=False)
        # named_children leaves out a module that stands in two places
        for part, child in owner._modules.items()
        if isinstance(child, nn.MultiheadAttention) and (cross_attention or not _is_cross(owner, part))
    ]
    came = f"got a {type(model).__name__} without one"
    need(bool(found), "the model must have a torch.nn.MultiheadAttention", came, "use attend, or MultiHeadAttention")
    made: dict[nn.Module, DropInAttention] = {}
    shared: dict[tuple[int, int], Scheme] = {}
    for *_, attention in found:
        if attention not in made:
            made[attention] = _replaced(attention, scheme, shared)
    several = len(made) > 1 and isinstance(scheme, Scheme) and scheme.per_layer
    came = f"got one {type(scheme).__name__} for {len(made)} layers"
    need(not several, "this scheme needs an instance for each layer", came, "give it by name with its options")
    for _, owner, part, attention in found:
        setattr(owner, part, made[attention])
    return [name for name, *_ in found]


def _is_cross(owner: nn.Module, part: str) -> bool:
    return isinstance(owner, nn.TransformerDecoderLayer) and part == "multihead_attn"


def _replaced(
    attention: nn.MultiheadAttention, scheme: str | Scheme | None, shared: dict[tuple[int, int], Scheme]
) -> DropInAttention:
    """Build the new module; a scheme of which one instance serves all layers is built once for each size."""
    new = DropInAttention.from_torch(attention, scheme=shared.get((attention.embed_dim, attention.num_heads), scheme))
    if not new.scheme.per_layer:
        shared[attention.embed_dim, attention.num_heads] = new.scheme
    return new
