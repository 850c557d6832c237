"""Gemma 4, its language models: E2B, E4B, 26B-A4B and 31B."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, Weight, linear_rules
from ordinate.pretrained.gemma4_like import Gemma4Like

INPUTS, INPUT_VOCABULARY = "hidden_size_per_layer_input", "vocab_size_per_layer_input"
"""The keys of the columns of the input of a layer beside the tokens, and of its vocabulary."""
EXPERTS, COUNT, CHOSEN, INNER = "enable_moe_block", "num_experts", "top_k_experts", "moe_intermediate_size"
"""The keys of the experts."""


@dataclass(frozen=True)
class FirstRows(TensorRule):
    """The rows of a checkpoint tensor that are of tokens of the vocabulary; no token reads the rows after them.

    Args:
        stored: rows of the checkpoint tensor.
    """

    stored: int = 1

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0][: shape.vocabulary]

    def stored_shapes(self, tensor: Weight, came: Sequence[tuple[int, ...]], shape: Shape) -> list[tuple[int, ...]]:
        return [(self.stored, tensor.shape[1])]


class Gemma4Text(Gemma4Like):
    """Gemma 4: Gemma 3 with wider heads and proportional RoPE in layers without a window, and norms of values.

    Each layer may read an input of its own beside the tokens (E2B, E4B), and experts may stand beside the
    feed-forward networks (26B-A4B).

    Source: Gemma Team 2026, Gemma 4, https://ai.google.dev/gemma/docs/core/model_card_4.
    """

    model_type = "gemma4_text"
    base_class = "Gemma4TextModel"
    causal_lm_class = "Gemma4ForCausalLM"
    expert_sizes = frozenset({COUNT, CHOSEN, INNER})
    input_sizes = frozenset({INPUTS, INPUT_VOCABULARY})
    optional_sizes = Gemma4Like.optional_sizes | expert_sizes | input_sizes
    defaults: ClassVar[Mapping[str, Any]] = {
        **Gemma4Like.usual,
        "max_position_embeddings": 131_072,
        "sliding_window": 512,
        INPUTS: 256,
        INPUT_VOCABULARY: 262_144,
        EXPERTS: False,
        COUNT: None,
        CHOSEN: None,
        INNER: None,
    }

    def shape(self, config: Mapping[str, Any]) -> Shape:
        made, inputs = super().shape(config), self.layer_input_width(config)
        return replace(made, layer_input_width=inputs, **self.experts(config))

    def config(self, shape: Shape) -> dict[str, Any]:
        experts, options = self.expert_config(shape), shape.experts
        hidden = shape.hidden if options is None else options.shared_hidden
        return {
            **super().config(replace(shape, experts=None, layer_input_width=None, hidden=hidden)),
            **experts,
            INPUTS: shape.layer_input_width or 0,
            INPUT_VOCABULARY: shape.vocabulary,
        }

    def used_sizes(self, shape: Shape) -> frozenset[str]:
        inputs = self.input_sizes if shape.layer_input_width is not None else frozenset()
        return super().used_sizes(shape) | inputs | (self.expert_sizes if shape.experts is not None else frozenset())

    def layer_input_width(self, config: Mapping[str, Any]) -> int | None:
        """Return the columns of the input of each layer beside the tokens; None: there is none."""
        must = f"{INPUT_VOCABULARY} of a {self.model_type} must be at least its vocab_size"
        came = f"got {config[INPUT_VOCABULARY]} and {config['vocab_size']}"
        enough = not config[INPUTS] or config[INPUT_VOCABULARY] >= config["vocab_size"]
        need(enough, must, came, "load another checkpoint")
        return config[INPUTS] or None

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a shape has for its experts, which stand beside the feed-forward network of each layer."""
        if not config[EXPERTS]:
            return {}
        told = {name: config[name] for name in (COUNT, CHOSEN, INNER)}
        must = f"a {self.model_type} with {EXPERTS} needs {', '.join(told)}"
        need(None not in told.values(), must, f"got {shown(told)}", "correct it, or download the file again")
        options = ExpertOptions(
            count=told[COUNT],
            chosen=told[CHOSEN],
            shared_hidden=config["intermediate_size"],
            combined="normed_sum",
            router_norm_eps=config[self.eps_key],
            expert_factors=True,
        )
        return {"experts": options, "hidden": told[INNER]}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        """Return the config.json keys of the experts; raise a ValueError for others than those of the family."""
        options = shape.experts
        if options is None:
            return {EXPERTS: False}
        must = (
            f"the experts of a {self.model_type} have a shared_hidden, combined='normed_sum', expert_factors, a "
            "router_norm_eps as the norm_eps of the model, and no other options"
        )
        own = ExpertOptions(
            count=options.count,
            chosen=options.chosen,
            shared_hidden=options.shared_hidden or 1,
            combined="normed_sum",
            router_norm_eps=shape.norm_eps,
            expert_factors=True,
        )
        need(options == own, must, f"got experts={options}", "use save_pretrained instead")
        sizes = {COUNT: options.count, CHOSEN: options.chosen, INNER: shape.hidden_width}
        return {EXPERTS: True, **sizes}

    def rules(self, shape: Shape) -> Sequence[TensorRule]:
        rules = super().rules(shape)
        if shape.layer_input_width is None:
            return rules
        there, here = "model.layers.{}", "blocks.{}.layer_input"
        stored = self.settings.get(INPUT_VOCABULARY, shape.vocabulary)
        return [
            *rules,
            FirstRows("layer_inputs.table.weight", ("model.embed_tokens_per_layer.weight",), stored),
            *linear_rules("layer_inputs.project", "model.per_layer_model_projection", bias=False),
            *linear_rules("layer_inputs.norm", "model.per_layer_projection_norm", bias=False),
            *linear_rules(f"{here}.widen", f"{there}.per_layer_input_gate", bias=False),
            *linear_rules(f"{here}.narrow", f"{there}.per_layer_projection", bias=False),
            *linear_rules(f"{here}.norm", f"{there}.post_per_layer_input_norm", bias=False),
        ]

    def feedforward_rules(self, shape: Shape, layer: str = "{}") -> Sequence[TensorRule]:
        there, here = f"model.layers.{layer}", f"blocks.{layer}.feedforward"
        rules = super().feedforward_rules(shape, layer)
        if shape.experts is None:
            return rules
        beside = [replace(rule, ours=rule.ours.replace(here, f"{here}.shared")) for rule in rules]
        experts = f"{here}.experts"
        return [
            *beside,
            *linear_rules(f"{experts}.router", f"{there}.router.proj", bias=False),
            TensorRule(f"{experts}.router.factors", (f"{there}.router.scale",)),
            TensorRule(f"{experts}.factors", (f"{there}.router.per_expert_scale",)),
            TensorRule(f"{experts}.widen.weight", (f"{there}.experts.gate_up_proj",)),
            TensorRule(f"{experts}.narrow.weight", (f"{there}.experts.down_proj",)),
        ]

    def norm_rules(self, shape: Shape) -> Sequence[TensorRule]:
        rules, there, here = super().norm_rules(shape), "model.layers.{}", "blocks.{}"
        if shape.experts is None:
            return rules
        inner, name = f"{here}.feedforward", "feedforward_layernorm"
        names = {
            "shared_norm": f"pre_{name}",
            "shared_out_norm": f"post_{name}_1",
            "norm": f"pre_{name}_2",
            "out_norm": f"post_{name}_2",
        }
        return [
            *(rule for rule in rules if not rule.ours.startswith(f"{here}.feedforward_norm")),
            *(TensorRule(f"{inner}.{ours}.weight", (f"{there}.{theirs}.weight",)) for ours, theirs in names.items()),
        ]
