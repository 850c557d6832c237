"""T5."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ordinate import catalog
from ordinate.checkpoints.encoder_decoder_like import EncoderDecoderLike, need_plain, tokens, tokens_config
from ordinate.checks import need, need_known
from ordinate.family import Halves, Heads, Rule, linear
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.feedforward import GATED, Kind
from ordinate.models.shape import Shape

# there is no word for a length in its configs, and no limit
LENGTH = 512
MIXER = "softmax:variant.scale=1.0"
HEAD = "lm_head.weight"
KINDS: Mapping[str, Kind] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    # the one word that does not say which gelu it is
    "gated-gelu": "geglu_tanh",
    "gated-silu": "swiglu",
}


class T5(EncoderDecoderLike):
    """Numbers for buckets of distances, shared by all layers, products left unscaled, RMS norms; none across.

    The first version (T5) ties its head to the table and divides what it reads by sqrt(width); 1.1 (FLAN, mT5's kin)
    does neither, and gates its feed-forward.

    Source: Raffel et al. 2020, https://arxiv.org/abs/1910.10683.
    """

    model_type = "t5"
    prefix = ""
    # a table of distances across that old versions kept and did not read
    aside = ("EncDecAttention.relative_attention_bias.weight",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "layer_norm_epsilon": 1e-6,
        "feed_forward_proj": "relu",
        "num_decoder_layers": None,
        "decoder_start_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 0,
    }

    def complete(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Its config.json may say tied of a head that is not: the tensors decide."""
        scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True) is not False)
        return {**config, "scale_decoder_outputs": scaled, "tied": HEAD not in names}

    def architecture(self, shape: Shape) -> str:
        """A model that writes."""
        return "T5ForConditionalGeneration"

    def shape(self, config: Mapping[str, Any]) -> EncoderDecoderShape:
        """The sizes in a config.json."""
        need_known("feed_forward_proj", config["feed_forward_proj"], KINDS)
        width = config["d_model"]
        buckets, farthest = (config[f"relative_attention_{name}"] for name in ("num_buckets", "max_distance"))
        return EncoderDecoderShape(
            vocabulary=config["vocab_size"],
            width=width,
            layers=config["num_decoder_layers"] or config["num_layers"],
            source_layers=config["num_layers"],
            heads=config["num_heads"],
            head_width=config["d_kv"],
            scheme=f"t5:buckets={buckets},max_distance={farthest}",
            mixer=MIXER,
            cross_mixer=MIXER,
            max_length=LENGTH,
            epsilon=config["layer_norm_epsilon"],
            feedforward=KINDS[config["feed_forward_proj"]],
            hidden=config["d_ff"],
            bias=(),
            tied=config["tied"],
            logit_scale=width**-0.5 if config["scale_decoder_outputs"] else 1.0,
            **tokens(config),
        )

    def config(self, shape: Shape) -> dict[str, Any]:
        """A config.json for a model of this shape."""
        full = need_plain(
            self, shape, mixer=MIXER, source_mixer=MIXER, cross_mixer=MIXER, source_scheme=shape.scheme, bias=()
        )
        name, options = catalog.parse(shape.scheme)
        need(name == "t5", "a t5 has buckets of distances", f"got {shape.scheme!r}", "save it as our own")
        words = {kind: word for word, kind in KINDS.items()}
        need_known("feedforward of a t5", shape.feedforward, words)
        return {
            "vocab_size": shape.vocabulary,
            "d_model": shape.width,
            "d_kv": shape.sizes["head_width"],
            "d_ff": shape.hidden_width,
            "num_layers": full.source_layers,
            "num_decoder_layers": shape.layers,
            "num_heads": shape.heads,
            "relative_attention_num_buckets": int(options.get("buckets", 32)),
            "relative_attention_max_distance": int(options.get("max_distance", 128)),
            "layer_norm_epsilon": shape.epsilon,
            "feed_forward_proj": words[shape.feedforward],
            # what says that logits are scaled
            "tie_word_embeddings": full.logit_scale != 1,
            **tokens_config(full),
        }

    def rules(self, shape: Shape) -> Sequence[Rule]:
        """How the tensors are called there and here."""
        rules = [Rule("tokens.weight", ("shared.weight",))]
        for side, last in (("encoder", 1), ("decoder", 2)):
            there, here = f"{side}.block.{{}}.layer", f"{side}.blocks.{{}}"
            inner = f"{there}.{last}.DenseReluDense"
            wide = [f"{inner}.wi_0", f"{inner}.wi_1"] if shape.feedforward in GATED else [f"{inner}.wi"]
            table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            rules += [
                Rule(f"{side}.schemes.0.table", (table,)),
                Rule(f"{side}.norm.weight", (f"{side}.final_layer_norm.weight",)),
                Rule(f"{here}.mixer_norm.weight", (f"{there}.0.layer_norm.weight",)),
                Rule(f"{here}.feedforward_norm.weight", (f"{there}.{last}.layer_norm.weight",)),
                *attention(f"{here}.mixer", f"{there}.0.SelfAttention"),
                *linear(f"{here}.feedforward.widen", *wide, kind=Halves if len(wide) == 2 else Rule, bias=False),
                *linear(f"{here}.feedforward.narrow", f"{inner}.wo", bias=False),
            ]
        cross = "decoder.blocks.{}.cross"
        rules += attention(cross, "decoder.block.{}.layer.1.EncDecAttention")
        rules.append(Rule(f"{cross}_norm.weight", ("decoder.block.{}.layer.1.layer_norm.weight",)))
        return rules if shape.tied else [*rules, Rule("head.weight", (HEAD,))]


def attention(here: str, there: str) -> list[Rule]:
    """The rules of an attention."""
    parts = [f"{there}.{part}" for part in "qkv"]
    return [
        *linear(f"{here}.project", *parts, kind=Heads, bias=False),
        *linear(f"{here}.out", f"{there}.o", bias=False),
    ]
