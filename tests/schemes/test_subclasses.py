"""Subclasses that override one hook: what they inherit beside it, a faster form of the old hook, is not used."""

from abc import abstractmethod

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.attention._attend import BACKENDS, _call
from ordinate.schemes import (
    T5,
    Alibi,
    Axial,
    Deberta,
    Fire,
    Fope,
    Kerple,
    Music,
    Rope,
    Sections,
    Shaw,
    Toeplitz,
    TransformerXl,
    Xpos,
)
from ordinate.schemes._composition import HeadGroups, Sum
from ordinate.schemes._fast_forms import encoders_of, log_bias_of, reach_of, slopes_of, vectors_of
from ordinate.schemes._scheme import Scheme
from ordinate.testing.assert_close import assert_max_close

TOKENS, HEADS, WIDTH = 150, 4, 12
WIDTHS = {"heads": HEADS, "head_width": WIDTH, "width": HEADS * WIDTH}
BIASED = {
    Alibi: {"heads": HEADS},
    T5: {"heads": HEADS},
    Kerple: {"heads": HEADS},
    Fire: {"heads": HEADS},
    Toeplitz: {"heads": HEADS, "max_length": TOKENS},
}
CONTENT = {
    Shaw: {"head_width": WIDTH},
    TransformerXl: WIDTHS,
    Deberta: WIDTHS,
    Music: {"head_width": WIDTH, "heads": HEADS, "max_length": TOKENS},
}
ROTATED = {
    Rope: {"head_width": WIDTH},
    Xpos: {"head_width": WIDTH},
    Fope: {"head_width": WIDTH, "heads": HEADS},
}


def by_position(bias, where):
    """A bias that is no longer a function of the offset."""
    return 3 * bias * (1 + where.q_pos[..., 0] / 50)[:, None, :, None]


def plain(scheme, q, k, v, where):
    """The formula of attention, from the hooks."""
    q, k = scheme.encode_query(q, where.q_pos), scheme.encode_key(k, where.k_pos)
    own = scheme.score(q, k, where)
    scores = (q @ k.mT if own is None else own) * WIDTH**-0.5
    for bias in (scheme.bias(where), scheme.content_bias(q, k, where)):
        scores = scores if bias is None else scores + bias
    weights = scores.masked_fill(~where.visible[:, None], -torch.inf).softmax(-1)
    carried = scheme.value_bias(weights, where)
    return weights @ v if carried is None else weights @ v + carried


def check(scheme, *, tokens=TOKENS):
    """Every backend that takes the scheme computes what its hooks say."""
    where = Geometry.causal(tokens)
    q, k, v = torch.randn(3, 2, HEADS, tokens, WIDTH, generator=torch.Generator().manual_seed(0)).unbind()
    exact = plain(scheme, q, k, v, where)
    assert_max_close(attend(q, k, v, scheme.at(where)), exact, 1e-4, "the backend that is chosen")
    for name, backend in BACKENDS.items():
        if backend.unsupported_reason(_call(q, k, v, scheme.at(where), None, 0.0, None)) is None:
            out = attend(q, k, v, scheme.at(where), backend=name)
            assert_max_close(out, exact, 1e-4, f"backend {name}")


@pytest.mark.parametrize("kind", BIASED, ids=lambda kind: kind.__name__)
def test_a_bias_of_ones_own_is_not_replaced_by_what_the_parent_declares(kind):
    class Own(kind):
        def bias(self, where):
            return by_position(super().bias(where), where)

    scheme, where = Own(**BIASED[kind]), Geometry.causal(4)
    assert slopes_of(scheme, where) is log_bias_of(scheme, where) is reach_of(scheme) is None
    assert scheme.at(where).offset_table is None
    check(scheme)
    check(Sum(scheme, Alibi(heads=HEADS)))


@pytest.mark.parametrize("kind", CONTENT, ids=lambda kind: kind.__name__)
def test_a_content_bias_of_ones_own_is_not_replaced_by_the_vectors_of_the_parent(kind):
    class Own(kind):
        def content_bias(self, q, k, where):
            return by_position(super().content_bias(q, k, where), where)

    scheme = Own(**CONTENT[kind])
    assert vectors_of(scheme, Geometry.causal(4)) is None
    check(scheme)
    check(Sum(scheme, Alibi(heads=HEADS)))


@pytest.mark.parametrize("hook", ["encode_query", "encode_key"])
@pytest.mark.parametrize("kind", ROTATED, ids=lambda kind: kind.__name__)
def test_an_encoding_of_ones_own_is_not_replaced_by_the_encoders_of_the_parent(kind, hook):
    parent = getattr(kind, hook)
    scheme = type("Own", (kind,), {hook: lambda self, x, pos: parent(self, x, pos) * (1 + pos.float()[:, None] / 9)})(
        **ROTATED[kind]
    )
    x, pos = torch.randn(1, HEADS, 5, WIDTH), Geometry.causal(5).q_pos
    for encode, exact in zip(encoders_of(scheme, pos), (scheme.encode_query, scheme.encode_key), strict=True):
        assert torch.equal(encode(x), exact(x, pos))
    check(scheme, tokens=40)
    check(Sum(scheme, Alibi(heads=HEADS)), tokens=40)
    with pytest.raises(ValueError, match="encodes queries and keys alike"):
        scheme(x)


