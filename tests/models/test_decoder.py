import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate import Cache, Decoder, Geometry, Shape
from ordinate.core import catalog
from ordinate.mixers import Mixer
from ordinate.schemes import Scheme

_FOLDER = "ordinate.schemes"
# those that see one axis: a decoder reads text
SCHEMES = [name for name in catalog.names(_FOLDER) if 1 in catalog.load(_FOLDER, Scheme, name).axes]
# one for each place where position enters; the others are in the extended tier
MECHANISMS = ("none", "learned", "concatenated", "rope", "alibi", "shaw", "cope", "randomized")
each_scheme = pytest.mark.parametrize(
    "scheme", [pytest.param(name, marks=() if name in MECHANISMS else pytest.mark.extended) for name in SCHEMES]
)
# three axes share the channels of a head
WIDER = {"sections": {"width": 32}}
SMALL = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 4, "max_length": 64}


def build(**choices):
    return Decoder(Shape(**(SMALL | WIDER.get(choices.get("scheme"), {}) | choices))).double().eval()


def ids(*shape):
    return torch.randint(0, 11, shape)


def in_pieces(model, text, pieces):
    cache, out, begin = Cache(), [], 0
    for piece in pieces:
        out.append(model(text[:, begin : begin + piece], cache=cache))
        begin += piece
    return torch.cat(out, 1)


@each_scheme
@torch.no_grad()
def test_piece_by_piece_is_the_same_as_at_once(scheme):
    model, text = build(scheme=scheme), ids(2, 9)
    at_once = model(text)
    for pieces in ([9], [1] * 9, [4, 0, 5], [8, 1]):
        assert torch.allclose(in_pieces(model, text, pieces), at_once, atol=1e-10, rtol=0), pieces


