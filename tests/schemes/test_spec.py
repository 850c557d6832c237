import pytest
import torch

from ordinate import Decoder, Shape
from ordinate.models.cache import Cache
from ordinate.schemes import Rope
from ordinate.schemes._spec import SchemeSpec
from ordinate.schemes.alibi import Alibi
from ordinate.schemes.learned import Learned
from ordinate.schemes.none import NoPosition

SIZES = {
    "width": 16,
    "layers": 4,
    "heads": 4,
    "kv_heads": None,
    "head_width": 4,
    "max_length": 32,
    "scale": 0.02,
    "dropout": 0.0,
}
SMALL = {"vocabulary": 11, "width": 16, "layers": 4, "heads": 4, "max_length": 32}


def read(text, **sizes):
    return SchemeSpec(text).build(SIZES | sizes)


def kinds(recipe):
    return [type(recipe.schemes[place]).__name__ for place in recipe.scheme_of_layer]


def test_one_scheme_is_shared_by_all_layers():
    recipe = read("rope:theta=1e+5,layout=interleaved")
    assert len(recipe.schemes) == 1
    assert (recipe.scheme_of_layer, recipe.schemes[0].theta, recipe.schemes[0].layout) == (
        [0] * 4,
        1e5,
        "interleaved",
    )


def test_a_list_gives_a_scheme_for_each_layer_in_order():
    recipe = read("rope:theta=5e5,rotary_dim=2,rope,alibi,none")
    assert kinds(recipe) == ["Rope", "Rope", "Alibi", "NoPosition"]
    assert [scheme.rotary_dim for scheme in recipe.schemes[:2]] == [2, 4]
    assert read("rope,none").scheme_of_layer == [0, 1, 0, 1]
    assert read("rope,rope,rope,none").scheme_of_layer == [0, 0, 0, 1]


def test_heads_and_sums_nest():
    recipe = read("learned+rope/none+alibi")
    (scheme,) = recipe.schemes
    assert [type(part).__name__ for part in scheme.members] == ["Learned", "HeadGroups", "Alibi"]
    assert [type(part).__name__ for part in scheme.members[1].members] == ["Rope", "NoPosition"]
    assert read("alibi/alibi").schemes[0].members[0].heads == 2


def test_options_of_a_spectrum_come_after_a_dot():
    (scheme,) = read("rope:spectrum=yarn,spectrum.factor=4,spectrum.trained_length=128").schemes
    assert (scheme.spectrum.factor, scheme.spectrum.trained_length) == (4.0, 128)
    line = "rope:spectrum=longrope,spectrum.short_factor=1;1,spectrum.long_factor=2;3"
    (scheme,) = read(line + ",spectrum.trained_length=8,spectrum.factor=4").schemes
    assert scheme.spectrum.long_factor == (2.0, 3.0)


def test_a_per_layer_scheme_gets_an_instance_for_each_layer():
    class Own(Rope):
        per_layer = True

    from ordinate.schemes import _spec as module

    plain = module._single
    try:
        module._single = lambda text, sizes: Own(head_width=4) if text == "own" else plain(text, sizes)
        assert read("own").scheme_of_layer == [0, 1, 2, 3]
        assert read("own,none").scheme_of_layer == [0, 1, 2, 1]
        later = read("learned+own")
        assert [type(scheme).__name__ for scheme in later.schemes] == ["Sum", "Own", "Own", "Own"]
    finally:
        module._single = plain


