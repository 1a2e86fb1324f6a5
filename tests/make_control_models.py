#!/usr/bin/python3
"""Writes tests/data/control/tiny-NAME.control.gguf, control vectors of models in tests/data/arch, and the logits of those
models with the vectors added behind their layers.
Usage: make_control_models.py OUT_DIR
"""
import os
import sys
import tempfile
import zlib

import numpy as np

import make_arch_models as arch

MODELS = {  # as in make_arch_models.py; the layers that are steered
    'smollm3': (dict(pairs='adjacent', layers=4, kv=[2] * 4, ff=[32] * 4, window=[0] * 4, still=[3], tied=True), [1, 3]),
    'gptneox': (dict(kv=[4, 4], n_rot=4, fused_qkv=True, side_by_side=True, keys={'use_parallel_residual': True}), [1]),
}


def main(out):
    os.makedirs(out, exist_ok=True)
    for name, (own, layers) in MODELS.items():
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        vectors = {i: rng.standard_normal(32).astype(np.float32) for i in layers}
        with tempfile.TemporaryDirectory() as folder:
            arch.make(name, name, folder, control={i: v.astype('float64') for i, v in vectors.items()}, **own)
            path = os.path.join(out, f'tiny-{name}.control.gguf')
            os.replace(os.path.join(folder, f'tiny-{name}.gguf.logits'), path + '.logits')
        arch.write_gguf(path, {'general.architecture': 'controlvector', 'controlvector.model_hint': name,
                               'controlvector.layer_count': len(layers)},
                        {f'direction.{i}': v for i, v in vectors.items()})


if __name__ == '__main__':
    main(sys.argv[1])
