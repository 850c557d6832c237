"""Mixture of experts: a plain loop over tokens, the choice of the router, and what else a feed-forward does."""

import copy
import dataclasses
from functools import partial
from unittest import mock

import pytest
import torch

from ordinate import Cache, Decoder, Encoder, EncoderShape, Geometry, Shape
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.experts import Experts, NormedExperts
from ordinate.models.feedforward import GATED
from ordinate.ops import grouped_linear
from ordinate.ops.activation import ACTIVATIONS
from ordinate.ops.rms_norm import RMSNorm
from ordinate.pretrained.read_model import read_model
from ordinate.probing import attach
from ordinate.probing._adapter import Inputs
from ordinate.testing.tolerance import assert_as_close

SIZES = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 4, "max_length": 32, "feedforward": "swiglu"}
WIDTH, HIDDEN = 8, 12
FORMS = {
    "Mixtral": ("swiglu", ExpertOptions(5), False),
    "Qwen": ("geglu", ExpertOptions(5, 3, normalise=False), False),
    "gpt-oss": ("swiglu", ExpertOptions(4, 2, limit=0.5), True),
    "another slope": ("swiglu", ExpertOptions(4, 3, limit=2.0, slope=-0.7), True),
    "without a gate": ("gelu", ExpertOptions(3, 3), True),
    "Qwen2-MoE": ("swiglu", ExpertOptions(5, 2, normalise=False, shared_hidden=7, shared_gate=True), False),
    "DeepSeek-V3": (
        "swiglu",
        ExpertOptions(6, scores="sigmoid", choice_bias=True, groups=3, chosen_groups=2, scale=2.5, shared_hidden=7),
        False,
    ),
    "DeepSeek-V2": (
        "swiglu",
        ExpertOptions(6, 3, normalise=False, groups=3, chosen_groups=2, group_scores="best", wide_router=True),
        False,
    ),
    "Phi-3.5-MoE": ("swiglu", ExpertOptions(5, scores="sparsemixer", normalise=False, jitter=0.3, scale=0.5), False),
    "Laguna": (
        "swiglu",
        ExpertOptions(5, scores="sigmoid", choice_bias=True, logit_softcap=0.4, scale=1.5, shared_hidden=7),
        False,
    ),
    "Command A+": ("swiglu", ExpertOptions(5, shared_hidden=7, combined="average"), False),
    "large eps": ("swiglu", ExpertOptions(5, scores="sigmoid", sum_eps=0.5), False),
    "Llama 4": (
        "swiglu",
        ExpertOptions(5, scores="sigmoid", normalise=False, weighted_inputs=True, shared_hidden=7),
        False,
    ),
    "weighted inputs, biases": ("gelu", ExpertOptions(4, 3, latent=10, weighted_inputs=True, scale=1.5), True),
    "latent": ("swiglu", ExpertOptions(5, latent=6, shared_hidden=7), False),
    "latent, biases": ("gelu", ExpertOptions(4, 3, latent=10), True),
    "Gemma 4": ("geglu_tanh", ExpertOptions(5, 3, router_norm_eps=0.3, expert_factors=True), False),
    "router with a norm and a bias": ("gelu", ExpertOptions(4, router_norm_eps=0.0, shared_hidden=5), True),
    "sigmoids": ("gelu", ExpertOptions(4, 3, normalise=False, scores="sigmoid", shared_hidden=5), True),
}


def made(name):
    """Experts of a form with weights drawn so that each of them shows, in float64."""
    kind, options, biased = FORMS[name]
    torch.manual_seed(0)
    experts = Experts(kind, WIDTH, HIDDEN, options, bias=biased, router_bias=biased).double()
    for weight in (*experts.parameters(), *experts.buffers()):
        torch.nn.init.normal_(weight, std=0.5)
    return experts


