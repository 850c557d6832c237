from ._spectrum import Spectrum as Spectrum
from .dynamic import Dynamic as Dynamic
from .linear import Linear as Linear
from .llama3 import Llama3 as Llama3
from .longrope import LongRope as LongRope
from .ntk import Ntk as Ntk
from .proportional import Proportional as Proportional
from .yarn import Yarn as Yarn
