"""Replaced activations: effects that are known."""

import runpy
from pathlib import Path

import pytest
import torch
from torch import nn

from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.probing._adapter import Inputs, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing.activations.intervention import ablate, patch
from ordinate.probing.activations.recording import record
from ordinate.testing.analytic_model import AnalyticModel

pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).parents[1] / "adapters" / "families.py"))
# a family of the attention interface with RoPE and grouped queries, and a traced one with ALiBi
QUICK = ("llama", "bloom")
NAMES = [
    pytest.param(x, marks=() if x in QUICK else pytest.mark.extended)
    for x in (*FAMILIES["DECODERS"], *FAMILIES["ENCODERS"])
]
DRAW = torch.Generator().manual_seed(0)
A, B = (torch.randint(4, 20, (2, 7), generator=DRAW) for _ in range(2))


def decoder(scheme="rope", **options):
    torch.manual_seed(0)
    model = Decoder(Shape(vocabulary=20, width=16, heads=4, layers=2, scheme=scheme, max_length=32, **options))
    return model.double().eval()


def off(x, y):
    return float((x - y).abs().max() / y.abs().max())


def logits(model, ids):
    return model.forward(Inputs(ids)).residual


@pytest.mark.parametrize("name", NAMES)
def test_the_first_stream_of_another_text_gives_that_texts_output_in_every_family(name):
    model = FAMILIES["subject"](name)
    of_a = record(model, A, "resid_pre")
    assert off(logits(patch(model, "resid_pre", of_a, layers=0), B), logits(model, A)) < 1e-6
    assert off(logits(model, B), logits(model, A)) > 1e-3
    # and of the last layer, whatever came before
    last = record(model, A, "resid_post", layers=1)
    assert off(logits(patch(model, "resid_post", last, layers=1), B), logits(model, A)) < 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_without_z_every_family_has_no_attention(name):
    """What attention adds is then a constant, its output bias: tokens learn nothing of each other."""
    model = FAMILIES["subject"](name)
    other = A.clone()
    other[:, 0] = (A[:, 0] + 1) % 20
    one, two = (record(ablate(model, "z"), ids, "attn_out") for ids in (A, other))
    assert torch.equal(one["attn_out", 1][:, 1:], two["attn_out", 1][:, 1:])
    assert off(logits(ablate(model, "z"), other)[:, 1:], logits(ablate(model, "z"), A)[:, 1:]) < 1e-12
    assert off(logits(model, other)[:, 1:], logits(model, A)[:, 1:]) > 1e-4
    # v = 0 and pattern = 0 say the same, in layer 0 only; a family may have rows of scores that no pattern carries
    zeros = [logits(ablate(model, part, layers=0), A) for part in ("z", "v", "pattern")]
    assert off(zeros[1], zeros[0]) < 1e-6
    assert off(zeros[2], zeros[0]) < 1e-6


class Nothing(nn.Module):
    def forward(self, x, at, state=None):
        return torch.zeros_like(x), state


def test_without_z_an_ordinate_model_is_the_one_without_its_mixers():
    model = decoder()
    expected = logits(ablate(model, "z"), A)
    for block in model.blocks:
        block.mixer = Nothing()
    x = model.tokens(A) * model.shape.embedding_scale
    for block in model.blocks:
        x = x + block.feedforward(block.feedforward_norm(x))
    assert off(expected, x.detach()) < 1e-12


def test_only_the_chosen_heads_tokens_and_layers_are_replaced():
    model = attach(decoder("learned"))
    changed = patch(model, "z", lambda z: z + 1, layers=1, heads=[0, -1], tokens=[2, 4])
    before, after = (record(one, A, ["z", "pattern"]) for one in (model, changed))
    expected = before["z", 1].clone()
    for head in (0, 3):
        for token in (2, 4):
            expected[:, head, token] += 1
    assert torch.equal(after["z", 1], expected)
    assert torch.equal(after["z", 0], before["z", 0])
    assert torch.equal(record(model, A, "z")["z", 1], before["z", 1])
    first = patch(model, "resid_pre", 0 * record(model, A, "resid_pre")["resid_pre", 0][:1, :1], layers=0, tokens=3)
    stream = record(first, A, "resid_pre", layers=0)["resid_pre", 0]
    assert not stream[:, 3].any()
    assert stream[:, [0, 1, 2, 4, 5, 6]].all()


@pytest.mark.parametrize("part", ["q", "k", "rot_q", "rot_k", "v"])
def test_queries_and_keys_are_replaced_before_and_after_rope(part):
    model = attach(decoder("rope", kv_heads=2))
    of_a = record(model, A, ["q", "k", "rot_q", "rot_k", "v"])
    after = record(patch(model, part, of_a, layers=1, heads=1), B, ["q", "k", "rot_q", "rot_k", "v"])
    before = record(model, B, ["q", "k", "rot_q", "rot_k", "v"])
    # replaced before RoPE, the rotated ones follow
    moved = {part, f"rot_{part}"} if part in ("q", "k") else {part}
    for name in ("q", "k", "rot_q", "rot_k", "v"):
        wanted = before[name, 1].clone()
        if name in moved:
            wanted[:, 1] = of_a[name, 1][:, 1]
        assert off(after[name, 1], wanted) < 1e-12, name


