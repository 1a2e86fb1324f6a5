// Emitters of textbook kernels: matrix products, softmax, layer norm and attention. They serve to measure how fast PTX
// is written (bench/emission.c), and to test the interpreter and the driver. quern itself runs none of them; its own
// kernels are in kernels/ptx.
//
// Each function takes sizes, and writes the text of one kernel and the shape of its launch. Sizes are immediates of
// the text. Every size is checked; a size that a kernel does not support is an error. The entry is named for the kernel
// and its node, for instance gemm_naive_7. Its parameters are addresses (.u64), in the order given at each function.
// All matrices are row-major and contiguous, and all addresses are aligned to 16 bytes.
//
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMITTERS_H
#define QUERN_EMITTERS_H

#include "kernels/ptx/emit.h"

// c[m][n] = a[m][k] * b[k][n]; parameters a, b, c. c is f32.
struct ptx_gemm {
    uint32_t node;    // of the graph, for comments and the entry's name
    uint32_t m, n, k; // 1 to 2^20, with fewer than 2^31 elements a matrix
    uint32_t tile;    // tiled only: 8, 16 or 32
    bool bf16;        // mma only: a and b are bf16 rather than f16
};
// f32, one thread per element of c. PTX 6.3, sm_75.
int ptx_emit_gemm_naive(struct ptx *p, const struct ptx_gemm *g, struct ptx_launch *launch, struct error *err);
// f32, with square tiles in shared memory. PTX 6.3, sm_75.
int ptx_emit_gemm_tiled(struct ptx *p, const struct ptx_gemm *g, struct ptx_launch *launch, struct error *err);
// f16 or bf16 on tensor cores (mma.sync), 64 x 64 of c per CTA; n and k are multiples of 8. PTX 7.0, sm_80.
int ptx_emit_gemm_mma(struct ptx *p, const struct ptx_gemm *g, struct ptx_launch *launch, struct error *err);
// f16 on tensor cores (wmma), 32 x 32 of c per CTA, any sizes. PTX 6.3, sm_75.
int ptx_emit_gemm_wmma(struct ptx *p, const struct ptx_gemm *g, struct ptx_launch *launch, struct error *err);

// Rows of f32, one CTA per row.
struct ptx_rows {
    uint32_t node;
    uint32_t rows, width; // width: up to 8192, or up to 32768 if it is a multiple of 4
    float eps;            // layernorm only: finite, not negative
};
// Parameters x, y. A row whose largest value is not finite becomes NaN. PTX 6.3, sm_75.
int ptx_emit_softmax(struct ptx *p, const struct ptx_rows *r, struct ptx_launch *launch, struct error *err);
// Parameters x, weight, bias, y. PTX 6.3, sm_75.
int ptx_emit_layernorm(struct ptx *p, const struct ptx_rows *r, struct ptx_launch *launch, struct error *err);

// out = softmax(q * k' * scale) * v for each head; all f32 as [head][position][dim]. Parameters q, k, v, out.
// Finite values only: a masked value that is infinite would be multiplied by 0.
struct ptx_attention {
    uint32_t node;
    uint32_t heads, positions;
    uint32_t dim; // 32 to 128, a multiple of 4
    float scale;  // finite
    bool causal;  // a query sees the keys up to its own position
};
// A CTA has 16 queries of a head; the softmax is online over tiles of 32 keys. PTX 6.3, sm_75.
int ptx_emit_attention(struct ptx *p, const struct ptx_attention *a, struct ptx_launch *launch, struct error *err);

// c[m][n] = a[m][k] * w[n][k]', a in f32, w in Q4_K blocks in the layout of a file. Parameters a, w, c.
// k is a multiple of 256; tile and bf16 are ignored. PTX 6.3, sm_75.
int ptx_emit_gemm_q4_k(struct ptx *p, const struct ptx_gemm *g, struct ptx_launch *launch, struct error *err);

// Fails unless the sizes are in the range that struct ptx_gemm states.
int ptx_check_gemm(const struct ptx_gemm *g, struct error *err);

#endif
