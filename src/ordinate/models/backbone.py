"""Common parts of all models: token embeddings, layer stack, initialisation."""

from collections.abc import Sequence
from functools import partial
from typing import cast

import torch
from torch import nn

from ordinate.core.checkpointed import checkpointed
from ordinate.core.checks import need
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.seeds import derive_seed
from ordinate.core.shapes import Ids, Logits, Tokens
from ordinate.core.tensors import has_free_values, need_device, need_tensor, need_vectors
from ordinate.mixers._mixer import MixerState
from ordinate.models.block import Block, CrossAttentionInput
from ordinate.models.experts import ExpertLinear
from ordinate.models.layer_inputs import LayerInput
from ordinate.models.mixer_layers import check_scheme_sizes, check_shared_keys
from ordinate.models.reversible import RUNNERS
from ordinate.models.shape import INITIAL_STD, Shape
from ordinate.models.shared_layers import SharedLayers
from ordinate.ops.double_backward import untraceable
from ordinate.schemes._scheme import Placed, Scheme

FROM_FORWARD = "give what the model itself returned"


class LayerStack(nn.Module):
    """Stack of transformer layers with positional schemes and a final norm, on token vectors from any source.

        x = norm(x);  layers of Block;  norm(x)

    Args:
        shape: hyperparameters.

    Raises:
        ValueError: sizes that do not fit, an unknown scheme or option, a scheme that a mixer does not support.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        recipe = shape.make_schemes()
        blocks = [shape.make_block(layer) for layer in range(shape.layers)]
        shared = shape.shared_layers
        self.blocks = SharedLayers(blocks, shared) if shared else nn.ModuleList(blocks)
        pairs = [
            (cast(Block, block).mixer, recipe.schemes[index])
            for block, index in zip(self.blocks, recipe.scheme_of_layer, strict=True)
        ]
        for layer, (mixer, scheme) in enumerate(pairs):
            mixer.check_scheme(scheme)
            check_scheme_sizes(layer, scheme, mixer)
        check_shared_keys(pairs, shape.shared_keys)
        # post-norm layers end with a norm already
        normed = shape.final_norm and shape.layer_norm_positions[-1] != "post"
        self.norm = shape.make_norm(shape.width) if normed else nn.Identity()
        self.embedding_norm = shape.make_norm(shape.width) if shape.embedding_norm else nn.Identity()
        self.schemes, self.scheme_of_layer = nn.ModuleList(recipe.schemes), recipe.scheme_of_layer
        self.gradient_checkpointing = False

    def gradient_checkpointing_enable(self) -> None:
        """Compute activations again in the backward pass: of each layer only the input is stored.

        Results and gradients are bit for bit the same, dropout included; each layer is computed twice. Biases and
        rotations that layers share are stored. Without gradients, with a cache, and where torch.compile traces (it
        decides itself what is computed again), nothing changes.

        Raises:
            ValueError: reversible layers, which store no activations.
        """
        need(
            self.shape.blocks == "plain",
            "gradient checkpointing needs layers that store activations",
            f"got blocks={self.shape.blocks!r}, which store none",
            "leave it out, or build the model with blocks='plain'",
        )
        self.gradient_checkpointing = True

    def gradient_checkpointing_disable(self) -> None:
        """Store all activations, as a new model does."""
        self.gradient_checkpointing = False

    @property
    def first_scheme(self) -> Scheme:
        """Scheme of the first layer, which also provides the position embeddings."""
        return cast(Scheme, self.schemes[0])

    def bind_schemes(self, seen: Geometry) -> list[Placed]:
        """Bind each scheme to the geometry."""
        first, *others = (cast(Scheme, scheme) for scheme in self.schemes)
        placed = first.at(seen)
        # the first layer's scheme may change positions, for all layers
        return [placed, *(scheme.at(placed.where) for scheme in others)]

    def run_layers(
        self,
        x: Tokens,
        placed: list[Placed],
        states: Sequence[MixerState | None] | None,
        cross_inputs: Sequence[CrossAttentionInput] | None = None,
        layer_inputs: Sequence[LayerInput] | None = None,
    ) -> tuple[Tokens, list[MixerState | None]]:
        """Run all layers; return the output tokens and the new state of each layer.

        Args:
            x: token vectors, with position embeddings.
            placed: each scheme at the geometry of the tokens, from `bind_schemes`.
            states: state of each layer after the previous tokens; None: no states are kept.
            cross_inputs: cross-attention input of each layer; None: no cross-attention.
            layer_inputs: input of each layer beside the tokens; None: there is none.
        """
        blocks, run = list(self.blocks), RUNNERS[self.shape.blocks]
        if self.shape.shared_keys:
            run = partial(run, shared_keys=self.shape.shared_keys)
        if layer_inputs is not None:
            blocks = [partial(block, layer_input=given) for block, given in zip(blocks, layer_inputs, strict=True)]
        if cross_inputs is not None:
            blocks = [partial(block, cross_input=given) for block, given in zip(blocks, cross_inputs, strict=True)]
        if self.gradient_checkpointing and states is None and _can_checkpoint(x):
            blocks = [partial(checkpointed, block) for block in blocks]
        x, states = run(blocks, self.embedding_norm(x), self._places(placed), states)
        return self.norm(x), states

    def check_hidden_states(self, x: Tokens) -> None:
        """Raise unless `x` has the axes and the width of this model's hidden states."""
        need_vectors("x", x, "batch, tokens, width")
        width = self.shape.width
        need(
            x.shape[2] == width, f"x has the {width} columns of the model", lambda: f"got {x.shape[2]}", FROM_FORWARD
        )

    def initialise(self, seed: int) -> None:
        """Initialise the weights of linear layers and embeddings, each from a random generator of its own."""
        # parameters of mixers outside of nn.Linear keep their own initialisation
        kinds, done = nn.Linear | nn.Embedding | ExpertLinear, set[int]()
        for name, module in self.named_modules():
            own = isinstance(module, kinds) and not name.startswith("schemes.")
            # layers may share their weights
            if not own or module.weight.is_meta or id(module.weight) in done:
                continue
            done.add(id(module.weight))
            # as in GPT-2, smaller output projections of residual branches: their sum should not grow with depth
            branch = name.endswith(("mixer.out", "cross.out", "narrow"))
            usual = self.shape.table_std if name == "tokens" else INITIAL_STD
            scale = INITIAL_STD / self.shape.branches**0.5 if branch else usual
            # seeded by module path: a change of one matrix does not change the initial values of the others
            generator = torch.Generator(module.weight.device).manual_seed(derive_seed(seed, f"{name}.weight"))
            nn.init.normal_(module.weight, std=scale, generator=generator)
            if not isinstance(module, nn.Embedding) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def _places(self, placed: list[Placed]) -> list[Placed]:
        """Scheme and geometry, with the window, of each layer; layers with the same ones share the object."""
        made: dict[tuple[int, int | None], Placed] = {}
        pairs = list(zip(self.scheme_of_layer, self.shape.layer_windows, strict=True))
        for scheme, window in pairs:
            at = placed[scheme]
            own = [size for size in (window, at.where.window) if size is not None]
            same = not own or min(own) == at.where.window
            made[scheme, window] = at if same else Placed(at.scheme, changed(at.where, window=min(own)))
        return [made[pair] for pair in pairs]


