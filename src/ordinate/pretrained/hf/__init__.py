"""Ordinate as an attention implementation for Hugging Face transformers."""

from ordinate.pretrained.hf.register import NAME as NAME
from ordinate.pretrained.hf.register import register as register
from ordinate.pretrained.hf.register import use as use
