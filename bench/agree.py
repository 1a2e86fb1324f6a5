#!/usr/bin/env python3
"""Do engines and settings write the same tokens, and where they part, is it rounding?

  bench/agree.py QUERN MODEL [--prompts 100] [--gen 256] [--same 'A :: B']... [--pair 'A :: B']...
                 [--peer NAME=FOLDER]...

Prompts are made from a seed, or are the lines of a file; each is gone on with greedily for --gen tokens, the tokens
that end an answer left out. A side of a comparison is
  FLAGS             of quern batch, such as --isa avx2 -t 1 -np 8; none: quern as it comes
  run: FLAGS        of quern run, for the first --run prompts
  NAME: kv=f16 fa=0 t=2 np=1    of a peer, whose folder has include/llama.h and a built libllama.so (llama.cpp,
                    ik_llama.cpp): type of the KV cache, flash attention, threads, prompts at once

--same sides must write the same tokens with the very bits of their log-probabilities (run: seven digits). --pair sides
may part. Then, at the first token that differs, both sides' logits of the same ids are taken; it is explained when
  - each side's logits put first what that side wrote, so that what differs is the logits and not the choice, and
  - the margin between the two tokens is under twice the largest error of a logit, both at that place (where it follows
    from the first) and over the places before partings, of all prompts (where it does not).
An error is the difference between the two sides' logits of one id. As errors of any size would explain any parting,
their mean square must be under --far of the logits' variance. Without --same and --pair a list of both is tried.
Status 1: bits that should be equal differ, a parting is not explained, or a pair's logits are too far apart.
"""
import argparse, array, glob, json, math, operator, os, random, shlex, subprocess, sys, tempfile

PLACES = 8  # of each prompt's common text, at which errors are taken

# --- prompts ---

NAMES = 'Lily Tom Ben Mia Sam Anna Max Sue Tim Lucy Jack Amy'.split()
WHO = 'fox dog bear boy girl bird frog king cat mouse rabbit duck'.split()
KIND = 'little brave sad happy old lazy clever small hungry kind red quiet'.split()
WHERE = 'the forest|a big house|the park|a small town|the garden|a cave|the lake|a barn'.split('|')
WHAT = 'ball cake book boat kite stone flower box hat tree drum lamp'.split()
OPENINGS = ('Once upon a time', 'One day', 'Long ago', 'In the morning', 'It was a sunny day and', 'At night')
NEXT = ('{name} lived in {where}.', '{name} wanted to find a {kind} {what}.',
        'Every day {name} played with the {what}.', '"Where is my {what}?" asked {name}.',
        'Then a {kind} {who} came to {where}.', '{name} said, "I am {kind}."',
        'The {who} did not like the {what}.', 'They went to {where} and saw a {what}.')

def make_prompts(n, seed):
    """Beginnings of stories, of one to eight sentences, some of which end within one."""
    rng, out = random.Random(seed), []
    while len(out) < n:
        name = rng.choice(NAMES)
        fill = lambda s: s.format(name=name, kind=rng.choice(KIND), who=rng.choice(WHO), where=rng.choice(WHERE),
                                  what=rng.choice(WHAT))
        text = ' '.join([fill(rng.choice(OPENINGS) + ' there was a {kind} {who} named {name}.')] +
                        [fill(rng.choice(NEXT)) for _ in range(rng.randrange(8))])
        text = text[:len(text) - rng.choice((0, 0, 1, 7, 15))].rstrip()
        if text not in out:
            out.append(text)
    return out

# --- quern ---

def check(cmd, **more):
    done = subprocess.run(cmd, capture_output=True, **more)
    if done.returncode:
        sys.exit(f'{shlex.join(cmd)}: status {done.returncode}\n{done.stderr.decode(errors="replace")[-2000:]}')
    return done.stdout

def encode(a, prompts):
    out = check([a.quern, 'tokenize', '-m', a.model, '--bos', '-0'], input='\0'.join(prompts).encode()).decode()
    ids = [[int(word) for word in line.split()] for line in out.splitlines()]
    if len(ids) != len(prompts):
        sys.exit(f'{len(ids)} lists of ids for {len(prompts)} prompts')
    return ids

def batch(a, bodies, flags):
    """The first choice of each row."""
    path, out = os.path.join(a.dir, 'rows.jsonl'), os.path.join(a.dir, 'out.jsonl')
    with open(path, 'w') as f:
        f.writelines(json.dumps(body | {'temperature': 0}) + '\n' for body in bodies)
    for stale in glob.glob(out + '*'):
        os.unlink(stale)
    check([*a.under, a.quern, 'batch', '-m', a.model, path, '-o', out, '-c', str(a.context), *flags])
    return [json.loads(line)['response']['body']['choices'][0] for line in open(out)]

