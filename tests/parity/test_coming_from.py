"""Each row of docs/coming-from.md: what is written there and what is written here give the same numbers."""

import importlib
import inspect
import json
import re
from pathlib import Path

import pytest
import torch

from ordinate import schemes, spectra
from ordinate.attention import attend
from ordinate.core.geometry import Geometry
from ordinate.models.drop_in_attention import DropInAttention
from ordinate.schemes import SchemeSpec
from ordinate.testing.mixer import SIZES

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text(encoding="utf-8")
RESULTS = json.loads((Path(__file__).parent / "results.json").read_text(encoding="utf-8"))["equal"]
# where the names of each package's column come from
MODULES = {
    "rotary-embedding-torch": ["rotary_embedding_torch"],
    "x-transformers": ["x_transformers.x_transformers"],
    "positional-encodings": ["positional_encodings.torch_encodings"],
    "transformers": ["transformers.models.llama.modeling_llama", "transformers.models.bloom.modeling_bloom"],
    "torch": ["torch.nn.functional"],
}


def rows(kind, package):
    """The cells of the rows of a marked table."""
    part = PAGE.partition(f"<!-- {kind} of {package} -->")[2].partition(f"<!-- end of {kind} -->")[0]
    return re.findall(r"^\| (`.+?`) \| (.+) \|$", part, re.MULTILINE)


CALLS = [(package, *row) for package in MODULES for row in rows("rows", package)]


def ours():
    """The names that an expression of Ordinate may use, beside the inputs."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 50, 64)
    theirs = torch.nn.MultiheadAttention(64, 4, batch_first=True)
    hidden = torch.rand(50, 50) > 0.7
    hidden[:, 0] = False
    return {
        **{
            name: getattr(schemes, name)
            for name in ("Alibi", "Axial", "Grid", "NoPosition", "Rope", "Sinusoidal", "Xpos")
        },
        **{"Linear": spectra.Linear, "Ntk": spectra.Ntk, "Geometry": Geometry, "attend": attend, "torch": torch},
        **{
            "q": q,
            "k": k,
            "v": v,
            "x": torch.randn(2, 50, 64),
            "pos": torch.arange(50),
            "where": Geometry.causal(50),
        },
        **{"theirs": theirs, "ours": DropInAttention.from_torch(theirs), "hidden": hidden},
        "rope": schemes.Rope(head_width=64, theta=500_000.0),
    }


def their_names(package):
    found = {}
    for name in MODULES[package]:
        found |= vars(pytest.importorskip(name))
    if package == "transformers":
        config = importlib.import_module("transformers").LlamaConfig(head_dim=64)
        found |= {"rotary": found["LlamaRotaryEmbedding"](config), "ids": torch.arange(50)[None]}
    return found


def test_the_page_has_rows_of_every_package():
    assert {package for package, *_ in CALLS} == set(MODULES)
    assert all(here.startswith("`") and here.endswith("`") for _, _, here in CALLS)


@pytest.mark.parametrize(("package", "there", "here"), CALLS, ids=[there for _, there, _ in CALLS])
def test_both_expressions_of_a_row_are_equal(package, there, here):
    names = ours()
    expected = eval(there.strip("`"), {**their_names(package), **names})
    made = eval(here.strip("`"), names)
    pairs = zip(made, expected, strict=True) if isinstance(made, tuple) else [(made, expected)]
    for one, other in pairs:
        # their angles are in float32; those of positions up to 1050 are off by some 1e-4
        torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("option", "here"), rows("options", "x-transformers"))
def test_an_option_is_the_scheme_of_a_row_of_parity(option, here):
    library = pytest.importorskip("x_transformers.x_transformers")
    known = {
        name
        for kind, prefix in (
            (library.AttentionLayers, ""),
            (library.Attention, "attn_"),
            (library.TransformerWrapper, ""),
        )
        for name in (prefix + own for own in inspect.signature(kind.__init__).parameters)
    }
    named = re.findall(r"its `(\w+)`", here)
    assert {option.strip("`"), *named} <= known
    scheme = here.split("`")[1]
    kind, _, given = scheme.partition(":")
    rows = [row["scheme"].partition(":")[::2] for row in RESULTS if row["package"] == "x-transformers"]
    assert any(kind == row and set(given.split(",")) <= {*options.split(","), ""} for row, options in rows), scheme
    complete = scheme + ",spectrum.factor=2" * ("spectrum" in scheme)
    assert SchemeSpec(complete).build(SIZES).schemes
