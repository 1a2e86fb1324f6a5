#!/usr/bin/env python3
"""Has quern answer the prompts of check.py, one process a prompt, and writes the answers for its judge."""

import argparse
import json
import subprocess


def answer(args, i, prompt):
    command = [args.quern, "run", "-n", str(args.n), "--json", "-p", prompt["prompt"]]
    if args.model:
        command += ["-m", args.model]
    if args.sampled:
        command += ["--seed", str(args.seed + i)]
    else:
        command += ["--temp", "0"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return json.loads(done.stdout)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--quern", required=True, help="the program")
    p.add_argument("-m", "--model", help="without it the built-in one")
    p.add_argument("--prompts", required=True)
    p.add_argument("-o", "--output", required=True)
    p.add_argument("-n", type=int, default=200, help="tokens of an answer at most")
    p.add_argument("--sampled", action="store_true", help="at the default sampling; else always the likeliest token")
    p.add_argument("--seed", type=int, default=1, help="of the first answer; the next has the next")
    args = p.parse_args()
    with open(args.prompts, encoding="utf-8") as prompts, open(args.output, "w", encoding="utf-8") as out:
        for i, line in enumerate(prompts):
            prompt = json.loads(line)
            out.write(json.dumps({"id": prompt["id"], "text": answer(args, i, prompt)["text"]}) + "\n")


if __name__ == "__main__":
    main()
