"""Byte-pair encoding of the built-in model: how a text is split, trained on, and encoded.

The split is that of the pre-tokenizer "qwen2" (every digit stands alone), written with what `re` of the standard library
knows: \\p{L} is [^\\W\\d_], \\p{N} is \\d. The two differ for numerals that are no digits (roman, fractions), which the
training text does not hold. Tokens are bytes; in files they are written in GPT-2's printable alphabet.
"""

import json
import re
from collections import Counter, defaultdict

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PRE = "qwen2"

_LETTER = r"[^\W\d_]"
_SIGN = r"(?:[^\s\w]|_)"  # neither space, letter nor digit
_SPLIT = re.compile(
    r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
    rf"|(?:[^\r\n\w]|_)?{_LETTER}+"
    r"|\d"
    rf"| ?{_SIGN}+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)


def _byte_alphabet():
    """GPT-2's: printable bytes are themselves, the others follow from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


ALPHABET = _byte_alphabet()


def split(text):
    return _SPLIT.findall(text)


def write_token(token):
    return "".join(ALPHABET[b] for b in token)


def _merge(word, pair, merged):
    out, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(merged)
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def train(texts, n_vocab, least=8):
    """The merges, the most frequent pair first, until there are n_vocab tokens or no pair occurs `least` times."""
    counts = Counter()
    for text in texts:
        counts.update(split(text))
    words = [[tuple(bytes([b]) for b in word.encode()), n] for word, n in sorted(counts.items())]
    pairs, where = Counter(), defaultdict(set)
    for i, (word, n) in enumerate(words):
        for pair in zip(word, word[1:]):
            pairs[pair] += n
            where[pair].add(i)
    merges, known = [], {bytes([b]) for b in range(256)}
    while len(known) < n_vocab - len(CONTROL) and pairs:
        pair = max(pairs, key=lambda p: (pairs[p], p))
        if pairs[pair] < least:
            break
        merged = pair[0] + pair[1]
        merges.append(pair)
        known.add(merged)
        for i in where.pop(pair):
            word, n = words[i]
            for old in zip(word, word[1:]):
                pairs[old] -= n
                if pairs[old] <= 0:
                    del pairs[old]
            words[i][0] = word = _merge(word, pair, merged)
            for new in zip(word, word[1:]):
                pairs[new] += n
                where[new].add(i)
    return merges


class Tokenizer:
    """Ids: 0..255 the bytes, then a token a merge, then the control tokens."""

    def __init__(self, merges):
        self.merges = merges
        self.tokens = [bytes([b]) for b in range(256)]
        seen = set(self.tokens)
        for a, b in merges:
            if a + b not in seen:
                seen.add(a + b)
                self.tokens.append(a + b)
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.ranks = {pair: i for i, pair in enumerate(merges)}
        self.control = {name: len(self.tokens) + i for i, name in enumerate(CONTROL)}
        self.n_vocab = len(self.tokens) + len(CONTROL)
        self.cache = {}

    @classmethod
    def load(cls, path):
        from_char = {c: b for b, c in ALPHABET.items()}
        with open(path, encoding="utf-8") as f:
            merges = json.load(f)["merges"]
        return cls([tuple(bytes(from_char[c] for c in part) for part in merge.split(" ")) for merge in merges])

    def save(self, path):
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"pre": PRE, "merges": self.written_merges()}, f, ensure_ascii=True, indent=0)

    def written_merges(self):
        return [f"{write_token(a)} {write_token(b)}" for a, b in self.merges]

    def written_tokens(self):
        return [write_token(token) for token in self.tokens] + CONTROL

    def _encode_word(self, word):
        parts = tuple(bytes([b]) for b in word.encode())
        while len(parts) > 1:
            pair = min(zip(parts, parts[1:]), key=lambda p: self.ranks.get(p, len(self.ranks)))
            if pair not in self.ranks:
                break
            parts = _merge(parts, pair, pair[0] + pair[1])
        return [self.ids[part] for part in parts]

    def encode(self, text):
        """The ids of a text without control tokens."""
        out = []
        for word in split(text):
            ids = self.cache.get(word)
            if ids is None:
                ids = self.cache[word] = self._encode_word(word)
            out += ids
        return out

    def decode(self, ids):
        parts = [self.tokens[i] if i < len(self.tokens) else CONTROL[i - len(self.tokens)].encode() for i in ids]
        return b"".join(parts).decode("utf-8", "replace")
