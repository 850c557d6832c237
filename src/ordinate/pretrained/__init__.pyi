from . import hf as hf
from .generation_settings import read_generation_settings as read_generation_settings
from .verification.result import CheckResult as CheckResult
from .verification.result import Difference as Difference
from .verification.result import Verification as Verification
from .verification.verify import verify as verify
from .weights import load as load
from .weights import save as save