@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.parametrize("feedforward", ["gelu", "swiglu"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@torch.no_grad()
def test_pieces_serve_every_kind_of_block(norm, feedforward, kv_heads):
    model = build(norm=norm, feedforward=feedforward, kv_heads=kv_heads, tie_embeddings=False)
    text = ids(2, 9)
    assert torch.allclose(in_pieces(model, text, [3, 1, 5]), model(text), atol=1e-10, rtol=0)


@pytest.mark.covering(1)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("scheme", SCHEMES)
@torch.no_grad()
def test_a_padded_batch_decodes_as_each_row_alone(scheme, side):
    model, lengths = build(scheme=scheme), [2, 5, 4]
    texts, more = [ids(1, length) for length in lengths], ids(3, 4)
    batch, real = torch.zeros(3, 5, dtype=torch.long), torch.zeros(3, 5, dtype=torch.bool)
    for row, text in enumerate(texts):
        place = slice(5 - text.shape[1], 5) if side == "left" else slice(0, text.shape[1])
        batch[row, place], real[row, place] = text[0], True
    cache = Cache()
    read = [model(batch, Geometry.padded(real), cache)]
    read += [model(more[:, step : step + 2], cache.next_geometry(2), cache) for step in (0, 2)]
    for row, text in enumerate(texts):
        alone = model(torch.cat([text, more[row : row + 1]], 1))[0]
        together = torch.cat([read[0][row][real[row]], read[1][row], read[2][row]])
        assert torch.allclose(together, alone, atol=1e-10, rtol=0)


@each_scheme
@torch.no_grad()
def test_packed_documents_are_read_as_each_alone(scheme):
    model, first, second = build(scheme=scheme), ids(1, 4), ids(1, 3)
    packed = model(torch.cat([first, second], 1), Geometry.packed([4, 3]))
    alone = torch.cat([model(first), model(second)], 1)
    assert torch.allclose(packed, alone, atol=1e-10, rtol=0)


@pytest.mark.covering(1)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_logit_depends_on_a_later_token(scheme, training):
    model = build(scheme=scheme).train(training)
    vectors = []
    model.tokens.register_forward_hook(
        lambda module, args, out: vectors.append(out.detach().requires_grad_()) or vectors[-1]
    )
    logits = model(ids(1, 6))
    weights = torch.randn(11, dtype=torch.float64)
    for place in range(6):
        (grad,) = torch.autograd.grad(logits[0, place] @ weights, vectors[0], retain_graph=True)
        assert torch.equal(grad[0, place + 1 :], torch.zeros_like(grad[0, place + 1 :]))
        assert bool((grad[0, : place + 1] != 0).any(-1).all())


def test_a_matrix_of_another_size_leaves_the_others_as_they_are():
    def weights(hidden):
        torch.manual_seed(3)
        return dict(Decoder(Shape(hidden=hidden, **SMALL)).named_parameters())

    narrow, wide = weights(12), weights(20)
    differ = {name for name in narrow if narrow[name].shape != wide[name].shape}
    assert {name.split(".", 2)[2] for name in differ} == {"feedforward.widen.weight", "feedforward.narrow.weight"}
    assert all(torch.equal(narrow[name], wide[name]) for name in narrow if name not in differ)
    assert not torch.equal(narrow["blocks.0.mixer.project.weight"], narrow["blocks.1.mixer.project.weight"])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_seed_gives_one_trunk_whatever_the_scheme(scheme):
    # half of them with a head of its own
    sizes, tied = SMALL | WIDER.get(scheme, {}), SCHEMES.index(scheme) % 2 == 0

    def trunk(scheme):
        torch.manual_seed(3)
        model = Decoder(Shape(scheme=scheme, tie_embeddings=tied, **sizes))
        after = torch.rand(1)
        own = ("schemes.", "tokens.") if scheme == "concatenated" else ("schemes.",)
        return {name: x for name, x in model.named_parameters() if not name.startswith(own)} | {"after": after}

    expected, got = trunk("none"), trunk(scheme)
    if scheme == "concatenated":
        del expected["tokens.weight"], expected["after"], got["after"]
    assert expected.keys() == got.keys()
    assert all(torch.equal(expected[name], got[name]) for name in expected)


def test_a_tied_head_reads_the_token_table():
    model, text = build(scheme="none"), ids(1, 3)
    assert model.head is None
    read = {}
    model.norm.register_forward_hook(lambda module, args, out: read.update(x=out))
    logits = model(text)
    assert torch.equal(logits, torch.nn.functional.linear(read["x"], model.tokens.weight))


def test_a_free_head_has_weights_of_its_own():
    model = build(tie_embeddings=False)
    assert model.head.weight.shape == (11, 16)
    assert model(ids(2, 3)).shape == (2, 3, 11)


def test_a_scheme_with_columns_of_its_own_leaves_the_table_the_rest():
    model = build(scheme="concatenated:position_width=6")
    assert model.tokens.weight.shape == (11, 10)
    assert model(ids(2, 3)).shape == (2, 3, 11)
    free = build(scheme="concatenated:position_width=6", tie_embeddings=False)
    assert free.head.weight.shape == (11, 16)


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        # table + layers * (norms + q, k, v + out + feed-forward) + norm
        ({"scheme": "none"}, 11 * 16 + 2 * (2 * 16 + 16 * 48 + 16 * 16 + 2 * 16 * 64) + 16),
        (
            {"scheme": "none", "tie_embeddings": False},
            2 * 11 * 16 + 2 * (2 * 16 + 16 * 48 + 16 * 16 + 2 * 16 * 64) + 16,
        ),
        ({"scheme": "none", "norm": "layer"}, 11 * 16 + 2 * (4 * 16 + 16 * 48 + 16 * 16 + 2 * 16 * 64) + 32),
        ({"scheme": "none", "kv_heads": 1}, 11 * 16 + 2 * (2 * 16 + 16 * 24 + 16 * 16 + 2 * 16 * 64) + 16),
        ({"scheme": "none", "feedforward": "swiglu"}, 11 * 16 + 2 * (2 * 16 + 16 * 48 + 16 * 16 + 3 * 16 * 42) + 16),
        ({"scheme": "none", "hidden": 5}, 11 * 16 + 2 * (2 * 16 + 16 * 48 + 16 * 16 + 2 * 16 * 5) + 16),
        ({"scheme": "t5"}, 11 * 16 + 2 * (2 * 16 + 16 * 48 + 16 * 16 + 2 * 16 * 64) + 16 + 32 * 4),
        ({"scheme": "learned"}, 11 * 16 + 2 * (2 * 16 + 16 * 48 + 16 * 16 + 2 * 16 * 64) + 16 + 64 * 16),
        ({"scheme": "concatenated"}, 11 * 12 + 2 * (2 * 16 + 16 * 48 + 16 * 16 + 2 * 16 * 64) + 16),
    ],
)
def test_the_parameters_are_those_counted_by_hand(choices, expected):
    assert sum(x.numel() for x in build(**choices).parameters()) == expected


