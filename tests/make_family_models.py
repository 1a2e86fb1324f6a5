#!/usr/bin/python3
"""Writes more of tests/data/arch/tiny-*.gguf and their logits: families, and parts of them, of which there is no other model.

The forward is float64 and draws each tensor when it first needs it, so that a family is said once: what is computed, and
with which tensors. It shares nothing with quern's.
Usage: make_family_models.py OUT_DIR
"""
import math
import os
import struct
import sys

import numpy as np

from make_arch_models import N_TOKENS, VOCAB, Maker, attention, gelu, layer_norm, rms_norm, rope, silu, softmax, write_gguf


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def relu(x):
    return np.maximum(x, 0)


class Draw(Maker):
    def __init__(self, name, eps):
        super().__init__(name)
        self.eps, self.p = eps, ''

    def get(self, name, shape, mean, spread):
        """A float32 vector or small table."""
        name = self.p + name
        if name not in self.tensors:
            self.vector(name, int(np.prod(shape)), mean, spread)
            self.tensors[name] = self.tensors[name].reshape(shape)
        return self.tensors[name].astype('float64')

    def weights(self, name, rows, k, gain=1.0, n=None):
        if self.p + name + '.weight' not in self.tensors:
            self.matrix(self.p + name, rows, k, gain, n)
        return self.tensors[self.p + name + '.weight'].astype('float64')

    def linear(self, x, name, rows, gain=1.0, bias=False):
        y = x @ self.weights(name, rows, x.shape[-1], gain).T
        return y + self.get(name + '.bias', rows, 0, 0.3) if bias else y

    def norm(self, x, name, suffix='.weight'):
        return rms_norm(x, self.get(name + suffix, x.shape[-1], 1, 0.2), self.eps)

    def layer_norm(self, x, name, bias=True):
        b = self.get(name + '.bias', x.shape[-1], 0, 0.3) if bias else 0
        return layer_norm(x, self.get(name + '.weight', x.shape[-1], 1, 0.2), b, self.eps)

    def embed(self, ids, n, gain=5.0):
        return self.weights('token_embd', VOCAB, n, gain)[ids]

    def heads(self, x, name, n, dim, gain=1.0, bias=False):
        return self.linear(x, name, n * dim, gain, bias).reshape(len(x), n, dim)

    def gated(self, x, n, act, kind='', limit=0.0):
        y, up = act(self.linear(x, f'ffn_gate{kind}', n, 1.5)), self.linear(x, f'ffn_up{kind}', n, 1.5)
        y = np.minimum(y, limit) * np.clip(up, -limit, limit) if limit else y * up
        return self.linear(y, f'ffn_down{kind}', x.shape[-1], 1.5)


def turned(m, x, factors=None):
    """x: (tokens, heads, dim)."""
    return np.array([[rope(m, head, t, factors) for head in row] for t, row in enumerate(x)])


def slopes(heads, most):
    """The slopes of ALiBi as its authors compute them: a geometric series, and for other numbers of heads every second of
    the next longer one."""
    def series(n):
        return [2 ** (-most / n * (i + 1)) for i in range(n)]
    n = 2 ** math.floor(math.log2(heads))
    return series(n) + series(2 * n)[0::2][:heads - n]


def alibi(q, k, v, scale, slope):
    n, heads, _ = q.shape
    out = np.zeros((n, heads, v.shape[2]))
    for t in range(n):
        for h in range(heads):
            g = h // (heads // k.shape[1])
            s = k[:t + 1, g] @ q[t, h] * scale - slope[h] * (t - np.arange(t + 1))
            out[t, h] = softmax(s) @ v[:t + 1, g]
    return out.reshape(n, -1)


def chosen(d, x, logits, m, act, prob=None, order=None, bias=False, limit=0.0):
    """The experts of each row. m: experts, used, expert_ff, normalise, weights_scale."""
    def cut(y, low):
        return np.clip(y, low, limit) if limit else y
    out, n, f = np.zeros_like(x), m['experts'], m['expert_ff']
    gate = d.weights('ffn_gate_exps', f, x.shape[1], 1.5, n)
    up = d.weights('ffn_up_exps', f, x.shape[1], 1.5, n)
    down = d.weights('ffn_down_exps', x.shape[1], f, 1.5, n)
    b = d.get('exp_probs_b.bias', n, 0, 0.3) if bias else 0
    for t in range(len(x)):
        p = sigmoid(logits[t]) if prob == 'sigmoid' else softmax(logits[t])
        best = np.argsort(-(p + b), kind='stable')[:m['used']]
        total = p[best].sum() if m['normalise'] else 1
        for e in best:
            out[t] += m.get('weights_scale', 1) * p[e] / total * (
                down[e] @ (cut(act(gate[e] @ x[t]), -math.inf) * cut(up[e] @ x[t], -limit)))
    return out


def finish(d, arch, out, keys, ids, logits, plain):
    """plain: keys whose names do not begin with the family's."""
    path = os.path.join(out, f'tiny-{d.name}.gguf')
    write_gguf(path, {'general.architecture': arch} | {f'{arch}.{k}': v for k, v in keys.items()} | plain, d.tensors)
    with open(path + '.logits', 'wb') as f:
        f.write(struct.pack('<ii', N_TOKENS, VOCAB) + ids.astype('int32').tobytes() + logits.astype('float32').tobytes())


