#!/usr/bin/env python3
"""Trains the built-in model (PyTorch, float32, CPU).

A Llama: RMS norms, rotary positions (halves, as in the paper's code; export.py reorders the rows), grouped queries,
SwiGLU, tied embeddings. The matrices of the layers learn by Muon (momentum, made orthogonal), all else by AdamW. The rate
rises over the first tokens, holds, and falls in a line to zero at --tokens; while it holds, --tokens may be changed with
--resume without changing what a run in one piece would compute.
"""

import argparse
import csv
import json
import math
import os
import signal
import time
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Shape:
    n_vocab: int = 4096
    n_embd: int = 256
    n_layer: int = 8
    n_head: int = 4
    n_head_kv: int = 2
    n_ff: int = 768
    n_ctx: int = 1024
    head_dim: int = 64
    rope_base: float = 10000.0
    norm_eps: float = 1e-5


def rope_tables(shape):
    inv_freq = shape.rope_base ** (-torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
    angle = torch.outer(torch.arange(shape.n_ctx, dtype=torch.float64), inv_freq)
    return angle.cos().float()[None, :, None], angle.sin().float()[None, :, None]  # (1, n_ctx, 1, head_dim / 2)


def rotate(x, cos, sin):  # (rows, n_tok, heads, head_dim)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def rms_norm(x, weight, eps):
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        n_q, n_kv = s.n_head * s.head_dim, s.n_head_kv * s.head_dim
        small = 1 / math.sqrt(2 * s.n_layer)  # of what is added to the stream
        self.attn_norm = nn.Parameter(torch.ones(s.n_embd))
        self.ffn_norm = nn.Parameter(torch.ones(s.n_embd))
        self.qkv = self.matrix(n_q + 2 * n_kv, s.n_embd, [n_q, n_kv, n_kv])
        self.o = self.matrix(s.n_embd, n_q, [s.n_embd], small)
        self.gate_up = self.matrix(2 * s.n_ff, s.n_embd, [s.n_ff, s.n_ff])
        self.down = self.matrix(s.n_embd, s.n_ff, [s.n_embd], small)

    @staticmethod
    def matrix(n_out, n_in, parts, scale=1.0):
        w = nn.Parameter(torch.randn(n_out, n_in) * (scale / math.sqrt(n_in)))
        w.parts = parts  # rows of the matrices that stand in one for the sake of speed
        return w

    def forward(self, x, cos, sin):
        s = self.s
        rows, n_tok, _ = x.shape
        qkv = F.linear(rms_norm(x, self.attn_norm, s.norm_eps), self.qkv)
        qkv = qkv.view(rows, n_tok, s.n_head + 2 * s.n_head_kv, s.head_dim)
        qk = rotate(qkv[:, :, : s.n_head + s.n_head_kv], cos, sin)
        q, k = qk[:, :, : s.n_head].transpose(1, 2), qk[:, :, s.n_head :].transpose(1, 2)
        v = qkv[:, :, s.n_head + s.n_head_kv :].transpose(1, 2)
        group = s.n_head // s.n_head_kv
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(a.transpose(1, 2).reshape(rows, n_tok, -1), self.o)
        gate, up = F.linear(rms_norm(x, self.ffn_norm, s.norm_eps), self.gate_up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.down)


class Llama(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Parameter(torch.randn(shape.n_vocab, shape.n_embd) * 0.02)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.n_layer))
        self.output_norm = nn.Parameter(torch.ones(shape.n_embd))
        cos, sin = rope_tables(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, ids):  # (rows, n_tok) -> (rows, n_tok, n_embd)
        n_tok = ids.shape[1]
        cos, sin = self.cos[:, :n_tok], self.sin[:, :n_tok]
        x = F.embedding(ids, self.token_embd)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return rms_norm(x, self.output_norm, self.shape.norm_eps)

    def loss_sum(self, hidden, targets, learned):
        """The sum over the learned tokens alone; the output's rows for the others are not computed."""
        at = learned.reshape(-1).nonzero().squeeze(1)
        logits = F.linear(hidden.reshape(-1, self.shape.n_embd)[at], self.token_embd)
        return F.cross_entropy(logits, targets.reshape(-1)[at], reduction="sum")


def orthogonal(g, steps=5):
    """Newton-Schulz: a matrix of the same singular vectors, all singular values about 1. (batch, rows <= columns)."""
    x = g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


