"""Scales of branches and skip connections, and ratios of branches, against loops over the blocks."""

import pytest
import torch

from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.probing._adapter import NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing.activations.recording import record
from ordinate.probing.measures.residual_stream import (
    BranchScale,
    residual_and_branch_ratios,
    residual_at_positions,
)
from ordinate.probing.measures.samples import Sample

IDS = torch.randint(19, (3, 7), generator=torch.Generator().manual_seed(0))
SAMPLE, PLACES = Sample(IDS, None, 0, None), torch.arange(7)


def made(position):
    torch.manual_seed(0)
    shape = Shape(vocabulary=19, width=16, layers=2, heads=2, norm="layer", norm_position=position, scheme="alibi")
    model = Decoder(shape).double().eval()
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    return model


def inputs_of(model):
    """What the blocks are given: the token embeddings, and the scheme of each layer at the positions."""
    seen = []
    hooks = [block.register_forward_pre_hook(lambda _, given: seen.append(given)) for block in model.blocks]
    model(IDS)
    for hook in hooks:
        hook.remove()
    return seen[0][0], [given[1] for given in seen]


def attention_and_skip(block, position, x, at):
    """The attention output of a layer, and what it is added to."""
    normed = block.mixer_norm(x)
    attended = block.mixer(x if position == "post" else normed, at)[0]
    return attended, normed if position == "residual" else x


def rest(block, position, x, mixed):
    """What a layer makes of the sum of attention and skip connection."""
    if position == "parallel":
        return mixed + block.feedforward(block.feedforward_norm(x))
    if position == "post":
        mixed = block.mixer_norm(mixed)
        return block.feedforward_norm(mixed + block.feedforward(mixed))
    normed = block.feedforward_norm(mixed)
    return (normed if position == "residual" else mixed) + block.feedforward(normed)


@torch.no_grad()
@pytest.mark.parametrize("position", ["pre", "residual", "post", "parallel"])
def test_branches_are_scaled_as_in_a_loop_over_the_layers(position):
    model = made(position)
    x, places = inputs_of(model)
    streams = [x]
    for block, at in zip(model.blocks, places, strict=True):
        attended, skip = attention_and_skip(block, position, x, at)
        x = rest(block, position, x, 0.25 * skip + 0.5 * attended)
        streams.append(x)
    found = residual_at_positions(attach(model), SAMPLE, PLACES, BranchScale(attention=0.5, skip=0.25))
    for one, other in zip(found, streams, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("position", ["pre", "residual", "post", "parallel"])
def test_ratios_are_of_what_the_attention_output_is_added_to(position):
    model = made(position)
    one, (x, places) = attach(model), inputs_of(model)
    seen, ratios, mixed = record(one, IDS, ("pattern", "v")), [], []
    for layer, (block, at) in enumerate(zip(model.blocks, places, strict=True)):
        attended, skip = attention_and_skip(block, position, x, at)
        ratios.append((attended.norm(dim=-1) / skip.norm(dim=-1)).mean(1))
        kept = seen["pattern", layer].diagonal(dim1=-2, dim2=-1)[..., None] * seen["v", layer]
        own = kept.transpose(1, 2).flatten(2) @ block.mixer.out.weight.T
        m, p = (attended - own).norm(dim=-1), (skip + own).norm(dim=-1)
        mixed.append((m / (m + p)).mean(1))
        x = rest(block, position, x, skip + attended)
    found = residual_and_branch_ratios(one, SAMPLE, PLACES).value[1]
    name = "norm of attention output / norm of residual"
    torch.testing.assert_close(found[name], torch.stack(ratios, 1), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found["mixing ratio"], torch.stack(mixed, 1), rtol=1e-9, atol=1e-9)


def test_a_bloom_of_transformers_whose_skip_connection_is_normalised_is_refused():
    hf = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = hf.BloomConfig(
        hidden_size=16, n_layer=2, n_head=2, vocab_size=19, apply_residual_connection_post_layernorm=True
    )
    model = hf.BloomModel(config).double().eval()
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    with pytest.raises(NotApplicable, match=r"attention output of .* that is added to the residual stream was not"):
        residual_at_positions(attach(model), SAMPLE, PLACES, BranchScale(skip=0.5))