def drawn(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def layer(part, x, place=...):
    """W x + b of one expert, or of the router."""
    return part.weight[place] @ x + (0 if part.bias is None else part.bias[place])


def hidden(name, x):
    """The hidden layer of an expert, from its formula."""
    kind, options, _ = FORMS[name]
    if kind not in GATED:
        return ACTIVATIONS[kind](x)
    gate, value = x.chunk(2)
    if options.limit is None:
        return ACTIVATIONS[GATED[kind]](gate) * value
    gate = torch.where(gate > options.limit, options.limit, gate)
    value = torch.where(value.abs() > options.limit, options.limit * value.sign(), value)
    return gate / (1 + torch.exp(-options.slope * gate)) * (value + 1)


def ranked(options, ranks):
    """The experts of a token, one after the other, from the numbers that decide."""
    size = options.count // options.groups
    groups = [list(range(part * size, (part + 1) * size)) for part in range(options.groups)]
    counted = 2 if options.group_scores == "pair" else 1
    best = [sum(sorted((ranks[one] for one in group), reverse=True)[:counted]) for group in groups]
    kept = sorted(range(options.groups), key=lambda part: -best[part])[: options.chosen_groups]
    return sorted((one for part in kept for one in groups[part]), key=lambda one: -ranks[one])[: options.chosen]


def sparse(logits, jitter):
    """The two experts of a token with `sparsemixer` and their weights, from the formula."""
    left, found = list(range(len(logits))), []
    for _ in range(2):
        best = max(left, key=lambda one: logits[one])
        near = [
            one for one in left if (logits[best] - logits[one]) / max(abs(logits[one]), logits[best]) <= 2 * jitter
        ]
        found.append((best, logits[best].exp() / sum(logits[one].exp() for one in near)))
        left.remove(best)
    return found


def looped(name, experts, x):
    """The formula, one token and one expert after the other."""
    options, rows = FORMS[name][1], []
    for token in x.flatten(0, -2):
        routed, eps = token, options.router_norm_eps
        if eps is not None:
            routed = token / (token.square().mean() + eps).sqrt() * experts.router.factors / WIDTH**0.5
        logits = layer(experts.router, routed)
        cap = options.logit_softcap
        logits = logits if cap is None else cap * torch.tanh(logits / cap)
        scores = torch.softmax(logits, 0) if options.scores == "softmax" else 1 / (1 + torch.exp(-logits))
        bias = experts.choice_bias if options.choice_bias else torch.zeros(options.count)
        chosen = ranked(options, (scores + bias).tolist())
        if options.scores == "sparsemixer":
            scores = dict(sparse(logits, options.jitter))
            chosen = list(scores)
        total = sum(scores[one] for one in chosen) + options.sum_eps if options.normalise else 1
        read = token if options.latent is None else layer(experts.compress, token)
        shares = [options.scale * scores[one] / total for one in chosen]
        if options.expert_factors:
            shares = [share * experts.factors[one] for share, one in zip(shares, chosen, strict=True)]
        inner, outer = ([1] * len(shares), shares)[:: -1 if options.weighted_inputs else 1]
        each = (
            layer(experts.narrow, hidden(name, layer(experts.widen, share * read, one)), one)
            for one, share in zip(chosen, inner, strict=True)
        )
        row = sum(share * y for share, y in zip(outer, each, strict=True))
        row = row if options.latent is None else layer(experts.restore, row)
        if options.shared_hidden is not None:
            y = layer(experts.shared.narrow, hidden(name, layer(experts.shared.widen, token)))
            row = row + (torch.sigmoid(layer(experts.shared_gate, token)) if options.shared_gate else 1) * y
            row = row / 2 if options.combined == "average" else row
        rows.append(row)
    return torch.stack(rows).view_as(x)


def derivatives(run, x, weights):
    """Output, gradients, and gradients of the sum of their squares."""
    x = x.clone().requires_grad_()
    y = run(x)
    first = torch.autograd.grad(y.square().sum(), [x, *weights], create_graph=True)
    return [y, *first, *torch.autograd.grad(sum(one.square().sum() for one in first), [x, *weights])]


def check(name, parts=(), **changes):
    experts, x = made(name), drawn(2, 9, WIDTH)
    weights, run = list(experts.parameters()), copy.copy(experts)
    expected = derivatives(lambda x: looped(name, experts, x), x, weights)
    run.options = dataclasses.replace(experts.options, **changes)
    for part in parts:
        setattr(run, part, None)
    for out, plain in zip(derivatives(run, x, weights), expected, strict=True):
        assert_as_close(out, plain, plain)


@pytest.mark.parametrize("name", FORMS)
def test_experts_are_the_loop_over_tokens_with_both_derivatives(name):
    check(name)


@pytest.mark.parametrize("name", ["Mixtral", "gpt-oss", "DeepSeek-V3"])
def test_so_is_the_operator_that_torch_compile_traces(name):
    with mock.patch.object(grouped_linear, "_lacks_values", return_value=True):
        check(name)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("Mixtral", {"normalise": False}),
        ("gpt-oss", {"slope": 1.0}),
        ("gpt-oss", {"limit": 0.6}),
        ("DeepSeek-V3", {"scale": 2.4}),
        ("Phi-3.5-MoE", {"jitter": 0.1}),
        ("Phi-3.5-MoE", {"scale": 0.6}),
        ("DeepSeek-V3", {"groups": 1, "chosen_groups": 1}),
        ("DeepSeek-V3", {"chosen_groups": 1}),
        ("DeepSeek-V2", {"group_scores": "pair"}),
        ("DeepSeek-V2", {"groups": 1, "chosen_groups": 1, "group_scores": "pair"}),
        ("DeepSeek-V3", {"parts": ["choice_bias"]}),
    ],
)
def test_a_wrong_number_is_noticed(name, change):
    # a mutant: an option that is passed over
    with pytest.raises(AssertionError, match="off by"):
        check(name, **change)


