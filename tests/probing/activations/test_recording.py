"""Recorded activations against what a pass computes, read by hand."""

import math
import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.probing._adapter import Inputs, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing.activations.inputs import model_inputs
from ordinate.probing.activations.intervention import ablate, patch
from ordinate.probing.activations.names import ACTIVATIONS, check_indices
from ordinate.probing.activations.recording import Recording, record
from ordinate.testing.analytic_model import AnalyticModel

transformers = pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).parents[1] / "adapters" / "families.py"))
IDS = torch.randint(4, 20, (3, 9), generator=torch.Generator().manual_seed(0))
PLAIN = [name for name in ACTIVATIONS if name not in ("rot_q", "rot_k")]


def decoder(scheme="rope", **options):
    torch.manual_seed(0)
    model = Decoder(Shape(vocabulary=20, width=16, heads=4, layers=2, scheme=scheme, max_length=32, **options))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)
    return model.double().eval()


def off(x, y):
    return float((x - y).detach().abs().max() / y.detach().abs().max())


def test_activations_of_an_ordinate_model_are_those_of_its_formula():
    model = decoder(kv_heads=2)
    seen = record(attach(model), IDS, list(ACTIVATIONS), logits=True)
    block, scheme = model.blocks[1], model.schemes[0]
    mixer, x = block.mixer, seen["resid_pre", 1]
    with torch.no_grad():
        q, k, v = mixer.project_qkv(block.mixer_norm(x))
        places = torch.arange(9)[None, :, None]
        rotated = [scheme.encode_query(q, places), scheme.encode_key(k, places)]
        keys, values = (one.repeat_interleave(2, 1) for one in (rotated[1], v))
        scores = (rotated[0] @ keys.mT / 2).masked_fill(torch.ones(9, 9).triu(1).bool(), -math.inf)
        z = scores.softmax(-1) @ values
        out = mixer.out(z.transpose(1, 2).flatten(2))
        after = x + out
        after = after + block.feedforward(block.feedforward_norm(after))
        wanted = {"q": q, "k": k, "rot_q": rotated[0], "rot_k": rotated[1], "v": v, "z": z} | {
            "pattern": scores.softmax(-1), "attn_out": out, "resid_post": after
        }  # fmt: skip
        for name, value in wanted.items():
            assert off(seen[name, 1], value) < 1e-12, name
        visible = scores.isfinite()
        assert off(seen["attn_scores", 1][visible], scores[visible]) < 1e-12
        assert torch.equal(seen["attn_scores", 1].isinf(), ~visible)
        assert torch.equal(seen["resid_post", 0], x)
        assert off(seen["resid_pre", 0], model.tokens(IDS) * model.shape.embedding_scale) < 1e-12
        assert off(seen.logits, model(IDS)) < 1e-12
    # RoPE changes queries, or the test of their names would show nothing
    assert off(seen["q", 1], seen["rot_q", 1]) > 0.1


def test_activations_of_gpt2_are_those_that_hooks_of_ones_own_read():
    model = FAMILIES["make"]("gpt2", attn_implementation="eager")
    block, read = model.transformer.h[1], {}
    block.register_forward_pre_hook(lambda _, given: read.update(resid_pre=given[0]))
    block.attn.c_attn.register_forward_hook(lambda *got: read.update(qkv=got[2]))
    block.attn.register_forward_hook(lambda *got: read.update(attn_out=got[2][0]))
    block.attn.c_proj.register_forward_pre_hook(lambda _, given: read.update(z=given[0]))
    block.ln_2.register_forward_pre_hook(lambda _, given: read.update(resid_mid=given[0]))
    model.transformer.ln_f.register_forward_pre_hook(lambda _, given: read.update(resid_post=given[0]))
    with torch.no_grad():
        pattern = model(IDS, output_attentions=True).attentions[1]
    q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in read["qkv"].split(32, -1))
    wanted = {"q": q, "k": k, "v": v, "pattern": pattern, "z": read["z"].unflatten(-1, (4, 8)).transpose(1, 2)}
    wanted |= {name: read[name] for name in ("resid_pre", "attn_out", "resid_post")}
    seen = record(attach(model), IDS, list(wanted), layers=1)
    for name, value in wanted.items():
        assert off(seen[name, 1], value) < 1e-12, name
    assert off(seen["resid_pre", 1] + seen["attn_out", 1], read["resid_mid"]) < 1e-12


