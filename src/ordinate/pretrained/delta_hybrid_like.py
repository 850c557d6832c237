"""Base class of decoders with a gated DeltaNet in some layers and softmax attention in the others."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from ordinate.core.checks import need, shown
from ordinate.mixers._delta_rule import DeltaRuleSizes
from ordinate.mixers.gated_deltanet import GatedDeltaNet
from ordinate.models.feedforward import GATED
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, linear_rules
from ordinate.pretrained.grouped_rows import ChannelFilters
from ordinate.pretrained.hybrid_like import HybridLike
from ordinate.pretrained.short_filters import filter_activation

KEY_HEADS, HEADS = "linear_num_key_heads", "linear_num_value_heads"
"""The keys of the heads of a gated DeltaNet."""
KEY_WIDTH, VALUE_WIDTH, TAPS = "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim"
"""The keys of the channels of its heads, and of the span of its convolution."""
LINEAR_SIZES = frozenset({KEY_HEADS, HEADS, KEY_WIDTH, VALUE_WIDTH, TAPS})


class DeltaHybridLike(HybridLike[DeltaRuleSizes]):
    """Decoders with a gated DeltaNet in some layers and softmax attention in the others, as `layer_types` says.

    Must: as `LlamaLike`, and `usual_types` and `projection_rules`.
    May: `delta_norm`, `delta_out`, `negative_eigenvalues`, `delta_eps` and `filter_rule`.
    """

    recurrent = GatedDeltaNet
    recurrent_mixer = "gated DeltaNet"
    recurrent_name = "linear_attn"
    recurrent_keys = LINEAR_SIZES
    delta_norm: ClassVar[str] = "norm"
    """Name of the norm of a gated DeltaNet in checkpoints."""
    delta_out: ClassVar[str] = "out_proj"
    """Name of its output projection in checkpoints."""

    @abstractmethod
    def projection_rules(self, sizes: DeltaRuleSizes, there: str, here: str) -> Sequence[TensorRule]:
        """Return the tensor mappings of the input projections of a gated DeltaNet: `project`, `gate`, `rate`, `step`.

        Args:
            sizes: its sizes.
            there: its name in the checkpoint.
            here: its name in our model.
        """

    def sizes_of(self, mixer: GatedDeltaNet) -> DeltaRuleSizes:
        return mixer.sizes

    def recurrent_spec(self, config: Mapping[str, Any]) -> str:
        for name in sorted(LINEAR_SIZES):
            fits, must = (
                isinstance(config[name], int) and config[name] > 0,
                f"{name} must be a whole number above zero",
            )
            need(fits, must, f"got {shown(config[name])}", "load another checkpoint")
        heads, keys, values = config[HEADS], config[KEY_WIDTH], config[VALUE_WIDTH]
        must, came = f"{KEY_HEADS} must divide {HEADS}", f"got {config[KEY_HEADS]} and {heads}"
        need(heads % config[KEY_HEADS] == 0, must, came, "load another checkpoint")
        # as a ratio where it is one
        width = f"value_ratio={values // keys}" if values % keys == 0 else f"variant.value_width={values}"
        options = [f"heads={heads}", f"key_width={keys}", width, f"taps={config[TAPS]}"]
        options += ["negative_eigenvalues=true"] if self.negative_eigenvalues(config) else []
        options += [] if config[KEY_HEADS] == heads else [f"variant.key_heads={config[KEY_HEADS]}"]
        options += [f"variant.norm_eps={self.delta_eps(config)}"]
        activation = filter_activation(self, config)
        options += [] if activation == "silu" else [f"variant.activation={activation}"]
        return "gated_deltanet:" + ",".join(options)

    def negative_eigenvalues(self, config: Mapping[str, Any]) -> bool:
        """Whether the share that a value replaces is twice a sigmoid."""
        return False

    def delta_eps(self, config: Mapping[str, Any]) -> float:
        """Return the epsilon of the norm of a gated DeltaNet."""
        return config[self.eps_key]

    def recurrent_config(self, shape: Shape, sizes: DeltaRuleSizes) -> dict[str, Any]:
        inner = GATED.get(cast(Any, shape.feedforward))
        need(
            sizes.gate and sizes.activation == inner,
            f"a {self.model_type} has gates in its gated DeltaNets, and the activation of its feedforward there",
            f"got gate={sizes.gate}, activation={sizes.activation!r} and feedforward={shape.feedforward!r}",
            "use save_pretrained instead",
        )
        return {
            HEADS: sizes.heads,
            KEY_HEADS: sizes.query_heads,
            KEY_WIDTH: sizes.key_width,
            VALUE_WIDTH: sizes.value_width,
            TAPS: sizes.taps,
        }

    def recurrent_rules(self, sizes: DeltaRuleSizes, there: str, here: str) -> Sequence[TensorRule]:
        named = {"decay.log_rate": "A_log", "decay.bias": "dt_bias", "norm_scale": f"{self.delta_norm}.weight"}
        return [
            *self.projection_rules(sizes, there, here),
            self.filter_rule(sizes, there, here),
            *(TensorRule(f"{here}.{ours}", (f"{there}.{name}",)) for ours, name in named.items()),
            *linear_rules(f"{here}.out", f"{there}.{self.delta_out}", bias=False),
        ]

    def filter_rule(self, sizes: DeltaRuleSizes, there: str, here: str) -> TensorRule:
        """Return the tensor mapping of the filters of a gated DeltaNet; arguments as of `projection_rules`."""
        return ChannelFilters(f"{here}.convolution.weight", (f"{there}.conv1d.weight",))