def test_a_gate_or_a_shared_network_that_is_left_out_is_noticed():
    experts, x = made("Qwen2-MoE"), drawn(2, 9, WIDTH)
    expected = looped("Qwen2-MoE", experts, x)
    for part in ("shared_gate", "shared"):
        setattr(experts, part, None)
        with pytest.raises(AssertionError, match="off by"):
            assert_as_close(experts(x), expected, expected)


def test_factors_and_a_norm_of_the_router_that_are_left_out_are_noticed():
    experts, x = made("Gemma 4"), drawn(2, 9, WIDTH)
    expected = looped("Gemma 4", experts, x)
    for place, name in ((experts, "factors"), (experts.router, "norm")):
        usual = getattr(place, name)
        setattr(place, name, None if name == "factors" else torch.nn.Identity())
        with pytest.raises(AssertionError, match="off by"):
            assert_as_close(experts(x), expected, expected)
        setattr(place, name, usual)
    assert_as_close(experts(x), expected, expected)


@pytest.mark.parametrize("biased", [False, True])
def test_normed_experts_are_a_network_and_experts_with_norms_around_each(biased):
    options = ExpertOptions(5, shared_hidden=7, combined="normed_sum", router_norm_eps=0.1, expert_factors=True)
    torch.manual_seed(0)
    bias = ("feedforward", "router") if biased else ()
    part = NormedExperts("swiglu", WIDTH, HIDDEN, options, partial(RMSNorm, eps=0.2), bias).double()
    for weight in part.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    x = drawn(2, 9, WIDTH)
    weights = list(part.parameters())

    def formula(x):
        def normed(x, norm):
            return x / (x.square().mean(-1, keepdim=True) + 0.2).sqrt() * norm.weight

        rows = []
        for token, read in zip(x.flatten(0, 1), normed(x, part.norm).flatten(0, 1), strict=True):
            experts = part.experts
            routed = token / (token.square().mean() + 0.1).sqrt() * experts.router.factors / WIDTH**0.5
            scores = torch.softmax(layer(experts.router, routed), 0)
            chosen = scores.argsort(descending=True)[:2]
            each = [(experts.widen, experts.narrow, one, scores[one] / scores[chosen].sum()) for one in chosen]
            made = []
            for widen, narrow, one, share in each:
                gate, value = layer(widen, read, one).chunk(2)
                made.append(experts.factors[one] * share * layer(narrow, gate / (1 + (-gate).exp()) * value, one))
            rows.append(sum(made))
        routed = normed(torch.stack(rows).view_as(x), part.out_norm)
        gate, value = (normed(x, part.shared_norm) @ part.shared.widen.weight.T).chunk(2, -1)
        if biased:
            gate, value = gate + part.shared.widen.bias[:7], value + part.shared.widen.bias[7:]
        fed = (gate / (1 + (-gate).exp()) * value) @ part.shared.narrow.weight.T
        fed = fed + part.shared.narrow.bias if biased else fed
        return normed(fed, part.shared_out_norm) + routed

    for out, plain in zip(derivatives(part, x, weights), derivatives(formula, x, weights), strict=True):
        assert_as_close(out, plain, plain)


