// The controls of the tests' libcuda.so.1: simulated GPUs, injected faults and counters.
//
// The library replaces NVIDIA's and runs kernels on the interpreter. Work is queued and executed as late as the
// driver's rules allow, so that a caller who forgets to wait gets old bytes: copies between pinned memory and the GPU
// happen at the next wait, and until then the pinned memory that receives them is filled with 0xA5. A fault that the
// interpreter finds is printed on stderr, returned as CUDA_ERROR_ILLEGAL_ADDRESS, and destroys the context, as on a
// GPU.
//
// A test that links with the library calls these functions. A program that only loads it is controlled by environment
// variables: QUERN_CUDA_CARDS=1, QUERN_CUDA_CAPABILITY=9.0, QUERN_CUDA_MEMORY=MiB, QUERN_CUDA_VERSION=13000,
// QUERN_CUDA_FAIL=call:n:result (the n-th call from 1; an empty name means any call), and QUERN_CUDA_REPORT=1 for a
// line of counters on stderr at exit.
//
// Threads: any; a lock serialises the calls.
#ifndef QUERN_QUERN_CUDA_H
#define QUERN_QUERN_CUDA_H

#include <stddef.h>
#include <stdint.h>

struct quern_cuda_setup {
    int n_cards;      // 0 to 8
    int major, minor; // compute capability
    int version;      // of the driver: 13000 accepts PTX up to 9.0
    size_t memory;    // bytes of a GPU
};
// Changes the simulated GPUs. Call it before cuInit, or while no object of the earlier ones is alive.
void quern_cuda_set(const struct quern_cuda_setup *setup);
// The n-th call of this name (from 1, counted from now; NULL: of any name) does nothing but return `result`. There is
// one such order at a time; n = 0 cancels it.
void quern_cuda_fail(const char *call, uint64_t n, int result);
// Calls see(arg) once, before the n-th call of this name (from 1, counted from now) is executed. `see` must not call
// this library. There is one such order at a time; n = 0 cancels it.
void quern_cuda_at(const char *call, uint64_t n, void (*see)(void *arg), void *arg);
// Calls since the start; NULL: of all names.
uint64_t quern_cuda_calls(const char *call);

struct quern_cuda_counts {
    uint64_t launches, dependent; // of kernels, including those in graphs; dependent: programmatic dependent launches
    uint64_t replays;             // of graphs
    uint64_t allocations;         // of device memory, since the start
    uint64_t copies_in, copies_out, bytes_in, bytes_out;
    uint64_t copies_within, bytes_within, sets;
    uint64_t waits;        // all, also those that found nothing to wait for
    uint64_t instructions; // of warps
    // alive now
    uint64_t contexts, streams, events, links, modules, graphs, execs, blocks, pinned;
    size_t bytes, peak; // of device memory: alive now, and at most
};
void quern_cuda_count(struct quern_cuda_counts *out);

// Waits for queued work, then marks device memory as not written. Returns -1 if it is not within one block.
int quern_cuda_forget(uint64_t at, size_t n);
// Returns the last message on stderr: a mistake of the caller, or a fault that the interpreter found. "" at first.
const char *quern_cuda_said(void);

#endif
