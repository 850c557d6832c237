"""Every program of docs/recipes.md runs by itself, and the conversion to flash-attention is the one described."""

import ast
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from sybil.document import Document
from sybil.parsers.markdown import CodeBlockParser

from ordinate import Geometry, attend
from ordinate.schemes import Alibi, NoPosition, Rope

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
# beside those of the package itself; a recipe of another library runs where it is installed
ALWAYS = {"torch", "ordinate", "tempfile"}


def recipes():
    """The programs of the page by their heading."""
    document = Document(PAGE.read_text(encoding="utf-8"), str(PAGE))
    for region in sorted(CodeBlockParser("python", lambda example: None)(document), key=lambda region: region.start):
        heading = document.text[: region.start].rpartition("\n## ")[2].partition("\n")[0]
        yield heading, document.text.count("\n", 0, region.start) + 1, str(region.parsed)


PROGRAMS = list(recipes())


def needed(heading, code):
    """The modules that a program imports, and what they need in turn."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in nodes}
    names = {name.partition(".")[0] for name in names} - ALWAYS
    return names | {"accelerate"} if "Trainer" in heading else names


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("heading", "line", "code"), PROGRAMS, ids=[f"{name}-{line}" for name, line, _ in PROGRAMS])
def test_a_recipe_runs_by_itself(heading, line, code, tmp_path, monkeypatch):
    for name in needed(heading, code):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    exec(compile("\n" * line + code, str(PAGE), "exec"), {"__name__": "recipe"})


def flash(q, k, v, causal, window_size, alibi_slopes):
    """The documented meaning of flash_attn_func, in its layout: the last query is aligned to the last key."""
    (_, queries, heads, width), keys = q.shape, k.shape[1]
    k, v = (x.repeat_interleave(heads // x.shape[2], 2) for x in (k, v))
    behind = torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)
    left, right = (math.inf if size < 0 else size for size in window_size)
    seen = (behind <= left) & (-behind <= (0 if causal else right))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / width**0.5
    if alibi_slopes is not None:
        scores = scores - alibi_slopes[:, None, None] * behind.abs()
    return torch.einsum("bhij,bjhd->bihd", scores.masked_fill(~seen, -math.inf).softmax(-1), v)


GEOMETRIES = [Geometry.causal(9), Geometry.full(9), Geometry.causal(9, window=3), Geometry.full(9, window=3)]
GEOMETRIES.append(Geometry.causal(4, cached=5))


@pytest.mark.parametrize("scheme", [NoPosition(), Rope(head_width=16), Alibi(heads=4)], ids=repr)
@pytest.mark.parametrize("where", GEOMETRIES, ids=repr)
def test_the_conversion_to_flash_attention_gives_the_same(scheme, where):
    queries, keys = where.shape
    q, k, v = torch.randn(1, 4, queries, 16), torch.randn(1, 2, keys, 16), torch.randn(1, 2, keys, 16)
    at = scheme.at(where)
    marked = (x.transpose(1, 2) for x in at.encode_all(q, k).pair)
    reach = -1 if where.window is None else where.window - 1
    window = reach, (0 if where.is_causal and where.window else reach)
    y = flash(
        *marked,
        v.transpose(1, 2),
        causal=where.is_causal,
        window_size=window,
        alibi_slopes=torch.tensor(scheme.slopes) if isinstance(scheme, Alibi) else None,
    ).transpose(1, 2)
    torch.testing.assert_close(y, attend(q, k, v, at), rtol=1e-4, atol=1e-5)


def test_packed_documents_are_cumulative_lengths():
    lengths = [3, 5]
    bounds = torch.tensor([0, *lengths]).cumsum(0, dtype=torch.int32)
    assert bounds.tolist() == [0, 3, 8]
    q = k = v = torch.randn(1, 4, 8, 16)
    whole = attend(q, k, v, NoPosition().at(Geometry.packed(lengths)))
    for begin, end in pairwise(bounds):
        part = slice(int(begin), int(end))
        alone = flash(*(x[:, :, part].transpose(1, 2) for x in (q, k, v)), True, (-1, -1), None)
        torch.testing.assert_close(whole[:, :, part], alone.transpose(1, 2), rtol=1e-4, atol=1e-5)
