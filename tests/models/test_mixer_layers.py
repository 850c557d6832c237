"""Layers whose mixer and scheme do not fit are refused when the model is built."""

import pytest
import torch

from ordinate import Decoder, EncoderDecoder, EncoderDecoderShape, Shape

SIZES = {"vocabulary": 11, "width": 32, "layers": 2, "heads": 4}


@pytest.mark.parametrize("mixer", ["linear", "retnet", "performer:features=4", "reformer"])
def test_a_scheme_for_other_heads_than_those_of_its_mixer_is_refused(mixer):
    heads = f"{mixer},heads=2" if ":" in mixer else f"{mixer}:heads=2"
    with pytest.raises(
        ValueError, match=r"built for the head_width of its mixer; got Rope for 8 and \w+ for 16 in .* 0"
    ):
        Decoder(Shape(**SIZES, scheme="rope", mixer=heads))
    # one that was built for them is used
    made = Decoder(Shape(**SIZES, scheme="rope:head_width=16", mixer=heads))
    assert made(torch.arange(5)[None]).isfinite().all()


def test_the_layer_is_named():
    with pytest.raises(
        ValueError, match="got Rope for 8 and LinearAttention for 16 in layer 1; leave heads and head_wi"
    ):
        Decoder(Shape(**SIZES, scheme="rope", mixer="softmax,linear:heads=2"))


def test_the_number_of_heads_counts_where_the_scheme_has_one():
    with pytest.raises(ValueError, match="built for the heads of its mixer; got Alibi for 4 and MergedQK for 2"):
        Decoder(Shape(**SIZES, scheme="alibi", mixer="merged_qk:heads=2"))


def test_schemes_of_cross_attention_are_checked_too():
    shape = EncoderDecoderShape(**SIZES, scheme="none", cross_scheme="alibi", cross_mixer="softmax:heads=2")
    with pytest.raises(
        ValueError, match="built for the heads of its mixer; got Alibi for 4 and Softmax for 2 in layer 0"
    ):
        EncoderDecoder(shape)


def test_a_mixer_may_encode_a_part_of_its_channels():
    shape = Shape(**SIZES, scheme="rope", mixer="latent:variant.content_width=6,variant.value_width=10")
    assert Decoder(shape).blocks[0].mixer.encoded_width == 8
