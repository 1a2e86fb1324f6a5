#!/usr/bin/python3
"""Compares the tokenizer of RWKV with a greedy matcher of its own: 12,000 seeded texts, of words, code, all scripts and bytes
that are no UTF-8, with a vocabulary that is made of this repository's own pages; and that decoding gives the texts back.
Usage: check_rwkv.py QUERN
"""
import collections
import glob
import os
import random
import re
import struct
import subprocess
import sys
import tempfile


SEED, N_TEXTS, N_WORDS = 20, 12000, 4000


def text(s):
    b = s.encode()
    return struct.pack('<Q', len(b)) + b


def spell(token):
    """A token as the files of RWKV spell it: as Python prints bytes."""
    try:
        plain = token.decode()
        if plain.isprintable():
            return plain.replace('\\', '\\\\')
    except UnicodeDecodeError:
        pass
    return repr(token)[2:-1].replace("\\'", "'")


def vocabulary(rng, pages):
    counts = collections.Counter()
    for page in pages:
        for word in re.findall(rb' ?[A-Za-z_]+|[^A-Za-z_\s]+|\s+', page):
            for n in range(2, min(len(word), 12) + 1):
                counts[word[:n]] += 1
    tokens = [bytes([i]) for i in range(256)] + [w for w, _ in counts.most_common(N_WORDS)]
    for _ in range(400):  # pieces of characters, and characters of all planes
        c = chr(rng.choice([rng.randrange(0xA0, 0xD800), rng.randrange(0x1F300, 0x1F700)])).encode()
        tokens += [c, c[:rng.randrange(1, len(c))], bytes(rng.randrange(256) for _ in range(rng.randrange(2, 5)))]
    return list(dict.fromkeys(t for t in tokens if t))


def write_vocabulary(path, tokens):
    names = ['<s>'] + [spell(t) for t in tokens]
    keys = {'general.architecture': 'rwkv7', 'tokenizer.ggml.model': 'rwkv'}
    head = struct.pack('<4sIQQ', b'GGUF', 3, 0, len(keys) + 2)
    head += b''.join(text(k) + struct.pack('<I', 8) + text(v) for k, v in keys.items())
    head += text('tokenizer.ggml.tokens') + struct.pack('<IIQ', 9, 8, len(names)) + b''.join(text(n) for n in names)
    head += text('tokenizer.ggml.token_type') + struct.pack('<IIQ', 9, 5, len(names))
    head += struct.pack(f'<{len(names)}i', 3, *([1] * len(tokens)))
    with open(path, 'wb') as f:
        f.write(head)


def random_text(rng, pages):
    kind = rng.randrange(5)
    if kind == 0:
        page = rng.choice(pages)
        at = rng.randrange(len(page))
        s = page[at:at + rng.randrange(200)]
    elif kind == 1:
        s = ''.join(chr(rng.choice([rng.randrange(32, 0xD800), rng.randrange(0xE000, 0x110000)]))
                    for _ in range(rng.randrange(40))).encode()
    elif kind == 2:
        s = bytes(rng.randrange(1, 256) for _ in range(rng.randrange(60)))
    elif kind == 3:
        s = ''.join(rng.choice(' \t\n\r\\\'"x0123456789abc<s>') for _ in range(rng.randrange(60))).encode()
    else:
        s = b' '.join(rng.choice(pages)[:rng.randrange(1, 12)] for _ in range(rng.randrange(1, 9)))
    return s.replace(b'\0', b' ')


def greedy(s, ids, longest):
    out, at = [], 0
    while at < len(s):
        n = next(n for n in range(min(longest, len(s) - at), 0, -1) if s[at:at + n] in ids)
        out.append(ids[s[at:at + n]])
        at += n
    return out


def main(quern):
    rng = random.Random(SEED)
    print('seed', SEED)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    pages = [open(p, 'rb').read() for p in sorted(glob.glob(root + '/docs/*.md') + glob.glob(root + '/engine/text/*.c'))]
    tokens = vocabulary(rng, pages)
    ids = {t: i + 1 for i, t in enumerate(tokens)}
    texts = [random_text(rng, pages) for _ in range(N_TEXTS)]
    with tempfile.TemporaryDirectory() as folder:
        model, file = os.path.join(folder, 'v.gguf'), os.path.join(folder, 'texts')
        write_vocabulary(model, tokens)
        with open(file, 'wb') as f:
            f.write(b'\0'.join(texts) + b'\0')
        out = subprocess.run([quern, 'tokenize', '-m', model, '-f', file, '-0'], capture_output=True, check=True).stdout
    lines = out.decode().split('\n')[:N_TEXTS]
    longest, wrong = max(map(len, tokens)), 0
    for s, line in zip(texts, lines):
        got = [int(i) for i in line.split()]
        if got != greedy(s, ids, longest) or b''.join(tokens[i - 1] for i in got) != s:
            wrong += 1
            print('differs:', s, got, greedy(s, ids, longest)) if wrong < 5 else None
    n = sum(len(line.split()) for line in lines)
    print(f'{len(tokens)} tokens, {N_TEXTS} texts of {sum(map(len, texts))} bytes, {n} tokens: {wrong} differ')
    sys.exit(1 if wrong or len(lines) != N_TEXTS else 0)


if __name__ == '__main__':
    main(sys.argv[1])
