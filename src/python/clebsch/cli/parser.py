"""The parser of all commands. It is made for every call, completion included, so nothing heavy is imported here."""

from __future__ import annotations

import argparse
import os

from . import bench, check, compile, doctor, export, info, select
from .options import shared_options

_EPILOG = "exit status: 0 done, 1 failed, 2 wrong command line, 130 interrupted"


class _Version(argparse.Action):
    """The version is looked up when it is asked for: in an installed package that costs as much as all else here."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from ..version import __version__

        print(f"clebsch {__version__}")
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    """After parsing, options.run(options) is the command and returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="clebsch",
        description="NequIP, MACE and Allegro models for LAMMPS, ASE and C++: make, look at and test model files.",
        epilog=_EPILOG,
        parents=[shared_options()],
    )
    parser.set_defaults(debug=False, quiet=False)
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in (export, info, select, check, bench, compile, doctor):
        name = module.__name__.rpartition(".")[2]
        module.add_arguments(commands.add_parser(name, parents=[shared_options()], epilog=_EPILOG, **module.PARSER))
    return parser


def complete(parser: argparse.ArgumentParser) -> None:
    """Answers a shell that asks for completions, and exits; returns at once when none asks."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    try:
        import argcomplete
    except ImportError:
        return
    argcomplete.autocomplete(parser)
