"""`ordinate generate`: generate text with a trained model."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cyclopts import App

from ordinate.cli.console import escape_on_terminal
from ordinate.cli.load_trained import load_trained_text_model
from ordinate.core.checks import need

if TYPE_CHECKING:
    from ordinate.models.decoder import Decoder

app = App(name="generate", help="Generate text from a prompt with a trained model.")


@app.default
def generate(
    model: Path,
    prompt: str = "\n",
    *,
    max_new_tokens: int = 200,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
) -> int:
    r"""Generate text from a prompt with a trained model.

    Parameters
    ----------
    model
        Folder of a model, as `ordinate train` prints it, or of a published one (config.json, safetensors,
        tokenizer.json) of a family in `ordinate list families`.
    prompt
        Text to continue.
    max_new_tokens
        Number of tokens to generate; a published model may end its text earlier.
    temperature
        Sampling temperature: below 1 favours probable tokens; 0 is greedy decoding.
    top_k
        Sample among the k most probable tokens only.
    top_p
        Nucleus sampling: among the most probable tokens whose total probability reaches this share.
    seed
        Random seed of sampling.
    """
    from ordinate.data.tokenizer import decode_stream
    from ordinate.pretrained.checkpoint_files import read_eos_tokens
    from ordinate.pretrained.generation_settings import unapplied_in

    tokenizer, found = load_trained_text_model(model, "decoder")
    decoder, head = cast("Decoder", found), found.shape.head
    must, came = "generate needs a decoder that predicts the next token", f"{model} has head={head!r}"
    need(head == "next_token", must, came, "use it with `ordinate classify`, or give a language model")
    ids = [int(token) for token in tokenizer.encode(prompt)]
    _check_room(decoder, len(ids), max_new_tokens)
    if told := unapplied_in(model):
        sys.stderr.write(f"note: {told}, which this command does not apply\n")
    ends = [end for end in read_eos_tokens(model) if end < decoder.shape.vocabulary]
    drawn = _draw(
        decoder, ids, max_new_tokens, end_tokens=ends, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
    )
    # a model may write what controls a terminal
    sys.stdout.write(escape_on_terminal(prompt))
    for piece in decode_stream(tokenizer, drawn, context=ids):
        sys.stdout.write(escape_on_terminal(piece))
        sys.stdout.flush()
    sys.stdout.write("\n")
    return 0


def _check_room(model: "Decoder", prompt: int, tokens: int) -> None:
    limits = [limit for scheme in model.schemes if isinstance(limit := scheme.max_length, int)]
    room = min(limits, default=sys.maxsize) - prompt
    need(
        room >= tokens,
        f"this model supports {prompt + room} positions",
        f"got a prompt of {prompt} tokens and --max-new-tokens {tokens}",
        f"give at most {max(room, 0)}",
    )


def _draw(model: "Decoder", ids: list[int], tokens: int, *, seed: int, **settings: Any) -> Iterator[int]:
    import torch

    from ordinate.models._generate import generate as write

    generator = torch.Generator().manual_seed(seed)
    return (int(token) for token in write(model, torch.tensor([ids]), tokens, generator=generator, **settings))
