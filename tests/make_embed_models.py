#!/usr/bin/python3
"""Writes tests/data/embed/NAME.gguf and NAME.gguf.logits: tiny encoders with random weights, and what each row of a text is.

The second file is one of logits (tests/golden.h), with the columns of a row in place of the vocabulary. The forward is
float64 and shares nothing with quern's. The vocabulary is one of WordPiece with a token for each
letter, so that other programs can be given the same texts.
Usage: make_embed_models.py OUT_DIR
"""
import os
import struct
import sys
import zlib

import numpy as np

import make_arch_models as arch

N_TOKENS = 48
EMBD, HEADS, FF, LAYERS, EPS = 32, 4, 48, 3, 1e-5
LETTERS = 'abcdefghijklmnopqrstuvwxyz'
TOKENS = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'] + ['\u2581' + c for c in LETTERS] + list(LETTERS)
VOCAB = len(TOKENS)
CLS, SEP = 2, 3


def text_array(words):
    coded = [s.encode() for s in words]
    return struct.pack('<IIQ', 9, 8, len(words)) + b''.join(struct.pack('<Q', len(s)) + s for s in coded)


class Words(list):
    """A list of strings as the value of a key."""


class Kinds(list):
    """A list of int32."""


value_of_others = arch.value


def value(v):
    if isinstance(v, Kinds):
        return struct.pack('<IIQ', 9, 5, len(v)) + struct.pack(f'<{len(v)}i', *v)
    return text_array(v) if isinstance(v, Words) else value_of_others(v)


arch.value = value


