"""Models of transformers whose attention is ours: the same numbers as their own."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
from ordinate.core.geometry import Geometry
from ordinate.pretrained import hf
from ordinate.pretrained.hf.mask import StructuredMask
from ordinate.pretrained.verification.theirs import with_cache
from ordinate.testing import assert_as_close

TINY = runpy.run_path(str(Path(__file__).with_name("models.py")))
DECODERS, ENCODERS, BOTH, IMAGES, TWO = (TINY[name] for name in ("DECODERS", "ENCODERS", "BOTH", "IMAGES", "TWO"))
ALL = [*DECODERS, *ENCODERS, *BOTH, *IMAGES, *TWO]
IDS = torch.randint(3, 28, (2, 9), generator=torch.Generator().manual_seed(0))
LEFT, RIGHT = torch.arange(9) >= torch.tensor([[0], [3]]), torch.arange(9) < torch.tensor([[9], [6]])
PIXELS = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def models():
    """Each model, made once."""
    found = {}

    def model(name):
        if name not in found:
            found[name] = TINY["made"](name)
        return found[name].float().eval()

    return model


def inputs(name, real=None):
    if name in IMAGES:
        return {"pixel_values": PIXELS}
    given = {"input_ids": IDS} if real is None else {"input_ids": IDS, "attention_mask": real.long()}
    if name in BOTH:
        given["decoder_input_ids"] = IDS[:, :5].flip(1)
    return given | ({"pixel_values": PIXELS} if name in TWO else {})


def out(model, **given):
    came = model(**given)
    return came.logits if "logits" in came else came.logits_per_text if "logits_per_text" in came else came[0]


def both(model, run):
    """What their plain attention gives, and ours."""
    model.set_attn_implementation("eager")
    expected = run()
    hf.use(model)
    return run(), expected


def near(result, expected, share=2e-5):
    assert result.dtype == expected.dtype
    assert (result - expected).abs().max() <= share * expected.abs().max()


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_outputs_equal_eager_attention(name, models):
    near(*both(models(name), lambda: out(models(name), **inputs(name))))


@pytest.mark.covering(1)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", [*DECODERS, *ENCODERS, *BOTH])
@torch.no_grad()
def test_padding_is_masked(name, side, models):
    real = LEFT if side == "left" else RIGHT
    result, expected = both(models(name), lambda: out(models(name), **inputs(name, real)))
    # the rows of an encoder-decoder are those of its decoder, none of them padding
    chosen = slice(None) if name in BOTH else real
    near(result[chosen], expected[chosen])


@pytest.mark.parametrize("name", ALL)
@torch.no_grad()
def test_16_bit_numbers_are_as_close_as_theirs(name, models):
    model = models(name)
    model.set_attn_implementation("eager")
    exact = out(model, **inputs(name))
    model.to(torch.bfloat16)
    try:
        given = {key: x.bfloat16() if x.is_floating_point() else x for key, x in inputs(name).items()}
        result, plain = both(model, lambda: out(model, **given))
    finally:
        model.float()
    error, other = ((x.float() - exact).abs().max() for x in (result, plain))
    assert error <= 2 * other + 0.02 * exact.abs().max()


@pytest.mark.parametrize("name", [*DECODERS, *BOTH])
@torch.no_grad()
def test_decoding_from_a_cache_gives_the_same(name, models):
    model, key = models(name), "decoder_input_ids" if name in BOTH else "input_ids"

    def run():
        kept, parts, given = None, [], {"input_ids": IDS} if name in BOTH else {}
        for piece in IDS.split([4, 3, 1, 1], 1):
            came, kept = with_cache(model, kept, **given, **{key: piece})
            parts.append(came.logits)
        return torch.cat(parts, 1)

    near(*both(model, run))


@pytest.mark.covering(1)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", [*DECODERS, *BOTH])
def test_generation_gives_the_same_tokens(name, cache, models):
    model, real = models(name), RIGHT if name in BOTH else LEFT
    told = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    told |= {"cache_implementation": cache, "disable_compile": True}
    written, expected = both(model, lambda: model.generate(input_ids=IDS, attention_mask=real.long(), **told))
    assert torch.equal(written, expected)


@pytest.mark.parametrize("name", ALL)
def test_gradients_are_the_same(name, models):
    model = models(name)

    def run():
        model.zero_grad()
        out(model, **inputs(name)).square().sum().backward()
        return {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}

    result, expected = both(model, run)
    assert result.keys() == expected.keys()
    for key, gradient in expected.items():
        largest = max(gradient.abs().max(), 1e-3 * max(x.abs().max() for x in expected.values()))
        assert (result[key] - gradient).abs().max() <= 1e-4 * largest, key


def test_a_learned_bias_gets_its_gradient_from_every_backend(models, monkeypatch):
    from ordinate import attend
    from ordinate.attention.backends import row_blocks
    from ordinate.pretrained.hf.attention import ExplicitBias

    monkeypatch.setattr(row_blocks, "MIN_PAIRS", 0)
    monkeypatch.setattr(row_blocks, "MIN_CAUSAL_PAIRS", 0)
    monkeypatch.setattr(row_blocks, "MIN_OTHER_PAIRS", 0)
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 70, 8) for _ in range(3))
    first = torch.randn(1, 2, 70, 70, requires_grad=True)
    found = {}
    for backend in ("reference", "sdpa", "row_blocks"):
        at = ExplicitBias(2 * first, 0).at(Geometry.causal(70))
        (found[backend],) = torch.autograd.grad(attend(q, k, v, at, backend=backend).square().sum(), first)
    assert found["reference"].abs().max() > 1e-3
    for backend in ("sdpa", "row_blocks"):
        near(found[backend], found["reference"])


def test_dropout_is_applied(models):
    model = models("gpt2")
    hf.use(model)
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    with torch.no_grad():
        quiet = out(model, input_ids=IDS)
        for block in model.transformer.h:
            block.attn.attn_dropout.p = 0.5
        loud = out(model, input_ids=IDS)
    assert (loud - quiet).abs().max() > 0.01
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.1
    model.eval()


@torch.no_grad()
def test_without_the_mask_function_a_causal_model_attends_to_future_tokens(models):
    import transformers
    from transformers.masking_utils import AttentionMaskInterface

    model = models("llama")
    later = IDS.clone()
    later[:, -1] = 3 + (later[:, -1] - 2) % 25
    hf.use(model)
    assert torch.equal(out(model, input_ids=later)[:, :-1], out(model, input_ids=IDS)[:, :-1])

    # as someone would write it who registers the one half
    def alone(module, query, key, value, mask, **others):
        k, v = (x.repeat_interleave(2, 1) for x in (key, value))
        return torch.nn.functional.scaled_dot_product_attention(query, k, v, mask).transpose(1, 2), None

    transformers.AttentionInterface.register("alone", alone)
    try:
        model.set_attn_implementation("alone")
        assert "alone" not in AttentionMaskInterface._global_mapping
        assert (out(model, input_ids=later) - out(model, input_ids=IDS))[:, :-1].abs().max() > 1e-3
    finally:
        del transformers.AttentionInterface._global_mapping["alone"]
        model.set_attn_implementation("eager")


def masks(name, **given):
    """The masks that the layers of a model are handed."""
    found = []
    model = TINY["made"](name)
    hf.use(model)
    for module in model.modules():
        if hasattr(module, "is_causal") and type(module).__name__.endswith("Attention"):
            module.register_forward_pre_hook(
                lambda _, args, kwargs: found.append(kwargs.get("attention_mask")), with_kwargs=True
            )
    with torch.no_grad():
        model(input_ids=IDS, **given)
    return found


def test_masks_are_structured_and_never_dense():
    plain = masks("llama")[0]
    assert isinstance(plain, StructuredMask)
    assert plain.at.where.is_plain_causal
    assert masks("mistral")[0].at.where.window == 4
    assert [mask.at.where.window for mask in masks("gemma2")] == [4, None]
    padded = masks("llama", attention_mask=LEFT.long())[0].at.where
    assert padded.k_document.tolist()[1] == [-1] * 3 + [0] * 6
    assert masks("llama", attention_mask=torch.ones(2, 9).long())[0].at.where.is_plain_causal
    ids = torch.tensor([[0, 1, 2, 3, 0, 1, 0, 1, 2]]).expand(2, -1)
    packed = masks("llama", position_ids=ids, use_cache=False)[0].at.where
    assert packed.k_document.tolist()[0] == [0] * 4 + [1] * 2 + [2] * 3


@pytest.mark.parametrize("name", ["llama", "mistral"])
@torch.no_grad()
def test_packed_sequences_do_not_attend_to_each_other(name, models):
    ids = torch.tensor([[0, 1, 2, 3, 0, 1, 0, 1, 2]]).expand(2, -1)
    model = models(name)
    near(*both(model, lambda: out(model, input_ids=IDS, position_ids=ids, use_cache=False)))


@torch.no_grad()
def test_user_masks_are_used_as_dense_masks(models):
    model = models("llama")
    seen = torch.rand(2, 1, 9, 9, generator=torch.Generator().manual_seed(0)) > 0.5
    seen |= torch.eye(9, dtype=torch.bool)
    added = torch.where(seen, 0.0, torch.finfo(torch.float32).min)
    model.set_attn_implementation("eager")
    expected = out(model, input_ids=IDS, attention_mask=added)
    hf.use(model)
    near(out(model, input_ids=IDS, attention_mask=added), expected)
    near(out(model, input_ids=IDS, attention_mask=seen), expected)


def test_a_user_mask_function_gives_a_dense_mask(models):
    from transformers.masking_utils import create_causal_mask

    model = models("llama")
    hf.use(model)
    # the fourth argument is the cache, whose name depends on the version
    mask = create_causal_mask(
        model.config, torch.zeros(2, 9, 32), None, None, None, and_mask_function=lambda b, h, q, k: (q - k) % 2 == 0
    )
    assert not isinstance(mask, StructuredMask)
    place = torch.arange(9)
    behind = place[:, None] - place
    assert torch.equal(mask[0, 0], (behind >= 0) & (behind % 2 == 0))


def test_a_structured_mask_has_no_values():
    mask = StructuredMask.of(Geometry.causal(3), 2, 3)
    assert (mask.shape, mask.ndim, mask.dtype, mask.device.type) == ((2, 1, 3, 3), 4, torch.bool, "cpu")
    for same in (mask.to("cpu"), mask.to(torch.device("cpu"), non_blocking=True), mask.to(device="cpu")):
        assert same is mask
    for ask in (
        lambda: mask[:, :, :2],
        lambda: ~mask,
        lambda: mask + 1.0,
        lambda: torch.zeros(3, 3) + mask,
        lambda: mask.to(torch.float32),
        lambda: mask.to(dtype=torch.float32),
        lambda: mask.to("cpu", torch.float32),
    ):
        with pytest.raises(
            ValueError,
            match=r"structured and hold no values; this model calls .*; use attn_implementation='sdpa' or 'eager'",
        ):
            ask()


def test_unsupported_requests_are_refused(models):
    import transformers

    model = models("llama")
    hf.use(model)
    layer = model.model.layers[0].self_attn
    q = torch.randn(1, 4, 5, 8)
    with pytest.raises(
        ValueError, match=r"attention weights are not materialised; .*model.set_attn_implementation\('eager'"
    ):
        hf.attention.attention_forward(layer, q, q, q, None, output_attentions=True)
    # a config may say so before the switch; transformers would then return no weights, without an error
    asking = torch.nn.Module()
    asking.config = transformers.LlamaConfig(output_attentions=True)
    with pytest.raises(ValueError, match="attention weights are not materialised; got output_attentions=True"):
        hf.attention.attention_forward(asking, q, q, q, None)
    with pytest.raises(
        ValueError, match="every keyword argument of the attention function must be supported; got indices, which"
    ):
        hf.attention.attention_forward(layer, q, q, q, None, indices=torch.zeros(1))
    with pytest.raises(
        ValueError, match="match the number of queries and keys of the layer; got 3 and 3 for 5 and 5"
    ):
        hf.attention.attention_forward(layer, q, q, q, StructuredMask.of(Geometry.causal(3), 1, 3))
    with pytest.raises(ValueError, match="as many keys as queries; got 3 queries, 5 keys"):
        hf.attention.attention_forward(layer, q[:, :, :3], q, q, None)
    with pytest.raises(ValueError, match="a layer with a sliding window needs a mask; got none for 5 keys"):
        hf.attention.attention_forward(layer, q, q, q, None, sliding_window=4)
    bloom = transformers.AutoModelForCausalLM.from_config(
        transformers.BloomConfig(hidden_size=8, n_layer=1, n_head=2)
    )
    with pytest.raises(
        ValueError, match="use the attention interface of transformers; BloomForCausalLM has its own attention code"
    ):
        hf.use(bloom)
    with pytest.raises(TypeError, match="must be a transformers PreTrainedModel; got Linear"):
        hf.use(torch.nn.Linear(1, 1))


def test_a_layer_called_alone_follows_its_is_causal(models):
    layer = models("llama").model.layers[0].self_attn
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)
    plain = torch.nn.functional.scaled_dot_product_attention
    for causal in (True, False):
        given = {} if causal else {"is_causal": False}
        came, weights = hf.attention.attention_forward(layer, q, k, v, None, **given)
        assert weights is None
        assert_as_close(
            came.transpose(1, 2),
            plain(q, k, v, is_causal=causal, enable_gqa=True),
            plain(*(x.double() for x in (q, k, v)), is_causal=causal, enable_gqa=True),
        )


COMPILED = """
import torch, transformers
from ordinate.pretrained import hf
sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(vocab_size=29, **sizes)).eval()
hf.use(model)
ids, mask = torch.arange(18).reshape(2, 9), torch.ones(2, 9).long()
mask[1, :3] = 0
with torch.no_grad():
    given = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    ours, compiled = model(**given).logits, torch.compile(model, backend="eager")(**given).logits
assert (ours - compiled)[mask.bool()].abs().max() < 1e-5
"""


@pytest.mark.extended
def test_a_compiled_model_gives_the_same():
    # in a process of its own: the checks of types in these tests cannot be compiled
    subprocess.run([sys.executable, "-c", COMPILED], check=True)