def test_a_model_gives_them_the_residual_stream():
    options = ExpertOptions(3, shared_hidden=7, combined="normed_sum")
    model = Decoder(Shape(**SIZES, norm_position="peri", experts=options))
    block = model.blocks[0]
    assert isinstance(block.feedforward_norm, torch.nn.Identity)
    x, seen = drawn(1, 4, 16).float(), []
    block.feedforward.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    at = model.bind_schemes(Geometry.causal(4))[0]
    out, _ = block(x, at)
    stream = x + block.mixer_out_norm(block.mixer(block.mixer_norm(x), at)[0])
    torch.testing.assert_close(seen[0], stream)
    torch.testing.assert_close(out, stream + block.feedforward_out_norm(block.feedforward(stream)))


def test_scores_of_zero_have_no_weight():
    experts, x = made("DeepSeek-V3").float(), drawn(1, 3, WIDTH).float().abs()
    with torch.no_grad():
        experts.router.weight.fill_(-1e4)
    weights, _ = experts.route(x.flatten(0, 1))
    assert torch.equal(weights, torch.zeros(3, 2))


def test_only_the_chosen_experts_are_computed():
    experts, x, rows = made("Mixtral"), drawn(1, 6, WIDTH).abs(), []
    with torch.no_grad():
        # no token is above it
        experts.router.weight[0] = -experts.router.weight.abs().sum()
        experts.widen.weight[0] = experts.narrow.weight[0] = torch.nan

    def counted(x, weight, bias):
        rows.append(len(x))
        return torch.nn.functional.linear(x, weight, bias)

    with mock.patch.object(grouped_linear, "linear", counted):
        y = experts(x)
    # each token by two experts, each of which has two matrices
    assert sum(rows) == 6 * 2 * 2
    gradients = torch.autograd.grad(y.sum(), list(experts.parameters()))
    assert all(one.isfinite().all() for one in (y, *gradients))
    assert not gradients[1][0].any()


def test_no_tokens_have_no_output_and_gradients_of_zero():
    experts = made("gpt-oss")
    y = experts(drawn(2, 0, WIDTH))
    assert y.shape == (2, 0, WIDTH)
    assert all(not one.any() for one in torch.autograd.grad(y.sum(), list(experts.parameters())))


# PyTorch's own, as it loads its formulas
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("name", ["gpt-oss", "DeepSeek-V3"])
def test_tangents_and_maps_are_those_of_the_output(name):
    experts, x, v = made(name), drawn(2, 9, WIDTH), drawn(2, 9, WIDTH).roll(1)
    out, tangent = torch.func.jvp(experts, (x,), (v,))
    near = 1e-6
    assert torch.equal(out, experts(x))
    torch.testing.assert_close(
        tangent, (experts(x + near * v) - experts(x - near * v)) / (2 * near), rtol=1e-6, atol=1e-6
    )
    gradient = torch.func.grad(lambda x: experts(x).square().sum())(x)
    assert torch.equal(gradient, derivatives(experts, x, [])[1])
    assert experts.to("meta")(x.to("meta")).shape == x.shape


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("name", ["gpt-oss", "DeepSeek-V3"])
def test_gradients_of_each_text_are_those_of_the_texts_one_by_one(name):
    experts, x = made(name), drawn(3, 5, WIDTH)
    learned = dict(experts.named_parameters())

    def loss(learned, x):
        return torch.func.functional_call(experts, learned, (x[None],)).square().sum()

    together = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(learned, x)
    alone = [torch.func.grad(loss)(learned, one) for one in x]
    for key, found in together.items():
        torch.testing.assert_close(found, torch.stack([one[key] for one in alone]), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["gpt-oss", "Qwen2-MoE"])
def test_16_bits_are_as_close_as_the_loop(name):
    experts, x = made(name).bfloat16(), drawn(2, 9, WIDTH).bfloat16()
    exact = looped(name, made(name).bfloat16().double(), x.double())
    assert experts(x).dtype == torch.bfloat16
    assert_as_close(experts(x), looped(name, experts, x), exact)


