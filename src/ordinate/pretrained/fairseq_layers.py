"""Tensors of layers that have the names of fairseq: OPT, BioGPT and XGLM."""

from ordinate.pretrained._family import StackedQKV, TensorRule, linear_rules


def fairseq_rules(there: str, *, biased: bool = True, normed: bool = True) -> list[TensorRule]:
    """Return the tensor mappings of each layer.

    Args:
        there: name of a layer in checkpoints.
        biased: whether its linear layers have biases.
        normed: whether its norms have weights and biases.
    """
    here, parts = "blocks.{}", [f"{there}.self_attn.{part}_proj" for part in "qkv"]
    norms = {"mixer_norm": "self_attn_layer_norm", "feedforward_norm": "final_layer_norm"} if normed else {}
    return [
        *linear_rules(f"{here}.mixer.project", *parts, kind=StackedQKV, bias=biased),
        *linear_rules(f"{here}.mixer.out", f"{there}.self_attn.out_proj", bias=biased),
        *linear_rules(f"{here}.feedforward.widen", f"{there}.fc1", bias=biased),
        *linear_rules(f"{here}.feedforward.narrow", f"{there}.fc2", bias=biased),
        *(
            rule
            for ours, name in norms.items()
            for rule in linear_rules(f"{here}.{ours}", f"{there}.{name}", bias=True)
        ),
    ]