@each_scheme
def test_what_is_saved_comes_back_bit_by_bit(scheme, tmp_path):
    model, text = (
        Decoder(Shape(scheme=scheme, tie_embeddings=False, **SMALL | WIDER.get(scheme, {}))).eval(),
        ids(1, 5),
    )
    model.save_pretrained(tmp_path)
    again = Decoder.from_pretrained(tmp_path)
    assert again.shape == model.shape
    assert {name: x.tolist() for name, x in again.state_dict().items()} == {
        name: x.tolist() for name, x in model.state_dict().items()
    }
    assert torch.equal(again(text), model(text))


def test_a_folder_holds_readable_json_and_no_pickle(tmp_path):
    Decoder(Shape(scheme="rope:theta=5e5", **SMALL)).save_pretrained(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} <= {".json", ".safetensors", ".md"}
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    told = config.get("shape", config)
    assert (told["scheme"], told["width"]) == ("rope:theta=5e5", 16)


def change(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config.get("shape", config).update(changes)
    path.write_text(json.dumps(config), encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"scheme": "ropee"}, "no scheme is named 'ropee'; .*did you mean 'rope'"),
        ({"scheme": "os"}, "no scheme is named 'os'"),
        ({"scheme": "../../evil"}, "no scheme is named"),
        ({"mixer": "sotfmax"}, "no mixer is named 'sotfmax'; .*did you mean 'softmax'"),
        ({"scheme": "rope:thetta=1"}, "no option of Rope is named 'thetta'; .*did you mean 'theta'"),
        ({"scheme": "rope:theta=__import__('os')"}, "option theta of Rope must be float"),
        ({"norm": "rmss"}, "no norm is named 'rmss'; .*did you mean 'rms'"),
        ({"wdth": 8}, "no field of a shape is named 'wdth'; .*did you mean 'width'"),
    ],
)
def test_a_config_with_an_unknown_name_fails_with_the_nearest_and_imports_nothing(changes, match, tmp_path, untyped):
    Decoder(Shape(**SMALL)).save_pretrained(tmp_path)
    change(tmp_path, **changes)
    # what reading an option loads anyway
    Shape(**SMALL | {"scheme": "rope:theta=10"}).make_schemes()
    before = set(sys.modules)
    with pytest.raises(ValueError, match=match):
        Decoder.from_pretrained(tmp_path)
    assert set(sys.modules) == before


def test_weights_that_lack_a_tensor_are_refused(tmp_path):
    Decoder(Shape(**SMALL)).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["norm.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"norm.weight\""):
        Decoder.from_pretrained(tmp_path)


def test_a_pickle_is_never_read(tmp_path):
    model = build()
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"weights of other formats are not read; .* has no model.safetensors"):
        Decoder.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("text", "where", "match"),
    [
        (torch.tensor([[0, 11]]), None, "token ids must lie in 0 to 10; got 0 to 11; use the tokenizer"),
        (torch.tensor([[-1, 3]]), None, "token ids must lie in 0 to 10; got -1 to 3"),
        (torch.tensor([1, 2]), None, r"ids need the axes \(batch, tokens\); got \(2,\); add a batch axis"),
        (torch.tensor([[1.0, 2.0]]), None, "ids must be int32 or int64; got torch.float32"),
        (torch.tensor([[1, 2]]), Geometry.full(2), "a decoder needs a causal geometry; got a geometry that is not"),
        (
            torch.tensor([[1, 2]]),
            Geometry.causal(3),
            "the geometry must have the new tokens as queries and as keys; got 3",
        ),
        (torch.tensor([[1, 2]]), Geometry.causal(2, cached=1), "got 2 queries, 3 keys, 1 rows for ids of"),
        (torch.tensor([[1, 2]]), Geometry.padded(torch.ones(3, 2).bool()), "got 2 queries, 2 keys, 3 rows"),
        (
            torch.tensor([[1, 2]]),
            Geometry.from_positions(torch.zeros(1, 2, 2)),
            "Rope takes positions with 1 axis; got 2 axes",
        ),
    ],
)
def test_an_input_that_does_not_fit_is_refused(text, where, match, untyped):
    with pytest.raises(ValueError, match=match):
        build()(text, where)


def test_positions_beyond_a_learned_table_are_refused():
    model = build(scheme="learned", max_length=4)
    model(ids(1, 4))
    with pytest.raises(
        ValueError, match=r"Learned serves positions 0 to 3 \(max_length 4\); got 0 to 4; build it with max"
    ):
        model(ids(1, 5))


