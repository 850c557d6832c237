"""Files of checkpoints: which of them is read where there are several, and what is left of an earlier model."""

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from ordinate.models.next_token_rules import NextTokenRules
from ordinate.models.registry import MODEL_KINDS
from ordinate.pretrained import checkpoint_files
from ordinate.pretrained.checkpoint_files import CheckpointTensors, remove_shards
from ordinate.pretrained.weights import load, published_shape, save

pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).with_name("families.py")))
theirs = FAMILIES["theirs"]
TEXT = torch.randint(2, 28, (2, 9), generator=torch.Generator().manual_seed(0))
INDEX = "model.safetensors.index.json"


def shift(model):
    """Change every weight."""
    for parameter in model.parameters():
        parameter.data.add_(0.01)
    return model


@torch.no_grad()
def test_saving_over_shards_leaves_the_saved_model(tmp_path):
    theirs("llama").save_pretrained(tmp_path, max_shard_size="10kB")
    model = shift(load(tmp_path))
    save(model, tmp_path, "llama")
    assert [path.name for path in tmp_path.glob("*.safetensors*")] == ["model.safetensors"]
    assert torch.equal(load(tmp_path)(TEXT), model(TEXT))


def test_shards_are_removed_only_in_their_folder(tmp_path):
    folder, kept = tmp_path / "model", ("model/notes.txt", "model/model.safetensors", "other.safetensors")
    folder.mkdir()
    for name in (*kept, "model/one.safetensors"):
        (tmp_path / name).write_bytes(b"")
    outside = str(tmp_path / "other.safetensors")
    named = ["one.safetensors", "gone.safetensors", "../other.safetensors", outside, 3, "x" * 300 + ".safetensors"]
    named += ["notes.txt", "model.safetensors"]
    (folder / INDEX).write_text(json.dumps({"weight_map": dict(enumerate(named))}))
    remove_shards(folder)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {tmp_path / name for name in kept}
    for damaged in ("[", "{}", '{"weight_map": []}'):
        (folder / INDEX).write_text(damaged)
        remove_shards(folder)
        assert not (folder / INDEX).exists()


@torch.no_grad()
def test_a_whole_file_is_read_before_an_index_as_in_transformers(tmp_path):
    other = theirs("llama")
    other.save_pretrained(tmp_path, max_shard_size="10kB")
    # transformers removes the shards, and leaves their index
    shift(other).save_pretrained(tmp_path)
    assert (tmp_path / INDEX).exists()
    expected = load_file(tmp_path / "model.safetensors")["lm_head.weight"]
    assert torch.equal(load(tmp_path).head.weight, expected)


def test_a_tensor_that_is_stored_under_an_early_and_a_current_name_is_refused(tmp_path):
    stored = {f"encoder.LayerNorm.{name}": torch.ones(2) for name in ("gamma", "weight")}
    save_file(stored, tmp_path / "model.safetensors")
    both = r"model.safetensors has early and current ones of \['encoder.LayerNorm.\w+'\]"
    with pytest.raises(ValueError, match=f"a tensor must be stored under one name; {both}; remove those"):
        CheckpointTensors(tmp_path)


def test_saving_rewrites_the_special_tokens_of_an_earlier_model(tmp_path):
    theirs("t5").save_pretrained(tmp_path)
    earlier = {"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "bad_words_ids": [[3]], "top_k": 5}
    (tmp_path / "generation_config.json").write_text(json.dumps(earlier))
    model = load(tmp_path)
    assert model.shape.rules == NextTokenRules(bad_words_ids=((3,),))
    model.shape = replace(model.shape, start=5, end=6, rules=NextTokenRules())
    save(model, tmp_path, "t5")
    assert load(tmp_path).shape == model.shape
    said = json.loads((tmp_path / "generation_config.json").read_text())
    assert said == {"top_k": 5, "decoder_start_token_id": 5, "eos_token_id": 6, "pad_token_id": 0}


def test_saving_a_decoder_keeps_its_generation_config(tmp_path):
    theirs("llama").save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 7}')
    save(load(tmp_path), tmp_path, "llama")
    assert json.loads((tmp_path / "generation_config.json").read_text()) == {"eos_token_id": 7}


@pytest.mark.parametrize("kind", ["decoder", "encoder", "encoder-decoder", "vision"])
def test_a_folder_of_ordinate_is_named_with_what_reads_it(kind, tmp_path):
    one = MODEL_KINDS[kind]
    one.build(one.shape(vocabulary=11, width=16, layers=1, heads=2)).save_pretrained(tmp_path)
    name = one.model.__name__
    match = rf"load reads published .*; .* a model of Ordinate, .*; read it with ordinate\.{name}\.from_pretrained"
    for read in (load, published_shape):
        with pytest.raises(ValueError, match=match):
            read(tmp_path)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "told"),
    [("llama", {}), ("mixtral", {}), ("roberta, ForMaskedLM", {}), ("phi", {"tie_word_embeddings": True})],
)
def test_each_shard_is_opened_once_and_each_parameter_has_memory_of_its_own(name, told, tmp_path, monkeypatch):
    theirs(name, **told).save_pretrained(tmp_path, max_shard_size="10kB")
    opened = []

    def counted(path, kind):
        opened.append(path)
        return safe_open(path, kind)

    monkeypatch.setattr(checkpoint_files, "safe_open", counted)
    model = load(tmp_path)
    shards = sorted(tmp_path.glob("*.safetensors"))
    assert len(shards) > 1
    assert sorted(opened) == shards
    parameters = list(model.parameters())
    assert len({parameter.data_ptr() for parameter in parameters}) == len(parameters)
    for parameter in parameters:
        assert parameter.untyped_storage().nbytes() == parameter.nbytes
