"""Models of transformers whose token embeddings are narrower than their residual stream."""

import runpy
from pathlib import Path

import pytest
import torch

from ordinate.probing._adapter import Inputs, NotApplicable
from ordinate.probing._attach import attach

hf = pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).with_name("families.py")))
TEXT, DISENTANGLED, SIZES = (FAMILIES[name] for name in ("TEXT", "DISENTANGLED", "SIZES"))
IDS = torch.randint(4, 60, (2, 9), generator=torch.Generator().manual_seed(1))


def randomised(model):
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    return model.double().eval()


def deberta(**told):
    config = hf.DebertaV2Config(**(TEXT | DISENTANGLED | {"embedding_size": 12, "type_vocab_size": 2} | told))
    return randomised(hf.DebertaV2Model(config))


def opt():
    config = hf.OPTConfig(**SIZES, ffn_dim=48, max_position_embeddings=40, word_embed_proj_dim=12)
    return randomised(hf.OPTModel(config))


def widening(model):
    return model.embeddings.embed_proj if hasattr(model, "embeddings") else model.decoder.project_in


@torch.no_grad()
@pytest.mark.parametrize("make", [deberta, lambda: deberta(position_biased_input=True), opt])
def test_token_embeddings_are_those_in_the_width_of_the_model(make):
    model = make()
    one, table = attach(model), model.get_input_embeddings().weight
    torch.testing.assert_close(one.token_table(), table @ widening(model).weight.T)
    given = one.forward(Inputs(embeddings=one.token_table()[IDS])).residual
    torch.testing.assert_close(given, one.forward(Inputs(IDS)).residual)
    # other vectors have an effect, also ones that no narrow embedding gives
    moved = one.token_table()[IDS] + torch.randn(32, dtype=torch.float64)
    assert (one.forward(Inputs(embeddings=moved)).residual - given).abs().max() > 1e-2


@torch.no_grad()
def test_narrow_position_embeddings_are_widened_too():
    model = deberta(position_biased_input=True)
    expected = model.embeddings.position_embeddings.weight[:7] @ model.embeddings.embed_proj.weight.T
    torch.testing.assert_close(attach(model).position_table(7), expected)


def test_embeddings_that_are_normalised_before_they_are_widened_are_refused():
    one = attach(randomised(hf.ElectraModel(hf.ElectraConfig(**TEXT, embedding_size=12))), name="electra")
    match = "token embeddings of electra have 12 columns, not the 32 of the model, and no linear map alone takes"
    with pytest.raises(NotApplicable, match=match):
        one.token_table()
    with pytest.raises(NotApplicable, match=match):
        one.position_table(7)
    with pytest.raises(NotApplicable, match=match):
        one.forward(Inputs(embeddings=torch.zeros(2, 9, 32, dtype=torch.float64)))
    one.forward(Inputs(IDS))
