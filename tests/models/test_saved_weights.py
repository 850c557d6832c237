"""What is saved can be read again: weights that a new model of the same shape does not have are refused."""

import pytest
import torch
from torch.nn.utils import parametrizations, prune

from ordinate import Decoder, Encoder, EncoderShape, Shape

SIZES = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 2}


def project(model, layer=0):
    return model.blocks[layer].mixer.project


def shared(model):
    project(model, 1).weight = project(model).weight


def wider(model):
    project(model).weight = torch.nn.Parameter(torch.zeros(3, 16))


CHANGES = {
    "parametrised": (
        lambda model: parametrizations.weight_norm(project(model)),
        r"parametrizations\.weight\.original0",
    ),
    "pruned": (lambda model: prune.l1_unstructured(project(model), "weight", 0.5), r"mixer\.project\.weight_mask"),
    "shared": (shared, r"got others: blocks\.1\.mixer\.project\.weight; remove"),
    "another size": (wider, r"got others: blocks\.0\.mixer\.project\.weight; remove"),
    "without values": (lambda model: model.to("meta"), "weights must have values to be saved; got some on the meta"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_weights_that_could_not_be_read_again_are_not_written(name, tmp_path):
    change, match = CHANGES[name]
    model = Decoder(Shape(**SIZES, scheme="t5"))
    change(model)
    with pytest.raises(ValueError, match=match):
        model.save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Decoder(Shape(**SIZES, scheme="shaw")),
        lambda: Decoder(Shape(**SIZES, scheme="t5", tie_embeddings=False)),
        lambda: Encoder(EncoderShape(**SIZES, scheme="learned", token_types=2)),
    ],
)
def test_saving_draws_no_random_numbers(make, tmp_path):
    model, before = make(), torch.random.get_rng_state()
    model.save_pretrained(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)
    again = type(model).from_pretrained(tmp_path)
    assert all(torch.equal(x, y) for x, y in zip(model.parameters(), again.parameters(), strict=True))