CONTROL = '3'

def ends_of(a, prompt):
    """The ids that end an answer, which --ignore-eos leaves out: each control token is made the most likely one."""
    types = check([a.quern, 'inspect', a.model, '--key', 'tokenizer.ggml.token_type'], text=True).split()
    ids = [id for id, kind in enumerate(types) if kind == CONTROL]
    made = batch(a, [{'prompt': prompt, 'max_tokens': 1, 'logit_bias': {str(id): 100}} for id in ids], [])
    return [id for id, choice in zip(ids, made) if choice['finish_reason'] == 'stop']

class Quern:
    """Greedy answers under some flags, and the logits of any ids under the same."""
    def __init__(self, a, flags):
        self.a, self.flags = a, shlex.split(flags)
        self.name = 'quern ' + flags if flags else 'quern'

    def run(self, ids):
        a = self.a
        choices = batch(a, [{'prompt': prompt, 'max_tokens': a.gen, 'ignore_eos': True, 'logprobs': 0,
                             'return_token_ids': True} for prompt in ids], self.flags)
        self.ids = [c['token_ids'] for c in choices]
        self.bits = [c['logprobs']['token_logprobs'] for c in choices]
        for i, answer in enumerate(self.ids):
            if len(answer) != a.gen:
                sys.exit(f'{self.name}: prompt {i} has {len(answer)} tokens of {a.gen}')

    def rows(self, number, prompt, text, places):
        """The logits from which the tokens at these places of the text were, or would be, chosen."""
        a, ids = self.a, prompt + text[:max(places)]
        into, out = os.path.join(a.dir, 'ids'), os.path.join(a.dir, 'logits')
        with open(into, 'wb') as f:
            array.array('i', [len(ids), 0, *ids]).tofile(f)
        flags = list(self.flags)
        if '-np' in flags:
            at = flags.index('-np')
            del flags[at:at + 2]
        check([*a.under, a.quern, 'logits', '-m', a.model, '--ids', into, '-o', out, '-c', str(a.context), *flags])
        with open(out, 'rb') as f:
            n, n_vocab = array.array('i', f.read(8))
            read = {}
            for place in places:
                f.seek(8 + 4 * n + 4 * n_vocab * (len(prompt) - 1 + place))
                read[place] = array.array('f', f.read(4 * n_vocab))
        return read

class Run:
    """The first prompts by quern run, one process each."""
    def __init__(self, a, flags):
        self.a, self.flags, self.name = a, shlex.split(flags), 'quern run ' + flags

    def run(self, ids):
        a, path, self.ids, self.bits = self.a, os.path.join(self.a.dir, 'prompt'), [], []
        for prompt in a.prompts[:a.run]:
            open(path, 'w').write(prompt)
            cmd = [*a.under, a.quern, 'run', '-m', a.model, '--raw', '-f', path, '-n', str(a.gen), '-c', str(a.context),
                   '--temp', '0', '--ignore-eos', '--json', '--logprobs', '0', *self.flags]
            tokens = json.loads(check(cmd))['logprobs']
            self.ids.append([token['id'] for token in tokens])
            self.bits.append([token['logprob'] for token in tokens])

# --- llama.cpp and ik_llama.cpp ---

def find(folder, name):
    """Folders below this one that have such a file."""
    return sorted({os.path.dirname(p) for p in glob.glob(os.path.join(folder, 'build', '**', name), recursive=True)})

def build_peer(a, folder):
    """agree_peer.c beside the library in this folder; what its header has decides which calls are made."""
    folder = os.path.abspath(folder)
    header = open(os.path.join(folder, 'include', 'llama.h')).read()
    program = os.path.join(a.dir, f'agree_peer_{len(a.programs)}')
    marks = {'llama_memory_clear': 'PEER_MEMORY', 'llama_vocab_n_tokens': 'PEER_VOCAB',
             'flash_attn_type;': 'PEER_FLASH_TYPE'}
    defines = ['-D' + name for mark, name in marks.items() if mark in header]
    includes = ['-I' + os.path.join(folder, 'include'), '-I' + os.path.join(folder, 'ggml', 'include')]
    libraries = [name for name in ('llama', 'ggml', 'ggml-base') if find(folder, f'lib{name}.so')]
    places = sorted({place for name in libraries for place in find(folder, f'lib{name}.so')})
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'agree_peer.c')
    check(['cc', '-O2', *defines, *includes, source, '-o', program, *('-L' + p for p in places),
           *('-l' + name for name in libraries), '-lm', *('-Wl,-rpath,' + p for p in places)])
    return program

