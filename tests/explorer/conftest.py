"""What the page must compute: written by the library in float64, from the weights that the page has."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ordinate import Decoder, Geometry, Shape, attach, load
from ordinate.explorer.model_facts import check_model, packed_model
from ordinate.explorer.packing import PackedModel, load_models, pack
from ordinate.explorer.page import MODELS, _folder
from ordinate.explorer.rounding import restore_rows, rounded_copy
from ordinate.explorer.token_facts import read_token_facts
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.ops.analytic_heads import first_token_head, offset_head_rope, offset_head_sinusoidal
from ordinate.ops.buckets import log_buckets
from ordinate.ops.sinusoids import sinusoids
from ordinate.ops.slopes import alibi_slopes
from ordinate.ops.stats.variance_components import position_share
from ordinate.probing import activation_names, record
from ordinate.schemes import Fire, Kerple, Rope
from ordinate.spectra import Linear, Llama3, Ntk, Yarn
from tests.explorer.checkpoints import SIZES, TOKENIZERS, make_tokenizer, write_checkpoint
from tests.explorer.chromium import BROWSER, FLAGS
from tests.explorer.kinds import kinds

# several bytes of one character, all kinds of them, a single one
TEXTS = ("def f(x):", "naïve\tπ = 3\n", "a")
# contractions, runs of spaces, digits, several lines, characters that no token has
TOKENIZED = (
    "def make_tokenizer(kind):",
    "it's  what we'll\n\n  return 123abc",
    " naïve π 😀\t—",
    "a",
    "x" * 40,
    "import json ",
)
STAGES = ("q", "k", "v", "attn_scores", "pattern", "z")


def packaged():
    """The models of the page."""
    return load_models(Path(str(_folder().joinpath(MODELS))))


def restored(packed: PackedModel):
    """The library's model with the weights of the page, in float64."""
    facts = packed.facts
    sizes = {name: facts[name] for name in ("vocabulary", "width", "heads", "layers")}
    # an encoder has a token more, for what is masked
    sizes["hidden"] = packed.arrays["blocks.0.feedforward.widen.weight"].shape[0]
    sizes["vocabulary"] = packed.arrays["tokens.weight"].shape[0]
    given = {name: value for name, value in facts["options"].items() if name in ("theta", "buckets", "max_distance")}
    scheme = facts["scheme"] + "".join(f"{',' if n else ':'}{k}={v}" for n, (k, v) in enumerate(given.items()))
    sizes |= {"scheme": scheme, "embedding_scale": facts["scale"], "norm_eps": facts["eps"]}
    encodes = facts["kind"] == "encoder"
    model = Encoder(EncoderShape(**sizes, head="none")) if encodes else Decoder(Shape(**sizes))
    arrays = {name: torch.from_numpy(np.array(array)) for name, array in packed.arrays.items()}
    state = {
        name: restore_rows(array, arrays[f"{name}.scales"]) if array.dtype == torch.int8 else array
        for name, array in arrays.items()
        if not name.endswith(".scales")
    }
    state = {name: value.reshape(model.state_dict()[name].shape) for name, value in state.items()}
    model.load_state_dict(state, strict=True)
    return model.double().eval()


def numbers(tensor):
    """A flat list; hidden scores become None."""
    return [value if np.isfinite(value) else None for value in tensor.detach().double().flatten().tolist()]


def flattened(found):
    """Tensors within dictionaries and lists become flat lists."""
    if isinstance(found, dict):
        return {name: flattened(one) for name, one in found.items()}
    if isinstance(found, list):
        return [flattened(one) for one in found]
    return numbers(found) if isinstance(found, torch.Tensor) else found


def stages(model, text):
    """Every stage of the forward pass of one text."""
    ids = torch.tensor([list(text.encode())])
    lab = attach(model)
    known = activation_names(lab)
    names = [f"rot_{name}" if known.get(f"rot_{name}") else name for name in STAGES]
    seen = record(lab, ids, [*names, "resid_pre", "resid_post"])
    layers = range(model.shape.layers)
    found = {
        "ids": ids[0].tolist(),
        "embedding": numbers(seen["resid_pre", 0]),
        "layers": [
            {
                **{key: numbers(seen[name, layer][0]) for key, name in zip(STAGES, names, strict=True)},
                "residual": numbers(seen["resid_post", layer]),
            }
            for layer in layers
        ],
    }
    out = model(ids)
    return {**found, "logits" if isinstance(model, Decoder) else "final": numbers(out)}


