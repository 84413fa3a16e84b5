"""Pages name what exists: relative links, their anchors, and paths of this tree. Usage: check_links.py ROOT

In markdown, a path is a word in backticks or in a code block that begins with one of the tree's folders. It may be
written as a pattern (`src/cpu/*.h`, `tests/{unit,gpu}`) or without the ending of its file (`src/cpu/interaction`);
words with a placeholder in capitals or angle brackets (`models/NAME.md`, `src/cpu/<op>.cpp`) stand for many and are
left alone, and so are paths that git ignores, which are outputs. In other files, pages under docs/ are looked for, and
in comments of C++, CUDA and Python all such paths.
Not read: CHANGELOG.md, which tells of the past, and the test of this check, which names what does not exist.
"""

import fnmatch
import re
import subprocess
import sys
from itertools import product
from pathlib import Path, PurePosixPath

NOT_READ = ("CHANGELOG.md", "tests/style/test_links.py")
FOLDERS = "src|tests|benchmarks|scripts|docs|lammps_plugin|models|examples"
LINK = re.compile(r"(?<!`)\[[^\]\[]*\]\(([^()\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
NAMED = re.compile(rf"(?<![\w./$}}-])(?:{FOLDERS})/[\w./*{{}},<>-]*")
SOURCE = re.compile(r"\.(?:h|cpp|cuh?|py)$")
COMMENT = re.compile(r"(?:^|\s)(?://+!?<?|#:?)(?:\s(.*))", re.MULTILINE)
PAGE = re.compile(r"(?<![\w./-])docs/[\w./-]+\.md")
PLACEHOLDER = re.compile(r"[<>]|(?<![A-Z])(?:NAME|MODEL|OUT)(?![A-Z])")
BRACES = re.compile(r"\{([^{}]*)\}")


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(text: str) -> set[str]:
    return {slug(line.lstrip("#")) for line in FENCE.sub("", text).splitlines() if line.startswith("#")}


def spelled_out(name: str) -> list[str]:
    """`a/{b,c}` as `a/b` and `a/c`."""
    parts = BRACES.split(name)
    choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(words) for words in product(*choices)]


class Tree:
    """The files and folders that git tracks."""

    def __init__(self, names: list[str]) -> None:
        folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
        self.files, self.all = names, {*names, *folders}
        self.stems = {str(PurePosixPath(name).with_suffix("")) for name in names}

    def has(self, name: str) -> bool:
        name = name.rstrip("/")
        if "*" in name:
            return any(fnmatch.fnmatchcase(known, name) for known in self.all)
        return name in self.all or name in self.stems


def ignored(root: Path, name: str) -> bool:
    """Whether git ignores the path: an output of a program."""
    return subprocess.run(["git", "-C", root, "check-ignore", "-q", name]).returncode == 0


def missing_paths(root: Path, tree: Tree, pieces: list[str]) -> set[str]:
    """The paths of this tree that the texts name and that do not exist."""
    words = {word.rstrip(".,") for piece in pieces for word in NAMED.findall(piece)}
    named = {w for word in words if not PLACEHOLDER.search(word) for w in spelled_out(word)}
    return {word for word in named if not tree.has(word) and not ignored(root, word)}


def problems(root: Path, names: list[str]) -> list[str]:
    tree, found = Tree(names), []
    for name in names:
        path = root / name
        if name in NOT_READ or not path.is_file() or path.is_symlink():
            continue
        data = path.read_bytes()
        if b"\0" in data[:8000]:
            continue
        text = data.decode(errors="replace")
        missing = {page for page in PAGE.findall(text) if not PLACEHOLDER.search(page) and not tree.has(page)}
        if SOURCE.search(name):
            missing |= missing_paths(root, tree, COMMENT.findall(text))
        if name.endswith(".md"):
            prose = FENCE.sub("", text)
            missing |= missing_paths(root, tree, FENCE.findall(text) + SPAN.findall(prose))
            for target in LINK.findall(prose):
                if re.match(r"[a-z]+:", target):
                    continue
                to, _, anchor = target.partition("#")
                full = (path.parent / to).resolve() if to else path.resolve()
                if not full.is_relative_to(root) or not tree.has(full.relative_to(root).as_posix()):
                    missing.add(target)
                elif anchor and anchor not in anchors(full.read_text()):
                    missing.add(target)
        found += [f"{name}: names {word}, which does not exist" for word in sorted(missing)]
    return found


def main() -> int:
    root = Path(sys.argv[1]).resolve()
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True)
    if listed.returncode != 0:
        print("not a git checkout: nothing to check")
        return 0
    bad = problems(root, [name for name in listed.stdout.decode().split("\0") if name])
    print("\n".join(bad) or "fine")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