class Peer:
    """Another engine's greedy answers; it keeps the logits of every token that it chose."""
    def __init__(self, a, name, options):
        self.a, self.peer = a, name
        self.name = f'{name} {options}'.strip()
        self.options = {'kv': 'f16', 'fa': '0', 't': '2', 'np': '1'}
        self.options.update(word.split('=') for word in options.split())

    def run(self, ids):
        a, o = self.a, self.options
        if self.peer not in a.programs:
            a.programs[self.peer] = build_peer(a, a.peers[self.peer])
        self.file = os.path.join(a.dir, f'peer_{len(os.listdir(a.dir))}')
        lines = ''.join(' '.join(map(str, prompt)) + '\n' for prompt in ids)
        check([*a.under, a.programs[self.peer], a.model, self.file, str(a.gen), o['t'], o['np'], o['kv'], o['fa'],
               ','.join(map(str, a.ends))], input=lines.encode())
        with open(self.file, 'rb') as f:
            n, gen, self.n_vocab = array.array('i', f.read(12))
            self.ids = [list(array.array('i', f.read(4 * gen))) for _ in range(n)]

    def rows(self, number, prompt, text, places):
        read = {}
        with open(self.file, 'rb') as f:
            for place in places:
                row = number * self.a.gen + place
                f.seek(12 + 4 * len(self.ids) * self.a.gen + 4 * self.n_vocab * row)
                read[place] = array.array('f', f.read(4 * self.n_vocab))
        return read

def side(a, text):
    text = text.strip()
    name, colon, options = text.partition(':')
    if colon and name.strip() == 'run':
        return Run(a, options.strip())
    if colon and name.strip() in a.peers:
        return Peer(a, name.strip(), options.strip())
    return Quern(a, text)

# --- comparing ---

def first_difference(x, y):
    return next((i for i, (u, v) in enumerate(zip(x, y)) if u != v), None)

def first(row, ends):
    """The most likely id of those that may be chosen, of equal ones the lower."""
    kept = array.array('f', row)
    for id in ends:
        kept[id] = -math.inf
    return kept.index(max(kept))

