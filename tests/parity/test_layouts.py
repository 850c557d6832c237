import pytest
import torch
from torch import nn

from ordinate.ops.layouts import OTHER, convert_projection
from ordinate.schemes import Rope

WIDTH, HEADS, HEAD_WIDTH, LAYERS = 48, 4, 12, 2

LLAMA = pytest.importorskip("transformers.models.llama")
GPTJ = pytest.importorskip("transformers.models.gptj")
NEOX = pytest.importorskip("transformers.models.gpt_neox")


def llama():
    """Half layout, grouped key heads, biases."""
    config = LLAMA.configuration_llama.LlamaConfig(
        vocab_size=50,
        hidden_size=WIDTH,
        intermediate_size=40,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        attention_bias=True,
        initializer_range=0.3,
    )
    model = LLAMA.modeling_llama.LlamaForCausalLM(config)

    def attentions():
        for block in model.model.layers:
            old = block.self_attn
            yield block, "self_attn", [old.q_proj, old.k_proj, old.v_proj], old.o_proj

    return model, attentions, "half", HEAD_WIDTH


def gptj():
    """Interleaved layout, 8 of 12 channels rotated, no biases."""
    config = GPTJ.configuration_gptj.GPTJConfig(
        vocab_size=50,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        rotary_dim=8,
        n_positions=64,
        initializer_range=0.3,
    )
    model = GPTJ.modeling_gptj.GPTJForCausalLM(config)

    def attentions():
        for block in model.transformer.h:
            yield block, "attn", [block.attn.q_proj, block.attn.k_proj, block.attn.v_proj], block.attn.out_proj

    return model, attentions, "interleaved", 8


def neox():
    """Half layout, 6 of 12 channels rotated, biases, the three projections of each head in one matrix."""
    config = NEOX.configuration_gpt_neox.GPTNeoXConfig(
        vocab_size=50,
        hidden_size=WIDTH,
        intermediate_size=40,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5},
        initializer_range=0.3,
    )
    model = NEOX.modeling_gpt_neox.GPTNeoXForCausalLM(config)

    def attentions():
        for block in model.gpt_neox.layers:
            old = block.attention
            parts = []
            for part in range(3):
                linear = nn.Linear(WIDTH, WIDTH)
                for name in ("weight", "bias"):
                    whole = getattr(old.query_key_value, name).detach()
                    split = whole.unflatten(0, (HEADS, 3, HEAD_WIDTH))[:, part].flatten(0, 1)
                    setattr(linear, name, nn.Parameter(split))
                parts.append(linear)
            yield block, "attention", parts, old.dense

    return model, attentions, "half", 6


def converted(linear, to, rotated):
    pair = (linear.weight.detach(), None if linear.bias is None else linear.bias.detach())
    if to is None:
        return pair
    turned = (convert_projection(x, head_width=HEAD_WIDTH, to=to, rotated=rotated) for x in pair if x is not None)
    return tuple(turned) if pair[1] is not None else (next(turned), None)


@pytest.fixture
def logits(attention):
    """Run `computed` with our attention."""
    return lambda *arguments, **options: computed(attention, *arguments, **options)


def computed(attention, family, convert=(), turn="as it is"):
    """The logits of a tiny random model, and the same with its attention computed by ours.

    Args:
        attention: the class that computes it.
        family: makes the model.
        convert: which projections are converted to the other layout: any of 0 (queries) and 1 (keys).
        turn: the layout that ours rotates in: `as it is` or `other`.
    """
    torch.manual_seed(0)
    model, attentions, own, rotated = family()
    # biases are initialised to zeros, which no permutation changes
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter, std=0.5)
    model = model.double().eval()
    ids = torch.randint(50, (2, 17), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        theirs = model(ids, use_cache=False).logits
        for block, name, parts, out in list(attentions()):
            pairs = [converted(part, OTHER[own] if at in convert else None, rotated) for at, part in enumerate(parts)]
            layout = own if turn == "as it is" else OTHER[own]
            scheme = Rope(head_width=HEAD_WIDTH, layout=layout, rotary_dim=rotated)
            setattr(block, name, attention(pairs, out, scheme, HEAD_WIDTH))
        return theirs, model(ids, use_cache=False).logits, OTHER[own], type(model)


@pytest.mark.parametrize("family", [llama, gptj, neox])
def test_converted_projections_give_the_same_logits_in_the_other_layout(family, logits, record):
    _, as_it_is, _, _ = logits(family)
    theirs, ours, layout, kind = logits(family, convert=(0, 1), turn="other")
    # in float64 only the order of summation may differ
    assert (ours - as_it_is).abs().max() <= 1e-12 * theirs.abs().max()
    after = f"`convert_projection(..., to='{layout}')` of its queries and keys"
    record(
        ours, theirs, scheme=f"rope:layout={layout}", oracle=kind, what="logits of a tiny random model", after=after
    )


@pytest.mark.parametrize("family", [llama, gptj, neox])
@pytest.mark.parametrize("convert", [(0,), (1,), ()])
def test_an_unconverted_projection_changes_the_logits(family, convert, logits):
    theirs, wrong, _, _ = logits(family, convert, turn="other")
    assert (wrong - theirs).abs().max() > 0.1 * theirs.abs().max()


@pytest.mark.parametrize("shape", [(48, 7), (48,)])
@pytest.mark.parametrize("to", OTHER)
def test_the_conversion_matches_transformers(to, shape, record):
    kind = pytest.importorskip("transformers.core_model_loading").PermuteForRope
    config, weight = (
        LLAMA.configuration_llama.LlamaConfig(hidden_size=WIDTH, num_attention_heads=4),
        torch.randn(shape),
    )
    record(
        convert_projection(weight, head_width=HEAD_WIDTH, to=to),
        kind(inverse=to == "interleaved")._permute_for_rope(weight, config),
        scheme=f"rope:layout={to}",
        oracle=kind,
        what="weights and biases, converted",
    )
