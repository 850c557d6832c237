from . import hf as hf
from .weights import load as load
from .weights import save as save
