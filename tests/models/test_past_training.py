"""Length-dependent RoPE frequencies: incremental decoding and batching do not change results."""

import pytest
import torch

from ordinate import Cache, Decoder, Geometry, Shape, attend
from ordinate.pretrained.verification.theirs import with_cache
from ordinate.schemes import Rope

TRAINED = 16
SPECTRA = {
    "dynamic": {"trained_length": TRAINED, "factor": 4.0},
    "power_of_two": {"name": "dynamic", "trained_length": TRAINED, "form": "power_of_two"},
    "qwen": {"name": "dynamic", "trained_length": TRAINED, "form": "qwen"},
    "longrope": {"short_factor": "1;1.1;1.2;1.3", "long_factor": "1;2;4;8", "trained_length": TRAINED, "factor": 4.0},
}
# the same two for transformers, which takes the dynamic one's trained length from max_position_embeddings
PARAMETERS = {
    "dynamic": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0},
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [1.0, 2.0, 4.0, 8.0],
        "factor": 4.0,
        "original_max_position_embeddings": TRAINED,
        "rope_theta": 10_000.0,
    },
}


def build(name, **choices):
    """A decoder with heads of 8 channels and large weights, so that a wrong angle is detected."""
    options = {"name": name} | SPECTRA[name]
    line = f"rope:spectrum={options.pop('name')}," + ",".join(f"spectrum.{key}={x}" for key, x in options.items())
    model = Decoder(Shape(vocabulary=11, width=32, layers=2, heads=4, scheme=line, **choices)).double().eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(10)
    return model


def ids(*shape):
    return torch.randint(0, 11, shape)


@pytest.mark.covering(1)
@pytest.mark.parametrize("kv_heads", [2, 4])
@pytest.mark.parametrize("pieces", [[1] * 48, [15, 1, 1, 31], [40, 8], [16, 0, 32], [17, 31], [3] * 16])
@pytest.mark.parametrize("name", SPECTRA)
@torch.no_grad()
def test_a_text_past_the_trained_length_is_the_same_piece_by_piece_and_at_once(name, pieces, kv_heads):
    model, text, cache, out = build(name, kv_heads=kv_heads), ids(2, 48), Cache(), []
    for piece in text.split(pieces, 1):
        out.append(model(piece, cache=cache))
    whole = model(text)
    assert (torch.cat(out, 1) - whole).abs().max() < 1e-10 * whole.abs().max()


@pytest.mark.parametrize("name", SPECTRA)
@torch.no_grad()
def test_outputs_do_not_depend_on_later_tokens(name):
    model, text = build(name), ids(1, 48)
    whole = model(text)
    for length in (15, 16, 17, 30):
        assert (model(text[:, :length]) - whole[:, :length]).abs().max() < 1e-10 * whole.abs().max()


@pytest.mark.covering(1)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", SPECTRA)
@torch.no_grad()
def test_rows_of_other_lengths_change_no_row(name, side):
    model, lengths = build(name), [45, 3, 15, 17]
    texts, more = [ids(1, length) for length in lengths], ids(4, 6)
    batch, real = torch.zeros(4, 45, dtype=torch.long), torch.zeros(4, 45, dtype=torch.bool)
    for row, text in enumerate(texts):
        place = slice(45 - lengths[row], 45) if side == "left" else slice(0, lengths[row])
        batch[row, place], real[row, place] = text[0], True
    cache = Cache()
    read = [model(batch, Geometry.padded(real), cache)]
    read += [model(more[:, step : step + 2], cache.next_geometry(2), cache) for step in (0, 2, 4)]
    for row, text in enumerate(texts):
        alone = model(torch.cat([text, more[row : row + 1]], 1))[0]
        together = torch.cat([read[0][row][real[row]], *(part[row] for part in read[1:])])
        assert (together - alone).abs().max() < 1e-10 * alone.abs().max()


@pytest.mark.parametrize("name", SPECTRA)
@torch.no_grad()
def test_packed_texts_have_lengths_of_their_own(name):
    model, texts = build(name), [ids(1, 20), ids(1, 30), ids(1, 5)]
    packed = model(torch.cat(texts, 1), Geometry.packed([20, 30, 5]))
    alone = torch.cat([model(text) for text in texts], 1)
    assert (packed - alone).abs().max() < 1e-10 * alone.abs().max()


@torch.no_grad()
def test_a_wrong_length_would_show():
    right, text = build("dynamic"), ids(1, 48)
    wrong = build("power_of_two")
    wrong.load_state_dict(right.state_dict())
    assert (right(text) - wrong(text))[:, :TRAINED].abs().max() < 1e-10
    assert (right(text) - wrong(text))[:, TRAINED + 1 :].abs().max() > 0.1


