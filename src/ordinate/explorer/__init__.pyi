from .notebook import NotebookPanel as NotebookPanel
from .notebook import panel as panel
