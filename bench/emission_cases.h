// The eight kernels whose emission is measured and tested, with the sizes of the measurement. Constants only.
#ifndef QUERN_EMISSION_CASES_H
#define QUERN_EMISSION_CASES_H

#include "bench/ptx/emitters.h"

enum emission_family { EMISSION_GEMM, EMISSION_ROWS, EMISSION_ATTENTION };

struct emission_case {
    const char *name;
    enum emission_family family;
    double limit_us; // the longest time that an emission may take
    union {
        int (*gemm)(struct ptx *, const struct ptx_gemm *, struct ptx_launch *, struct error *);
        int (*rows)(struct ptx *, const struct ptx_rows *, struct ptx_launch *, struct error *);
        int (*attention)(struct ptx *, const struct ptx_attention *, struct ptx_launch *, struct error *);
    } emit;
    union {
        struct ptx_gemm gemm;
        struct ptx_rows rows;
        struct ptx_attention attention;
    } of;
};

// clang-format off
#define GEMM(f, ...) EMISSION_GEMM, .emit.gemm = f, .of.gemm = {__VA_ARGS__}
#define ROWS(f, ...) EMISSION_ROWS, .emit.rows = f, .of.rows = {__VA_ARGS__}
#define ATTENTION(f, ...) EMISSION_ATTENTION, .emit.attention = f, .of.attention = {__VA_ARGS__}
static const struct emission_case emission_cases[] = {
    {"gemm_naive_64", .limit_us = 0.869, .family = GEMM(ptx_emit_gemm_naive, .m = 64, .n = 64, .k = 64)},
    {"gemm_tiled_128", .limit_us = 1.420, .family = GEMM(ptx_emit_gemm_tiled, .m = 128, .n = 128, .k = 128, .tile = 32)},
    {"gemm_tensor_core_64", .limit_us = 4.159, .family = GEMM(ptx_emit_gemm_mma, .m = 64, .n = 64, .k = 64)},
    {"gemm_wmma_fp16_64", .limit_us = 2.475, .family = GEMM(ptx_emit_gemm_wmma, .m = 64, .n = 64, .k = 64)},
    {"softmax_1024", .limit_us = 0.864, .family = ROWS(ptx_emit_softmax, .rows = 1, .width = 1024)},
    {"layernorm_1024", .limit_us = 1.527, .family = ROWS(ptx_emit_layernorm, .rows = 1, .width = 1024, .eps = 1e-5f)},
    {"attention_64_64", .limit_us = 2.155, .family = ATTENTION(ptx_emit_attention, .heads = 1, .positions = 64, .dim = 64, .scale = 0.125f)},
    {"q4_k_32", .limit_us = 2.676, .family = GEMM(ptx_emit_gemm_q4_k, .m = 32, .n = 32, .k = 256)},
};
#undef GEMM
#undef ROWS
#undef ATTENTION
// clang-format on

// The rate is measured with a tiled product of 64 x 64 x 64 with tiles of 16. The limit is in kernels per second.
static const struct ptx_gemm emission_rate_case = {.m = 64, .n = 64, .k = 64, .tile = 16};
#define EMISSION_RATE_LIMIT 700000.0

static inline int emission_emit(const struct emission_case *c, struct ptx *p, struct ptx_launch *l, struct error *err)
{
    switch (c->family) {
    case EMISSION_GEMM:
        return c->emit.gemm(p, &c->of.gemm, l, err);
    case EMISSION_ROWS:
        return c->emit.rows(p, &c->of.rows, l, err);
    default:
        return c->emit.attention(p, &c->of.attention, l, err);
    }
}

#endif
