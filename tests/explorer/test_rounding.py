import base64
import zlib

import numpy as np
import pytest
import torch

from ordinate.explorer.packing import PackedModel, load_models, pack, save_models
from ordinate.explorer.rounding import restore_rows, round_rows, rounded_copy


def test_a_rounded_weight_is_off_by_half_a_step_at_most():
    weight = torch.randn(7, 63)
    weight[3] = 0
    rounded, scales = round_rows(weight)
    assert rounded.dtype == torch.int8
    assert rounded.abs().amax(1).tolist() == [127, 127, 127, 0, 127, 127, 127]
    gap = (restore_rows(rounded, scales) - weight).abs()
    assert bool((gap <= scales[:, None] * 0.500001).all())
    assert bool((gap.amax(1) > scales * 0.4)[[0, 1, 2, 4, 5, 6]].all())


def test_narrow_matrices_and_vectors_keep_their_precision():
    model = torch.nn.ModuleDict({"wide": torch.nn.Linear(33, 5), "narrow": torch.nn.Linear(31, 5)})
    other = rounded_copy(model)
    assert torch.equal(other["narrow"].weight, model["narrow"].weight)
    assert torch.equal(other["wide"].bias, model["wide"].bias)
    assert not torch.equal(other["wide"].weight, model["wide"].weight)


def test_weights_that_are_not_finite_are_refused():
    model = torch.nn.Linear(33, 5)
    model.weight.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match="weights must be finite numbers; weight has others"):
        rounded_copy(model)


def test_models_are_the_same_after_saving_and_packing(tmp_path):
    whole, scales = np.arange(-6, 6, dtype=np.int8).reshape(3, 4), np.array([1, 2, 3], dtype=np.float32)
    gains = np.array([0.5, 0.25], dtype=np.float32)
    arrays = {"m": whole, "m.scales": scales, "n": gains}
    models = [PackedModel({"name": name}, arrays) for name in ("a", "ab")]
    save_models(tmp_path / "models.safetensors", models)
    entries, text = pack(load_models(tmp_path / "models.safetensors"))
    content = zlib.decompress(base64.b64decode(text))
    first, second = entries[1]["tensors"]
    assert entries[1]["name"] == "ab"
    assert (first["name"], first["rows"], first["columns"], first["kind"]) == ("m", 3, 4, "int8")
    assert np.frombuffer(content, "<f4", 3, first["at"]).tolist() == [1, 2, 3]
    assert np.frombuffer(content, "i1", 12, first["at"] + 12).tolist() == list(range(-6, 6))
    assert np.frombuffer(content, "<f4", 2, second["at"]).tolist() == [0.5, 0.25]
