# PYTHON_ARGCOMPLETE_OK
"""The command line: clebsch export | info | select | check | bench | compile | doctor (docs/cli.md).

Nothing here imports torch before a command needs it: --version, --help, completion and wrong command lines answer at
once. A command is a module with add_arguments(parser) and run(options), which imports what it works with.
"""

from .program import main

__all__ = ["main"]
