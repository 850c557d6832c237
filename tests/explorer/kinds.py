"""Cross-attention, attention with a cache and changes of Q, K and V by the library, for the numbers of the page."""

import copy

import torch
from torch.utils.flop_counter import FlopCounterMode

from ordinate import Decoder, Geometry
from ordinate.models.cache import Cache
from ordinate.ops.buckets import log_buckets
from ordinate.ops.heads import repeat_for_heads
from ordinate.schemes import T5

CHANGES = ("tied", "swapped", "keysAsValues", "outside", "unscaled")


def changed(model: Decoder, change: str) -> Decoder:
    """A copy of a decoder with the change in its weights: rows of W_Q, W_K and W_V copied, or scales moved."""
    other = copy.deepcopy(model)
    for block in other.blocks:
        mixer = block.mixer
        for name, tensor in mixer.project.named_parameters():
            q, k, v = tensor.detach().clone().split(mixer.widths)
            parts = {"tied": (q, q, v), "swapped": (k, q, v), "keysAsValues": (q, k, k)}.get(change, (q, k, v))
            getattr(mixer.project, name).data = torch.cat(parts)
        if change == "outside":
            mixer.out.weight.data *= mixer.scale
        if change in ("outside", "unscaled"):
            mixer.scale = 1.0
        if change == "tied":
            mixer.k_norm = mixer.q_norm
        if change == "swapped":
            mixer.q_norm, mixer.k_norm = mixer.k_norm, mixer.q_norm
    return other


def layer_inputs(model: Decoder, ids: torch.Tensor) -> list[torch.Tensor]:
    """The normalised input of the attention of each layer."""
    seen = []
    hooks = [
        block.mixer.register_forward_pre_hook(lambda _module, given: seen.append(given[0])) for block in model.blocks
    ]
    model(ids)
    for hook in hooks:
        hook.remove()
    return seen


class ByDistance(T5):
    """T5's table of a causal decoder, read by the distance in both directions."""

    def bias(self, where: Geometry) -> torch.Tensor:
        far = where.offset[..., 0].abs()
        bucket = log_buckets(far, buckets=self.buckets, max_distance=self.max_distance, bidirectional=False)
        return torch.nn.functional.embedding(bucket, self.table).permute(0, 3, 1, 2)


def crossed(model: Decoder, ids: torch.Tensor, other: torch.Tensor) -> list[dict[str, torch.Tensor]]:
    """Stages of each layer's attention with queries of one text, keys and values of another; no mask."""
    where = Geometry.cross(ids.shape[1], other.shape[1])
    model = copy.deepcopy(model)
    for scheme in model.modules():
        if isinstance(scheme, T5):
            scheme.__class__ = ByDistance
    found = []
    # the page runs decoders with one scheme in all layers
    at = model.bind_schemes(where)[0]
    for block, x, y in zip(model.blocks, *(layer_inputs(model, each) for each in (ids, other)), strict=True):
        mixer = block.mixer
        q, seen = mixer.encoded_queries(x, at), mixer.project_context(y, at.scheme, where.k_pos)
        scores = q @ repeat_for_heads(seen.k.transpose(0, 1), q.shape[1]).transpose(0, 1).mT * mixer.scale
        scores = scores if at.bias is None else scores + at.bias
        z = mixer.attention(q, seen.k, seen.v, at)
        found.append({"q": q, "k": seen.k, "v": seen.v, "scores": scores, "pattern": scores.softmax(-1), "z": z})
    return found


def by_cache(model: Decoder, ids: torch.Tensor) -> dict:
    """What the cache has of all tokens but the last, the logits of the last, and multiplications of each token."""
    cache, counts = Cache(), []
    for token in range(ids.shape[1]):
        if token == ids.shape[1] - 1:
            kept = [{"k": state.k.clone(), "v": state.v.clone()} for state in cache.states]
        with FlopCounterMode(display=False) as counter:
            logits = model(ids[:, token : token + 1], cache=cache)
        counts.append(counter.get_total_flops() // 2)
    return {"kept": kept, "logits": logits, "multiplications": counts}


def kinds(model: Decoder, text: str, other: str) -> dict:
    """Numbers of a decoder for all three kinds of attention, and of each change that its heads allow."""
    ids, read = (torch.tensor([list(each.encode())]) for each in (text, other))
    found = {"ids": ids[0].tolist(), "other": read[0].tolist(), "cross": crossed(model, ids, read)}
    mixer = model.blocks[0].mixer
    grouped, normed = mixer.widths[0] != mixer.widths[1], not isinstance(mixer.q_norm, torch.nn.Identity)
    # where keys are normalised, the page's V := K are the normalised ones
    left_out = {"tied": grouped, "swapped": grouped, "keysAsValues": normed}
    names = [name for name in CHANGES if not left_out.get(name, False)]
    others = {name: changed(model, name) for name in names}
    return {
        **found,
        "cached": by_cache(model, ids),
        "scale": model.blocks[-1].mixer.scale,
        "changes": {name: {"logits": one(ids), "cross": crossed(one, ids, read)[-1]} for name, one in others.items()},
    }
