"""Compiles the plugin's sources, syntax only, against another LAMMPS release's headers.

Usage: compile_next_lammps.py BUILD_FOLDER LAMMPS_SOURCE_DIR NEXT_LAMMPS_SOURCE_DIR

Takes the compiler command of each plugin source from the build's compile_commands.json and swaps
the include folder, so flags and warnings are those of the real build. Exit status 77: no headers
to compile against (ctest reports the test as skipped).
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path


def swap(command: str, old: Path, new: Path) -> list[str]:
    words = shlex.split(command)
    if Path(words[0]).name == "ccache":
        words = words[1:]
    result, skip = [], False
    for word in words:
        if skip or word == "-o":
            skip = not skip
        else:
            result.append(word.replace(str(old.resolve()), str(new)).replace(str(old), str(new)))
    return [*result, "-fsyntax-only"]


def main() -> int:
    build, old, new = (Path(a) for a in sys.argv[1:4])
    if not (new / "src" / "version.h").is_file():
        print(f"no LAMMPS source in {new}")
        return 77
    commands = json.loads((build / "compile_commands.json").read_text())
    # A source may be built more than once, for a test without LAMMPS too: the command that names LAMMPS counts.
    plugin: dict[str, tuple[list[str], str] | None] = {}
    for entry in commands:
        if "/lammps_plugin/" in entry["file"]:
            words = swap(entry["command"], old, new.resolve())
            swapped = any(str(new.resolve()) in word for word in words)
            plugin[entry["file"]] = (words, entry["directory"]) if swapped else plugin.get(entry["file"])
    if not plugin:
        print("expected sources of lammps_plugin/ in compile_commands.json, got none")
        return 1
    failed = 0
    for file, command in plugin.items():
        if command is None:
            print(f"{file}: its command does not name {old}, so nothing was swapped")
            return 1
        print("compiling", file)
        failed += subprocess.run(command[0], cwd=command[1]).returncode != 0
    release = (new / "src" / "version.h").read_text().split('"')[1]
    print(f"{len(plugin) - failed} of {len(plugin)} files compile against LAMMPS {release}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
