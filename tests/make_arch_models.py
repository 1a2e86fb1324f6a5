#!/usr/bin/python3
"""Writes tests/data/arch/tiny-*.gguf and their logits: models made up so that every part of them matters.

The forward here is float64, loops where it can loop, and shares nothing with quern's: what both agree on, two readings of
the papers agree on. Golden models of other origin have weights so small that a wrong scale or base hardly shows; these are
drawn so that attention is sharp and every layer moves the result.
Usage: make_arch_models.py OUT_DIR
"""
import math
import os
import struct
import sys
import zlib

import numpy as np

N_TOKENS, VOCAB = 48, 64
U32, F32, BOOL, STR, ARRAY = 4, 6, 7, 8, 9
ELEMENT = {bool: (BOOL, '<?'), int: (U32, '<I'), float: (F32, '<f')}


# ---- The file

def text(s):
    return struct.pack('<Q', len(s)) + s.encode()


def value(v):
    if isinstance(v, list):
        element, form = ELEMENT[type(v[0])]
        return struct.pack('<IIQ', ARRAY, element, len(v)) + b''.join(struct.pack(form, x) for x in v)
    if isinstance(v, str):
        return struct.pack('<I', STR) + text(v)
    if isinstance(v, bool):
        return struct.pack('<I?', BOOL, v)
    return struct.pack('<If', F32, v) if isinstance(v, float) else struct.pack('<II', U32, v)


def write_gguf(path, keys, tensors):
    head = struct.pack('<4sIQQ', b'GGUF', 3, len(tensors), len(keys))
    head += b''.join(text(k) + value(v) for k, v in keys.items())
    data = b''
    for name, x in tensors.items():
        head += text(name) + struct.pack('<I', x.ndim) + b''.join(struct.pack('<Q', n) for n in reversed(x.shape))
        head += struct.pack('<IQ', {'float32': 0, 'float16': 1}[str(x.dtype)], len(data))
        data += x.tobytes()
        data += bytes(-len(data) % 32)
    with open(path, 'wb') as f:
        f.write(head + bytes(-len(head) % 32) + data)


# ---- The forward

