import pytest
import torch

from ordinate import Cache, Decoder, Encoder, EncoderDecoder, EncoderShape, Shape, VisionTransformer
from ordinate.core import checkpointed
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.vision import VisionShape
from ordinate.study.initial_model import initial_model
from ordinate.study.plan import Plan

SIZES = {"vocabulary": 11, "width": 16, "layers": 3, "heads": 4, "max_length": 64, "dropout": 0.1}


def decoder(**choices):
    return Decoder(Shape(**SIZES | choices)), (torch.randint(0, 11, (2, 17)),)


def encoder(**choices):
    return Encoder(EncoderShape(**SIZES | choices)), (torch.randint(0, 11, (2, 17)),)


def encoder_decoder(**choices):
    shape = EncoderDecoderShape(**SIZES | choices)
    return EncoderDecoder(shape), (torch.randint(0, 11, (2, 9)), torch.randint(0, 11, (2, 17)))


def vision():
    shape = VisionShape(**SIZES | {"scheme": "swin"}, image=(8, 8), patch=(2, 2))
    return VisionTransformer(shape), (torch.rand(2, 3, 8, 8),)


def trained(model, given, held=None, lowered=False):
    """Loss and gradients of a step, and the bytes that are stored for the backward pass."""
    torch.manual_seed(5)
    stores = {}

    def hold(x):
        stores[x.untyped_storage().data_ptr()] = x.untyped_storage()
        return x

    with pytest.MonkeyPatch.context() as patch:
        # what layers share is stored beside their inputs
        patch.setattr(checkpointed, "_same", hold)
        with (
            torch.autograd.graph.saved_tensors_hooks(hold, lambda x: x),
            torch.autocast("cpu", torch.bfloat16, enabled=lowered),
        ):
            loss = model(*given).float().square().sum()
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    held = sum(x.nbytes() for place, x in stores.items() if place not in own)
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, learned, allow_unused=True, materialize_grads=True)
    return [loss.detach(), *gradients], held


def assert_same_but_smaller(model, given, factor, **options):
    usual, stored = trained(model, given, **options)
    model.gradient_checkpointing_enable()
    found, fewer = trained(model, given, **options)
    assert all(one.equal(other) for one, other in zip(found, usual, strict=True))
    assert factor * fewer < stored
    model.gradient_checkpointing_disable()
    assert trained(model, given, **options)[1] == stored


def test_a_decoder_has_the_same_gradients_bit_for_bit_and_stores_less():
    assert_same_but_smaller(*decoder(scheme="t5"), 5)


@pytest.mark.extended
@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize(
    "choices",
    [
        {"scheme": "rope"},
        {"scheme": "alibi"},
        {"scheme": "kerple"},
        {"scheme": "learned", "norm_position": "post"},
        {"scheme": "rope,t5,none", "sliding_windows": (5, 7, None)},
        {"scheme": "deberta", "norm": "layer", "feedforward": "swiglu"},
        {"scheme": "shaw", "norm_position": "parallel"},
        {"scheme": "transformer_xl", "kv_heads": 2},
        {"scheme": "cope", "norm_position": "shared"},
        {"mixer": "linear"},
        {"mixer": "gru", "scheme": "none"},
        {"mixer": "performer", "scheme": "none"},
        {"mixer": "reformer:chunk_length=2,rounds=1,buckets=4"},
        {"mixer": "rwkv6", "scheme": "none"},
    ],
    ids=str,
)
def test_schemes_and_mixers_have_the_same_gradients_bit_for_bit(choices, lowered):
    assert_same_but_smaller(*decoder(**choices), 1.5, lowered=lowered)


@pytest.mark.extended
@pytest.mark.parametrize("made", [encoder, encoder_decoder, vision])
def test_every_kind_of_model_has_it(made):
    assert_same_but_smaller(*made(), 2)


@pytest.mark.extended
def test_all_schemes_of_an_encoder_decoder_are_shared_by_its_layers():
    assert_same_but_smaller(*encoder_decoder(scheme="t5", cross_scheme="t5"), 2)


def test_generation_keeps_its_cache_and_evaluation_computes_once():
    model, (ids,) = decoder()
    model.eval()
    runs = []
    model.blocks[0].register_forward_pre_hook(lambda *given: runs.append(1))
    usual = model(ids).detach()
    model.gradient_checkpointing_enable()
    with torch.no_grad():
        assert model(ids).equal(usual)
        cache = Cache()
        assert torch.allclose(model(ids, cache=cache), usual, atol=1e-5)
    assert len(cache.states) == 3
    assert len(runs) == 3
    model(ids).sum().backward()
    assert len(runs) == 5


def test_reversible_layers_store_nothing_that_it_could_leave_out():
    model, _ = decoder(blocks="reversible")
    with pytest.raises(ValueError, match="gradient checkpointing needs layers that store activations"):
        model.gradient_checkpointing_enable()


def test_a_plan_asks_for_it():
    plan = Plan(width=16, layers=1, heads=2, length=8, schemes=("rope",))
    (run,) = plan.runs()
    for asked in (False, True):
        wanted = plan.model_copy(update={"gradient_checkpointing": asked})
        model = initial_model(wanted, run, Shape(**SIZES | {"layers": 1}))
        assert model.gradient_checkpointing == asked
