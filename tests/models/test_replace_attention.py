"""`replace_attention` in PyTorch's encoders, decoders and whole transformers."""

import copy

import pytest
import torch
from torch import nn

from ordinate.models._replace_attention import replace_attention
from ordinate.models.drop_in_attention import DropInAttention
from ordinate.schemes import T5, Cope, Rope

WIDTH, HEADS, SOURCE, TARGET = 16, 4, 7, 5
CAUSAL = nn.Transformer.generate_square_subsequent_mask(TARGET)
PADDING = torch.arange(SOURCE) >= torch.tensor([[SOURCE], [4]])


def transformer(**options):
    """PyTorch's encoder-decoder with weights that tell positions apart; evaluated, not trained."""
    options = {"dropout": 0.0, "batch_first": True} | options
    model = nn.Transformer(WIDTH, HEADS, 2, 2, 24, **options)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.eval()


def run(model, source, target):
    masks = {"tgt_mask": CAUSAL, "src_key_padding_mask": PADDING, "memory_key_padding_mask": PADDING}
    return model(source, target, **masks)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.covering(1)
@pytest.mark.parametrize("cross_attention", [False, True])
@pytest.mark.parametrize("scheme", [None, "rope", "t5"])
def test_a_transformer_of_pytorch_gets_the_scheme(scheme, cross_attention):
    theirs = transformer()
    ours = copy.deepcopy(theirs)
    names = replace_attention(ours, scheme=scheme, cross_attention=cross_attention)
    assert len(names) == (6 if cross_attention else 4)
    assert ("decoder.layers.1.multihead_attn" in names) == cross_attention
    source, target = torch.randn(2, SOURCE, WIDTH), torch.randn(2, TARGET, WIDTH)
    if scheme == "t5":
        # initialised to zero it would change nothing
        nn.init.normal_(ours.encoder.layers[0].self_attn.scheme.table, std=1.0)
    for grad in (torch.enable_grad, torch.no_grad):
        with grad():
            y, expected = run(ours, source, target), run(theirs, source, target)
        if scheme is None:
            torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
        else:
            assert (y - expected).abs().max() > 1e-3


def test_parameters_are_the_very_same_so_that_an_optimizer_keeps_working():
    model = transformer()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = {name: parameter for name, parameter in model.named_parameters()}
    replace_attention(model, scheme="alibi")
    assert all(parameter is before[name] for name, parameter in model.named_parameters())
    weight = model.encoder.layers[0].self_attn.in_proj_weight
    kept = weight.detach().clone()
    model(torch.randn(2, 3, WIDTH), torch.randn(2, 3, WIDTH)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(weight, kept)
    assert not model.encoder.layers[0].self_attn.training


def test_layers_share_a_scheme_that_serves_all_and_have_their_own_otherwise():
    shared, own = transformer(), transformer()
    replace_attention(shared, scheme="t5")
    replace_attention(own, scheme="cope")
    schemes = [{id(layer.self_attn.scheme) for layer in model.encoder.layers} for model in (shared, own)]
    assert [len(found) for found in schemes] == [1, 2]
    # a scheme can be replaced by another
    replace_attention(shared.encoder, scheme=Rope(head_width=WIDTH // HEADS))
    assert type(shared.encoder.layers[1].self_attn.scheme) is Rope
    assert type(shared.decoder.layers[1].self_attn.scheme) is T5


def test_a_module_that_stands_in_two_places_stays_one():
    model = nn.Module()
    model.first = model.second = nn.MultiheadAttention(WIDTH, HEADS)
    model.again = model.inner = nn.ModuleList([nn.MultiheadAttention(WIDTH, HEADS)])
    replace_attention(model, scheme="rope")
    assert model.first is model.second
    assert type(model.inner[0]) is type(model.first) is DropInAttention


def test_what_cannot_be_replaced_is_refused_and_left_as_it_was(untyped):
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module; got str"):
        replace_attention("model", scheme="rope")
    with pytest.raises(ValueError, match=r"got MultiheadAttention itself; call DropInAttention.from_torch"):
        replace_attention(nn.MultiheadAttention(WIDTH, HEADS), scheme="rope")
    with pytest.raises(ValueError, match="got a Linear without one"):
        replace_attention(nn.Linear(2, 2), scheme="rope")
    model = transformer()
    with pytest.raises(ValueError, match="needs an instance for each layer; got one Cope for 4 layers"):
        replace_attention(model, scheme=Cope(head_width=WIDTH // HEADS))
    model.decoder.layers[1].self_attn.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="without its hooks"):
        replace_attention(model, scheme="rope")
    assert not any(isinstance(module, DropInAttention) for module in model.modules())
