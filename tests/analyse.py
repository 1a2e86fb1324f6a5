#!/usr/bin/env python3
"""Analyses the program without running it: gcc -fanalyzer, clang-tidy and cppcheck, of Debian 12. Any message is an error.

    python3 tests/analyse.py [-j JOBS] [--tool gcc|tidy|cppcheck] [PATH..]

PATH is a file or a folder of the program; without one everything is analysed. What is no mistake is in .clang-tidy,
tests/cppcheck.supp and the table below, each with its reason; a row of the table that no longer applies is an error, too,
where everything is analysed.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["gguf", "kernels", "models", "engine", "cmd"]
BUILD = ROOT / "build-analyse"

# What the analyser of gcc 12 takes for a mistake: (file, warning, reason). It loses a pointer that is stored behind another
# pointer, or at an index that it cannot compute, and calls that a leak. Real leaks are what LeakSanitizer and valgrind find in CI.
KEPT = "what has grown is kept by its owner, also where another allocation fails"
STORED = "it is stored in a list or an array, and freed from there"
GCC_EXCEPTIONS = [
    ("gguf/base.c", "malloc-leak", "a chunk of an arena is linked behind the last one"),
    ("kernels/cpu/cpu.c", "malloc-leak", "the machine is the first member of what was allocated"),
    ("kernels/cpu/ref.c", "malloc-leak", "the machine is the first member of what was allocated"),
    ("engine/chat/jinja_lex.c", "malloc-leak", STORED),
    ("engine/grammar/constraint.c", "malloc-leak", STORED),
    ("engine/scheduler_lane.c", "malloc-leak", KEPT),
    ("engine/tap.c", "malloc-leak", STORED),
    ("engine/measure/divergence.c", "use-of-uninitialized-value", "a loop has set all lanes"),
    ("cmd/options.c", "malloc-leak", STORED),
    ("cmd/quantize.c", "malloc-leak", STORED),
    ("cmd/input.c", "malloc-leak", "the caller frees what was read, also after an error"),
    ("cmd/terminal/history.c", "malloc-leak", STORED),
    ("cmd/bench/bench_compare.c", "malloc-leak", "there is no array where the number of samples is 0"),
    ("cmd/batch/batch_resume.c", "malloc-leak", KEPT),
    ("cmd/batch/batch_embed.c", "malloc-leak", STORED),
]
# Kernels with vectors: it takes their elements for numbers of 2 or 4 bits, and for unset where a loop has set them.
GCC_LEAVES_OUT = re.compile(r"kernels/cpu/(avx2/|avx512/|amx/|quantize/|"
                            r"(level|rows|quantize_q8|decode|encode|attention|scan|matmul_f32|matmul_q8_scalar)\.c)")


def sources(paths):
    """The C files of the program below the paths."""
    names = subprocess.run(["git", "ls-files", "-z", "--", *paths], cwd=ROOT, check=True, capture_output=True, text=True)
    wanted = [n for n in names.stdout.split("\0") if n.endswith(".c") and n.split("/")[0] in FOLDERS]
    return [n for n in wanted if "/neon/" not in n]


def commands(compiler):
    """How each file is compiled: {file: [(folder, words)]}. What is generated for that is made."""
    folder = BUILD / compiler
    if not (folder / "build.ninja").exists():
        subprocess.run(["meson", "setup", folder, "-Dtests=false", "-Dbench=false"], cwd=ROOT, check=True,
                       env=os.environ | {"CC": compiler}, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", folder, "cmd/build_commit.h"], check=True, stdout=subprocess.DEVNULL)
    found = {}
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        path = pathlib.Path(os.path.normpath(os.path.join(entry["directory"], entry["file"])))
        if path.is_relative_to(ROOT):
            found.setdefault(str(path.relative_to(ROOT)), []).append((folder, shlex.split(entry["command"])))
    return folder, found


def run(words, cwd):
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"})
    return done.returncode, done.stdout + done.stderr


def gcc_command(words):
    """The command that analyses instead of writing an object. Level 1 is what the analyser was made for."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in ("-MF", "-MQ", "-o"):
            skip = True
        elif word != "-MD":
            kept.append(word)
    kept = [w for w in kept if w != "ccache"]
    return [*kept, "-O1", "-fanalyzer", "-fdiagnostics-plain-output", "-Wno-maybe-uninitialized", "-S", "-o", "/dev/null"]


def gcc_tasks(files):
    _, found = commands("gcc")
    for name in files:
        if GCC_LEAVES_OUT.match(name):
            continue
        for folder, words in found.get(name, [])[:1]:
            yield name, gcc_command(words), folder


def tidy_tasks(files):
    folder, found = commands("clang")
    for name in files:
        if name in found:
            yield name, ["clang-tidy", "-p", str(folder), "--quiet", str(ROOT / name)], ROOT


def messages(name, output, used):
    """What is reported of a file, without what is in the table. A macro of a header is where gcc says that it happened."""
    for line in output.splitlines():
        hit = re.match(r"(\S+?):(\d+):\d+: (warning|error|fatal error): (.*)", line)
        if not hit:
            continue
        path = os.path.relpath(os.path.join(BUILD / "gcc", hit[1]), ROOT)
        row = next((r for r in GCC_EXCEPTIONS if r[0] == name and f"[-Wanalyzer-{r[1]}]" in line), None)
        if row:
            used.add(row)
        else:
            yield f"{path if not os.path.isabs(hit[1]) else hit[1]}:{hit[2]}: {hit[4]}"


def analyse(tool, tasks, jobs, used):
    bad = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for name, (status, output) in pool.map(lambda t: (t[0], run(t[1], t[2])), tasks):
            found = list(dict.fromkeys(messages(name, output, used)))
            bad += found if found or not status else [f"{name}: {tool} failed: {output[-500:]}"]
    return bad


def cppcheck(paths, jobs):
    _, output = run(["cppcheck", "-j", str(jobs), "-q", "--enable=warning,performance,portability", "--std=c11",
                     "--inline-suppr", "--suppressions-list=tests/cppcheck.supp", "--error-exitcode=1", "-I", ".",
                     "-D_GNU_SOURCE", '-DQUERN_VERSION=""', "-D__x86_64__", "-D__linux__", "-i", "kernels/cpu/neon",
                     "--template={file}:{line}: {severity}: {message} [{id}]", *paths], ROOT)
    return output.splitlines()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-j", type=int, default=os.cpu_count(), dest="jobs")
    p.add_argument("--tool", choices=["gcc", "tidy", "cppcheck"], action="append")
    p.add_argument("paths", nargs="*", default=FOLDERS)
    args = p.parse_args()
    files, used, bad = sources(args.paths), set(), []
    for tool in args.tool or ["gcc", "tidy", "cppcheck"]:
        found = (analyse(tool, gcc_tasks(files), args.jobs, used) if tool == "gcc" else
                 analyse(tool, tidy_tasks(files), args.jobs, used) if tool == "tidy" else
                 cppcheck(args.paths, args.jobs))
        if tool == "gcc" and args.paths == FOLDERS:
            found += [f"{r[0]}: no longer warned of: {r[1]}" for r in GCC_EXCEPTIONS if r not in used]
        print(f"{tool}: {len(found)} messages", *found, sep="\n", flush=True)
        bad += found
    return 1 if bad else 0


sys.exit(main())
