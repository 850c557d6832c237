"""Modules of your own."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.anatomy.census import LENGTH, need_plain
from ordinate.anatomy.multi_head import multi_head_attention
from ordinate.anatomy.readable import Change, Readable, Run
from ordinate.anatomy.replaced import replaced
from ordinate.anatomy.residual import first_of
from ordinate.anatomy.tracing import Search, Tracing
from ordinate.subject import ATTENTION, Facts, Inputs, Unfit, Watch
from ordinate.tokenizer import Tokenizer


class Modules(Readable):
    """Any module that is called with token ids and gives logits, or a vector for each token.

    Its attention may be written out with a softmax, call `scaled_dot_product_attention`, or be a
    `torch.nn.MultiheadAttention`. Its table of tokens is the largest `torch.nn.Embedding` that it has.

    Args:
        model: the module.
        name: what it is called.
        tokenizer: makes tokens of a text; None: there is none.
        stage: which of its stacks of layers is measured, counted from 1; None: the one of the most layers.

    Raises:
        Unfit: it cannot be taken apart; the reason is in the message.
        ValueError: it has no such stage.
    """

    order = 9

    def __init__(
        self, model: nn.Module, name: str, tokenizer: Tokenizer | None = None, stage: int | None = None
    ) -> None:
        need_plain(model)
        self.model, self.tokenizer, self.kind = model, tokenizer, "decoder"
        tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
        if not tables:
            raise Unfit(f"{name} has no table of tokens (torch.nn.Embedding)")
        self.tokens = max(tables, key=lambda table: table.num_embeddings)
        example = self.example(2, LENGTH)
        self.examine(example, stage)
        heads, kv_heads, _ = self.sizes.heads[0]
        self._facts = Facts(
            name=name,
            family=type(model).__name__,
            kind="encoder" if self.reads_ahead(example) else "decoder",
            layers=len(self.layers),
            heads=heads,
            kv_heads=kv_heads,
            width=self.sizes.shape[2],
            vocabulary=self.tokens.num_embeddings,
            max_length=None if self.table is None else len(self.table.rows),
            position=self.position(),
            dtype=self.tokens.weight.dtype,
        )

    @classmethod
    def refuses(cls, model: object) -> str | None:
        """Why it is no module."""
        return None if isinstance(model, nn.Module) else f"{type(model).__name__} is no torch.nn.Module"

    def example(self, rows: int, length: int) -> Inputs:
        """Short random texts."""
        size = rows, min(length, self.tokens.num_embeddings)
        ids = torch.randint(self.tokens.num_embeddings, size, generator=torch.Generator().manual_seed(0))
        return Inputs(ids.to(self.tokens.weight.device))

    def run(self, inputs: Inputs) -> Any:
        """A forward pass."""
        ids = inputs.ids
        if ids is None and inputs.vectors is not None:
            ids = torch.zeros(inputs.vectors.shape[:2], dtype=torch.long, device=self.tokens.weight.device)
        return self.model(ids)

    def logits(self, out: Any) -> Float[Tensor, "b places classes"] | None:
        """What it gives, if that is a number for each token of the vocabulary."""
        found = getattr(out, "logits", first_of(out))
        there = isinstance(found, Tensor) and found.ndim == 3 and found.shape[2] == self.tokens.num_embeddings
        return found if there else None

    def find_attention(self, run: Run) -> list[nn.Module]:
        """The modules around each softmax."""
        search = Search()
        with self.plain(), search.within(self.model):
            run()
        return search.found

    def attend(self, inputs: Inputs, watch: Watch) -> Iterator[Change]:
        """Operations caught on their way."""
        if inputs.visible is not None:
            raise Unfit("who sees whom is decided inside of this module")
        yield self.plain()
        if watch.hooks & (ATTENTION - {"raw"}):
            tracing = Tracing()
            for layer, attention in enumerate(self.attentions):
                yield tracing.follow(attention, layer, watch)
            yield tracing

    @contextmanager
    def plain(self) -> Iterator[None]:
        """Attention of torch.nn.MultiheadAttention written out."""
        fast = torch.backends.mha.get_fastpath_enabled()
        with ExitStack() as changes:
            for module in self.model.modules():
                if isinstance(module, nn.MultiheadAttention):
                    changes.enter_context(replaced(module, "forward", partial(multi_head_attention, module)))
            # a layer of torch.nn would not call its attention
            torch.backends.mha.set_fastpath_enabled(False)
            changes.callback(torch.backends.mha.set_fastpath_enabled, fast)
            yield
