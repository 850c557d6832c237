"""What the page must know of a model, and which models it can run."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.explorer.packing import SCALES, PackedModel
from ordinate.explorer.rounding import is_rounded, round_rows
from ordinate.mixers.softmax import Softmax
from ordinate.models.backbone import Backbone
from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.ops.rms_norm import RMSNorm
from ordinate.schemes._scheme import Scheme
from ordinate.schemes.alibi import Alibi
from ordinate.schemes.learned import Learned
from ordinate.schemes.none import NoPosition
from ordinate.schemes.rope import Rope
from ordinate.schemes.sinusoidal import Sinusoidal
from ordinate.schemes.t5 import T5

# numbers of a model that is shown beside the six, and of its longest row of attention patterns
MOST_PARAMETERS = 1_500_000
# the schemes whose formulas the page has, and the options it reads
OPTIONS: Mapping[type[Scheme], Callable[[Any], dict[str, Any]]] = {
    NoPosition: lambda scheme: {},
    Sinusoidal: lambda scheme: {"theta": scheme.theta, "scale": scheme.scale},
    Learned: lambda scheme: {"max_length": scheme.max_length},
    Rope: lambda scheme: {
        "theta": scheme.theta,
        "rotary_dim": scheme.rotary_dim,
        "layout": scheme.layout,
        "rates": scheme.spectrum.rates(scheme.rotary_dim, scheme.theta),
        "magnitude": scheme.spectrum.query_key_scale,
    },
    Alibi: lambda scheme: {"flattest": 8.0},
    T5: lambda scheme: {"buckets": scheme.buckets, "max_distance": scheme.max_distance},
}
# options of theirs that change its numbers, not its formulas
READ_OPTIONS = {"width", "heads", "head_width", "max_length", "scale", "theta", "buckets", "max_distance"}
READ_OPTIONS |= {"rotary_dim", "layout", "spectrum"}
# what the page's forward pass has; a model of other settings is refused
SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "head": ("next_token",),
    "head_transform": (False,),
    "norm": ("rms", "layer"),
    "embedding_width": (None,),
    "norm_position": ("pre", "parallel", "shared"),
    "feedforward": ("gelu", "gelu_tanh", "relu", "silu", "swiglu", "geglu", "geglu_tanh"),
    "experts": (None,),
    "layer_scale": (None,),
    "final_norm": (True,),
    "logit_scale": (1.0,),
    "logit_softcap": (None,),
    "residual_scale": (1.0,),
    "zero_centred_norm": (False,),
    "round_embedding_scale": (False,),
    "first_norm": (True,),
    "blocks": ("plain",),
    "mixer_only_layers": ((),),
    "shared_layers": ((),),
    "shared_keys": ((),),
    "wide_layers": ((),),
    "layer_input_width": (None,),
    "layer_factors": (False,),
}


def check_model(model: Backbone) -> None:
    """Raise unless the page can run this model.

    Raises:
        ValueError: the setting that it cannot, or the size that is too large.
    """
    shape = model.shape
    for name, wanted in SETTINGS.items():
        came, among = getattr(shape, name), " or ".join(f"{name}={value!r}" for value in wanted)
        need(came in wanted, f"the explorer runs models with {among}", f"got {shown(came)}", "give another model")
    biased = shape.tie_embeddings and "head" in shape.bias
    must, came = "the explorer runs models whose tied head has no bias", f"got bias={shape.bias}"
    need(not biased, must, came, "give another model")
    _check_sizes(model, shape)
    _check_mixers(model)
    scheme = model.first_scheme
    known = ", ".join(sorted(kind.__name__ for kind in OPTIONS))
    need(
        len(model.schemes) == 1 and type(scheme) in OPTIONS and _plain(scheme),
        f"the explorer runs one scheme in all layers, with its default form: {known}",
        f"got {shape.scheme!r}",
        "give a model with one of these",
    )


def _check_mixers(model: Backbone) -> None:
    """Raise unless all layers have softmax attention, without caps, sinks, clips and other norms than RMSNorm."""
    for block in model.blocks:
        mixer: Any = block.mixer
        plain = type(mixer) is Softmax and (mixer.softcap, mixer.sinks, mixer.clip_qkv) == (None, None, None)
        plain = plain and (type(mixer.q_norm) is nn.Identity or _is_learned_rms(mixer.q_norm))
        plain = plain and not getattr(mixer.q_norm, "zero_centred", False) and not mixer.qk_norm_after
        plain = plain and mixer.output_gate is None and not mixer.encode_values and mixer.chunk is None
        plain = plain and (mixer.value_width, mixer.value_scale) == (mixer.head_width, 1)
        plain = plain and type(mixer.value_norm) is nn.Identity and not mixer.values_of_keys
        must = (
            "the explorer runs softmax attention without output_gate, softcap, sinks, clip_qkv, qk_norm_kind, "
            "qk_norm_across, qk_norm_after, qk_norm_zero_centred, value_width, value_scale, value_norm, "
            "values_of_keys, chunk and encode_values"
        )
        need(plain, must, f"got mixer={model.shape.mixer!r}", "give another model")
        second = model.shape.second_mixer
        need(second is None, "the explorer runs layers of one mixer", f"got second_mixer={second!r}", "give another")


def _is_learned_rms(norm: nn.Module) -> bool:
    return type(norm) is RMSNorm and norm.weight is not None


def _mixers(model: Backbone) -> list[Softmax]:
    return [cast(Softmax, block.mixer) for block in model.blocks]


def _check_sizes(model: Backbone, shape: Shape) -> None:
    count = sum(weight.numel() for weight in model.parameters())
    need(
        count <= MOST_PARAMETERS,
        f"a model of the explorer has at most {MOST_PARAMETERS:,} parameters, so that it answers while you type",
        f"got {count:,}",
        "use `ordinate look` or `ordinate probe` for larger ones",
    )
    came = f"got {type(model).__name__}"
    need(isinstance(model, Decoder), "the explorer runs decoders", came, "give another model")


def _plain(scheme: Scheme) -> bool:
    """Whether a scheme has no option that the page's formula lacks."""
    known, given = catalog.options(type(scheme)), getattr(scheme, "options_given", {})
    # rates that depend on the length of a text are none of its numbers
    if isinstance(scheme, Rope) and (scheme.spectrum.length_thresholds != () or scheme.spectrum.whole_sequence):
        return False
    return all(value == known[name].default for name, value in given.items() if name not in READ_OPTIONS)


