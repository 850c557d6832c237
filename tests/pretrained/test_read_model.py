import json

import pytest
import torch

from ordinate.models.registry import MODEL_KINDS
from ordinate.pretrained.read_model import read_model

SIZES = {"vocabulary": 7, "width": 16, "layers": 1, "heads": 2}
OWN = {"vision": {"image": (4, 4), "patch": (2, 2), "channels": 1, "scheme": "none"}}


@pytest.fixture(params=MODEL_KINDS)
def saved(request, tmp_path):
    torch.manual_seed(0)
    kind = MODEL_KINDS[request.param]
    model = kind.build(kind.shape(**SIZES | OWN.get(request.param, {})))
    model.save_pretrained(tmp_path / "model")
    return request.param, model, tmp_path / "model"


def test_a_folder_of_each_kind_is_read_by_one_function(saved):
    name, model, folder = saved
    for kind in (None, name):
        found = read_model(folder, kind)
        assert type(found) is type(model)
        assert found.shape == model.shape
        assert all(torch.equal(found.state_dict()[key], value) for key, value in model.state_dict().items())


def test_a_model_of_another_kind_names_the_command_that_uses_it(saved):
    name, _, folder = saved
    other = next(kind for kind in MODEL_KINDS if kind != name)
    with pytest.raises(
        ValueError, match=f"contains one of kind {name}; use it with `ordinate {MODEL_KINDS[name].command}`"
    ):
        read_model(folder, other)


def test_a_folder_without_an_architecture_is_a_decoder(tmp_path):
    kind = MODEL_KINDS["decoder"]
    kind.build(kind.shape(**SIZES)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config.pop("architectures") == ["Decoder"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert isinstance(read_model(tmp_path), kind.model)


def test_an_unknown_class_is_refused_by_name(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Decodr"], "shape": {}}))
    with pytest.raises(ValueError, match=r"no kind of model.* is named 'Decodr'.*did you mean 'Decoder'"):
        read_model(tmp_path)
