"""The page of sanitizer_record.py: its table in Markdown, and what of a record a later run replaces."""

from __future__ import annotations

import collections

TOOLS = ("memcheck", "initcheck", "synccheck", "racecheck")

INTRO = """# Sanitizers on the GPU

What compute-sanitizer's tools say of every kernel that Clebsch launches, over `tests/gpu/test_small_models.py` and
`tests/gpu/test_small_multilinear.py`, with `PYTORCH_NO_CUDA_MEMORY_CACHING=1`, so that every array is an allocation
whose borders are watched. "clean (3 of 4)": four tests launch the kernel, three of them ended under the tool, and it
reported nothing of the kernel. Left out are initcheck's reports of torch's sum of the layers' edge gradients
(`EXPLAINED` in the script): these have room for more edges than there are, and nothing reads the rows behind the last
one. This page is written by `scripts/sanitizer_record.py record`; `scripts/gpu-tests run OUT sanitize` runs all tests
marked `sanitize`. Without a tool these tests run with memory of torch that is NaN until it is written.

"""


def reports(said: dict, kernel: str | None = None) -> int:
    """How often a tool reported something, of a kernel or in all."""
    return sum(one["times"] for one in said["findings"] if kernel in (None, one["kernel"]))


def first_findings(found: dict) -> dict[str, tuple[int, str]]:
    """Of each tool and kernel, how often it reported and the report that came most often."""
    times: dict[str, collections.Counter] = {}
    for name, said in found["tools"].items():
        for one in said["findings"]:
            who = f"{name}: {one['kernel'] or 'not ours'}"
            times.setdefault(who, collections.Counter())[one["what"]] += one["times"]
    # Where several came equally often, the longest text.
    return {who: (c.total(), max(c, key=lambda what: (c[what], len(what)))) for who, c in times.items()}


def failures(found: dict) -> list[str]:
    """A line for each failure of a test function: how many of its cases, under which tools, what it said."""
    same: dict[tuple[str, str], dict[str, int]] = {}
    runs = [(name, said["failed"]) for name, said in found["tools"].items()]
    for name, failed in [*runs, ("without a tool", found["failed_without_a_tool"])]:
        for one in failed:
            under = same.setdefault((one["test"].split("[")[0], one["text"][:200]), {})
            under[name] = under.get(name, 0) + 1
    return [
        f"{test}: {', '.join(f'{name} {count}' for name, count in under.items())} cases: {text}"
        for (test, text), under in same.items()
    ]


def page(found: dict) -> str:
    """The table of a run, in Markdown."""
    versions = [f"driver {found['driver']}", f"torch {found['torch']}", found["sanitizer"], f"commit {found['commit']}"]
    where = ", ".join([found["machine"], *versions, found["date"]])
    earlier = f" {found['earlier']}." if "earlier" in found else ""
    out = [f"{where}: `{found['command']}`. {found['tests']} tests.{earlier}", ""]
    out += [f"| kernel | op | {' | '.join(TOOLS)} |", "|---|---|" + "---|" * len(TOOLS)]
    for kernel, row in found["kernels"].items():
        out.append(f"| `{kernel}` | {row['op']} | {' | '.join(row[tool] for tool in TOOLS)} |")
    missed = ", ".join(f"`{name}`" for name in found["not_reached"]) or "none"
    if not found["launches_known"]:
        missed = "not known: torch's profiler named no kernel"
    out += ["", f"Kernels that no test launched: {missed}.", ""]
    out += [f"| tool | tests finished of {found['tests']} | failed | reports | seconds |", "|---|---|---|---|---|"]
    for name, said in found["tools"].items():
        counts = f"{said['finished']} | {len(said['failed'])} | {reports(said)} | {said['seconds']:.0f}"
        out.append(f"| {name} | {counts} |")
    notes = [f"{who}: {count} reports, most often: {what}" for who, (count, what) in first_findings(found).items()]
    for key, what in (("problems", ""), ("again", ", whose tests then ran one by one")):
        notes += [f"{name}: {text}{what}" for name, said in found["tools"].items() for text in said.get(key, ())]
    notes += failures(found)
    if notes:
        out += ["", "Reported:", "", *[f"- {' '.join(note.split())}" for note in notes]]
    return "\n".join(out) + "\n"


def clean(found: dict) -> bool:
    said = found["tools"].values()
    whole = all(one["finished"] == found["tests"] and not one["findings"] and not one["problems"] for one in said)
    reached = found["launches_known"] and not found["not_reached"] and not found["failed_without_a_tool"]
    return whole and reached and len(found["tools"]) > 0


def merged(known: dict, found: dict) -> dict:
    """A run of some tools, or of some tests by all tools, in place of what was said of the same before.

    The other columns, or the rows of kernels that no test of the run launched, stay, and the page says of when.
    """
    tools, same = list(found["tools"]), found["tests"] == known["tests"]
    others = [name for name in known["tools"] if name not in tools]
    if not others and not same:
        kept = {name for name in found["not_reached"] if known["kernels"].get(name, {}).get("tests")}
        found["kernels"].update({name: known["kernels"][name] for name in kept})
        counts = ", ".join(f"{name} {said['finished']} tests, {reports(said)} reports"
                           for name, said in known["tools"].items())  # fmt: skip
        earlier = f"{len(kept)} kernels that these do not launch: commit {known['commit'][:9]}, {known['date']}, "
        earlier += f"{known['tests']} tests in all ({counts}, of all kernels)"
        left = [name for name in found["not_reached"] if name not in kept]
        return found | {"earlier": earlier, "not_reached": left}
    if not others or not same:
        return found
    for kernel, row in known["kernels"].items():
        row.update({tool: found["kernels"][kernel][tool] for tool in tools if kernel in found["kernels"]})
    earlier = f"{', '.join(others)}: commit {known['commit']}, {known['date']}"
    kept = {name: said for name, said in known["tools"].items() if name in others}
    return found | {"kernels": known["kernels"], "earlier": earlier, "tools": found["tools"] | kept}
