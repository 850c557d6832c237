"""`DropInAttention` beside `torch.nn.MultiheadAttention`, and inside PyTorch's encoder and decoder layers."""

import copy
import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from ordinate import Geometry, attend
from ordinate.models.attention_scheme import attention_scheme
from ordinate.models.drop_in_attention import DropInAttention
from ordinate.models.torch_masks import AttentionMask, AttentionSizes
from ordinate.schemes import Alibi, Rope, Scheme
from ordinate.testing import assert_as_close

WIDTH, HEADS, QUERIES, KEYS, BATCH = 12, 3, 4, 5, 2
OPTIONS = {
    "plain": {},
    "batch first": {"batch_first": True},
    "other widths": {"kdim": 5, "vdim": 7},
    "no bias": {"bias": False},
    "zero key": {"add_zero_attn": True},
    "learned key": {"add_bias_kv": True},
    "both keys": {"add_bias_kv": True, "add_zero_attn": True, "bias": False},
}
PADDING = torch.tensor([[0, 0, 0, 1, 1], [0, 1, 0, 0, 0]]).bool()
# True hides; each query sees the first key
HIDDEN = torch.rand(BATCH * HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(0)) > 0.6
HIDDEN[..., 0] = False
NUMBERS = torch.randn(BATCH * HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(1)).double()
ATTN_MASKS = {"none": None, "2-D": HIDDEN[0], "3-D": HIDDEN, "2-D numbers": NUMBERS[0], "3-D numbers": NUMBERS}
ATTN_MASKS["causal"] = torch.ones(QUERIES, KEYS).triu(1).bool()
PADDINGS = {"none": None, "boolean": PADDING, "numbers": NUMBERS[:2, 0]}
PADDINGS["infinities"] = torch.zeros(BATCH, KEYS).double().masked_fill(PADDING, float("-inf"))
SCHEMES = ("rope", "alibi", "t5", "shaw", "rope/none", "cope", "log_length+alibi")
LAYER_MASK = nn.Transformer.generate_square_subsequent_mask(KEYS)


def drawn(module, seed=0):
    """The module with weights that tell positions and biases apart; evaluated, not trained."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4, generator=generator)
    return module.eval()


def pair(dtype=torch.float64, scheme=None, **options):
    """PyTorch's module and ours with its weights."""
    theirs = drawn(nn.MultiheadAttention(WIDTH, HEADS, dtype=dtype, **options))
    ours = DropInAttention(WIDTH, HEADS, dtype=dtype, scheme=scheme, **options).eval()
    ours.load_state_dict(theirs.state_dict(), strict=scheme is None)
    return theirs, ours


def inputs(options, dtype=torch.float64):
    sizes = ((QUERIES, WIDTH), (KEYS, options.get("kdim", WIDTH)), (KEYS, options.get("vdim", WIDTH)))
    first = [(BATCH, n) if options.get("batch_first") else (n, BATCH) for n, _ in sizes]
    return [torch.randn(*shape, width, dtype=dtype) for shape, (_, width) in zip(first, sizes, strict=True)]


@pytest.mark.covering(1)
@pytest.mark.parametrize("weights", ["none", "mean", "heads"])
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mask", ATTN_MASKS)
@pytest.mark.parametrize("options", OPTIONS)
def test_without_a_scheme_it_is_pytorchs_module(options, mask, padding, weights):
    theirs, ours = pair(**OPTIONS[options])
    given = inputs(OPTIONS[options])
    mask, padding = ATTN_MASKS[mask], PADDINGS[padding]
    if mask is not None and padding is not None and mask.dtype != padding.dtype:
        # PyTorch wants both of one type
        mask = (
            torch.zeros(mask.shape).double().masked_fill(mask, float("-inf")) if padding.dtype != torch.bool else mask
        )
        padding = PADDINGS["infinities"] if padding.dtype == torch.bool else padding
    arguments = {"key_padding_mask": padding, "attn_mask": mask, "need_weights": weights != "none"}
    arguments["average_attn_weights"] = weights == "mean"
    y, told = ours(*given, **arguments)
    expected, wanted = theirs(*given, **arguments)
    assert_as_close(y, expected, expected)
    assert (told is None) == (weights == "none")
    if told is not None:
        assert_as_close(told, wanted, wanted)


