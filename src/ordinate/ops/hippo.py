"""HiPPO initialisation of state space models (S4, S4D)."""

import math
from typing import Literal

import torch
from jaxtyping import Complex
from torch import Tensor

Initialisation = Literal["lin", "inv", "legs", "real"]
Modes = Complex[Tensor, "m"]


def hippo_legs(states: int) -> tuple[Modes, Modes, Modes]:
    """HiPPO-LegS in diagonal plus low-rank form (rank 1); only one of each conjugate pair of modes is returned.

        A_nk = -sqrt((2n+1)(2k+1)) for n > k,  -(n+1) for n = k,  0 otherwise;   B_n = sqrt(2n+1)
        A = V (diag(a) - p p*) V*,   b = V* B,   p = V* P,   P_n = sqrt(n + 1/2)

    Args:
        states: rows of A, an even number.

    Returns:
        a, p and b, complex128, by increasing imaginary part of a.

    Source: Gu et al. 2020, HiPPO, https://arxiv.org/abs/2008.07669, equation 2; the form of Gu, Goel and Ré 2022, S4,
        https://arxiv.org/abs/2111.00396, appendix C.1.
    """
    odd = 2 * torch.arange(states, dtype=torch.float64) + 1
    p = torch.sqrt(odd / 2)
    lower = -torch.sqrt(odd[:, None] * odd).tril(-1)
    # A + p p^T = -1/2 + a skew-symmetric matrix S, whose imaginary eigenvalues come in pairs; -i S is Hermitian
    skew = (lower - lower.T) / 2
    turns, vectors = torch.linalg.eigh(torch.complex(torch.zeros_like(skew), -skew))
    half = vectors[:, states // 2 :].mH
    a = torch.complex(torch.full((states // 2,), -0.5, dtype=torch.float64), turns[states // 2 :])
    return a, half @ p.to(half.dtype), half @ odd.sqrt().to(half.dtype)


def initial_diagonal(states: int, kind: Initialisation) -> tuple[Modes, Modes]:
    """Initial diagonal state matrix and input vector of S4D; one of each conjugate pair of modes.

        lin:   -1/2 + i pi n
        inv:   -1/2 + i (N/pi) (N/(2n+1) - 1)
        legs:  the diagonal of HiPPO-LegS, without its part of rank one
        real:  -(n+1)

    Args:
        states: N, an even number; n = 0 .. N/2 - 1.
        kind: which initialisation.

    Source: Gu et al. 2022, S4D, https://arxiv.org/abs/2206.11893, section 4.
    """
    n = torch.arange(states // 2, dtype=torch.float64)
    ones = torch.ones_like(n, dtype=torch.complex128)
    if kind == "legs":
        a, _, b = hippo_legs(states)
        return a, b
    if kind == "real":
        return torch.complex(-(n + 1), torch.zeros_like(n)), ones
    turns = math.pi * n if kind == "lin" else states / math.pi * (states / (2 * n + 1) - 1)
    return torch.complex(torch.full_like(n, -0.5), turns), ones
