"""Every class of transformers of a family: it loads with its own outputs, or is refused by its name."""

import runpy
from pathlib import Path

import pytest

from ordinate.pretrained import load, verify
from ordinate.pretrained.weights import family_of

transformers = pytest.importorskip("transformers")
FIELDS = runpy.run_path(str(Path(__file__).with_name("fields.py")))["FIELDS"]
# heads beside the one that is read
ALSO = {
    *("BertForPreTraining", "BertLMHeadModel", "RobertaForCausalLM", "XLMRobertaForCausalLM", "CamembertForCausalLM"),
    *("ElectraForCausalLM", "RobertaPreLayerNormForCausalLM", "RoFormerForCausalLM"),
    *("Data2VecTextForCausalLM", "XLMRobertaXLForCausalLM", "MegatronBertForCausalLM", "MegatronBertForPreTraining"),
    *("ErnieForCausalLM", "ErnieForPreTraining", "AlbertForPreTraining"),
    *("Dinov2Backbone", "Dinov2WithRegistersBackbone", "DINOv3ViTBackbone", "T5Model", "MT5Model", "UMT5Model"),
    *("BartModel", "MBartModel", "PegasusModel", "MarianModel", "M2M100Model", "PLBartModel", "BlenderbotModel"),
}


@pytest.fixture(autouse=True)
def quiet():
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(level)


def classes(kind):
    """The classes of transformers for a `model_type`, with any head."""
    from transformers.models.auto import modeling_auto

    tables = [
        table for name, table in vars(modeling_auto).items() if name.endswith("MAPPING_NAMES") and kind in table
    ]
    named = [table[kind] for table in tables]
    found = {name for names in named for name in ([names] if isinstance(names, str) else names)}
    # made for a composite of models
    return sorted(found - {"JevForDecision"} - {name for name in found if name.endswith("Config")})


def listed():
    """The classes of each family in the table of docs/published.md."""
    page = (Path(__file__).parents[2] / "docs" / "published.md").read_text(encoding="utf-8")
    part = page.partition("<!-- classes -->")[2].partition("<!-- end of classes -->")[0]
    rows = [line.split("|") for line in part.splitlines()[3:] if "|" in line]
    return {row[1].strip(): {name.strip() for name in row[2].split(",")} for row in rows}


@pytest.mark.covering(0)
@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=() if name in ("bert", "llama") else pytest.mark.extended) for name in FIELDS]
)
def test_a_class_loads_with_its_own_outputs_or_is_refused_by_its_name(family, tmp_path):
    kind = family_of(family).model_type
    loaded, refused = [], []
    for name in classes(kind):
        model = getattr(transformers, name)(transformers.CONFIG_MAPPING[kind](**FIELDS[family][0])).eval()
        for parameter in model.parameters():
            # sinusoids are fixed
            if parameter.requires_grad:
                parameter.data.add_(0.1 * parameter.data.clone().normal_())
        model.save_pretrained(tmp_path / name)
        try:
            load(tmp_path / name)
        except ValueError as error:
            refused.append((name, str(error)))
            continue
        loaded.append(name)
        found = verify(tmp_path / name, checks=["outputs"])
        assert found.agrees, (name, found.to_dict())
    # a class may be that of another family, by its settings
    assert set(loaded) <= ALSO.union(*listed().values())
    assert {name for name, _ in refused}.isdisjoint(listed().get(family, ()))
    assert all(f"config.json names a {name}" in told for name, told in refused)
