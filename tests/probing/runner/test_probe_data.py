from dataclasses import replace

import pytest
import torch

from ordinate.models.encoder import Encoder
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.encoder_shape import EncoderShape
from ordinate.probing._adapter import Inputs, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing.runner.probe_data import sample_text
from ordinate.testing.analytic_model import AnalyticModel


class Reader(AnalyticModel):
    def __init__(self, **sizes):
        super().__init__("rope", **({"vocabulary": 256} | sizes))

    def tokenize(self, text):
        return torch.tensor(list(text.encode()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("text")
    for number in range(30):
        (path / f"{number}.txt").write_text("".join(f"{number} {line}\n" for line in range(100)))
    return str(path)


def test_texts_have_one_length_and_come_from_different_documents(folder):
    material = sample_text(Reader(), folder, sequences=20, length=40)
    assert material.ids.shape == (20, 40)
    begun = {bytes(row.tolist()).decode().split("\n")[1].split(" ")[0] for row in material.ids}
    assert len(begun) == 20
    assert "20 samples of 40 tokens" in material.source


def test_the_first_token_is_prepended_and_the_model_limits_the_length(folder):
    material = sample_text(Reader(first_token=7, max_length=32), folder, sequences=4, length=512)
    assert material.ids.shape == (4, 32)
    assert (material.ids[:, 0] == 7).all()
    assert (material.ids[:, 1] != 7).all()


def test_documents_give_a_second_sample_only_when_there_are_too_few(folder):
    material = sample_text(Reader(), folder, sequences=64, length=100)
    assert len(material.ids) == 64
    assert len(material.ids.unique(dim=0)) == 64


def test_what_a_study_holds_out_comes_first(folder):
    from ordinate.data.heldout_split import held_out_rule
    from ordinate.data.resolve_corpus import resolve_corpus

    corpus = resolve_corpus(folder)
    held, _ = held_out_rule([(document.source, 1) for document in corpus.documents()], 0.1)
    kept = [document.text.encode() for document in corpus.documents() if held(document)]
    first = sample_text(Reader(), folder, sequences=max(2, len(kept)), length=40).ids
    assert all(any(bytes(row.tolist()) in text for text in kept) for row in first[: len(kept)])


def test_the_same_text_gives_the_same_pieces(folder):
    assert torch.equal(*(sample_text(Reader(), folder, sequences=9, length=40).ids for _ in range(2)))


def test_a_text_that_is_too_short_is_refused(tmp_path):
    (tmp_path / "short.txt").write_text("too short")
    with pytest.raises(ValueError, match=r"must have two samples of 512 tokens.*has 0.*smaller --length"):
        sample_text(Reader(), str(tmp_path / "short.txt"))
    with pytest.raises(ValueError, match="two samples or more; got 1"):
        sample_text(Reader(), "stdlib", sequences=1)
    with pytest.raises(ValueError, match="8 tokens or more; got 4"):
        sample_text(Reader(), "stdlib", length=4)


def test_a_model_without_a_tokenizer_reads_random_tokens(folder):
    found, same = (sample_text(AnalyticModel(first_token=7), folder, sequences=30, length=20) for _ in range(2))
    assert torch.equal(found.ids, same.ids)
    assert (found.ids.shape, found.natural) == ((30, 20), False)
    assert (found.ids[:, 0] == 7).all()
    assert set(found.ids[:, 1:].unique().tolist()) == set(range(50)) - {7}
    assert "random tokens, since" in found.source
    assert sample_text(Reader(), folder, sequences=4, length=20).natural


def test_a_model_of_images_asks_for_some(folder):
    class Seer(AnalyticModel):
        @property
        def info(self):
            return replace(super().info, kind="vision", grid=(2, 2))

    with pytest.raises(NotApplicable, match="takes images; give them by --images"):
        sample_text(Seer(), folder)


SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
SMALL |= {"vocab_size": 30, "max_position_embeddings": 60}


@pytest.mark.parametrize(
    ("kind", "told", "special"),
    [
        ("Roberta", {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}, {0, 1, 2}),
        ("Bert", {"pad_token_id": 5, "bos_token_id": None, "eos_token_id": [7, 8]}, {5, 7, 8}),
        ("XLMRoberta", {"pad_token_id": 1, "bos_token_id": None, "eos_token_id": 99}, {1}),
    ],
)
def test_random_texts_have_no_special_tokens(kind, told, special):
    hf = pytest.importorskip("transformers")
    torch.manual_seed(0)
    one = attach(getattr(hf, f"{kind}Model")(getattr(hf, f"{kind}Config")(**SMALL, **told)).eval())
    assert one.info.special_tokens == special
    drawn = sample_text(one, "stdlib", sequences=20, length=40).ids
    assert set(drawn.flatten().tolist()) == set(range(30)) - special
    # with the padding token in it, the positions of a text would be others
    usual = torch.arange(40).expand(20, -1)
    torch.testing.assert_close(one.forward(Inputs(drawn, usual)).residual, one.forward(Inputs(drawn)).residual)


def test_random_texts_of_models_of_ordinate_have_no_padding_token():
    encoder = Encoder(EncoderShape(vocabulary=20, width=16, layers=1, heads=2, padding=3)).eval()
    pair = EncoderDecoder(EncoderDecoderShape(vocabulary=20, width=16, layers=1, heads=2, start=1, end=2)).eval()
    for model, special in ((encoder, {3}), (pair, {0, 1, 2})):
        assert attach(model).info.special_tokens == special
        drawn = sample_text(attach(model), "stdlib", sequences=20, length=40).ids
        assert set(drawn.flatten().tolist()) == set(range(20)) - special


def test_a_vocabulary_of_special_tokens_is_refused():
    few = AnalyticModel(vocabulary=2, special_tokens=frozenset({0, 1}))
    with pytest.raises(NotApplicable, match="has no tokens but special ones, of which no random text is made"):
        sample_text(few, "stdlib", sequences=2, length=10)
