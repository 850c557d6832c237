"""`ordinate generate`: let a trained model write."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cyclopts import App

from ordinate.checks import need
from ordinate.cli.trained import trained_reader

if TYPE_CHECKING:
    from ordinate.models.decoder import Decoder

app = App(name="generate", help="Let a trained model go on from a prompt.")


@app.default
def generate(
    model: Path,
    prompt: str = "\n",
    *,
    tokens: int = 200,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
) -> int:
    r"""Let a trained model go on from a prompt.

    Parameters
    ----------
    model
        Folder of a model, as `ordinate train` prints it, or of a published one (config.json, safetensors,
        tokenizer.json): its family is known if `ordinate list families` has it.
    prompt
        What it goes on from.
    tokens
        How many tokens to write; a published model may end its text earlier.
    temperature
        Below 1 the likely become likelier; 0 always takes the likeliest.
    top_k
        Draw among the k likeliest only.
    top_p
        Draw among the likeliest that together hold this share of the probability.
    seed
        The same seed writes the same text.
    """
    from ordinate.checkpoints.files import read_ends
    from ordinate.tokenizer import pieces

    tokenizer, found = trained_reader(model, "decoder")
    decoder = cast("Decoder", found)
    ids = [int(token) for token in tokenizer.encode(prompt)]
    _check_room(decoder, len(ids), tokens)
    ends = [end for end in read_ends(model) if end < decoder.shape.vocabulary]
    drawn = _draw(decoder, ids, tokens, ends=ends, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    sys.stdout.write(prompt)
    for piece in pieces(tokenizer, drawn, after=ids):
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    return 0


def _check_room(model: "Decoder", prompt: int, tokens: int) -> None:
    limits = [limit for scheme in model.schemes if isinstance(limit := scheme.max_length, int)]
    room = min(limits, default=sys.maxsize) - prompt
    need(
        room >= tokens,
        f"this model serves {prompt + room} positions",
        f"got a prompt of {prompt} tokens and {tokens} to write",
        f"write at most {max(room, 0)}",
    )


def _draw(model: "Decoder", ids: list[int], tokens: int, *, seed: int, **settings: Any) -> Iterator[int]:
    import torch

    from ordinate.models.generate import generate as write

    generator = torch.Generator().manual_seed(seed)
    return (int(token) for token in write(model, torch.tensor([ids]), tokens, generator=generator, **settings))
