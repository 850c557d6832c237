import json

import pytest
import torch
from safetensors.torch import save_file

from ordinate.models.registry import MODEL_KINDS
from ordinate.pretrained import verify
from ordinate.pretrained.checkpoint_files import CheckpointTensors
from ordinate.pretrained.read_model import read_model
from ordinate.pretrained.weights import published_shape

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


BROKEN = {
    "config.json": [
        ({"model_type": 5}, "model_type in config.json must be the name of a family; got 5"),
        ({"model_type": None}, "model_type in config.json must be the name of a family; got None"),
        ({"architectures": []}, r"architectures in .* must be a list of names; got \[\]"),
        ({"architectures": 3}, "must be a list of names; got 3"),
        ({"shape": None}, "shape in .* must be an object with the sizes of the model; got None"),
        ({"layers": 100_000_000}, "layers in config.json must fit the weights; got 100000000; they have .* tensors"),
        ({"width": 40_000_000}, "width in config.json must fit the weights; got 40000000; they have no dimension"),
        ({"head_width": True}, "head_width in config.json must be a whole number; got True"),
        ({"dropout": "x"}, r"dropout of a shape must be float; got 'x'; .* \(in .*config\.json\)|dropout of a shape"),
        ({"scheme": "learned"}, "must have the tensors of the model that config.json describes; it has no schemes"),
        (
            {"max_length": 10**9, "scheme": "learned"},
            "max_length of Learned must be at most 16777216; got 1000000000",
        ),
        ({"width": 1e30}, r"width in config.json must be a whole number; got 1e\+30"),
        (
            {"sliding_windows": [None] * 1_000_000},
            "a list in config.json has at most one value .*sliding_windows has",
        ),
    ]
}


@pytest.mark.parametrize(("change", "message"), BROKEN["config.json"])
def test_a_config_that_does_not_fit_the_weights_is_refused_before_a_model_is_made(tmp_path, change, message):
    kind = MODEL_KINDS["decoder"]
    kind.build(kind.shape(**SIZES)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    top = change.keys() & {"model_type", "architectures", "shape"}
    config = config | change if top else config | {"shape": config["shape"] | change}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        read_model(tmp_path)


def test_a_published_checkpoint_without_the_name_of_its_family_is_not_taken_for_one_of_ordinate(tmp_path):
    (tmp_path / "config.json").write_text('{"hidden_size": 128, "architectures": ["BertModel"]}')
    with pytest.raises(
        ValueError, match=r"config.json must have 'model_type'; got hidden_size, architectures; add the"
    ):
        read_model(tmp_path)
    with pytest.raises(ValueError, match=r'names its family .*; .* has none; add it, "model_type": "bert"'):
        verify(tmp_path)


def test_a_config_of_a_thousand_lists_in_each_other_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"config\.json must be a JSON object; .* cannot be parsed"):
        read_model(tmp_path)


def test_a_shape_without_a_size_is_refused(tmp_path):
    kind = MODEL_KINDS["decoder"]
    kind.build(kind.shape(**SIZES)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["shape"]["vocabulary"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="a shape must have vocabulary; vocabulary missing; write the model again"):
        read_model(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_the_name_of_the_tensor(tmp_path, value):
    kind = MODEL_KINDS["decoder"]
    model = kind.build(kind.shape(**SIZES))
    with torch.no_grad():
        model.tokens.weight[3, 2] = value
    model.save_pretrained(tmp_path)
    message = f"weights must be finite numbers; tokens.weight has {'NaN' if value != value else 'infinity'}"
    with pytest.raises(ValueError, match=message):
        read_model(tmp_path)


def test_weights_of_8_bits_are_refused_by_the_name_of_the_tensor(tmp_path):
    kind = MODEL_KINDS["decoder"]
    model = kind.build(kind.shape(**SIZES))
    model.tokens.weight = torch.nn.Parameter(model.tokens.weight.to(torch.float8_e5m2))
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"numbers of 16 bits or more; tokens.weight has float8_e5m2; load the"):
        read_model(tmp_path)


@pytest.mark.parametrize(
    "text", ["[]", "null", "{", '{"weight_map": []}', '{"weight_map": {"a": ["b"]}}', "[" * 99_999]
)
def test_an_index_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ValueError, match=r"model\.safetensors\.index\.json must (be|name|cannot)|weight_map in"):
        CheckpointTensors(tmp_path)


PUBLISHED = {
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 11,
    "intermediate_size": 16, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "tie_word_embeddings": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers in config.json must fit the weights; got 1000000000"),
        ({"head_dim": 10**9}, "head_dim in config.json must fit the weights"),
        ({"hidden_size": True}, "hidden_size in config.json must be a whole number; got True"),
        ({"hidden_size": 1e30}, "hidden_size in config.json must be a whole number"),
        ({"rms_norm_eps": "1e-6"}, "rms_norm_eps in config.json must be a finite number; got '1e-6'"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps in config.json must be a finite number; got nan"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings in config.json must be true or false; got 1"),
        ({"rope_scaling": [1]}, r"rope_scaling in config.json must be dict.*; got \[1\]"),
        ({"rope_scaling": {"rope_type": {}}}, r"rope_type must be the name .*; got \{\}; .* \(in .*config.json\)"),
        ({"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0] * 10**6}}, "short_factor has 1000000"),
    ],
)
def test_sizes_of_a_published_config_must_fit_its_weights(tmp_path, change, message):
    save_file(
        {"model.embed_tokens.weight": torch.zeros(11, 8), "mlp": torch.zeros(16)}, tmp_path / "model.safetensors"
    )
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED | change))
    with pytest.raises(ValueError, match=message):
        published_shape(tmp_path)
