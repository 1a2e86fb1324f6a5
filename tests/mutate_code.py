#!/usr/bin/env python3
"""Changes one place of quern's C code at a time, and sees whether a test of the everyday suite notices.

    python3 tests/mutate_code.py BUILD [--seed N] [--n N] [--no-interpreter|--named] [FOLDER|FILE ...]

BUILD is a folder that meson has set up in a checkout of its own: the sources there are changed, and restored. Of the
files (by default: kernels of the CPU that this machine runs, attention, masks, rotary positions, GGUF files,
tokenizers, the sampler) places are drawn at random, each of them equally likely. A change that does not compile is drawn again. The
tests that TESTS names for a file run one after the other until one fails, which kills the mutant; what survives these
is tried on the rest of the everyday suite (--no-interpreter: without those that only run kernels on the interpreter; --named:
not at all, which takes seconds instead of minutes). The output is a line for each mutant, and the share that was killed.

A survivor is either a gap of the tests, or a change that computes the same: which of them is for a reader to say.
"""
import argparse
import glob
import json
import os
import random
import re
import subprocess
import sys

KERNELS = ["kernels", "matmul_q8", "q8_activations", "attention", "ref", "ref_attention", "scan", "route", "machines"]
# What is mutated, and the tests that are tried first.
TESTS = {
    "kernels/cpu/avx512": KERNELS,
    "kernels/cpu/avx2": KERNELS,
    "kernels/cpu/attention.c": KERNELS,
    "kernels/cpu/attention_tiles.h": KERNELS,
    "kernels/cpu/attention_words.h": KERNELS,
    "kernels/cpu/decode.c": KERNELS,
    "kernels/cpu/matmul_f32.c": KERNELS,
    "kernels/cpu/matmul_f32_tile.h": KERNELS,
    "kernels/cpu/matmul_q8_scalar.c": KERNELS,
    "kernels/cpu/quantize_q8.c": KERNELS,
    "kernels/cpu/rows.c": KERNELS,
    "kernels/cpu/scan.c": KERNELS,
    "kernels/cpu/ref.c": ["ref", "ref_attention"] + KERNELS,
    "kernels/cpu/ref_ops.c": ["ref", "ref_attention"] + KERNELS,
    "kernels/cpu/exec.c": ["machines", "plan", "scan", "models", "session", "interrupt"],
    "engine/text": ["tokenizer", "tokenizer_tokens", "tokenizer_golden", "tokenizer_hostile", "tokenizer_wpm",
                    "tokenizer_ugm", "tokenizer_plamo2", "tokenizer_rwkv", "tokenizer_faults", "unicode", "split"],
    "engine/sample": ["sampler", "sampler_stages", "dry", "speculate", "session"],
    "gguf": ["base", "gguf", "gguf_hostile", "gguf_view", "gguf_writer", "gguf_faults"],
    "gguf/dtype.c": ["dtype", "kernels"],
    "gguf/dtype_iq.c": ["dtype", "kernels"],
}
SWAPS = [(" + ", " - "), (" - ", " + "), (" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "),
         (" == ", " != "), (" != ", " == "), (" && ", " || "), (" || ", " && "), (" << ", " >> "), (" >> ", " << "),
         (" * ", " + "), (" / ", " * "), (" % ", " / "), (" & ", " | "), (" | ", " & "), (" ^ ", " | "),
         (" += ", " -= "), (" -= ", " += "), ("++", "--"), ("MIN(", "MAX("), ("MAX(", "MIN("), (" ? !", " ? "),
         ("(!", "("), ("_add_", "_sub_"), ("_sub_", "_add_"), ("unpacklo", "unpackhi"), ("unpackhi", "unpacklo"),
         ("_min_", "_max_"), ("_max_", "_min_"), ("fmadd", "fmsub"), ("true", "false"), ("false", "true")]
NUMBER = re.compile(r"(?<![\w.])(\d+)(?![\w.])")
NO_CODE = re.compile(r"^\s*(#|//|\*|/\*|enum|struct|typedef|_Static_assert|static_assert|case|\}|\{)|\bfail(_at)?\(|assert|"
                     r"error_|snprintf|prefetch|^\S.*;$|^[a-z_].*\($")


