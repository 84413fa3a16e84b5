#!/usr/bin/env python3
"""A LAMMPS source tree with only some of its styles, for a build that takes a few minutes.

usage: scripts/lammps_subset.py SOURCE FOLDER STYLE ...

SOURCE is a LAMMPS source tree (src/, cmake/). FOLDER becomes the like with links to those files of it that a build
needs: all of src/ that is no style, the styles asked for, what these include, and of KOKKOS what its CMake file always
compiles and the Kokkos variants of the styles. LAMMPS's own CMake goes by the files that it finds, so it builds that
tree unchanged. STYLE is written as in LAMMPS's headers, such as PairStyle:lj/cut; a whole kind is NPairStyle:*.
Prints how many sources there are; exits 1 when SOURCE lacks a style.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

#: Of src/, beside KOKKOS: those of the tests' styles. LAMMPS's CMake builds what of them it is told to (PKG_...).
PACKAGES = ("PLUGIN", "MC", "MOLECULE")
STYLE = re.compile(r"^\s*(\w+Style)\(([^,()]+),\s*(\w+)", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


class Tree:
    """Headers and sources of a LAMMPS source tree, by name without folder."""

    def __init__(self, source: Path):
        self.files: dict[str, Path] = {}
        for folder in (source / "src", source / "src/KOKKOS", *(source / "src" / name for name in PACKAGES)):
            for path in sorted(folder.glob("*.h")) + sorted(folder.glob("*.cpp")):
                self.files.setdefault(path.name, path)
        self.texts = {name: path.read_text(errors="replace") for name, path in self.files.items()}
        self.styles: dict[str, set[str]] = {}
        self.classes: dict[str, str] = {}  # class -> the header that declares it as a style
        for name, text in self.texts.items():
            for kind, style, class_name in STYLE.findall(text) if name.endswith(".h") else ():
                self.styles.setdefault(name, set()).add(f"{kind}:{style.strip()}")
                self.classes[class_name] = name
        cmake = (source / "cmake/Modules/Packages/KOKKOS.cmake").read_text()
        first = re.search(r"set\(KOKKOS_PKG_SOURCES\s(.*?)\)", cmake, re.DOTALL)
        self.kokkos = re.findall(r"/(\w+)\.cpp", first[1]) if first else []

    def wanted(self, header: str, styles: set[str]) -> bool:
        """Whether a header declares one of the styles or the Kokkos variant of one."""
        plain = self.styles.get(header.replace("_kokkos.h", ".h"), set())
        return any(style in styles or style.split(":")[0] + ":*" in styles for style in plain)

    def needed(self, styles: set[str]) -> set[str]:
        """The styles' files, those that are no style, and what all of these include."""
        todo = [f"{stem}.{ending}" for stem in self.kokkos for ending in ("h", "cpp")]
        for name, path in self.files.items():
            header = name.removesuffix(".cpp") + ".h" if name.endswith(".cpp") else name
            if not self.styles.get(header):
                if path.parent.name != "KOKKOS":
                    todo.append(name)
            elif self.wanted(header, styles):
                todo.append(name)
        found: set[str] = set()
        while todo:
            name = todo.pop()
            if name in found or name not in self.files:
                continue
            found.add(name)
            for header in self.used(name):
                todo += [header, header.removesuffix(".h") + ".cpp"]
        return found

    def used(self, name: str) -> list[str]:
        """What a file includes, by itself or in the list of all styles of a kind that LAMMPS's CMake makes."""
        headers = INCLUDE.findall(self.texts[name])
        if any(header.startswith("style_") for header in headers):
            words = set(re.findall(r"\w+", self.texts[name]))
            headers += [self.classes[word] for word in sorted(words) if word in self.classes]
        return headers


def main() -> int:
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    source, folder, styles = Path(sys.argv[1]).resolve(), Path(sys.argv[2]), set(sys.argv[3:])
    tree = Tree(source)
    there = set().union(*tree.styles.values())
    missing = sorted(style for style in styles if not style.endswith(":*") and style not in there)
    if missing:
        print(f"{source}: expected the styles {', '.join(sorted(styles))}, found none of {', '.join(missing)}")
        return 1
    needed = tree.needed(styles)
    for name in sorted(needed):
        link = folder / tree.files[name].relative_to(source)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(tree.files[name])
    for name in ("cmake", "third_party", "unittest", "LICENSE", "src/fmt", "src/nlohmann"):
        if (source / name).exists():
            (folder / name).symlink_to(source / name)
    sources = sum(name.endswith(".cpp") for name in needed)
    print(f"{sources} of {sum(name.endswith('.cpp') for name in tree.files)} sources in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
