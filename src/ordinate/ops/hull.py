"""Whether points are means of others: how far outside their convex hull they surely are."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def beyond(
    points: Float[Tensor, "*b n d"],
    vertices: Float[Tensor, "*b m d"],
    allowed: Bool[Tensor, "*b n m"],
    steps: int = 60,
) -> Float[Tensor, "*b n"]:
    """A distance from the hull of the vertices that a point surely has; 0 where none can be shown.

        max over x of (u . p - max over j of u . v_j) / |u|,    u = p - x

    Where some direction u separates a point from all vertices, it is no mean of them. Directions are those in which
    the conditional-gradient method looks, while x comes nearer to the point inside the hull.

    Args:
        points: p.
        vertices: v, the same for all points.
        allowed: which of them each point may be made of, one or more.
        steps: how many directions are tried.
    Source: Frank and Wolfe 1956; Gilbert 1966, SIAM Journal on Control 4:61.
    """
    total = allowed.to(points)
    x = total @ vertices / total.sum(-1, keepdim=True)
    found = torch.zeros_like(points[..., 0])
    # a direction shorter than this is rounding
    least = 1e-9 * vertices.norm(dim=-1).amax(-1)[..., None]
    for _ in range(steps):
        away = points - x
        along, place = (away @ vertices.mT).masked_fill(~allowed, -torch.inf).max(-1)
        apart = ((away * points).sum(-1) - along) / away.norm(dim=-1).clamp(min=least)
        found = torch.maximum(found, apart)
        step = vertices.gather(-2, place[..., None].expand_as(points)) - x
        size = (away * step).sum(-1) / step.square().sum(-1).clamp(min=1e-300)
        x = x + size.clamp(0, 1)[..., None] * step
    return found
