"""`ordinate translate`: let a trained model say sentences in other words."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from cyclopts import App, Parameter

from ordinate.checks import need, need_known, need_positive
from ordinate.cli.trained import trained_reader

if TYPE_CHECKING:
    from ordinate.models.encoder_decoder import EncoderDecoder
    from ordinate.models.memory import Memory
    from ordinate.tokenizer import Tokenizer

STDIN = "-"
# sentences that are translated at a time
TOGETHER = 16
# how files of sentences end
LIST = ".txt"
PICTURES = (".html", ".png", ".svg")

app = App(name="translate", help="Let a trained model translate.")


@dataclass(frozen=True)
class Writing:
    """How translations are searched for."""

    beams: Annotated[
        int,
        Parameter(help="How many texts are kept while the best is searched for; 1: the likeliest token each time."),
    ] = 4
    length_penalty: Annotated[
        float,
        Parameter(help="Scores are divided by the length to this power: 0 favours short texts, above 1 long ones."),
    ] = 1.0
    tokens: Annotated[int, Parameter(help="Longest translation, its end included.")] = 128
    temperature: Annotated[
        float, Parameter(help="With one beam: 0 always takes the likeliest token, 1 draws as trained.")
    ] = 0.0
    seed: Annotated[int, Parameter(help="The same seed draws the same text.")] = 0
    length: Annotated[
        int | None,
        Parameter(help="Expected length of each translation, for a model whose cross-attention scales to it."),
    ] = None

    def __post_init__(self) -> None:
        need_positive("beams", self.beams)
        need(
            self.temperature == 0 or self.beams == 1,
            "beams take the likeliest, or one text is drawn",
            f"got {self.beams} beams with temperature {self.temperature}",
            "give --beams 1, or leave the temperature out",
        )
        need(
            self.beams > 1 or self.length_penalty == 1,
            "a length penalty compares beams",
            f"got {self.length_penalty} with one",
            "give more beams, or leave the penalty out",
        )


@app.default
def translate(
    model: Path,
    text: str = STDIN,
    *,
    writing: Annotated[Writing, Parameter(name="*")] = Writing(),
    picture: Path | None = None,
) -> int:
    """Let a trained model translate sentences: a line for each.

    Parameters
    ----------
    model
        Folder of an encoder-decoder, as `ordinate train` prints it, or of a published one (config.json, safetensors,
        tokenizer.json): t5 or marian.
    text
        A sentence; or the path of a file with a sentence in each line; or - for what comes in by a pipe.
    writing
        How translations are searched for.
    picture
        Write what the first translation looked at in its source to this file: .html, .png or .svg.
    """
    if picture is not None:
        need_known("kind of picture", picture.suffix, PICTURES)
    sentences = _sentences(text)
    tokenizer, found = trained_reader(model, "encoder-decoder")
    translator = cast("EncoderDecoder", found)
    _check_room(translator, writing.tokens)
    for begin in range(0, len(sentences), TOGETHER):
        part = sentences[begin : begin + TOGETHER]
        for said in _translated(tokenizer, translator, part, writing):
            sys.stdout.write(said + "\n")
        sys.stdout.flush()
    if picture is not None:
        _draw(tokenizer, translator, sentences[0], writing, picture)
    return 0


def _sentences(text: str) -> list[str]:
    if text == STDIN:
        lines = sys.stdin.read().splitlines()
    else:
        # a long sentence is no path
        file = len(text) < 256 and Path(text).is_file()
        lost = not file and text.endswith(LIST) and len(text.split()) == 1
        need(not lost, "a file of sentences is there", f"got {text}", "check the path")
        try:
            lines = Path(text).read_text(encoding="utf-8").splitlines() if file else [text]
        except UnicodeDecodeError as error:
            raise ValueError(f"sentences are UTF-8; {text} is not ({error}); convert it first") from None
    need(any(line.strip() for line in lines), "there is something to translate", "got nothing", "give a sentence")
    return lines


def _check_room(model: "EncoderDecoder", tokens: int) -> None:
    limits = [limit for scheme in model.decoder.schemes if isinstance(limit := scheme.max_length, int)]
    room = min(limits, default=sys.maxsize)
    need(room >= tokens, f"this model serves {room} positions", f"got {tokens} tokens to write", "write fewer")


def _translated(
    tokenizer: "Tokenizer", model: "EncoderDecoder", sentences: Sequence[str], writing: Writing
) -> Iterator[str]:
    asked = [sentence for sentence in sentences if sentence.strip()]
    ids = _written(model, _memory(tokenizer, model, asked, writing), writing) if asked else []
    found = iter(ids)
    for sentence in sentences:
        # a line for each line, and what was written stays one
        yield " ".join(_text(tokenizer, model, next(found)).split("\n")) if sentence.strip() else ""


def _memory(tokenizer: "Tokenizer", model: "EncoderDecoder", sentences: Sequence[str], writing: Writing) -> "Memory":
    import torch

    from ordinate.geometry import Geometry
    from ordinate.tasks.translation import padded

    source, real = padded([tokenizer.encode(sentence) for sentence in sentences], model.shape.padding)
    with torch.inference_mode():
        return model.read(source, Geometry.padded(real, causal=False), writing.length)


def _written(model: "EncoderDecoder", memory: "Memory", writing: Writing) -> list[list[int]]:
    """The tokens of each translation, without its end and what fills up behind it."""
    import torch

    from ordinate.models.beam import beam_search
    from ordinate.models.translate import translate as write

    if writing.beams > 1:
        found = beam_search(model, memory, writing.tokens, beams=writing.beams, length_penalty=writing.length_penalty)
        rows = found.ids[:, 0].tolist()
    else:
        drawn = torch.Generator().manual_seed(writing.seed) if writing.temperature else None
        rows = write(model, memory, writing.tokens, temperature=writing.temperature, generator=drawn).tolist()
    end = model.shape.end
    return [row[: row.index(end)] if end in row else row for row in rows]


def _text(tokenizer: "Tokenizer", model: "EncoderDecoder", ids: Sequence[int]) -> str:
    # signs of ours stand behind the tokenizer's tokens
    signs = (model.shape.start, model.shape.padding, *model.shape.never)
    return tokenizer.decode([token for token in ids if token not in signs and token < tokenizer.size])


def _draw(tokenizer: "Tokenizer", model: "EncoderDecoder", sentence: str, writing: Writing, path: Path) -> None:
    import torch

    from ordinate.models.crossing import cross_weights
    from ordinate.report.crossing import crossing

    memory = _memory(tokenizer, model, [sentence], writing)
    (said,) = _written(model, memory, writing)
    weights = cross_weights(model, torch.tensor([[model.shape.start, *said]]), memory)
    sides = [tokenizer.encode(sentence).tolist(), [*said, model.shape.end]]
    source, target = ([_text(tokenizer, model, [token]) for token in side] for side in sides)
    chart = crossing(source, target, torch.stack(weights).mean((0, 2))[0].tolist())
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.save(str(path), inline=True) if path.suffix == ".html" else chart.save(str(path))
