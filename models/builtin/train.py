#!/usr/bin/env python3
"""Trains the built-in model (PyTorch, float32, CPU).

A Llama: RMS norms, rotary positions (halves, as in the paper's code; export.py reorders the rows), grouped queries,
SwiGLU, tied embeddings. The matrices of the layers learn by Muon (momentum, made orthogonal), all else by AdamW. The rates
follow --schedule; with --resume its points that lie ahead may be moved, and a run in one piece under the last schedule
computes the same.

Processes of one thread each share the weights. The rows of a step are taken off a counter, so that one whose core is
wanted elsewhere takes fewer; the gradients are summed where all can read them, and each process updates the matrices
that are its own. The order of that sum is chance: a second run agrees to rounding, with --workers 1 to the bit.
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
import torch.multiprocessing as mp
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

    def loss_sum(self, hidden, targets, worth):
        """The weighted sum; of tokens without weight the output's rows are not computed."""
        worth = worth.reshape(-1)
        at = worth.nonzero().squeeze(1)
        logits = F.linear(hidden.reshape(-1, self.shape.n_embd)[at], self.token_embd)
        return F.cross_entropy(logits, targets.reshape(-1)[at], reduction="none") @ worth[at]


def orthogonal(g, steps=5):
    """Newton-Schulz: a matrix of the same singular vectors, all singular values about 1. (batch, rows <= columns)."""
    x = g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


@torch.no_grad()
def muon_step(pieces, rate, decay, momentum=0.95):
    """A step of some matrices, each a triple of weights, gradient and velocity; those of one shape in one batch."""
    groups = {}
    for w, g, v in pieces:
        v.lerp_(g, 1 - momentum)
        update = g.lerp(v, momentum)
        wide = w.shape[0] <= w.shape[1]
        update = update if wide else update.mT
        groups.setdefault(tuple(update.shape), []).append((update, w, wide))
    for group in groups.values():
        done = orthogonal(torch.stack([update for update, _, _ in group]))
        for o, (_, w, wide) in zip(done, group):
            scale = max(1.0, w.shape[0] / w.shape[1]) ** 0.5
            w.mul_(1 - rate * decay).add_(o if wide else o.mT, alpha=-rate * scale)


@torch.no_grad()
def adam_step(w, g, mean, square, step, rate, betas=(0.9, 0.98), eps=1e-9):
    mean.lerp_(g, 1 - betas[0])
    square.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])
    scale = (square / (1 - betas[1] ** step)).sqrt_().add_(eps)
    w.addcdiv_(mean, scale, value=-rate / (1 - betas[0] ** step))


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
        return raw[: 2 * self.n].view("<i2").astype(np.int64), raw[2 * self.n :].astype(np.float32)

    def batch(self, first, count):
        """Rows first.. of the endless shuffled stream, as (ids, targets, worth)."""
        ids, worth = [], []
        for j in range(first, first + count):
            epoch = j // len(self)
            if epoch != self.epoch:
                self.epoch = epoch
                self.order = np.random.default_rng([self.seed, epoch]).permutation(len(self))
            r, m = self.row(self.order[j % len(self)])
            ids.append(r)
            worth.append(m)
        ids, worth = torch.from_numpy(np.stack(ids)), torch.from_numpy(np.stack(worth))
        return ids[:, :-1].contiguous(), ids[:, 1:], worth[:, 1:]


def read_schedule(text):
    """Points MILLIONS:FACTOR, tokens rising, between which the factor of the rates goes in straight lines."""
    points = [tuple(float(v) for v in point.split(":")) for point in text.split()]
    return [m * 1e6 for m, _ in points], [f for _, f in points]


