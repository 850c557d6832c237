"""Options of a study as given by the user, and which of them apply to which task."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from ordinate.core.checks import shown
from ordinate.study.run import FIRST_TUNING_SEED, FrozenModel

# default task of each kind of model
DEFAULT_TASKS = {"decoder": "text", "encoder": "masked", "encoder-decoder": "translation", "vision": "images"}
# fields of models with token embeddings
TOKEN_FIELDS = {"embedding_scale", "embedding_std"}
# fields that only some tasks read, listed for each task that reads data; all other fields apply to every task
TASK_FIELDS = {
    "text": {
        *TOKEN_FIELDS,
        "text",
        "encoding",
        "tokenizer",
        "length",
        "eval_samples",
        "shuffle_samples",
        "generated_texts",
        "generated_tokens",
    },
    "masked": {*TOKEN_FIELDS, "text", "encoding", "tokenizer", "length", "eval_samples", "shuffle_samples"},
    "translation": {*TOKEN_FIELDS, "pairs", "tokenizer", "length", "eval_samples", "generated_texts"},
    "images": {"images", "image_size", "patch_size", "eval_samples"},
}
# the same for tasks that generate their sequences
SYNTHETIC_TASK_FIELDS = {*TOKEN_FIELDS, "task_samples"}

# what plans of earlier versions, which lack these fields, stand for; token embeddings as in GPT-2 for every scheme
FORMER_VALUES = {"encoding": "utf-8", "embedding_scale": 1.0, "embedding_std": 0.02}

# largest whole number of an option
LARGEST = 10**12

# most processor threads of a run: a library that is told to start more fails without saying so
MOST_THREADS = 1024

# fields that determine the contents of a data folder
DATA_FIELDS = ("text", "encoding", "tokenizer", "base", "pairs", "images", "image_size")


class Options(FrozenModel):
    """Options of `ordinate study` and `ordinate train`; each field is a command-line option with one value."""

    text: str = "stdlib"
    """Text to train on: a corpus by name (see `ordinate list corpora`), or a path to a file or folder."""
    encoding: str = "utf-8"
    """Encoding of the files of the text: utf-8, or another one of Python's: latin-1, utf-16, shift_jis."""
    tokenizer: str = "bytes"
    """Tokenizer: bytes, or bpe:size=4096 (byte-pair encoding fitted to the text)."""
    model: Literal["decoder", "encoder", "encoder-decoder", "vision"] = "decoder"
    """Kind of model: decoder (causal language model), encoder (bidirectional, masked tokens), encoder-decoder
    (translation), vision (image classification)."""
    pairs: str = "docstrings"
    """Sentence pairs to translate: docstrings (from signatures of Python's functions), gettext:de (translations of
    the programs installed on this machine, in a language), or a file or folder ending in .tsv, .po or .mo."""
    images: str = "digits"
    """Images to classify: digits, or a folder with one subfolder of images for each class."""
    image_size: int | None = Field(None, ge=1)
    """Height and width to which images are resized (pixels); by default 8 for digits, 32 for others."""
    patch_size: int | None = Field(None, ge=1)
    """Height and width of a patch (pixels); by default an eighth of the image's."""
    task: str = "text"
    """Task to train on, options inline: recall:pairs=8 (see `ordinate list tasks`); by default text for a decoder,
    masked for an encoder, translation for an encoder-decoder, images for a vision model."""
    base: str | None = Field(None, alias="from")
    """Start from a trained model in place of newly initialised ones: a folder, as printed by `ordinate train` or of a
    published model, or a name on the Hugging Face hub. Its scheme is replaced, all other weights are kept; sizes and
    tokenizer are the model's. --length is the length it was trained at, by default the longest it supports."""
    scheme_location: tuple[Literal["encoder", "decoder", "cross"], ...] | None = Field(None, min_length=1)
    """Where the scheme of a trained encoder-decoder is replaced: encoder, decoder, cross (cross-attention); by
    default in encoder and decoder."""
    schemes: tuple[str, ...] | None = Field(None, min_length=1)
    """Position schemes to compare; by default eight, or with mixers the default one of each. Options inline:
    rope:theta=500000; two combined: learned+alibi; head groups: rope/none; one per layer: rope,rope,rope,none."""
    mixers: tuple[str, ...] | None = Field(None, min_length=1)
    """Token mixers to compare, options inline: performer:features=64; all: every causal one. With schemes given,
    every pair is trained; by default softmax attention only."""
    seeds: int = Field(1, ge=1, le=FIRST_TUNING_SEED)
    """Number of training runs of each scheme or mixer, with different random seeds."""
    leader_seeds: int | None = Field(None, ge=0, le=FIRST_TUNING_SEED)
    """Number of further seeds of the leading schemes or mixers, the best two at the trained length and at the longest
    one; by default 1 where three or more are compared with one seed, else 0."""
    length: int = Field(128, ge=2)
    """Training length: tokens per training sequence."""
    steps: int = Field(500, ge=0)
    """Optimiser steps of each run; 0 evaluates a trained model as it is."""
    batch: int = Field(32, ge=1)
    """Batch size: sequences per optimiser step."""
    width: int = Field(96, ge=1)
    """Model width (dimension of the residual stream)."""
    layers: int = Field(3, ge=1, le=10_000)
    """Number of layers."""
    heads: int = Field(4, ge=1)
    """Number of attention heads."""
    kv_heads: int | None = Field(None, ge=1)
    """Key and value heads of the mixers that have them; fewer than heads is grouped-query attention; by default as
    many as heads."""
    norm: Literal["rms", "layer"] = "rms"
    """Normalisation: rms (RMSNorm) or layer (LayerNorm)."""
    feedforward: Literal["gelu", "swiglu"] = "gelu"
    """Feed-forward network: gelu or swiglu."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout probability in training."""
    embedding_scale: float | None = Field(None, gt=0)
    """Factor of the token embeddings; by default embedding_std * sqrt(width), so that their table starts with the
    standard deviation width^(-1/2), about its size in training, and keeps its ratio to what a scheme adds."""
    embedding_std: float = Field(0.02, gt=0)
    """Standard deviation of the token embeddings at initialisation, after that factor."""
    match: Literal["params", "shape", "flops"] = "params"
    """What is matched between models: `params` adjusts the feed-forward width to equal parameter counts, `shape`
    keeps all sizes equal, `flops` keeps sizes equal and adjusts each model's steps to equal training FLOPs."""
    learning_rate: float = Field(4e-3, gt=0)
    """Peak learning rate of AdamW, the same for all schemes unless tuned; by default 1e-4 when starting from a
    trained model."""
    tune_lr: tuple[float, ...] | None = Field(None, min_length=1)
    """Learning rates to try for each scheme, or how many to try around --learning-rate, a factor of two apart."""
    tune_seeds: int = Field(1, ge=1)
    """Number of tuning runs for each learning rate, with different random seeds."""
    tune_fraction: float = Field(0.25, gt=0, le=1)
    """Fraction of the steps that a tuning run takes."""
    warmup_steps: int = Field(40, ge=0)
    """Steps of linear learning-rate warm-up."""
    weight_decay: float = Field(0.1, ge=0)
    """Weight decay, applied to the weight matrices of linear layers."""
    grad_clip: float = Field(1.0, gt=0)
    """Gradient clipping: largest gradient norm; larger gradients are scaled down to it."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """Type of matrix products in training; auto takes bf16 where the processor has fast bf16 instructions."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass instead of storing them: less memory, the same results bit for
    bit, about a third more computation."""
    eval_length_multiples: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 2, 4, 8), min_length=1)
    """Evaluation lengths, as multiples of the training length."""
    eval_samples: int = Field(64, ge=1)
    """Held-out sequences of the longest evaluation length to evaluate on."""
    shuffle_samples: int = Field(128, ge=1)
    """Held-out sequences of the training length for the word-order test, which shuffles tokens."""
    task_samples: int = Field(512, ge=1)
    """Newly generated sequences to evaluate on, for tasks that generate their data."""
    generated_texts: int = Field(2, ge=0)
    """Texts that each model generates for the report."""
    generated_tokens: int = Field(240, ge=1)
    """Length of each generated text (tokens)."""
    threads: int | None = Field(None, ge=1, le=MOST_THREADS)
    """Processor threads of each run; by default the fastest number, measured on this machine."""
    checkpoint_every: int = Field(100, ge=1)
    """Optimiser steps between checkpoints."""
    keep_checkpoints: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Steps whose checkpoints are saved and kept beside the two newest: 0 10 100 1000; 0 is before training."""

    @field_validator("*")
    @classmethod
    def _possible(cls, value: Any, info: Any) -> Any:
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int) and number > LARGEST:
                name = option_name(str(info.field_name))
                raise ValueError(f"{name} must be at most {LARGEST}; got {shown(number)}; give a smaller number")
        return value

    @model_validator(mode="before")
    @classmethod
    def _with_task(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("task") is None and given.get("model") in DEFAULT_TASKS:
            return {**given, "task": DEFAULT_TASKS[given["model"]]}
        return given


def option_name(field: str) -> str:
    """Return the command-line option of a field: `--from` of `base`."""
    known = Options.model_fields.get(field)
    return f"--{((known and known.alias) or field).replace('_', '-')}"


def data_fields(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a plan that determine the contents of its data folder."""
    silent = {*unused_fields(str(plan["task"]), DATA_FIELDS), *unset_fields(plan)}
    return {name: plan[name] for name in DATA_FIELDS if name not in silent}


def unset_fields(plan: Mapping[str, Any]) -> set[str]:
    """Return the fields that a hash of a plan leaves out: without effect, or as in plans that lack them."""
    task, based = str(plan.get("task", "text")), plan.get("base") is not None
    without_effect = {*TOKEN_FIELDS} if based else {*unused_fields(task, TOKEN_FIELDS)}
    if not plan.get("leader_seeds"):
        without_effect.add("leader_seeds")
    return without_effect | {name for name, value in FORMER_VALUES.items() if plan.get(name, value) == value}


def unused_fields(task: str, fields: Iterable[str]) -> list[str]:
    """Return those of the given fields that have no effect on a task, though they have on others.

    Args:
        task: the task's spec, with its options.
        fields: field names of a plan.
    """
    read = TASK_FIELDS.get(task.partition(":")[0], SYNTHETIC_TASK_FIELDS)
    every = set().union(SYNTHETIC_TASK_FIELDS, *TASK_FIELDS.values())
    return [name for name in fields if name in every - read]
