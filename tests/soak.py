#!/usr/bin/env python3
"""Runs a dialogue and a batch for a long time, and sees whether memory and descriptors stay what they were.

    python3 tests/soak.py QUERN [--seconds N] [--threads N]

QUERN is the program, with its built-in model. Both run N seconds (7200: two hours) side by side: `quern chat` gets one
turn after another through a pipe, with its commands among them; `quern batch` answers a file of more rows than it can in
that time, in several forms, and is interrupted at the end. Each second the resident memory and the open descriptors of
both are read from /proc. The first quarter of the time is for caches to fill. After it, the memory of the last quarter
may be above that of the second by 2 MiB, and for a batch by what it keeps of each row; descriptors must be the same: exit
status 0, else 1.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

SLACK = 2 << 20
PER_ROW = 18  # bytes that a batch keeps for each row of its input
FORMS = [
    {"prompt": "Number %d is", "max_tokens": 250, "ignore_eos": True},
    {"messages": [{"role": "user", "content": "Say something about %d."}], "max_tokens": 250, "ignore_eos": True, "temperature": 1.0, "seed": 7},
    {"prompt": "The list %d:", "max_tokens": 150, "ignore_eos": True, "logprobs": 3, "n": 2, "temperature": 0.9},
    {"prompt": "A choice %d:", "max_tokens": 48, "guided_choice": ["yes", "no", "perhaps"]},
    {"messages": [{"role": "user", "content": "An object for %d."}], "max_tokens": 24,
     "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {
         "type": "object", "properties": {"n": {"type": "integer", "maximum": 99}}, "required": ["n"]}}}},
    {"messages": [], "max_tokens": 4},  # an error
]


def turns(stop):
    n = 0
    while not stop.is_set():
        n += 1
        yield f"Tell me about the number {n}.\n"
        if n % 40 == 0:
            yield "/new\n"
        if n % 7 == 0:
            yield "/undo\n"
        if n % 11 == 0:
            yield "/stats\n"


def feed(pipe, stop):
    try:
        for line in turns(stop):
            pipe.write(line)
            pipe.flush()
        pipe.close()
    except (BrokenPipeError, ValueError):
        pass


def write_rows(path, n):
    with open(path, "w") as f:
        for i in range(n):
            f.write(json.dumps(FORMS[i % len(FORMS)]).replace("%d", str(i)) + "\n")


def sample(pid):
    """Bytes of memory that belong to the process alone, and the number of its descriptors."""
    with open(f"/proc/{pid}/status") as f:
        rss = sum(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon"))
    return rss, len(os.listdir(f"/proc/{pid}/fd"))


def watch(processes, seconds):
    seen = {name: [] for name in processes}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(1)
        for name, p in processes.items():
            if p.poll() is not None:
                sys.exit(f"{name} ended with status {p.returncode}")
            seen[name].append(sample(p.pid))
    return seen


def judge(name, seen, allowed):
    quarter = len(seen) // 4
    memory = [statistics.median(s[0] for s in seen[i * quarter:(i + 1) * quarter]) for i in range(4)]
    files = [max(s[1] for s in seen[i * quarter:(i + 1) * quarter]) for i in range(4)]
    flat = memory[3] <= memory[1] + allowed and files[3] <= files[1]
    mib = ", ".join(f"{m / 2**20:.2f}" for m in memory)
    print(f"{name}: memory of the quarters {mib} MiB, descriptors {files}: {'flat' if flat else 'GROWING'}")
    return flat


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("quern")
    parser.add_argument("--seconds", type=int, default=7200)
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored, which is inherited
    stop, t = threading.Event(), str(a.threads)
    with tempfile.TemporaryDirectory() as folder:
        rows, out = os.path.join(folder, "rows.jsonl"), os.path.join(folder, "out.jsonl")
        write_rows(rows, 400 * a.seconds)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "text": True}
        chat = subprocess.Popen([a.quern, "chat", "-t", t, "-n", "12", "-c", "512", "--context-shift", "--seed", "1"],
                                stdin=subprocess.PIPE, **quiet)
        batch = subprocess.Popen([a.quern, "batch", rows, "-o", out, "-t", t, "-c", "512"], **quiet)
        feeder = threading.Thread(target=feed, args=(chat.stdin, stop), daemon=True)
        feeder.start()
        seen = watch({"chat": chat, "batch": batch}, a.seconds)
        done = sum(1 for _ in open(out)) if os.path.exists(out) else 0
        stop.set()
        for p in (chat, batch):
            p.send_signal(signal.SIGINT)
            p.send_signal(signal.SIGINT)
        batch.wait(30)
        chat.kill()
        chat.wait()
        feeder.join(5)
        print(f"{a.seconds} s, {done} rows of the batch")
        flat = [judge(name, s, SLACK + (PER_ROW * done if name == "batch" else 0)) for name, s in seen.items()]
    return 0 if all(flat) and done else 1


if __name__ == "__main__":
    sys.exit(main())
