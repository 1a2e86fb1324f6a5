#!/usr/bin/env python3
"""Says which lines and branches of C files the tests that were run have reached, as gcc's gcov counted them.

Usage: python3 coverage.py BUILD FOLDER...     (BUILD: a folder of meson that was set up as docs/coverage.md says)
A row a file comes first, for that page; then each line that was not reached, with ##### before it, and each line with
a branch that was not: X for that branch, . for one that was.
"""
import glob
import json
import os
import subprocess
import sys


def lines_of(note, source):
    """The lines of `source` in one object: how often each ran, and how often each of its branches was taken."""
    out = subprocess.run(["gcov", "-b", "-j", "-t", note], capture_output=True, text=True, check=True).stdout
    lines = {}
    for file in json.loads(out)["files"] if out.strip() else []:
        if os.path.normpath(file["file"]).lstrip("./") != source:
            continue
        for line in file["lines"]:
            ran, taken = lines.setdefault(line["line_number"], [0, []])
            lines[line["line_number"]][0] = ran + line["count"]
            taken += [branch["count"] for branch in line["branches"]]
    return lines


def percent(counts):
    return "%.1f" % (100 * sum(n > 0 for n in counts) / len(counts)) if counts else "-"


def missed(source, lines):
    with open("../" + source, encoding="utf-8") as f:
        text = f.readlines()
    for number, (ran, taken) in sorted(lines.items()):
        if not ran or not all(taken):
            mark = "".join(".X"[not n] for n in taken) if ran else "#####"
            yield "%6d  %s  %s" % (number, mark, text[number - 1].rstrip())


def main(build, folders):
    sources = sorted(s for f in folders for s in glob.glob(f + "/*.c"))
    os.chdir(build)
    rest = []
    print("| file | lines | % | branches | % |\n|---|---|---|---|---|")
    for source in sources:
        for note in glob.glob("**/*" + os.path.basename(source) + ".gcno", recursive=True):
            lines = lines_of(note, source)
            branches = [n for _, taken in lines.values() for n in taken]
            if lines:
                row = (source, len(lines), percent([n for n, _ in lines.values()]), len(branches), percent(branches))
                print("| `%s` | %d | %s | %d | %s |" % row)
                rows = list(missed(source, lines))
                rest += [source] + rows if rows else []
    print("\n".join([""] + rest))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
