"""Weights quantised in the formats of files, by their definitions, and the numbers that they then stand for."""

import json
import math

import torch
from safetensors.torch import save_file


def e2m1(code):
    """The number of a code by the definition: sign, 2 bits of exponent with a bias of 1, 1 bit of mantissa."""
    sign, exponent, mantissa = -1.0 if code & 8 else 1.0, code >> 1 & 3, code & 1
    return sign * (mantissa / 2 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1))


def in_blocks(weight, rows, columns, kind=torch.float32):
    """Quantise a matrix in blocks; return numbers, scales, and the weights that they stand for."""
    grid = torch.empty(-(-weight.shape[0] // rows), -(-weight.shape[1] // columns))
    codes, exact = weight.to(torch.float8_e4m3fn), weight.clone()
    for i in range(grid.shape[0]):
        for j in range(grid.shape[1]):
            place = slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns)
            grid[i, j] = (weight[place].abs().max() / 448).to(kind).float()
            if kind == torch.float8_e8m0fnu:
                grid[i, j] = 2.0 ** math.ceil(math.log2(weight[place].abs().max() / 448))
            codes[place] = (weight[place] / grid[i, j]).to(torch.float8_e4m3fn)
            exact[place] = codes[place].float() * grid[i, j]
    return codes, grid.to(kind), exact


def in_fp8(tensors, rows, columns, end="_scale_inv", kind=torch.float32):
    """Quantise all projections; return the tensors of the file, and the weights that they stand for."""
    stored, exact = {}, {}
    for name, tensor in tensors.items():
        stored[name] = exact[name] = tensor
        if "_proj" in name and tensor.ndim == 2:
            sides = (rows or len(tensor), columns or tensor.shape[1])
            stored[name], stored[name + end], exact[name] = in_blocks(tensor, *sides, kind)
    return stored, exact


def in_mxfp4(tensors):
    """Quantise the experts; return the tensors of the file, and the weights that they stand for."""
    stored, exact = {}, {}
    values = torch.tensor([e2m1(code) for code in range(16)])
    for name, tensor in tensors.items():
        stored[name] = exact[name] = tensor
        if name.endswith(("gate_up_proj", "down_proj")):
            del stored[name]
            blocks = tensor.mT.unflatten(-1, (-1, 32))
            exponent = (blocks.abs().amax(-1) / 6).log2().ceil()
            codes = (blocks / exponent.exp2()[..., None] - values[:, None, None, None, None]).abs().argmin(0)
            stored[name + "_blocks"] = (codes[..., 0::2] + 16 * codes[..., 1::2]).byte()
            stored[name + "_scales"] = (exponent + 127).byte()
            exact[name] = (values[codes] * exponent.exp2()[..., None]).flatten(-2).mT.contiguous()
    return stored, exact


def put(folder, stored, quantisation):
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": quantisation}
    (folder / "config.json").write_text(json.dumps(config))
