"""ALBERT: which layers share parameters, and what is read and written of them."""

import pytest
import torch
from safetensors.torch import load_file

from ordinate import Encoder, EncoderShape
from ordinate.pretrained import verify
from ordinate.pretrained.weights import family_of, load, save

transformers = pytest.importorskip("transformers")
SIZES = {"vocab_size": 19, "hidden_size": 16, "embedding_size": 8, "num_attention_heads": 2, "intermediate_size": 12}
SIZES |= {"max_position_embeddings": 32}
IDS = torch.randint(3, 19, (2, 9), generator=torch.Generator().manual_seed(0))
LAYOUTS = [
    (1, 1, 1, ()),
    (3, 1, 1, (0, 0, 0)),
    (3, 2, 1, (0, 0, 2)),
    (5, 3, 1, (0, 0, 2, 2, 4)),
    (2, 2, 1, ()),
    (2, 1, 2, (0, 1, 0, 1)),
    (3, 2, 2, (0, 1, 0, 1, 4, 5)),
    (1, 1, 3, ()),
]


def written(folder, repeats, groups, inner, kind="AlbertForMaskedLM"):
    """A model of transformers with numbers that show, in a folder."""
    counts = {"num_hidden_layers": repeats, "num_hidden_groups": groups, "inner_group_num": inner}
    torch.manual_seed(0)
    model = getattr(transformers, kind)(transformers.AlbertConfig(**SIZES | counts)).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize(("repeats", "groups", "inner", "shared"), LAYOUTS)
@torch.no_grad()
def test_the_layers_of_a_group_share_their_parameters(tmp_path, repeats, groups, inner, shared):
    theirs = written(tmp_path, repeats, groups, inner)
    ours = load(tmp_path)
    assert (ours.shape.layers, ours.shape.shared_layers) == (repeats * inner, shared)
    expected = theirs(IDS).logits
    assert (ours.logits(ours(IDS)) - expected).abs().max() < 1e-5 * expected.abs().max()
    # those of the decoder are tied to the table and the bias
    assert sum(x.numel() for x in ours.parameters()) == sum(x.numel() for x in theirs.parameters())
    for layer, owner in enumerate(shared):
        mine, own = (dict(ours.blocks[one].named_parameters()) for one in (layer, owner))
        assert all(mine[name] is own[name] for name in own)
    save(ours, tmp_path / "again", "albert")
    before, after = (load_file(folder / "model.safetensors") for folder in (tmp_path, tmp_path / "again"))
    # one group of layers that are not repeated is written as groups
    if (repeats, inner) != (1, 3):
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)
    again = load(tmp_path / "again")
    assert again.shape == ours.shape
    assert torch.equal(again(IDS), ours(IDS))


@pytest.mark.parametrize("sizes", [(3, 1, 1), (3, 2, 2)])
def test_gradients_of_shared_layers_are_those_of_transformers(tmp_path, sizes):
    written(tmp_path, *sizes)
    found = verify(tmp_path, checks=["outputs", "gradients", "left padding", "right padding", "packing"])
    assert found.agrees, found.to_dict()


def test_the_head_for_the_order_of_sentences_is_ignored(tmp_path):
    theirs = written(tmp_path, 2, 1, 1, "AlbertForPreTraining")
    assert any("sop_classifier" in name for name in load_file(tmp_path / "model.safetensors"))
    ours = load(tmp_path)
    with torch.no_grad():
        expected = theirs(IDS).prediction_logits
        assert (ours.logits(ours(IDS)) - expected).abs().max() < 1e-5 * expected.abs().max()


@pytest.mark.parametrize(
    ("told", "match"),
    [
        ({"num_hidden_groups": 4}, "num_hidden_groups must be at most num_hidden_layers; got 4 and 3; load another"),
        ({"embedding_size": 16}, "embedding_size of a albert must be another than hidden_size; got 16 twice; load"),
        ({"inner_group_num": 0}, "inner_group_num in config.json must be above zero; got 0"),
    ],
)
def test_what_is_not_read_is_refused_by_its_name(told, match):
    with pytest.raises(ValueError, match=match):
        family_of("albert").read_config(SIZES | {"num_hidden_layers": 3} | told, ())


@pytest.mark.parametrize("shared", [(0, 1, 1, 1), (0, 0, 0, 3), (0, 1, 1, 0)])
def test_layers_that_are_no_repeated_groups_are_not_saved(tmp_path, shared):
    options = {"norm": "layer", "norm_position": "post", "scheme": "learned:width=8", "bias": ("norm", "feedforward")}
    options |= {"embedding_width": 8, "narrow_norm": True, "mixer": "softmax:variant.bias=true", "token_types": 2}
    model = Encoder(EncoderShape(19, 16, 4, 2, hidden=12, max_length=32, shared_layers=shared, **options))
    with pytest.raises(ValueError, match=r"layers of an albert are groups of layers, .*; got shared_layers=\(0, "):
        save(model, tmp_path, "albert")