class Shared:
    """What all processes see: the weights, the state of the optimizers, and a slot of gradients for each process."""

    def __init__(self, model, n_workers):
        self.names = [name for name, _ in model.named_parameters()]
        self.weights = {name: p.detach().clone().share_memory_() for name, p in model.named_parameters()}
        self.first = {name: torch.zeros_like(w).share_memory_() for name, w in self.weights.items()}
        self.second = {name: torch.zeros_like(w).share_memory_() for name, w in self.weights.items()
                       if not hasattr(dict(model.named_parameters())[name], "parts")}
        self.slots = [{name: torch.zeros_like(w).share_memory_() for name, w in self.weights.items()}
                      for _ in range(n_workers)]
        self.sums = torch.zeros(n_workers, dtype=torch.float64).share_memory_()
        self.next_row = mp.Value("i", 0)
        self.barrier = mp.Barrier(n_workers)
        self.stop = mp.Value("b", 0)     # asked for by a signal
        self.going_on = mp.Value("b", 1)  # what worker 0 made of it, the same for all between two barriers

    def state(self):
        return {"weights": self.weights, "first": self.first, "second": self.second}

    def load(self, state):
        for kind, tensors in state.items():
            for name, t in tensors.items():
                getattr(self, kind)[name].copy_(t)


class Worker:
    """One of the processes; number 0 also logs, validates and saves."""

    def __init__(self, args, shape, shared, index, progress):
        torch.set_num_threads(1)
        self.args, self.shared, self.index = args, shared, index
        self.model = Llama(shape)
        for name, p in self.model.named_parameters():
            p.data = shared.weights[name]
        self.params = dict(self.model.named_parameters())
        self.forward = torch.compile(self.model) if args.compile else self.model
        self.rows = Rows(args.data, args.context + 1, args.seed)
        self.heldout = Rows(args.heldout, args.context + 1, 0)
        self.tokens, self.rows_done, self.step, self.seconds = progress
        self.schedule = read_schedule(args.schedule)
        self.last_token = min(self.schedule[0][-1], args.until * 1e6)
        self.mine = [name for i, name in enumerate(self.by_cost()) if i % args.workers == index]

    def by_cost(self):
        return sorted(self.shared.names, key=lambda name: -self.params[name].numel())

    def take_row(self):
        with self.shared.next_row.get_lock():
            i = self.shared.next_row.value
            self.shared.next_row.value += self.args.micro
        return i

    def batch_loss(self, ids, targets, worth):
        return self.model.loss_sum(self.forward(ids), targets, worth)

    def gradients(self):
        """Takes rows of the step until none is left; the gradients' sum goes to this process's slot. The step's loss."""
        a, total = self.args, 0.0
        ids, targets, worth = self.rows.batch(self.rows_done, a.batch)
        n = float(worth.sum())
        for name, p in self.params.items():
            p.grad = self.shared.slots[self.index][name].zero_()
        while (i := self.take_row()) < a.batch:
            loss = self.batch_loss(ids[i:i + a.micro], targets[i:i + a.micro], worth[i:i + a.micro])
            (loss / n).backward()
            total += loss.item() / n
        self.shared.sums[self.index] = total

    def update(self, factor):
        a, pieces = self.args, []
        for name in self.mine:
            w, first = self.shared.weights[name], self.shared.first[name]
            g = sum(slot[name] for slot in self.shared.slots)
            parts = getattr(self.params[name], "parts", None)
            if parts:
                pieces += zip(w.split(parts), g.split(parts), first.split(parts))
            else:
                rate = a.rate_embd if w.dim() > 1 else a.rate_norm
                adam_step(w, g, first, self.shared.second[name], self.step + 1, rate * factor)
        muon_step(pieces, a.rate * factor, a.decay)

    def train_step(self):
        factor = float(np.interp(self.tokens, *self.schedule))
        self.gradients()
        self.shared.barrier.wait()
        loss = float(self.shared.sums.sum())
        if self.index == 0:
            self.shared.next_row.value = 0
        self.update(factor)
        self.shared.barrier.wait()
        self.step += 1
        self.rows_done += self.args.batch
        self.tokens += self.args.batch * self.args.context
        return loss, factor

    @torch.no_grad()
    def validate(self):
        total = n = 0
        count = min(len(self.heldout), self.args.validate_rows)
        for i in range(0, count - count % self.args.micro, self.args.micro):
            ids, targets, worth = self.heldout.batch(i, self.args.micro)
            total += self.batch_loss(ids, targets, worth).item()
            n += float(worth.sum())
        return total / n

    def save(self):
        path = os.path.join(self.args.run, "checkpoint.pt")
        torch.save({"shape": asdict(self.model.shape), **self.shared.state(), "args": vars(self.args),
                    "progress": [self.tokens, self.rows_done, self.step, self.seconds]}, path + ".new")
        os.replace(path + ".new", path)

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
        saved = time.monotonic()
        recent = []
        while self.tokens < self.last_token and self.shared.going_on.value:
            start = time.monotonic()
            loss, factor = self.train_step()
            self.seconds += time.monotonic() - start
            recent.append(loss)
            final = self.tokens >= self.last_token
            if self.index == 0 and (self.step % 10 == 0 or final):
                self.report(sum(recent) / len(recent), factor, final)
                recent = []
            if self.index == 0 and time.monotonic() - saved > self.args.save_every:
                self.save()
                saved = time.monotonic()
            if self.index == 0:
                self.shared.going_on.value = not self.shared.stop.value
            self.shared.barrier.wait()
        if self.index == 0:
            self.save()