def _can_checkpoint(x: Tokens) -> bool:
    return torch.is_grad_enabled() and not torch.compiler.is_compiling() and untraceable(x) is None


class Backbone(LayerStack):
    """Token embeddings and a stack of transformer layers: the model without its output head.

        x = norm(embedding_scale * table[ids], with position embeddings);  layers of Block;  norm(x)

    Args:
        shape: hyperparameters.

    Raises:
        ValueError: sizes that do not fit, an unknown scheme or option, a scheme that a mixer does not support.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        columns, appended = shape.table_width, self.first_scheme.appended_width
        must = f"embedding_width must leave columns beside the {appended} that the scheme appends"
        need(columns > appended, must, f"got {columns}", "give more")
        self.tokens = nn.Embedding(shape.vocabulary, columns - appended)

    def embed_tokens(self, ids: Ids) -> Tokens:
        """Token embeddings, without position embeddings."""
        return embedded(self.tokens, ids, self.shape)

    def check_ids(self, ids: Ids) -> None:
        """Raise unless these are token ids of this model, on its device."""
        need_ids("ids", ids, self.tokens)

    def check_geometry(self, ids: Ids, where: Geometry) -> None:
        """Raise unless the geometry is for these tokens only; see the function `check_geometry`."""
        check_geometry(ids, where)


def scaled(x: Tokens, factor: float) -> Tokens:
    """Multiply token vectors by a factor; with the factor 1 they are returned as they are."""
    return x if factor == 1 else x * factor


def embedded(table: nn.Embedding, ids: Ids, shape: Shape) -> Tokens:
    """Token embeddings, times the factor of the model, without position embeddings."""
    x = table(ids)
    return scaled(x, shape.embedding_factor(x.dtype))


def soft_capped(logits: Logits, cap: float | None) -> Logits:
    """Squash logits to (-cap, cap): cap tanh(logits / cap); without a cap they are returned as they are.

    Source: Gemma Team 2024, Gemma 2, section 2, https://arxiv.org/abs/2408.00118.
    """
    return logits if cap is None else cap * (logits / cap).tanh()


def check_geometry(ids: Ids, where: Geometry) -> None:
    """Raise unless the queries and keys of the geometry are these tokens."""
    if not isinstance(where, Geometry):
        raise TypeError(f"where must be a Geometry; got {type(where).__name__}; build one: Geometry.causal(n)")
    need(
        where.shape == (ids.shape[1], ids.shape[1]) and where.batch_size in (1, ids.shape[0]),
        "the geometry must have the new tokens as queries and as keys",
        lambda: (
            f"got {where.shape[0]} queries, {where.shape[1]} keys, {where.batch_size} rows for ids of "
            f"{tuple(ids.shape)}"
        ),
        "build it for these tokens only; the cache adds the past",
    )


def need_ids(name: str, ids: Ids, table: nn.Embedding) -> None:
    """Raise unless these are token ids of the table's vocabulary, on its device."""
    need_tensor(name, ids)
    need_device(name, ids, "the model", table.weight)
    axes, came = f"{name} need the axes (batch, tokens)", lambda: f"got {tuple(ids.shape)}"
    need(ids.ndim == 2, axes, came, "add a batch axis: ids[None]")
    whole = ids.dtype in (torch.int32, torch.int64)
    need(whole, f"{name} must be int32 or int64", f"got {ids.dtype}", "pass what the tokenizer returns")
    # on a GPU the embedding itself checks them
    if ids.numel() and has_free_values(ids):
        low, high = int(ids.min()), int(ids.max())
        need(
            low >= 0 and high < table.num_embeddings,
            f"token ids must lie in 0 to {table.num_embeddings - 1}",
            f"got {low} to {high}",
            "use the tokenizer that the model was made for",
        )
