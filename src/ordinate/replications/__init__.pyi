from .replication import Replication as Replication
from .runner import replicate as replicate