def rms_norm(x, gain, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * gain


def layer_norm(x, gain, bias, eps):
    c = x - x.mean(axis=-1, keepdims=True)
    return c / np.sqrt(np.mean(c * c, axis=-1, keepdims=True) + eps) * gain + bias


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def angles(m, pos, factors):
    """cos and sin of each pair at a position, and what they are multiplied by."""
    n = m['n_rot']
    out, grown = [], m.get('attn_factor', 1.0)
    s = m.get('scale', 1.0)
    if m.get('yarn'):
        grown *= 0.1 * math.log(s) + 1

        def dim(turns):
            return n * math.log(m['orig'] / (turns * 2 * math.pi)) / (2 * math.log(m['base']))
        low, high = max(0, math.floor(dim(32))), min(n - 1, math.ceil(dim(1)))
    for i in range(n // 2):
        f = 1 / m['base'] ** (2 * i / n)
        if factors is not None:
            f /= factors[i]
        if m.get('yarn'):
            ramp = min(1, max(0, (i - low) / max(0.001, high - low)))
            f = f / s * ramp + f * (1 - ramp)
        else:
            f /= s
        out.append((math.cos(pos * f) * grown, math.sin(pos * f) * grown))
    return out


def rope(m, x, pos, factors):
    """x: one head."""
    y, n = x.copy(), m['n_rot']
    for i, (c, s) in enumerate(angles(m, pos, factors)):
        a, b = (2 * i, 2 * i + 1) if m['pairs'] == 'adjacent' else (i, i + n // 2)
        y[a], y[b] = x[a] * c - x[b] * s, x[a] * s + x[b] * c
    return y


def attention(m, q, k, v, window):
    """q, k, v: (tokens, heads, dim)."""
    n, heads, _ = q.shape
    group = heads // k.shape[1]
    out = np.zeros((n, heads, v.shape[2]))
    for t in range(n):
        first = max(0, t - window + 1) if window else 0
        for h in range(heads):
            s = k[first:t + 1, h // group] @ q[t, h] * m.get('attn_scale', 1 / math.sqrt(q.shape[2]))
            if m.get('attn_cap'):
                s = m['attn_cap'] * np.tanh(s / m['attn_cap'])
            out[t, h] = softmax(s) @ v[first:t + 1, h // group]
    return out.reshape(n, -1)


def experts(m, w, p, x):
    out = np.zeros_like(x)
    for t in range(len(x)):
        prob = softmax(w[p + 'ffn_gate_inp.weight'] @ x[t])
        best = np.argsort(-prob, kind='stable')[:m['used']]
        for e in best:
            gate, up = w[p + 'ffn_gate_exps.weight'][e] @ x[t], w[p + 'ffn_up_exps.weight'][e] @ x[t]
            y = w[p + 'ffn_down_exps.weight'][e] @ (silu(gate) * up)
            out[t] += prob[e] / prob[best].sum() * y
    return out


def forward(m, w, ids):
    def linear(x, name):
        y = x @ w[name + '.weight'].T
        return y + w[name + '.bias'] if name + '.bias' in w else y

    def norm(x, name):
        if name + '.weight' not in w:
            return layer_norm(x, 1, 0, m['eps']) if m.get('bare_norms') and 'post' not in name else x
        if m.get('layer_norm'):
            return layer_norm(x, w[name + '.weight'], w[name + '.bias'], m['eps'])
        return rms_norm(x, w[name + '.weight'], m['eps'])

    act = gelu if m.get('gelu') else silu
    x = w['token_embd.weight'][ids] * m.get('embed_scale', 1)
    if 'position_embd.weight' in w:
        x = x + w['position_embd.weight'][:len(ids)]
    factors = w[m['factors']] if 'factors' in m else None
    for i in range(m['layers']):
        p, kv, d = f'blk.{i}.', m['kv'][i], m['dim']
        y = one = norm(x, p + 'attn_norm')
        if p + 'attn_qkv.weight' in w:
            q, k, v = np.split(linear(y, p + 'attn_qkv'), [m['heads'] * d, (m['heads'] + kv) * d], axis=1)
        else:
            q, k, v = (linear(y, p + f'attn_{c}') for c in 'qkv')
        if m.get('row_norms'):
            q = rms_norm(q, w[p + 'attn_q_norm.weight'], m['eps'])
            k = rms_norm(k, w[p + 'attn_k_norm.weight'], m['eps'])
        q, k, v = (a.reshape(len(ids), -1, d) for a in (q, k, v))
        if m.get('own_gains'):
            q = layer_norm(q, w[p + 'attn_q_norm.weight'], 0, m['eps'])
            k = layer_norm(k, w[p + 'attn_k_norm.weight'], 0, m['eps'])
        elif p + 'attn_q_norm.weight' in w and not m.get('row_norms'):
            q = rms_norm(q, w[p + 'attn_q_norm.weight'], m['eps'])
            k = rms_norm(k, w[p + 'attn_k_norm.weight'], m['eps'])
        if m.get('n_rot') and i not in m.get('still', []):
            for t in range(len(ids)):
                q[t] = [rope(m, head, t, factors) for head in q[t]]
                k[t] = [rope(m, head, t, factors) for head in k[t]]
        y = linear(attention(m, q, k, v, m['window'][i]), p + 'attn_output')
        before, x = x, x + norm(y, p + 'post_attention_norm')
        y = one if m.get('one_norm') else norm(before if m.get('side_by_side') else x, p + 'ffn_norm')
        if p + 'ffn_gate_inp.weight' in w:
            y = experts(m, w, p, y)
        else:
            up = linear(y, p + 'ffn_up')
            if p + 'ffn_gate.weight' in w:
                up = act(linear(y, p + 'ffn_gate')) * up
            elif m.get('fused_gate'):
                gate, up = np.split(up, 2, axis=1)
                up = act(gate) * up
            else:
                up = act(up)
            y = linear(up, p + 'ffn_down')
        x = x + norm(y, p + 'post_ffw_norm') + m.get('control', {}).get(i, 0)
    x = norm(x, 'output_norm')
    logits = linear(x, 'output') if 'output.weight' in w else x @ w['token_embd.weight'].T
    return m['logit_cap'] * np.tanh(logits / m['logit_cap']) if 'logit_cap' in m else logits


# Gemma 4, by layer: dim (of a head), kv (heads), window, ff; own: how many layers have keys of their own.

def gemma4_attention(m, w, i, x, kept):
    p, d, n, full = f'blk.{i}.', m['dims'][i], len(x), not m['window'][i]
    kind = dict(n_rot=d, base=m['base'] if full else m['near_base'], pairs='halves')
    factors = w['rope_freqs.weight'] if full and 'rope_freqs.weight' in w else None

    def heads(name):
        return (x @ w[p + name + '.weight'].T).reshape(n, -1, d)

    def turned(y, name):
        y = rms_norm(y, w[p + name + '.weight'], m['eps'])
        return np.array([[rope(kind, head, t, factors) for head in y[t]] for t in range(n)])
    if i < m['own']:
        k = heads('attn_k')
        v = heads('attn_v') if p + 'attn_v.weight' in w else k
        kept[i] = turned(k, 'attn_k_norm'), rms_norm(v, 1, m['eps'])
    k, v = kept[i if i < m['own'] else m['own'] - (1 if full else 2)]
    y = attention(dict(attn_scale=1), turned(heads('attn_q'), 'attn_q_norm'), k, v, m['window'][i])
    return y @ w[p + 'attn_output.weight'].T


def gemma4_experts(m, w, p, x, seen):
    y = rms_norm(seen, w[p + 'ffn_gate_inp.scale'], m['eps']) / math.sqrt(m['embd'])
    out = np.zeros_like(x)
    for t in range(len(x)):
        prob = softmax(w[p + 'ffn_gate_inp.weight'] @ y[t])
        best = np.argsort(-prob, kind='stable')[:m['used']]
        for e in best:
            if p + 'ffn_gate_up_exps.weight' in w:
                gate, up = np.split(w[p + 'ffn_gate_up_exps.weight'][e] @ x[t], 2)
            else:
                gate, up = w[p + 'ffn_gate_exps.weight'][e] @ x[t], w[p + 'ffn_up_exps.weight'][e] @ x[t]
            z = w[p + 'ffn_down_exps.weight'][e] @ (gelu(gate) * up) * w[p + 'ffn_down_exps.scale'][e]
            out[t] += prob[e] / prob[best].sum() * z
    return out


def gemma4_forward(m, w, ids):
    def norm(x, name):
        return rms_norm(x, w[name + '.weight'], m['eps'])

    def linear(x, name):
        return x @ w[name + '.weight'].T
    x, kept, extra = w['token_embd.weight'][ids] * math.sqrt(m['embd']), {}, None
    if m['extra']:
        y = linear(x, 'per_layer_model_proj').reshape(len(ids), m['layers'], -1) / math.sqrt(m['embd'])
        e = w['per_layer_token_embd.weight'][ids].reshape(len(ids), m['layers'], -1) * math.sqrt(m['extra'])
        extra = (norm(y, 'per_layer_proj_norm') + e) / math.sqrt(2)
    for i in range(m['layers']):
        p = f'blk.{i}.'
        x = x + norm(gemma4_attention(m, w, i, norm(x, p + 'attn_norm'), kept), p + 'post_attention_norm')
        y = norm(x, p + 'ffn_norm')
        y = linear(gelu(linear(y, p + 'ffn_gate')) * linear(y, p + 'ffn_up'), p + 'ffn_down')
        if p + 'ffn_gate_inp.weight' in w:
            z = gemma4_experts(m, w, p, norm(x, p + 'pre_ffw_norm_2'), x)
            y = norm(y, p + 'post_ffw_norm_1') + norm(z, p + 'post_ffw_norm_2')
        x = x + norm(y, p + 'post_ffw_norm')
        if extra is not None:
            y = linear(gelu(linear(x, p + 'inp_gate')) * extra[:, i], p + 'proj')
            x = x + norm(y, p + 'post_norm')
        if p + 'layer_output_scale.weight' in w:
            x = x * w[p + 'layer_output_scale.weight']
    logits = linear(norm(x, 'output_norm'), 'token_embd')
    return m['logit_cap'] * np.tanh(logits / m['logit_cap']) if 'logit_cap' in m else logits


# DeepSeek 2. The forward makes keys and values of every head, which files with attn_k_b and attn_v_b are there to avoid.

def deepseek2_attention(m, w, p, x):
    n, h, d, rot, rank = len(x), m['heads'], m['dim'], m['n_rot'], m['rank_kv']
    rest, dv = d - rot, m['dim_v']

    def linear(x, name):
        return x @ w[p + name + '.weight'].T

    if p + 'attn_q.weight' in w:
        q = linear(x, 'attn_q')
    else:
        q = linear(rms_norm(linear(x, 'attn_q_a'), w[p + 'attn_q_a_norm.weight'], m['eps']), 'attn_q_b')
    q, kv = q.reshape(n, h, d).copy(), linear(x, 'attn_kv_a_mqa')
    latent = rms_norm(kv[:, :rank], w[p + 'attn_kv_a_norm.weight'], m['eps'])
    k, v = np.zeros((n, h, d)), np.zeros((n, h, dv))
    for t in range(n):
        turned = rope(m, kv[t, rank:], t, None)
        for i in range(h):
            if p + 'attn_kv_b.weight' in w:
                both = w[p + 'attn_kv_b.weight'].reshape(h, rest + dv, rank)[i] @ latent[t]
                k[t, i, :rest], v[t, i] = both[:rest], both[rest:]
            else:
                k[t, i, :rest] = w[p + 'attn_k_b.weight'][i].T @ latent[t]
                v[t, i] = w[p + 'attn_v_b.weight'][i] @ latent[t]
            k[t, i, rest:] = turned
            q[t, i, rest:] = rope(m, q[t, i, rest:], t, None)
        q[t] *= 1 + m.get('growth', 0) * math.log(1 + t // m.get('period', 1))
    return linear(attention(dict(attn_scale=m['attn_scale']), q, k, v, 0), 'attn_output')


def deepseek2_experts(m, w, p, x):
    out = np.zeros_like(x)
    for t in range(len(x)):
        logits = w[p + 'ffn_gate_inp.weight'] @ x[t]
        prob = 1 / (1 + np.exp(-logits)) if m['sigmoid'] else softmax(logits)
        score = prob + w[p + 'exp_probs_b.bias'] if p + 'exp_probs_b.bias' in w else prob.copy()
        if m['groups']:
            of_group = [np.sort(g)[-2:].sum() for g in score.reshape(m['groups'], -1)]
            for g in np.argsort(-np.array(of_group), kind='stable')[m['groups_used']:]:
                score.reshape(m['groups'], -1)[g] = -np.inf
        best = np.argsort(-score, kind='stable')[:m['used']]
        total = prob[best].sum() if m['normalise'] else 1
        for e in best:
            gate, up = w[p + 'ffn_gate_exps.weight'][e] @ x[t], w[p + 'ffn_up_exps.weight'][e] @ x[t]
            out[t] += m['weights_scale'] * prob[e] / total * (w[p + 'ffn_down_exps.weight'][e] @ (silu(gate) * up))
    return out


def deepseek2_forward(m, w, ids):
    def norm(x, name):
        return rms_norm(x, w[name + '.weight'], m['eps'])

    def gated(x, p, kind):
        gate, up = (x @ w[f'{p}ffn_{c}{kind}.weight'].T for c in ('gate', 'up'))
        return (silu(gate) * up) @ w[f'{p}ffn_down{kind}.weight'].T
    x = w['token_embd.weight'][ids]
    for i in range(m['layers']):
        p = f'blk.{i}.'
        x = x + deepseek2_attention(m, w, p, norm(x, p + 'attn_norm'))
        y = norm(x, p + 'ffn_norm')
        x = x + (gated(y, p, '') if i < m['lead'] else deepseek2_experts(m, w, p, y) + gated(y, p, '_shexp'))
    return norm(x, 'output_norm') @ w['output.weight'].T


# Nemotron 3: each layer is Mamba 2 ('m'), attention without positions ('a') or experts ('e', 'l': on fewer columns).

def mamba2(m, w, p, x):
    n, inner, heads, groups, states = len(x), m['inner'], m['ssm_heads'], m['groups'], m['states']
    dim, width = inner // heads, inner + 2 * groups * states
    z, xbc, dt = np.split(x @ w[p + 'ssm_in.weight'].T, [inner, inner + width], axis=1)
    taps, y, s = w[p + 'ssm_conv1d.weight'], np.zeros((n, inner)), np.zeros((heads, dim, states))
    for t in range(n):
        row = w[p + 'ssm_conv1d.bias'].copy()
        for i in range(m['kernel']):
            if t - i >= 0:
                row += taps[:, m['kernel'] - 1 - i] * xbc[t - i]
        row = silu(row)
        b, c = row[inner:].reshape(2, groups, states)
        for h in range(heads):
            step = np.log1p(np.exp(dt[t, h] + w[p + 'ssm_dt.bias'][h]))
            u, g = row[h * dim:(h + 1) * dim], h // (heads // groups)
            s[h] = s[h] * math.exp(step * w[p + 'ssm_a'][h, 0]) + step * np.outer(u, b[g])
            y[t, h * dim:(h + 1) * dim] = s[h] @ c[g] + w[p + 'ssm_d'][h, 0] * u
    y = (y * silu(z)).reshape(n, groups, -1)
    return rms_norm(y, w[p + 'ssm_norm.weight'], m['eps']).reshape(n, inner) @ w[p + 'ssm_out.weight'].T


def nemotron3_experts(m, w, p, x):
    def squared(x, up, down):
        return np.maximum(x @ up.T, 0) ** 2 @ down.T
    latent = x @ w[p + 'ffn_latent_down.weight'].T if p + 'ffn_latent_down.weight' in w else x
    out = np.zeros_like(latent)
    for t in range(len(x)):
        prob = 1 / (1 + np.exp(-(w[p + 'ffn_gate_inp.weight'] @ x[t])))
        best = np.argsort(-(prob + w[p + 'exp_probs_b.bias']), kind='stable')[:m['used']]
        for e in best:
            y = squared(latent[t], w[p + 'ffn_up_exps.weight'][e], w[p + 'ffn_down_exps.weight'][e])
            out[t] += m['weights_scale'] * prob[e] / prob[best].sum() * y
    if p + 'ffn_latent_up.weight' in w:
        out = out @ w[p + 'ffn_latent_up.weight'].T
    return out + squared(x, w[p + 'ffn_up_shexp.weight'], w[p + 'ffn_down_shexp.weight'])


def nemotron3_forward(m, w, ids):
    x = w['token_embd.weight'][ids]
    for i, kind in enumerate(m['kinds']):
        p = f'blk.{i}.'
        y = rms_norm(x, w[p + 'attn_norm.weight'], m['eps'])
        if kind == 'm':
            y = mamba2(m, w, p, y)
        elif kind == 'a':
            q, k, v = ((y @ w[f'{p}attn_{c}.weight'].T).reshape(len(ids), -1, m['dim']) for c in 'qkv')
            y = attention(m, q, k, v, 0) @ w[p + 'attn_output.weight'].T
        else:
            y = nemotron3_experts(m, w, p, y)
        x = x + y
    return rms_norm(x, w['output_norm.weight'], m['eps']) @ w['output.weight'].T


# ---- The models

LAYER_NORM = ('gpt2', 'gptneox', 'stablelm')


class Maker:
    """Draws tensors in the order in which they are asked for."""

    def __init__(self, name):
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.tensors = {}

    def matrix(self, name, rows, k, gain=1.0, n=None):
        x = self.rng.standard_normal((rows, k) if n is None else (n, rows, k)) * gain / math.sqrt(k)
        self.tensors[name + '.weight'] = x.astype('float16')

    def vector(self, name, n, mean, spread):
        self.tensors[name] = (mean + spread * self.rng.standard_normal(n)).astype('float32')

    def gain(self, name, n):
        self.vector(name + '.weight', n, 1, 0.2)


def block(t, m, i, arch):
    p, e, d, h, kv, f = f'blk.{i}.', m['embd'], m['dim'], m['heads'], m['kv'][i], m['ff'][i]
    bias = arch in ('gpt2', 'gptneox')

    def linear(name, rows, k, gain=1.0, biased=bias):
        t.matrix(p + name, rows, k, gain)
        if biased:
            t.vector(p + name + '.bias', rows, 0, 0.3)

    def norm(name, n=e):
        t.gain(p + name, n)
        if arch in LAYER_NORM:
            t.vector(p + name + '.bias', n, 0, 0.3)

    if arch not in ('olmo', 'olmo2'):
        norm('attn_norm')
    if m.get('fused_qkv'):
        linear('attn_qkv', (h + 2 * kv) * d, e, 1.6)
    else:
        for c, rows, gain in (('q', h * d, 2.0), ('k', kv * d, 2.0), ('v', kv * d, 1.0)):
            linear('attn_' + c, rows, e, gain, bias or arch == 'qwen2')
    if arch in ('qwen3', 'qwen3moe'):
        norm('attn_q_norm', d)
        norm('attn_k_norm', d)
    if arch == 'olmo2':
        norm('attn_q_norm', h * d)
        norm('attn_k_norm', kv * d)
    if m.get('own_gains'):
        for name, heads in (('attn_q_norm', h), ('attn_k_norm', kv)):
            t.gain(p + name, heads * d)
            t.tensors[p + name + '.weight'] = t.tensors[p + name + '.weight'].reshape(heads, d)
    linear('attn_output', e, h * d)
    if arch in ('gemma2', 'olmo2'):
        norm('post_attention_norm')
    if arch not in ('olmo', 'olmo2') and not m.get('one_norm'):
        norm('ffn_norm')
    if 'experts' in m:
        f = m.get('expert_ff', f)
        t.matrix(p + 'ffn_gate_inp', m['experts'], e, 2.0)
        t.matrix(p + 'ffn_gate_exps', f, e, 1.5, m['experts'])
        t.matrix(p + 'ffn_up_exps', f, e, 1.5, m['experts'])
        t.matrix(p + 'ffn_down_exps', e, f, 1.5, m['experts'])
        return
    if m.get('fused_gate'):
        linear('ffn_up', 2 * f, e, 1.5)
    else:
        linear('ffn_up', f, e, 1.5)
        if not bias:
            linear('ffn_gate', f, e, 1.5)
    linear('ffn_down', e, f, 1.5)
    if arch in ('gemma2', 'olmo2'):
        norm('post_ffw_norm')


def make(name, arch, out, **own):
    m = dict(layers=2, embd=32, heads=4, kv=[2, 2], dim=8, ff=[48, 48], eps=1e-3, ctx=256, base=500.0, pairs='halves',
             window=[0, 0], n_rot=8)
    m.update(own)
    t = Maker(name)
    t.matrix('token_embd', VOCAB, m['embd'], 0.3 if arch == 'gemma2' else 5.0)
    if arch == 'gpt2':
        t.matrix('position_embd', m['ctx'], m['embd'], 3.0)
        m['n_rot'] = 0
    if 'rope_tensors' in m:
        for tensor in m['rope_tensors']:
            t.vector(tensor, m['n_rot'] // 2, 1, 0)
            t.tensors[tensor] += t.rng.uniform(0.2, 2, m['n_rot'] // 2).astype('float32')
    for i in range(m['layers']):
        block(t, m, i, arch)
    if arch != 'olmo':
        t.gain('output_norm', m['embd'])
    if arch in LAYER_NORM:
        t.vector('output_norm.bias', m['embd'], 0, 0.3)
    if not m.get('tied'):
        t.matrix('output', VOCAB, m['embd'], 2.0)

    def scalar(x):
        return x if len(set(x)) > 1 else x[0]
    eps = 'layer_norm_epsilon' if arch in LAYER_NORM + ('olmo',) else 'layer_norm_rms_epsilon'
    keys = {'general.architecture': arch}
    own_keys = {'context_length': m['ctx'], 'embedding_length': m['embd'], 'block_count': m['layers'],
                'feed_forward_length': scalar(m['ff']), 'attention.head_count': m['heads'],
                'attention.head_count_kv': scalar(m['kv']), 'attention.' + eps: m['eps']}
    if m['dim'] * m['heads'] != m['embd']:
        own_keys |= {'attention.key_length': m['dim'], 'attention.value_length': m['dim']}
    if m['n_rot']:
        own_keys |= {'rope.freq_base': m['base'], 'rope.dimension_count': m['n_rot']}
    own_keys |= m.get('keys', {})
    keys |= {f'{arch}.{k}': v for k, v in own_keys.items()}
    path = os.path.join(out, f'tiny-{name}.gguf')
    write_gguf(path, keys, t.tensors)

    m['layer_norm'], m['gelu'] = arch in LAYER_NORM, arch in ('gpt2', 'gptneox', 'gemma2')
    ids = t.rng.integers(0, VOCAB, N_TOKENS)
    logits = forward(m, {k: v.astype('float64') for k, v in t.tensors.items()}, ids)
    with open(path + '.logits', 'wb') as f:
        f.write(struct.pack('<ii', N_TOKENS, VOCAB) + ids.astype('int32').tobytes() + logits.astype('float32').tobytes())


def gemma4_block(t, m, i):
    p, e, d, h, kv, f = f'blk.{i}.', m['embd'], m['dims'][i], m['heads'], m['kv'][i], m['ff'][i]
    t.matrix(p + 'attn_q', h * d, e)
    t.vector(p + 'attn_q_norm.weight', d, 0.25, 0.05)
    if i < m['own'] or m['unused_keys']:
        t.matrix(p + 'attn_k', kv * d, e)
        t.gain(p + 'attn_k_norm', d)
        if not (m['values_are_keys'] and not m['window'][i]):
            t.matrix(p + 'attn_v', kv * d, e)
    t.matrix(p + 'attn_output', e, h * d)
    for name in ('attn_norm', 'post_attention_norm', 'ffn_norm', 'post_ffw_norm'):
        t.gain(p + name, e)
    t.matrix(p + 'ffn_up', f, e, 1.5)
    t.matrix(p + 'ffn_gate', f, e, 1.5)
    t.matrix(p + 'ffn_down', e, f, 1.5)
    t.vector(p + 'layer_output_scale.weight', 1, 0.8, 0.2)
    if i in m['mixtures']:
        n, f = m['experts'], m['expert_ff']
        t.matrix(p + 'ffn_gate_inp', n, e, 9.0)
        t.vector(p + 'ffn_gate_inp.scale', e, 1, 0.2)
        for name in ('pre_ffw_norm_2', 'post_ffw_norm_1', 'post_ffw_norm_2'):
            t.gain(p + name, e)
        if i % 2:
            t.matrix(p + 'ffn_gate_exps', f, e, 1.5, n)
            t.matrix(p + 'ffn_up_exps', f, e, 1.5, n)
        else:
            t.matrix(p + 'ffn_gate_up_exps', 2 * f, e, 1.5, n)
        t.matrix(p + 'ffn_down_exps', e, f, 1.5, n)
        t.vector(p + 'ffn_down_exps.scale', n, 1, 0.3)
    if m['extra']:
        t.matrix(p + 'inp_gate', m['extra'], e, 1.5)
        t.matrix(p + 'proj', e, m['extra'], 1.5)
        t.gain(p + 'post_norm', e)


def make_gemma4(name, out, **own):
    n = len(own['window'])
    m = dict(embd=32, heads=4, layers=n, own=n, kv=[2] * n, ff=[48] * n, eps=1e-3, base=500.0, near_base=50.0, extra=0,
             values_are_keys=False, unused_keys=False, mixtures=[], keys={})
    m.update(own)
    m['dims'] = [8 if window else 16 for window in m['window']]
    t = Maker(name)
    t.matrix('token_embd', VOCAB, m['embd'], 0.5)
    if m['extra']:
        t.matrix('per_layer_token_embd', VOCAB, n * m['extra'], math.sqrt(n))
        t.matrix('per_layer_model_proj', n * m['extra'], m['embd'], 1.0)
        t.gain('per_layer_proj_norm', m['extra'])
    if 'no_factors' not in m:
        t.vector('rope_freqs.weight', 8, 1, 0)
        t.tensors['rope_freqs.weight'][5:] = 1e30
    for i in range(n):
        gemma4_block(t, m, i)
    t.gain('output_norm', m['embd'])
    own_keys = {'context_length': 256, 'embedding_length': m['embd'], 'block_count': n, 'feed_forward_length': m['ff'],
                'attention.head_count': m['heads'], 'attention.head_count_kv': m['kv'],
                'attention.layer_norm_rms_epsilon': m['eps'], 'attention.key_length': 16, 'attention.value_length': 16,
                'attention.key_length_swa': 8, 'attention.value_length_swa': 8, 'rope.dimension_count': 16,
                'rope.dimension_count_swa': 8, 'rope.freq_base': m['base'], 'rope.freq_base_swa': m['near_base'],
                'attention.sliding_window': max(m['window']), 'attention.shared_kv_layers': n - m['own'],
                'attention.sliding_window_pattern': [window > 0 for window in m['window']],
                'embedding_length_per_layer_input': m['extra']}
    if 'logit_cap' in m:
        own_keys['final_logit_softcapping'] = m['logit_cap']
    if m['mixtures']:
        own_keys |= {'expert_count': m['experts'], 'expert_used_count': m['used'],
                     'expert_feed_forward_length': m['expert_ff']}
    path = os.path.join(out, f'tiny-{name}.gguf')
    write_gguf(path, {'general.architecture': 'gemma4'} | {f'gemma4.{k}': v for k, v in own_keys.items()}, t.tensors)
    ids = t.rng.integers(0, VOCAB, N_TOKENS)
    logits = gemma4_forward(m, {k: v.astype('float64') for k, v in t.tensors.items()}, ids)
    with open(path + '.logits', 'wb') as f:
        f.write(struct.pack('<ii', N_TOKENS, VOCAB) + ids.astype('int32').tobytes() + logits.astype('float32').tobytes())


def deepseek2_block(t, m, i):
    p, e, h, d, rank, rest = f'blk.{i}.', m['embd'], m['heads'], m['dim'], m['rank_kv'], m['dim'] - m['n_rot']
    for name in ('attn_norm', 'ffn_norm'):
        t.gain(p + name, e)
    if m['rank_q']:
        t.matrix(p + 'attn_q_a', m['rank_q'], e)
        t.gain(p + 'attn_q_a_norm', m['rank_q'])
        t.matrix(p + 'attn_q_b', h * d, m['rank_q'], 2.0)
    else:
        t.matrix(p + 'attn_q', h * d, e, 2.0)
    t.matrix(p + 'attn_kv_a_mqa', rank + m['n_rot'], e)
    t.gain(p + 'attn_kv_a_norm', rank)
    if m['absorbed']:
        t.matrix(p + 'attn_k_b', rank, rest, 1.0, h)
        t.matrix(p + 'attn_v_b', m['dim_v'], rank, 1.0, h)
    else:
        t.matrix(p + 'attn_kv_b', h * (rest + m['dim_v']), rank)
    t.matrix(p + 'attn_output', e, h * m['dim_v'])
    f, n = (m['ff'], None) if i < m['lead'] else (m['expert_ff'], m['experts'])
    for name, rows, k in (('gate', f, e), ('up', f, e), ('down', e, f)):
        t.matrix(p + f'ffn_{name}' + ('_exps' if n else ''), rows, k, 1.5, n)
    if n:
        t.matrix(p + 'ffn_gate_inp', n, e, 2.0)
        if m['sigmoid']:
            t.vector(p + 'exp_probs_b.bias', n, 0, 0.3)
        for name, rows, k in (('gate', 2 * f, e), ('up', 2 * f, e), ('down', e, 2 * f)):
            t.matrix(p + f'ffn_{name}_shexp', rows, k, 1.5)


def make_deepseek2(name, out, **own):
    m = dict(embd=32, heads=3, layers=3, lead=1, ff=48, eps=1e-3, base=500.0, pairs='adjacent', n_rot=32, dim=64, dim_v=32,
             rank_q=24, rank_kv=64, absorbed=True, experts=8, used=3, expert_ff=16, sigmoid=True, normalise=True,
             groups=4, groups_used=2, weights_scale=2.5, multiplier=0.0)
    m.update(own)
    m['attn_scale'] = 1 / math.sqrt(m['dim'])
    own_keys = {'attention.head_count_kv': 1 if m['absorbed'] else m['heads']}
    if m.get('yarn'):
        m['attn_factor'] = 1 / (1 + 0.1 * math.log(m['scale']))  # what the multiplier is for: nothing grows
        m['attn_scale'] *= (1 + m['multiplier'] * math.log(m['scale'])) ** 2
        own_keys |= {'rope.scaling.type': 'yarn', 'rope.scaling.factor': m['scale'],
                     'rope.scaling.original_context_length': m['orig'],
                     'rope.scaling.yarn_log_multiplier': m['multiplier']}
    if 'growth' in m:
        own_keys |= {'attention.temperature_scale': m['growth'], 'attention.temperature_length': m['period']}
    if m['absorbed']:
        own_keys |= {'attention.key_length': m['rank_kv'] + m['n_rot'], 'attention.value_length': m['rank_kv'],
                     'attention.key_length_mla': m['dim'], 'attention.value_length_mla': m['dim_v']}
    else:
        own_keys |= {'attention.key_length': m['dim'], 'attention.value_length': m['dim_v']}
    if m['rank_q']:
        own_keys['attention.q_lora_rank'] = m['rank_q']
    if m['groups']:
        own_keys |= {'expert_group_count': m['groups'], 'expert_group_used_count': m['groups_used']}
    own_keys |= {'context_length': 256, 'embedding_length': m['embd'], 'block_count': m['layers'],
                 'feed_forward_length': m['ff'], 'attention.head_count': m['heads'],
                 'attention.layer_norm_rms_epsilon': m['eps'], 'attention.kv_lora_rank': m['rank_kv'],
                 'rope.dimension_count': m['n_rot'], 'rope.freq_base': m['base'],
                 'leading_dense_block_count': m['lead'], 'expert_feed_forward_length': m['expert_ff'],
                 'expert_count': m['experts'], 'expert_used_count': m['used'], 'expert_shared_count': 2,
                 'expert_weights_scale': m['weights_scale'], 'expert_weights_norm': m['normalise'],
                 'expert_gating_func': 2 if m['sigmoid'] else 1}
    t = Maker(name)
    t.matrix('token_embd', VOCAB, m['embd'], 5.0)
    for i in range(m['layers']):
        deepseek2_block(t, m, i)
    t.gain('output_norm', m['embd'])
    t.matrix('output', VOCAB, m['embd'], 2.0)
    path = os.path.join(out, f'tiny-{name}.gguf')
    write_gguf(path, {'general.architecture': 'deepseek2'} | {f'deepseek2.{k}': v for k, v in own_keys.items()}, t.tensors)
    ids = t.rng.integers(0, VOCAB, N_TOKENS)
    logits = deepseek2_forward(m, {k: v.astype('float64') for k, v in t.tensors.items()}, ids)
    with open(path + '.logits', 'wb') as f:
        f.write(struct.pack('<ii', N_TOKENS, VOCAB) + ids.astype('int32').tobytes() + logits.astype('float32').tobytes())


def nemotron3_block(t, m, i, kind):
    p, e = f'blk.{i}.', m['embd']
    t.gain(p + 'attn_norm', e)
    if kind == 'm':
        inner, h, width = m['inner'], m['ssm_heads'], m['inner'] + 2 * m['groups'] * m['states']
        t.matrix(p + 'ssm_in', inner + width + h, e, 1.5)
        t.vector(p + 'ssm_conv1d.weight', width * m['kernel'], 0, 0.5)
        t.tensors[p + 'ssm_conv1d.weight'] = t.tensors[p + 'ssm_conv1d.weight'].reshape(width, m['kernel'])
        t.vector(p + 'ssm_conv1d.bias', width, 0, 0.3)
        t.vector(p + 'ssm_dt.bias', h, -1, 0.5)
        for name, mean in (('ssm_a', -0.5), ('ssm_d', 1)):
            t.vector(p + name, h, mean, 0.2)
            t.tensors[p + name] = t.tensors[p + name].reshape(h, 1)
        t.vector(p + 'ssm_norm.weight', inner, 1, 0.2)
        t.tensors[p + 'ssm_norm.weight'] = t.tensors[p + 'ssm_norm.weight'].reshape(m['groups'], -1)
        t.matrix(p + 'ssm_out', e, inner)
    elif kind == 'a':
        for c, rows, gain in (('q', m['heads'], 2.0), ('k', m['kv'], 2.0), ('v', m['kv'], 1.0)):
            t.matrix(p + 'attn_' + c, rows * m['dim'], e, gain)
        t.matrix(p + 'attn_output', e, m['heads'] * m['dim'])
    else:
        width, f, n = m['latent'] if kind == 'l' else e, m['expert_ff'], m['experts']
        if kind == 'l':
            t.matrix(p + 'ffn_latent_down', width, e)
            t.matrix(p + 'ffn_latent_up', e, width)
        t.matrix(p + 'ffn_gate_inp', n, e, 2.0)
        t.vector(p + 'exp_probs_b.bias', n, 0, 0.3)
        t.matrix(p + 'ffn_up_exps', f, width, 1.5, n)
        t.matrix(p + 'ffn_down_exps', width, f, 1.0, n)
        t.matrix(p + 'ffn_up_shexp', m['shared_ff'], e, 1.5)
        t.matrix(p + 'ffn_down_shexp', e, m['shared_ff'])


def make_nemotron3(name, out, **own):
    m = dict(embd=32, heads=4, kv=2, dim=8, eps=1e-3, kernel=4, inner=48, ssm_heads=6, groups=2, states=10, experts=6,
             used=2, expert_ff=24, shared_ff=40, latent=16, weights_scale=2.5)
    m.update(own)
    t = Maker(name)
    t.matrix('token_embd', VOCAB, m['embd'], 5.0)
    for i, kind in enumerate(m['kinds']):
        nemotron3_block(t, m, i, kind)
    t.gain('output_norm', m['embd'])
    t.matrix('output', VOCAB, m['embd'], 2.0)
    own_keys = {'context_length': 256, 'embedding_length': m['embd'], 'block_count': len(m['kinds']),
                'feed_forward_length': [m['expert_ff'] if k in 'el' else 0 for k in m['kinds']],
                'attention.head_count': [m['heads'] if k == 'a' else 0 for k in m['kinds']],
                'attention.head_count_kv': [m['kv'] if k == 'a' else 0 for k in m['kinds']],
                'attention.key_length': m['dim'], 'attention.value_length': m['dim'],
                'attention.layer_norm_rms_epsilon': m['eps'], 'ssm.conv_kernel': m['kernel'],
                'ssm.inner_size': m['inner'], 'ssm.state_size': m['states'], 'ssm.time_step_rank': m['ssm_heads'],
                'ssm.group_count': m['groups'], 'expert_count': m['experts'], 'expert_used_count': m['used'],
                'expert_feed_forward_length': m['expert_ff'], 'expert_shared_count': 1,
                'expert_shared_feed_forward_length': m['shared_ff'], 'expert_weights_norm': True,
                'expert_weights_scale': m['weights_scale']}
    if 'l' in m['kinds']:
        own_keys['moe_latent_size'] = m['latent']
    path, arch = os.path.join(out, f'tiny-{name}.gguf'), 'nemotron_h_moe'
    write_gguf(path, {'general.architecture': arch} | {f'{arch}.{k}': v for k, v in own_keys.items()}, t.tensors)
    ids = t.rng.integers(0, VOCAB, N_TOKENS)
    logits = nemotron3_forward(m, {k: v.astype('float64') for k, v in t.tensors.items()}, ids)
    with open(path + '.logits', 'wb') as f:
        f.write(struct.pack('<ii', N_TOKENS, VOCAB) + ids.astype('int32').tobytes() + logits.astype('float32').tobytes())


def main(out):
    long_factors = ['rope_factors_long.weight', 'rope_factors_short.weight']
    make('llama', 'llama', out, pairs='adjacent', rope_tensors=['rope_freqs.weight'], factors='rope_freqs.weight')
    make('llama-moe', 'llama', out, pairs='adjacent', experts=6, used=2, ff=[24, 24],
         keys={'expert_count': 6, 'expert_used_count': 2})
    make('llama-linear', 'llama', out, pairs='adjacent', tied=True, kv=[2, 4], ff=[48, 32], fused_qkv=True, scale=4.0,
         keys={'rope.scaling.type': 'linear', 'rope.scaling.factor': 4.0})
    make('llama-yarn', 'llama', out, pairs='adjacent', embd=64, dim=16, n_rot=16, yarn=True, scale=8.0, orig=128, ctx=1024,
         keys={'rope.scaling.type': 'yarn', 'rope.scaling.factor': 8.0, 'rope.scaling.original_context_length': 128})
    make('qwen2', 'qwen2', out, tied=True)
    make('qwen3', 'qwen3', out, dim=16, n_rot=16)
    make('qwen3moe', 'qwen3moe', out, dim=16, n_rot=16, experts=6, used=3, expert_ff=16,
         keys={'expert_count': 6, 'expert_used_count': 3, 'expert_feed_forward_length': 16})
    make('gemma2', 'gemma2', out, layers=3, kv=[2] * 3, ff=[48] * 3, dim=16, n_rot=16, tied=True, window=[7, 0, 7],
         attn_cap=3.0, logit_cap=2.0, embed_scale=float(np.float32(math.sqrt(32))),
         keys={'attention.sliding_window': 7, 'attn_logit_softcapping': 3.0, 'final_logit_softcapping': 2.0})
    make('gpt2', 'gpt2', out, kv=[4, 4], fused_qkv=True, tied=True, ctx=64)
    make('gptneox', 'gptneox', out, kv=[4, 4], n_rot=4, fused_qkv=True, side_by_side=True,
         keys={'use_parallel_residual': True})
    make('stablelm', 'stablelm', out, n_rot=4)
    make('stablelm-12b', 'stablelm', out, n_rot=4, own_gains=True, one_norm=True)
    make('smollm3', 'smollm3', out, pairs='adjacent', layers=4, kv=[2] * 4, ff=[32] * 4, window=[0] * 4, still=[3],
         tied=True)
    make('olmo', 'olmo', out, pairs='adjacent', tied=True, bare_norms=True)
    make('olmo2', 'olmo2', out, row_norms=True, window=[7, 0],
         keys={'attention.sliding_window': 7, 'attention.sliding_window_pattern': 2})
    make_gemma4('gemma4', out, window=[7, 7, 0, 7], kv=[2, 2, 1, 2], values_are_keys=True, logit_cap=2.0)
    make_gemma4('gemma4-moe', out, window=[7, 0], kv=[2, 1], values_are_keys=True, mixtures=[0, 1], experts=6, used=2,
                expert_ff=16)
    make_gemma4('gemma4-extra', out, window=[7, 0, 7, 7, 0], own=2, ff=[32, 32, 64, 64, 64], extra=10,
                unused_keys=True)
    make_deepseek2('deepseek2', out, yarn=True, scale=8.0, orig=32, multiplier=0.0707)
    make_deepseek2('deepseek2-heads', out, absorbed=False, rank_q=0, sigmoid=False, normalise=False, groups=0,
                   weights_scale=1.0, yarn=True, scale=4.0, orig=64, multiplier=0.1)
    make_deepseek2('deepseek2-growth', out, growth=0.3, period=7)
    make_nemotron3('nemotron3', out, kinds='meame')
    make_nemotron3('nemotron3-latent', out, kinds='mal')
    phi3 = dict(dim=8, n_rot=4, fused_gate=True, fused_qkv=True, attn_factor=1.25, window=[9, 9],
                rope_tensors=long_factors)
    phi3_keys = {'attention.sliding_window': 9, 'rope.scaling.attn_factor': 1.25,
                 'rope.scaling.original_context_length': 256}
    make('phi3-short', 'phi3', out, **phi3, factors=long_factors[1], ctx=256, keys=phi3_keys)
    make('phi3-long', 'phi3', out, **phi3, factors=long_factors[0], ctx=1024, keys=phi3_keys)


if __name__ == '__main__':
    main(sys.argv[1])
