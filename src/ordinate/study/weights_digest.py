"""A digest of a model's weights, by which two trainings are compared to the bit."""

import hashlib

import torch
from torch import nn


def weights_digest(model: nn.Module) -> str:
    """Return the SHA-256 of all weights: names, dtypes, shapes and bytes, in the order of names.

    Unlike a digest of the file of weights, it does not depend on how a version of safetensors writes its header.
    """
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}\0".encode())
        # viewed as bytes: numpy has no bfloat16
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