@pytest.mark.parametrize("options", OPTIONS)
def test_it_has_the_parameters_of_pytorchs_module_bit_for_bit(options):
    made = []
    for kind in (nn.MultiheadAttention, DropInAttention):
        torch.manual_seed(3)
        module = kind(WIDTH, HEADS, 0.1, **OPTIONS[options])
        module._reset_parameters()
        made.append(module.state_dict())
    assert list(made[0]) == list(made[1])
    assert all(torch.equal(one, other) for one, other in zip(made[0].values(), made[1].values(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_as_exact_as_pytorchs_module(dtype):
    theirs, ours = pair(dtype)
    given = inputs({}, dtype)
    exact, _ = pair(torch.float64)[0](*(x.double() for x in given))
    for need_weights in (True, False):
        y, _ = ours(*given, need_weights=need_weights)
        assert_as_close(y, theirs(*given)[0], exact)


def test_inputs_without_batch():
    theirs, ours = pair()
    q, k, v = (x[:, 0] for x in inputs({}))
    for average in (True, False):
        arguments = {"key_padding_mask": PADDING[0], "average_attn_weights": average}
        (y, weights), (expected, wanted) = ours(q, k, v, **arguments), theirs(q, k, v, **arguments)
        assert_as_close(y, expected, expected)
        assert_as_close(weights, wanted, wanted)


def test_gradients_are_pytorchs_also_of_a_learned_mask():
    theirs, ours = pair()
    found = []
    for module in (theirs, ours):
        torch.manual_seed(4)
        given = [x.requires_grad_() for x in inputs({})]
        mask = NUMBERS[0].clone().requires_grad_()
        y, _ = module(*given, attn_mask=mask, need_weights=module is ours)
        found.append(torch.autograd.grad(y.square().sum(), [*given, mask, *module.parameters()]))
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("rows", [slice(None), slice(1, 3)])
def test_a_block_of_an_added_bias_is_that_part_of_it(rows):
    """Gradients of gradients, and long inputs, are computed in blocks."""
    _, ours = pair(scheme="alibi")
    q, k, _ = (x.unflatten(-1, (HEADS, -1)).permute(1, 2, 0, 3) for x in inputs({}))
    mask = AttentionMask.of(NUMBERS[0], PADDING, False, AttentionSizes(BATCH, HEADS, QUERIES, KEYS))
    at = ours._place(q, k, mask, itself=False)
    part = at.block(rows, slice(1, 4)).block(slice(0, 2), slice(1, 3))
    whole = at.bias[:, :, rows][:, :, 0:2, 1:4][..., 1:3]
    assert torch.equal(part.bias, whole)
    assert torch.equal(part.mask, at.mask[:, :, rows][:, :, 0:2, 1:4][..., 1:3])


def test_second_derivatives_with_an_added_bias_are_those_of_the_formula():
    _, ours = pair(scheme="alibi")
    x = torch.randn(KEYS, BATCH, WIDTH).double()
    mask = torch.zeros(KEYS, KEYS).double().masked_fill(torch.ones(KEYS, KEYS).tril(-2).bool(), float("-inf"))
    mask = mask + torch.randn(KEYS, KEYS).double()

    def slope(need_weights):
        leaf = x.clone().requires_grad_()
        y, _ = ours(leaf, leaf, leaf, attn_mask=mask, need_weights=need_weights)
        (first,) = torch.autograd.grad(y.square().sum(), leaf, create_graph=True)
        return torch.autograd.grad(first.square().sum(), leaf)[0]

    torch.testing.assert_close(slope(False), slope(True), rtol=1e-9, atol=1e-9)


def test_a_query_that_sees_no_key_gets_zero():
    """PyTorch returns NaN where it returns weights, and 0 where it does not."""
    theirs, ours = pair()
    x, hidden = torch.randn(QUERIES, BATCH, WIDTH).double(), torch.zeros(QUERIES, QUERIES).bool()
    hidden[2] = True
    for need_weights in (True, False):
        y, weights = ours(x, x, x, attn_mask=hidden, need_weights=need_weights)
        assert torch.equal(y[2], ours.out_proj.bias.expand(BATCH, -1))
        assert weights is None or weights[:, 2].abs().max() == 0
        assert theirs(x, x, x, attn_mask=hidden, need_weights=need_weights)[0][2].isnan().all() == need_weights


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_acts_as_in_attend(scheme):
    module = drawn(DropInAttention(16, 4, batch_first=True, scheme=scheme, dtype=torch.float64))
    x, c = torch.randn(2, 5, 16).double(), torch.randn(2, 7, 16).double()
    hidden = torch.arange(7) >= torch.tensor([[7], [4]])
    for own, where, options in (
        (x, Geometry.full(5), {}),
        (x, Geometry.causal(5), {"is_causal": True}),
        (c, Geometry.cross(5, 7, real=~hidden), {"key_padding_mask": hidden}),
    ):
        q, k, v = (
            nn.functional.linear(y, *part).unflatten(-1, (4, 4)).transpose(1, 2)
            for y, *part in zip(
                (x, own, own), module.in_proj_weight.chunk(3), module.in_proj_bias.chunk(3), strict=True
            )
        )
        expected = module.out_proj(attend(q, k, v, module.scheme.at(where)).transpose(1, 2).flatten(2))
        for need_weights in (True, False):
            y, _ = module(x, own, own, need_weights=need_weights, **options)
            assert torch.allclose(y, expected, atol=1e-12)


def test_a_causal_mask_leaves_the_fast_backends(monkeypatch):
    """It is recognised, as a boolean mask or as numbers, and needs no tensor of queries x keys."""
    module = drawn(DropInAttention(16, 4, batch_first=True, scheme="alibi"))
    x, seen = torch.randn(1, 5, 16), []
    place = module._place
    monkeypatch.setattr(module, "_place", lambda *given: seen.append(place(*given)) or seen[-1])
    for mask, hint in ((LAYER_MASK, False), (LAYER_MASK.bool(), False), (LAYER_MASK, True), (None, True)):
        module(x, x, x, attn_mask=mask, is_causal=hint, need_weights=False)
    assert all(at.where.is_plain_causal and at.where.consecutive for at in seen)


def test_t5_knows_a_causal_mask_by_what_it_hides():
    """Beyond 8 tokens its buckets differ with and without causality."""
    module = drawn(DropInAttention(16, 4, batch_first=True, scheme="t5", dtype=torch.float64))
    x, padding = torch.randn(2, 40, 16).double(), torch.arange(40) >= torch.tensor([[40], [33]])
    causal = torch.ones(40, 40, dtype=torch.bool).triu(1)
    merged = (causal | padding[:, None]).repeat_interleave(4, 0)
    numbers = torch.zeros(merged.shape).double().masked_fill(merged, float("-inf"))
    expected, _ = module(x, x, x, key_padding_mask=padding, is_causal=True)
    for mask in (merged, numbers):
        assert torch.allclose(module(x, x, x, attn_mask=mask)[0], expected, atol=1e-12)
    # what hides some later keys only is not causal
    expected, _ = module(x, x, x, key_padding_mask=padding)
    given = padding[:, None].expand(2, 40, 40).repeat_interleave(4, 0)
    assert torch.allclose(module(x, x, x, attn_mask=given)[0], expected, atol=1e-12)
    # nor is what hides nothing, of a single key, beside which a key of zeros shows the bias
    options = {"batch_first": True, "add_zero_attn": True, "dtype": torch.float64}
    module = drawn(DropInAttention(16, 4, scheme="t5", **options))
    expected, _ = module(x, x[:, :1], x[:, :1])
    assert torch.allclose(module(x, x[:, :1], x[:, :1], attn_mask=torch.zeros(40, 1))[0], expected, atol=1e-12)


def test_cope_which_counts_visible_keys_refuses_masks_that_it_cannot_read():
    module = drawn(DropInAttention(16, 4, batch_first=True, scheme="rope/cope", dtype=torch.float64))
    x = torch.randn(2, 5, 16).double()
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected, _ = module(x, x, x, is_causal=True)
    assert torch.equal(module(x, x, x, attn_mask=later)[0], expected)
    assert torch.equal(module(x[:, :1], x[:, :1], x[:, :1], attn_mask=later[:1, :1])[0], module(*(x[:, :1],) * 3)[0])
    for mask in (later.expand(8, 5, 5), later.triu(2), torch.zeros(5, 5)):
        with pytest.raises(
            ValueError, match=r"counts the keys that a query sees, .*; got one as a tensor; give is_causal="
        ):
            module(x, x, x, attn_mask=mask)


def test_dropout_acts_in_training_only():
    module = drawn(DropInAttention(WIDTH, HEADS, 0.5, scheme="rope"))
    x = torch.randn(QUERIES, 1, WIDTH)
    assert torch.equal(module(x, x, x)[0], module(x, x, x)[0])
    module.train()
    y, weights = module(x, x, x, average_attn_weights=False)
    assert not torch.equal(y, module(x, x, x)[0])
    assert (weights == 0).any()
    # the output is that of the weights returned
    v = nn.functional.linear(x, module.in_proj_weight.chunk(3)[2], module.in_proj_bias.chunk(3)[2])
    out = weights @ v.unflatten(-1, (HEADS, -1)).permute(1, 2, 0, 3)
    torch.testing.assert_close(module.out_proj(out.transpose(1, 2).flatten(2)).transpose(0, 1), y)


def encoder(scheme, layers=2, **options):
    """PyTorch's encoder, and one of layers with our module and its weights."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True, **options)
    theirs = drawn(nn.TransformerEncoder(layer, layers, enable_nested_tensor=not options.get("norm_first", False)))
    ours = copy.deepcopy(theirs)
    for own in ours.layers:
        own.self_attn = DropInAttention.from_torch(own.self_attn, scheme=scheme)
    return theirs, ours


# PyTorch's fast path is taken in evaluation without gradients, for inputs that it supports: without it, and with it
MODES = {
    "train": lambda model: (model.train(), nullcontext())[1],
    "eval": lambda model: (model.eval(), nullcontext())[1],
    "no_grad": lambda model: (model.eval(), torch.no_grad())[1],
    "inference": lambda model: (model.eval(), torch.inference_mode())[1],
    "frozen": lambda model: (model.eval().requires_grad_(False), nullcontext())[1],
}
LAYER_INPUTS = {
    "plain": {},
    "padded": {"src_key_padding_mask": PADDING[:1].expand(2, -1)},
    "causal": {"mask": LAYER_MASK},
    "causal, said": {"mask": LAYER_MASK, "is_causal": True},
    "both": {"mask": LAYER_MASK, "src_key_padding_mask": torch.zeros(2, KEYS).masked_fill(PADDING, float("-inf"))},
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.covering(1)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("given", LAYER_INPUTS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scheme", [None, "rope", "alibi"])
def test_an_encoder_keeps_the_scheme(scheme, mode, given, norm_first):
    theirs, ours = encoder(scheme, norm_first=norm_first)
    x = torch.randn(2, KEYS, 16)
    with MODES[mode](theirs), MODES[mode](ours):
        y, expected = (model(x, **LAYER_INPUTS[given]) for model in (ours, theirs))
    if scheme is None:
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
        return
    assert (y - expected).abs().max() > 1e-2, "the scheme was dropped"
    plain = ours.train()(x, **LAYER_INPUTS[given])
    # PyTorch's encoder sets the output at padding to 0 where it nests the inputs
    padding = LAYER_INPUTS[given].get("src_key_padding_mask", torch.zeros(2, KEYS))
    seen = padding == 0
    torch.testing.assert_close(y[seen], plain[seen], rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_an_encoder_that_nests_padded_inputs_keeps_the_scheme():
    """PyTorch's encoder turns padded inputs into nested ones, if its layers were made with its own attention."""
    theirs, ours = encoder("alibi")
    padding = torch.arange(KEYS) >= torch.tensor([[KEYS], [3]])
    calls = []
    ours.layers[0].self_attn.register_forward_hook(lambda module, given, out: calls.append(given[0].is_nested))
    x = torch.randn(2, KEYS, 16)
    with torch.no_grad():
        y = ours(x, src_key_padding_mask=padding)
        expected = ours.train()(x, src_key_padding_mask=padding)
        assert (y - theirs(x, src_key_padding_mask=padding)).abs().max() > 1e-2
    # the call with a nested tensor makes one with its padded form
    assert calls[:2] == [False, True]
    torch.testing.assert_close(y[~padding], expected[~padding], rtol=1e-4, atol=1e-4)
    assert y[padding].abs().max() == 0


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:enable_nested_tensor is True")
def test_an_encoder_made_of_such_layers_keeps_the_scheme():
    layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, dropout=0.0)
    layer.self_attn = DropInAttention(16, 4, batch_first=True, scheme="rope")
    model, x = drawn(nn.TransformerEncoder(layer, 2)), torch.randn(2, KEYS, 16)
    with torch.no_grad():
        y = model(x, src_key_padding_mask=PADDING)
        torch.testing.assert_close(y, model.train()(x, src_key_padding_mask=PADDING))
    order = torch.tensor([1, 0, 2, 3, 4])
    assert (model(x)[:, order] - model(x[:, order])).abs().max() > 1e-2


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", [torch.strided, pytest.param(torch.jagged, marks=pytest.mark.extended)])
def test_nested_inputs_are_sequences_of_their_own(layout):
    module = drawn(DropInAttention(16, 4, batch_first=True, scheme="alibi"))
    rows = [torch.randn(5, 16), torch.randn(3, 16)]
    x = torch.nested.nested_tensor(rows, layout=layout, requires_grad=True)
    y, weights = module(x, x, x, need_weights=False, is_causal=True)
    assert weights is None
    assert y.layout == layout
    for row, out in zip(rows, y.unbind(), strict=True):
        torch.testing.assert_close(out, module(row, row, row, is_causal=True)[0])
    (y + x).unbind()[1].square().sum().backward()
    assert x.grad.unbind()[1].abs().max() > 0


def test_the_fast_path_that_reads_weights_only_is_refused():
    module = DropInAttention(16, 4, batch_first=True, scheme="rope")
    with pytest.raises(ValueError, match=r"got a call of PyTorch's fast path.*set_fastpath_enabled"):
        module.merge_masks(None, None, torch.randn(1, 5, 16))


def test_a_newer_pytorch_that_did_not_ask_is_stopped():
    """If the layer took its fast path all the same, it would call `merge_masks` first."""
    _, ours = encoder("rope", layers=1)
    vars(ours.layers[0].self_attn)["_qkv_same_embed_dim"] = True
    with torch.no_grad(), pytest.raises(ValueError, match="PyTorch's fast path"):
        ours(torch.randn(2, KEYS, 16))


def test_a_copy_and_a_state_dict_are_the_same_module():
    module = drawn(DropInAttention(WIDTH, HEADS, scheme="t5", kdim=5, vdim=7))
    given = inputs(OPTIONS["other widths"], torch.float32)
    expected, _ = module(*given)
    assert torch.equal(copy.deepcopy(module)(*given)[0], expected)
    other = DropInAttention(WIDTH, HEADS, scheme="t5", kdim=5, vdim=7).eval()
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(*given)[0], expected)


def test_autocast():
    module, x = drawn(DropInAttention(16, 4, scheme="alibi")), torch.randn(5, 2, 16)
    exact, _ = drawn(DropInAttention(16, 4, scheme="alibi", dtype=torch.float64))(*(3 * [x.double()]))
    theirs = drawn(nn.MultiheadAttention(16, 4))
    plain = drawn(nn.MultiheadAttention(16, 4, dtype=torch.float64))
    with torch.autocast("cpu", torch.bfloat16):
        for need_weights in (True, False):
            y, _ = module(x, x, x, need_weights=need_weights)
            assert y.dtype == torch.bfloat16
            allowed = (theirs(x, x, x)[0].double() - plain(*(3 * [x.double()]))[0]).abs().max()
            assert (y.double() - exact).abs().max() < 3 * allowed


def test_transforms_of_torch_func():
    module = drawn(DropInAttention(16, 4, batch_first=True, scheme="rope", dtype=torch.float64))
    x = torch.randn(3, 1, 5, 16).double()
    hidden = torch.zeros(5, 5).bool()
    hidden[1, 2:] = True

    def loss(parameters, one):
        return (
            torch.func.functional_call(module, parameters, (one, one, one), {"attn_mask": hidden})[0].square().sum()
        )

    parameters = dict(module.named_parameters())
    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    (alone,) = torch.autograd.grad(loss(parameters, x[1]), [module.in_proj_weight])
    torch.testing.assert_close(each["in_proj_weight"][1], alone)


@pytest.mark.extended
def test_compiled_and_exported_it_is_the_same():
    program = """
import torch
from ordinate import DropInAttention

x, hidden = torch.randn(2, 33, 16), torch.rand(33, 33) > 0.7
padding = torch.arange(33) >= torch.tensor([[33], [20]])
for scheme, mask, need_weights in (
    ("rope", {"is_causal": True}, False),
    ("alibi", {"key_padding_mask": padding}, True),
    ("t5", {"attn_mask": hidden}, False),
):
    module = DropInAttention(16, 4, batch_first=True, scheme=scheme).eval()
    options = mask | {"need_weights": need_weights}
    expected, _ = module(x, x, x, **options)
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, x, x, **options)[0], expected)
    exported = torch.export.export(module, (x, x, x), options).module()
    torch.testing.assert_close(exported(x, x, x, **options)[0], expected)
"""
    # without the check of types that the other tests run under, as a user has it
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_scheme_is_built_in_the_type_of_the_module():
    module = DropInAttention(16, 4, scheme="t5", dtype=torch.float64)
    assert {parameter.dtype for parameter in module.scheme.parameters()} == {torch.float64}
    with torch.device("meta"):
        assert DropInAttention(16, 4, scheme="t5").in_proj_weight.is_meta


def test_wrong_schemes_are_refused(untyped):
    for scheme, message in (
        ("sinusoidal", "acts inside attention; got Sinusoidal, which adds position embeddings"),
        (Alibi(heads=8), "built for heads 8; got 4"),
        (Rope(head_width=8), "built for head_width 8; got 4"),
        ("rope,none", "must divide the number of layers; got 2 entries for 1 layers"),
        ("ropes", "did you mean 'rope'"),
    ):
        with pytest.raises(ValueError, match=message):
            DropInAttention(16, 4, scheme=scheme)
    with pytest.raises(TypeError, match="must be a name or a Scheme; got int"):
        attention_scheme(3, {"width": 16, "heads": 4, "head_width": 4})
    with pytest.raises(ValueError, match=r"adds a key that has no position.*got add_bias_kv=True with Rope"):
        DropInAttention(16, 4, add_bias_kv=True, scheme="rope")
    with pytest.raises(ValueError, match="Axial takes positions with 2 or 3 axis"):
        DropInAttention(16, 4, scheme="axial")(*(3 * [torch.randn(5, 1, 16)]))


def test_wrong_inputs_are_refused(untyped):
    module, x = DropInAttention(16, 4, batch_first=True), torch.randn(2, 5, 16)
    for given, message in (
        ((x[..., :7], x, x), "query must be 16 columns wide"),
        ((x, x[0], x), "key needs the axes"),
        ((x, x, x[:, :3]), "each key needs one value"),
        ((x, x[:1], x[:1]), "query and key need the same batch size"),
    ):
        with pytest.raises(ValueError, match=message):
            module(*given)
    with pytest.raises(TypeError, match="value must be a tensor"):
        module(x, x, None)
    for options, message in (
        ({"attn_mask": torch.zeros(5, 4)}, r"attn_mask must have the shape \(queries, keys\) = \(5, 5\)"),
        ({"attn_mask": torch.zeros(5, 5).int()}, "attn_mask must be boolean.*got torch.int32"),
        ({"key_padding_mask": torch.zeros(5, 2)}, r"key_padding_mask must have the shape \(batch, keys\) = \(2, 5\)"),
        ({"attn_mask": torch.zeros(5, 5), "is_causal": True}, "says that attn_mask is the causal mask"),
    ):
        with pytest.raises(ValueError, match=message):
            module(x, x, x, **options)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_inputs_that_it_cannot_serve_are_refused():
    module = DropInAttention(16, 4, batch_first=True)
    x = torch.nested.nested_tensor([torch.randn(5, 16), torch.randn(3, 16)])
    other = DropInAttention(16, 4)
    for model, given, options, message in (
        (module, (x, x, x), {}, "got need_weights=True"),
        (module, (x, x, torch.randn(2, 5, 16)), {"need_weights": False}, "need self-attention"),
        (module, (x, x, x), {"need_weights": False, "attn_mask": torch.zeros(5, 5)}, "need no mask"),
        (other, (x, x, x), {"need_weights": False}, "need batch_first=True"),
    ):
        with pytest.raises(ValueError, match=message):
            model(*given, **options)


def test_other_attention_is_not_taken_over():
    class Own(nn.MultiheadAttention):
        pass

    with pytest.raises(TypeError, match=r"needs a torch.nn.MultiheadAttention; got Own"):
        DropInAttention.from_torch(Own(16, 4))
    hooked = nn.MultiheadAttention(16, 4)
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="without its hooks; got 1 forward hooks"):
        DropInAttention.from_torch(hooked)
    assert isinstance(DropInAttention(16, 4).scheme, Scheme)


@pytest.mark.parametrize(
    ("width", "heads", "error", "message"),
    [
        (16, True, TypeError, "num_heads must be a whole number; got True"),
        (16, 2.0, TypeError, "num_heads must be a whole number; got 2.0"),
        (16.0, 2, TypeError, "embed_dim must be a whole number; got 16.0"),
        (16, 0, ValueError, "num_heads must be above zero; got 0"),
        (16, 3, ValueError, "num_heads must divide embed_dim; got 3 and 16"),
    ],
)
def test_sizes_that_are_no_sizes_are_refused(width, heads, error, message):
    with pytest.raises(error, match=message):
        DropInAttention(width, heads)
    with pytest.raises(error, match=message):
        DropInAttention(embed_dim=width, num_heads=heads)
