"""What all models have in common: tokens enter a table and go through layers."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from ordinate.checks import need, need_known
from ordinate.geometry import Geometry
from ordinate.mixer import State
from ordinate.models.block import Block, Look
from ordinate.models.reversible import RUNS
from ordinate.models.shape import TOKEN_SCALE, Shape
from ordinate.scheme import Placed, Scheme
from ordinate.seeds import seed_of
from ordinate.shapes import Ids, Tokens
from ordinate.tensors import need_device, need_tensor


class Layers(nn.Module):
    """Positional schemes, layers and a last norm: what token vectors go through, wherever they come from.

        x = norm(x);  layers of Block;  norm(x)

    Args:
        shape: its sizes and choices.

    Raises:
        ValueError: sizes that do not fit, an unknown scheme or option, a scheme that a mixer does not honour.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        recipe = shape.make_schemes()
        self.blocks = nn.ModuleList(shape.make_block(layer) for layer in range(shape.layers))
        for block, scheme in zip(self.blocks, recipe.layers, strict=True):
            cast(Block, block).mixer.check_scheme(recipe.schemes[scheme])
        # a layer that norms what it adds leaves nothing to norm
        self.norm = nn.Identity() if shape.order == "post" else shape.make_norm(shape.width)
        self.embedding_norm = shape.make_norm(shape.width) if shape.embedding_norm else nn.Identity()
        self.schemes, self.scheme_of_layer = nn.ModuleList(recipe.schemes), recipe.layers

    @property
    def first_scheme(self) -> Scheme:
        """The scheme of the first layer, which marks the tokens."""
        return cast(Scheme, self.schemes[0])

    def place(self, seen: Geometry) -> list[Placed]:
        """Each scheme where the tokens stand."""
        first, *others = (cast(Scheme, scheme) for scheme in self.schemes)
        placed = first.at(seen)
        # the first layer's scheme may move the tokens, for all layers
        return [placed, *(scheme.at(placed.where) for scheme in others)]

    def run(
        self,
        x: Tokens,
        placed: list[Placed],
        states: Sequence[State | None] | None,
        looks: Sequence[Look] | None = None,
    ) -> tuple[Tokens, list[State | None]]:
        """Token vectors through all layers, and what each layer remembers.

        Args:
            x: the token vectors, marked.
            placed: each scheme where they stand.
            states: what each layer remembered before; None: nothing is to be remembered.
            looks: what each layer looks at in another sequence; None: there is none.
        """
        blocks = list(self.blocks)
        if looks is not None:
            blocks = [partial(block, look=look) for block, look in zip(blocks, looks, strict=True)]
        x, states = RUNS[self.shape.blocks](blocks, self.embedding_norm(x), self._places(placed), states)
        return self.norm(x), states

    def initialise(self, seed: int) -> None:
        """Draw the numbers of linear layers and tables, each from a generator of its own."""
        # what a mixer keeps outside of linear layers has the numbers that it was born with
        for name, module in self.named_modules():
            own = isinstance(module, nn.Linear | nn.Embedding) and not name.startswith("schemes.")
            if not own or module.weight.is_meta:
                continue
            # each layer adds its branches; the sum should not grow with depth
            branch = name.endswith(("mixer.out", "cross.out", "narrow"))
            scale = TOKEN_SCALE / (self.shape.branches * self.shape.layers) ** 0.5 if branch else TOKEN_SCALE
            # numbers of its own for each matrix: one of another size leaves the others as they are
            generator = torch.Generator(module.weight.device).manual_seed(seed_of(seed, f"{name}.weight"))
            nn.init.normal_(module.weight, std=scale, generator=generator)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def _places(self, placed: list[Placed]) -> list[Placed]:
        """What each layer's scheme and window let it see; layers with both alike share it."""
        made: dict[tuple[int, int | None], Placed] = {}
        pairs = list(zip(self.scheme_of_layer, self.shape.layer_windows, strict=True))
        for scheme, window in pairs:
            at = placed[scheme]
            own = [size for size in (window, at.where.window) if size is not None]
            same = not own or min(own) == at.where.window
            made[scheme, window] = at if same else Placed(at.scheme, replace(at.where, window=min(own)))
        return [made[pair] for pair in pairs]


