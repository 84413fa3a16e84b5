"""Looks in machine code for zeros that are read before they are there. Usage: check_machine_code.py ROOT [CUBIN ...]

CUDA 13.0's assembler once let an H200 read such a register too soon: `CS2R R10, SRZ` (a zero of 64 bits), then an
instruction that overwrites it under a predicate that is false, then a reader, five cycles after the zero. Elsewhere it
leaves seven or more. The reader then has what was in the register before, an address for example. Without CUBIN, the
sources of the folders kernels are compiled for every architecture below. Cycles are those that the instructions'
control codes say (an instruction's bits 105 to 108), in code without branches in between. Exits with 77, which ctest
calls skipped, where there is no nvcc or nvdisasm.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ARCHITECTURES = ("80", "86", "89", "90", "100", "120")
#: Cycles between a zero that is overwritten under a predicate and its reader: five were seen to fail.
FEWEST = 7
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,5})\*/\s+(.*?)\s*;\s+/\* (0x[0-9a-f]{16}) \*/")
UPPER_BITS = re.compile(r"/\* (0x[0-9a-f]{16}) \*/")
WARPGROUPS = re.compile(r'#include ".*(warpgroup|wide_tiles)')
ZERO = re.compile(r"CS2R R(\d+), SRZ")
STORES = ("ST", "RED", "BAR")
WIDE = re.compile(r"^(D|I2F\.F64|F2I\.\w*F64)|64|WIDE")
JUMPS = re.compile(r"\b(BRA|BRX|EXIT|BSYNC|CALL|RET)\b")


@dataclass
class Instruction:
    address: str
    text: str
    cycles: int  # until the next one is issued, at least

    @property
    def predicated(self) -> bool:
        return self.text.startswith("@")

    def operands(self) -> tuple[set[int], set[int]]:
        """Registers that are written and read; those of 64 bits with their second half."""
        body = re.sub(r"^@!?U?P\w+ ", "", self.text)
        name, _, rest = body.partition(" ")
        words = rest.split(", ")
        wide = bool(WIDE.search(name))
        if name.startswith(STORES):
            return set(), registers(rest, wide)
        return registers(words[0], wide=False), registers(", ".join(words[1:]), wide)


def registers(text: str, wide: bool) -> set[int]:
    found = {int(number) for number in re.findall(r"\bR(\d+)\b", text)}
    return found | {number + 1 for number in found} if wide else found


def tool(name: str) -> str | None:
    """The program of the path, of CUDA's folder or of triton, which torch's CUDA wheels bring."""
    spec = find_spec("triton")
    folders = [f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/bin"]
    if spec and spec.origin:
        folders.append(str(Path(spec.origin).parent / "backends/nvidia/bin"))
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))


def functions(listing: str) -> dict[str, list[Instruction | None]]:
    """The instructions of every kernel in what `nvdisasm -hex` prints; None where a jump may lead."""
    found: dict[str, list[Instruction | None]] = {}
    mine: list[Instruction | None] = []
    lines = listing.splitlines()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if begin := re.match(r"\s*\.section\s+\.text\.([^,\s]+)", line):
            mine = found.setdefault(begin[1], [])
        elif line.startswith(".L_"):
            mine.append(None)
        elif (one := INSTRUCTION.search(line)) and (upper := UPPER_BITS.search(after)):
            mine.append(Instruction(one[1], one[2], int(upper[1], 16) >> 41 & 15))
    return found


def early_reads(code: list[Instruction | None]) -> list[str]:
    """Readers of zeros that were overwritten under a predicate, fewer than FEWEST cycles after the zero."""
    found = []
    for place, first in enumerate(code):
        zero = ZERO.fullmatch(first.text) if first else None
        if not first or not zero:
            continue
        cycles, target, conditional = first.cycles, int(zero[1]), False
        for one in code[place + 1 :]:
            if one is None or cycles >= FEWEST or JUMPS.search(one.text):
                break
            written, read = one.operands()
            if conditional and target in read:
                found.append(f"{first.address} {first.text} -> {one.address} {one.text}: {cycles} cycles")
                break
            if target in written:
                if not one.predicated:
                    break
                conditional = True
            cycles += one.cycles
    return found


def findings(cubin: Path, disassembler: str) -> list[str]:
    done = subprocess.run([disassembler, "-c", "-hex", cubin], capture_output=True, text=True, check=True)
    return [
        f"{cubin.stem}, {name}: {what}" for name, code in functions(done.stdout).items() for what in early_reads(code)
    ]


def architectures_of(source: Path) -> tuple[str, ...]:
    """Warpgroups' instructions are Hopper's alone, under a name of their own."""
    return ("90a",) if WARPGROUPS.search(source.read_text()) else ARCHITECTURES


def compiled(source: Path, architecture: str, root: Path, folder: Path, nvcc: str) -> Path:
    target = folder / f"{source.stem}-sm_{architecture}.cubin"
    options = ["-std=c++17", f"-arch=sm_{architecture}", "-cubin", "-I", root / "src", "-o", target]
    subprocess.run([nvcc, *options, source], check=True)
    return target


def main() -> int:
    root, cubins = Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    nvcc, disassembler = tool("nvcc"), tool("nvdisasm")
    if disassembler is None or (nvcc is None and not cubins):
        print("skipped: no nvcc or nvdisasm on the path, in CUDA_HOME or beside triton")
        return 77
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        if not cubins:
            sources = sorted((root / "src").rglob("kernels/*.cu"))
            jobs = [(source, number) for source in sources for number in architectures_of(source)]
            cubins = list(pool.map(lambda job: compiled(*job, root, Path(name), nvcc), jobs))
        found = [line for lines in pool.map(lambda cubin: findings(cubin, disassembler), cubins) for line in lines]
    print(*found, f"{len(cubins)} files, {len(found)} findings", sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
