from itertools import product

import pytest
import torch

from ordinate import Geometry
from ordinate.models._translate import translate
from ordinate.models.beam import beam_search
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.next_token_rules import NextTokenRules

SOURCE = torch.randint(0, 7, (2, 4), generator=torch.Generator().manual_seed(1))
START, END = 0, 1


def build(**choices):
    sizes = {"vocabulary": 7, "width": 16, "layers": 1, "heads": 2, "start": START, "end": END}
    torch.manual_seed(3)
    model = EncoderDecoder(EncoderDecoderShape(**sizes | choices)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return model


@torch.no_grad()
def test_a_score_is_the_mean_log_probability_of_its_text():
    model = build()
    found = beam_search(model, model.encode_source(SOURCE), 6, beams=3, length_penalty=1.0)
    for row, beam in product(range(2), range(3)):
        text = found.ids[row, beam].tolist()
        text = text[: text.index(END) + 1] if END in text else text
        said = model(SOURCE[row : row + 1], torch.tensor([[START, *text[:-1]]]))[0].log_softmax(-1)
        mean = said[torch.arange(len(text)), text].mean()
        assert torch.isclose(mean.float(), found.scores[row, beam], atol=1e-5)


def test_one_beam_is_greedy():
    model = build()
    memory = model.encode_source(SOURCE)
    greedy = translate(model, memory, 8)
    found = beam_search(model, memory, 8, beams=1).ids[:, 0]
    for row in range(2):
        text = greedy[row].tolist()
        length = text.index(END) + 1 if END in text else len(text)
        assert found[row, :length].tolist() == text[:length]


def test_greedy_takes_the_likeliest_and_stops_at_the_end():
    model = build()
    written = translate(model, model.encode_source(SOURCE), 8)
    for row in range(2):
        text = [START]
        while len(text) <= 8 and text[-1] != END:
            text.append(int(model(SOURCE[row : row + 1], torch.tensor([text]))[0, -1].argmax()))
        rest = written[row].tolist()
        assert rest[: len(text) - 1] == text[1:]
        assert set(rest[len(text) - 1 :]) <= {model.shape.padding}


def test_any_of_several_end_tokens_ends_a_text():
    free = build(end=())
    written = translate(free, free.encode_source(SOURCE), 8)
    # two texts with two ends, and another token that is no end and stands for padding
    ends = (int(written[0, 2]), int(written[1, 4]))
    assert free.shape.end_tokens == ()
    assert written.shape[1] == 8
    model = build(end=ends, padding=None)
    assert model.shape.end_token == ends[0] == model.shape.fill_token
    for row, found in enumerate(translate(model, model.encode_source(SOURCE), 8).tolist()):
        text = written[row].tolist()
        stop = next(place for place, token in enumerate(text) if token in ends) + 1
        assert found == text[:stop] + [ends[0]] * (len(found) - stop)
    beams = beam_search(model, model.encode_source(SOURCE), 8, beams=1).ids[:, 0].tolist()
    assert beams == translate(model, model.encode_source(SOURCE), 8).tolist()


def test_a_model_without_special_tokens_says_which_one_it_needs():
    model = build(start=None, end=(), padding=None)
    assert model.shape.fill_token == 0
    memory = model.encode_source(SOURCE)
    for write in (translate, beam_search):
        options = {"beams": 2} if write is beam_search else {}
        with pytest.raises(ValueError, match="needs the decoder start token of the model; it has none; give start"):
            write(model, memory, 3, **options)
    with pytest.raises(ValueError, match="needs the end-of-sequence token of the model; it has none; give end"):
        _ = model.shape.end_token


def test_what_must_not_be_written_is_not():
    first = translate(build(), build().encode_source(SOURCE), 8)
    banned = int(first[0, 0]) if int(first[0, 0]) != END else 5
    model = build(rules=NextTokenRules(suppress_tokens=(banned,)))
    memory = model.encode_source(SOURCE)
    drawn = translate(model, memory, 30, temperature=2.0, generator=torch.Generator().manual_seed(0))
    ended = (drawn == END).cumsum(1) - (drawn == END).long()
    assert not ((drawn == banned) & (ended == 0)).any()
    assert not (beam_search(model, memory, 4, beams=2).ids[:, 0, :1] == banned).any()


def test_a_text_that_has_ended_needs_no_token():
    rules = NextTokenRules(bad_words_ids=tuple((END, token) for token in range(7)))
    sources = torch.randint(0, 7, (16, 4), generator=torch.Generator().manual_seed(2))
    free, ruled = (
        translate(
            model, model.encode_source(sources), 12, temperature=2.0, generator=torch.Generator().manual_seed(0)
        )
        for model in (build(), build(rules=rules))
    )
    assert torch.equal(ruled, free)
    assert len(set((free == END).int().argmax(1).tolist())) > 3


@pytest.mark.parametrize("write", [translate, lambda *given: beam_search(*given, beams=2).ids[:, 0]])
def test_rules_that_read_the_source_leave_out_its_padding(write):
    model = build(rules=NextTokenRules(encoder_no_repeat_ngram_size=1), end=())
    for fill in (2, 3, 4, 5, 6):
        source = torch.tensor([[2, 3, fill, fill], [4, 5, 4, 6]])
        real = torch.tensor([[True, True, False, False], [True] * 4])
        together = write(model, model.encode_source(source, Geometry.padded(real, causal=False)), 6)
        for row, whole in zip(together, ([2, 3], [4, 5, 4, 6]), strict=True):
            assert not {*row.tolist()} & {*whole}
            assert torch.equal(write(model, model.encode_source(torch.tensor([whole])), 6)[0], row)


def test_a_text_that_reaches_the_greatest_length_may_have_to_end_there():
    model, free = build(rules=NextTokenRules(forced_eos_token_id=(END,))), build()
    memory, generator = model.encode_source(SOURCE), torch.Generator().manual_seed(0)
    for length in (1, 2, 5):
        drawn = translate(model, memory, length, temperature=2.0, generator=generator)
        assert (drawn == END).any(1).all()
        found = beam_search(model, memory, length, beams=3)
        assert (found.ids == END).any(2)[found.scores > -torch.inf].all()
    # the forced token has probability 1: as if the text had ended without it
    ids = beam_search(model, memory, 1, beams=1)
    assert torch.equal(ids.scores, torch.zeros_like(ids.scores))
    assert (translate(free, free.encode_source(SOURCE), 5) != END).all(1).any()


def test_scores_may_leave_out_suppressed_tokens():
    banned = tuple(place for place in range(3, 6) if place != END)
    model = build(rules=NextTokenRules(suppress_tokens=banned, renormalize_logits=True))
    some = beam_search(model, model.encode_source(SOURCE), 1, beams=1)
    logits = model.target_logits(torch.full((len(SOURCE), 1), model.shape.start_token), model.encode_source(SOURCE))
    logits[..., list(banned)] = -torch.inf
    torch.testing.assert_close(some.scores[:, 0], logits[:, -1].log_softmax(-1).amax(-1).float().detach())


def test_drawing_is_a_function_of_its_generator():
    model = build()
    memory = model.encode_source(SOURCE)
    one, same, other = (
        translate(model, memory, 20, temperature=1.0, generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert one.shape != other.shape or not torch.equal(one, other)


def test_nothing_is_dropped_while_writing_and_the_model_is_left_as_it_was():
    model = build(dropout=0.5)
    memory = model.encode_source(SOURCE)
    model.train()
    assert torch.equal(translate(model, memory, 6), translate(model, memory, 6))
    assert torch.equal(*(beam_search(model, memory, 4, beams=2).scores for _ in range(2)))
    assert model.training


@pytest.mark.parametrize(
    ("ask", "match"),
    [
        (lambda m, s: beam_search(m, s, 0), "max_new_tokens must be above zero"),
        (lambda m, s: beam_search(m, s, 4, beams=0), "beams must be above zero"),
        (
            lambda m, s: beam_search(m, s, 4, beams=4),
            "beams times 2 must be at most the vocabulary; got 4 beams for 7 tokens",
        ),
        (lambda m, s: beam_search(m, s, 4, beams=2, length_penalty=float("nan")), "length_penalty must be a finite"),
        (lambda m, s: translate(m, s, 0), "max_new_tokens must be above zero"),
        (lambda m, s: translate(m, s, 4, temperature=1.0), "sampling needs a generator"),
        (
            lambda m, s: translate(m, s, 4, top_k=3),
            "greedy decoding truncates nothing; got top_k",
        ),
    ],
)
def test_settings_without_a_meaning_are_refused(ask, match, untyped):
    model = build()
    with pytest.raises(ValueError, match=match):
        ask(model, model.encode_source(SOURCE))


def test_a_model_without_incremental_decoding_is_rejected():
    model = build(mixer="reformer:mode=chunk", scheme="none", source_mixer="softmax")
    memory = model.encode_source(SOURCE)
    with pytest.raises(ValueError, match="support incremental decoding; Reformer of this model does not"):
        translate(model, memory, 4)
    with pytest.raises(ValueError, match="support incremental decoding; Reformer of this model does not"):
        beam_search(model, memory, 4, beams=2)
