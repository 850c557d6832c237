import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from ordinate.cli.application import app
from ordinate.cli.look import parse_head
from ordinate.core.geometry import Geometry
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.data.tokenizers.published import Published
from ordinate.models.decoder import Decoder
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.shape import Shape
from ordinate.probing import look, patch
from ordinate.probing._adapter import NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing.activations.recording import record
from ordinate.probing.runner.token_labels import token_labels
from ordinate.testing.analytic_model import AnalyticModel

IDS = torch.randperm(50, generator=torch.Generator().manual_seed(0))[None, :12]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A trained model's folder: 2 layers of 2 heads, of bytes."""
    path = tmp_path_factory.mktemp("look") / "tiny"
    torch.manual_seed(0)
    Decoder(Shape(vocabulary=256, width=16, heads=2, layers=2, scheme="learned", max_length=64)).save_pretrained(path)
    Bytes().save(path)
    return path


def previous(weights):
    """A pattern with all attention on the previous token; the first token attends to itself."""
    n = weights.shape[-1]
    rows = torch.arange(n)
    return torch.nn.functional.one_hot((rows - 1).clamp(min=0), n).to(weights).expand_as(weights)


def test_a_planted_head_is_named_in_the_answer_the_table_and_the_page():
    model = patch(AnalyticModel("learned", vocabulary=100), "pattern", previous, layers=1, heads=0)
    seen = look(model, IDS, ablate=[(1, 0)])
    assert seen.finding.grade == "yes"
    assert "\nYes. 1 of 4 heads are of such a kind (previous token: 1). In this sentence position explains" in str(
        seen
    )
    assert "Without head 1.0 the loss changes by" in seen.finding.answer
    row = next(row for row in seen.table().rows if row[0] == "1.0")
    assert row[3] == "previous token"
    assert "1.0: query by key" in seen.page()
    assert "previous token" in seen.page()
    pattern = record(model, IDS, "pattern").layers("pattern")[0]
    assert np.array_equal(seen.pattern, pattern.numpy())
    pairs = seen.attention_table()
    assert len(pairs.rows) == int((pattern > 0).sum())
    assert ("1.0", 3, f"#{IDS[0, 3]}", 2, f"#{IDS[0, 2]}", 1.0) in [row[:6] for row in pairs.rows]
    assert seen.circuitsvis(1)["tokens"] == list(seen.tokens)
    assert seen.circuitsvis(1)["attention"].shape == (2, 12, 12)


def test_without_such_heads_the_answer_is_no_and_for_a_short_model_it_cannot_be_told():
    assert "\nNo. None of 4 heads has a tenth of its attention above the null." in str(
        look(AnalyticModel("rope"), IDS)
    )
    short = look(AnalyticModel("learned", vocabulary=13), IDS % 13)
    assert "\nCannot be told. Kinds of heads need texts of 16 distinct tokens; plain has room for 13." in str(short)
    assert "In this sentence position explains" in str(short)
    assert {row[4] for row in short.table().rows} == {"all"}


def test_an_encoder_is_looked_at_with_its_special_tokens_in_place():
    torch.manual_seed(0)
    model = Encoder(EncoderShape(vocabulary=60, width=16, heads=2, layers=1, scheme="learned", max_length=64)).eval()
    assert look(model, torch.randperm(50)[None, :9]).pattern.shape == (1, 2, 9, 9)


HOSTILE = "</script><b>x</b>\u202e\0 & "


def test_the_page_escapes_its_tokens_and_asks_for_nothing(folder):
    seen = look(folder, HOSTILE)
    page = seen.page("ordinate look '<i>'")
    assert "<b>x" not in page
    assert "<i>" not in page
    assert page.count("</script>") == 2
    assert "\u202e" not in page
    assert "\0" not in page
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'' in page
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", page)
    labels = json.loads(re.search(r'id="labels">(.*?)</script>', page, re.DOTALL)[1])
    assert labels["head"] == ["0.0", "0.1", "1.0", "1.1"]
    assert "".join(labels["query"][:3]) == "</s"
    assert len(labels["key"]) == len(seen.tokens)


