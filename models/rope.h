// Rotary positions: which angle a pair of columns turns by, a position.
//
// Pair i of n_rot/2 turns by position * inv_freq[i]. The plain frequencies are base^(-2i/n_rot); a model that was stretched
// to a longer context divides them, all alike (linear), each by a factor of its file (llama3, longrope), or the slow ones
// only (YaRN). All of it in double: float32 is off by milliradians at position 100,000.
// Threads: pure functions.
#ifndef QUERN_ROPE_H
#define QUERN_ROPE_H

#include "models/hparams.h"

enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_YARN, ROPE_SCALING_LONGROPE };

struct rope {
    int n_rot; // columns of a head that turn, the first ones; even
    enum rope_scaling scaling;
    double base;
    double factor;      // how much longer than it was trained; 1: not stretched
    int n_ctx_orig;     // positions that it was trained for before it was stretched
    double attn_factor; // of cos and sin, beside what YaRN asks for
    double beta_fast,
        beta_slow;         // YaRN: turns over n_ctx_orig above which a pair is left alone, below which it is divided
    double log_multiplier; // YaRN: how much of its growth of cos and sin is taken back; 0: nothing
};

// Reads rope.*; at most head_dim columns turn.
struct rope rope_read(struct hparams *h, int head_dim, int n_ctx_train);
// Fills inv_freq[n_rot / 2]. factors: n_rot / 2 divisors, none of them 0, or NULL.
void rope_frequencies(const struct rope *r, const float *factors, double *inv_freq);
// What cos and sin are multiplied by.
float rope_magnitude(const struct rope *r);
// Whether a run of n_ctx positions takes the long factors of a longrope model.
bool rope_is_long(const struct rope *r, int n_ctx);

#endif
