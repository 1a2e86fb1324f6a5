// What the parts of quern-kernels share: cases of operations, seeded numbers, memory that ends at a guard page.
//
// A part makes the cases of its operations from the tables (types, kinds, shapes) and hands each to bench_case, which checks
// and times it on every level asked for. Whoever makes a room frees it; out of memory ends the program. Threads: one.
#ifndef QUERN_KERNEL_CASES_H
#define QUERN_KERNEL_CASES_H

#include "kernels/cpu.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/ref_ops.h"
#include "kernels/graph.h"

enum { COUNTS_MAX = 32, LENGTHS_MAX = 4 };

struct bench {
    const char *op, *isa; // NULL: all
    int type;             // -1: all
    bool check_only, json;
    int repeats;
    int64_t k;                        // 0: lengths of each operation's own
    int counts[COUNTS_MAX], n_counts; // columns, rows; 0: numbers of each operation's own
    size_t bytes;                     // of weights, for one column
    int depth;                        // positions that attention sees
    bool first, right;                // no line yet; no case wrong
};

// ---- numbers

enum { SEED = 1 }; // of the first of them; those of parts of a case follow
struct noise {
    uint64_t state;
};
uint64_t noise_u64(struct noise *r);
float noise_normal(
    struct noise *r); // about normal, as what a norm leaves is: kernels may take activations by their size

// ---- memory

// `size` bytes that end at a page which faults; before them, and in them at first, poison.
struct room {
    uint8_t *data;
    size_t size;
    void *base;
    size_t mapped;
};
enum { POISON = 0xa5 };
struct room room_new(size_t size);
struct room room_of_noise(struct noise *r, int64_t n);    // n floats, normal
struct room room_of_blocks(enum dtype type, size_t size); // random blocks that decode to moderate numbers
void room_free(struct room *r);
void *must(void *p); // ends the program where p is NULL

static inline float *room_floats(const struct room *r)
{
    return (float *)(void *)r->data;
}

// ---- cases

// What a run takes at the least: the time to copy its bytes, where `to` is given; else the longer of the times to read them
// and to form its products.
struct timing {
    void *data;          // as the case's, of the size to be timed
    double bytes, macs;  // of a run: read and written; multiplied
    const uint8_t *from; // [size] what is read, or copied
    uint8_t *to;
    size_t size;
    enum cpu_unit unit; // that forms the products
    double share;       // what they are of the products that it can form: 0.5 for 16 bits, where it has bytes
};

struct kernel_case {
    const char *op;   // see op.def
    const char *what; // its type, or kind
    int64_t k;        // elements of a row
    int n;            // columns, or rows
    void *data;
    bool (*has)(const struct kernels *k, const void *data); // NULL: every level
    void (*ready)(const struct kernels *k, void *data); // arranges, untimed, what levels want otherwise; NULL: nothing
    void (*run)(const struct kernels *k, void *data);
    // What it writes: rows of row_bytes, `stride` bytes apart. Poison between them has to stay.
    struct room out;
    int64_t rows;
    size_t row_bytes, stride;
    // The same rows by the law (ref.c), without gaps: their floats before `exact_from` within an NMSE of `bound`, what
    // follows bit for bit. NULL: `fits` says whether they are right.
    const void *law;
    size_t exact_from;
    double bound;
    bool (*fits)(const struct kernel_case *c);
    // What is timed on a level; NULL: nothing.
    struct timing (*timing)(const struct kernels *k, void *data);
};

// Checks the case on every level: by the law, and bit for bit by the scalar level; and times those that are right.
void bench_case(struct bench *b, const struct kernel_case *c);
// The numbers of columns or rows to take, as many as it returns: those asked for, or the operation's own for checks or for
// figures, which 0 ends.
int bench_counts(const struct bench *b, const int *to_check, const int *to_time, int out[COUNTS_MAX]);
// The same of lengths, in whole blocks of `block` elements; none where what is asked for is shorter than one.
int bench_lengths(const struct bench *b, int block, int64_t to_time, int64_t out[LENGTHS_MAX]);
bool bench_wants(const struct bench *b, const char *op);

// The parts: the cases of one operation. Products have two names, by what their activations are.
#define MATMUL_F32 "matmul-f32"
void bench_matmul(struct bench *b, enum op op);
void bench_rows(struct bench *b, enum op op);
void bench_attention(struct bench *b, enum op op);

#endif
