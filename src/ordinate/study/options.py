"""What a person can say of a study, field by field."""

from typing import Any, Literal

from pydantic import Field, model_validator

from ordinate.study.run import TUNING, Frozen

# what each kind of model learns where nothing is said
TASKS = {"decoder": "text", "encoder": "masked", "encoder-decoder": "translation", "vision": "images"}


class Options(Frozen):
    """What a person says of a study: each field is an option of the command line, and one value of it."""

    text: str = "stdlib"
    """What to read: a corpus by name (see `ordinate list corpora`), or a file or folder of yours."""
    tokenizer: str = "bytes"
    """How to cut it into tokens: bytes, or bpe:size=4096."""
    model: Literal["decoder", "encoder", "encoder-decoder", "vision"] = "decoder"
    """The kind of model: decoder, which writes; encoder, which reads from both sides; encoder-decoder, which
    translates; vision, which looks at images."""
    pairs: str = "docstrings"
    """What to translate: docstrings (from signatures of Python's functions), gettext:de (what this machine's programs
    brought in a language), or a file or folder of yours that ends in .tsv, .po or .mo."""
    images: str = "digits"
    """What to look at: digits, or a folder of yours with a folder of images for each class."""
    pixels: int | None = Field(None, ge=1)
    """Height and width that images are brought to (pixels); by default 8 for digits, 32 for others."""
    patch: int | None = Field(None, ge=1)
    """Height and width of a patch (pixels); by default an eighth of the image's."""
    task: str = "text"
    """What to learn, options inline: recall:pairs=8 (see `ordinate list tasks`); by default text by a decoder, masked
    by an encoder, translation by an encoder-decoder, images by a vision model."""
    base: str | None = Field(None, alias="from")
    """A trained model to begin with, in place of new ones: a folder, as `ordinate train` prints it or of a published
    model, or its name on the hub. Its scheme is exchanged, all other weights are kept; sizes and tokenizer are its
    own. --length is the length it was trained at, by default the longest it serves."""
    sides: tuple[Literal["encoder", "decoder", "cross"], ...] | None = Field(None, min_length=1)
    """Where the scheme of a trained encoder-decoder is exchanged: encoder, decoder, cross (where one looks at the
    other); by default in encoder and decoder."""
    schemes: tuple[str, ...] | None = Field(None, min_length=1)
    """Positional schemes to compare; by default eight, or with mixers the usual one of each. Options inline:
    rope:theta=500000; two at once: learned+alibi; a share of the heads each: rope/none; a plan for the layers:
    rope,rope,rope,none."""
    mixers: tuple[str, ...] | None = Field(None, min_length=1)
    """Token mixers to compare, options inline: performer:features=64; all: every one that reads from left to right.
    Beside schemes, every pair is trained; by default softmax alone."""
    seeds: int = Field(1, ge=1, le=TUNING)
    """How many times to train each, with other random numbers."""
    length: int = Field(128, ge=2)
    """Length that the models are trained at (tokens)."""
    steps: int = Field(500, ge=0)
    """Optimiser steps of each run; 0 measures a trained model as it is."""
    batch: int = Field(32, ge=1)
    """Sequences in a step."""
    width: int = Field(96, ge=1)
    """Columns of the model."""
    layers: int = Field(3, ge=1)
    """Blocks of the model."""
    heads: int = Field(4, ge=1)
    """Attention heads."""
    kv_heads: int | None = Field(None, ge=1)
    """Key and value heads, fewer than heads to share them; by default as many as heads."""
    norm: Literal["rms", "layer"] = "rms"
    """Normalisation."""
    feedforward: Literal["gelu", "swiglu"] = "gelu"
    """Feed-forward."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share dropped in training."""
    equal: Literal["parameters", "shape", "compute"] = "parameters"
    """What is equal between schemes: `parameters` narrows the feed-forward of schemes that bring their own, `shape`
    leaves all sizes alone, `compute` leaves them alone too and gives each as many steps as make the operations
    equal."""
    learning_rate: float = Field(4e-3, gt=0)
    """Highest learning rate of AdamW, the same for all schemes unless it is tuned; by default 1e-4 where a trained
    model goes on."""
    tune: tuple[float, ...] | None = Field(None, min_length=1)
    """Learning rates to try for each scheme, or how many to try around the given one, each twice the last."""
    trials: int = Field(1, ge=1)
    """How many times each learning rate is tried, with other random numbers."""
    trial_share: float = Field(0.25, gt=0, le=1)
    """Share of the steps that a trial takes."""
    warmup: int = Field(40, ge=0)
    """Steps in which the learning rate rises."""
    weight_decay: float = Field(0.1, ge=0)
    """Weight decay, on the matrices of linear layers."""
    clip: float = Field(1.0, gt=0)
    """Longest gradient; longer ones are scaled down to it."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """Type of the matrix products; auto takes bf16 where the processor multiplies it fast."""
    multiples: tuple[int, ...] = Field((1, 2, 4, 8), min_length=1)
    """Lengths to read at in the end, as multiples of the trained length."""
    windows: int = Field(64, ge=1)
    """Held-out pieces of the longest length to measure on."""
    shuffled: int = Field(128, ge=1)
    """Held-out pieces of the trained length to shuffle."""
    fresh: int = Field(512, ge=1)
    """Fresh sequences of a task, other than text, to measure on."""
    samples: int = Field(2, ge=0)
    """Texts that each model writes."""
    sample_tokens: int = Field(240, ge=1)
    """Length of each of them (tokens)."""
    threads: int | None = Field(None, ge=1)
    """Processor threads of each run; by default as many as trials on this machine show to be fastest."""
    checkpoint_every: int = Field(100, ge=1)
    """Steps between checkpoints."""

    @model_validator(mode="before")
    @classmethod
    def _with_task(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("task") is None and given.get("model") in TASKS:
            return {**given, "task": TASKS[given["model"]]}
        return given
