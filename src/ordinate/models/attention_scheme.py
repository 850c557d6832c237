"""The scheme of one attention module, given by name or as an instance."""

from ordinate.core.checks import need
from ordinate.core.tensors import need_size
from ordinate.schemes._scheme import Scheme
from ordinate.schemes._spec import SchemeSpec
from ordinate.schemes.none import NoPosition


def attention_scheme(scheme: str | Scheme | type[Scheme] | None, sizes: dict[str, int]) -> Scheme:
    """Return the scheme of one attention module of these sizes.

    Args:
        scheme: by name with options, as a class, or as an instance; None: no positions.
        sizes: width, heads and head width of the module, and its key heads if they are fewer.

    Raises:
        TypeError: neither of these.
        ValueError: an unknown name or option; a scheme for other sizes, or one that enters at the token embeddings.
    """
    if isinstance(scheme, str | type):
        sizes = {"kv_heads": sizes["heads"], **sizes, "layers": 1}
        scheme = SchemeSpec.of(scheme, sizes).build(sizes).schemes[0]
    scheme = NoPosition() if scheme is None else scheme
    if not isinstance(scheme, Scheme):
        came = type(scheme).__name__
        raise TypeError(f"scheme must be a name or a Scheme; got {came}; give for example 'rope:theta=500000'")
    need(
        "embed" not in scheme.hooks,
        "an attention module needs a scheme that acts inside attention",
        f"got {type(scheme).__name__}, which adds position embeddings to the tokens before the first layer",
        "apply it to the input instead, x = scheme.at(where).embed(x), and leave the scheme out here",
    )
    for size in ("heads", "head_width"):
        need_size("the attention", scheme, size, sizes[size])
    return scheme
