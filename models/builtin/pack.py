#!/usr/bin/env python3
"""Documents to rows of token ids, mapped into memory by train.py.

A row holds whole documents, one behind the other, and no document is cut. In half of the rows <|endoftext|> stands behind
each; the others are one long conversation as far as their documents allow it, so that the model learns to answer the
tenth question as it answers the first. The file holds, a row: int16 ids[n], uint8 weight[n], of each token in the loss: 0
for what users and systems say, SHORT for answers, LONG for stories, which would outweigh all else by their length.
"""

import argparse
import json
import random

import numpy as np

from bytepair import Tokenizer
from chatml import segments

SHORT, LONG, LONG_FROM = 2, 1, 64
N_POOL = 128  # documents among which one is sought that fits into what is left of a row


def encode(tokenizer, document):
    """Ids and marks of a document."""
    ids, weights = [], []
    newline = tokenizer.encode("\n")
    for segment in segments(document):
        if segment.before:
            ids.append(tokenizer.control[segment.before])
            weights.append(0)
        body = tokenizer.encode(segment.text)
        n_head = len(tokenizer.encode(segment.head))
        ids += body + [tokenizer.control[segment.after]]
        weight = 0 if not segment.learned else LONG if len(body) >= LONG_FROM else SHORT
        weights += [0] * n_head + [weight] * (len(body) - n_head + 1)
        if segment.after == "<|im_end|>":
            ids += newline
            weights += [0] * len(newline)
    return ids, weights


def may_go_on(document):
    """Whether another conversation may follow in the same context: not behind a plain text or a system message."""
    return "text" not in document and document["messages"][0]["role"] != "system"


def read(path, tokenizer, longest, part, rng):
    """(ids, marks, may_go_on) of every document that fits into a row; of those with a story only a part."""
    n_long = 0
    with open(path, encoding="utf-8") as f:
        for line in f:
            document = json.loads(line)
            ids, weights = encode(tokenizer, document)
            if LONG in weights and rng.random() >= part:
                continue
            if len(ids) < longest:
                yield ids, weights, may_go_on(document)
            else:
                n_long += 1
    if n_long:
        print(f"{n_long} documents are longer than a row and were left out")


def rows(documents, n, end, rng):
    """Rows of n ids and marks; `end` is <|endoftext|>."""
    pool, row, marks, open_end = [], [], [], False
    source = iter(documents)
    talk = rng.random() < 0.5
    while True:
        while len(pool) < N_POOL and (document := next(source, None)):
            pool.append(document)
        i = next((i for i, (ids, _, _) in enumerate(pool) if len(row) + len(ids) + 1 <= n), None)
        if i is not None:
            ids, weights, open_now = pool.pop(i)
            if row and row[-1] != end and not (talk and open_end and open_now):
                row, marks = row + [end], marks + [0]
            row, marks, open_end = row + ids, marks + weights, open_now
            continue
        if not row:
            return
        marks[0] = 0  # nothing stands before it
        yield row + [end] * (n - len(row)), marks + [0] * (n - len(marks))
        row, marks, talk = [], [], rng.random() < 0.5


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("corpus")
    p.add_argument("--tokenizer", required=True)
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--row", type=int, default=1025, help="tokens of a row: the context and one more")
    p.add_argument("--stories", type=float, default=1.0, metavar="PART", help="keep this part of the stories")
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    tokenizer = Tokenizer.load(args.tokenizer)
    end, rng = tokenizer.control["<|endoftext|>"], random.Random(args.seed)
    documents = read(args.corpus, tokenizer, args.row, args.stories, random.Random(args.seed + 1))
    n_rows = n_used = n_learned = 0
    with open(args.output, "wb") as out:
        for ids, weights in rows(documents, args.row, end, rng):
            out.write(np.array(ids, dtype="<i2").tobytes() + np.array(weights, dtype="u1").tobytes())
            n_rows += 1
            n_used += len(ids)
            n_learned += sum(w > 0 for w in weights)
    print(f"{n_rows} rows of {args.row} tokens, {n_learned / max(n_used, 1):.0%} learned")


if __name__ == "__main__":
    main()
