// Runs single operations on the plain-C machine: rows of chosen numbers in, rows of the result out.
//
// Input rows are a table that is embedded by token, row t at token t, so that any operation gets exact inputs. An error
// fails the test. Ownership: the rig owns everything that it returns, until rig_free. Threads: one test per rig.
#ifndef QUERN_REF_RIG_H
#define QUERN_REF_RIG_H

#include "kernels/machine.h"

struct rig {
    struct arena arena;
    struct graph *graph;
    struct machine *machine;
    struct plan *plan;
    struct buffer *kv;
    enum dtype kv_type[2]; // F32 unless set before rig_compile
    uint64_t noise;        // state of the generator
};

// Prints its seed.
void rig_init(struct rig *r, uint64_t seed);
void rig_free(struct rig *r);

// Noise in [-span, span).
float rig_noise(struct rig *r, float span);
float *rig_noises(struct rig *r, int64_t n, float span);
// A weight of that type with the values given, encoded; its data at an odd address, as a file may have it.
const struct weight *rig_weight(struct rig *r, enum dtype type, int64_t k, int64_t rows, int64_t n,
                                const float *values);
// What a weight decodes to: all its elements.
const float *rig_decoded(struct rig *r, const struct weight *w);

// Row t of values at token t.
struct tensor *rig_rows(struct rig *r, const char *name, int64_t n, int64_t width, const float *values);

// All rows of `result` are brought out. Steps of up to max_rows, and a KV cache of n_pages pages filled with NaNs.
void rig_compile(struct rig *r, struct tensor *result, int max_rows, int n_pages);
// A step of n rows: out is (n, width of the result).
void rig_step(struct rig *r, int n, const int32_t *tokens, const int32_t *positions, const int32_t *seqs,
              const int32_t *pages, int pages_stride, float *out);
// The two above for an operation without a cache: tokens 0 .. n-1, at those positions (NULL: 0 .. n-1).
float *rig_eval(struct rig *r, struct tensor *result, int n, const int32_t *positions);

// Whether y is the float32 next to `exact`, but for what sums in double lose on terms of size `terms` together.
bool rig_rounded(float y, long double exact, long double terms);

#endif
