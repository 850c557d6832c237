from .finding import Finding as Finding
from .geometry import Geometry as Geometry
from .sequence_shard import SequenceShard as SequenceShard