class Muon:
    """Matrices of one shape are made orthogonal in one batch."""

    def __init__(self, params, momentum=0.95):
        self.params = list(params)
        self.momentum = momentum
        self.velocity = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self, rate, decay):
        groups = {}
        for p, v in zip(self.params, self.velocity):
            v.lerp_(p.grad, 1 - self.momentum)
            update = p.grad.lerp(v, self.momentum)
            for piece, target in zip(update.split(p.parts), p.data.split(p.parts)):
                wide = piece.shape[0] <= piece.shape[1]
                shape = tuple(piece.shape if wide else piece.shape[::-1])
                groups.setdefault(shape, []).append((piece if wide else piece.mT, target, wide))
        for group in groups.values():
            done = orthogonal(torch.stack([piece for piece, _, _ in group]))
            for o, (_, target, wide) in zip(done, group):
                scale = max(1.0, target.shape[0] / target.shape[1]) ** 0.5
                target.mul_(1 - rate * decay).add_(o if wide else o.mT, alpha=-rate * scale)


class Rows:
    """The rows of a packed file, in a shuffled order that the seed decides."""

    def __init__(self, path, n, seed):
        size = os.path.getsize(path)
        self.data = np.memmap(path, dtype="u1", mode="r", shape=(size // (3 * n), 3 * n))
        self.n, self.seed = n, seed
        self.epoch, self.order = -1, None

    def __len__(self):
        return len(self.data)

    def row(self, i):
        raw = self.data[i]
        return raw[: 2 * self.n].view("<i2").astype(np.int64), raw[2 * self.n :].astype(bool)

    def batch(self, first, count):
        """Rows first.. of the endless shuffled stream, as (ids, targets, learned)."""
        ids, learned = [], []
        for j in range(first, first + count):
            epoch = j // len(self)
            if epoch != self.epoch:
                self.epoch = epoch
                self.order = np.random.default_rng([self.seed, epoch]).permutation(len(self))
            r, m = self.row(self.order[j % len(self)])
            ids.append(r)
            learned.append(m)
        ids, learned = torch.from_numpy(np.stack(ids)), torch.from_numpy(np.stack(learned))
        return ids[:, :-1].contiguous(), ids[:, 1:], learned[:, 1:]


def schedule(args, tokens):
    """The factor of the rates: a rise, a plateau, a fall to zero."""
    falling_from = args.tokens * (1 - args.fall)
    if tokens < args.rise:
        return tokens / args.rise
    if tokens < falling_from:
        return 1.0
    return max(0.0, (args.tokens - tokens) / (args.tokens - falling_from))


class Run:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        torch.set_num_threads(args.threads)
        shape = Shape(n_vocab=args.vocab, n_embd=args.embd, n_layer=args.layers, n_ff=args.ff, n_ctx=args.context,
                      n_head=args.embd // 64, n_head_kv=args.embd // 128)
        self.model = Llama(shape)
        matrices = [p for p in self.model.parameters() if hasattr(p, "parts")]
        vectors = [p for p in self.model.layers.parameters() if not hasattr(p, "parts")] + [self.model.output_norm]
        self.muon = Muon(matrices)
        self.adam = torch.optim.AdamW(
            [{"params": [self.model.token_embd], "base": args.rate_embd},
             {"params": vectors, "base": args.rate_norm}],
            betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
        self.rows = Rows(args.data, args.context + 1, args.seed)
        self.heldout = Rows(args.heldout, args.context + 1, 0)
        self.tokens = self.rows_done = self.step = 0
        self.seconds = 0.0
        self.stop = False
        self.forward = torch.compile(self.model) if args.compile else self.model

    def batch_loss(self, ids, targets, learned):
        return self.model.loss_sum(self.forward(ids), targets, learned)

    def train_step(self):
        a = self.args
        factor = schedule(a, self.tokens)
        ids, targets, learned = self.rows.batch(self.rows_done, a.batch)
        n = int(learned.sum())
        total = 0.0
        for i in range(0, a.batch, a.micro):
            loss = self.batch_loss(ids[i:i + a.micro], targets[i:i + a.micro], learned[i:i + a.micro])
            (loss / n).backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(self.adam.param_groups[0]["params"] + self.adam.param_groups[1]["params"], 1.0)
        self.muon.step(a.rate * factor, a.decay)
        for group in self.adam.param_groups:
            group["lr"] = group["base"] * factor
        self.adam.step()
        self.model.zero_grad(set_to_none=True)
        self.step += 1
        self.rows_done += a.batch
        self.tokens += a.batch * a.context
        return total / n, factor

    @torch.no_grad()
    def validate(self):
        total = n = 0
        count = min(len(self.heldout), self.args.validate_rows)
        for i in range(0, count - count % self.args.micro, self.args.micro):
            ids, targets, learned = self.heldout.batch(i, self.args.micro)
            total += self.batch_loss(ids, targets, learned).item()
            n += int(learned.sum())
        return total / n

    def save(self):
        path = os.path.join(self.args.run, "checkpoint.pt")
        torch.save({"shape": asdict(self.model.shape), "model": self.model.state_dict(), "velocity": self.muon.velocity,
                    "adam": self.adam.state_dict(), "tokens": self.tokens, "rows_done": self.rows_done,
                    "step": self.step, "seconds": self.seconds, "args": vars(self.args)}, path + ".new")
        os.replace(path + ".new", path)

    def load(self, path):
        c = torch.load(path, weights_only=True)
        self.model.load_state_dict(c["model"])
        self.muon.velocity = c["velocity"]
        self.adam.load_state_dict(c["adam"])
        self.tokens, self.rows_done, self.step, self.seconds = c["tokens"], c["rows_done"], c["step"], c["seconds"]

    def log(self, **row):
        path = os.path.join(self.args.run, "loss.csv")
        new = not os.path.exists(path)
        with open(path, "a", newline="") as f:
            out = csv.DictWriter(f, row)
            if new:
                out.writeheader()
            out.writerow(row)
        print(" ".join(f"{k}={v}" for k, v in row.items()), flush=True)

    def report(self, loss, factor, final):
        heldout = ""
        if final or self.step % self.args.validate_every == 0:
            heldout = round(self.validate(), 4)
        self.log(step=self.step, tokens=self.tokens, seconds=round(self.seconds), rate=round(factor, 4),
                 loss=round(loss, 4), heldout=heldout)

    def train(self):
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stop", True))
        saved = time.monotonic()
        recent = []
        while self.tokens < self.args.tokens and not self.stop:
            start = time.monotonic()
            loss, factor = self.train_step()
            self.seconds += time.monotonic() - start
            recent.append(loss)
            final = self.tokens >= self.args.tokens
            if self.step % 10 == 0 or final:
                self.report(sum(recent) / len(recent), factor, final)
                recent = []
            if time.monotonic() - saved > self.args.save_every:
                self.save()
                saved = time.monotonic()
        self.save()


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--data", required=True, help="packed rows")
    p.add_argument("--heldout", required=True, help="packed rows of the held-out split")
    p.add_argument("--run", required=True, help="folder of the checkpoint and the log")
    p.add_argument("--tokens", type=float, default=12e6, help="tokens of the whole run: the rate is zero there")
    p.add_argument("--resume", metavar="CHECKPOINT", nargs="?", const="", help="go on from here, or from the run's own")
    p.add_argument("--vocab", type=int, required=True)
    p.add_argument("--embd", type=int, default=256)
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--ff", type=int, default=768)
    p.add_argument("--context", type=int, default=1024)
    p.add_argument("--batch", type=int, default=8, help="rows of a step")
    p.add_argument("--micro", type=int, default=2, help="rows computed at once")
    p.add_argument("--rate", type=float, default=0.02, help="of Muon")
    p.add_argument("--rate-embd", type=float, default=0.005, help="of AdamW, embeddings")
    p.add_argument("--rate-norm", type=float, default=0.005, help="of AdamW, norms")
    p.add_argument("--decay", type=float, default=0.0, help="of the weights that Muon trains, times the rate")
    p.add_argument("--rise", type=float, default=2e5, help="tokens until the full rate")
    p.add_argument("--fall", type=float, default=0.5, help="part of the tokens over which the rate falls")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--validate-every", type=int, default=100, metavar="STEPS")
    p.add_argument("--validate-rows", type=int, default=32)
    p.add_argument("--save-every", type=int, default=180, metavar="SECONDS")
    p.add_argument("--compile", action="store_true")
    return p.parse_args()


def main():
    args = arguments()
    os.makedirs(args.run, exist_ok=True)
    run = Run(args)
    if args.resume is not None:
        run.load(args.resume or os.path.join(args.run, "checkpoint.pt"))
    with open(os.path.join(args.run, "arguments.json"), "a") as f:
        json.dump(vars(args), f)
        f.write("\n")
    n = sum(p.numel() for p in run.model.parameters())
    print(f"{n} parameters, {len(run.rows)} rows of training text, {len(run.heldout)} held out", flush=True)
    run.train()


if __name__ == "__main__":
    main()