@pytest.mark.parametrize("kind", [Axial, Sections], ids=lambda kind: kind.__name__)
def test_rotations_by_several_axes_too(kind):
    class Own(kind):
        def encode_query(self, q, pos):
            return super().encode_query(q, pos) * pos[:, None, :, :1]

    scheme, pos = Own(head_width=WIDTH), torch.randint(9, (1, 5, kind.axes[0]))
    x = torch.randn(1, HEADS, 5, WIDTH)
    of_q, of_k = encoders_of(scheme, pos)
    assert torch.equal(of_q(x), scheme.encode_query(x, pos))
    assert torch.equal(of_k(x), scheme.encode_key(x, pos))


def added(scheme, where):
    """A bias by position, for a class whose parent has none."""
    return by_position(where.offset[..., 0].float()[:, None].expand(-1, HEADS, -1, -1) / 99, where)


@pytest.mark.parametrize("kind", [*CONTENT, *ROTATED], ids=lambda kind: kind.__name__)
def test_a_hook_that_the_parent_leaves_unused_is_used(kind):
    scheme = type("Own", (kind,), {"bias": added})(**{**CONTENT, **ROTATED}[kind])
    assert set(scheme.hooks) == {"bias", *kind(**{**CONTENT, **ROTATED}[kind]).hooks}
    check(scheme)
    check(Sum(scheme, T5(heads=HEADS)))
    narrow = type("Own", (kind,), {"bias": lambda self, where: added(self, where)[:, :2]})
    if kind in (Shaw, Rope, Xpos):
        check(HeadGroups(narrow(**{**CONTENT, **ROTATED}[kind]), Alibi(heads=2), heads=HEADS))


def test_hooks_that_options_disable_are_used_if_overridden():
    class Scored(Kerple):
        def score(self, q, k, where):
            return 2 * (q @ k.mT)

    class Carried(Shaw):
        def value_bias(self, weights, where):
            return (weights * by_position(torch.ones(1), where)).sum(-1, keepdim=True).expand(-1, -1, -1, WIDTH)

    assert Scored(heads=HEADS).hooks == ("bias", "score")
    check(Scored(heads=HEADS))
    check(Carried(head_width=WIDTH, values=False))


def test_a_class_of_several_parents_is_read_in_the_order_of_inheritance():
    class Twice:
        def bias(self, where):
            return 2 * super().bias(where)

    class Own(Twice, Alibi):
        pass

    assert slopes_of(Own(heads=HEADS), Geometry.causal(4)) is None
    check(Own(heads=HEADS))


def test_what_the_class_itself_declares_is_used():
    class Steep(Alibi):
        shift_invariant = True

        def bias(self, where):
            return 2 * super().bias(where)

        def linear_bias(self, where):
            return 2 * super().linear_bias(where)

    class Far(T5):
        bias_reach = 128
        shift_invariant = True

        def bias(self, where):
            return 2 * super().bias(where)

    where = Geometry.causal(TOKENS)
    steep, far = Steep(heads=HEADS), Far(heads=HEADS)
    assert torch.equal(slopes_of(steep, where), 2 * Alibi(heads=HEADS).linear_bias(where))
    assert reach_of(far) == 128
    assert far.at(where).offset_table is not None
    check(steep)
    check(far)

    class Child(Steep):
        pass

    assert slopes_of(Child(heads=HEADS), where) is not None


def test_what_a_parent_declares_of_an_abstract_hook_it_declares_of_its_subclasses():
    class ByOffset(Scheme):
        shift_invariant = True
        bias_reach = 128

        @abstractmethod
        def bias(self, where):
            """A bias of the offset."""

    class Near(ByOffset):
        def bias(self, where):
            return -where.offset[..., 0][:, None].abs().clamp(max=5).float()

    class Marked(Near):
        def content_bias(self, q, k, where):
            return where.k_pos[..., 0][:, None, None].float()

    near = Near()
    assert near.at(Geometry.causal(TOKENS)).offset_table is not None
    assert reach_of(near) == 128
    check(near)
    # a hook that the parent has not left to others
    assert Marked().at(Geometry.causal(TOKENS)).offset_table is None
    check(Marked())


def test_subclasses_that_override_no_hook_keep_the_fast_forms():
    class Named(Alibi):
        """The same by another name."""

        def __init__(self, *, heads: int) -> None:
            super().__init__(heads=heads, min_slope_exponent=4.0)

    where = Geometry.causal(TOKENS)
    assert slopes_of(Named(heads=HEADS), where) is not None
    assert Named(heads=HEADS).at(where).offset_table is not None
    check(Named(heads=HEADS))
