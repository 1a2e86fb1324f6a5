#!/usr/bin/env python3
"""Speed of `quern batch` beside quern one prompt at a time and other engines' batched benches: one table, one command.

  bench/batch.py QUERN MODEL [--peer NAME=LLAMA-BATCHED-BENCH [FLAGS]]... [--rows 256] [--slots 8,32] [--rounds 1]
                 [--into FILE [--do WHAT@SLOTS]...] [--tiny MODEL]

The work: ROWS prompts of 50 to 400 tokens, 64 new tokens each, greedy, ends ignored. A peer's bench computes prompts of
one length, the mean of ours, as many at once as there are slots, and never waits for a slow one: what it prints as its
total speed (S t/s) is taken as it is. Rounds alternate. Two speeds are printed: by the clock, and by processor time as if
nothing else ran (tokens / (user + system seconds / threads)), which stands where a machine is shared; waiting in
barriers counts as work there, for both. Also: the same rows behind a shared prefix of 1,000 tokens, and behind one of
their own; answers at 1 to 64 at once, to find cliffs; and many one-line prompts. quern's outputs must be the same bytes
whatever the number of slots, and those of the first rows the same when each is alone.

Where a quiet machine is lent for minutes only, the comparison is taken in pieces: --into FILE keeps what each call
measures, --do says which pieces this one takes (`quern batch@32`, `NAME@8`, `quern run@1`, `quern batch@1` for the first
rows alone; `none@0` takes none), and the table holds all that is in the file.
"""
import argparse, hashlib, json, os, random, re, shlex, statistics, subprocess, sys, tempfile, time

NEW = 64

def rows(n, shared=0, seed=7, least=50, most=400, new=NEW, vocab=30000, own=0):
    """n rows behind a prefix of `shared` tokens, or of `own` tokens each; the first of many are the same as few."""
    r, other = random.Random(seed), random.Random(seed + 1)
    prefix = [other.randrange(300, vocab) for _ in range(shared)]
    for i in range(n):
        if own:
            prefix = [other.randrange(300, vocab) for _ in range(own)]
        prompt = prefix + [r.randrange(300, vocab) for _ in range(r.randint(least, most))]
        yield {'custom_id': f'row{i}', 'method': 'POST', 'url': '/v1/completions',
               'body': {'prompt': prompt, 'max_tokens': new, 'ignore_eos': True, 'temperature': 0}}

def write(path, lines):
    with open(path, 'w') as f:
        for line in lines:
            f.write(json.dumps(line) + '\n')

def timed(cmd, **kw):
    """(seconds by the clock, of the processors, stdout + stderr, peak MiB)"""
    with tempfile.TemporaryFile('w+') as out:
        start = time.monotonic()
        child = subprocess.Popen(cmd, stdout=out, stderr=subprocess.STDOUT, **kw)
        _, status, usage = os.wait4(child.pid, 0)
        clock = time.monotonic() - start
        out.seek(0)
        text = out.read()
    if os.waitstatus_to_exitcode(status):
        sys.exit(f'{" ".join(cmd)}: status {os.waitstatus_to_exitcode(status)}\n{text}')
    return clock, usage.ru_utime + usage.ru_stime, text, usage.ru_maxrss / 1024

def quern_batch(a, path, slots, flags=()):
    out = path + '.out'
    for end in ('', '.manifest', '.journal'):
        if os.path.exists(out + end):
            os.unlink(out + end)
    clock, cpu, text, peak = timed([a.quern, 'batch', '-m', a.model, path, '-o', out, '-np', str(slots), '-t', str(a.threads), '-v',
                                    *flags])
    m = re.search(r'(\d+) prompt tokens, (\d+) of them shared; (\d+) generated', text)
    prompt, shared, new = map(int, m.groups())
    outside = float(re.search(r'outside [\d.]+ ms: ([\d.]+)% of the whole', text).group(1))
    syncs = re.search(r'\d+ syncs.*', text).group(0)
    return dict(clock=clock, cpu=cpu, prompt=prompt, shared=shared, new=new, outside=outside, syncs=syncs, peak=peak,
                digests=digests(a, out), tokens=prompt + new)

def digests(a, path):
    """Of the whole output, and of its first rows."""
    lines = open(path, 'rb').readlines()
    return [hashlib.sha256(b''.join(some)).hexdigest() for some in (lines, lines[:a.singles])]

def peer(a, command, prompt, slots):
    program, *flags = shlex.split(command)
    cmd = [os.path.abspath(program), *flags, '-m', os.path.abspath(a.model), '-npp', str(prompt), '-ntg', str(NEW), '-npl', str(slots), '-c',
           str((prompt + NEW) * slots + 512), '-t', str(a.threads), '-tb', str(a.threads), '-b', '2048', '-ub', '512']
    with tempfile.TemporaryDirectory() as d:  # some leave a log where they run
        clock, cpu, text, _ = timed(cmd, cwd=d)
    row = [l for l in text.splitlines() if re.match(r'^\|\s+\d', l)][-1]
    cell = [c.strip() for c in row.strip('|').split('|')]  # PP TG B N_KV T_PP S_PP T_TG S_TG T S
    return dict(clock=float(cell[8]), cpu=cpu, tokens=(prompt + NEW) * slots, total=float(cell[9]),
                prompt_ts=float(cell[5]), new_ts=float(cell[7]))

