"""Tolerances of a verification: multiples of rounding errors that are measured on the checkpoint itself."""

from ordinate.models.shape import Shape
from ordinate.pretrained.verification.outputs import Results, difference
from ordinate.schemes._scheme import Scheme
from ordinate.schemes.rope import Rope

# two libraries add the same numbers in different orders: each has a rounding error of its own
FLOAT32_FACTOR = 4
# of gradients, which pass through every layer twice
GRADIENT_FACTOR = 8
# a measured error may be small by chance
FLOAT32_FLOOR = 2.0**-21
BFLOAT16_FACTOR = 2
BFLOAT16_FLOOR = 2.0**-8
# an angle is position times rate: both the rate and the product are rounded
ANGLE_FACTOR = 2
FLOAT32_ROUNDING = 2.0**-24


def measured_rounding(out: Results, exact: Results) -> float:
    """Return the rounding error of results, given those in a wider type."""
    return max(difference("", out[name], exact[name]).error for name in out)


def angle_rounding(shape: Shape, last_position: int) -> float:
    """Return by how much a RoPE angle at a position is rounded in float32; 0 without RoPE [radians].

    It is not part of the measured rounding error: transformers computes angles in float32 in any dtype.
    """
    schemes: list[Scheme] = list(shape.make_schemes().schemes)
    return last_position * FLOAT32_ROUNDING if any(isinstance(scheme, Rope) for scheme in schemes) else 0.0


def float32_tolerance(rounding: float, angle: float, factor: int = FLOAT32_FACTOR) -> tuple[float, str]:
    """Return the tolerance of a check in float32, and how it was found."""
    basis = f"{factor} x {rounding:.1e}, the error of transformers in float32 against float64, + {FLOAT32_FLOOR:.1e}"
    if angle:
        basis += f" + {ANGLE_FACTOR} x {angle:.1e}, the rounding of angles"
    return factor * rounding + FLOAT32_FLOOR + ANGLE_FACTOR * angle, basis


def bfloat16_tolerance(rounding: float) -> tuple[float, str]:
    """Return the tolerance of a check in bfloat16, and how it was found."""
    basis = f"{BFLOAT16_FACTOR} x {rounding:.1e}, the error of transformers in bfloat16, + {BFLOAT16_FLOOR:.1e}"
    return BFLOAT16_FACTOR * rounding + BFLOAT16_FLOOR, basis
