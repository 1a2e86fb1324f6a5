// Shared by the parts of quern-kernels: cases of operations, seeded random numbers, and memory that ends at a guard
// page.
//
// A part makes the cases of its operations from tables (types, kinds, shapes) and passes each to bench_case, which
// checks and times it on every selected ISA level. The reference is the plain C of kernels/cpu/ref.c.
//
// Ownership: the maker of a room frees it. When memory runs out, the program ends. Threads: one.
#ifndef QUERN_KERNEL_CASES_H
#define QUERN_KERNEL_CASES_H

#include "kernels/cpu.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/ref_ops.h"
#include "kernels/graph.h"

enum { COUNTS_MAX = 32, LENGTHS_MAX = 4 };

struct bench {
    const char *op, *isa; // the selected operation and level; NULL: all
    int type;             // the selected type; -1: all
    bool check_only, json;
    int repeats;
    int64_t k;                        // length of a row; 0: each operation's default lengths
    int counts[COUNTS_MAX], n_counts; // numbers of columns or rows; n_counts 0: each operation's default numbers
    size_t bytes;                     // of weights, when one column is timed
    int depth;                        // positions that attention sees
    bool first;                       // no line has been printed
    bool right;                       // no case was wrong
};

// ---- numbers

enum { SEED = 1 }; // the first seed; further parts of a case use SEED + 1, SEED + 2, ...
struct noise {
    uint64_t state;
};
uint64_t noise_u64(struct noise *r);
// About normally distributed, like the output of a norm: the magnitudes of activations may matter to a kernel.
float noise_normal(struct noise *r);

// ---- memory

// `size` bytes that end at a guard page. They are filled with POISON, like the bytes before them.
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

// What is timed, and its ceiling. With `to` the ceiling is the time to copy the bytes; otherwise it is the longer of
// the times to read the bytes and to multiply.
struct timing {
    void *data;          // like kernel_case.data, but of the size to be timed
    double bytes, macs;  // of a run: bytes read and written; multiplications
    const uint8_t *from; // [size] the bytes that are read or copied
    uint8_t *to;         // [size] the target of the copy, or NULL
    size_t size;
    enum cpu_unit unit; // the unit that multiplies
    double share;       // factor for that unit's peak: 0.5 for products of 16 bits on a unit measured with bytes
};

struct kernel_case {
    const char *op;                                         // see op.def
    const char *what;                                       // its type or kind
    int64_t k;                                              // elements of a row
    int n;                                                  // columns or rows
    void *data;                                             // passed to the functions
    bool (*has)(const struct kernels *k, const void *data); // whether the level has the kernel; NULL: every level has
    void (*ready)(const struct kernels *k, void *data);     // prepares the inputs for the level, untimed; NULL: nothing
    void (*run)(const struct kernels *k, void *data);
    // The output: rows of row_bytes, `stride` bytes apart. The poison between them must not change.
    struct room out;
    int64_t rows;
    size_t row_bytes, stride;
    // The same rows from the reference, contiguous. The floats before byte `exact_from` of a row must agree within an
    // NMSE of `bound`, the bytes after it exactly. NULL: `fits` decides whether the output is right.
    const void *reference;
    size_t exact_from;
    double bound;
    bool (*fits)(const struct kernel_case *c);
    // Returns what is timed on a level; NULL: the case is not timed.
    struct timing (*timing)(const struct kernels *k, void *data);
};

// Checks the case on every level against the reference, and bit for bit against the scalar level. Times the levels
// that are right.
void bench_case(struct bench *b, const struct kernel_case *c);
// Fills in the numbers of columns or rows to use, and returns how many there are: those of the command line, or
// to_check or to_time, which end with 0.
int bench_counts(const struct bench *b, const int *to_check, const int *to_time, int out[COUNTS_MAX]);
// The same for lengths, as multiples of `block` elements. Returns 0 if the length of the command line is shorter.
int bench_lengths(const struct bench *b, int block, int64_t to_time, int64_t out[LENGTHS_MAX]);
bool bench_wants(const struct bench *b, const char *op);

// The parts: each runs the cases of one operation. Products have a name for each kind of activations: matmul for 8
// bits, matmul-f32 for float32.
#define MATMUL_F32 "matmul-f32"
void bench_matmul(struct bench *b, enum op op);
void bench_rows(struct bench *b, enum op op);
void bench_attention(struct bench *b, enum op op);

#endif
