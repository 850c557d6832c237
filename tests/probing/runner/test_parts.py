"""Probes of the decoder of an encoder-decoder, and refusals of its cross-attention."""

import json

import pytest
import torch

from ordinate.cli.application import app
from ordinate.core import catalog
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.probing import look, patch, probe
from ordinate.probing._adapter import Inputs, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing._probe import ProbeData
from ordinate.probing.measures.head_kinds import head_kinds
from ordinate.probing.measures.score_split import score_split
from ordinate.probing.runner.api import try_attach

PROBES = catalog.names("ordinate.probing.probes")
SOURCE = torch.randint(256, (1, 12), generator=torch.Generator().manual_seed(0))
TARGET = torch.randint(256, (16, 48), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    shape = EncoderDecoderShape(
        vocabulary=257, width=16, heads=2, layers=2, scheme="learned", max_length=64, start=256
    )
    return EncoderDecoder(shape).eval()


def previous(weights):
    """A pattern with all attention on the previous token; the first token attends to itself."""
    rows = torch.arange(weights.shape[-1])
    return torch.nn.functional.one_hot((rows - 1).clamp(min=0), len(rows)).to(weights).expand_as(weights)


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=() if x == "positional_heads" else pytest.mark.extended) for x in PROBES]
)
def test_every_probe_runs_on_the_decoder_and_none_on_cross_attention(model, name):
    ids = torch.cat([torch.full((16, 1), 256), TARGET], 1)
    data = ProbeData(ids, None, "random tokens", natural=False, budget=1e10)
    found = probe(attach(model, part="decoder", source=SOURCE), name, data=data).finding
    assert found.status == "measured", found.answer
    assert "the self-attention of the decoder is probed, not its encoder" in found.caveats[0]
    refused = probe(attach(model, part="cross", source=SOURCE), name, data=data).finding
    assert refused.status == "skipped"
    assert refused.answer.startswith("probes need queries and keys of one text; in the cross-attention of Encoder")


def test_a_planted_head_of_the_decoder_is_found_there_and_not_in_the_encoder(model):
    decoder = patch(attach(model, part="decoder", source=SOURCE), "pattern", previous, layers=1, heads=0)
    assert head_kinds(decoder).labels(1, 0) == [("previous token", "yes")]
    assert head_kinds(attach(model)).labels(1, 0) == []


def test_look_kinds_and_scores_refuse_cross_attention(model):
    across = attach(model, part="cross", source=SOURCE)
    with pytest.raises(NotApplicable, match="sentences that are looked at need queries and keys of one text"):
        look(across, TARGET[:1])
    with pytest.raises(NotApplicable, match="kinds of heads need queries and keys of one text"):
        head_kinds(across)
    with pytest.raises(NotApplicable, match="position and content of scores need queries and keys of one text"):
        score_split(across, TARGET[:1])


def test_a_decoder_without_a_source_is_refused_before_it_is_probed(model):
    with pytest.raises(ValueError, match="the decoder of EncoderDecoder reads a source; got none; give --source"):
        try_attach(model, part="decoder")
    assert "has no cross-attention" in str(try_attach(torch.nn.Linear(2, 2), part="cross"))


@pytest.mark.extended
def test_a_source_longer_than_the_table_of_positions_is_refused(model):
    hf = pytest.importorskip("transformers")
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "d_model": 8}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 20}
    bart = hf.BartForConditionalGeneration(hf.BartConfig(vocab_size=40, **sizes)).eval()
    lab, long = attach(bart, part="decoder"), torch.zeros(1, 41, dtype=torch.long)
    with pytest.raises(ValueError, match="have a position for each token of the source; got 41 tokens; shorten it"):
        lab.forward(Inputs(long[:, :3], source=long))


@pytest.mark.extended
def test_the_command_probes_the_decoder(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model.save_pretrained(tmp_path / "both")
    Bytes().save(tmp_path / "both")
    (tmp_path / "text").mkdir()
    for number in range(8):
        (tmp_path / "text" / f"{number}.txt").write_text("".join(f"{number} {line} words\n" for line in range(20)))
    words = ["probe", "both", "--text", "text", "--samples", "4", "--length", "16", "--probes", "positional_heads"]
    assert app([*words, "--part", "decoder", "--source", "a sentence"], result_action="return_value") == 0
    facts = json.loads((tmp_path / "runs" / "probe-both-decoder" / "subject.json").read_text())["about"]["facts"]
    assert (facts["kind"], facts["first_token"], facts["source_vocabulary"]) == ("decoder", 256, 257)
    with pytest.raises(ValueError, match="source: 'a sentence' -> 'another'"):
        app([*words, "--part", "decoder", "--source", "another"], result_action="return_value")
    with pytest.raises(ValueError, match="reads a source; got none; give --source"):
        app([*words, "--part", "decoder"], result_action="return_value")
    with pytest.raises(ValueError, match="a source is read by the decoder and the cross-attention; got one for both"):
        app([*words, "--source", "another"], result_action="return_value")