def attend(m, q, k, v, window):
    """q, k, v: (tokens, heads, dim); a row sees the keys at a distance of at most half a window."""
    n, heads, d = q.shape
    out = np.zeros((n, heads, d))
    for t in range(n):
        lo, hi = (max(0, t - window // 2), min(n, t + window // 2 + 1)) if window else (0, n)
        for h in range(heads):
            kv = h // (heads // k.shape[1])
            score = k[lo:hi, kv] @ q[t, h] / np.sqrt(d)
            if m.get('slopes'):
                score = score - 2 ** (-8 / heads * (h + 1)) * np.abs(np.arange(lo, hi) - t)
            out[t, h] = arch.softmax(score) @ v[lo:hi, kv]
    return out.reshape(n, -1)


def experts(m, w, p, x):
    out = np.zeros_like(x)
    for t in range(len(x)):
        prob = arch.softmax(w[p + 'ffn_gate_inp.weight'] @ x[t])
        for e in np.argsort(-prob, kind='stable')[:m['used']]:
            y = arch.gelu(w[p + 'ffn_up_exps.weight'][e] @ x[t])
            out[t] += prob[e] * (w[p + 'ffn_down_exps.weight'][e] @ y)
    return out


def forward(m, w, ids):
    def linear(x, name):
        y = x @ w[name + '.weight'].T
        return y + w[name + '.bias'] if name + '.bias' in w else y

    def norm(x, name):
        if name + '.weight' not in w:
            return x
        if m['rms']:
            return arch.rms_norm(x, w[name + '.weight'], EPS)
        return arch.layer_norm(x, w[name + '.weight'], w.get(name + '.bias', 0), EPS)

    act = arch.silu if m['act'] == 'silu' else arch.gelu
    x = w['token_embd.weight'][ids] * m.get('embed_scale', 1)
    if 'token_types.weight' in w:
        x = x + w['token_types.weight'][0]
    if 'position_embd.weight' in w:
        x = x + w['position_embd.weight'][:len(ids)]
    x = norm(x, 'token_embd_norm')
    for i in range(LAYERS):
        p, window = f'blk.{i}.', m['window'][i]
        y = norm(x, p + 'attn_norm')
        d = m['dim']
        if p + 'attn_qkv.weight' in w:
            q, k, v = np.split(linear(y, p + 'attn_qkv'), [HEADS * d, (HEADS + m['kv']) * d], axis=1)
        else:
            q, k, v = (linear(y, p + f'attn_{c}') for c in 'qkv')
        if m.get('row_norms'):
            q, k = norm(q, p + 'attn_q_norm'), norm(k, p + 'attn_k_norm')
        q, k, v = (a.reshape(len(ids), -1, d).copy() for a in (q, k, v))
        if m.get('head_norms'):
            q = arch.rms_norm(q, w[p + 'attn_q_norm.weight'], EPS)
            k = arch.rms_norm(k, w[p + 'attn_k_norm.weight'], EPS)
        if m.get('pairs'):
            turn = dict(n_rot=d, base=m['near_base'] if window else m['base'], pairs=m['pairs'])
            for t in range(len(ids)):
                q[t] = [arch.rope(turn, head, t, None) for head in q[t]]
                k[t] = [arch.rope(turn, head, t, None) for head in k[t]]
        y = linear(attend(m, q, k, v, window), p + 'attn_output')
        before, x = x, norm(x + norm(y, p + 'post_attention_norm'), p + 'attn_output_norm')
        if p + 'attn_norm_2.weight' in w:
            x = norm(x + before, p + 'attn_norm_2')
        y = norm(x, p + 'ffn_norm')
        if p + 'ffn_gate_inp.weight' in w:
            y = experts(m, w, p, y)
        else:
            up = linear(y, p + 'ffn_up')
            if p + 'ffn_gate.weight' in w:
                up = act(linear(y, p + 'ffn_gate')) * up
            elif m.get('fused'):
                gate, up = np.split(up, 2, axis=1)
                up = act(gate) * up
            else:
                up = act(up)
            y = linear(up, p + 'ffn_down')
        x = norm(x + norm(y, p + 'post_ffw_norm'), p + 'layer_output_norm')
    x = norm(norm(x, 'output_norm'), 'enc.output_norm')
    for name, _, _ in m.get('dense', []):
        x = x @ w[name + '.weight'].T
    return x


# ---- The models

class Maker:
    def __init__(self, name):
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.w = {}

    def matrix(self, name, rows, cols=EMBD, scale=1.0):
        shape = rows if isinstance(rows, tuple) else (rows, cols)
        self.w[name + '.weight'] = (self.rng.standard_normal(shape) * scale / np.sqrt(shape[-1])).astype(np.float32)

    def bias(self, name, n):
        self.w[name + '.bias'] = (self.rng.standard_normal(n) * 0.3).astype(np.float32)

    def norm(self, name, n=EMBD, bias=False):
        self.w[name + '.weight'] = (1 + 0.3 * self.rng.standard_normal(n)).astype(np.float32)
        if bias:
            self.bias(name, n)

    def linear(self, name, rows, cols=EMBD, bias=False, scale=1.0):
        self.matrix(name, rows, cols, scale)
        if bias:
            self.bias(name, rows)


def make(name, m):
    k = Maker(name)
    d, kv, bias = m['dim'], m['kv'], m.get('bias', False)
    k.matrix('token_embd', VOCAB, EMBD, 6)
    if m.get('types'):
        k.matrix('token_types', m['types'], EMBD, 3)
    if m.get('positions'):
        k.matrix('position_embd', 256, EMBD, 3)
    if m.get('first_norm'):
        k.norm('token_embd_norm', bias=not m['rms'] and m['norms'] == 'behind')
    for i in range(LAYERS):
        p = f'blk.{i}.'
        if m['norms'] != 'behind' and not (m.get('bare') and i == 0):
            k.norm(p + 'attn_norm')
        if m.get('qkv'):
            k.linear(p + 'attn_qkv', (HEADS + 2 * kv) * d, bias=bias, scale=1.5)
        else:
            for c, n in (('q', HEADS), ('k', kv), ('v', kv)):
                k.linear(p + f'attn_{c}', n * d, bias=bias, scale=1.5)
        if m.get('head_norms'):
            k.norm(p + 'attn_q_norm', d)
            k.norm(p + 'attn_k_norm', d)
        k.linear(p + 'attn_output', EMBD, HEADS * d, bias=bias)
        if m.get('row_norms'):
            k.norm(p + 'attn_q_norm', EMBD, bias=True)
            k.norm(p + 'attn_k_norm', EMBD, bias=True)
        if m.get('again'):
            k.norm(p + 'attn_norm_2', bias=True)
        if m['norms'] == 'behind':
            k.norm(p + 'attn_output_norm', bias=True)
            k.norm(p + 'layer_output_norm', bias=True)
        else:
            k.norm(p + 'ffn_norm')
        if m['norms'] == 'around':
            k.norm(p + 'post_attention_norm')
            k.norm(p + 'post_ffw_norm')
        if m.get('experts') and i % 2 == 1:
            k.matrix(p + 'ffn_gate_inp', m['experts'], EMBD, 3)
            k.matrix(p + 'ffn_up_exps', (m['experts'], FF, EMBD), scale=2)
            k.matrix(p + 'ffn_down_exps', (m['experts'], EMBD, FF), scale=2)
            continue
        k.linear(p + 'ffn_up', 2 * FF if m.get('fused') else FF, bias=bias, scale=2)
        if m.get('gate'):
            k.linear(p + 'ffn_gate', FF, scale=2)
        k.linear(p + 'ffn_down', EMBD, FF, bias=bias, scale=2)
    if m.get('last_norm'):
        k.norm(m['last_norm'])
    for name_, rows, cols in m.get('dense', []):
        k.matrix(name_, rows, cols)
    for name_, rows in m.get('head', []):
        k.linear(name_, rows, EMBD, bias=True)
    return k.w


def keys_of(name, m):
    a = m['arch']
    keys = {'general.architecture': a, f'{a}.block_count': LAYERS, f'{a}.context_length': 256,
            f'{a}.embedding_length': EMBD, f'{a}.feed_forward_length': FF, f'{a}.attention.head_count': HEADS,
            f'{a}.attention.head_count_kv': m['kv'], f'{a}.attention.causal': False, f'{a}.pooling_type': m['pooling'],
            f'{a}.attention.layer_norm_{"rms_" if m["rms"] else ""}epsilon': EPS}
    if m['dim'] * HEADS != EMBD:
        keys |= {f'{a}.attention.key_length': m['dim'], f'{a}.attention.value_length': m['dim']}
    if m.get('pairs'):
        keys[f'{a}.rope.freq_base'] = m['base']
    if any(m['window']):
        keys |= {f'{a}.attention.sliding_window': max(m['window']), f'{a}.rope.freq_base_swa': m['near_base']}
        if a == 'gemma-embedding':
            keys[f'{a}.attention.sliding_window_pattern'] = 2
    if m.get('experts'):
        keys |= {f'{a}.moe_every_n_layers': 2, f'{a}.expert_count': m['experts'], f'{a}.expert_used_count': m['used']}
    for i, (_, rows, cols) in enumerate(m.get('dense', [])):
        keys |= {f'{a}.dense_{i + 2}_feat_in': cols, f'{a}.dense_{i + 2}_feat_out': rows}
    if m.get('head'):
        keys[f'{a}.classifier.output_labels'] = Words(['score'])
    return keys | {
        'tokenizer.ggml.model': 'bert', 'tokenizer.ggml.pre': 'default', 'tokenizer.ggml.tokens': Words(TOKENS),
        'tokenizer.ggml.token_type': Kinds([3] * 5 + [1] * (VOCAB - 5)), 'tokenizer.ggml.token_type_count': 2,
        'tokenizer.ggml.unknown_token_id': 1, 'tokenizer.ggml.cls_token_id': CLS, 'tokenizer.ggml.bos_token_id': CLS,
        'tokenizer.ggml.seperator_token_id': SEP, 'tokenizer.ggml.padding_token_id': 0,
        'tokenizer.ggml.mask_token_id': 4} | ({f'{a}.token_type_count': 2} if m.get('types') else {})


ALL = [0] * LAYERS
BEHIND = dict(rms=False, norms='behind', first_norm=True, types=2, kv=HEADS, dim=EMBD // HEADS, window=ALL, act='gelu',
              pooling=1, base=10000.0)
BEFORE = dict(norms='before', kv=HEADS, dim=EMBD // HEADS, window=ALL, last_norm='output_norm', pooling=1, base=10000.0,
              act='silu')
MODELS = {
    'bert': dict(BEHIND, arch='bert', positions=True, bias=True, pooling=2),
    'bert-rank': dict(BEHIND, arch='bert', positions=True, bias=True, pooling=4,
                      head=[('cls', EMBD), ('cls.output', 1)]),
    'nomic-bert': dict(BEHIND, arch='nomic-bert', qkv=True, gate=True, act='silu', pairs='halves', base=1000.0),
    'nomic-bert-moe': dict(BEHIND, arch='nomic-bert-moe', qkv=True, bias=True, pairs='halves', experts=4, used=2),
    'jina-bert-v2': dict(BEHIND, arch='jina-bert-v2', slopes=True, gate=True, bias=True, row_norms=True),
    'jina-bert-v2-fused': dict(BEHIND, arch='jina-bert-v2', slopes=True, fused=True, again=True, bias=True),
    'jina-bert-v3': dict(BEHIND, arch='jina-bert-v3', qkv=True, bias=True, pairs='halves'),
    'modern-bert': dict(BEFORE, arch='modern-bert', rms=False, first_norm=True, qkv=True, fused=True, act='gelu',
                        bare=True, window=[0, 16, 16], base=160000.0, near_base=10000.0, pairs='halves'),
    'neo-bert': dict(BEFORE, arch='neo-bert', rms=True, qkv=True, fused=True, pairs='adjacent', pooling=2,
                     last_norm='enc.output_norm'),
    'eurobert': dict(BEFORE, arch='eurobert', rms=True, kv=2, gate=True, pairs='halves'),
    'llama-embed': dict(BEFORE, arch='llama-embed', rms=True, kv=2, gate=True, pairs='adjacent'),
    'gemma-embedding': dict(BEFORE, arch='gemma-embedding', rms=True, norms='around', kv=2, dim=16, gate=True,
                            act='gelu', pairs='halves', head_norms=True, window=[12, 0, 12], base=1000000.0,
                            near_base=10000.0, embed_scale=EMBD ** 0.5,
                            dense=[('dense_2', 64, EMBD), ('dense_3', EMBD, 64)]),
}


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    for name, m in MODELS.items():
        w = make(name, m)
        rng = np.random.default_rng(7)
        ids = np.concatenate([[CLS], rng.integers(5, 5 + len(LETTERS), N_TOKENS - 2), [SEP]])
        rows = forward(m, {k: v.astype(np.float64) for k, v in w.items()}, ids)
        path = os.path.join(out, name + '.gguf')
        arch.write_gguf(path, keys_of(name, m), w)
        with open(path + '.logits', 'wb') as f:
            f.write(struct.pack('<ii', len(ids), EMBD) + ids.astype('<i4').tobytes() + rows.astype('<f4').tobytes())


if __name__ == '__main__':
    main()
