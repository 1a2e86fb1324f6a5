// What the libcuda.so.1 of the tests offers beside the driver's calls: cards to choose, faults to inject, counts.
//
// The library stands where NVIDIA's would and runs kernels on the interpreter. Work is queued and done as late as the
// driver's rules allow, so that whoever forgets to wait gets old bytes: copies between pinned memory and the card
// happen at the next wait, and pinned memory that waits for its bytes is filled with 0xA5. What the interpreter finds
// is told on stderr, is CUDA_ERROR_ILLEGAL_ADDRESS, and loses the context, as on a card.
//
// A test that links with it calls these functions; a program that only loads it is steered by the environment:
// QUERN_CUDA_CARDS=1, QUERN_CUDA_CAPABILITY=9.0, QUERN_CUDA_MEMORY=MiB, QUERN_CUDA_VERSION=13000,
// QUERN_CUDA_FAIL=call:n:result (the n-th call from 1; an empty call: any), and QUERN_CUDA_REPORT=1 for a line of
// counts on stderr at exit.
//
// Threads: any; one call at a time is served.
#ifndef QUERN_QUERN_CUDA_H
#define QUERN_QUERN_CUDA_H

#include <stddef.h>
#include <stdint.h>

struct quern_cuda_setup {
    int n_cards;      // 0 to 8
    int major, minor; // compute capability
    int version;      // of the driver: 13000 serves PTX up to 9.0
    size_t memory;    // bytes of a card
};
// Changes what cards there are; before cuInit, or when nothing of the last ones is alive.
void quern_cuda_set(const struct quern_cuda_setup *setup);
// The n-th call (from 1, counted from now) of this name gives `result` and does nothing else; NULL: of any name. One
// such order at a time; n 0 withdraws it.
void quern_cuda_fail(const char *call, uint64_t n, int result);
// Before the n-th call (from 1, counted from now) of this name is served, once: see(arg), which calls nothing here. One such
// order at a time; n 0 withdraws it.
void quern_cuda_at(const char *call, uint64_t n, void (*see)(void *arg), void *arg);
// Calls since the start; NULL: of all names.
uint64_t quern_cuda_calls(const char *call);

struct quern_cuda_counts {
    uint64_t launches, dependent; // kernels, those of graphs too; dependent: with programmatic dependent launch
    uint64_t replays;             // of graphs
    uint64_t allocations;         // of device memory, ever
    uint64_t copies_in, copies_out, bytes_in, bytes_out;
    uint64_t copies_within, bytes_within, sets;
    uint64_t waits;        // that had something to wait for or not
    uint64_t instructions; // of warps
    // alive now
    uint64_t contexts, streams, events, links, modules, graphs, execs, blocks, pinned;
    size_t bytes, peak; // of device memory: alive now, and at most
};
void quern_cuda_count(struct quern_cuda_counts *out);

// Device memory in which nothing counts as written any more: 0, or -1 where it is no block's. Waits for what is queued.
int quern_cuda_forget(uint64_t at, size_t n);
// What was told on stderr last: the caller's mistake, or the fault that the interpreter found. "" at first.
const char *quern_cuda_said(void);

#endif
