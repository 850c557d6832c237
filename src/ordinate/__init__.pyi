from .attention import Explanation as Explanation
from .attention import attend as attend
from .attention import explain as explain
from .geometry import Geometry as Geometry
from .mixer import Mixer as Mixer
from .mixers.softmax import Softmax as Softmax
from .models.cache import Cache as Cache
from .models.decoder import Decoder as Decoder
from .models.decoder import Shape as Shape
from .models.generate import generate as generate
from .scheme import Placed as Placed
from .scheme import Scheme as Scheme
from .schemes.alibi import Alibi as Alibi
from .schemes.concatenated import Concatenated as Concatenated
from .schemes.learned import Learned as Learned
from .schemes.none import Unmarked as Unmarked
from .schemes.rope import Rope as Rope
from .schemes.scalar import Scalar as Scalar
from .schemes.sinusoidal import Sinusoidal as Sinusoidal
from .schemes.t5 import T5 as T5

__version__: str
