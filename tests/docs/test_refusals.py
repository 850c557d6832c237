"""The tables of classes and refused settings follow from the families as they are."""

import importlib
import sys
from pathlib import Path

import pytest

from ordinate.pretrained.families.llama import Llama


@pytest.fixture
def refusals(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / ".ci"))
    yield importlib.import_module("refusals")
    sys.modules.pop("refusals")


def test_a_refusal_is_in_the_table_with_its_reason(refusals):
    table = refusals.settings_table({name: refusals.TABLES["FIELDS"][name] for name in ("bert", "roberta", "gpt2")})
    assert "| `hidden_act` | `\"prelu\"` | bert, roberta | no hidden_act is named 'prelu' |" in table
    assert "| `add_cross_attention` | `true` | bert, roberta | add_cross_attention needs is_decoder |" in table
    assert "layer_norm_epsilon" not in table


@pytest.mark.extended
def test_a_setting_or_class_that_a_family_refuses_from_now_on_makes_the_table_stale(refusals, monkeypatch):
    drawn = {"llama": refusals.TABLES["FIELDS"]["llama"]}
    before = refusals.settings_table(drawn), refusals.class_table(drawn)
    heads = ["LlamaForQuestionAnswering", "LlamaForSequenceClassification", "LlamaForTokenClassification"]
    assert before[1].endswith(f"| llama | LlamaForCausalLM, {', '.join(heads)}, LlamaModel |")
    monkeypatch.setattr(Llama, "heads", ("classes",))
    monkeypatch.setattr(Llama, "gates", {"silu": "swiglu"})
    after = refusals.settings_table(drawn), refusals.class_table(drawn)
    assert "| `hidden_act` | `\"swish\"` | llama | no hidden_act is named 'swish' |" in after[0]
    assert after[0] != before[0]
    assert after[1].endswith(f"| llama | LlamaForCausalLM, {heads[1]}, LlamaModel |")
    monkeypatch.setattr(Llama, "base_class", "LlamaBase")
    assert refusals.class_table(drawn).endswith("| llama | LlamaForCausalLM |")
