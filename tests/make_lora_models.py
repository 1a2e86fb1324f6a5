#!/usr/bin/python3
"""Writes tests/data/lora/tiny-NAME.lora.gguf, low-rank adapters of models in tests/data/arch, and the logits of those
models with the adapters' products added to their matrices.
Usage: make_lora_models.py OUT_DIR
"""
import os
import sys
import tempfile
import zlib

import numpy as np

import make_arch_models as arch

RANK, ALPHA = 4, 6.0
MODELS = {  # the matrices that are adapted, by the end of their names
    'qwen3': (dict(dim=16, n_rot=16), ['attn_q', 'attn_v', 'attn_output', 'ffn_up', 'ffn_gate', 'ffn_down', 'output']),
    'gpt2': (dict(kv=[4, 4], fused_qkv=True, tied=True, ctx=64), ['attn_qkv', 'ffn_down']),
}
forward_of_model = arch.forward


def make(name, own, ends, out):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    pairs = {}

    def forward(m, w, ids):
        w = dict(w)
        for key in w:
            if key.endswith('.weight') and key[:-len('.weight')].split('.')[-1] in ends:
                rows, cols = w[key].shape
                a = (rng.standard_normal((RANK, cols)) / np.sqrt(cols)).astype(np.float32)
                b = (rng.standard_normal((rows, RANK)) * 0.3).astype(np.float32)
                pairs[key + '.lora_a'], pairs[key + '.lora_b'] = a, b
                w[key] = w[key] + ALPHA / RANK * (b.astype(np.float64) @ a.astype(np.float64))
        return forward_of_model(m, w, ids)

    arch.forward = forward
    with tempfile.TemporaryDirectory() as folder:
        arch.make(name, name, folder, **own)
        path = os.path.join(out, f'tiny-{name}.lora.gguf')
        os.replace(os.path.join(folder, f'tiny-{name}.gguf.logits'), path + '.logits')
    arch.write_gguf(path, {'general.architecture': name, 'general.type': 'adapter', 'adapter.type': 'lora',
                           'adapter.lora.alpha': ALPHA}, pairs)


def main(out):
    os.makedirs(out, exist_ok=True)
    for name, (own, ends) in MODELS.items():
        make(name, own, ends, out)


if __name__ == '__main__':
    main(sys.argv[1])
