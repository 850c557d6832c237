"""Falcon-Mamba."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained.mamba_like import MambaLike

NORM_EPS = "mixer_rms_eps"
"""The key of the epsilon of the norms in mixers."""


class FalconMamba(MambaLike):
    """Falcon-Mamba: Mamba with RMS norms without weights of the numbers of step sizes, of B and of C.

    Source: Zuo et al. 2024, Falcon Mamba, https://arxiv.org/abs/2410.05355.
    """

    model_type = "falcon_mamba"
    base_class = "FalconMambaModel"
    causal_lm_class = "FalconMambaForCausalLM"
    norm = "plain"
    norm_eps_key = NORM_EPS
    defaults: ClassVar[Mapping[str, Any]] = {**MambaLike.usual, NORM_EPS: 1e-6}