def test_sigmoids_are_those_of_logits_in_32_bits():
    experts, x = made("DeepSeek-V3").bfloat16(), drawn(2, 9, WIDTH).bfloat16()
    exact = copy.deepcopy(experts).double()
    weights, chosen = experts.route(x.flatten(0, 1))
    expected, same = exact.route(x.double().flatten(0, 1))
    assert weights.dtype == torch.float32
    assert torch.equal(chosen, same)
    torch.testing.assert_close(weights.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"count": 2, "chosen": 3}, "at most as many experts as there are; got chosen=3 of 2; give fewer"),
        ({"count": 0}, "count must be above zero; got 0"),
        ({"count": 4, "limit": 0.0}, "limit must be above zero; got 0.0"),
        ({"count": 4, "slope": 1.0}, "slope has an effect with a limit only; got slope=1.0; leave it out"),
        ({"count": 4, "limit": 1.0, "slope": float("nan")}, "slope must be a finite number; got nan"),
        ({"count": 4, "dense_hidden": 3}, "dense_hidden has an effect with dense_layers only; got no dense_layers"),
        ({"count": 4, "scale": float("inf")}, "scale must be a finite number; got inf; 1.0 is usual"),
        ({"count": 4, "groups": 3}, "at least two in each, and as many in each; got count=4 in groups=3; give"),
        ({"count": 4, "groups": 4}, "at least two in each, .*; got count=4 in groups=4; give"),
        ({"count": 4, "chosen_groups": 2}, "as many groups as there are; got 2 of 1; give fewer chosen_groups"),
        ({"count": 4, "chosen": 3, "groups": 2}, "must have the experts of a token; got chosen=3 of 1 groups of 2"),
        (
            {"count": 4, "group_scores": "best"},
            "group_scores has an effect with several groups, .*; got .best. with 1 of 1",
        ),
        (
            {"count": 4, "chosen": 1, "groups": 3, "group_scores": "best"},
            "experts in groups must be as many in each; got count=4 in groups=3",
        ),
        (
            {"count": 4, "wide_router": True, "scores": "sigmoid"},
            "wide_router has an effect with scores=.softmax. only",
        ),
        (
            {"count": 4, "shared_gate": True},
            "shared_gate has an effect with shared_hidden only; got shared_gate=True",
        ),
        ({"count": 4, "logit_softcap": 0.0}, "logit_softcap must be above zero"),
        ({"count": 4, "combined": "average"}, "combined has an effect with shared_hidden only; got 'average'; leave"),
        ({"count": 4, "scores": "sparsemixer"}, "needs chosen=2, normalise=False, .*; got chosen=2, normalise=True,"),
        (
            {"count": 4, "scores": "sparsemixer", "normalise": False, "chosen": 3},
            "no groups; got chosen=3, normalise=F",
        ),
        (
            {"count": 4, "scores": "sparsemixer", "normalise": False, "jitter": -1.0},
            "at least 0, .*; got -1.0, scores",
        ),
        (
            {"count": 4, "jitter": 0.1},
            "jitter .* has an effect with scores='sparsemixer' only; got 0.1, scores='softmax'",
        ),
        ({"count": 4, "sum_eps": -1.0}, "sum_eps must lie in .*; got -1.0"),
        (
            {"count": 4, "sum_eps": 0.1, "normalise": False},
            "sum_eps has an effect with normalise only; got",
        ),
        ({"count": 4, "latent": 0}, "latent must be above zero; got 0"),
        ({"count": 4, "shared_hidden": 3, "limit": 1.0}, "a shared network has no limit; got limit=1.0, shared_h"),
        ({"count": 4, "dense_layers": (2,)}, r"some of the layers from 0 to 1, and leave one .*; got \(2,\)"),
        ({"count": 4, "dense_layers": (0, 1)}, r"and leave one for the experts; got \(0, 1\)"),
    ],
)
def test_experts_that_a_model_cannot_have_are_refused(given, match):
    with pytest.raises(ValueError, match=match):
        Shape(**SIZES, experts=ExpertOptions(**given))


def test_scores_have_a_known_name(untyped):
    with pytest.raises(ValueError, match="no scores is named 'softplus'; there are: sigmoid, softmax, sparsemixer"):
        ExpertOptions(4, scores="softplus")


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"experts": ExpertOptions(4, limit=1.0), "feedforward": "geglu"}, "need feedforward='swiglu'; got 'geglu'"),
        ({"bias": ("router",)}, "bias='router' is of a model with experts; got experts=None"),
        (
            {"bias": ("feedforward_in",), "experts": ExpertOptions(4)},
            "bias='feedforward_in' is of a model without experts",
        ),
    ],
)
def test_other_options_must_fit_the_experts(given, match):
    with pytest.raises(ValueError, match=match):
        Shape(**SIZES | given)


