"""`ordinate generate`: generate text with a trained model."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from cyclopts import App, Parameter

from ordinate.cli.console import escape_on_terminal
from ordinate.cli.load_trained import load_trained_text_model
from ordinate.core.checks import need, need_seed, shown

if TYPE_CHECKING:
    from ordinate.models.decoder import Decoder
    from ordinate.pretrained.generation_settings import GenerationSettings

# temperature where neither the user nor the checkpoint names one
TEMPERATURE = 0.8

app = App(name="generate", help="Generate text from a prompt with a trained model.")


@app.default
def generate(
    model: Path,
    prompt: str = "\n",
    *,
    max_new_tokens: int = 200,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    generation_config: Annotated[bool, Parameter(negative="--no-generation-config", show_default=False)] = True,
) -> int:
    r"""Generate text from a prompt with a trained model.

    Parameters
    ----------
    model
        Folder of a model, as `ordinate train` prints it, or of a published one (config.json, safetensors,
        tokenizer.json) of a family in `ordinate list families`.
    prompt
        Text to continue; by default a line break.
    max_new_tokens
        Number of tokens to generate; a published model may end its text earlier.
    temperature
        Sampling temperature: below 1 favours probable tokens; 0 is greedy decoding. Without it, that of the model's
        folder, or 0.8.
    top_k
        Sample among the k most probable tokens only.
    top_p
        Nucleus sampling: among the most probable tokens whose total probability reaches this share.
    seed
        Random seed of sampling.
    generation_config
        Apply the settings of generation of a published model: those of its generation_config.json, such as a
        repetition penalty, and those of sampling that are not given here. Applied by default.
    """
    from ordinate.data.tokenizer import decode_stream
    from ordinate.pretrained.generation_settings import GenerationSettings, read_generation_settings

    need_seed(seed)
    tokenizer, found = load_trained_text_model(model, "decoder")
    decoder, head = cast("Decoder", found), found.shape.head
    must, came = "generate needs a decoder that predicts the next token", f"{model} has head={head!r}"
    need(head == "next_token", must, came, "use it with `ordinate classify`, or give a language model")
    ids = [int(token) for token in tokenizer.encode(prompt)]
    _check_room(decoder, len(ids), max_new_tokens)
    written = read_generation_settings(model, decoder.shape.vocabulary)
    settings = written if generation_config else GenerationSettings(end_tokens=written.end_tokens)
    chosen = choose_settings(settings, temperature, top_k, top_p)
    drawn = _draw(decoder, ids, max_new_tokens, seed=seed, **chosen)
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


def choose_settings(
    settings: "GenerationSettings", temperature: float | None, top_k: int | None, top_p: float | None
) -> dict[str, Any]:
    """Return arguments of `ordinate.generate`: those given, completed by the settings of a checkpoint.

    Settings that are taken from there, and those that are not applied, are told on standard error.
    """
    from ordinate.models.truncation import Truncation

    given: dict[str, Any] = {name: value for name, value in (("top_k", top_k), ("top_p", top_p)) if value is not None}
    # a truncation that is given asks for sampling
    usual = None if given and settings.temperature == 0 else settings.temperature
    heat = TEMPERATURE if usual is None else usual
    heat = heat if temperature is None else temperature
    truncation = Truncation(**given) if heat == 0 else replace(settings.truncation, **given)
    own = {} if temperature is not None or usual is None else {"temperature": usual}
    own |= {name: value for name, value in truncation.active.items() if name not in given} | settings.rules.active
    told = ", ".join(f"{name}={shown(value)}" for name, value in own.items())
    if told:
        sys.stderr.write(f"note: {settings.file} sets {told}; --no-generation-config leaves it out\n")
    if settings.unapplied:
        sys.stderr.write(f"note: {settings.file} has {settings.unapplied}, which this command does not apply\n")
    return {
        "temperature": heat,
        **truncation.active,
        "end_tokens": settings.end_tokens,
        "rules": settings.rules,
    }


def _draw(model: "Decoder", ids: list[int], tokens: int, *, seed: int, **settings: Any) -> Iterator[int]:
    import torch

    from ordinate.models._generate import generate as write

    generator = torch.Generator().manual_seed(seed)
    return (int(token) for token in write(model, torch.tensor([ids]), tokens, generator=generator, **settings))
