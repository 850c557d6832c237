import base64
import hashlib
import json
import re
from importlib import resources

import pytest
import torch
from markupsafe import escape
from tokenizers import models, normalizers, pre_tokenizers

from ordinate import Decoder, Shape
from ordinate.explorer.measured import panels
from ordinate.explorer.model_facts import check_model, packed_model
from ordinate.explorer.own_model import read_own_model
from ordinate.explorer.page import LARGEST, breakable, code_spans, content_policy, explorer_page, script
from ordinate.explorer.related import load as load_related
from ordinate.explorer.token_facts import encoding_facts
from tests.explorer.checkpoints import TOKENIZERS, make_tokenizer, write_checkpoint

NAMES = [name for name, _ in panels()]


@pytest.fixture(scope="module")
def page():
    return explorer_page()


def small(**changes):
    sizes = {"vocabulary": 256, "width": 32, "layers": 2, "heads": 2, "scheme": "rope"}
    return Decoder(Shape(**{**sizes, **changes})).eval()


def test_the_page_is_small_and_asks_for_nothing(page):
    assert len(page.encode()) < LARGEST
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#|data:)""", page.partition("<script")[0])
    assert not re.search(r"\bimport\s*\(|\bfetch\s*\(|XMLHttpRequest|localStorage|innerHTML|\beval\b", script(NAMES))


def test_the_policy_allows_this_script_and_style_and_no_other(page):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    assert "default-src 'none'" in policy
    for tag, name in (('script id="code"', "script-src"), ("style", "style-src")):
        content = re.search(rf"<{tag}>(.*?)</{tag.split()[0]}>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert content_policy("a", "b") != content_policy("a", "c")
    assert not re.search(r"<[a-z][^>]*\sstyle=", page.partition("<script")[0])


def test_questions_and_answers_stand_in_the_page_without_its_script(page):
    without = page.partition("<script")[0]
    assert without.count('class="answer"') == 9
    assert "Shuffling whole texts raises the loss of a trained decoder by 3.2 [3.1, 3.4] nats" in without


def test_the_documentation_is_linked_where_it_is_known(page):
    linked = explorer_page(docs="../")
    assert 'href="../questions/privacy.html"' in linked
    assert 'href="../questions/index.html#is-a-permuted-input-private"' in linked
    assert "href=" not in re.search(r'<section class="related".*?</section>', page, re.DOTALL)[0]


def test_each_panel_has_its_questions_with_their_answers_without_the_script(page):
    without = page.partition("<script")[0]
    for name, shown in load_related().items():
        part = re.search(rf'aria-labelledby="related-{name}">(.*?)</section>', without, re.DOTALL)[1]
        assert part.count("<details>") == len(shown) >= 2
        for one in shown:
            assert f"{escape(one['question'])} <strong>{one['word']}.</strong>" in part
    assert "the mixer <code>sigmoid</code>" in without


def test_paths_may_break_and_only_backticks_become_markup():
    assert breakable("a/b_c<") == "a/<wbr>b_<wbr>c&lt;"
    assert code_spans("`a<b` & `c") == "<code>a&lt;b</code> &amp; `c"


def test_the_charts_library_is_the_published_one():
    folder = resources.files("ordinate.explorer").joinpath("js", "vendor")
    script_text = folder.joinpath("uplot.js").read_text(encoding="utf-8")
    assert "Copyright (c) 2022 Leon Sorokin" in script_text
    published = script_text.partition(" */\n")[2].removesuffix("export const Plot = uPlot;\n")
    style = folder.joinpath("uplot.css").read_text(encoding="utf-8").rstrip("\n")
    # of dist/uPlot.iife.min.js and dist/uPlot.min.css in version 1.6.32 on npm
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in (published, style)]
    assert digests == [
        "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
        "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    ]


@pytest.mark.extended
def test_a_page_leaves_out_models_that_it_has_no_room_for():
    page = explorer_page([packed_model(small(width=128, layers=6, heads=4), "own")])
    assert len(page.encode()) < LARGEST
    names = [entry["name"] for entry in json.loads(re.search(r'id="models">(.*?)</script>', page)[1])]
    assert names == ["none", "learned", "t5", "encoder", "own"]
    assert "5 small transformers" in page
    assert "This page has no room for sinusoidal, alibi, rope beside the model that was given." in page


def test_names_of_models_are_escaped(tmp_path):
    model = packed_model(small(), "own", title="</script><b>&")
    page = explorer_page([model])
    assert "</script><b>" not in page
    assert "\\u003c/script\\u003e\\u003cb\\u003e\\u0026" in page


def test_a_model_of_ones_own_is_read_from_its_folder(tmp_path):
    small().save_pretrained(tmp_path / "runs" / "mine" / "model")
    facts = read_own_model(tmp_path / "runs" / "mine" / "model").facts
    assert facts["title"] == "mine (yours)"
    assert "trained_length" not in facts
    with pytest.raises(ValueError, match="a model folder must contain config"):
        read_own_model(tmp_path)


@pytest.mark.extended
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_published_model_is_read_with_its_tokenizer(tmp_path, kind):
    made = make_tokenizer(kind)
    write_checkpoint("llama", tmp_path, made.get_vocab_size())
    with pytest.raises(ValueError, match=r"needs its tokenizer.json; .* has none, and the model .* tokens"):
        read_own_model(tmp_path)
    made.save(str(tmp_path / "tokenizer.json"))
    facts = read_own_model(tmp_path).facts
    tokens = facts["tokens"]
    assert facts["trained_length"] == json.loads((tmp_path / "config.json").read_text())["max_position_embeddings"]
    assert len(tokens["texts"]) == made.get_vocab_size()
    assert tokens["first"] == (None if kind.startswith("bytes") else 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda made: setattr(made, "normalizer", normalizers.Lowercase()),
            "without normalizer, or with that of Llama",
        ),
        (
            lambda made: setattr(made, "pre_tokenizer", pre_tokenizers.Whitespace()),
            "ByteLevel or Metaspace; got White",
        ),
        (lambda made: setattr(made, "model", models.Unigram()), "model.type='BPE'; got 'Unigram'"),
        (lambda made: setattr(made.model, "dropout", 0.1), "model.dropout=None; got 0.1"),
        (lambda made: setattr(made.model, "end_of_word_suffix", "</w>"), "model.end_of_word_suffix=None; got '</w>'"),
    ],
)
def test_a_tokenizer_that_the_page_does_not_have_is_refused(change, message):
    made = make_tokenizer("bytes", 260)
    change(made)
    with pytest.raises(ValueError, match=message):
        encoding_facts(json.loads(made.to_str()))