def llama(name, layers=2):
    """A tiny random Llama of transformers with this spectrum, deterministic."""
    modeling = pytest.importorskip("transformers.models.llama.modeling_llama")
    configuration = pytest.importorskip("transformers.models.llama.configuration_llama")
    config = configuration.LlamaConfig(
        vocab_size=11,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=TRAINED if name == "dynamic" else 4 * TRAINED,
        rope_parameters=dict(PARAMETERS[name]),
        initializer_range=0.5,
    )
    torch.manual_seed(0)
    return modeling.LlamaForCausalLM(config).double().eval()


def with_our_rope(model, name, text, where=None, cache=None):
    """The same Llama with attention computed by Ordinate."""
    scheme = Rope.from_rope_parameters(PARAMETERS[name], head_width=8, max_length=TRAINED)
    where = where or (cache or Cache()).next_geometry(text.shape[1])
    seen = where if cache is None else cache.with_past(where)
    at, x, states = scheme.at(seen), model.model.embed_tokens(text), []
    for place, layer in enumerate(model.model.layers):
        own, normed = layer.self_attn, layer.input_layernorm(x)
        q, k, v = (
            project(normed).unflatten(-1, (-1, 8)).transpose(1, 2) for project in (own.q_proj, own.k_proj, own.v_proj)
        )
        q, k = scheme.encode_query(q, where.q_pos), scheme.encode_key(k, where.q_pos)
        if cache is not None and cache.states:
            k, v = (torch.cat(pair, 2) for pair in zip(cache.states[place], (k, v), strict=True))
        states.append((k, v))
        x = x + own.o_proj(attend(q, k, v, at).transpose(1, 2).flatten(2))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    if cache is not None:
        cache.states, cache.where = states, seen
    return model.lm_head(model.model.norm(x))


@pytest.mark.parametrize("name", PARAMETERS)
@torch.no_grad()
def test_one_layer_reads_the_last_token_as_that_of_transformers_does(name):
    for length in (5, TRAINED, TRAINED + 1, 33, 48):
        # a fresh one each time: the dynamic one of transformers keeps the longest length it has seen
        model, text = llama(name, layers=1), ids(2, length)
        theirs, ours = model(text).logits[:, -1], with_our_rope(model, name, text)[:, -1]
        assert (ours - theirs).abs().max() < 1e-4, length


@pytest.mark.extended
@pytest.mark.covering(0)
@pytest.mark.parametrize("name", PARAMETERS)
@torch.no_grad()
def test_decoding_is_exact_here_and_far_off_in_transformers(name):
    caches, text = pytest.importorskip("transformers.cache_utils"), ids(1, 48)
    model, memory, cache, theirs, ours = llama(name), caches.DynamicCache(), Cache(), [], []
    for token in text.split(1, 1):
        theirs.append(with_cache(model, memory, input_ids=token)[0].logits)
        ours.append(with_our_rope(model, name, token, cache=cache))
    exact = llama(name)(text).logits, with_our_rope(model, name, text)
    defect = (torch.cat(theirs, 1) - exact[0])[:, TRAINED:].abs().max()
    error = (torch.cat(ours, 1) - exact[1]).abs().max()
    assert defect > 0.1 * exact[0].abs().max()
    assert error < 1e-10


@pytest.mark.parametrize("name", PARAMETERS)
@torch.no_grad()
def test_a_long_row_changes_a_short_one_in_transformers_and_not_here(name):
    short, long = ids(1, 12), ids(1, 48)
    batch, real = long.repeat(2, 1), torch.ones(2, 48, dtype=torch.bool)
    batch[1, 36:], real[1, :36] = short, False
    where = Geometry.padded(real)
    together = llama(name)(batch, attention_mask=real.long(), position_ids=where.q_pos[..., 0]).logits[1, 36:]
    alone = llama(name)(short).logits[0]
    defect = (together - alone).abs().max()
    model = llama(name)
    error = (with_our_rope(model, name, batch, where)[1, 36:] - with_our_rope(model, name, short)[0]).abs().max()
    assert defect > 0.1 * alone.abs().max()
    assert error < 1e-10


@torch.no_grad()
def test_a_text_read_before_changes_the_next_in_transformers_and_not_here():
    model, long, text = llama("dynamic"), ids(1, 48), ids(1, 30)
    before = model(text).logits, with_our_rope(model, "dynamic", text)
    model(long)
    with_our_rope(model, "dynamic", long)
    after = model(text).logits, with_our_rope(model, "dynamic", text)
    assert (after[0] - before[0]).abs().max() > 0.1 * before[0].abs().max()
    assert after[1].equal(before[1])
