#!/usr/bin/env python3
"""From a checkpoint to a file of records, of which quern-builtin-export makes the model file.

A record, little-endian: one byte of kind, uint32 n and n bytes of name, then
  'u' uint32   'f' float32   'b' one byte   's' uint32 n and n bytes
  'S' uint32 count, then as many strings like 's'      'i' uint32 count, then as many int32
  'T' uint32 n_dims, int64 ne[n_dims] (the row length first), float32 values
"""

import argparse
import struct

import torch

from bytepair import CONTROL, PRE, Tokenizer
from chatml import TEMPLATE

DESCRIPTION = (
    "The small model that ships with quern, trained by the quern project on text that its own generator wrote: "
    "short stories, everyday facts, small sums, simple instructions, and questions about quern itself."
)


class Records:
    def __init__(self, path):
        self.out = open(path, "wb")

    def _head(self, kind, name):
        self.out.write(kind.encode() + struct.pack("<I", len(name.encode())) + name.encode())

    def _string(self, s):
        self.out.write(struct.pack("<I", len(s.encode())) + s.encode())

    def u32(self, name, v):
        self._head("u", name)
        self.out.write(struct.pack("<I", v))

    def f32(self, name, v):
        self._head("f", name)
        self.out.write(struct.pack("<f", v))

    def bool(self, name, v):
        self._head("b", name)
        self.out.write(bytes([v]))

    def str(self, name, v):
        self._head("s", name)
        self._string(v)

    def strings(self, name, values):
        self._head("S", name)
        self.out.write(struct.pack("<I", len(values)))
        for v in values:
            self._string(v)

    def i32s(self, name, values):
        self._head("i", name)
        self.out.write(struct.pack(f"<I{len(values)}i", len(values), *values))

    def tensor(self, name, t):
        self._head("T", name)
        ne = list(t.shape)[::-1]
        self.out.write(struct.pack(f"<I{len(ne)}q", len(ne), *ne) + t.contiguous().numpy().astype("<f4").tobytes())


def write_keys(out, shape, tokenizer, n_params):
    out.str("general.architecture", "llama")
    out.str("general.type", "model")
    out.str("general.name", "quern small")
    out.str("general.author", "the quern project")
    out.str("general.license", "mit")
    out.str("general.description", DESCRIPTION)
    out.str("general.size_label", f"{n_params / 1e6:.1f}M")
    out.strings("general.languages", ["en"])
    out.f32("general.sampling.temp", 0.7)
    out.u32("llama.vocab_size", shape["n_vocab"])
    out.u32("llama.context_length", shape["n_ctx"])
    out.u32("llama.embedding_length", shape["n_embd"])
    out.u32("llama.block_count", shape["n_layer"])
    out.u32("llama.feed_forward_length", shape["n_ff"])
    out.u32("llama.attention.head_count", shape["n_head"])
    out.u32("llama.attention.head_count_kv", shape["n_head_kv"])
    out.f32("llama.attention.layer_norm_rms_epsilon", shape["norm_eps"])
    out.u32("llama.rope.dimension_count", shape["head_dim"])
    out.f32("llama.rope.freq_base", shape["rope_base"])
    out.str("tokenizer.ggml.model", "gpt2")
    out.str("tokenizer.ggml.pre", PRE)
    out.strings("tokenizer.ggml.tokens", tokenizer.written_tokens())
    out.i32s("tokenizer.ggml.token_type", [1] * len(tokenizer.tokens) + [3] * len(CONTROL))
    out.strings("tokenizer.ggml.merges", tokenizer.written_merges())
    out.u32("tokenizer.ggml.bos_token_id", tokenizer.control["<|endoftext|>"])
    out.u32("tokenizer.ggml.eos_token_id", tokenizer.control["<|im_end|>"])
    out.u32("tokenizer.ggml.padding_token_id", tokenizer.control["<|endoftext|>"])
    out.bool("tokenizer.ggml.add_bos_token", False)
    out.str("tokenizer.chat_template", TEMPLATE)


def neighbours(w, n_head, head_dim):
    """Rows for rotary pairs that stand side by side, as the family wants them: trained with a pair in either half."""
    return w.view(n_head, 2, head_dim // 2, -1).transpose(1, 2).reshape(w.shape)


def write_tensors(out, shape, state):
    n_head, n_kv, dim = shape["n_head"], shape["n_head_kv"], shape["head_dim"]
    out.tensor("token_embd.weight", state["token_embd"])
    out.tensor("output_norm.weight", state["output_norm"])
    for i in range(shape["n_layer"]):
        layer = {k.removeprefix(f"layers.{i}."): w for k, w in state.items() if k.startswith(f"layers.{i}.")}
        q, k, v = layer["qkv"].split([n_head * dim, n_kv * dim, n_kv * dim])
        gate, up = layer["gate_up"].chunk(2)
        blk = f"blk.{i}."
        out.tensor(blk + "attn_norm.weight", layer["attn_norm"])
        out.tensor(blk + "attn_q.weight", neighbours(q, n_head, dim))
        out.tensor(blk + "attn_k.weight", neighbours(k, n_kv, dim))
        out.tensor(blk + "attn_v.weight", v)
        out.tensor(blk + "attn_output.weight", layer["o"])
        out.tensor(blk + "ffn_norm.weight", layer["ffn_norm"])
        out.tensor(blk + "ffn_gate.weight", gate)
        out.tensor(blk + "ffn_up.weight", up)
        out.tensor(blk + "ffn_down.weight", layer["down"])


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("checkpoint")
    p.add_argument("--tokenizer", required=True)
    p.add_argument("-o", "--output", required=True)
    args = p.parse_args()
    c = torch.load(args.checkpoint, weights_only=True)
    tokenizer = Tokenizer.load(args.tokenizer)
    if tokenizer.n_vocab != c["shape"]["n_vocab"]:
        raise SystemExit(f"{args.tokenizer} has {tokenizer.n_vocab} tokens, the model {c['shape']['n_vocab']}")
    out = Records(args.output)
    write_keys(out, c["shape"], tokenizer, sum(w.numel() for w in c["weights"].values()))
    write_tensors(out, c["shape"], c["weights"])
    out.out.close()


if __name__ == "__main__":
    main()