# a family of the attention interface with RoPE and grouped queries, and traced ones with partial RoPE and with ALiBi
QUICK = ("llama", "gptj", "bloom")


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=() if x in QUICK else pytest.mark.extended) for x in FAMILIES["ALL"]]
)
def test_every_family_has_the_same_names(name):
    model = FAMILIES["subject"](name)
    draw = torch.Generator().manual_seed(1)
    images = Inputs(images=torch.randn(2, 3, 16, 16, generator=draw, dtype=torch.float64))
    inputs = images if name in FAMILIES["IMAGES"] else torch.randint(4, 60, (2, 9), generator=draw)
    without = FAMILIES["ROTATED_FIRST"] + FAMILIES["UNHOOKED"]
    rotated = "rope" in model.info.position and name not in without
    if name in FAMILIES["ROTATED_FIRST"]:
        assert set(record(model, inputs, ["rot_q", "rot_k"], layers=0)) == {("rot_q", 0), ("rot_k", 0)}
        with pytest.raises(NotApplicable, match=r"no rot_q in layer 1; .*rot_q \(layer 0\)"):
            record(model, inputs, "rot_q")
    seen = record(model, inputs, [*PLAIN, *(["rot_q", "rot_k"] if rotated else [])])
    q, k, v = (seen[part, 1] for part in (*(("rot_q", "rot_k") if rotated else ("q", "k")), "v"))
    k, v = (part.repeat_interleave(q.shape[1] // part.shape[1], 1) for part in (k, v))
    assert off(seen["attn_scores", 1].softmax(-1), seen["pattern", 1]) < 1e-6
    assert off(seen["pattern", 1].double() @ v, seen["z", 1]) < 1e-6
    assert torch.equal(seen["resid_post", 0], seen["resid_pre", 1])
    if rotated:
        assert seen["q", 1].shape == q.shape
        assert off(seen["q", 1], q) > 1e-3
    if name in ("llama", "gptj", "gpt_neox", "gpt2"):
        visible = torch.ones(9, 9).tril().bool()
        assert off((q @ k.mT / q.shape[-1] ** 0.5)[..., visible], seen["attn_scores", 1][..., visible]) < 1e-6


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        q, k, v = (part(x).unflatten(-1, (2, 4)).transpose(1, 2) for part in (self.q, self.k, self.v))
        z = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(z.transpose(1, 2).flatten(2))


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.layers = nn.Embedding(20, 8), nn.ModuleList(Layer() for _ in range(2))

    def forward(self, ids):
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return x @ self.tokens.weight.T


@pytest.mark.parametrize("experts", [0, 4])
def test_the_attention_output_of_granite_is_what_is_added(experts):
    """Granite multiplies it first, and its model with experts gives every layer a cache, used or not."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "vocab_size": 60, "pad_token_id": 0, "residual_multiplier": 0.22}
    kind = "GraniteMoe" if experts else "Granite"
    more = {"num_local_experts": experts, "num_experts_per_tok": 2} if experts else {}
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**sizes, **more)
    model, middle = getattr(transformers, f"{kind}ForCausalLM")(config).eval(), []
    lab, ids = attach(model), torch.arange(24).view(2, 12)
    norm = model.model.layers[1].post_attention_layernorm
    hook = norm.register_forward_pre_hook(lambda _, given: middle.append(given[0]))
    seen = record(lab, ids, ["resid_pre", "attn_out", "z"])
    hook.remove()
    torch.testing.assert_close(seen["resid_pre", 1] + seen["attn_out", 1], middle[0])
    by_head = torch.einsum("bhnd,hdw->bnw", seen["z", 1], lab.projection(1).out)
    torch.testing.assert_close(by_head, seen["attn_out", 1])
    without, silent = ablate(lab, "attn_out", layers=1), ablate(lab, "z", layers=1)
    assert torch.equal(*(record(one, ids, "resid_post")["resid_post", 1] for one in (without, silent)))
    halved = record(patch(lab, "attn_out", lambda x: x / 2, layers=0), ids, "resid_pre")["resid_pre", 1]
    assert not torch.allclose(halved, seen["resid_pre", 1])


def test_a_module_of_ones_own_has_them_too():
    torch.manual_seed(0)
    model = Own().double().eval()
    seen = record(model, IDS, PLAIN, logits=True)
    x = model.tokens(IDS)
    q = model.layers[0].q(x).unflatten(-1, (2, 4)).transpose(1, 2)
    assert torch.equal(seen["resid_pre", 0], x)
    assert off(seen["q", 0], q) < 1e-12
    assert off(seen["resid_pre", 0] + seen["attn_out", 0], seen["resid_post", 0]) < 1e-12
    assert off(seen.logits, model(IDS)) < 1e-12


def test_a_reduced_recording_of_batches_is_the_reduced_whole():
    model = attach(decoder("learned"))
    whole = record(model, IDS, "pattern")
    seen = record(model, [IDS[:2], IDS[2:]], "pattern", layers=[-1], reduce=lambda x: x[..., 0].mean(-1))
    assert list(seen) == [("pattern", 1)]
    assert off(seen["pattern", 1], whole["pattern", 1][..., 0].mean(-1)) < 1e-12
    assert whole.layers("pattern").shape == (3, 2, 4, 9, 9)


def test_the_table_of_a_recording_has_a_row_for_each_number():
    model = attach(decoder("learned"))
    seen = record(model, IDS[:1, :3], ["pattern"], layers=1)
    table = seen.table()
    assert table.columns == ("name", "layer", "text", "head", "query", "key", "value")
    assert len(table.rows) == 4 * 3 * 3
    row = next(row for row in table.rows if row[3:6] == (2, 1, 0))
    assert row == ("pattern", 1, 0, 2, 1, 0, float(seen["pattern", 1][0, 2, 1, 0]))
    both = record(model, IDS[:1, :3], ["pattern", "attn_out"], reduce=lambda x: x.flatten(1).mean(1)).table()
    assert both.columns == ("name", "layer", "axis 0", "value")
    assert len(both.rows) == 4
    with pytest.raises(ValueError, match=r"a table has up to 1,000,000 rows; got 1,000,001 numbers; reduce them"):
        Recording({("attn_out", 0): torch.zeros(1, 1, 1_000_001)}).table()


def test_what_a_model_lacks_is_refused_with_what_it_has():
    mixed, plain = attach(decoder("rope,none")), attach(decoder("learned"))
    with pytest.raises(NotApplicable, match=r"no rot_q in layer 1; Decoder has: resid_pre, q, k, rot_q \(layer 0\)"):
        record(mixed, IDS, "rot_q")
    assert list(record(mixed, IDS, "rot_q", layers=0)) == [("rot_q", 0)]
    with pytest.raises(NotApplicable, match=r"no rot_k in layer 0, 1; Decoder has: resid_pre, q, k, v, attn_scores"):
        record(plain, IDS, "rot_k")
    recurrent = attach(Decoder(Shape(vocabulary=20, width=16, heads=4, layers=2, mixer="gru", scheme="none")))
    with pytest.raises(NotApplicable, match=r"no attention to instrument .*; Decoder has: resid_pre, attn_out, res"):
        record(recurrent, IDS, "pattern")
    # q of a layer without RoPE is what enters the scores
    assert record(mixed, IDS, "q", layers=1)["q", 1].shape == (3, 4, 9, 4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"names": "patern"}, "no activation is named 'patern'; .*did you mean 'pattern'"),
        ({"names": ()}, "activations are given by name; got none"),
        ({"layers": 2}, "layers are 0 to 1; got 2; give one of these"),
        ({"layers": []}, "layers must be chosen; got none"),
        ({"reduce": lambda x: x.mean()}, r"reduce must keep the batch first \(3 texts\); got \(\)"),
        ({"reduce": lambda x: 1.0}, r"reduce must keep the batch first \(3 texts\); got float"),
        ({"inputs": IDS[0]}, r"token ids are \(batch, tokens\); got shape \(9,\)"),
        ({"inputs": IDS + 20}, "token ids of plain are 0 to 19; got 2. to 39; use the tokenizer"),
        ({"inputs": IDS[:, :0]}, r"token ids are \(batch, tokens\); got shape \(3, 0\); give one text or more"),
        ({"inputs": torch.randn(2, 3)}, r"images are \(batch, channels, rows, columns\); got \(2, 3\)"),
        ({"inputs": [IDS, IDS[:, :5]]}, r"batches must give pattern of layer 0 one shape; got \[\(2, 5, 5\), \(2, 9"),
    ],
)
def test_bad_requests_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        record(AnalyticModel(vocabulary=20), **{"inputs": IDS, "names": "pattern"} | given)


def test_inputs_of_another_type_are_refused():
    with pytest.raises(TypeError, match="inputs must be a text, token ids, images or Inputs; got int"):
        model_inputs(AnalyticModel(vocabulary=20), 3)
    for wrong in ("a", [0.5]):
        with pytest.raises(TypeError, match=r"layers must be a whole number; got ('a'|0\.5)"):
            check_indices("layers", wrong, 2)
    with pytest.raises(NotApplicable, match="plain has no tokenizer"):
        record(AnalyticModel(vocabulary=20), "a text", "pattern")
