#!/usr/bin/env python3
"""The README's table of figures, from saved runs of `quern bench`.

  bench/readme_table.py README.md KLD.json RUN.json [RUN.json ..]

Each run is what `quern bench .. --against-bin LLAMA-BENCH --save RUN.json` kept. KLD.json has for types of weights the mean
KL divergence from the F32 file of a real model, quern's and llama.cpp's: {"Q8_0": [0.0030, 0.0028], ..}. The table stands
between the lines <!-- figures --> and <!-- /figures -->, and is written anew: ratios are medians of the pairs, as both
programs ran in turn.
"""
import json, statistics, sys


def label(row):
    parts = [f"pp{row['n_prompt']}"] * bool(row['n_prompt']) + [f"tg{row['n_gen']}"] * bool(row['n_gen'])
    depth = f" @ d{row['n_depth']}" * bool(row['n_depth'])
    return '+'.join(parts) + depth + f" x{row['n_seqs']}" * (row['n_seqs'] > 1)


def divergences(row, kld):
    both = kld.get(row['model_type'].split()[-1])
    return [f'{d:.4f}' for d in both] if both else ['', '']


def line(row, kld):
    ours, peer = row['samples_ts'], row.get('peer_samples_ts')
    share = row['read_share'] if row['bound'] == 'memory' else row['multiply_share']
    bound = f"{100 * share:.0f}% of {row['bound']}" if row['bound'] else ''
    cells = [row['model_type'], label(row), f'{statistics.median(ours):.1f}', bound]
    if peer:
        cells += [f'{statistics.median(peer):.1f}', f'{statistics.median(a / b for a, b in zip(ours, peer)):.2f}']
    else:
        cells += ['', '']
    return '| ' + ' | '.join(cells + divergences(row, kld)) + ' |'


def table(runs, kld):
    rows = [row for run in runs for row in run]
    first = rows[0]
    peers = sorted({row['peer_build_commit'] for row in rows if row.get('peer_build_commit')})
    head = (f"{first['cpu_info']}, {first['n_threads']} threads, {first['test_time'][:10]}, quern {first['build_commit']}"
            + (f", llama.cpp {' and '.join(peers)}" if peers else '') + '. Medians of runs in turn.')
    return '\n'.join([head, '', '| model | test | quern t/s | of the ceiling | llama.cpp t/s | ratio | KLD | llama.cpp KLD |',
                      '|---|---|---|---|---|---|---|---|'] + [line(row, kld) for row in rows])


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    text = open(sys.argv[1]).read()
    begin, end = '<!-- figures -->', '<!-- /figures -->'
    before, rest = text.split(begin, 1)
    after = rest.split(end, 1)[1]
    kld = json.load(open(sys.argv[2]))
    runs = [json.load(open(path)) for path in sys.argv[3:]]
    open(sys.argv[1], 'w').write(f'{before}{begin}\n{table(runs, kld)}\n{end}{after}')


main()
