"""A language model that reads from left to right."""

from dataclasses import replace
from typing import Any, TypeVar, cast

import torch
from huggingface_hub import ModelHubMixin, PyTorchModelHubMixin
from torch import nn

from ordinate.checks import need, need_known
from ordinate.geometry import Geometry
from ordinate.models.block import Block
from ordinate.models.cache import Cache
from ordinate.models.reversible import RUNS
from ordinate.models.shape import TOKEN_SCALE, Shape
from ordinate.scheme import Placed, Scheme
from ordinate.seeds import seed_of
from ordinate.shapes import Ids, Logits
from ordinate.tensors import need_device, need_tensor

Loaded = TypeVar("Loaded", bound=ModelHubMixin)


class Decoder(nn.Module, PyTorchModelHubMixin):
    """A language model: for each token, how likely each next token is.

        x = table[ids], marked by the scheme;  layers of Block;  logits = norm(x) W

    `save_pretrained(folder)` writes model.safetensors and config.json, `Decoder.from_pretrained(folder)` reads them.

    Args:
        shape: its sizes and choices.

    Raises:
        ValueError: sizes that do not fit, an unknown scheme or option, a scheme that the mixer does not honour.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        seed = int(torch.randint(2**62, (), device="cpu"))
        recipe = shape.make_schemes()
        self.blocks = nn.ModuleList(shape.make_block(layer) for layer in range(shape.layers))
        for block, scheme in zip(self.blocks, recipe.layers, strict=True):
            mixer = cast(Block, block).mixer
            mixer.check_causal()
            mixer.check_scheme(recipe.schemes[scheme])
        # a layer that norms what it adds leaves nothing to norm
        self.norm = nn.Identity() if shape.order == "post" else shape.make_norm(shape.width)
        self.head = None if shape.tied else nn.Linear(shape.width, shape.vocabulary, bias="head" in shape.bias)
        self.tokens = nn.Embedding(shape.vocabulary, shape.width - recipe.schemes[0].claims)
        self.embedding_norm = shape.make_norm(shape.width) if shape.embedding_norm else nn.Identity()
        self._initialise(seed)
        self.schemes, self.scheme_of_layer = nn.ModuleList(recipe.schemes), recipe.layers

    def forward(self, ids: Ids, where: Geometry | None = None, cache: Cache | None = None) -> Logits:
        """The logits of the next token at each place.

        Args:
            ids: tokens; with a cache, the new ones.
            where: where they stand; None: one text from left to right, following what the cache holds.
            cache: what was read before; it grows by these tokens.
        """
        self._check_ids(ids)
        if not isinstance(cache, Cache | None):
            raise TypeError(f"what was read stands in a Cache; got {type(cache).__name__}; begin with Cache()")
        if where is None:
            where = (cache or Cache()).following(ids.shape[1], ids.device)
        self._check_places(ids, where, cache)
        seen = where if cache is None else cache.place(where)
        first, *others = (cast(Scheme, scheme) for scheme in self.schemes)
        placed = [first.at(seen)]
        # the first layer's scheme may move the tokens, for all layers
        placed += [scheme.at(placed[0].where) for scheme in others]
        x = self.embedding_norm(placed[0].embed(self.tokens(ids)))
        places = self._places(placed)
        before = None if cache is None else cache.states or [None] * len(self.blocks)
        x, states = RUNS[self.shape.blocks](list(self.blocks), x, places, before)
        if cache is not None:
            cache.states, cache.where = states, seen
        return self._read(self.norm(x))

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

    def _read(self, x: torch.Tensor) -> Logits:
        if self.head is not None:
            return self.head(x)
        # a scheme that claims columns leaves the table narrower than the model
        return nn.functional.linear(x[..., : self.tokens.embedding_dim], self.tokens.weight)

    def _check_places(self, ids: Ids, where: Geometry, cache: Cache | None) -> None:
        if not isinstance(where, Geometry):
            raise TypeError(f"tokens stand at a Geometry; got {type(where).__name__}; build one: Geometry.causal(n)")
        need(
            where.shape == (ids.shape[1], ids.shape[1]) and where.rows in (1, ids.shape[0]),
            "the geometry must place the new tokens, and only them",
            f"got {where.shape[0]} queries, {where.shape[1]} keys, {where.rows} rows for ids of {tuple(ids.shape)}",
            "build it for these tokens; a cache adds those before them",
        )
        need(
            where.hides_future,
            "a decoder reads from left to right",
            "got a geometry that is not causal",
            "build it by Geometry.causal, or with causal=True",
        )
        remembered = 0 if cache is None else len(cache.states)
        need(
            remembered in (0, len(self.blocks)),
            "a cache holds one memory for each layer",
            f"got {remembered} for {len(self.blocks)} layers",
            "use the cache with the model that filled it",
        )

    def _check_ids(self, ids: Ids) -> None:
        need_tensor("ids", ids)
        need_device("ids", ids, "the model", self.tokens.weight)
        shape = tuple(ids.shape)
        need(ids.ndim == 2, "ids need the axes (batch, tokens)", f"got {shape}", "add a batch axis: ids[None]")
        whole = ids.dtype in (torch.int32, torch.int64)
        need(whole, "ids are whole numbers", f"got {ids.dtype}", "give what the tokenizer returns")
        if ids.numel() and not torch.compiler.is_compiling():
            low, high = int(ids.min()), int(ids.max())
            need(
                low >= 0 and high < self.shape.vocabulary,
                f"token ids lie in 0 to {self.shape.vocabulary - 1}",
                f"got {low} to {high}",
                "use the tokenizer that the model was made for",
            )

    @classmethod
    def _decode_arg(cls, expected_type: Any, value: Any) -> Any:
        if expected_type is Shape:
            # the mixin would pass over what it does not know, without a word
            for name in value:
                need_known("field of a shape", name, Shape.__dataclass_fields__)
            # JSON has lists only
            value = {name: tuple(part) if isinstance(part, list) else part for name, part in value.items()}
        return super()._decode_arg(expected_type, value)

    @classmethod
    def _load_as_safetensor(cls, model: Loaded, model_file: str, map_location: str, strict: bool) -> Loaded:
        # the mixin's default would leave what a file lacks at random numbers, without a word
        return super()._load_as_safetensor(model, model_file, map_location, True)

    @classmethod
    def _load_as_pickle(cls, model: Loaded, model_file: str, map_location: str, strict: bool) -> Loaded:
        raise ValueError(f"weights are read from safetensors; got {model_file}; save it by save_pretrained")

    def _initialise(self, seed: int) -> None:
        # what a mixer keeps outside of linear layers has the numbers that it was born with
        for name, module in self.named_modules():
            if not isinstance(module, nn.Linear | nn.Embedding) or module.weight.is_meta:
                continue
            # each layer adds two branches; the sum should not grow with depth
            branch = name.endswith(("mixer.out", "narrow"))
            scale = TOKEN_SCALE / (2 * self.shape.layers) ** 0.5 if branch else TOKEN_SCALE
            # numbers of its own for each matrix: one of another size leaves the others as they are
            generator = torch.Generator(module.weight.device).manual_seed(seed_of(seed, f"{name}.weight"))
            nn.init.normal_(module.weight, std=scale, generator=generator)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
