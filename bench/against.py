#!/usr/bin/env python3
"""Speed of quern beside other engines' bench programs, in one interleaved run: medians, and the ratio of each pair.

  bench/against.py QUERN PEER-BENCH MODEL [--also PEER-BENCH]... [--prompt 512] [--gen 64] [--rounds 5] [--threads 2]
                   [--quern-flags ...]

PEER-BENCH is [NAME=]PROGRAM [FLAGS]; it takes llama-bench's flags and prints its JSON. Rounds alternate, so that a machine whose speed drifts treats both
alike. quern's greedy text must be the same in every round.
"""
import argparse, json, os, shlex, statistics, subprocess, sys, tempfile

def quern(a, prompt_file, n):
    cmd = [a.quern, 'run', '-m', a.model, '-f', prompt_file, '-n', str(n), '--temp', '0', '--ignore-eos', '--speculate', 'off', '--json',
           '-c', str(a.prompt + n + 64), '-t', str(a.threads)] + a.quern_flags.split()
    return json.loads(subprocess.run(cmd, check=True, capture_output=True).stdout)

def peer(a, command, prompt, gen):
    cmd = [*shlex.split(command), '-m', a.model, '-p', str(prompt), '-n', str(gen), '-r', '1', '-t', str(a.threads), '-o', 'json']
    out = subprocess.run(cmd, check=True, capture_output=True, text=True).stdout
    rows = json.loads(out[out.index('[\n'):])  # some say a word before it
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

def named(spec):
    name, _, command = spec.partition('=')
    return (name, command) if command and '/' not in name else (os.path.basename(shlex.split(spec)[0]), spec)

def print_pair(name, what, ours, theirs):
    ratio = statistics.median(x / y for x, y in zip(ours, theirs))
    print(f'  {what:7s} quern {statistics.median(ours):8.2f} t/s   {name} {statistics.median(theirs):8.2f} t/s'
          f'   ratio {ratio:.2f} ({min(ours):.1f}-{max(ours):.1f} / {min(theirs):.1f}-{max(theirs):.1f})')

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ('quern', 'peer', 'model'):
        p.add_argument(name)
    p.add_argument('--also', action='append', default=[])
    p.add_argument('--prompt', type=int, default=512)
    p.add_argument('--gen', type=int, default=64)
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--threads', type=int, default=2)
    p.add_argument('--quern-flags', default='')
    a = p.parse_args()
    peers = dict(named(spec) for spec in [a.peer, *a.also])
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, 'prompt')
        n = make_prompt(a, path)
        ours, texts = {'prompt': [], 'decode': []}, set()
        theirs = {name: {'prompt': [], 'decode': []} for name in peers}
        for _ in range(a.rounds):
            r = quern(a, path, a.gen)
            texts.add(r['text'])
            ours['prompt'].append(r['timings']['prompt_per_second'])
            ours['decode'].append(r['timings']['predicted_per_second'])
            for name, command in peers.items():
                theirs[name]['prompt'].append(peer(a, command, a.prompt, 0))
                theirs[name]['decode'].append(peer(a, command, 0, a.gen))
    print(f'{os.path.basename(a.model)}: prompt of {n}, {a.gen} generated, {a.threads} threads, {a.rounds} rounds')
    for name in peers:
        for what in ours:
            print_pair(name, what, ours[what], theirs[name][what])
    if len(texts) != 1:
        sys.exit("quern's greedy text differed between rounds: no figure stands")
    print("  quern's greedy text was the same in every round")
main()
