"""Languages of `ordinate translate`, for models of several."""

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from ordinate.cli.application import app
from ordinate.cli.languages import LanguageOptions
from ordinate.cli.load_trained import load_trained_text_model
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.models._translate import translate
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape

transformers = pytest.importorskip("transformers")
SIDE = {"layers": 1, "attention_heads": 2, "ffn_dim": 8}
WORDS = ["<s>", "<pad>", "</s>", "<unk>", "a", "b", "c", "eng_Latn", "fra_Latn", "deu_Latn", "<mask>"]
TEMPLATES = {
    "before": "eng_Latn $A </s>",
    "behind": "$A </s> eng_Latn",
    "none": "$A </s>",
    "two": "eng_Latn $A fra_Latn",
}


def tokenizer(template):
    made = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens([AddedToken(word) for word in WORDS if word not in "abc"])
    marks = [(word, WORDS.index(word)) for word in ("eng_Latn", "fra_Latn", "</s>")]
    made.post_processor = TemplateProcessing(single=TEMPLATES[template], special_tokens=marks)
    return made


@pytest.fixture
def folder(tmp_path):
    def make(template="before"):
        torch.manual_seed(0)
        sides = ("encoder", "decoder")
        sizes = {f"{side}_{name}": size for side in sides for name, size in SIDE.items()}
        config = transformers.M2M100Config(vocab_size=len(WORDS), d_model=8, max_position_embeddings=16, **sizes)
        transformers.M2M100ForConditionalGeneration(config).save_pretrained(tmp_path)
        tokenizer(template).save(str(tmp_path / "tokenizer.json"))
        return tmp_path

    return make


def encoded(folder, language, text="a b"):
    found, model = load_trained_text_model(folder, "encoder-decoder")
    return [WORDS[token] for token in LanguageOptions(language).encoder(found, model)(text)]


def test_the_source_has_the_token_of_its_language_in_place_of_that_of_the_tokenizer(folder):
    assert encoded(folder(), None) == ["eng_Latn", "a", "b", "</s>"]
    assert encoded(folder(), "deu_Latn") == ["deu_Latn", "a", "b", "</s>"]
    # one in the text stays
    assert encoded(folder("behind"), "deu_Latn", "a eng_Latn") == ["a", "eng_Latn", "</s>", "deu_Latn"]


def test_translations_begin_with_the_token_of_their_language(folder, capsys):
    found, model = load_trained_text_model(folder(), "encoder-decoder")
    LanguageOptions(target_language="fra_Latn").write_in(found, model)
    assert model.shape.rules.forced_bos_token_id == WORDS.index("fra_Latn")
    memory = model.encode_source(torch.tensor([[4, 5, 2]]))
    assert translate(model, memory, 4)[0, 0] == WORDS.index("fra_Latn")
    words = ["translate", str(folder()), "a b", "--source-language", "deu_Latn", "--target-language", "fra_Latn"]
    assert app([*words, "--max-new-tokens", "4", "--beams", "2"]) == 0
    # the token itself is not written
    assert "Latn" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("template", "options", "match"),
    [
        ("before", {"target_language": "fra_Latm"}, "no language is named 'fra_Latm'.*fra_Latn"),
        ("before", {"source_language": "</s>"}, "no language is named '</s>'"),
        ("none", {"source_language": "deu_Latn"}, "the token of one language to each sentence.*; it adds 0; leave"),
        ("two", {"source_language": "deu_Latn"}, "the token of one language to each sentence.*; it adds 2; leave"),
    ],
)
def test_languages_that_a_tokenizer_does_not_have_are_refused(template, options, match, folder):
    found, model = load_trained_text_model(folder(template), "encoder-decoder")
    given = LanguageOptions(**options)
    read = given.encoder if given.source_language else given.write_in
    with pytest.raises(ValueError, match=match):
        read(found, model)


def test_a_model_without_languages_is_told(tmp_path):
    signs = {"vocabulary": 258, "start": 257, "end": 256, "padding": 257}
    EncoderDecoder(EncoderDecoderShape(width=16, layers=1, heads=2, **signs)).save_pretrained(tmp_path)
    Bytes().save(tmp_path)
    for option in ("--source-language", "--target-language"):
        match = f"{option} needs a tokenizer.json with special tokens of languages; this model has none; leave"
        with pytest.raises(ValueError, match=match):
            app(["translate", str(tmp_path), "one", option, "fr"])