FULL = ExpertOptions(4, 2, limit=0.5, dense_layers=(1,), dense_hidden=20)
GROUPED = ExpertOptions(
    *(4, 2), scores="sigmoid", choice_bias=True, groups=2, scale=2.0, shared_hidden=7, shared_gate=True
)


def decoder(experts=FULL, **told):
    torch.manual_seed(0)
    model = Decoder(Shape(**SIZES | {"experts": experts, "bias": ("norm", "feedforward", "router")} | told)).eval()
    for weight in (*model.parameters(), *model.buffers()):
        weight.data.add_(0.2 * torch.randn_like(weight))
    return model


@torch.no_grad()
@pytest.mark.parametrize("experts", [FULL, GROUPED])
def test_a_decoder_with_experts_is_saved_read_and_decoded(experts, tmp_path):
    model, ids = decoder(experts).double(), torch.randint(0, 11, (2, 9))
    model.save_pretrained(tmp_path)
    for again in (Decoder.from_pretrained(tmp_path), read_model(tmp_path)):
        assert again.shape == model.shape
        assert torch.equal(again.double()(ids), model(ids))
    cache = Cache()
    pieces = torch.cat([model(piece, cache=cache) for piece in ids.split([4, 3, 1, 1], 1)], 1)
    assert_as_close(pieces, model(ids), model(ids))
    real = torch.arange(9) >= torch.tensor([[0], [3]])
    padded = model(ids, Geometry.padded(real))[1, 3:]
    assert_as_close(padded, model(ids[1:, 3:])[0], model(ids[1:, 3:])[0])


def test_some_layers_may_have_one_network_of_a_width_of_its_own():
    model = decoder()
    assert [type(block.feedforward).__name__ for block in model.blocks] == ["Experts", "FeedForward"]
    assert model.blocks[1].feedforward.narrow.in_features == 20


def test_a_config_with_too_many_experts_is_refused_before_a_model_is_made(tmp_path):
    decoder(dataclasses.replace(GROUPED, dense_layers=(1,), dense_hidden=20)).save_pretrained(tmp_path)
    config = (tmp_path / "config.json").read_text()
    for name, size in (("count", 4), ("dense_hidden", 20), ("shared_hidden", 7)):
        (tmp_path / "config.json").write_text(config.replace(f'"{name}": {size}', f'"{name}": {10**15}'))
        with pytest.raises(ValueError, match=f"{name} in config.json must fit the weights; got {10**15}"):
            read_model(tmp_path)


def test_new_experts_start_as_other_layers_do():
    first, second = (Decoder(Shape(**SIZES, experts=ExpertOptions(4, dense_layers=dense))) for dense in ((), (1,)))
    for model in (first, second):
        model.initialise(3)
    widen, narrow = first.blocks[0].feedforward.widen, first.blocks[0].feedforward.narrow
    assert torch.equal(widen.weight, second.blocks[0].feedforward.widen.weight)
    assert widen.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert narrow.weight.std().item() == pytest.approx(0.02 / 4**0.5, rel=0.1)


@pytest.mark.parametrize("told", [{"blocks": "reversible"}, {"dropout": 0.1}, {"dropout": 0.1, "experts": GROUPED}])
def test_experts_train_where_activations_are_computed_again(told):
    model, ids = decoder(**told).train(), torch.randint(0, 11, (2, 9))
    found = []
    for again in (False, True):
        if again and model.shape.blocks == "plain":
            model.gradient_checkpointing_enable()
        torch.manual_seed(5)
        found.append(torch.autograd.grad(model(ids).square().sum(), list(model.parameters())))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert all(one.any() for one in found[0])


def test_experts_are_in_encoders_too():
    sizes = SIZES | {"experts": ExpertOptions(3), "norm_position": "post"}
    assert Encoder(EncoderShape(**sizes))(torch.randint(0, 11, (2, 9))).shape == (2, 9, 16)


@pytest.mark.parametrize("experts", [FULL, GROUPED])
def test_probes_attach_to_a_decoder_with_experts(experts):
    model, ids = decoder(experts), torch.randint(0, 11, (1, 9))
    seen = attach(model).forward(Inputs(ids))
    torch.testing.assert_close(seen.logits, model(ids))
