#!/usr/bin/env python3
"""Instructions a weight of the 8-bit products for 64-bit ARM, counted in the disassembly.

  bench/neon_count.py OBJECT.. [--objdump aarch64-linux-gnu-objdump]

OBJECT is matmul_q8_neon.c as it was compiled for a level; its folder names the level. A kernel (matmul_<type>) has a loop
over the blocks of four rows: it unpacks them, then a loop over the columns multiplies the unpacked block with each. The
loops are found in the graph of jumps: the column loop is an innermost one that multiplies bytes, the block loop the
smallest around it, and a further loop in the block loop goes over the four rows. Where a loop has a short and a long way
round (blocks of 32: every eighth ends a block of activations), the short one is taken 7 times of 8.
"""
import argparse, re, subprocess

ROWS = 4
BLOCK = {'q4_0': 32, 'q8_0': 32, 'q4_k': 256, 'q5_k': 256, 'q6_k': 256}
MULTIPLY = re.compile(r'(smmla|sdot|smull2?|smlal2?|mla|mul|fmla|fmls|fmul)$')
BYTES = re.compile(r'(smmla|sdot|smull2?)\t.*\.(16b|8b)')
MEMORY = re.compile(r'(ld|st)(r|p|ur|1)')


def functions(objdump, path):
    """name -> [(address, 'op\targs', target of a jump or None)]"""
    out, body = {}, None
    text = subprocess.run([objdump, '-d', '--no-show-raw-insn', path], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        if head := re.match(r'[0-9a-f]+ <(\w+)>:', line):
            body = out.setdefault(head[1], [])
        elif body is not None and (ins := re.match(r'\s*([0-9a-f]+):\t(.*)', line)):
            jump = re.match(r'(b|b\.\w+|cbn?z|tbn?z)\t.*?([0-9a-f]+) <', ins[2])
            body.append((int(ins[1], 16), ins[2].strip(), int(jump[2], 16) if jump else None))
    return out


class Graph:
    """Blocks of instructions without a jump, named by their first address, and the natural loops among them."""

    def __init__(self, body):
        starts = {body[0][0]} | {t for _, _, t in body if t is not None}
        starts |= {after[0] for (_, op, t), after in zip(body, body[1:]) if t is not None or op == 'ret'}
        self.code, self.next = {}, {}
        for at, op, target in body:
            if at in starts:
                block = at
                self.code[block] = []
            self.code[block].append(op)
            if target is not None or op == 'ret' or at + 4 in starts:
                falls = not re.match(r'(b\t|ret)', op)
                self.next[block] = {target} - {None} | ({at + 4} if falls else set())
        self.next = {b: {s for s in self.next.get(b, ()) if s in self.code} for b in self.code}
        self.loops = self.find_loops(body[0][0])

    def find_loops(self, entry):
        """header -> blocks: the back edges are those to a block that every way to them passes."""
        before = {b: {p for p in self.code if b in self.next[p]} for b in self.code}
        over = {b: set(self.code) for b in self.code}
        over[entry], changed = {entry}, True
        while changed:
            changed = False
            for b in sorted(self.code):
                new = {b} | (set.intersection(*(over[p] for p in before[b])) if b != entry and before[b] else set())
                changed |= new != over[b]
                over[b] = new
        loops = {}
        for latch in self.code:
            for header in self.next[latch] & over[latch]:
                inside, todo = loops.setdefault(header, {header}), [latch]
                while todo:
                    b = todo.pop()
                    if b not in inside:
                        inside.add(b)
                        todo += before[b]
        return loops

    def ways(self, header, within, inner, to=None):
        """Least and most instructions once round a loop, or up to block `to` and with it; `inner`: header -> cost."""
        seen = {}

        def walk(b):
            if b in seen:
                return seen[b]
            loop = self.loops[b] if b in inner else {b}
            cost = inner[b] if b in inner else len(self.code[b])
            follows = [s for x in loop for s in self.next[x] if s in within and s not in loop]
            ends = b == to or (to is None and any(header in self.next[x] for x in loop))
            costs = ([0] if ends else []) + [c for s in follows if s != header and b != to for c in walk(s)]
            seen[b] = [cost + min(costs), cost + max(costs)] if costs else []
            return seen[b]
        return walk(header)


def mean(ways):
    return (7 * ways[0] + ways[1]) / 8


def count(body):
    """Instructions of a block of four rows: unpacking, a column, and of a column the multiplies, the loads and stores.

    With smmla the loop over pairs of columns is counted, a column half of it; the unpacking is not told apart there.
    """
    g = Graph(body)
    inmost = {h: l for h, l in g.loops.items() if not any(o != h and o in l for o in g.loops)}
    columns = {h: l for h, l in inmost.items() if any(BYTES.match(op) for b in l for op in g.code[b])}
    outer = [(h, l) for h, l in g.loops.items() if all(l > c for c in columns.values())]
    around, blocks = min(outer, key=lambda x: len(x[1]))
    pairs = {h: l for h, l in columns.items() if any(op.startswith('smmla') for b in l for op in g.code[b])}
    if pairs:
        columns = pairs
    rounds = [g.ways(h, l, {}) for h, l in columns.items()]
    column = mean([min(r[0] for r in rounds), max(r[1] for r in rounds)])
    short = min(columns, key=lambda h: g.ways(h, columns[h], {})[0])
    ops = [op.split('\t')[0] for b in columns[short] for op in g.code[b]]
    multiplies, memory = (sum(1 for op in ops if kind.match(op)) for kind in (MULTIPLY, MEMORY))
    if pairs:
        return None, column / 2, multiplies / 2, memory / 2
    inner = {h: 0 for h in columns}
    for h, l in inmost.items():
        if h in blocks and h not in columns:
            way_out = next(b for b in l if g.next[b] - l)
            inner[h] = (ROWS - 1) * g.ways(h, l, {})[0] + g.ways(h, l, {}, way_out)[0]
    return mean(g.ways(around, blocks, inner)), column, multiplies, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('object', nargs='+')
    parser.add_argument('--objdump', default='aarch64-linux-gnu-objdump')
    args = parser.parse_args()
    print('| level | type | one column | 8 columns | 512 columns | a column: multiplies | loads and stores | in all |')
    print('|---|---|---|---|---|---|---|---|')
    for path in args.object:
        level = re.search(r'libkernels_(\w+)\.a', path)
        kernels = functions(args.objdump, path)
        for name, elements in BLOCK.items():
            unpack, column, multiplies, memory = count(kernels['matmul_' + name])
            weights = ROWS * elements
            cells = [f'{(unpack / n + column) / weights:.3f}' if unpack else '' for n in (1, 8)]
            cells += [f'{((unpack or 0) / 512 + column) / weights:.3f}']
            cells += [f'{multiplies:g}', f'{memory:g}', f'{column:g}']
            print('|', ' | '.join([level[1] if level else path, name.upper(), *cells]), '|')


if __name__ == '__main__':
    main()