def test_of_a_layer_without_rope_q_is_what_enters_the_scores():
    model = attach(decoder("rope,none"))
    changed = record(ablate(model, "q", layers=1), A, ["pattern", "q"])
    assert not changed["q", 1].any()
    assert torch.equal(changed["pattern", 1][0, 0, 3, :4], torch.full((4,), 0.25, dtype=torch.float64))


def test_ablated_scores_leave_masked_pairs_masked():
    model = AnalyticModel(vocabulary=20)
    pattern = record(ablate(model, "attn_scores", layers=0), A, "pattern", layers=0)["pattern", 0]
    even = torch.ones(7, 7).tril().double()
    assert off(pattern, (even / even.sum(-1, keepdim=True)).expand_as(pattern)) < 1e-12


def test_a_mean_ablation_takes_the_mean_over_texts_and_tokens():
    model = attach(decoder("learned"))
    seen = record(model, B, "z")
    after = record(ablate(model, "z", layers=0, heads=2, mean_of=seen), A, "z", layers=0)["z", 0]
    assert off(after[:, 2], seen["z", 0][:, 2].mean((0, 1)).expand(2, 7, 4)) < 1e-12
    assert torch.equal(after[:, 1], record(model, A, "z")["z", 0][:, 1])
    own = {("z", 0): seen["z", 0].mean(0, keepdim=True)}
    after = record(patch(model, "z", own, layers=0, heads=2), A, "z", layers=0)["z", 0]
    assert off(after[:, 2], seen["z", 0][:, 2].mean(0).expand(2, 7, 4)) < 1e-12


def test_replacements_add_up_and_the_model_is_left_as_it_was():
    model = attach(decoder())
    usual = model.forward(Inputs(A)).logits
    both = ablate(ablate(model, "z", layers=0), "z", layers=1)
    assert torch.equal(logits(both, A), logits(ablate(model, "z"), A))
    assert torch.equal(both.predict(Inputs(A)), both.forward(Inputs(A)).logits)
    assert not torch.equal(both.predict(Inputs(A)), usual)
    assert torch.equal(model.forward(Inputs(A)).logits, usual)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "zz"}, "no activation is named 'zz'"),
        ({"layers": 5}, "layers are 0 to 1; got 5"),
        ({"heads": 2}, "heads are 0 to 1; got 2"),
        ({"name": "attn_out", "heads": 0}, "attn_out has no heads; got heads 0; leave heads out"),
        (
            {"value": torch.zeros(2, 3)},
            r"replacement of z in layer 0 must broadcast to \(2, 2, 7, 8\); got \(2, 3\)",
        ),
        ({"value": lambda z: None}, r"a replacement of z in layer 0 must broadcast to .*; got NoneType"),
        ({"tokens": 7}, "tokens are 0 to 6; got 7"),
        ({"value": {("z", 0): torch.zeros(1)}}, r"the recording must have z; it lacks layers \[1\]; record them"),
        (
            {"value": {("z", 0): torch.zeros(3, 2, 7, 8), ("z", 1): torch.zeros(1)}},
            r"recorded z of layer 0 must broadcast to \(2, 2, 7, 8\); got \(3, 2, 7, 8\)",
        ),
    ],
)
def test_bad_replacements_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        patch(AnalyticModel(vocabulary=20), **{"name": "z", "value": torch.zeros_like} | given).forward(Inputs(A))


def test_a_mean_ablation_refuses_pairs_and_reduced_recordings():
    model = AnalyticModel(vocabulary=20)
    with pytest.raises(ValueError, match="a mean over tokens is of vectors; got pattern, which has pairs of tokens"):
        ablate(model, "pattern", mean_of=record(model, A, "pattern"))
    with pytest.raises(ValueError, match="a mean is of whole activations; got a reduced recording"):
        ablate(model, "z", mean_of=record(model, A, "z", reduce=lambda z: z.mean(1)))


def test_what_a_model_lacks_is_not_silently_left_alone():
    for model, name in ((AnalyticModel("learned", vocabulary=20), "rot_q"), (attach(decoder("rope,none")), "rot_k")):
        with pytest.raises(NotApplicable, match=f"there is no {name} in layer .*has: resid_pre"):
            ablate(model, name).forward(Inputs(A))
    recurrent = attach(Decoder(Shape(vocabulary=20, width=16, heads=4, layers=2, mixer="gru", scheme="none")))
    with pytest.raises(NotApplicable, match=r"no attention to instrument .*has: resid_pre, attn_out, resid_post"):
        ablate(recurrent, "z").forward(Inputs(A))


def test_what_a_changed_model_lacks_is_told_whatever_the_change_fits():
    """The names are found on other texts, which a recording of these does not fit."""
    model = AnalyticModel("learned", vocabulary=20)
    changed = patch(model, "z", record(model, A, "z"))
    with pytest.raises(NotApplicable, match="there is no rot_q in layer 0, 1; plain has: resid_pre, q, k, v"):
        record(changed, A, "rot_q")


def test_the_callers_tensors_are_left_as_they_were():
    model, vectors = AnalyticModel("none", vocabulary=20), torch.randn(1, 5, 16, dtype=torch.float64)
    given = vectors.clone()
    changed = ablate(model, "resid_pre", layers=0, tokens=2).forward(Inputs(embeddings=given))
    assert torch.equal(given, vectors)
    assert not torch.equal(changed.residual, model.forward(Inputs(embeddings=given)).residual)