def test_the_command_writes_a_page_and_tables(folder, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["look", str(folder), "the cat and the cat", "--ablate", "1.0", "0.1", "--out", str(out)]
    assert app(words, result_action="return_value") == 0
    said = capsys.readouterr().out
    assert said.startswith("Does tiny have offset, first-token, induction or duplicate-token heads")
    assert "Without head 1.0 the loss changes by" in said
    assert f"page: {out / 'look.html'}" in said.replace("\n", "")
    assert {path.name for path in out.iterdir()} == {
        "look.html", "heads.csv", "attention.csv", "scores.csv", "kinds.csv", "ablation.csv"
    }  # fmt: skip
    lines = (out / "attention.csv").read_text().splitlines()
    assert lines[0] == "head,query,query token,key,key token,attention,score by position,by tokens"
    # a causal model: half of the pairs
    assert len(lines) == 1 + 4 * 19 * 20 / 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ab"], "a sentence has 4 to 128 tokens; got 2; give another, or part of it"),
        (["a" * 129], "a sentence has 4 to 128 tokens; got 129"),
        (["a" * 65], "tiny reads 64 tokens; got 65; shorten it"),
        (["abcdef", "--ablate", "1"], r"a head is LAYER.HEAD, both counted from 0; got '1'; give one such as 1\.3"),
        (["abcdef", "--ablate", "2.0"], r"heads are 0\.0 to 1\.1; got 2\.0"),
        (["abcdef", "--tables", "xlsx"], r"tables are written as \.csv or \.parquet; got '\.xlsx'; give one of them"),
    ],
)
def test_bad_input_is_refused(folder, tmp_path, words, message):
    with pytest.raises(ValueError, match=message):
        app(["look", str(folder), *words, "--out", str(tmp_path / "o")], result_action="return_value")
    assert not (tmp_path / "o").exists()


def test_images_and_several_texts_are_refused():
    with pytest.raises(NotApplicable, match="plain takes images; look reads a sentence"):
        look(AnalyticModel(vocabulary=0), torch.zeros(1, 3, 4, 4))
    with pytest.raises(ValueError, match="look reads one sentence; got 2; give one"):
        look(AnalyticModel(), IDS.repeat(2, 1))
    assert parse_head("12.3") == (12, 3)


def encoder_decoder(scheme="sinusoidal"):
    torch.manual_seed(0)
    shape = EncoderDecoderShape(
        vocabulary=60, width=16, heads=2, layers=2, source_layers=1, scheme=scheme, max_length=64
    )
    return EncoderDecoder(shape).eval()


def test_the_cross_attention_of_an_encoder_decoder_is_that_of_its_formula():
    model, source, target = encoder_decoder(), torch.randperm(50)[None, :9], torch.tensor([[0, 7, 8, 9]])
    seen = look(model, source, target=target, ablate=[(0, 1)])
    assert seen.written.cross.shape == (2, 2, 4, 9)
    with torch.no_grad():
        memory = model.encode_source(source)
        entered = {}
        model.decoder.blocks[0].cross_norm.register_forward_hook(lambda *got: entered.update(x=got[2]))
        model.target_logits(target, memory)
        (given, _) = model.cross_attention_inputs(Geometry.causal(4), memory)
        q = model.decoder.blocks[0].cross.encoded_queries(entered["x"], given.at)
        expected = (q @ given.key_values.k.mT / 8**0.5).softmax(-1)
    assert np.allclose(seen.written.cross[0], expected[0], atol=1e-6)
    page = seen.page()
    assert "1.1: target token by source token" in page
    assert "1.1: target query by target key" in page
    assert seen.cross_table().rows[0][:5] == ("0.0", 0, "<start>", 0, f"#{source[0, 0]}")
    assert len(seen.cross_table().rows) == 4 * 4 * 9
    # causal: half of the pairs
    assert len(seen.decoder_table().rows) == 4 * 10
    assert seen.decoder_table().rows[1][:5] == ("0.0", 1, "#7", 0, "<start>")
    # the encoder has one layer, the decoder two
    assert seen.pattern.shape[:2] == (1, 2)


