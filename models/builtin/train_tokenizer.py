#!/usr/bin/env python3
"""Trains the byte-pair encoding of the built-in model on documents of the corpus (standard library alone)."""

import argparse
import json

import bytepair
from chatml import segments


def texts(path):
    with open(path, encoding="utf-8") as f:
        for line in f:
            for segment in segments(json.loads(line)):
                yield segment.text


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("corpus", help="documents, JSON by lines")
    p.add_argument("-o", "--output", required=True, help="the tokenizer, JSON")
    p.add_argument("--vocab", type=int, default=4096, help="tokens at most, control tokens included")
    p.add_argument("--least", type=int, default=8, help="times that a pair must occur to be merged")
    args = p.parse_args()
    tokenizer = bytepair.Tokenizer(bytepair.train(texts(args.corpus), args.vocab, args.least))
    tokenizer.save(args.output)
    n_bytes = n_tokens = 0
    for text in texts(args.corpus):
        n_bytes += len(text.encode())
        n_tokens += len(tokenizer.encode(text))
    print(f"{tokenizer.n_vocab} tokens; {n_bytes / n_tokens:.2f} bytes a token")


if __name__ == "__main__":
    main()