def one_by_one(a, path, n):
    """`quern run` for the first n rows, as texts of as many tokens: loading is part of it, as it is for who does that."""
    clock = cpu = tokens = 0
    for line in list(open(path))[:n]:
        words = 'word ' * len(json.loads(line)['body']['prompt'])
        with tempfile.NamedTemporaryFile('w') as f:
            f.write(words)
            f.flush()
            t, c, text, _ = timed([a.quern, 'run', '-m', a.model, '-f', f.name, '-n', str(NEW), '--temp', '0', '--ignore-eos',
                                   '--json', '-t', str(a.threads)])
        r = json.loads(text[text.index('{'):])
        clock, cpu, tokens = clock + t, cpu + c, tokens + r['prompt_tokens'] + r['tokens']
    return dict(clock=clock, cpu=cpu, tokens=tokens)

def speeds(a, runs):
    clock = [r['tokens'] / r['clock'] for r in runs]
    cpu = [r['tokens'] / (r['cpu'] / a.threads) for r in runs]
    return statistics.median(clock), statistics.median(cpu)

def measure(a, path, mean, what, slots):
    if what == 'quern run':
        return one_by_one(a, path, a.singles)
    if what != 'quern batch':
        return peer(a, a.peer[what], mean, slots)
    if slots > 1:
        return quern_batch(a, path, slots)
    write(path + '.few', rows(a.singles))
    return quern_batch(a, path + '.few', 1)

def take(a, path, mean, kept):
    """Measures what this call is to measure, and adds it to what is kept."""
    pieces = [(what, slots) for slots in a.slots for what in ['quern batch', *a.peer]]
    pieces += [('quern batch', 1), ('quern run', 1)]
    if a.do:
        pieces = [(what, int(slots)) for what, slots in (d.rsplit('@', 1) for d in a.do) if int(slots)]
    for _ in range(a.rounds):
        for what, slots in pieces:
            kept.append(dict(measure(a, path, mean, what, slots), what=what, slots=slots, rows=a.rows, threads=a.threads))
            if a.into:
                with open(a.into, 'a') as f:
                    f.write(json.dumps(kept[-1]) + '\n')

def print_ratios(a, runs):
    for (what, slots), rs in runs.items():
        if what == 'quern batch':
            continue
        for s in [s for w, s in runs if w == 'quern batch' and s > 1 and (what == 'quern run' or s == slots)]:
            mine = runs[('quern batch', s)]
            ratio = statistics.median((x['tokens'] / x['clock']) / (y['tokens'] / y['clock']) for x, y in zip(mine, rs))
            by_cpu = statistics.median((x['tokens'] / x['cpu']) / (y['tokens'] / y['cpu']) for x, y in zip(mine, rs))
            print(f'quern batch at {s} against {what} at {slots}: {ratio:.2f} by the clock, {by_cpu:.2f} by processor time')

def agree(runs):
    """Whether quern's outputs are the same bytes: whole ones at any number of slots, the first rows also when alone."""
    ours = [(slots, r['digests']) for (what, slots), rs in runs.items() if what == 'quern batch' for r in rs]
    whole, first = {d[0] for slots, d in ours if slots > 1}, {d[1] for _, d in ours}
    if not ours:
        return True
    alone = ', and of the first rows alone' if any(slots == 1 for slots, _ in ours) else ''
    same = len(whole) <= 1 and len(first) == 1
    print(f'outputs: the same bytes at every number of slots{alone}' if same else 'outputs DIFFER')
    return same

def compare(a, d):
    path = os.path.join(d, 'rows.jsonl')
    write(path, rows(a.rows))
    mean = sum(len(r['body']['prompt']) for r in rows(a.rows)) // a.rows
    kept = [json.loads(line) for line in open(a.into)] if a.into and os.path.exists(a.into) else []
    if any((r['rows'], r['threads']) != (a.rows, a.threads) for r in kept):
        sys.exit(f'{a.into}: of another number of rows or threads')
    take(a, path, mean, kept)
    runs = {}
    for r in kept:
        runs.setdefault((r['what'], r['slots']), []).append(r)
    print(f'\n{a.rows} prompts of 50-400 tokens (mean {mean}), {NEW} new each, {a.threads} threads\n')
    print('| what | at once | rounds | t/s by the clock | t/s by processor time | outside of steps |')
    print('|---|---:|---:|---:|---:|---:|')
    for (what, slots), rs in runs.items():
        clock, cpu = speeds(a, rs)
        outside = f'{max(r["outside"] for r in rs):.2f}%' if 'outside' in rs[0] else ''
        print(f'| {what} | {slots} | {len(rs)} | {clock:.1f} | {cpu:.1f} | {outside} |')
    print()
    print_ratios(a, runs)
    for r in [r for r in kept if 'syncs' in r and r['slots'] > 1][-1:]:
        print(f'syncs: {r["syncs"]}')
    return agree(runs)

