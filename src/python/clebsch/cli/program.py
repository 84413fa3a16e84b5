"""main(): reads the command line, runs a command, and turns what went wrong into a message and an exit status."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from .failure import FAILED, INTERRUPTED, message
from .other_python import run_elsewhere, runs_elsewhere
from .parser import complete, make_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 failed (said in one message on stderr), 2 a wrong command line, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = make_parser()
    complete(parser)
    options = parser.parse_args(arguments)
    try:
        if runs_elsewhere(options):
            return run_elsewhere(options.python, arguments)
        status = options.run(options)
        sys.stdout.flush()  # a full disk or a closed pipe shows here, not after the interpreter has ended
        return status
    except BrokenPipeError:
        # The reader of our output (`| head`) has what it wanted. The interpreter flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        print("clebsch: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        print(f"clebsch: error: {message(error)}", file=sys.stderr)
        return FAILED
