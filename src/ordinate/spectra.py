"""The public names of `ordinate.schemes.spectra`: RoPE frequency spectra."""

from ordinate.schemes.spectra import *  # noqa: F403
