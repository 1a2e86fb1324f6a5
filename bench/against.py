#!/usr/bin/env python3
"""Speed of quern beside another engine's bench program, in one interleaved run: medians, and the ratio of each pair.

  bench/against.py QUERN PEER-BENCH MODEL [--prompt 512] [--gen 64] [--rounds 5] [--threads 2] [--quern-flags ...]

PEER-BENCH takes llama-bench's flags and prints its JSON. Rounds alternate, so that a machine whose speed drifts treats both
alike. quern's greedy text must be the same in every round.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile

def quern(a, prompt_file, n):
    cmd = [a.quern, 'run', '-m', a.model, '-f', prompt_file, '-n', str(n), '--temp', '0', '--ignore-eos', '--json',
           '-c', str(a.prompt + n + 64), '-t', str(a.threads)] + a.quern_flags.split()
    return json.loads(subprocess.run(cmd, check=True, capture_output=True).stdout)

def peer(a, prompt, gen):
    cmd = [a.peer, '-m', a.model, '-p', str(prompt), '-n', str(gen), '-r', '1', '-t', str(a.threads), '-o', 'json']
    rows = json.loads(subprocess.run(cmd, check=True, capture_output=True).stdout)
    return rows[0]['avg_ts']

def make_prompt(a, path):
    """Words until the model counts about as many tokens as the peer computes."""
    words = a.prompt
    for _ in range(8):
        open(path, 'w').write('word ' * max(words, 1))
        n = quern(a, path, 1)['prompt_tokens']
        if n == a.prompt:
            break
        words += a.prompt - n
    return n

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ('quern', 'peer', 'model'):
        p.add_argument(name)
    p.add_argument('--prompt', type=int, default=512)
    p.add_argument('--gen', type=int, default=64)
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--threads', type=int, default=2)
    p.add_argument('--quern-flags', default='')
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, 'prompt')
        n = make_prompt(a, path)
        ours, theirs, texts = {'prompt': [], 'decode': []}, {'prompt': [], 'decode': []}, set()
        for _ in range(a.rounds):
            r = quern(a, path, a.gen)
            texts.add(r['text'])
            ours['prompt'].append(r['timings']['prompt_per_second'])
            ours['decode'].append(r['timings']['predicted_per_second'])
            theirs['prompt'].append(peer(a, a.prompt, 0))
            theirs['decode'].append(peer(a, 0, a.gen))
    print(f'{os.path.basename(a.model)}: prompt of {n}, {a.gen} generated, {a.threads} threads, {a.rounds} rounds')
    for what in ours:
        ratio = statistics.median(x / y for x, y in zip(ours[what], theirs[what]))
        print(f'  {what:7s} quern {statistics.median(ours[what]):8.2f} t/s   peer {statistics.median(theirs[what]):8.2f} t/s'
              f'   ratio {ratio:.2f} ({min(ours[what]):.1f}-{max(ours[what]):.1f} / {min(theirs[what]):.1f}-{max(theirs[what]):.1f})')
    if len(texts) != 1:
        sys.exit("quern's greedy text differed between rounds: no figure stands")
    print("  quern's greedy text was the same in every round")
main()
