"""Bugs of current releases of other packages: our result is exact, and their error is measured."""

import pytest
import torch
from torch import nn

from ordinate import Cache, Decoder, Geometry, Shape
from ordinate.pretrained.verification.theirs import with_cache
from ordinate.schemes import Alibi, Rope, Sinusoidal
from ordinate.schemes.grid import Grid
from ordinate.schemes.xpos import Xpos

FAMILIES = "transformers.models"


def family(name):
    return pytest.importorskip(f"{FAMILIES}.{name}.modeling_{name}")


def configured(name, kind, **options):
    return getattr(pytest.importorskip(f"{FAMILIES}.{name}.configuration_{name}"), kind)(**options)


def exact(x, pos, layout, theta=10_000.0):
    """A rotation in float64."""
    rates = torch.tensor([theta ** (-2 * m / x.shape[-1]) for m in range(x.shape[-1] // 2)], dtype=torch.float64)
    cos, sin = (pos.double() * rates).cos(), (pos.double() * rates).sin()
    x = x.double()
    a, b = x.chunk(2, -1) if layout == "half" else (x[..., 0::2], x[..., 1::2])
    turned = a * cos - b * sin, b * cos + a * sin
    return torch.cat(turned, -1) if layout == "half" else torch.stack(turned, -1).flatten(-2)


def refusal(call, *arguments):
    """The exception that a call raises, or its result."""
    try:
        return call(*arguments)
    except Exception as error:  # any error of theirs is the finding
        return error


def test_bfloat16_rotation_uses_exact_positions(record_error):
    ret = pytest.importorskip("rotary_embedding_torch")
    q, pos = torch.randn(1, 2, 2048, 64).bfloat16(), torch.arange(2048)[None, :, None]
    theirs = ret.RotaryEmbedding(64)
    record_error(
        (Rope(head_width=64, layout="interleaved").encode_query(q, pos), exact(q, pos, "interleaved")),
        (theirs.rotate_queries_or_keys(q), exact(q, pos, "interleaved")),
        scheme="rope:layout=interleaved",
        oracle=theirs.rotate_queries_or_keys,
        what="2048 queries in bfloat16",
        within=4e-3,
    )


def test_float32_rotation_is_exact_after_a_bfloat16_one(record_error):
    ret = pytest.importorskip("rotary_embedding_torch")
    q, pos = torch.randn(1, 2, 2048, 64), torch.arange(2048)[None, :, None]
    theirs, ours = ret.RotaryEmbedding(64), Rope(head_width=64, layout="interleaved")
    ours.encode_query(q.bfloat16(), pos)
    theirs.rotate_queries_or_keys(q.bfloat16())
    record_error(
        (ours.encode_query(q, pos), exact(q, pos, "interleaved")),
        (theirs.rotate_queries_or_keys(q), exact(q, pos, "interleaved")),
        scheme="rope:layout=interleaved",
        oracle=theirs.rotate_queries_or_keys,
        what="queries in float32, after others in bfloat16",
    )


@pytest.mark.parametrize("tokens", [64, 512, 2048])
def test_xpos_decoding_with_cached_keys_equals_the_full_pass(tokens, record_error):
    ret = pytest.importorskip("rotary_embedding_torch")
    q, k = torch.randn(2, 1, 2, tokens, 32).double()
    theirs = ret.RotaryEmbedding(32, use_xpos=True, cache_if_possible=False).double()
    ours, where = Xpos(head_width=32, layout="interleaved"), Geometry.causal(1, cached=tokens - 1)
    whole = ours.at(Geometry.causal(tokens)).encode(q, k).pair, theirs.rotate_queries_and_keys(q, k)
    mine, other = (queries[:, :, -1:] @ keys.mT for queries, keys in whole)
    query, keys = theirs.rotate_queries_with_cached_keys(q[:, :, -1:], k)
    record_error(
        (ours.encode_query(q[:, :, -1:], where.q_pos) @ ours.encode_key(k, where.k_pos).mT, mine),
        (query @ keys.mT, other),
        scheme="xpos:layout=interleaved",
        oracle=theirs.rotate_queries_with_cached_keys,
        what=f"scores of the newest of {tokens} tokens with the cached keys",
    )


def test_a_model_cast_to_bfloat16_keeps_its_rates(record_error):
    llama = family("llama")
    config = configured("llama", "LlamaConfig", hidden_size=64, num_attention_heads=2)
    q, pos = torch.randn(1, 2, 4096, 32), torch.arange(4096)[None, :, None]
    cos, sin = llama.LlamaRotaryEmbedding(config).bfloat16()(q, pos[..., 0])
    theirs, _ = llama.apply_rotary_pos_emb(q, q, cos, sin)
    record_error(
        (Rope(head_width=32).bfloat16().encode_query(q, pos), exact(q, pos, "half")),
        (theirs, exact(q, pos, "half")),
        scheme="rope",
        oracle=llama.LlamaRotaryEmbedding,
        what="4096 queries, after `.bfloat16()` of the module",
    )


def test_a_module_cast_to_bfloat16_keeps_its_rates(record_error):
    xt = pytest.importorskip("x_transformers.x_transformers")
    q, pos = torch.randn(1, 2, 4096, 32), torch.arange(4096)[None, :, None]
    freqs, _ = xt.RotaryEmbedding(32).bfloat16()(pos[0, :, 0])
    record_error(
        (Rope(head_width=32, layout="interleaved").bfloat16().encode_query(q, pos), exact(q, pos, "interleaved")),
        (xt.apply_rotary_pos_emb(q, freqs), exact(q, pos, "interleaved")),
        scheme="rope:layout=interleaved",
        oracle=xt.RotaryEmbedding,
        what="4096 queries, after `.bfloat16()` of the module",
    )


@pytest.mark.parametrize("start", [2**20, 2**24])
def test_rotation_is_exact_at_large_positions(start, record_error):
    llama = family("llama")
    config = configured("llama", "LlamaConfig", hidden_size=64, num_attention_heads=2)
    q, pos = torch.randn(1, 2, 50, 32), torch.arange(start, start + 50)[None, :, None]
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, pos[..., 0])
    theirs, _ = llama.apply_rotary_pos_emb(q, q, cos, sin)
    record_error(
        (Rope(head_width=32).encode_query(q, pos), exact(q, pos, "half")),
        (theirs, exact(q, pos, "half")),
        scheme="rope",
        oracle=llama.apply_rotary_pos_emb,
        what=f"queries from position {start} on",
    )


def table(width, rows, dtype=torch.float32):
    """The sinusoids of the paper in float64, and a scheme that adds them to zeros of a dtype."""
    pos = torch.arange(rows)[None, :, None]
    m = torch.arange(width // 2, dtype=torch.float64)
    angles = pos[0] * 10_000.0 ** (-2 * m / width)
    waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[None]
    return waves, Sinusoidal(width=width).to(dtype).embed(torch.zeros(1, rows, width, dtype=dtype), pos)


def test_sinusoids_in_half_precision_are_rounded_once(record_error):
    pe = pytest.importorskip("positional_encodings.torch_encodings")
    right, ours = table(64, 5000, torch.float16)
    theirs = pe.PositionalEncoding1D(64).half()(torch.zeros(1, 5000, 64).half())
    record_error(
        (ours, right),
        (theirs, right),
        scheme="sinusoidal",
        oracle=pe.PositionalEncoding1D,
        what="table of 5000 rows, after `.half()` of the module",
        within=5e-4,
    )


def test_float32_sinusoids_are_exact_after_float16_ones(record_error):
    pe = pytest.importorskip("positional_encodings.torch_encodings")
    theirs = pe.PositionalEncoding1D(64)
    theirs(torch.zeros(1, 500, 64).half())
    table(64, 500, torch.float16)
    right, ours = table(64, 500)
    record_error(
        (ours, right),
        (theirs(torch.zeros(1, 500, 64)), right),
        scheme="sinusoidal",
        oracle=pe.PositionalEncoding1D,
        what="table in float32, after one in float16",
    )


def test_every_axis_of_a_narrow_grid_is_encoded(record_error):
    pe = pytest.importorskip("positional_encodings.torch_encodings")
    where = Geometry.grid(2, 3, 4)
    ours = Grid(width=8).embed(torch.zeros(1, 24, 8), where.q_pos)
    # two columns for each axis: sine and cosine of its coordinate
    right = torch.stack([wave(where.q_pos.double()) for wave in (torch.sin, torch.cos)], -1).flatten(-2)
    theirs = pe.PositionalEncoding3D(8)(torch.zeros(1, 2, 3, 4, 8))[0]
    moved = (theirs - theirs[:, :, :1]).abs().max().item()
    record_error(
        (ours[..., :6], right),
        "ignores the third axis" if moved == 0 else "sees it",
        scheme="grid",
        oracle=pe.PositionalEncoding3D,
        what="table of 3 axes and 8 columns",
    )


def test_modifying_a_result_in_place_does_not_change_the_next(record_error):
    pe = pytest.importorskip("positional_encodings.torch_encodings")
    theirs = pe.PositionalEncoding1D(64)
    right, ours = table(64, 50)
    ours += 100
    got = theirs(torch.zeros(1, 50, 64))
    got += 100
    record_error(
        (table(64, 50)[1], right),
        (theirs(torch.zeros(1, 50, 64)), right),
        scheme="sinusoidal",
        oracle=pe.PositionalEncoding1D,
        what="table, after an earlier result was modified in place",
    )


def test_an_odd_width_has_the_sinusoids_of_the_paper(record_error):
    pe, xt = (pytest.importorskip(f"{name}") for name in ("positional_encodings.torch_encodings", "x_transformers"))
    x, pos = torch.zeros(1, 50, 7), torch.arange(50)[None, :, None]
    columns = [
        (torch.cos if c % 2 else torch.sin)(torch.arange(50).double() * 10_000 ** (-(c // 2) * 2 / 7))
        for c in range(7)
    ]
    right, ours = torch.stack(columns, -1)[None], Sinusoidal(width=7).embed(x, pos)
    kind = xt.x_transformers.ScaledSinusoidalEmbedding
    answers = (pe.PositionalEncoding1D, (pe.PositionalEncoding1D(7)(x), right)), (kind, refusal(kind, 7))
    for oracle, theirs in answers:
        record_error((ours, right), theirs, scheme="sinusoidal", oracle=oracle, what="table of the paper at width 7")


def test_left_padding_works_with_scaled_sinusoids(record_error):
    xt = pytest.importorskip("x_transformers.x_transformers")
    real = torch.ones(2, 20, dtype=torch.bool)
    real[1, :6] = False
    where, x = Geometry.padded(real), torch.zeros(2, 20, 32)
    ours, alone = Sinusoidal(width=32).embed(x, where.q_pos)[1, 6:], table(32, 14)[0][0]
    kind = xt.ScaledSinusoidalEmbedding
    theirs = refusal(lambda: kind(32)(x, seq_start_pos=torch.tensor([0, 6])))
    record_error((ours, alone), theirs, scheme="sinusoidal", oracle=kind, what="table, left padding by 6")


@pytest.mark.parametrize("heads", [12])
def test_slopes_keep_full_precision(heads, record_error):
    falcon = family("falcon")
    theirs = falcon.build_alibi_tensor(torch.ones(1, 2, dtype=torch.long), heads, torch.float32)[:, 0, 1]
    slopes = [2.0**-h for h in range(1, 9)] + [2.0 ** (-h / 2) for h in (1, 3, 5, 7)]
    record_error(
        (-Alibi(heads=heads).bias(Geometry.causal(2))[0, :, 1, 0], torch.tensor(slopes, dtype=torch.float64)),
        (theirs, torch.tensor(slopes, dtype=torch.float64)),
        scheme="alibi",
        oracle=falcon.build_alibi_tensor,
        what="slopes of 12 heads",
    )


LONG = {"short_factor": [1.0] * 8, "long_factor": [2.0 + m for m in range(8)]}
GROWING = {
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "longrope": {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 16, **LONG},
}
STAGES = ",".join(
    f"spectrum.{name}_factor={';'.join(map(str, LONG[f'{name}_factor']))}" for name in ("short", "long")
)
OURS = {
    "dynamic": "rope:spectrum=dynamic,spectrum.factor=2,spectrum.trained_length=16",
    "longrope": f"rope:spectrum=longrope,spectrum.factor=4,spectrum.trained_length=16,{STAGES}",
}


def tiny_llama(name):
    """A random Llama whose configuration gives a training length of 16 tokens."""
    config = configured(
        "llama",
        "LlamaConfig",
        vocab_size=50,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=2,
        initializer_range=0.3,
        max_position_embeddings=64 if name == "longrope" else 16,
        rope_parameters={"rope_theta": 10_000.0, **GROWING[name]},
    )
    return family("llama").LlamaForCausalLM(config).double().eval()


def tiny_decoder(name):
    """Our model of the same size, with weights of the same scale."""
    model = Decoder(Shape(vocabulary=50, width=32, layers=2, heads=2, scheme=OURS[name]))
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


@pytest.mark.extended
@pytest.mark.covering(0)
@pytest.mark.parametrize("name", GROWING)
def test_decoding_beyond_the_trained_length_equals_the_full_pass(name, record_error):
    ids, theirs, ours = torch.randint(50, (1, 40)), tiny_llama(name), tiny_decoder(name)
    with torch.no_grad():
        full, steps, cache = theirs(ids).logits, [], None
        for at in range(40):
            out, cache = with_cache(theirs, cache, input_ids=ids[:, at : at + 1])
            steps.append(out.logits)
        mine, memory = ours(ids), Cache()
        decoded = torch.cat([ours(ids[:, at : at + 1], cache=memory) for at in range(40)], 1)
    record_error(
        (decoded[:, 16:], mine[:, 16:]),
        (torch.cat(steps, 1)[:, 16:], full[:, 16:]),
        scheme=f"rope:spectrum={name}",
        oracle=type(theirs),
        what="logits, decoded with a cache, beyond the trained length",
    )


@pytest.mark.parametrize("name", GROWING)
def test_rows_of_a_batch_are_independent(name, record_error):
    theirs, ours = tiny_llama(name), tiny_decoder(name)
    ids, real = torch.randint(50, (2, 40)), torch.ones(2, 40, dtype=torch.bool)
    real[1, 10:] = False
    with torch.no_grad():
        alone, mine = theirs(ids[1:, :10]).logits, ours(ids[1:, :10])
        beside = theirs(ids, attention_mask=real.long()).logits[1:, :10]
        own = ours(ids, Geometry.padded(real))[1:, :10]
    record_error(
        (own, mine),
        (beside, alone),
        scheme=f"rope:spectrum={name}",
        oracle=type(theirs),
        what="logits of a row of 10 tokens batched with one of 40",
    )


def test_left_padding_changes_nothing_with_a_learned_table(record_error):
    gpt2 = family("gpt2")
    sizes = {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "initializer_range": 0.3}
    theirs = gpt2.GPT2LMHeadModel(configured("gpt2", "GPT2Config", **sizes)).double().eval()
    ours = Decoder(Shape(vocabulary=50, width=32, layers=2, heads=2, scheme="learned")).double().eval()
    for parameter in ours.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.3)
    ids, real = torch.randint(50, (1, 20)), torch.ones(1, 20, dtype=torch.bool)
    real[0, :6] = False
    with torch.no_grad():
        alone, mine = theirs(ids[:, 6:]).logits, ours(ids[:, 6:])
        beside = theirs(ids, attention_mask=real.long()).logits[:, 6:]
        own = ours(ids, Geometry.padded(real))[:, 6:]
    record_error(
        (own, mine),
        (beside, alone),
        scheme="learned",
        oracle=type(theirs),
        what="logits, left padding by 6",
    )


def test_yarn_without_truncation_is_applied(record_error):
    gemma = pytest.importorskip("transformers.models.gemma3.configuration_gemma3")
    compute = pytest.importorskip("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS["yarn"]
    numbers = {"factor": 4.0, "original_max_position_embeddings": 512, "truncate": False}
    yarn = {"rope_type": "yarn", "rope_theta": 10_000.0, **numbers}
    plain = {"rope_type": "default", "rope_theta": 10_000.0}
    config = gemma.Gemma3TextConfig(
        hidden_size=64,
        num_attention_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        rope_parameters={"full_attention": yarn, "sliding_attention": plain},
    )
    theirs, _ = compute(config, "cpu", layer_type="full_attention")
    llama = configured("llama", "LlamaConfig", head_dim=32, max_position_embeddings=2048, rope_parameters=dict(yarn))
    right, _ = compute(llama, "cpu")
    rates = torch.tensor([10_000 ** (-2 * m / 32) for m in range(16)], dtype=torch.float64)
    ours = Rope.from_rope_parameters(config.rope_parameters["full_attention"], head_width=32).spectrum.rates(
        32, 10_000.0
    )
    record_error(
        (torch.tensor(ours, dtype=torch.float64) / rates, right / rates),
        (theirs / rates, right / rates),
        scheme="rope:spectrum=yarn,spectrum.truncate=False",
        oracle=compute,
        what="rates of one type of layer, of a model with several",
        within=2e-6,
    )
