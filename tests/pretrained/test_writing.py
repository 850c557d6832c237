"""What encoder-decoders write: token for token what transformers writes with the same weights."""

import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ordinate import Geometry
from ordinate.models._translate import translate
from ordinate.models.beam import beam_search
from ordinate.pretrained.weights import load

pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).with_name("families.py")))
CASES, theirs = FAMILIES["ENCODER_DECODERS"], FAMILIES["theirs"]
SOURCE = torch.randint(2, 28, (3, 9), generator=torch.Generator().manual_seed(9))
REAL = torch.arange(9) < torch.tensor([[9], [6], [4]])
COUNT = 8


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Both models of each case."""
    made = {}

    def pair(name):
        if name not in made:
            folder, other = tmp_path_factory.mktemp("checkpoint"), theirs(name)
            other.save_pretrained(folder)
            made[name] = load(folder), other
        return made[name]

    return pair


def ending(model, end):
    """The model, with another token that ends what it writes."""
    model.shape = replace(model.shape, end=end)
    return model, model.encode_source(SOURCE, Geometry.padded(REAL, causal=False))


def generated(other, end, **told):
    mask = REAL.long()
    return other.generate(
        SOURCE, attention_mask=mask, max_new_tokens=COUNT, do_sample=False, eos_token_id=end, **told
    )


def same(mine, expected, end):
    """Whether two texts are one, up to their end; what fills up behind it is no text."""
    texts = [row.tolist() for row in (mine, expected)]
    cut = [text[: text.index(end) + 1] if end in text else text for text in texts]
    assert cut[0] == cut[1]


def common(model):
    """Tokens that it likes to write, the commonest first."""
    memory = model.encode_source(SOURCE, Geometry.padded(REAL, causal=False))
    found = beam_search(model, memory, COUNT, beams=4).ids.flatten().bincount()
    return found.argsort(descending=True)[:1].tolist()


@pytest.mark.covering(0)
@pytest.mark.parametrize("name", CASES)
def test_greedy_writing_is_that_of_transformers(name, pairs):
    model, other = pairs(name)
    for end in (1, *common(model)):
        model, memory = ending(model, end)
        mine, expected = translate(model, memory, COUNT), generated(other, end)[:, 1:]
        assert mine.shape == expected.shape
        for row in range(3):
            same(mine[row], expected[row], end)


@pytest.mark.extended
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("penalty", [0.6, 1.0, 2.0])
def test_the_beams_are_those_of_transformers(name, penalty, pairs):
    model, other = pairs(name)
    for end, early in ((1, False), *((end, penalty < 1) for end in common(model))):
        model, memory = ending(model, end)
        found = beam_search(model, memory, COUNT, beams=4, length_penalty=penalty, early_stopping=early)
        expected = generated(
            other,
            end,
            num_beams=4,
            num_return_sequences=4,
            length_penalty=penalty,
            early_stopping=early,
            return_dict_in_generate=True,
            output_scores=True,
        )
        assert torch.allclose(found.scores.flatten(), expected.sequences_scores, atol=1e-5)
        for row, text in enumerate(found.ids.flatten(0, 1)):
            same(text, expected.sequences[row, 1:], end)
