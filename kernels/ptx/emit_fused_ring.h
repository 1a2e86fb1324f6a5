// Parts of the fused kernels that keep their weights in flight in shared memory (emit_fused_ring.c). Private to
// emit_fused*.c.
//
// Ownership: none. Threads: no shared state; emitters keep nothing.
#ifndef QUERN_EMIT_FUSED_RING_H
#define QUERN_EMIT_FUSED_RING_H

#include "kernels/ptx/emit_fused.h"
#include "kernels/ptx/emit_matmul_parts.h"

// Each of the first `warps` warps of a CTA has `depth` stages of its own, one unit of a tile (weight_tile.h) each, or
// with `chains` PTX_HALF_STAGE_BYTES. These
// warps compute the products.
struct ptx_ring {
    bool bulk; // filled by cp.async.bulk and mbarriers, PTX 8.0 and sm_90; otherwise by cp.async, PTX 7.0 and sm_80
    uint32_t warps, depth, stage_bytes;
    uint32_t
        parts; // items of a tile: blocks of 256, which the warps take in turn; with `chains`, stages of each warp's chain
    uint32_t units; // of all sections
    bool chains;    // activations of 16 bits, whose warps compute a chain each of every tile (emit_matmul_half.c)
};

// Consecutive legs of one type: their S are computed by the same code.
struct ptx_fused_run {
    int first, n;  // legs first to first + n - 1
    uint32_t slot; // index of its first S in shared memory
};
// Steps to the next run of a section, whose legs have `each` S; the first one follows a run of zeros. Returns false after
// the last.
bool ptx_fused_next_run(const struct ptx_fused_section *s, uint32_t each, struct ptx_fused_run *run);

// Whether the variant is one with a ring.
bool ptx_ring_asked(const struct ptx_fused *f);
// The most bytes of shared memory of a CTA of which two fit on a multiprocessor of the target.
uint32_t ptx_ring_shared(uint32_t target);
// The ring of a CTA whose other shared memory is `other` bytes. depth is 0 if there is no room, or no ring on the target.
struct ptx_ring ptx_ring_of(const struct ptx_fused *f, uint32_t warps, uint32_t units, uint32_t other);
uint32_t ptx_ring_bytes(const struct ptx_ring *r); // of dynamic shared memory
// The most registers of a thread.
uint32_t ptx_ring_registers(const struct ptx_fused *f);

// Before the entry: declares the stages. In the entry: declares the mbarriers.
void ptx_ring_module(struct ptx *p);
void ptx_ring_declare(struct ptx *p, const struct ptx_ring *r);
// Fills the ring with the first units of each of its warps; the CTA has `warps` warps. Changes %row. A dependent kernel then lets the
// next launch begin, and waits for the launches ahead of it.
void ptx_ring_fill(struct ptx *p, const struct ptx_fused *f, const struct ptx_ring *r, uint32_t warps);
// Computes %bs0, the S of the warp's next item, number %item of a run, and steps to the next stage. Sets %block.
void ptx_ring_item(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                   const struct ptx_fused_run *run, const struct ptx_ring *r);
// With `chains`: the warp's chain of the next tile, as ptx_half_chain computes it.
void ptx_ring_chain(struct ptx *p, const struct ptx_fused *f, const struct ptx_fused_section *s,
                    const struct ptx_matmul *m, const struct ptx_ring *r);

#endif