def shared_prefix(a, d):
    n, prefix, slots, new = a.prefix_rows, 1000, a.slots[-1], 32
    path = os.path.join(d, 'shared.jsonl')
    work = {'one prefix for all': dict(shared=prefix), 'a prefix each': dict(own=prefix)}
    results = {}
    print(f'\n{n} rows behind a prefix of {prefix} tokens, {new} new each, {slots} at once\n')
    print('| | prompt tokens | taken from pages | computed | seconds by the clock | t/s |\n|---|---:|---:|---:|---:|---:|')
    for what, flags in work.items():
        write(path, rows(n, seed=8, new=new, **flags))
        r = results[what] = quern_batch(a, path, slots)
        print(f'| {what} | {r["prompt"]:,} | {r["shared"]:,} | {r["prompt"] - r["shared"]:,} | {r["clock"]:.1f} | '
              f'{r["tokens"] / r["clock"]:.1f} |', flush=True)
    one = results['one prefix for all']
    once = one['shared'] >= (n - 1) * prefix
    print(f'\n{(n - 1) * prefix:,} are {n - 1} times the prefix' + ('' if once else ': it was NOT computed once'))
    return once

def cliffs(a, d):
    """Answers alone: 64 rows with one-token prompts, so that nearly every step is one of decoding."""
    print('\n| answers at once | t/s by the clock | t/s by processor time | ms of 2 processors a step |\n|---:|---:|---:|---:|')
    for slots in (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64):
        n, new = slots * (1 if slots > 8 else 2), 48 if slots > 8 else 24
        path = os.path.join(d, 'decode.jsonl')
        write(path, rows(n, seed=9, least=2, most=2, new=new))
        r = quern_batch(a, path, slots)
        steps = n * new / slots
        print(f'| {slots} | {r["new"] / r["clock"]:.1f} | {r["new"] / (r["cpu"] / a.threads):.1f} | '
              f'{r["cpu"] / a.threads * 1e3 / steps:.1f} |', flush=True)

def many(a, d):
    path = os.path.join(d, 'many.txt')
    r = random.Random(3)
    words = 'one day a little girl saw the big red ball and her dog ran to the old tree'.split()
    for n in (a.lines // 10, a.lines):
        with open(path, 'w') as f:
            for _ in range(n):
                f.write(' '.join(r.choice(words) for _ in range(r.randint(3, 12))) + '\n')
        b = argparse.Namespace(**{**vars(a), 'model': a.tiny})
        run = quern_batch(b, path, 32, ('-n', '8', '--as', 'completion'))
        print(f'{n} one-line prompts on {os.path.basename(a.tiny)}: {n / run["clock"]:.0f} rows/s by the clock, '
              f'{n / (run["cpu"] / a.threads):.0f} by processor time, peak {run["peak"]:.0f} MiB')

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('quern')
    p.add_argument('model')
    p.add_argument('--peer', action='append', default=[], metavar='NAME=PROGRAM [FLAGS]')
    p.add_argument('--rows', type=int, default=256)
    p.add_argument('--slots', type=lambda s: [int(x) for x in s.split(',')], default=[8, 32])
    p.add_argument('--rounds', type=int, default=1)
    p.add_argument('--into', metavar='FILE', help='keeps what the comparison measures; the table is of all of it')
    p.add_argument('--do', action='append', default=[], metavar='WHAT@SLOTS')
    p.add_argument('--prefix-rows', type=int, default=32)
    p.add_argument('--threads', type=int, default=2)
    p.add_argument('--singles', type=int, default=16, help='rows of which `quern run` computes each on its own')
    p.add_argument('--tiny', help='a tiny model for many one-line prompts')
    p.add_argument('--lines', type=int, default=100000)
    p.add_argument('--only', choices=['compare', 'shared', 'cliffs', 'many'])
    a = p.parse_args()
    a.peer = dict(spec.split('=', 1) for spec in a.peer)
    ok = True
    with tempfile.TemporaryDirectory() as d:
        if a.only in (None, 'compare'):
            ok = compare(a, d) and ok
        if a.only in (None, 'shared'):
            ok = shared_prefix(a, d) and ok
        if a.only in (None, 'cliffs'):
            cliffs(a, d)
        if a.tiny and a.only in (None, 'many'):
            many(a, d)
    sys.exit(0 if ok else 'a promise was broken: no figure stands')
main()
