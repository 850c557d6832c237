from ordinate.probing._probe import ProbeData
from ordinate.probing.measures.samples import ForwardBudget, observation_sample
from ordinate.replications.papers.kobayashi import mixing_less_weights, split_errors
from ordinate.replications.random_models import random_decoder, random_texts


def test_the_split_is_the_output_and_its_own_part_alone_is_not():
    error, without = split_errors(random_decoder(0), random_texts(0, 2, 9))
    assert error < 1e-5 < without


def test_random_weights_mix_less_than_the_attention_weights():
    """A causal decoder of random weights attends to others almost only, and hardly changes its stream."""
    model = random_decoder(0)
    texts = ProbeData(random_texts(0, 4, 16), None, "random", natural=False)
    gap = mixing_less_weights(model, observation_sample(model.info, texts, ForwardBudget(1)))
    assert gap is not None
    assert gap.shape == (4,)
    assert (gap < -0.1).all()
