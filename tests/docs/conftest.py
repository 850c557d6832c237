import sys
from pathlib import Path

# the scripts that write pages import each other
sys.path.insert(0, str(Path(__file__).parents[2] / ".ci"))