def work(args, shape, shared, index, progress):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Worker(args, shape, shared, index, progress).train()


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--data", required=True, help="packed rows")
    p.add_argument("--heldout", required=True, help="packed rows of the held-out split")
    p.add_argument("--run", required=True, help="folder of the checkpoint and the log")
    p.add_argument("--schedule", default="0:0 0.2:1 2.5:1 12:0", metavar="POINTS",
                   help="what the rates are multiplied by: points of millions of tokens and a factor; ends at the last")
    p.add_argument("--resume", metavar="CHECKPOINT", nargs="?", const="", help="go on from here, or from the run's own")
    p.add_argument("--until", type=float, default=math.inf, metavar="MILLIONS", help="stop here; --resume goes on")
    p.add_argument("--vocab", type=int, required=True)
    p.add_argument("--embd", type=int, default=256)
    p.add_argument("--layers", type=int, default=5)
    p.add_argument("--ff", type=int, default=768)
    p.add_argument("--context", type=int, default=1024)
    p.add_argument("--batch", type=int, default=4, help="rows of a step")
    p.add_argument("--micro", type=int, default=1, help="rows computed at once")
    p.add_argument("--rate", type=float, default=0.02, help="of Muon")
    p.add_argument("--rate-embd", type=float, default=0.005, help="of AdamW, embeddings")
    p.add_argument("--rate-norm", type=float, default=0.005, help="of AdamW, norms")
    p.add_argument("--decay", type=float, default=0.0, help="of the weights that Muon trains, times the rate")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--workers", type=int, default=2, help="processes")
    p.add_argument("--validate-every", type=int, default=100, metavar="STEPS")
    p.add_argument("--validate-rows", type=int, default=32)
    p.add_argument("--save-every", type=int, default=180, metavar="SECONDS")
    p.add_argument("--compile", action="store_true")
    return p.parse_args()


def main():
    args = arguments()
    os.makedirs(args.run, exist_ok=True)
    torch.manual_seed(args.seed)
    shape = Shape(n_vocab=args.vocab, n_embd=args.embd, n_layer=args.layers, n_ff=args.ff, n_ctx=args.context,
                  n_head=args.embd // 64, n_head_kv=args.embd // 128)
    shared = Shared(Llama(shape), args.workers)
    progress = [0, 0, 0, 0.0]
    if args.resume is not None:
        c = torch.load(args.resume or os.path.join(args.run, "checkpoint.pt"), weights_only=True)
        shared.load({kind: c[kind] for kind in ("weights", "first", "second")})
        progress = c["progress"]
    with open(os.path.join(args.run, "arguments.json"), "a") as f:
        json.dump(vars(args), f)
        f.write("\n")
    print(f"{sum(w.numel() for w in shared.weights.values())} parameters", flush=True)
    workers = [mp.Process(target=work, args=(args, shape, shared, i, progress)) for i in range(args.workers)]
    signal.signal(signal.SIGTERM, lambda *_: setattr(shared.stop, "value", 1))
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    raise SystemExit(max(abs(w.exitcode) for w in workers))


if __name__ == "__main__":
    main()
