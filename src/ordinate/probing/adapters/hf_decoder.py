"""Adapter of the decoder of a transformers encoder-decoder, or of its cross-attention."""

from dataclasses import replace
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.data.tokenizer import Tokenizer
from ordinate.probing._adapter import ForwardOutput, Hooks, Inputs, NotApplicable, Projection
from ordinate.probing.instrumentation.attention_interface import AttentionInterfaceModel, InstrumentedPass
from ordinate.probing.instrumentation.black_box_model import Run
from ordinate.probing.instrumentation.dynamic_rope import restart_dynamic_rope
from ordinate.probing.instrumentation.inspect_model import LENGTH, example_input, need_float_weights
from ordinate.probing.instrumentation.model_parts import (
    KIND_OF_PART,
    LEFT_OUT,
    SOURCE_LENGTH,
    EncodedInputs,
    ModelPart,
    source_of,
    with_memory,
)
from ordinate.probing.instrumentation.patching import evaluation_mode


class HFDecoder(AttentionInterfaceModel):
    """Adapter of the decoder of a transformers encoder-decoder, or of its cross-attention.

    The encoder runs first, without hooks. Self-attention and cross-attention are distinguished by the number of keys
    in a pass whose source is shorter than its target.

    Args:
        part: the model and which part.
        name: name for reports.
        tokenizer: its tokenizer; None: none.
        stage: stack of layers to probe, counted from 1; None: the one with the most layers.

    Raises:
        NotApplicable: the model cannot be instrumented; the message is the reason.
        ValueError: the model has no such stage.
    """

    priority = 3

    def __init__(
        self, part: ModelPart, name: str, tokenizer: Tokenizer | None = None, stage: int | None = None
    ) -> None:
        need_float_weights(part.model)
        self.whole, self.tokenizer, self.source = cast(Any, part.model), tokenizer, part.source
        self.kind, self.name = KIND_OF_PART[part.name], name
        whole: Any = part.model
        self.model, self.encoder = whole.get_decoder(), whole.get_encoder()
        self.tokens = self.model.get_input_embeddings()
        self.source_size = self.encoder.get_input_embeddings().weight.shape[0]
        example = self.example_input(2, LENGTH)
        self.inspect(example, stage)
        facts = self._count(name, example)
        own = {"first_token": facts.start_token, "mask_token": None, "source_vocabulary": self.source_size}
        left = "; ".join(filter(None, (LEFT_OUT[part.name], facts.left_out)))
        self._facts = replace(facts, kind=self.kind, left_out=left, **cast(Any, own))

    @classmethod
    def unsupported_reason(cls, model: Any) -> str | None:
        if not isinstance(model, ModelPart):
            return "it is not the decoder of an encoder-decoder"
        return super().unsupported_reason(model.model)

    def example_input(self, rows: int, length: int) -> Inputs:
        source = example_input(self.encoder, "decoder", rows, SOURCE_LENGTH).ids
        return self._encoded(replace(super().example_input(rows, length), source=source))

    def forward(self, inputs: Inputs, watch: Hooks | None = None) -> ForwardOutput:
        return super().forward(self._encoded(inputs), watch)

    def predict(self, inputs: Inputs) -> Float[Tensor, "b places classes"] | None:
        return super().predict(self._encoded(inputs))

    def run(self, inputs: Inputs) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        restart_dynamic_rope(self.whole)
        given, ids = cast(EncodedInputs, inputs), inputs.ids
        if ids is None:
            shape = cast(Tensor, inputs.embeddings).shape[:2]
            ids = torch.zeros(shape, dtype=torch.long, device=self.tokens.weight.device)
        named: dict[str, Any] = {"decoder_input_ids": ids, "decoder_attention_mask": torch.ones_like(ids)}
        named["attention_mask"] = torch.ones_like(cast(Tensor, given.source))
        usual = torch.arange(ids.shape[1], device=ids.device)[None]
        positions = usual if inputs.positions is None else inputs.positions
        for way in self.position_inputs:
            named |= {f"decoder_{name}": x for name, x in way.arguments(positions.expand_as(ids)).items()}
        memory = BaseModelOutput(last_hidden_state=given.memory)
        with evaluation_mode(self.whole, gradients=torch.is_grad_enabled()):
            return self.whole(encoder_outputs=memory, use_cache=False, **named)

    def find_attention(self, run: Run) -> list[nn.Module]:
        found: list[tuple[nn.Module, bool]] = []
        with self._watched(_Sizes(found)):
            run()
        wanted, inside = self.kind == "cross-attention", set(self.model.modules())
        return list(dict.fromkeys(module for module, across in found if module in inside and across == wanted))

    def projection(self, layer: int) -> Projection:
        if self.kind == "cross-attention":
            raise NotApplicable("queries and keys of cross-attention come from different streams: no one projection")
        return super().projection(layer)

    def _encoded(self, inputs: Inputs) -> EncodedInputs:
        if isinstance(inputs, EncodedInputs):
            return inputs
        source = source_of(inputs, self.source, self.name, self.source_size).to(self.tokens.weight.device)
        with evaluation_mode(self.whole, gradients=inputs.gradients):
            try:
                memory = self.encoder(input_ids=source, attention_mask=torch.ones_like(source))[0]
            except IndexError:
                # a table of positions that is shorter than the source
                must = f"the encoder of {self.name} must have a position for each token of the source"
                raise ValueError(f"{must}; got {source.shape[1]} tokens; shorten it") from None
        return with_memory(inputs, source, memory)


class _Sizes(InstrumentedPass):
    """Record the modules that call attention, and whether their keys are of another text than their queries."""

    def __init__(self, found: list[tuple[nn.Module, bool]]) -> None:
        super().__init__({}, Hooks())
        self.found = found

    def attend(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *given: Any, **named: Any) -> Any:
        self.found.append((module, query.shape[2] != key.shape[2]))
        return super().attend(module, query, key, value, *given, **named)
