"""Ordinate's attention inside models of transformers."""

from ordinate.hf.register import NAME as NAME
from ordinate.hf.register import register as register
from ordinate.hf.register import use as use