@pytest.mark.parametrize(
    ("choices", "match"),
    [
        ({"width": 12}, "rope needs an even head width; got 3"),
        ({"width": 18}, "heads must divide width; got width 18, heads 4"),
        ({"kv_heads": 3}, "kv_heads must divide heads; got heads 4, kv_heads 3"),
        ({"vocabulary": 0}, "vocabulary must be above zero; got 0"),
        ({"layers": 0}, "layers must be above zero"),
        ({"hidden": 0}, "hidden must be above zero; got 0"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\); got 1.0"),
        ({"feedforward": "swigl"}, "no feedforward is named 'swigl'; .*did you mean 'swiglu'"),
        ({"scheme": "alibi:theta=1.0"}, "no option of Alibi is named 'theta'"),
    ],
)
def test_a_shape_that_makes_no_model_is_refused(choices, match, untyped):
    with pytest.raises(ValueError, match=match):
        build(**choices)


def test_a_mixer_that_ignores_a_hook_refuses_the_scheme(monkeypatch):
    class Mean(Mixer):
        supported_hooks = frozenset({"embed"})

        def __init__(self, *, width: int) -> None:
            super().__init__()

        def forward(self, x, at, state=None):
            return x.cumsum(1), state

    load = catalog.load
    monkeypatch.setattr(
        catalog,
        "load",
        lambda package, kind, name: Mean if kind is Mixer else load(package, kind, name),
    )
    assert build(scheme="sinusoidal") is not None
    with pytest.raises(
        ValueError, match="mixer 'Mean' does not support hooks 'encode_key', 'encode_query', used by scheme 'rope'"
    ):
        build(scheme="rope")
    with pytest.raises(
        ValueError,
        match="hook 'bias', used by scheme 'alibi'; supported hooks: embed, remap_positions; choose a scheme",
    ):
        build(scheme="alibi")


def test_a_scheme_for_each_layer_is_made_and_used_in_order():
    model = build(scheme="t5:per_layer=true")
    assert len(model.schemes) == 2
    model(ids(1, 4)).sum().backward()
    assert all(bool((scheme.table.grad != 0).any()) for scheme in model.schemes)


@pytest.mark.extended
def test_it_compiles_into_one_graph():
    program = """
import torch
from ordinate import Decoder, Shape

for scheme in ("none", "rope", "alibi", "learned"):
    torch._dynamo.reset()
    model = Decoder(Shape(vocabulary=11, width=16, layers=2, heads=4, scheme=scheme))
    ids = torch.randint(0, 11, (2, 9))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.allclose(model(ids), compiled(ids), atol=1e-5), scheme
"""
    # without the check of types that the other tests run under, as a user has it
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("ids", "kind", "match"),
    [
        (None, TypeError, "ids must be a tensor; got NoneType"),
        ([[1, 2]], TypeError, "ids must be a tensor; got list"),
        (torch.ones(1, 3).bool(), ValueError, "ids must be int32 or int64; got torch.bool"),
        (
            torch.ones(1, 3).long().to("meta"),
            ValueError,
            "ids and the model must be on one device; got meta and cpu; move",
        ),
    ],
)
def test_what_are_no_ids_is_refused(ids, kind, match, untyped):
    model = Decoder(Shape(vocabulary=10, width=16, layers=1, heads=2))
    with pytest.raises(kind, match=match):
        model(ids)


def test_what_is_no_cache_is_refused(untyped):
    model = Decoder(Shape(vocabulary=10, width=16, layers=1, heads=2))
    with pytest.raises(TypeError, match=r"cache must be a Cache; got list; start with Cache\(\)"):
        model(torch.ones(1, 3).long(), cache=[])


@pytest.mark.parametrize("size", ["vocabulary", "width", "layers", "heads", "max_length"])
def test_a_size_that_is_no_whole_number_is_refused(size, untyped):
    with pytest.raises(TypeError, match=f"{size} must be a whole number; got 4.0"):
        Shape(**({"vocabulary": 10} | {size: 4.0}))


def test_what_is_no_geometry_is_refused(untyped):
    model = Decoder(Shape(vocabulary=10, width=16, layers=1, heads=2))
    with pytest.raises(TypeError, match="where must be a Geometry; got int; build one"):
        model(torch.ones(1, 3).long(), 3)