def test_the_cross_attention_of_transformers_is_what_it_returns(tmp_path):
    hf = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "num_layers": 1, "num_decoder_layers": 2, "num_heads": 2, "d_ff": 16}
    model = hf.T5ForConditionalGeneration(hf.T5Config(**sizes, vocab_size=60, decoder_start_token_id=0)).eval()
    source, target = torch.randperm(50)[None, :9], torch.tensor([[0, 7, 8, 9]])
    seen = look(model, source, target=target)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        found = model(input_ids=source, decoder_input_ids=target, output_attentions=True)
    assert np.allclose(seen.written.cross, torch.cat(found.cross_attentions), atol=1e-6)
    assert np.allclose(seen.written.decoder, torch.cat(found.decoder_attentions), atol=1e-6)


def test_a_target_for_a_model_without_cross_attention_is_refused():
    with pytest.raises(NotApplicable, match="plain has no cross-attention: only encoder-decoders have"):
        look(AnalyticModel(), IDS, target=IDS)
    model = attach(encoder_decoder())
    model._facts = replace(model.info, start_token=None)
    with pytest.raises(NotApplicable, match="name no token to begin a target with; give token ids"):
        look(model, IDS, target="a")
    with pytest.raises(ValueError, match=r"a target is \(1, tokens\); got \(2, 12\); reshape it"):
        look(encoder_decoder(), IDS, target=IDS.repeat(2, 1))
    with pytest.raises(ValueError, match="cross-attention needs a target; got none; give look"):
        look(AnalyticModel(), IDS).cross_table()
    with pytest.raises(
        ValueError, match="the decoder of EncoderDecoder reads 64 tokens; got a target of 65; shorten"
    ):
        look(encoder_decoder("learned"), IDS, target=torch.zeros(1, 65, dtype=torch.long))
    with pytest.raises(ValueError, match="token ids of EncoderDecoder are 0 to 59; got 0 to 60"):
        look(encoder_decoder(), IDS, target=torch.tensor([[0, 60]]))


def named_tokenizer():
    """A published tokenizer with special tokens, one of which looks like a word."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    names = {"[CLS]": 0, "[SEP]": 1, "<pad>": 2, "the": 3, "cat": 4, "sat": 5, "on": 6, "mat": 7, "odd": 8, "": 9}
    inner = Tokenizer(models.WordLevel(names, unk_token="odd"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.add_special_tokens(["[CLS]", "[SEP]", "<pad>"])
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    return Published(inner=inner)


def test_special_tokens_have_the_names_of_the_tokenizer_and_a_start_token_without_one_is_called_start():
    tokenizer = named_tokenizer()
    assert dict(tokenizer.special_tokens) == {0: "[CLS]", 1: "[SEP]", 2: "<pad>"}
    assert Bytes().special_tokens == {}
    torch.manual_seed(0)
    shape = EncoderDecoderShape(vocabulary=60, width=16, heads=2, layers=1, scheme="learned", max_length=64, start=2)
    model = attach(EncoderDecoder(shape).eval())
    model.tokenizer = tokenizer
    ids = torch.tensor([[0, 3, 2, 9, 50, 1]])
    assert token_labels(model, ids) == ("[CLS]", "the", "<pad>", "#9", "#50", "[SEP]")
    seen = look(model, torch.tensor([[0, 3, 4, 5, 1]]), target="the cat")
    assert seen.target_tokens == ("<pad>", "the", "cat")
    assert seen.tokens == ("[CLS]", "the", "cat", "sat", "[SEP]")
    # a text of the decoder begins with its start token; the source is encoded with its special tokens
    decoder = attach(model, part="decoder", source="the cat sat")
    assert decoder.source.tolist() == [[0, 3, 4, 5, 1]]
    assert look(decoder, "the cat sat on the mat").tokens[:2] == ("<pad>", "the")
    model.tokenizer = None
    assert token_labels(model, ids) == ("#0", "#3", "<start>", "#9", "#50", "#1")
