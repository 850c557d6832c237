"""`python -m ordinate`: the command line.

The package's `__init__` has removed the current folder from the path, before any other import.
"""

from ordinate.cli.main import main

if __name__ == "__main__":
    main()