class Pair:
    """Two sides, prompt by prompt: where they part, how far their logits are from each other, and the margins."""
    def __init__(self, a, left, right):
        self.a, self.left, self.right = a, left, right
        self.partings = []  # (prompt, place, margin, error there, both chose what they wrote)
        self.errors, self.lengths = [], []
        self.square = self.total = 0.0

    def measure(self, x, y):
        differences = array.array('d', map(operator.sub, x, y))
        return differences, max(map(abs, differences))

    def add(self, number, prompt):
        text, other = self.left.ids[number], self.right.ids[number]
        place = first_difference(text, other)
        length = len(text) if place is None else place
        self.lengths.append(length)
        places = sorted({length * i // PLACES for i in range(PLACES)} - {length}) + ([] if place is None else [place])
        ours = self.left.rows(number, prompt, text, places)
        theirs = self.right.rows(number, prompt, text, places)
        for p in places:
            differences, error = self.measure(ours[p], theirs[p])
            if p == place:
                u, v = text[p], other[p]
                own = first(ours[p], self.a.ends) == u and first(theirs[p], self.a.ends) == v
                self.partings.append((number, p, max(ours[p][u] - ours[p][v], theirs[p][v] - theirs[p][u]), error, own))
            else:
                self.errors.append(error)
                mean = math.fsum(theirs[p]) / len(theirs[p])
                self.square += sum(map(operator.mul, differences, differences))
                self.total += sum((value - mean) ** 2 for value in theirs[p])

    def explained(self, parting):
        _, _, margin, there, own = parting
        return own and margin < 2 * there and margin < 2 * max(self.errors, default=0)

    def distance(self):
        return self.square / self.total if self.total else 0.0

    def row(self):
        n, margins = len(self.lengths), [p[2] for p in self.partings]
        good = sum(map(self.explained, self.partings))
        errors = sorted(self.errors) or [0]
        cells = (self.left.name, self.right.name, f'{n - len(self.partings)} of {n}', f'{sum(self.lengths) / n:.0f}',
                 f'{good} / {len(self.partings) - good}', f'{max(margins):.2g}' if margins else '',
                 f'{errors[len(errors) // 2]:.2g}, {errors[-1]:.2g}', f'{self.distance():.1e}')
        return '| ' + ' | '.join(cells) + ' |'

HEAD = ('| one side | the other | the same to the end | tokens before they part, mean | partings explained / not '
        '| largest margin at one | error of a logit: median of the largest of a place, largest | NMSE |\n'
        '|---|---|---|---|---|---|---|---|')

def levels(a):
    """What runs here, best first, by the line `isa [best] other other` of quern device."""
    for line in check([a.quern, 'device']).decode().splitlines():
        if line.startswith('isa'):
            return [word.strip('[]') for word in line.split()[1:]]
    sys.exit('quern device names no level')

def takes(a, flags):
    """Whether the model can be run so: short heads fill no block of a quantised cache. Says it, if not."""
    done = subprocess.run([a.quern, 'dump', 'plan', '-m', a.model, *flags.split()], capture_output=True, text=True)
    if done.returncode:
        print(f'without {flags}: {done.stderr.strip()}')
    return not done.returncode

def defaults(a):
    """Whatever promises the same bits; and, with each setting that does not, that it does so by itself."""
    if a.same or a.pair:
        return
    names = levels(a)
    others = ['-t 1', '-np 1', '-np 8 -t 1', '-ub 16', 'run:', 'run: --speculate on -t 1']
    a.same = [' :: ' + flags for flags in others + ['--isa ' + name for name in names]]
    settings = ['--exact', '-ctk f32 -ctv f32', '-ctk q8_0 -ctv q8_0', '-ctk q4_0 -ctv q4_0']
    settings = [flags for flags in settings if takes(a, flags)]
    a.same += [f'{flags} :: {flags} -t 1 -np 3 --isa {name}' for flags in settings for name in names[1:]]
    a.pair = [' :: ' + flags for flags in settings if 'q4_0' not in flags]  # four bits are far indeed

def rounded(values, other):
    return [float(f'{v:.7g}') for v in values] if isinstance(other, Run) else values

def compare_bits(x, y):
    """How many prompts differ in a token or in a bit of a token's log-probability; says where the first ones do."""
    wrong = 0
    for i in range(min(len(x.ids), len(y.ids))):
        token = first_difference(x.ids[i], y.ids[i])
        bit = first_difference(rounded(x.bits[i], y), rounded(y.bits[i], x))
        if token is None and bit is None and len(x.ids[i]) == len(y.ids[i]):
            continue
        wrong += 1
        if wrong <= 5:
            print(f'  prompt {i}: token {token} differs, log-probability {bit}')
    print(f'{x.name} :: {y.name}: ' + (f'{wrong} prompts DIFFER' if wrong else 'the same bits'), flush=True)
    return wrong

def report(pairs):
    """The table, and what is wrong in it; how much that is."""
    bad = 0
    for i, pair in enumerate(pairs):
        print(pair.row() if i else HEAD + '\n' + pair.row())
    for pair in pairs:
        name = f'{pair.left.name} :: {pair.right.name}'
        if pair.distance() > pair.a.far:
            bad += 1
            print(f'TOO FAR: {name}: NMSE {pair.distance():.2g}')
        for number, place, margin, there, own in (p for p in pair.partings if not pair.explained(p)):
            bad += 1
            print(f'NOT EXPLAINED: {name}: prompt {number}, token {place}: margin {margin:.3g}, error {there:.3g}, '
                  f'elsewhere up to {max(pair.errors, default=0):.3g}{"" if own else "; logits put another first"}')
    return bad

def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('quern')
    p.add_argument('model')
    p.add_argument('--prompts', default='100', help='how many, or a file of them, a line each')
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--gen', type=int, default=256)
    p.add_argument('--run', type=int, default=8)
    p.add_argument('--far', type=float, default=1e-2)
    p.add_argument('--under', default='', help='what every program that computes is started by: nice -n 19')
    p.add_argument('--same', action='append', default=[])
    p.add_argument('--peer', action='append', default=[])
    p.add_argument('--pair', action='append', default=[])
    a = p.parse_args()
    a.peers = dict(spec.split('=', 1) for spec in a.peer)
    a.programs, a.under = {}, shlex.split(a.under)
    return a

def main():
    a = arguments()
    defaults(a)
    a.prompts = make_prompts(int(a.prompts), a.seed) if a.prompts.isdigit() else open(a.prompts).read().splitlines()
    with tempfile.TemporaryDirectory() as a.dir:
        ids, sides = encode(a, a.prompts), {}
        a.context = max(map(len, ids)) + a.gen + 1
        a.ends = ends_of(a, ids[0])
        lengths = [len(prompt) for prompt in ids]
        print(f'{os.path.basename(a.model)}: {len(ids)} prompts of {min(lengths)} to {max(lengths)} tokens, {a.gen} '
              f'tokens each, seed {a.seed}, without {a.ends}', flush=True)

        def done(text):
            key = ' '.join(text.split())
            if key not in sides:
                sides[key] = side(a, key)
                sides[key].run(ids)
            return sides[key]

        bad = sum(compare_bits(*map(done, text.split('::'))) for text in a.same)
        pairs = [Pair(a, *map(done, text.split('::'))) for text in a.pair]
        for pair in pairs:
            for number in range(min(len(pair.left.ids), len(pair.right.ids))):
                pair.add(number, ids[number])
        bad += report(pairs)
    sys.exit(1 if bad else 0)

main()
