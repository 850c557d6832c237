from ._attend import Explanation as Explanation
from ._attend import attend as attend
from ._attend import attend_encoded as attend_encoded
from ._attend import attend_with_lse as attend_with_lse
from ._attend import attend_with_weights as attend_with_weights
from ._attend import explain as explain
from ._backend import ScoreOptions as ScoreOptions