def test_schemes_that_embed_tokens_act_before_the_first_layer():
    assert kinds(read("learned,rope")) == ["Learned", "Rope", "Learned", "Rope"]
    assert kinds(read("learned+rope,learned+alibi")) == ["Sum", "Alibi", "Sum", "Alibi"]
    with pytest.raises(
        ValueError,
        match=r"must be listed for the first layer; got 'learned' for a later layer only; write learned\+rope",
    ):
        read("rope,learned")
    with pytest.raises(ValueError, match=r"got 'learned:scale=2.0' for a later layer only"):
        read("learned,learned:scale=2.0")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "rope,none,none",
            "list must divide the number of layers; got 3 entries for 4 layers; list 4 schemes, or a number",
        ),
        ("rope/none/none", "number of schemes must divide the number of heads; got 4 heads for 3 schemes"),
        ("rope+ropee", "no scheme is named 'ropee'; .* did you mean 'rope'"),
        ("rope:tetha=3,none", "did you mean 'theta'"),
        ("", "no scheme is named ''"),
        ("rope++none", "no scheme is named"),
        ("rope:spectrum=yran", "no spectrum is named 'yran'; .* did you mean 'yarn'"),
        ("rope:spectrum=linear", "Linear needs factor"),
        ("rope:spectrum.factor=2", "a spectrum is given by its name"),
    ],
)
def test_an_invalid_specification_raises_a_clear_error(text, says):
    with pytest.raises(ValueError, match=says):
        read(text)


def test_the_order_of_a_list_is_that_of_the_layers():
    # alibi in the last layer only: the slopes affect its output, but not that of the layers before
    torch.manual_seed(0)
    plan = Decoder(Shape(scheme="none,none,none,alibi", **SMALL))
    assert [type(plan.schemes[place]) for place in plan.scheme_of_layer] == [
        NoPosition,
        NoPosition,
        NoPosition,
        Alibi,
    ]
    torch.manual_seed(0)
    other = Decoder(Shape(scheme="alibi,none,none,none", **SMALL))
    for one, two in zip(plan.blocks.parameters(), other.blocks.parameters(), strict=True):
        assert one.equal(two)
    ids = torch.arange(9)[None]
    assert (plan(ids) - other(ids)).abs().max() > 1e-6


@pytest.mark.parametrize("text", ["learned+rope/none+alibi", "rope,rope,rope,none", "sinusoidal+t5/t5,rope+alibi"])
def test_a_composed_decoder_decodes_as_it_reads_and_can_be_saved(text, tmp_path):
    torch.manual_seed(0)
    model = Decoder(Shape(scheme=text, **SMALL)).double()
    ids = torch.randint(11, (2, 12), generator=torch.Generator().manual_seed(1))
    full, cache = model(ids), Cache()
    pieces = [model(piece, cache=cache) for piece in ids.split([1, 4, 1, 6], 1)]
    assert torch.allclose(torch.cat(pieces, 1), full, rtol=0, atol=1e-12)
    model.float().save_pretrained(tmp_path)
    again = Decoder.from_pretrained(tmp_path)
    assert again(ids).equal(model(ids))


def test_the_first_scheme_changes_positions_for_all_layers():
    class Twice(NoPosition):
        def remap_positions(self, where):
            from dataclasses import replace

            return replace(where, q_pos=2 * where.q_pos, k_pos=2 * where.k_pos)

    from ordinate.schemes._composition import Sum

    torch.manual_seed(0)
    model = Decoder(Shape(scheme="rope,alibi", **SMALL)).double()
    ids = torch.arange(9)[None]
    plain = model(ids)
    model.schemes[0] = Sum(Twice(), model.schemes[0])
    moved = model(ids)
    assert (moved - plain).abs().max() > 1e-6
    from ordinate import Geometry

    pos = 2 * torch.arange(9)[None, :, None]
    model.schemes[0] = Rope(head_width=4)
    assert torch.allclose(model(ids, Geometry.from_positions(pos)), moved, rtol=0, atol=1e-12)


def test_building_schemes_does_not_change_the_random_state():
    after = []
    for text in ("none", "learned", "learned+t5"):
        torch.manual_seed(0)
        read(text)
        after.append(torch.rand(3))
    assert after[0].equal(after[1])
    assert after[0].equal(after[2])
    assert isinstance(read("learned").schemes[0], Learned)
