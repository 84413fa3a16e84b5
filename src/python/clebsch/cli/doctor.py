"""clebsch doctor: what a run needs, and what is missing here."""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from .failure import FAILED
from .finding import FAIL, OK, Finding

PARSER = {
    "help": "look at what runs need: torch, libclebsch, GPU, LAMMPS and its plugin",
    "description": "Looks at the installation, one line each, with a remedy where something is not as it should be: "
    "ok; note (not needed, or it works with a drawback); FAIL (it is needed, or it is there and does not work). The "
    "exit status is 1 when a line says FAIL.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lammps", metavar="LMP", help="the LAMMPS program to look at (default: this environment's, or lmp)"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON list of check, status, found and remedy")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    findings = []
    for finding in _look(options.lammps):
        findings.append(finding)
        if not options.json:
            print(finding, flush=True)
    failed = sum(finding.status == FAIL for finding in findings)
    if options.json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=1))
    else:
        print(f"{failed} of {len(findings)} need attention" if failed else "what is needed is there")
    return FAILED if failed else 0


def _look(lammps: str | None) -> Iterator[Finding]:
    from .. import __version__
    from . import lammps_probe, library_findings

    package = Path(__file__).resolve().parents[1]
    yield Finding("Clebsch", OK, f"{__version__}, {package}, Python {platform.python_version()} ({sys.executable})")
    yield from library_findings.look()
    yield from lammps_probe.look(lammps)
