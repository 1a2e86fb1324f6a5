// Rotary positions: the angle per position by which each pair of columns is rotated.
//
// Pair i of n_rot / 2 is rotated by position * inv_freq[i]. The plain frequencies are base^(-2i / n_rot). A model
// that was extended to a longer context divides them: all by the same factor (linear), each by a factor from the file
// (llama3, longrope), or only the low frequencies (YaRN). Everything is computed in double, because float32 is off by
// milliradians at position 100,000. Threads: pure functions.
#ifndef QUERN_ROPE_H
#define QUERN_ROPE_H

#include "models/hparams.h"

enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_YARN, ROPE_SCALING_LONGROPE };

struct rope {
    int n_rot; // the first columns of a head, which are rotated; even
    enum rope_scaling scaling;
    double base;
    double factor;      // by how much the context was extended; 1: not at all
    int n_ctx_orig;     // positions that the model was trained for before it was extended
    double attn_factor; // factor of cos and sin, in addition to that of YaRN
    // YaRN: pairs with more than beta_fast rotations over n_ctx_orig keep their frequency; pairs with fewer than
    // beta_slow rotations are divided.
    double beta_fast, beta_slow;
    double log_multiplier; // YaRN: how much of its growth of cos and sin is divided out again; 0: nothing
    // Cos and sin of a position are multiplied by 1 + growth ln(1 + floor(position / period)); 0: they are not.
    float growth;
    int period;
};

// Reads the keys rope.*; at most head_dim columns are rotated.
struct rope rope_read(struct hparams *h, int head_dim, int n_ctx_train);
// Reads how many pairs turn by each of several positions (M-RoPE): by time, height and width, which for text are all the
// position, so that nothing changes, and by a fourth one, which text does not have; a file with such pairs is refused.
// Returns whether the file tells pairs apart.
bool rope_read_sections(struct hparams *h, const struct rope *r);
// Fills inv_freq[n_rot / 2]. factors: n_rot / 2 divisors, none of them 0, or NULL.
void rope_frequencies(const struct rope *r, const float *factors, double *inv_freq);
// The factor of cos and sin.
float rope_magnitude(const struct rope *r);
// Whether a context of n_ctx positions uses the long factors of a longrope model.
bool rope_is_long(const struct rope *r, int n_ctx);

#endif
