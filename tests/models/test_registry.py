import torch

from ordinate.models.registry import MODEL_KINDS

SIZES = {"vocabulary": 7, "width": 16, "layers": 1, "heads": 2}


def test_each_kind_builds_its_model():
    for kind in MODEL_KINDS.values():
        with torch.device("meta"):
            assert isinstance(kind.build(kind.shape(**SIZES)), kind.model)
