"""Fidelity: a configuration gives the outputs of transformers, or is refused with the name of a field.

`fidelity.py` draws the configurations.
"""

import dataclasses
import json
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from ordinate.core import catalog
from ordinate.pretrained._family import Family
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.families import gpt2

pytest.importorskip("transformers")
DRAWN = runpy.run_path(str(Path(__file__).with_name("fidelity.py")))
FIELDS, INERT, there, here = (DRAWN[name] for name in ("FIELDS", "INERT", "there", "here"))
SEVERAL, FEW, MANY = 4, 2, 200


@pytest.fixture(autouse=True)
def quiet(recwarn):
    import transformers

    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(50)
    yield
    transformers.logging.set_verbosity(level)


def family_class(name):
    return catalog.load("ordinate.pretrained.families", Family, name)


def family_of(name):
    return family_class(name)()


def fields(name):
    """The fields of a configuration class of transformers that other classes need not have, with their defaults."""
    import transformers

    common = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)}
    own = dataclasses.fields(DRAWN["config_class"](name))
    return {field.name: field.default for field in own if field.name not in common}


def test_every_family_is_drawn():
    assert set(FIELDS) == set(catalog.names("ordinate.pretrained.families"))


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_transformers_is_drawn(name):
    sizes, drawn, _ = FIELDS[name]
    private = {"_out_features", "_out_indices"}
    assert fields(name).keys() - private - {"is_encoder_decoder"} <= sizes.keys() | drawn.keys() | INERT.keys()


@pytest.mark.parametrize("name", FIELDS)
def test_defaults_and_aliases_are_those_of_transformers(name):
    family, theirs = family_of(name), fields(name)
    shared = family.defaults.keys() & theirs.keys()
    assert {key: family.defaults[key] for key in shared} == {key: theirs[key] for key in shared}
    # of a Kimi Linear the other name of each pair is the one that counts
    pairs = (family.aliases, DRAWN["config_class"](name).attribute_map)
    ours, other = ({frozenset(pair) for pair in names.items()} for names in pairs)
    assert ours == other
    assert set(family.aliases.values()) <= family.defaults.keys()


@pytest.mark.parametrize("name", [name for name in FIELDS if issubclass(family_class(name), DecoderLike)])
def test_classifiers_leave_out_the_padding_token_of_transformers_by_default(name):
    theirs = getattr(DRAWN["config_class"](name)(), "pad_token_id", None)
    assert family_of(name).defaults.get("pad_token_id") == theirs


def outcomes(draws):
    """How many came out how; a failure shows the configurations."""
    found = Counter()
    for outcome, drawn in draws:
        assert not outcome.startswith(DRAWN["BROKEN"]), (outcome, drawn)
        found[outcome.split(":")[0]] += 1
    return found


def check_there(name, seeds, tmp_path):
    return outcomes(there(name, seed, made(tmp_path / str(seed))) for seed in seeds)


def check_here(name, seeds, tmp_path):
    bases = DRAWN["base_shapes"](name, made(tmp_path / "base"))
    return outcomes(here(name, seed, bases, made(tmp_path / str(seed))) for seed in seeds)


def made(folder):
    folder.mkdir()
    return folder


@pytest.mark.parametrize("name", FIELDS)
def test_a_configuration_gives_the_outputs_of_transformers_or_is_refused_by_name(name, tmp_path):
    assert check_there(name, range(SEVERAL), tmp_path)["equal"] > 0


@pytest.mark.parametrize("name", FIELDS)
def test_a_saved_shape_gives_the_same_outputs_in_transformers_or_is_refused_by_name(name, tmp_path):
    check_here(name, range(FEW), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", FIELDS)
def test_many_configurations_and_shapes_are_read_there_and_here(name):
    # in a process of its own, where types are not checked at each call
    command = [sys.executable, str(Path(__file__).with_name("fidelity.py")), str(MANY), name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    assert "!" not in done.stdout, done.stdout
    there, here = (json.loads(line) for line in done.stdout.splitlines())
    refused = sum(count for outcome, count in there.items() if outcome.startswith("refused"))
    assert there["equal"] >= 0.95 * (there["equal"] + refused)
    assert here["equal"] > MANY / 8


def test_a_wrong_number_is_noticed(tmp_path, monkeypatch):
    # a mutant: the family passes over two fields
    monkeypatch.setattr(gpt2, "_mixer", lambda *sizes, **scaling: gpt2.MIXER)
    with pytest.raises(AssertionError, match="WRONG: by"):
        check_there("gpt2", range(45, 55), tmp_path)


def test_outcomes_that_break_the_contract_are_failures():
    for outcome in ("WRONG: by 1", "crash: KeyError", "refused: no field in 'x'"):
        with pytest.raises(AssertionError):
            outcomes([("equal", {}), (outcome, {})])
    one = [torch.ones(2, 3)]
    assert DRAWN["judged"](one, one) == "equal"
    assert DRAWN["judged"]([one[0] * 1.01], one).startswith("WRONG: by")
    assert DRAWN["judged"]([one[0][:1]], one) == "WRONG: by inf"
    assert DRAWN["judged"]([], one).startswith("WRONG: 0 outputs")