class Trunk(Layers):
    """A table of tokens, positional schemes, layers and a last norm.

        x = norm(table[ids], marked by the scheme);  layers of Block;  norm(x)

    Args:
        shape: its sizes and choices.

    Raises:
        ValueError: sizes that do not fit, an unknown scheme or option, a scheme that a mixer does not honour.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.tokens = nn.Embedding(shape.vocabulary, shape.width - self.first_scheme.claims)

    def check_ids(self, ids: Ids) -> None:
        """Raise unless these are token ids of this model, on its device."""
        need_ids("ids", ids, self.tokens)

    def check_where(self, ids: Ids, where: Geometry) -> None:
        """Raise unless the geometry places these tokens, and only them."""
        check_where(ids, where)


def check_where(ids: Ids, where: Geometry) -> None:
    """Raise unless the geometry places these tokens, and only them."""
    if not isinstance(where, Geometry):
        raise TypeError(f"tokens stand at a Geometry; got {type(where).__name__}; build one: Geometry.causal(n)")
    need(
        where.shape == (ids.shape[1], ids.shape[1]) and where.rows in (1, ids.shape[0]),
        "the geometry must place the new tokens, and only them",
        f"got {where.shape[0]} queries, {where.shape[1]} keys, {where.rows} rows for ids of {tuple(ids.shape)}",
        "build it for these tokens; a cache adds those before them",
    )


def need_ids(name: str, ids: Ids, table: nn.Embedding) -> None:
    """Raise unless these are token ids that the table has, on its device."""
    need_tensor(name, ids)
    need_device(name, ids, "the model", table.weight)
    shape = tuple(ids.shape)
    need(ids.ndim == 2, f"{name} need the axes (batch, tokens)", f"got {shape}", "add a batch axis: ids[None]")
    whole = ids.dtype in (torch.int32, torch.int64)
    need(whole, f"{name} are whole numbers", f"got {ids.dtype}", "give what the tokenizer returns")
    if ids.numel() and not torch.compiler.is_compiling():
        low, high = int(ids.min()), int(ids.max())
        need(
            low >= 0 and high < table.num_embeddings,
            f"token ids lie in 0 to {table.num_embeddings - 1}",
            f"got {low} to {high}",
            "use the tokenizer that the model was made for",
        )


class SafetensorsOnly:
    """How a model of the hub's mixin reads its files: safetensors, all of them, with a shape of fields it knows."""

    def save_pretrained(self, save_directory: Any, *, config: Any = None, **rest: Any) -> Any:
        """Write model.safetensors and config.json, which names the class too, into a folder."""
        given: Any = self
        named = {"architectures": [type(self).__name__], **given._hub_mixin_config} if config is None else config
        return super().save_pretrained(save_directory, config=named, **rest)  # type: ignore[misc]

    @classmethod
    def _decode_arg(cls, expected_type: Any, value: Any) -> Any:
        if isinstance(expected_type, type) and issubclass(expected_type, Shape):
            # the mixin would pass over what it does not know, without a word
            for name in value:
                need_known("field of a shape", name, expected_type.__dataclass_fields__)
            # JSON has lists only
            value = {name: tuple(part) if isinstance(part, list) else part for name, part in value.items()}
        return super()._decode_arg(expected_type, value)  # type: ignore[misc]

    @classmethod
    def _load_as_safetensor(cls, model: Any, model_file: str, map_location: str, strict: bool) -> Any:
        # the mixin's default would leave what a file lacks at random numbers, without a word
        return super()._load_as_safetensor(model, model_file, map_location, True)  # type: ignore[misc]

    @classmethod
    def _load_as_pickle(cls, model: Any, model_file: str, map_location: str, strict: bool) -> Any:
        raise ValueError(f"weights are read from safetensors; got {model_file}; save it by save_pretrained")
