"""check_links.py on a small tree: what exists passes, what does not is named."""

import subprocess
from pathlib import Path

import pytest
from check_links import problems

TREE = {
    "docs/page.md": "# One page\n\n## Its part: `x`\n",
    "docs/deep/other.md": "# Other\n",
    "src/cpu/interaction.cpp": "// docs/page.md\n",
    "src/cpu/interaction.h": "",
    "README.md": "",
}


def found(tmp_path: Path, text: str, name: str = "README.md") -> list[str]:
    """What the check says of one file with this text in the tree above; without the file's own name."""
    for path, content in (TREE | {name: text}).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("/docs/made.png\n")
    names = sorted({*TREE, name})
    return [line.split(" names ")[1].removesuffix(", which does not exist") for line in problems(tmp_path, names)]


@pytest.mark.parametrize(
    "text",
    [
        "[a](docs/page.md), [b](docs/page.md#its-part-x), [c](#top)\n# Top\n[d](https://example.org/x.md)",
        "`src/cpu/interaction`, `src/cpu/interaction.*`, `src/cpu/interaction.{cpp,h}`, `src/cpu/`, `docs`",
        "`src/cpu/<op>.cpp`, `docs/NAME.md`, `docs/made.png`, `/usr/src/x.h`, `build/src/x.h`",
        "```\ncat src/cpu/interaction.cpp docs/NAME.md\n```",
    ],
)
def test_what_exists(tmp_path, text):
    assert found(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[a](docs/gone.md)", ["docs/gone.md"]),
        ("[a](docs/page.md#no-part)", ["docs/page.md#no-part"]),
        ("[a](../outside.md)", ["../outside.md"]),
        ("run `src/cpu/gone.cpp --fast`", ["src/cpu/gone.cpp"]),
        ("`src/cpu/interaction.{cpp,cu}`", ["src/cpu/interaction.cu"]),
        ("`src/gpu/*.cpp`", ["src/gpu/*.cpp"]),
        ("```\nsh scripts/gone\n```", ["scripts/gone"]),
    ],
)
def test_what_does_not(tmp_path, text, named):
    assert found(tmp_path, text) == named


def test_links_are_relative_to_their_page(tmp_path):
    assert found(tmp_path, "[a](../page.md) [b](page.md)", "docs/deep/other.md") == ["page.md"]


@pytest.mark.parametrize("comment", ["// see {}\n", "int x = 0;  ///< as {} says\n", "/// A.\n/// B ({}).\n"])
def test_paths_named_in_comments(tmp_path, comment):
    assert found(tmp_path, comment.format("tests/unit/gone_test.cpp"), "src/cpu/interaction.cpp") == [
        "tests/unit/gone_test.cpp"
    ]
    assert found(tmp_path, comment.format("src/cpu/interaction.h"), "src/cpu/interaction.cpp") == []
    assert found(tmp_path, 'const char* name = "src/cpu/gone.h";\n', "src/cpu/interaction.cpp") == []


def test_pages_named_in_sources(tmp_path):
    assert found(tmp_path, "// see docs/gone.md\n", "src/cpu/interaction.cpp") == ["docs/gone.md"]
