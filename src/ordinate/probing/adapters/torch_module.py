"""Adapter of any torch.nn.Module."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.data.tokenizer import Tokenizer
from ordinate.probing._adapter import ATTENTION_HOOKS, Hooks, Inputs, ModelInfo, NotApplicable
from ordinate.probing.instrumentation.black_box_model import BlackBoxModel, Change, Run
from ordinate.probing.instrumentation.inspect_model import LENGTH, need_float_weights
from ordinate.probing.instrumentation.mha_reference import multi_head_attention
from ordinate.probing.instrumentation.op_tracing import AttentionSearch, TracingMode
from ordinate.probing.instrumentation.patching import patched_attribute
from ordinate.probing.instrumentation.residual_adds import first_output


class TorchModule(BlackBoxModel):
    """A module that takes token ids and returns logits, or a vector for each token.

    Its attention may be written with a softmax, call `scaled_dot_product_attention`, or be a
    `torch.nn.MultiheadAttention`. Its largest `torch.nn.Embedding` is taken for the token embedding.

    Args:
        model: the module.
        name: name for reports.
        tokenizer: its tokenizer; None: none.
        stage: stack of layers to probe, counted from 1; None: the one with the most layers.

    Raises:
        NotApplicable: the model cannot be instrumented; the message is the reason.
        ValueError: the model has no such stage.
    """

    priority = 9

    def __init__(
        self, model: nn.Module, name: str, tokenizer: Tokenizer | None = None, stage: int | None = None
    ) -> None:
        need_float_weights(model)
        self.model, self.tokenizer, self.kind = model, tokenizer, "decoder"
        tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
        if not tables:
            raise NotApplicable(f"{name} has no token embedding (torch.nn.Embedding)")
        self.tokens = max(tables, key=lambda table: table.num_embeddings)
        example = self.example_input(2, LENGTH)
        self.inspect(example, stage)
        heads, kv_heads, _ = self.sizes.heads[0]
        self._facts = ModelInfo(
            name=name,
            family=type(model).__name__,
            kind="encoder" if self.is_bidirectional(example) else "decoder",
            layers=len(self.layers),
            heads=heads,
            kv_heads=kv_heads,
            width=self.sizes.shape[2],
            vocabulary=self.tokens.num_embeddings,
            max_length=None if self.table is None else len(self.table.rows),
            position=self.position(),
            dtype=self.tokens.weight.dtype,
            special_tokens=frozenset(() if tokenizer is None else tokenizer.special_tokens),
        )

    @classmethod
    def unsupported_reason(cls, model: object) -> str | None:
        return None if isinstance(model, nn.Module) else f"{type(model).__name__} is not a torch.nn.Module"

    def example_input(self, rows: int, length: int) -> Inputs:
        size = rows, min(length, self.tokens.num_embeddings)
        ids = torch.randint(self.tokens.num_embeddings, size, generator=torch.Generator().manual_seed(0))
        return Inputs(ids.to(self.tokens.weight.device))

    def run(self, inputs: Inputs) -> Any:
        ids = inputs.ids
        if ids is None and inputs.embeddings is not None:
            ids = torch.zeros(inputs.embeddings.shape[:2], dtype=torch.long, device=self.tokens.weight.device)
        return self.model(ids)

    def logits(self, out: Any) -> Float[Tensor, "b places classes"] | None:
        # taken for logits if there is one number for each token of the vocabulary
        found = getattr(out, "logits", first_output(out))
        there = isinstance(found, Tensor) and found.ndim == 3 and found.shape[2] == self.tokens.num_embeddings
        return found if there else None

    def find_attention(self, run: Run) -> list[nn.Module]:
        search = AttentionSearch()
        with self.unfused_attention(), search.within(self.model):
            run()
        return search.found

    def attention_hooks(self, inputs: Inputs, watch: Hooks) -> Iterator[Change]:
        if inputs.mask is not None:
            raise NotApplicable("the attention mask is made inside this module and cannot be replaced")
        yield self.unfused_attention()
        if watch.overridden & (ATTENTION_HOOKS - {"qk_before_rope"}):
            tracing = TracingMode()
            for layer, attention in enumerate(self.attentions):
                yield tracing.follow(attention, layer, watch)
            yield tracing

    @contextmanager
    def unfused_attention(self) -> Iterator[None]:
        """Context manager: torch.nn.MultiheadAttention in unfused operations."""
        fast = torch.backends.mha.get_fastpath_enabled()
        with ExitStack() as changes:
            for module in self.model.modules():
                if isinstance(module, nn.MultiheadAttention):
                    changes.enter_context(patched_attribute(module, "forward", partial(multi_head_attention, module)))
            # the fast path of torch.nn.TransformerEncoderLayer does not call its attention module
            torch.backends.mha.set_fastpath_enabled(False)
            changes.callback(torch.backends.mha.set_fastpath_enabled, fast)
            yield
