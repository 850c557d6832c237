from ._adapter import ModelAdapter as ModelAdapter
from ._attach import attach as attach
from ._probe import Probe as Probe
from .runner.api import probe as probe
from .runner.evaluate import evaluate as evaluate
