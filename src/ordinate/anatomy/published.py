"""A model of the transformers library as a subject: what does not depend on how its attention is watched."""

import inspect
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.anatomy.census import LENGTH, example_of, grid_of, measured_part, need_plain
from ordinate.anatomy.readable import Readable
from ordinate.subject import Facts, Inputs, Watch
from ordinate.tokenizer import Tokenizer


class Published(Readable):
    """A model of the transformers library.

    Must: `find_attention`, `attend` and `plain`.

    Args:
        model: the model.
        name: what it is called.
        tokenizer: makes tokens of a text; None: there is none.
        stage: which of its stacks of layers is measured, counted from 1; None: the one of the most layers.

    Raises:
        Unfit: it cannot be taken apart; the reason is in the message.
        ValueError: it has no such stage.
    """

    def __init__(
        self, model: nn.Module, name: str, tokenizer: Tokenizer | None = None, stage: int | None = None
    ) -> None:
        need_plain(model)
        self.tokenizer, (self.model, self.kind) = tokenizer, measured_part(model)
        self.tokens = None if self.kind == "vision" else self.model.get_input_embeddings()
        example = self.example(2, LENGTH)
        self.examine(example, stage)
        self._facts = self._count(name, example)

    def example(self, rows: int, length: int) -> Inputs:
        """Short random texts, or images."""
        return example_of(self.model, self.kind, rows, length)

    def logits(self, out: Any) -> Float[Tensor, "b n classes"] | None:
        """The logits: of a text at each place, of an image in one."""
        logits = getattr(out, "logits", None)
        if logits is not None and self.kind == "vision":
            return logits[:, None]
        return logits if logits is not None and logits.ndim == 3 else None

    def run(self, inputs: Inputs) -> Any:
        """A forward pass of the part that is measured."""
        if inputs.images is not None:
            return self.model(pixel_values=inputs.images)
        ids = inputs.ids
        if ids is None:
            shape = cast(Tensor, inputs.vectors).shape[:2]
            ids = torch.zeros(shape, dtype=torch.long, device=self.tokens.weight.device)
        # without a mask, positions that go back would be taken for texts packed into one row
        given: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        usual = torch.arange(ids.shape[1], device=ids.device)[None]
        positions = usual if inputs.positions is None else inputs.positions
        for way in self.ways:
            given |= way.named(positions.expand_as(ids))
        known = inspect.signature(self.model.forward).parameters
        return self.model(**given, **({"use_cache": False} if "use_cache" in known else {}))

    def _count(self, name: str, example: Inputs) -> Facts:
        (_, length, width), (heads, kv_heads, _) = self.sizes.shape, self.sizes.heads[0]
        kind, images = self.kind, example.images is not None
        if kind == "decoder" and self.reads_ahead(example):
            kind = "encoder"
        grid = grid_of(self.model.config, length) if images else None
        first = None if self.tokenizer is None else self.tokenizer.first
        rows = 0 if self.tokens is None else self.tokens.weight.shape[0]
        if first is None and kind == "decoder":
            usual = getattr(self.model.config, "bos_token_id", None)
            first = usual if isinstance(usual, int) and usual < rows else None
        return Facts(
            name=name,
            family=self.model.config.model_type,
            kind=kind,
            layers=len(self.layers),
            heads=heads,
            kv_heads=kv_heads,
            width=width,
            vocabulary=rows,
            max_length=length if images else self._longest(example),
            position=self.position(),
            prefix=0 if grid is None else length - grid[0] * grid[1],
            grid=grid,
            image=None if example.images is None else cast(tuple[int, int, int], tuple(example.images.shape[1:])),
            first_token=first,
            mask_token=None if self.tokenizer is None else self.tokenizer.mask,
            dtype=next(self.model.parameters()).dtype,
            left_out=self.left_out,
        )

    def _longest(self, example: Inputs) -> int | None:
        """The longest input that it takes; None: any."""
        if self.table is not None:
            return len(self.table.rows)
        # MPT makes its biases for one length, GPT-J its angles for so many positions
        fixed = getattr(self.model.config, "max_seq_len", None)
        limit = getattr(self.model.config, "max_position_embeddings", None)
        if (
            fixed is not None
            or limit is None
            or not any(way.named(torch.zeros(1, 1, dtype=torch.long)) for way in self.ways)
        ):
            return fixed
        beyond = torch.full_like(cast(Tensor, example.ids), limit)
        try:
            self._read(Inputs(example.ids, beyond), Watch())
        except (IndexError, RuntimeError):
            return limit
        return None
