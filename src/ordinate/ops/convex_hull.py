"""Lower bounds on the distance of points from a convex hull (Frank-Wolfe)."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def hull_distance_bound(
    points: Float[Tensor, "*b n d"],
    vertices: Float[Tensor, "*b m d"],
    allowed: Bool[Tensor, "*b n m"],
    steps: int = 60,
) -> Float[Tensor, "*b n"]:
    """Return a certified lower bound on the distance of each point from the convex hull; 0 if none was found.

        max over x of (u . p - max over j of u . v_j) / |u|,    u = p - x

    A direction u that separates a point from all vertices proves that it is no convex combination of them. The
    directions are the residuals p - x of the conditional-gradient method, while x approaches p within the hull.

    Args:
        points: p.
        vertices: v, the same for all points.
        allowed: the vertices that span the hull of each point, one or more.
        steps: iterations, each of which tries one direction.
    Source: Frank and Wolfe 1956; Gilbert 1966, SIAM Journal on Control 4:61.
    """
    total = allowed.to(points)
    x = total @ vertices / total.sum(-1, keepdim=True)
    found = torch.zeros_like(points[..., 0])
    # a residual shorter than this is rounding error, and proves nothing
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