def code_of(line):
    """The part of a line before its comment; strings are cut out, too."""
    return re.sub(r'"(\\.|[^"\\])*"', lambda m: "\0" * len(m.group()), line.split("//")[0])


def places(path, text):
    """All changes of a file: (line, column, old, new)."""
    out = []
    for n, line in enumerate(text.split("\n")):
        if NO_CODE.search(line) or not line.startswith(" ") or "\\" in line[-1:]:
            continue
        code = code_of(line)
        for old, new in SWAPS:
            out += [(n, m.start(), old, new) for m in re.finditer(re.escape(old), code)]
        for m in NUMBER.finditer(code):
            out.append((n, m.start(), m.group(), str(int(m.group()) + 1)))
        m = re.match(r"^(\s+)([\w\[\]>.()-]+ [-+|&^*]?= .*;|\w+\(.*\);)$", code)
        if m and not m.group(2).startswith("return"):
            out.append((n, len(m.group(1)), line[len(m.group(1)):], ";"))
    return out


def sources(root, wanted):
    files = {}
    for what, tests in TESTS.items():
        if wanted and not any(what.startswith(w) or w.startswith(what) for w in wanted):
            continue
        at = os.path.join(root, what)
        for path in sorted(glob.glob(at + "/*.[ch]") if os.path.isdir(at) else [at]):
            name = os.path.relpath(path, root)
            if "_tables" not in name and (not wanted or any(name.startswith(w) for w in wanted)):
                files[name] = tests # tables are made by scripts, and compared as a whole
    return files


class Builder:
    def __init__(self, build, small):
        self.build = build
        listed = json.loads(subprocess.run(["meson", "introspect", "--tests", build], check=True, capture_output=True).stdout)
        self.targets = {t["name"]: t["cmd"][0] for t in listed}
        self.everyday = [t["name"] for t in listed if any(s.endswith("everyday") for s in t["suite"])
                         and not (small and any(s.endswith("interpreted") for s in t["suite"]))]

    def compiles(self, test):
        target = os.path.relpath(self.targets[test], self.build)
        return subprocess.run(["ninja", "-C", self.build, target, "cmd/quern"], capture_output=True).returncode == 0

    def passes(self, test):
        if test not in self.targets:
            return True
        command = ["meson", "test", "-C", self.build, "--timeout-multiplier", "0.5", test]
        return subprocess.run(command, capture_output=True).returncode == 0


def try_mutant(builder, tests):
    """The test that fails; None: none; "": it does not compile."""
    if not builder.compiles(tests[0]):
        return ""
    for test in tests + [t for t in builder.everyday if t not in tests]:
        if not builder.passes(test):
            return test
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--no-interpreter", action="store_true")
    parser.add_argument("--named", action="store_true")
    parser.add_argument("files", nargs="*")
    a = parser.parse_args()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    builder, draw = Builder(a.build, a.no_interpreter), random.Random(a.seed)
    builder.everyday *= not a.named
    files = sources(root, a.files)
    pool = [(name, p) for name in files for p in places(name, open(os.path.join(root, name)).read())]
    print(f"seed {a.seed}: {a.n} of {len(pool)} changes in {len(files)} files", flush=True)
    n = killed = 0
    while n < a.n and pool:
        name, (line, column, old, new) = pool.pop(draw.randrange(len(pool)))
        path = os.path.join(root, name)
        text = open(path).read()
        lines = text.split("\n")
        lines[line] = lines[line][:column] + new + lines[line][column + len(old):]
        try:
            open(path, "w").write("\n".join(lines))
            by = try_mutant(builder, files[name])
        finally:
            open(path, "w").write(text)
        if by == "":
            continue
        n += 1
        killed += by is not None
        print(f"{'killed by ' + by if by else 'SURVIVES':28} {name}:{line + 1}: {old.strip()} -> {new.strip()}"
              f"{'' if by else '    ' + lines[line].strip()}", flush=True)
    print(f"{killed} of {n} killed ({100 * killed / max(n, 1):.1f}%)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
