from .batch import Batch as Batch