def formulas():
    """Values of the library's formulas."""
    far, pos = torch.arange(300), torch.arange(9)[None, :, None]
    torch.manual_seed(3)
    kerple = {form: Kerple(heads=2, form=form).double() for form in ("log", "power")}
    with torch.no_grad():
        for one in kerple.values():
            one.p[0], one.a[0] = 0.9, 0.4
    where = Geometry.causal(17)
    head = {"width": 24, "theta": 10000.0}
    scaled = {
        "linear": Linear(factor=4.0),
        "ntk": Ntk(factor=4.0),
        "yarn": Yarn(factor=4.0, trained_length=128),
        "llama3": Llama3(factor=4.0, trained_length=128),
    }
    return {
        "sinusoids": {str(w): numbers(sinusoids(pos, w, theta=100.0, form="vaswani", odd="paper")) for w in (6, 7)},
        "slopes": {str(h): alibi_slopes(h, "paper", 8.0) for h in (4, 6, 8)},
        "buckets": log_buckets(far, buckets=32, max_distance=128, bidirectional=False).tolist(),
        "rates": {name: spectrum.rates(**head) for name, spectrum in scaled.items()},
        "magnitude": scaled["yarn"].query_key_scale,
        "kerple": {
            form: {"p": one.p[0].item(), "a": one.a[0].item(), "bias": numbers(one.bias(where)[0, 0, -1].flip(0))}
            for form, one in kerple.items()
        },
        "fire": fire_numbers(),
        "erf": [[x, float(torch.tensor(x, dtype=torch.float64).erf())] for x in np.linspace(-7, 7, 141).tolist()],
        "heads": handmade(),
        "share": shares(),
    }


@torch.no_grad()
def fire_numbers():
    """What the network of FIRE reads, for a query below and one above its threshold."""
    fire = Fire(heads=1, hidden=1, biases=False).double()
    # a network that returns what it reads
    fire.inner.weight.fill_(1)
    fire.outer.weight.fill_(1)
    bias = fire.bias(Geometry.causal(701))[0, 0]
    rows = {query: torch.arange(0, query + 1, 5) for query in (10, 700)}
    return [
        {"query": query, "far": far.tolist(), "share": numbers(bias[query, query - far])}
        for query, far in rows.items()
    ]


def handmade(n=20):
    """Scores of heads in closed form, before the scale."""
    table = sinusoids(torch.arange(n)[None, :, None], 16, theta=10000.0, form="vaswani", odd="paper")[0]
    sinusoidal, first = offset_head_sinusoidal(16, 2, 4.0), first_token_head(table, 0.5)
    rope = offset_head_rope(16, 2, 4.0)
    found = {}
    for name, head in {"offset": sinusoidal, "first": first}.items():
        q, k = head.marks(table[None])
        found[name] = numbers(q[0, 0] @ k[0, 0].T / 4)
    at = Rope(head_width=16).at(Geometry.causal(n))
    encoded = at.encode(*rope.marks(torch.zeros(1, n, 1, dtype=torch.float64)))
    return {**found, "rope": numbers(encoded.q[0, 0] @ encoded.k[0, 0].T / 4)}


def shares():
    """The share of variance that position explains, of texts whose first token is left out."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(5, 7, 3, generator=generator, dtype=torch.float64)
    x = x + torch.randn(7, 3, generator=generator, dtype=torch.float64)
    return {"x": x.flatten(1).tolist(), "rows": 7, "width": 3, "share": float(position_share(x[:, 1:]).value)}


def encodings(kind, folder):
    """What a tokenizer makes of texts, beside what the page knows of it."""
    made = make_tokenizer(kind)
    made.save(str(folder / "tokenizer.json"))
    facts = read_token_facts(folder, made.get_vocab_size())
    return {"facts": facts, "texts": [[text, made.encode(text).ids] for text in TOKENIZED]}


@pytest.fixture(scope="session")
def golden(tmp_path_factory):
    """Path of a file with models, texts and numbers."""
    models = packaged()
    torch.manual_seed(1)
    # a head width of six and two layers: sizes that no model of the page has
    own = Decoder(Shape(vocabulary=256, width=36, heads=6, layers=2, scheme="rope:theta=500", hidden=50))
    whole = {"own": own, **published(tmp_path_factory.mktemp("published"))}
    models.extend(packed_model(model, name) for name, model in whole.items())
    entries, weights = pack(models)
    with torch.no_grad():
        run = {model.name: rounded(whole[model.name]) if model.name in whole else restored(model) for model in models}
        found = {name: [stages(model, text) for text in TEXTS] for name, model in run.items()}
        decoders = {name: model for name, model in run.items() if isinstance(model, Decoder)}
        of_kinds = {name: flattened(kinds(model, *TEXTS[:2])) for name, model in decoders.items()}
    path = tmp_path_factory.mktemp("golden") / "golden.json"
    told = {"entries": entries, "weights": weights, "models": found, "kinds": of_kinds, "formulas": formulas()}
    told["tokenizers"] = {kind: encodings(kind, tmp_path_factory.mktemp("tokenizer")) for kind in TOKENIZERS}
    path.write_text(json.dumps(told))
    return path


def published(folder):
    """A small model of each family of decoders."""
    models = {}
    for family in SIZES:
        write_checkpoint(family, folder / family)
        models[family] = load(folder / family).eval()
        check_model(models[family])
    return models


@pytest.fixture(scope="session")
def browser():
    """Chromium, without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        found = running.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield found
        found.close()


def rounded(model):
    """A model with the weights that the page would have."""
    other = rounded_copy(model)
    for module in other.modules():
        if isinstance(module, torch.nn.RMSNorm) and module.eps is None:
            module.eps = torch.finfo(torch.float32).eps
    return other.double().eval()