def packed_model(
    model: Backbone, name: str, *, kind: str = "decoder", title: str = "", tokens: Mapping[str, Any] | None = None
) -> PackedModel:
    """Return a model as the page reads it, its weights in 8 bits.

    Args:
        model: a model that the page can run.
        name: its name in the page.
        kind: decoder or encoder.
        title: what it is called in menus; empty: its name.
        tokens: its tokenizer, of `read_token_facts`; None: it reads bytes.
    """
    shape, scheme = model.shape, model.first_scheme
    facts = {
        "name": name,
        "title": title or name,
        "kind": kind,
        # the page's formulas by their name, whatever the name of the model
        "scheme": type(scheme).__module__.rpartition(".")[2],
        "options": OPTIONS[type(scheme)](scheme),
        "scale": shape.embedding_scale,
        **_layer_facts(model),
        **({} if tokens is None else {"tokens": tokens}),
    }
    return PackedModel(facts, _arrays(model))


def _layer_facts(model: Backbone) -> dict[str, Any]:
    """Sizes and settings of the layers."""
    shape, mixers = model.shape, _mixers(model)
    queries, keys, _ = mixers[0].widths
    size = mixers[0].head_width
    # PyTorch's default of RMSNorm is that of the type in use, here float32, in which the model was trained
    usual = torch.finfo(torch.float32).eps if shape.norm == "rms" else 1e-5
    return {
        **{name: getattr(shape, name) for name in ("width", "heads", "layers", "vocabulary", "norm", "feedforward")},
        "kv_heads": shape.heads * keys // queries,
        "head_width": size,
        "norm_position": shape.norm_position,
        "eps": usual if shape.norm_eps is None else shape.norm_eps,
        "qk_eps": getattr(mixers[0].q_norm, "eps", 0.0),
        "score_scales": [mixer.scale for mixer in mixers],
        "windows": shape.layer_windows,
    }


def _arrays(model: Backbone) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for name, weight in cast(dict[str, Tensor], dict(model.named_parameters())).items():
        # an encoder's head for masked tokens is not run
        if name.startswith("masked."):
            continue
        if is_rounded(weight):
            rounded, scales = round_rows(weight)
            arrays[name], arrays[name + SCALES] = rounded.numpy(), scales.numpy()
        else:
            arrays[name] = weight.detach().float().numpy()
    return arrays
