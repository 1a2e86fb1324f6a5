"""The command: python3 -m corpus --seed N --split train|heldout --documents N -o FILE (run from models/builtin/)."""

import argparse
import json
import sys

from .mixture import document
from .wording import speaker


def main():
    parser = argparse.ArgumentParser(prog='corpus',
    description='Write the text of quern\'s built-in model, a JSON document a line.')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--split', choices=('train', 'heldout'), default='train')
    parser.add_argument('--documents', type=int, default=1000)
    parser.add_argument('-o', '--output', default='-')
    args = parser.parse_args()
    speak = speaker(args.seed, args.split)
    out = sys.stdout if args.output == '-' else open(args.output, 'w', encoding='utf-8')
    with out:
        for _ in range(args.documents):
            out.write(json.dumps(document(speak), ensure_ascii=False) + '\n')


if __name__ == '__main__':
    main()
