"""Base class of decoders with experts like those of DeepSeek-V3."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.models.expert_options import ExpertOptions, Scores
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.moe_like import CHOSEN, COUNT, MoeLike

PUBLISHED_COUNT, SHARED = "n_routed_experts", "n_shared_experts"
"""The keys of the number of experts, and of the widths of an expert that the shared network has."""
SCALE = "routed_scaling_factor"
"""The key of the factor of the weights of experts."""
INNER = "moe_intermediate_size"
"""The key of the hidden width of an expert."""
FIRST, GROUPS, CHOSEN_GROUPS = "first_k_dense_replace", "n_group", "topk_group"
"""The keys of the number of first layers without experts, of groups, and of those of each token."""
PREDICTORS, PREDICTORS_ALIAS = "num_nextn_predict_layers", "num_mtp_layers"
"""The key of the number of layers behind those of the model, for tokens after the next one."""
SCORE_NAMES: Mapping[Scores, str] = {"softmax": "a softmax", "sigmoid": "sigmoids"}


class DeepseekMoeLike(MoeLike):
    """Decoders with experts in all but the first layers, chosen as in DeepSeek-V3, and a shared network beside them.

    Scores are sigmoids, whose choice has a bias of its own, and may be restricted to some groups of experts. Layers
    that predict tokens after the next one are not read, as in transformers.

    May: `predictor`, `shared_key`, `scale_key`, `choice_bias_name` and `scores_of_experts`; in pairs, to read and to
    write, `choice` and `choice_config`, `shared_width` and `shared_config`, `dense_layers` and `dense_config`; what
    `MoeLike` may.
    """

    predictor: ClassVar[int | None] = None
    """Index of the layer for tokens after the next one in published models; None: they have none."""
    choice_bias_name: ClassVar[str] = "gate.e_score_correction_bias"
    """Name in checkpoints of what is added to the scores for the choice."""
    scores_of_experts: ClassVar[Scores] = "sigmoid"
    """What makes the scores of experts."""
    count_key = PUBLISHED_COUNT
    shared_key: ClassVar[str] = SHARED
    """The key of the widths of an expert that the shared network has; "": there is no such network."""
    scale_key: ClassVar[str] = SCALE
    """The key of the factor of the weights."""
    aliases: ClassVar[Mapping[str, str]] = {COUNT: PUBLISHED_COUNT}
    expert_sizes = frozenset({COUNT, PUBLISHED_COUNT, CHOSEN, INNER, SHARED})
    optional_sizes = frozenset({"intermediate_size", *expert_sizes})
    wide = (".choice_bias", ".router.weight")

    def experts(self, config: Mapping[str, Any]) -> dict[str, Any]:
        dense = self.dense_layers(config)
        if len(dense) == config["num_hidden_layers"]:
            return {}
        options = ExpertOptions(
            count=self.expert_count(config),
            chosen=config[CHOSEN],
            dense_layers=dense,
            dense_hidden=config["intermediate_size"] if dense else None,
            scale=float(config[self.scale_key]),
            shared_hidden=self.shared_width(config),
            **self.choice(config),
        )
        return {"experts": options, "hidden": config[INNER]}

    def choice(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the choice of experts and of their weights."""
        groups = {"groups": config[GROUPS], "chosen_groups": config[CHOSEN_GROUPS]}
        weights = {"scores": self.scores_of_experts, "normalise": bool(config["norm_topk_prob"])}
        return {**weights, "choice_bias": True, **groups}

    def choice_config(self, options: ExpertOptions) -> dict[str, Any]:
        """Return the config.json keys of that choice."""
        groups = {GROUPS: options.groups, CHOSEN_GROUPS: options.chosen_groups}
        return {"norm_topk_prob": options.normalise, **groups}

    def shared_width(self, config: Mapping[str, Any]) -> int | None:
        """Return the hidden width of the shared network; None: there is none."""
        return config[self.shared_key] * config[INNER] if self.shared_key else None

    def shared_config(self, options: ExpertOptions, hidden: int) -> dict[str, Any]:
        """Return the config.json keys of the shared network beside experts of this hidden width."""
        return {self.shared_key: max(1, (options.shared_hidden or 0) // hidden)} if self.shared_key else {}

    def dense_layers(self, config: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the layers without experts."""
        return tuple(range(min(config[FIRST], config["num_hidden_layers"])))

    def dense_config(self, shape: Shape, layers: Sequence[int]) -> dict[str, Any]:
        """Return the config.json keys of the layers without experts."""
        return {FIRST: len(layers)}

    def expert_config(self, shape: Shape) -> dict[str, Any]:
        options, hidden = shape.experts, shape.hidden_width
        if options is None:
            return self.dense_config(shape, range(shape.layers))
        must = f"a {self.model_type} has two experts at least, whose scores are {SCORE_NAMES[self.scores_of_experts]}"
        fits = options.count > 1 and options.scores == self.scores_of_experts
        need(fits, must, f"got experts={options}", "use save_pretrained instead")
        return {
            self.count_key: options.count,
            CHOSEN: options.chosen,
            "intermediate_size": hidden if options.dense_hidden is None else options.dense_hidden,
            INNER: hidden,
            **self.choice_config(options),
            **self.dense_config(shape, options.dense_layers),
            self.scale_key: options.scale,
            **self.shared_config(options, hidden),
        }

    def expert_rules(self, shape: Shape, layer: str) -> Sequence[TensorRule]:
        there, here = f"model.layers.{layer}.mlp.{self.choice_bias_name}", f"blocks.{layer}.feedforward"
        bias = TensorRule(f"{here}.choice_bias", (there,))
        biased = shape.experts is not None and shape.experts.choice_bias
        return [*super().expert_rules(shape, layer), *([bias] if biased else [])]

    def ignores(self, name: str, shape: Shape) -> bool:
        """Whether a tensor of a checkpoint without a place here is ignored: one of the layers behind the last."""
        found = re.match(rf"(?:{re.escape(self.prefix)})?layers\.(\d+)\.", name)
        layer = -1 if found is None else int(found[1])
        more = self.settings[PREDICTORS] if PREDICTORS in self.defaults else 0
        behind = shape.layers <= layer < shape.layers + more
        return super().ignores(name, shape) or behind or shape.layers <= layer == self.predictor

    def expert_count(self, config: Mapping[str, Any]) -> int:
        """Return the number of experts; raise a ValueError unless the groups of a token have as many as it has."""
        for name in (self.count_key, *([self.shared_key] if self.shared_key else []), CHOSEN):
            must = f"{name} in config.json must be a whole number, where layers have experts"
            need(config[name] is not None, must, f"got {shown(config[name])}", "correct it, or download it again")
        count = super().expert_count(config)
        told = {name: config[name] for name in (self.count_key, GROUPS, CHOSEN_GROUPS, CHOSEN)}
        size, rest = divmod(count, config[GROUPS])
        must = f"{GROUPS} must divide {self.count_key}, and {CHOSEN_GROUPS} groups have {CHOSEN} experts"
        came = f"got {', '.join(f'{name}={value}' for name, value in told.items())}"
        fits = config[CHOSEN_GROUPS] <= config[GROUPS] and config[CHOSEN] <= config[CHOSEN_GROUPS] * size
        need(not rest and fits, must, came, "load another checkpoint")
        return count
