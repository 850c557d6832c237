"""`ordinate translate`: translate sentences with a trained encoder-decoder."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from cyclopts import App, Parameter

from ordinate.cli.console import escape_on_terminal
from ordinate.cli.languages import LanguageOptions
from ordinate.cli.load_trained import load_trained_text_model
from ordinate.core.atomic_files import write_text
from ordinate.core.checks import need, need_known, need_positive, need_seed
from ordinate.core.output_folder import check_output_file

if TYPE_CHECKING:
    from ordinate.data.tokenizer import Tokenizer
    from ordinate.models.encoded_source import EncodedSource
    from ordinate.models.encoder_decoder import EncoderDecoder

STDIN = "-"
# batch size of generation [sentences]
GENERATION_BATCH = 16
# file extension of lists of sentences
SENTENCE_FILE = ".txt"
PLOT_FORMATS = (".html", ".png", ".svg")

app = App(name="translate", help="Translate sentences with a trained model.")


@dataclass(frozen=True)
class SearchOptions:
    """Options of the search for translations."""

    beams: Annotated[
        int,
        Parameter(help="Number of beams of the beam search; 1: greedy search or sampling."),
    ] = 4
    length_penalty: Annotated[
        float,
        Parameter(help="Scores are divided by the length to this power: 0 favours short texts, above 1 long ones."),
    ] = 1.0
    max_new_tokens: Annotated[int, Parameter(help="Longest translation, with its end token.")] = 128
    temperature: Annotated[
        float, Parameter(help="With one beam: 0 is greedy decoding, above 0 samples with this temperature.")
    ] = 0.0
    seed: Annotated[int, Parameter(help="Random seed of sampling.")] = 0
    target_length: Annotated[
        int | None,
        Parameter(help="Expected length of each translation, for a model whose cross-attention depends on it."),
    ] = None

    def __post_init__(self) -> None:
        need_positive("beams", self.beams)
        need_seed(self.seed)
        need(
            self.temperature == 0 or self.beams == 1,
            "a temperature samples one text; beam search is deterministic",
            f"got {self.beams} beams with temperature {self.temperature}",
            "give --beams 1, or leave --temperature out",
        )
        need(
            self.beams > 1 or self.length_penalty == 1,
            "a length penalty ranks beams",
            f"got {self.length_penalty} with one beam",
            "give more beams, or leave --length-penalty out",
        )


@app.default
def translate(
    model: Path,
    text: str = STDIN,
    *,
    writing: Annotated[SearchOptions, Parameter(name="*")] = SearchOptions(),
    languages: Annotated[LanguageOptions, Parameter(name="*")] = LanguageOptions(),  # noqa: B008
    plot: Path | None = None,
) -> int:
    """Translate sentences with a trained model; prints one line for each.

    Parameters
    ----------
    model
        Folder of an encoder-decoder, as `ordinate train` prints it, or of a published one (config.json, safetensors,
        tokenizer.json): t5, mt5, marian, bart, mbart, m2m_100, pegasus, plbart or blenderbot.
    text
        A sentence; or the path of a file with a sentence in each line; or - for standard input.
    writing
        Options of the search for translations.
    languages
        Languages of a model of several.
    plot
        Save the cross-attention pattern of the first translation to this file: .html, .png or .svg.
    """
    if plot is not None:
        need_known("plot format", plot.suffix, PLOT_FORMATS)
        check_output_file(plot, "--plot")
    sentences = _sentences(text)
    tokenizer, found = load_trained_text_model(model, "encoder-decoder")
    translator = cast("EncoderDecoder", found)
    _check_room(translator, writing.max_new_tokens)
    languages.write_in(tokenizer, translator)
    encode = languages.encoder(tokenizer, translator)
    for begin in range(0, len(sentences), GENERATION_BATCH):
        part = sentences[begin : begin + GENERATION_BATCH]
        for line in _translated(tokenizer, translator, part, encode, writing):
            sys.stdout.write(escape_on_terminal(line) + "\n")
        sys.stdout.flush()
    if plot is not None:
        _draw(tokenizer, translator, encode(sentences[0]), writing, plot)
    return 0


def _sentences(text: str) -> list[str]:
    if text == STDIN:
        lines = sys.stdin.read().splitlines()
    else:
        # a long sentence is not a path, and the system may reject it as one
        file = len(text) < 256 and Path(text).is_file()
        lost = not file and text.endswith(SENTENCE_FILE) and len(text.split()) == 1
        need(not lost, "a file of sentences must exist", f"got {text}", "check the path")
        try:
            lines = Path(text).read_text(encoding="utf-8").splitlines() if file else [text]
        except UnicodeDecodeError as error:
            raise ValueError(f"sentences must be UTF-8; {text} is not ({error}); convert it first") from None
    need(any(line.strip() for line in lines), "the text must not be empty", "got no sentence", "give one")
    return lines


def _check_room(model: "EncoderDecoder", tokens: int) -> None:
    limits = [limit for scheme in model.decoder.schemes if isinstance(limit := scheme.max_length, int)]
    room = min(limits, default=sys.maxsize)
    need(room >= tokens, f"this model supports {room} positions", f"got --max-new-tokens {tokens}", "give fewer")


def _translated(
    tokenizer: "Tokenizer",
    model: "EncoderDecoder",
    sentences: Sequence[str],
    encode: Callable[[str], list[int]],
    writing: SearchOptions,
) -> Iterator[str]:
    sources = [encode(sentence) for sentence in sentences if sentence.strip()]
    ids = _written(model, _memory(model, sources, writing), writing) if sources else []
    translations = iter(ids)
    for sentence in sentences:
        # one output line for each input line: line breaks in a translation become spaces
        yield " ".join(_text(tokenizer, model, next(translations)).split("\n")) if sentence.strip() else ""


def _memory(model: "EncoderDecoder", sources: Sequence[list[int]], writing: SearchOptions) -> "EncodedSource":
    import numpy as np
    import torch

    from ordinate.core.geometry import Geometry
    from ordinate.data.tasks.translation import pad_right

    source, real = pad_right([np.array(ids) for ids in sources], model.shape.fill_token)
    with torch.inference_mode():
        return model.encode_source(source, Geometry.padded(real, causal=False), writing.target_length)


def _written(model: "EncoderDecoder", memory: "EncodedSource", writing: SearchOptions) -> list[list[int]]:
    """Token ids of each translation, without end token and padding."""
    import torch

    from ordinate.models._translate import translate as write
    from ordinate.models.beam import beam_search

    if writing.beams > 1:
        found = beam_search(
            model, memory, writing.max_new_tokens, beams=writing.beams, length_penalty=writing.length_penalty
        )
        rows = found.ids[:, 0].tolist()
    else:
        drawn = torch.Generator().manual_seed(writing.seed) if writing.temperature else None
        rows = write(model, memory, writing.max_new_tokens, temperature=writing.temperature, generator=drawn).tolist()
    return [list(takewhile(lambda token: token not in model.shape.end_tokens, row)) for row in rows]


def _text(tokenizer: "Tokenizer", model: "EncoderDecoder", ids: Sequence[int]) -> str:
    # special tokens have ids above the tokenizer's own
    shape, rules = model.shape, model.shape.rules
    signs = {shape.start, shape.padding, rules.forced_bos_token_id, *rules.never(shape.end_tokens)}
    return tokenizer.decode([token for token in ids if token not in signs and token < tokenizer.size])


def _draw(
    tokenizer: "Tokenizer", model: "EncoderDecoder", ids: list[int], writing: SearchOptions, path: Path
) -> None:
    import torch

    from ordinate.models.cross_attention_weights import cross_attention_weights
    from ordinate.report.charts import cross_attention_map
    from ordinate.report.html import chart_page

    memory = _memory(model, [ids], writing)
    (translation,) = _written(model, memory, writing)
    weights = cross_attention_weights(model, torch.tensor([[model.shape.start_token, *translation]]), memory)
    sides = [ids, [*translation, model.shape.end_token]]
    source, target = ([_text(tokenizer, model, [token]) for token in side] for side in sides)
    chart = cross_attention_map(source, target, torch.stack(weights).mean((0, 2))[0].tolist())
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".html":
        write_text(path, chart_page("Cross-attention", chart.to_dict()))
    else:
        chart.save(str(path))
