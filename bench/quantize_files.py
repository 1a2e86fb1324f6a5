#!/usr/bin/env python3
"""Whole files quantised by quern and by llama-quantize in turn, in seconds: medians and the ratio.

  bench/quantize_files.py QUERN LLAMA-QUANTIZE IN.gguf TYPE.. [--rounds N] [--threads N] [--imatrix FILE] [--out DIR]

Both write every matrix in the type (--pure) but the embeddings and the output, which are Q8_0, so that types which need an
importance matrix may have none for these. Results go to DIR (/dev/shm by default: no disk is measured) and are removed.
"""
import argparse, os, statistics, subprocess, sys, time


def run(command):
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-500:]}{done.stderr[-500:]}")
    return time.monotonic() - start


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('quern')
    p.add_argument('llama_quantize')
    p.add_argument('model')
    p.add_argument('types', nargs='+')
    p.add_argument('--rounds', type=int, default=3)
    p.add_argument('--threads', type=int, default=2)
    p.add_argument('--imatrix')
    p.add_argument('--out', default='/dev/shm')
    a = p.parse_args()
    print('| type | quern quantize | llama-quantize | ratio |\n|---|---|---|---|')
    out = os.path.join(a.out, f'quantize-{os.getpid()}.gguf')
    flags = ['--pure', '--token-embedding-type', 'q8_0', '--output-tensor-type', 'q8_0']
    flags += ['--imatrix', a.imatrix] if a.imatrix else []
    for kind in a.types:
        ours, theirs = [], []
        for _ in range(a.rounds):
            ours.append(run([a.quern, 'quantize', *flags, '-t', str(a.threads), a.model, out, kind]))
            size = os.path.getsize(out)
            os.remove(out)
            theirs.append(run([a.llama_quantize, *flags, a.model, out, kind, str(a.threads)]))
            if abs(size - os.path.getsize(out)) > size // 100:
                sys.exit(f'{kind}: {size} and {os.path.getsize(out)} bytes: not the same work')
            os.remove(out)
        x, y = statistics.median(ours), statistics.median(theirs)
        print(f'| {kind} | {x:.2f} s | {y:.2f} s | {y / x:.2f} |', flush=True)


main()
