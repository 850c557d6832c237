"""`ordinate generate`: let a trained model write."""

import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from cyclopts import App

from ordinate.checks import need

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
        Folder of a model, as `ordinate train` prints it.
    prompt
        What it goes on from.
    tokens
        How many tokens to write.
    temperature
        Below 1 the likely become likelier; 0 always takes the likeliest.
    top_k
        Draw among the k likeliest only.
    top_p
        Draw among the likeliest that together hold this share of the probability.
    seed
        The same seed writes the same text.
    """
    files = ("config.json", "model.safetensors", "tokenizer.json")
    missing = [name for name in files if not (model / name).is_file()]
    inside = sorted(model.glob("runs/*/model")) if model.is_dir() else []
    need(
        not missing,
        "a model folder holds " + ", ".join(files),
        f"{model} lacks {', '.join(missing)}",
        f"give one of: {', '.join(map(str, inside))}" if inside else "give the folder that `ordinate train` prints",
    )
    _write(model, prompt, tokens, temperature, top_k, top_p, seed)
    return 0


def _write(
    folder: Path,
    prompt: str,
    tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
) -> None:
    import torch

    from ordinate.models.decoder import Decoder
    from ordinate.models.generate import generate as write
    from ordinate.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(folder)
    # the hub's loader prints
    with redirect_stdout(StringIO()):
        model = Decoder.from_pretrained(str(folder), local_files_only=True)
    ids = torch.tensor([[int(token) for token in tokenizer.encode(prompt)]])
    limits = [limit for scheme in model.schemes if isinstance(limit := scheme.max_length, int)]
    room = min(limits, default=sys.maxsize) - ids.shape[1]
    need(
        room >= tokens,
        f"this model serves {ids.shape[1] + room} positions",
        f"got a prompt of {ids.shape[1]} tokens and {tokens} to write",
        f"write at most {max(room, 0)}",
    )
    drawn = write(
        model,
        ids,
        tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        generator=torch.Generator().manual_seed(seed),
    )
    sys.stdout.write(prompt)
    written: list[int] = []
    shown = ""
    for token in drawn:
        written.append(int(token))
        # a character may need more bytes than have been written so far
        text = tokenizer.decode(written).rstrip("\ufffd")
        sys.stdout.write(text[len(shown) :])
        sys.stdout.flush()
        shown = text
    sys.stdout.write("\n")
