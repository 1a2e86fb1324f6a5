#!/usr/bin/env python3
"""Instructions a multiply-accumulate of the 8-bit products for 64-bit ARM, counted as qemu-user carries them out.

  bench/neon_count.py build-arm [--type Q4_K ...] [--level dotprod ...] [--columns 1 2 8] [--hot]

build-arm is a build for ARM (tests/aarch64/cross.ini). neon_count.c is linked with its kernels; it multiplies 32 rows of
2048 weights with some columns, and each instruction of kernels/cpu/neon that runs is counted, prefetches included. Every
column beyond a fourth costs the same, so that 512 are worked out from 4 and 8. On the right, of a product with 512
columns: the share that multiplies (bytes, scales and floats), loads and stores, and the rest. --hot lists what a product
with the first count of columns runs, each instruction with its turns.
"""
import argparse, collections, os, re, subprocess, sys, tempfile

ROWS, LENGTH = 32, 2048
TYPES = ('Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL MXFP4 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_XS '
         'IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S TQ1_0 TQ2_0').split()
MULTIPLY = re.compile(r'(smmla|sdot|smull2?|smlal2?|mla|mul|fmla|fmls|fmul)\b')
MEMORY = re.compile(r'(ld|st)(r|p|ur|[1-4]|nur|nr)|prfm|prfum')
OURS = re.compile(r'(in_place|panel|sweep|tile)_\w+|multiply$')


def build(top, arm, out):
    libs = [f'{arm}/kernels/libkernels.a', f'{arm}/gguf/libgguf.a']
    libs += [f'{arm}/kernels/cpu/{f}' for f in os.listdir(f'{arm}/kernels/cpu') if f.endswith('.a')]
    subprocess.run(['aarch64-linux-gnu-gcc', '-std=gnu11', '-O2', '-D_GNU_SOURCE', '-static', '-no-pie', '-I', top,
                    f'{top}/bench/neon_count.c', '-o', out, '-Wl,--start-group', *libs, '-Wl,--end-group', '-lm'], check=True)


def instructions(program):
    """address -> (function, instruction) of the kernels' functions"""
    text = subprocess.run(['aarch64-linux-gnu-objdump', '-d', '--no-show-raw-insn', program], check=True,
                          capture_output=True, text=True).stdout
    out, name = {}, None
    for line in text.splitlines():
        if head := re.match(r'[0-9a-f]+ <(\w+)>:', line):
            name = head[1] if OURS.match(head[1]) else None
        elif name and (ins := re.match(r'\s*([0-9a-f]+):\t(.*)', line)):
            out[int(ins[1], 16)] = (name, ins[2].split('//')[0].strip())
    return out


def spans(code):
    """The addresses as ranges for qemu."""
    out = []
    for at in sorted(code):
        if out and out[-1][1] == at:
            out[-1][1] += 4
        else:
            out.append([at, at + 4])
    return ','.join(f'0x{a:x}..0x{b - 1:x}' for a, b in out)


def count(program, filters, level, type_, columns, log):
    """address -> how often it ran"""
    subprocess.run(['qemu-aarch64', '-cpu', 'max', '-singlestep', '-d', 'exec,nochain', '-dfilter', filters, '-D', log,
                    program, level, type_, str(columns), str(ROWS), str(LENGTH)], check=True)
    turns = collections.Counter()
    with open(log) as lines:
        for line in lines:
            if at := re.search(r'\[[0-9a-f]+/([0-9a-f]+)/', line):
                turns[int(at[1], 16)] += 1
    return turns


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('arm')
    parser.add_argument('--type', nargs='+', default=TYPES)
    parser.add_argument('--level', nargs='+', default=['i8mm', 'dotprod', 'neon'])
    parser.add_argument('--columns', nargs='+', type=int, default=[1, 2, 8])
    parser.add_argument('--hot', action='store_true')
    args = parser.parse_args()
    top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with tempfile.TemporaryDirectory() as work:
        program, log = f'{work}/neon_count', f'{work}/log'
        build(top, args.arm, program)
        code = instructions(program)
        filters = spans(code)
        products = ROWS * LENGTH
        if args.hot:
            turns = count(program, filters, args.level[0], args.type[0], args.columns[0], log)
            for at in sorted(turns):
                print(f'{turns[at]:8} {code[at][0]:20} {at:x} {code[at][1]}')
            return
        heads = [f'{n} column{"s" * (n > 1)}' for n in args.columns]
        print('| level | type |', ' | '.join(heads), '| 512 columns | multiplies | loads, stores | rest |')
        print('|---' * (len(heads) + 6) + '|')
        for level in args.level:
            for type_ in args.type:
                runs = {n: count(program, filters, level, type_, n, log) for n in {*args.columns, 4, 8}}
                cells = [f'{runs[n].total() / products / n:.3f}' for n in args.columns]
                kinds = collections.Counter()
                for at in {*runs[4], *runs[8]}:
                    kind = 'm' if MULTIPLY.match(code[at][1]) else 's' if MEMORY.match(code[at][1]) else 'r'
                    kinds[kind] += (runs[4][at] + (runs[8][at] - runs[4][at]) * 127) / products / 512
                cells += [f'{v:.3f}' for v in (sum(kinds.values()), kinds['m'], kinds['s'], kinds['r'])]
                print('|', ' | '.join([level, type_, *cells]), '|', flush=True)


if __name__ == '__main__':
    sys.exit(main())