def test_a_large_file_is_refused_before_it_is_read(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for part in (1, 2):
        with (tmp_path / f"model-0000{part}-of-00002.safetensors").open("wb") as file:
            file.truncate(25_000_000)
    with pytest.raises(ValueError, match=r"at most 1,500,000 parameters.*have 50,000,000 bytes"):
        read_own_model(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm_position": "post"}, "norm_position='pre' or norm_position='parallel' or .*; got 'post'"),
        ({"feedforward": "quick_gelu"}, "feedforward='gelu' or .*; got 'quick_gelu'"),
        ({"layer_scale": 0.1}, "runs models with layer_scale=None; got 0.1"),
        ({"blocks": "reversible"}, "blocks='plain'; got 'reversible'"),
        (
            {"mixer": "linear", "scheme": "none"},
            "value_scale, value_norm, values_of_keys, chunk and encode_values; got mixer='linear'",
        ),
        ({"mixer": "softmax:variant.softcap=5"}, "encode_values; got mixer='softmax:variant.softcap"),
        ({"mixer": "softmax:variant.sinks=true"}, "without output_gate, softcap, sinks, clip_qkv"),
        ({"mixer": "softmax:variant.clip_qkv=2"}, "without output_gate, softcap, sinks, clip_qkv"),
        ({"mixer": "softmax:variant.qk_norm=true,variant.qk_norm_across=true"}, "encode_values; got"),
        ({"mixer": "softmax:variant.qk_norm=true,variant.qk_norm_after=true"}, "encode_values; got"),
        ({"mixer": "softmax:variant.qk_norm=true,variant.qk_norm_kind=layer"}, "encode_values; got"),
        ({"mixer": "softmax:variant.qk_norm=true,variant.qk_norm_kind=nonparametric_rms"}, "qk_norm_kind"),
        ({"mixer": "softmax:variant.qk_norm=true,variant.qk_norm_zero_centred=true"}, "encode_values; got"),
        ({"mixer": "softmax:encode_values=true"}, "encode_values; got"),
        ({"mixer": "softmax:variant.chunk=4"}, "encode_values; got"),
        (
            {"mixer": "softmax:variant.value_width=3"},
            "value_width, value_scale, value_norm, values_of_keys, chunk and encode_values; got mixer='softmax:v",
        ),
        (
            {"mixer": "softmax:variant.value_scale=0.5"},
            "value_width, value_scale, value_norm, values_of_keys, chunk and encode_values; got mixer='softm",
        ),
        ({"mixer": "softmax:variant.output_gate=true"}, "encode_values; got mixer='softmax:variant.output"),
        ({"norm": "nonparametric"}, "with norm='rms' or norm='layer'; got 'nonparametric'"),
        ({"norm": "nonparametric_rms"}, "with norm='rms' or norm='layer'; got 'nonparametric_rms'"),
        ({"embedding_width": 8}, "with embedding_width=None; got 8"),
        ({"head_transform": True}, "runs models with head_transform=False; got True"),
        (
            {"bias": ("norm", "head")},
            r"models whose tied head has no bias; got bias=\('norm', 'head'\); give another",
        ),
        ({"logit_scale": 0.5}, "runs models with logit_scale=1.0; got 0.5"),
        ({"logit_softcap": 30.0}, "runs models with logit_softcap=None; got 30.0"),
        ({"residual_scale": 0.5}, "runs models with residual_scale=1.0; got 0.5"),
        ({"zero_centred_norm": True}, "runs models with zero_centred_norm=False; got True"),
        ({"embedding_scale": 2.0, "round_embedding_scale": True}, "with round_embedding_scale=False; got True"),
        ({"norm_position": "peri"}, "norm_position='shared'; got 'peri'"),
        ({"width": 512, "layers": 3}, "at most 1,500,000 parameters"),
        ({"scheme": "xpos"}, "one scheme in all layers, with its default form: .*got 'xpos'"),
        ({"scheme": "rope,none"}, "one scheme in all layers"),
        (
            {"scheme": "rope:spectrum=dynamic,spectrum.factor=4,spectrum.trained_length=64"},
            "one scheme in all layers, with its default form",
        ),
        ({"scheme": "alibi:trainable=true"}, "with its default form"),
    ],
)
def test_what_the_page_cannot_run_is_refused(changes, message):
    with torch.device("meta"):
        model = small(**changes)
    with pytest.raises(ValueError, match=message):
        check_model(model)


@pytest.mark.parametrize(
    "scheme",
    ["none", "sinusoidal:theta=100", "learned", "rope:theta=500,layout=interleaved", "alibi", "t5:buckets=8"],
)
def test_what_it_can_run_is_not(scheme):
    check_model(small(scheme=scheme))