def baichuan(d, m, ids):
    """Without rope (base 0) the scores fall with the distance."""
    n, h = m['embd'], m['heads']
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        y = d.norm(x, 'attn_norm')
        q, k, v = (d.heads(y, f'attn_{c}', h, n // h, 2.0) for c in 'qkv')
        if m['n_rot']:
            y = attention({}, turned(m, q), turned(m, k), v, 0)
        else:
            y = alibi(q, k, v, (n // h) ** -0.5, slopes(h, 8))
        x = x + d.linear(y, 'attn_output', n)
        x = x + d.gated(d.norm(x, 'ffn_norm'), m['ff'], silu)
    d.p = ''
    return d.linear(d.norm(x, 'output_norm'), 'output', VOCAB, 2.0)


def mpt(d, m, ids):
    n, h, kv, dim = m['embd'], m['heads'], m['heads'], m['embd'] // m['heads']
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        y = np.clip(d.linear(d.layer_norm(x, 'attn_norm', False), 'attn_qkv', (h + 2 * kv) * dim, 2.0), -m['clamp'], m['clamp'])
        q, k, v = np.split(y, 3, axis=1)
        q, k = d.layer_norm(q, 'attn_q_norm', False), d.layer_norm(k, 'attn_k_norm', False)
        q, k, v = (a.reshape(len(x), h, dim) for a in (q, k, v))
        x = x + d.linear(alibi(q, k, v, dim ** -0.5, slopes(h, m['most'])), 'attn_output', n)
        y = gelu(d.linear(d.layer_norm(x, 'ffn_norm', False), 'ffn_up', m['ff'], 1.5)) / d.get('ffn.act.scales', m['ff'], 1, 0.1)
        x = x + d.linear(y, 'ffn_down', n, 1.5)
    d.p = ''
    return d.layer_norm(x, 'output_norm', False) @ d.weights('token_embd', VOCAB, n).T


def minicpm3(d, m, ids):
    n, h, dim, rot, dv, rank = m['embd'], m['heads'], m['dim'], m['n_rot'], m['dim_v'], m['rank_kv']
    x, s, factors = 12 * d.embed(ids, n, 0.4), 1.4 / math.sqrt(m['layers']), 1.0
    factors = d.get('rope_factors_short.weight', rot // 2, 1, 0.2)
    d.get('rope_factors_long.weight', rot // 2, 1, 0.2)
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        y = d.norm(x, 'attn_norm')
        q = d.heads(d.norm(d.linear(y, 'attn_q_a', m['rank_q']), 'attn_q_a_norm'), 'attn_q_b', h, dim, 2.0)
        kv = d.linear(y, 'attn_kv_a_mqa', rank + rot)
        both = d.heads(d.norm(kv[:, :rank], 'attn_kv_a_norm'), 'attn_kv_b', h, dim - rot + dv)
        k_rot = np.repeat(turned(m, kv[:, None, rank:], factors), h, axis=1)
        q = np.concatenate([q[:, :, :dim - rot], turned(m, q[:, :, dim - rot:], factors)], axis=2)
        k = np.concatenate([both[:, :, :dim - rot], k_rot], axis=2)
        x = x + s * d.linear(attention({}, q, k, both[:, :, dim - rot:], 0), 'attn_output', n)
        x = x + s * d.gated(d.norm(x, 'ffn_norm'), m['ff'], silu)
    d.p = ''
    return d.linear(d.norm(x, 'output_norm') * 256 / n, 'output', VOCAB, 0.2)


def smallthinker(d, m, ids):
    n, h, kv, dim = m['embd'], m['heads'], m['kv'], m['dim']
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        logits = d.linear(x, 'ffn_gate_inp', m['experts'], 0.4)
        y = d.norm(x, 'attn_norm')
        q, k, v = d.heads(y, 'attn_q', h, dim, 2.0), d.heads(y, 'attn_k', kv, dim, 2.0), d.heads(y, 'attn_v', kv, dim)
        if i % 4:
            q, k = turned(m, q), turned(m, k)
        x = x + d.linear(attention({}, q, k, v, 0), 'attn_output', n)
        x = x + chosen(d, d.norm(x, 'ffn_norm'), logits, m, relu, 'sigmoid')
    d.p = ''
    return d.linear(d.norm(x, 'output_norm'), 'output', VOCAB, 2.0)


def hy_v3(d, m, ids):
    n, h, kv, dim = m['embd'], m['heads'], m['kv'], m['dim']
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        y = d.norm(x, 'attn_norm')
        q, k, v = d.heads(y, 'attn_q', h, dim), d.heads(y, 'attn_k', kv, dim), d.heads(y, 'attn_v', kv, dim)
        q, k = turned(m, d.norm(q, 'attn_q_norm')), turned(m, d.norm(k, 'attn_k_norm'))
        x = x + d.linear(attention({}, q, k, v, 0), 'attn_output', n)
        y = d.norm(x, 'ffn_norm')
        if i < m['lead']:
            x = x + d.gated(y, m['ff'], silu)
        else:
            logits = d.linear(y, 'ffn_gate_inp', m['experts'], 2.0)
            x = x + chosen(d, y, logits, m, silu, 'sigmoid', bias=True) + d.gated(y, m['expert_ff'], silu, '_shexp')
    d.p = ''
    return d.linear(d.norm(x, 'output_norm'), 'output', VOCAB, 2.0)


def grovemoe(d, m, ids):
    n, h, kv, dim, f2, share = m['embd'], m['heads'], m['kv'], m['dim'], m['second_ff'], m['share']
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        y = d.norm(x, 'attn_norm')
        q, k, v = d.heads(y, 'attn_q', h, dim), d.heads(y, 'attn_k', kv, dim), d.heads(y, 'attn_v', kv, dim)
        q, k = turned(m, d.norm(q, 'attn_q_norm')), turned(m, d.norm(k, 'attn_k_norm'))
        x = x + d.linear(attention({}, q, k, v, 0), 'attn_output', n)
        y = d.norm(x, 'ffn_norm')
        logits = d.linear(y, 'ffn_gate_inp', m['experts'], 2.0)
        y = chosen(d, y, logits, m, silu)
        gate, up = (d.weights(f'ffn_{c}_chexps', f2, n, 1.5, m['experts'] // share) for c in ('gate', 'up'))
        down, z = d.weights('ffn_down_chexps', n, f2, 1.5, m['experts'] // share), np.zeros_like(y)
        for t in range(len(x)):
            prob = softmax(logits[t])
            best = np.argsort(-prob, kind='stable')[:min(m['used'], m['experts'] // share)] // share
            for e in best:
                z[t] += prob[e] / prob[best].sum() * (down[e] @ (silu(gate[e] @ y[t]) * (up[e] @ y[t])))
        x = x + y + m['second_scale'] * z
    d.p = ''
    return d.linear(d.norm(x, 'output_norm'), 'output', VOCAB, 2.0)


def apertus(d, m, ids):
    n, h, kv, dim = m['embd'], m['heads'], m['kv'], m['dim']
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        y = d.norm(x, 'attn_norm')
        q, k, v = d.heads(y, 'attn_q', h, dim), d.heads(y, 'attn_k', kv, dim), d.heads(y, 'attn_v', kv, dim)
        q, k = turned(m, d.norm(q, 'attn_q_norm')), turned(m, d.norm(k, 'attn_k_norm'))
        x = x + d.linear(attention({}, q, k, v, 0), 'attn_output', n)
        u = d.linear(d.norm(x, 'ffn_norm'), 'ffn_up', m['ff'], 1.5)
        beta, eps = (float(np.float32(m[key][i])) for key in ('beta', 'least'))
        below, above = beta + np.log1p(np.exp(m['alpha_n'][i])), np.log1p(np.exp(m['alpha_p'][i]))
        u = np.where(u > 0, above * u * u, below * (np.expm1(np.minimum(u, eps)) - u)) + beta * u
        x = x + d.linear(u, 'ffn_down', n)
    d.p = ''
    return d.linear(d.norm(x, 'output_norm'), 'output', VOCAB, 2.0)


def afmoe(d, m, ids):
    n, h, kv, dim = m['embd'], m['heads'], m['kv'], m['dim']
    x = math.sqrt(n) * d.embed(ids, n, 0.8)
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        y = d.norm(x, 'attn_norm')
        q, k, v = d.heads(y, 'attn_q', h, dim), d.heads(y, 'attn_k', kv, dim), d.heads(y, 'attn_v', kv, dim)
        q, k, full = d.norm(q, 'attn_q_norm'), d.norm(k, 'attn_k_norm'), i % 4 == 3
        if not full:
            q, k = turned(m, q), turned(m, k)
        z = attention({}, q, k, v, 0 if full else m['window']) * sigmoid(d.linear(y, 'attn_gate', h * dim, 2.0))
        x = x + d.norm(d.linear(z, 'attn_output', n), 'post_attention_norm')
        y = d.norm(x, 'ffn_norm')
        if i < m['lead']:
            y = d.gated(y, m['ff'], silu)
        else:
            logits = d.linear(y, 'ffn_gate_inp', m['experts'], 2.0)
            y = chosen(d, y, logits, m, silu, 'sigmoid', bias=True) + d.gated(y, 2 * m['expert_ff'], silu, '_shexp')
        x = x + d.norm(y, 'post_ffw_norm')
    d.p = ''
    return d.linear(d.norm(x, 'output_norm'), 'output', VOCAB, 2.0)


def exaone_moe(d, m, ids):
    n, h, kv, dim = m['embd'], m['heads'], m['kv'], m['dim']
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        y, near = d.norm(x, 'attn_norm'), m['near'][i]
        q, k, v = d.heads(y, 'attn_q', h, dim), d.heads(y, 'attn_k', kv, dim), d.heads(y, 'attn_v', kv, dim)
        q, k = d.norm(q, 'attn_q_norm'), d.norm(k, 'attn_k_norm')
        if near:
            q, k = turned(m, q), turned(m, k)
        x = x + d.linear(attention({}, q, k, v, m['window'] if near else 0), 'attn_output', n)
        y = d.norm(x, 'ffn_norm')
        if i < m['lead']:
            x = x + d.gated(y, m['ff'], silu)
        else:
            logits = d.linear(y, 'ffn_gate_inp', m['experts'], 2.0)
            x = x + chosen(d, y, logits, m, silu, 'sigmoid', bias=True) + d.gated(y, m['expert_ff'], silu, '_shexp')
    d.p = ''
    return d.linear(d.norm(x, 'output_norm'), 'output', VOCAB, 2.0)


def cohere2moe(d, m, ids):
    n, h, kv, dim = m['embd'], m['heads'], m['kv'], m['dim']
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        y, near = d.layer_norm(x, 'attn_norm', False), i % 4 != 0
        q, k, v = d.heads(y, 'attn_q', h, dim, 2.0), d.heads(y, 'attn_k', kv, dim, 2.0), d.heads(y, 'attn_v', kv, dim)
        if near or i < m['lead']:
            q, k = turned(m, q), turned(m, k)
        z = d.linear(attention({}, q, k, v, m['window'] if near else 0), 'attn_output', n)
        if i < m['lead']:
            y = d.gated(y, m['ff'], silu)
        else:
            logits = d.linear(y, 'ffn_gate_inp', m['experts'], 2.0)
            y = (chosen(d, y, logits, m, silu, 'sigmoid') + d.gated(y, m['shared_ff'], silu, '_shexp')) / 2
        x = x + y + z
    d.p = ''
    return 0.25 * d.layer_norm(x, 'output_norm', False) @ d.weights('token_embd', VOCAB, n).T


def gemma3n(d, m, ids):
    """x: (streams, tokens, columns)."""
    n, h, kv, dim, f, s, e = m['embd'], m['heads'], m['kv'], m['dim'], m['ff'], m['streams'], m['extra']
    first = math.sqrt(n) * d.embed(ids, n, 0.8)
    scales = rms_norm(first @ d.weights('per_layer_model_proj', m['layers'] * e, n, 3.0).T.reshape(n, m['layers'], e)
                      .transpose(1, 0, 2) / math.sqrt(n), d.get('per_layer_proj_norm.weight', e, 1, 0.2), m['eps'])
    table = d.weights('per_layer_token_embd', VOCAB, m['layers'] * e, math.sqrt(m['layers']))
    extra = (scales + math.sqrt(e) * table[ids].reshape(len(ids), m['layers'], e).transpose(1, 0, 2)) / math.sqrt(2)

    def size(x):
        return np.sqrt((x * x).sum(axis=-1, keepdims=True))

    def router(y):
        return np.tanh(d.linear(d.norm(y, 'altup_router_norm') / n, 'altup_router', s, 40.0))
    more = np.array([first @ w.T for w in d.weights('altup_proj', n, n, 1.0, s - 1)])
    x, kept = np.concatenate([first[None], more * size(first) / size(more)]), {}
    for i in range(m['layers']):
        d.p, full = f'blk.{i}.', not m['near'][i]
        turn = dict(m, base=m['base'] if full else m['near_base'])
        coef = d.linear(router(x[0]), 'altup_predict_coef', s * s).reshape(len(ids), s, s)
        predicted = x + np.einsum('tkj,jtc->ktc', coef, x)
        y = d.norm(predicted[0], 'attn_norm')
        laurel = y + d.norm(d.linear(d.linear(y, 'laurel_l', 6), 'laurel_r', n), 'laurel_post_norm')
        q = turned(turn, d.norm(d.heads(y, 'attn_q', h, dim), 'attn_q_norm'))
        if i < m['own']:
            k, v = d.heads(y, 'attn_k', kv, dim), d.heads(y, 'attn_v', kv, dim)
            kept[i] = turned(turn, d.norm(k, 'attn_k_norm')), rms_norm(v, 1, m['eps'])
        k, v = kept[i if i < m['own'] else m['own'] - (1 if full else 2)]
        y = d.linear(attention(dict(attn_scale=1), q, k, v, 0 if full else m['window']), 'attn_output', n)
        y = (d.norm(y, 'post_attention_norm') + predicted[0] + laurel) / math.sqrt(2)
        z = d.norm(y, 'ffn_norm')
        gate = d.linear(z, 'ffn_gate', f, 1.5)
        if np.isfinite(m['cut'][i]):
            spread = gate.std(axis=-1, ddof=1, keepdims=True)
            gate = relu(gate - gate.mean(axis=-1, keepdims=True) - float(np.float32(m['cut'][i])) * spread)
        z = d.linear(gelu(gate) * d.linear(z, 'ffn_up', f, 1.5), 'ffn_down', n, 1.5)
        y = y + d.norm(z, 'post_ffw_norm')
        x = predicted + (y - predicted[0]) * (1 + d.linear(router(y), 'altup_correct_coef', s)).T[:, :, None]
        z = d.linear(x[0] * d.get('altup_correct_scale.weight', n, 1, 0.2), 'inp_gate', e)
        x[1:] += d.norm(d.linear(gelu(z) * extra[i], 'proj', n), 'post_norm')
    d.p = ''
    more = np.array([y @ w.T for y, w in zip(x[1:], d.weights('altup_unembd_proj', n, n, 1.0, s - 1))])
    y = (x[0] + (more * size(x[0]) / size(more)).sum(axis=0)) / s
    return 30 * np.tanh(d.norm(y, 'output_norm') @ d.weights('token_embd', VOCAB, n).T / 30)


def maincoder(d, m, ids):
    n, h, kv, dim = m['embd'], m['heads'], m['kv'], m['dim']
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        y = d.norm(x, 'attn_norm')
        q, k, v = d.heads(y, 'attn_q', h, dim), d.heads(y, 'attn_k', kv, dim), d.heads(y, 'attn_v', kv, dim)
        q, k = d.norm(turned(m, q), 'attn_q_norm'), d.norm(turned(m, k), 'attn_k_norm')
        x = x + d.linear(attention({}, q, k, v, 0), 'attn_output', n)
        x = x + d.gated(d.norm(x, 'ffn_norm'), m['ff'], silu)
    d.p = ''
    return d.norm(x, 'output_norm') @ d.weights('token_embd', VOCAB, n).T


def plm(d, m, ids):
    n, h, dim, rot, dv, rank = m['embd'], m['heads'], m['dim'], m['n_rot'], m['dim_v'], m['rank_kv']
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        y = d.norm(x, 'attn_norm')
        q, kv = d.heads(y, 'attn_q', h, dim, 2.0), d.linear(y, 'attn_kv_a_mqa', rank + rot)
        both = d.heads(d.norm(kv[:, :rank], 'attn_kv_a_norm'), 'attn_kv_b', h, dim - rot + dv)
        k_rot = np.repeat(turned(m, kv[:, None, rank:]), h, axis=1)
        q = np.concatenate([q[:, :, :dim - rot], turned(m, q[:, :, dim - rot:])], axis=2)
        k = np.concatenate([both[:, :, :dim - rot], k_rot], axis=2)
        x = x + d.linear(attention({}, q, k, both[:, :, dim - rot:], 0), 'attn_output', n)
        y = relu(d.linear(d.norm(x, 'ffn_norm'), 'ffn_up', m['ff'], 1.5)) ** 2
        x = x + d.linear(y, 'ffn_down', n)
    d.p = ''
    return d.norm(x, 'output_norm') @ d.weights('token_embd', VOCAB, n).T


def plamo3(d, m, ids):
    n, h, kv, dim, f = m['embd'], m['heads'], m['kv'], m['dim'], m['ff']
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p, full = f'blk.{i}.', not m['near'][i]
        turn = dict(m, base=m['base'] if full else m['near_base'])
        y = d.linear(d.norm(x, 'attn_norm'), 'attn_qkv', (h + 2 * kv) * dim, 1.5)
        q, k, v = (a.reshape(len(ids), -1, dim) for a in np.split(y, [h * dim, (h + kv) * dim], axis=1))
        q, k = turned(turn, d.norm(q, 'attn_q_norm')), turned(turn, d.norm(k, 'attn_k_norm'))
        y = d.linear(attention({}, q, k, v, 0 if full else m['window']), 'attn_output', n)
        x = x + d.norm(y, 'post_attention_norm', '')
        gate, up = np.split(d.linear(d.norm(x, 'ffn_norm'), 'ffn_up', 2 * f, 1.5), 2, axis=1)
        x = x + d.norm(d.linear(silu(gate) * up, 'ffn_down', n), 'post_ffw_norm', '')
    d.p = ''
    return d.linear(d.norm(x, 'output_norm'), 'output', VOCAB, 2.0)


def with_sinks(q, k, v, window, sinks):
    n, heads, dim = q.shape
    out = np.zeros((n, heads, v.shape[2]))
    for t in range(n):
        first = max(0, t - window + 1) if window else 0
        for h in range(heads):
            g = h // (heads // k.shape[1])
            p = softmax(np.append(k[first:t + 1, g] @ q[t, h] / math.sqrt(dim), sinks[h]))[:-1]
            out[t, h] = p @ v[first:t + 1, g]
    return out.reshape(n, -1)


def mimo2(d, m, ids):
    n, dim, dv = m['embd'], m['dim'], m['dim_v']
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p, near, h, kv = f'blk.{i}.', m['near'][i], m['heads'][i], m['kv'][i]
        turn = dict(m, base=m['near_base'] if near else m['base'])
        y = d.norm(x, 'attn_norm')
        q, k, v = d.heads(y, 'attn_q', h, dim, 2.0), d.heads(y, 'attn_k', kv, dim, 2.0), d.heads(y, 'attn_v', kv, dv)
        q, k = turned(turn, q), turned(turn, k)
        y = with_sinks(q, k, v, m['window'], d.get('attn_sinks.weight', h, 0, 1)) if near else attention({}, q, k, v, 0)
        x = x + 0.7 * d.linear(y, 'attn_output', n)
        y = d.norm(x, 'ffn_norm')
        if i < m['lead']:
            x = x + d.gated(y, m['ff'], silu)
        else:
            x = x + chosen(d, y, d.linear(y, 'ffn_gate_inp', m['experts'], 2.0), m, silu, 'sigmoid', bias=True)
    d.p = ''
    return d.linear(d.norm(x, 'output_norm'), 'output', VOCAB, 2.0)


def mellum(d, m, ids):
    n, h, kv, dim = m['embd'], m['heads'], m['kv'], m['dim']
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p, near = f'blk.{i}.', i % 4 != 3
        turn = dict(m, scale=1.0, yarn=False) if near else m
        y = d.norm(x, 'attn_norm')
        q, k, v = d.heads(y, 'attn_q', h, dim), d.heads(y, 'attn_k', kv, dim), d.heads(y, 'attn_v', kv, dim)
        q, k = turned(turn, d.norm(q, 'attn_q_norm')), turned(turn, d.norm(k, 'attn_k_norm'))
        x = x + d.linear(attention({}, q, k, v, m['window'] if near else 0), 'attn_output', n)
        y = d.norm(x, 'ffn_norm')
        x = x + chosen(d, y, d.linear(y, 'ffn_gate_inp', m['experts'], 2.0), m, silu)
    d.p = ''
    return d.linear(d.norm(x, 'output_norm'), 'output', VOCAB, 2.0)


def softplus(x):
    return np.logaddexp(0, x)


def step35(d, m, ids):
    n, dim, factors = m['embd'], m['dim'], d.get('rope_freqs.weight', m['dim'] // 2, 1, 0.2)
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p, near, h, kv = f'blk.{i}.', m['near'][i], m['heads'][i], m['kv'][i]
        turn = dict(m, base=m['near_base'] if near else m['base'], n_rot=dim if near else dim // 2)
        y = d.norm(x, 'attn_norm')
        q, k, v = d.heads(y, 'attn_q', h, dim), d.heads(y, 'attn_k', kv, dim), d.heads(y, 'attn_v', kv, dim)
        q, k = (turned(turn, d.norm(z, f'attn_{c}_norm'), None if near else factors) for z, c in ((q, 'q'), (k, 'k')))
        z = attention({}, q, k, v, m['window'] if near else 0).reshape(len(ids), h, dim)
        z = z * sigmoid(d.linear(y, 'attn_gate', h, 2.0))[:, :, None]
        x = x + d.linear(z.reshape(len(ids), -1), 'attn_output', n)
        y = d.norm(x, 'ffn_norm')
        if i < m['lead']:
            x = x + d.gated(y, m['ff'], silu, limit=m['limits_shared'][i])
        else:
            logits = d.linear(y, 'ffn_gate_inp', m['experts'], 2.0)
            x = x + chosen(d, y, logits, m, silu, 'sigmoid', bias=True, limit=m['limits'][i])
            x = x + d.gated(y, m['shared_ff'], silu, '_shexp', limit=m['limits_shared'][i])
    d.p = ''
    return d.linear(d.norm(x, 'output_norm'), 'output', VOCAB, 2.0)


def laguna(d, m, ids):
    n, dim, kv = m['embd'], m['dim'], m['kv']
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p, near, h = f'blk.{i}.', i % 4 != 0 and m['window'] > 0, m['heads'][i]
        turn = dict(m, scale=1.0, yarn=False, base=m['near_base'], n_rot=m['near_rot']) if near else m
        y = d.norm(x, 'attn_norm')
        q, k, v = d.heads(y, 'attn_q', h, dim), d.heads(y, 'attn_k', kv, dim), d.heads(y, 'attn_v', kv, dim)
        q, k = turned(turn, d.norm(q, 'attn_q_norm')), turned(turn, d.norm(k, 'attn_k_norm'))
        z = attention({}, q, k, v, m['window'] if near else 0).reshape(len(ids), h, dim)
        gate = softplus(d.linear(y, 'attn_gate', h if m['by_head'] else h * dim, 2.0))
        z = z * (gate[:, :, None] if m['by_head'] else gate.reshape(z.shape))
        x = x + d.linear(z.reshape(len(ids), -1), 'attn_output', n)
        y = d.norm(x, 'ffn_norm')
        if i < m['lead']:
            x = x + d.gated(y, m['ff'], silu)
        else:
            logits = d.linear(y, 'ffn_gate_inp', m['experts'], 2.0)
            x = x + chosen(d, y, logits, m, silu, 'sigmoid', bias=True) + d.gated(y, m['shared_ff'], silu, '_shexp')
    d.p = ''
    return d.linear(d.norm(x, 'output_norm'), 'output', VOCAB, 2.0)


def kimi_delta(d, m, x):
    """The state of a head: a row for each channel of the key."""
    n, h, dim, taps = len(x), m['heads'], m['kda_dim'], m['kernel']
    q, k, v = (d.linear(x, f'attn_{c}', h * dim, 2.0) for c in 'qkv')
    parts = []
    for c, y in zip('qkv', (q, k, v)):
        w = d.get(f'ssm_conv1d_{c}.weight', (h * dim, 1, taps), 0, 0.5)
        padded = np.concatenate([np.zeros((taps - 1, h * dim)), y])
        parts.append(silu(sum(padded[i:i + n] * w[:, 0, i] for i in range(taps))).reshape(n, h, dim))
    q, k, v = parts
    q, k = (y / np.maximum(np.sqrt((y * y).sum(axis=-1, keepdims=True)), m['eps']) for y in (q, k))
    g = d.linear(d.linear(x, 'ssm_f_a', dim), 'ssm_f_b', h * dim, 2.0) + d.get('ssm_dt.bias', h * dim, -1, 0.5)
    g = np.exp(d.get('ssm_a', (h, 1), -0.5, 0.2)[None] * softplus(g).reshape(n, h, dim))
    beta, out, s = sigmoid(d.linear(x, 'ssm_beta', h, 2.0)), np.zeros((n, h, dim)), np.zeros((h, dim, dim))
    for t in range(n):
        for i in range(h):
            s[i] = g[t, i][:, None] * s[i]
            s[i] += beta[t, i] * np.outer(k[t, i], v[t, i] - k[t, i] @ s[i])
            out[t, i] = q[t, i] @ s[i] / math.sqrt(dim)
    gate = d.linear(d.linear(x, 'ssm_g_a', dim), 'ssm_g_b', h * dim, 2.0).reshape(n, h, dim)
    y = d.norm(out, 'ssm_norm') * sigmoid(gate)
    return d.linear(y.reshape(n, -1), 'attn_output', m['embd'])


def kimi_latent(d, m, x):
    """Every head's keys and values are made, which files with attn_k_b and attn_v_b are there to avoid."""
    n, h, dim, rot, rank, dv = len(x), m['heads'], m['mla_dim'], m['n_rot'], m['rank_kv'], m['mla_dim_v']
    q, kv = d.heads(x, 'attn_q', h, dim, 2.0), d.linear(x, 'attn_kv_a_mqa', rank + rot)
    latent = d.norm(kv[:, :rank], 'attn_kv_a_norm')
    if m['absorbed']:
        to_k, to_v = d.weights('attn_k_b', rank, dim - rot, 1.0, h), d.weights('attn_v_b', dv, rank, 1.0, h)
        k, v = np.einsum('hrk,tr->thk', to_k, latent), np.einsum('hvr,tr->thv', to_v, latent)
    else:
        both = d.heads(latent, 'attn_kv_b', h, dim - rot + dv)
        k, v = both[:, :, :dim - rot], both[:, :, dim - rot:]
    k = np.concatenate([k, np.repeat(kv[:, None, rank:], h, axis=1)], axis=2)
    return d.linear(attention({}, q, k, v, 0), 'attn_output', m['embd'])


def kimi_linear(d, m, ids):
    x = d.embed(ids, m['embd'])
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        y = d.norm(x, 'attn_norm')
        x = x + (kimi_latent if m['kv'][i] else kimi_delta)(d, m, y)
        y = d.norm(x, 'ffn_norm')
        if i < m['lead']:
            x = x + d.gated(y, m['ff'], silu)
        else:
            logits = d.linear(y, 'ffn_gate_inp', m['experts'], 2.0)
            x = x + chosen(d, y, logits, m, silu, 'sigmoid', bias=True) + d.gated(y, m['expert_ff'], silu, '_shexp')
    d.p = ''
    return d.linear(d.norm(x, 'output_norm'), 'output', VOCAB, 2.0)


def bitnet(d, m, ids):
    n, h, kv, dim = m['embd'], m['heads'], m['kv'], m['embd'] // m['heads']

    def scaled(x, name, rows, gain=1.0):
        return d.linear(x, name, rows, gain) * d.get(name + '.scale', 1, 1, 0.2)
    x = d.embed(ids, n)
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        y = d.norm(x, 'attn_norm')
        q, k, v = (scaled(y, f'attn_{c}', r * dim, 2.0).reshape(len(ids), r, dim) for c, r in (('q', h), ('k', kv), ('v', kv)))
        y = d.norm(attention({}, turned(m, q), turned(m, k), v, 0), 'attn_sub_norm')
        x = x + scaled(y, 'attn_output', n)
        y = d.norm(x, 'ffn_norm')
        y = silu(scaled(y, 'ffn_gate', m['ff'], 1.5)) * scaled(y, 'ffn_up', m['ff'], 1.5)
        x = x + scaled(d.norm(y, 'ffn_sub_norm'), 'ffn_down', n)
    d.p = ''
    return d.norm(x, 'output_norm') @ d.weights('token_embd', VOCAB, n).T


def talkie(d, m, ids):
    n, h, dim, eps = m['embd'], m['heads'], m['embd'] // m['heads'], m['eps']
    first = x = rms_norm(d.embed(ids, n), 1, eps)
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        y = rms_norm(x, 1, eps)
        q, k, v = (d.heads(y, f'attn_{c}', h, dim) for c in 'qkv')
        q = rms_norm(turned(m, q), 1, eps) * d.get('attn_q_norm.weight', (h, 1), 1, 0.3)
        y = d.linear(attention({}, q, rms_norm(turned(m, k), 1, eps), v, 0), 'attn_output', n)
        x = x + y * d.get('attn_output.scale', 1, 1, 0.2)
        y = rms_norm(x, 1, eps)
        y = silu(d.linear(y, 'ffn_gate', m['ff'], 1.5)) * d.linear(y, 'ffn_up', m['ff'], 1.5)
        x = x + d.linear(y, 'ffn_down', n) * d.get('ffn_down.scale', 1, 1, 0.2)
        x = x + first * d.get('layer_output_scale.weight', 1, 0.5, 0.2)
    d.p = ''
    return d.linear(rms_norm(x, 1, eps), 'output', VOCAB, 2.0) * 0.5


def muse_glimmer(d, m, ids):
    n, h, kv, dim = m['embd'], m['heads'], m['kv'], m['dim']
    x = rms_norm(d.embed(ids, n), 1, m['eps'])
    for i in range(m['layers']):
        d.p, near = f'blk.{i}.', i % 4 != 3
        y = d.norm(x, 'attn_norm')
        q, k, v = d.heads(y, 'attn_q', h, dim), d.heads(y, 'attn_k', kv, dim), d.heads(y, 'attn_v', kv, dim)
        q, k = d.norm(q, 'attn_q_norm'), d.norm(k, 'attn_k_norm')
        if near:
            q, k = turned(m, q), turned(m, k)
        z = attention({}, q, k, v, m['window'] if near else 0) * sigmoid(d.linear(y, 'attn_gate', h * dim, 2.0))
        z = d.linear(z, 'attn_output', n)
        x = x + rms_norm(z, d.get('post_attention_norm.weight', n, 1, 0.2), 1e-8)
        y = d.gated(d.norm(x, 'ffn_norm'), m['ff'], silu)
        x = x + rms_norm(y, d.get('post_ffw_norm.weight', n, 1, 0.2), 1e-8)
    d.p = ''
    return 2 * np.tanh(d.linear(d.norm(x, 'output_norm'), 'output', VOCAB, 2.0) * 0.5 / 2)


def granite_swa(d, m, ids):
    n, h, kv, dim = m['embd'], m['heads'], m['kv'], m['dim']
    x = 3 * d.embed(ids, n, 1.5)
    for i in range(m['layers']):
        d.p = f'blk.{i}.'
        y = d.norm(x, 'attn_norm')
        q, k, v = d.heads(y, 'attn_q', h, dim, 2.0), d.heads(y, 'attn_k', kv, dim, 2.0), d.heads(y, 'attn_v', kv, dim)
        if m['turns'][i]:
            q, k = turned(m, q), turned(m, k)
        y = with_sinks(q, k, v, m['window'] if m['near'][i] else 0, d.get('attn_sinks.weight', h, 0, 1))
        x = x + 0.7 * d.linear(y, 'attn_output', n)
        x = x + 0.7 * d.gated(d.norm(x, 'ffn_norm'), m['ff'], silu)
    d.p = ''
    return d.linear(d.norm(x, 'output_norm'), 'output', VOCAB, 2.0) / 2


def make(name, arch, forward, out, norm='rms', keys=(), plain=(), **m):
    eps = {'rms': 'layer_norm_rms_epsilon', 'layer': 'layer_norm_epsilon'}[norm]
    m = dict(eps=1e-3, ctx=256, base=500.0, pairs='halves', n_rot=0, kv=m['heads']) | m
    d = Draw(name, m['eps'])
    d.name = name
    ids = d.rng.integers(0, VOCAB, N_TOKENS)
    logits = forward(d, m, ids)
    own = {'context_length': m['ctx'], 'embedding_length': m['embd'], 'block_count': m['layers'],
           'attention.head_count': m['heads'], 'attention.head_count_kv': m['kv'], 'attention.' + eps: m['eps']}
    if 'ff' in m:
        own['feed_forward_length'] = m['ff']
    if 'dim' in m:
        own |= {'attention.key_length': m['dim'], 'attention.value_length': m.get('dim_v', m['dim'])}
    if m['n_rot']:
        own |= {'rope.freq_base': m['base'], 'rope.dimension_count': m['n_rot']}
    if 'experts' in m:
        own |= {'expert_count': m['experts'], 'expert_used_count': m['used'], 'expert_feed_forward_length': m['expert_ff']}
    finish(d, arch, out, own | dict(keys), ids, logits, dict(plain))


def main(out):
    make('baichuan-7b', 'baichuan', baichuan, out, layers=32, embd=16, heads=2, ff=16, n_rot=8, pairs='adjacent')
    make('baichuan-13b', 'baichuan', baichuan, out, layers=40, embd=24, heads=3, ff=16)
    make('mpt', 'mpt', mpt, out, 'layer', layers=2, embd=48, heads=6, ff=40, clamp=1.5, most=4.0,
         keys={'attention.clamp_kqv': 1.5, 'attention.max_alibi_bias': 4.0})
    make('minicpm3', 'minicpm3', minicpm3, out, layers=2, embd=32, heads=3, dim=16, dim_v=12, n_rot=4, ff=40, rank_q=20,
         rank_kv=24, keys={'attention.q_lora_rank': 20, 'attention.kv_lora_rank': 24})
    make('smallthinker', 'smallthinker', smallthinker, out, layers=5, embd=32, heads=4, kv=2, dim=8, n_rot=8, experts=6,
         used=2, expert_ff=24, normalise=True, keys={'attention.sliding_window': 4096, 'expert_gating_func': 2})
    make('hy-v3', 'hy_v3', hy_v3, out, layers=2, lead=1, embd=32, heads=4, kv=2, dim=16, n_rot=16, ff=48, experts=6,
         used=2, expert_ff=24, normalise=True, weights_scale=2.5,
         keys={'expert_weights_norm': True, 'expert_weights_scale': 2.5, 'expert_gating_func': 2})
    make('grovemoe', 'grovemoe', grovemoe, out, layers=2, embd=32, heads=4, kv=2, dim=16, n_rot=16, experts=8, used=3,
         expert_ff=24, normalise=True, share=2, second_ff=20, second_scale=0.5,
         keys={'experts_per_group': 2, 'expert_chunk_feed_forward_length': 20, 'expert_group_scale': 0.5})
    curve = {'alpha_n': [0.4, -0.3], 'alpha_p': [-0.2, 0.5], 'beta': [0.5, 0.25], 'least': [-1e-6, -1e-2]}
    make('apertus', 'apertus', apertus, out, layers=2, embd=32, heads=4, kv=2, dim=16, n_rot=16, ff=40, **curve,
         plain={'xielu.' + {'least': 'eps'}.get(k, k): v for k, v in curve.items()})
    mixture = dict(heads=4, kv=2, dim=16, n_rot=16, ff=48, lead=1, embd=32, experts=6, used=2, expert_ff=24, normalise=True,
                   weights_scale=2.5, window=9)
    mixture_keys = {'leading_dense_block_count': 1, 'expert_shared_count': 1, 'expert_weights_scale': 2.5,
                    'expert_weights_norm': True, 'expert_gating_func': 2, 'attention.sliding_window': 9}
    make('afmoe', 'afmoe', afmoe, out, layers=4, **mixture, keys=mixture_keys | {'expert_shared_count': 2})
    near = [True, False, True]
    make('exaone-moe', 'exaone-moe', exaone_moe, out, layers=3, near=near, **mixture,
         keys=mixture_keys | {'attention.sliding_window_pattern': near})
    make('cohere2moe', 'cohere2moe', cohere2moe, out, 'layer', layers=5, shared_ff=40, pairs='adjacent', **mixture,
         keys=mixture_keys | {'attention.sliding_window_pattern': 4, 'expert_shared_feed_forward_length': 40,
                              'logit_scale': 0.25})
    near, cut = [True, True, False, True, False], [1.0, 0.5, -math.inf, -math.inf, 0.25]
    make('gemma3n', 'gemma3n', gemma3n, out, layers=5, embd=32, heads=4, kv=2, dim=8, n_rot=8, ff=48, streams=4, extra=10,
         near=near, near_base=50.0, own=3, cut=cut, window=7,
         keys={'altup.num_inputs': 4, 'altup.active_idx': 0, 'embedding_length_per_layer_input': 10,
               'attention.shared_kv_layers': 2, 'attention.sliding_window': 7, 'rope.freq_base_swa': 50.0,
               'attention.sliding_window_pattern': near, 'activation_sparsity_scale': cut})
    make('maincoder', 'maincoder', maincoder, out, layers=2, embd=32, heads=4, kv=2, dim=16, n_rot=16, ff=48,
         pairs='adjacent')
    make('plm', 'plm', plm, out, layers=2, embd=32, heads=3, dim=16, dim_v=12, n_rot=4, ff=40, rank_kv=24, pairs='adjacent',
         keys={'attention.kv_lora_rank': 24})
    make('plamo3', 'plamo3', plamo3, out, layers=2, embd=32, heads=4, kv=2, dim=16, n_rot=16, ff=48, near=[True, False],
         near_base=50.0, window=9, keys={'attention.sliding_window': 9, 'attention.sliding_window_pattern': 2,
                                         'rope.freq_base_swa': 50.0})
    experts = dict(experts=6, used=2, expert_ff=24, normalise=True)
    make('mimo2', 'mimo2', mimo2, out, layers=3, lead=1, embd=32, heads=[4, 6, 4], kv=[2, 3, 1], dim=16, dim_v=8, n_rot=8,
         ff=48, near=[False, True, True], near_base=50.0, window=9, **experts,
         keys={'attention.sliding_window': 9, 'attention.sliding_window_pattern': [False, True, True],
               'rope.freq_base_swa': 50.0, 'attention.value_scale': float(np.float32(0.7))})
    make('mellum', 'mellum', mellum, out, layers=4, embd=32, heads=4, kv=2, dim=16, n_rot=16, window=9, yarn=True, scale=4.0,
         orig=64, **experts, keys={'attention.sliding_window': 9, 'attention.sliding_window_pattern': 4,
                                   'rope.scaling.type': 'yarn', 'rope.scaling.factor': 4.0,
                                   'rope.scaling.original_context_length': 64})
    make('step35', 'step35', step35, out, layers=4, lead=1, embd=32, heads=[4, 6, 4, 6], kv=[2, 3, 2, 3], dim=16, n_rot=16,
         ff=48, near=[False, True, False, True], near_base=50.0, window=9, shared_ff=40, weights_scale=2.5,
         limits=[0.0, 0.0, 1.5, 0.75], limits_shared=[1.0, 0.0, 0.0, 0.5], **experts,
         keys={'attention.sliding_window': 9, 'attention.sliding_window_pattern': [False, True, False, True],
               'rope.freq_base_swa': 50.0, 'expert_shared_feed_forward_length': 40, 'expert_weights_norm': True,
               'expert_weights_scale': 2.5, 'swiglu_clamp_exp': [0.0, 0.0, 1.5, 0.75],
               'swiglu_clamp_shexp': [1.0, 0.0, 0.0, 0.5]})
    laguna_keys = {'leading_dense_block_count': 1, 'expert_shared_feed_forward_length': 40, 'expert_weights_norm': True,
                   'expert_weights_scale': 2.5, 'expert_gating_func': 2}
    near_keys = {'attention.sliding_window': 9, 'rope.freq_base_swa': 50.0, 'rope.dimension_count_swa': 16,
                 'rope.scaling.type': 'yarn', 'rope.scaling.factor': 4.0, 'rope.scaling.original_context_length': 64}
    make('laguna', 'laguna', laguna, out, layers=5, lead=1, embd=32, heads=[4, 6, 6, 6, 4], kv=2, dim=16, n_rot=8,
         near_rot=16, ff=48, near_base=50.0, window=9, by_head=True, yarn=True, scale=4.0, orig=64, shared_ff=40,
         weights_scale=2.5, **experts, keys=laguna_keys | near_keys)
    make('laguna-full', 'laguna', laguna, out, layers=2, lead=1, embd=32, heads=[4, 4], kv=2, dim=16, n_rot=16, ff=48,
         window=0, by_head=False, shared_ff=40, weights_scale=2.5, **experts, keys=laguna_keys)
    for name, absorbed in (('kimi-linear', True), ('kimi-linear-heads', False)):
        make(name, 'kimi-linear', kimi_linear, out, layers=4, lead=1, embd=32, heads=4, kv=[0, 0, 1 if absorbed else 4, 0],
             ff=48, n_rot=8, mla_dim=24, mla_dim_v=16, rank_kv=32, kda_dim=12, kernel=4, absorbed=absorbed,
             weights_scale=2.5, **experts,
             keys={'attention.kv_lora_rank': 32, 'attention.key_length': 40, 'attention.key_length_mla': 24,
                   'attention.value_length_mla': 16, 'kda.head_dim': 12, 'ssm.conv_kernel': 4, 'expert_shared_count': 1,
                   'leading_dense_block_count': 1, 'expert_weights_scale': 2.5, 'expert_gating_func': 2})
    make('bitnet', 'bitnet', bitnet, out, layers=2, embd=32, heads=4, kv=2, n_rot=8, ff=48)
    make('talkie', 'talkie', talkie, out, layers=3, embd=32, heads=4, n_rot=8, ff=48, keys={'logit_scale': 0.5})
    make('muse-glimmer', 'muse-glimmer', muse_glimmer, out, layers=4, embd=32, heads=4, kv=2, dim=16, n_rot=16, ff=48, window=9,
         pairs='adjacent', keys={'attention.sliding_window': 9, 'attention.sliding_window_pattern': 4, 'logit_scale': 0.5,
                                 'final_logit_softcapping': 2.0})
    near, turns = [True, False, True], [True, False, True]
    make('granite-swa', 'granite_swa', granite_swa, out, layers=3, embd=32, heads=4, kv=2, dim=8, n_rot=8, ff=48, window=9,
         near=near, turns=turns, pairs='adjacent',
         keys={'attention.sliding_window': 9, 'attention.sliding_window_pattern': near, 'attention.rope_pattern': [1, 0, 1],
               'logit_scale': 2.0, 'embedding_scale': 3.0, 'residual_scale': float(np.float32(0.7))})


if __name__ == '__main__':
    main(sys.argv[1])
