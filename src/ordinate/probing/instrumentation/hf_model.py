"""Base class of the adapters of transformers models: inputs, forward pass and static information."""

import inspect
from dataclasses import replace
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.data.tokenizer import Tokenizer
from ordinate.probing._adapter import Hooks, Inputs, ModelInfo
from ordinate.probing.instrumentation.black_box_model import BlackBoxModel
from ordinate.probing.instrumentation.dynamic_rope import restart_dynamic_rope
from ordinate.probing.instrumentation.inspect_model import (
    LENGTH,
    example_input,
    has_both_sides,
    need_float_weights,
    patch_grid,
    probed_part,
    special_tokens,
    token_embedding,
)


class HFModel(BlackBoxModel):
    """Adapter base class of transformers models.

    Must: `find_attention`, `attend` and `plain`.

    Args:
        model: the model.
        name: name for reports.
        tokenizer: its tokenizer; None: none.
        stage: stack of layers to probe, counted from 1; None: the one with the most layers.

    Raises:
        NotApplicable: the model cannot be instrumented; the message is the reason.
        ValueError: the model has no such stage.
    """

    def __init__(
        self, model: nn.Module, name: str, tokenizer: Tokenizer | None = None, stage: int | None = None
    ) -> None:
        need_float_weights(model)
        self.whole, self.tokenizer, (self.model, self.kind) = model, tokenizer, probed_part(model)
        example = self.example_input(2, LENGTH)
        self.tokens = None if self.kind == "vision" else token_embedding(self.model, example)
        self.inspect(example, stage)
        self._facts = self._count(name, example)

    def example_input(self, rows: int, length: int) -> Inputs:
        return example_input(self.model, self.kind, rows, length)

    def logits(self, out: Any) -> Float[Tensor, "b n classes"] | None:
        logits = getattr(out, "logits", None)
        if logits is not None and self.kind == "vision":
            return logits[:, None]
        return logits if logits is not None and logits.ndim == 3 else None

    def run(self, inputs: Inputs) -> Any:
        restart_dynamic_rope(self.model)
        if inputs.images is not None:
            return self.model(pixel_values=inputs.images)
        ids = inputs.ids
        if ids is None:
            shape = cast(Tensor, inputs.embeddings).shape[:2]
            ids = torch.zeros(shape, dtype=torch.long, device=self.tokens.weight.device)
        # without an attention mask, transformers takes decreasing position ids for several texts packed into one row
        given: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        usual = torch.arange(ids.shape[1], device=ids.device)[None]
        positions = usual if inputs.positions is None else inputs.positions
        for way in self.position_inputs:
            given |= way.arguments(positions.expand_as(ids))
        known = inspect.signature(self.model.forward).parameters
        return self.model(**given, **({"use_cache": False} if "use_cache" in known else {}))

    def _count(self, name: str, example: Inputs) -> ModelInfo:
        (_, length, width), (heads, kv_heads, _) = self.sizes.shape, self.sizes.heads[0]
        kind, images = self.kind, example.images is not None
        if kind == "decoder" and self.is_bidirectional(example):
            kind = "encoder"
        grid = patch_grid(self.model.config, length) if images else None
        first = None if self.tokenizer is None else self.tokenizer.prefix_token
        rows = 0 if self.tokens is None else self.tokens.weight.shape[0]
        if first is None and kind == "decoder":
            usual = getattr(self.model.config, "bos_token_id", None)
            first = usual if isinstance(usual, int) and usual < rows else None
        return ModelInfo(
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
            mask_token=None if self.tokenizer is None else self.tokenizer.mask_token,
            start_token=self._start_token(),
            dtype=next(self.model.parameters()).dtype,
            left_out=self.left_out,
            special_tokens=special_tokens(self.model.config, self.tokenizer, rows),
        )

    def _start_token(self) -> int | None:
        """The first token of a target; None: it has no decoder, or its configuration does not say."""
        if not has_both_sides(self.whole):
            return None
        for place in (self.whole.config, getattr(self.whole, "generation_config", None)):
            token = getattr(place, "decoder_start_token_id", None)
            if isinstance(token, int):
                return token
        return None

    def _longest(self, example: Inputs) -> int | None:
        """Maximum input length [tokens]; None: unlimited."""
        if self.table is not None:
            return len(self.table.rows)
        # MPT computes its biases for one fixed length, GPT-J its angles for a fixed number of positions
        fixed = getattr(self.model.config, "max_seq_len", None)
        limit = getattr(self.model.config, "max_position_embeddings", None)
        if (
            fixed is not None
            or limit is None
            or not any(way.arguments(torch.zeros(1, 1, dtype=torch.long)) for way in self.position_inputs)
        ):
            return fixed
        # whether the limit is real is tested by a position beyond it
        beyond = torch.full_like(cast(Tensor, example.ids), limit)
        try:
            self._read(replace(example, positions=beyond), Hooks())
        except (IndexError, RuntimeError):
            return limit
        return None
