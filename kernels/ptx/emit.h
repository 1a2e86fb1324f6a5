// Writes PTX text into a buffer of the caller, which is all that an emitter needs to write a kernel.
//
// An emitter contains the kernel's source as PTX string literals. Only numbers vary: a mark in a literal is a
// placeholder for a value. $0 to $9 are replaced with the value in decimal, $x0 to $x9 with its eight hexadecimal
// digits (0f$x0 is a float given by its bits). The text contains only literals of the program and numbers, so equal
// inputs give equal bytes, and a model's file cannot insert text of its own.
//
// Ownership: the buffer belongs to the caller; nothing is allocated here. Once the buffer is full, further text is
// dropped, and only ptx_finish reports it. Threads: one at a time for each struct.
#ifndef QUERN_EMIT_H
#define QUERN_EMIT_H

#include "gguf/base.h"

struct ptx {
    char *data;    // not NUL-terminated before ptx_finish
    size_t size;   // bytes of text so far
    size_t cap;    // bytes of text that fit: the size of the buffer minus 1 for the NUL
    bool overflow; // the buffer was too small; the text ends before the first part that did not fit
    bool bad_mark; // a mark names a value that was not passed, which is a bug in an emitter
};

void ptx_start(struct ptx *p, char *buffer, size_t size);
// Terminates the text with a NUL. Returns -1 if the text did not fit or has a bad mark.
int ptx_finish(struct ptx *p, struct error *err);

// Appends text and replaces its marks with values. PTX_PAD bytes after text[len - 1] must be readable; their contents
// do not matter.
enum { PTX_PAD = 8 };
#define PTX_PADDING "\0\0\0\0\0\0\0" // 7 bytes; the literal's own NUL is the eighth
void ptx_fill(struct ptx *p, const char *text, size_t len, const uint32_t *values, unsigned n_values);

// Appends text without marks. It is inline because most callers pass a constant length.
static inline void ptx_copy(struct ptx *p, const char *text, size_t len)
{
    if (p->overflow || p->cap - p->size < len) {
        p->overflow = true;
        return;
    }
    memcpy(p->data + p->size, text, len);
    p->size += len;
}

// Append a string literal: PTX_LINES without marks, PTX_FILL with marks.
//   p      struct ptx *
//   lines  string literal of PTX
//   ...    up to 10 values of type uint32_t, for the marks 0, 1, and so on
#define PTX_LINES(p, lines) ptx_copy((p), "" lines, sizeof(lines) - 1)
#define PTX_FILL(p, lines, ...)                                                                                        \
    ptx_fill((p), "" lines PTX_PADDING, sizeof(lines) - 1, (const uint32_t[]){__VA_ARGS__},                            \
             sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

// Writes the directives that begin a text. `version` is 10 * major + minor of the PTX version; `target` is the
// number of an architecture (75: sm_75).
void ptx_header(struct ptx *p, uint32_t version, uint32_t target);

static inline uint32_t ptx_float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

// The shape of a kernel's launch.
struct ptx_launch {
    const char *entry;          // the entry's name without the suffix _NODE
    uint32_t grid[3], block[3]; // CTAs; threads of a CTA
    uint32_t shared;            // bytes of dynamic shared memory
};

// Bytes of shared memory of a multiprocessor from compute capability 8.0 on (CUDA programming guide); a thread block can have
// all but PTX_SHARED_RESERVED of them, and each block that is there takes so many more than it asks for. 0: an older one.
enum { PTX_SHARED_RESERVED = 1 << 10 };
uint32_t ptx_shared_of(uint32_t target);

// Returns the number of tiles that cover n.
static inline uint32_t ptx_tiles(uint32_t n, uint32_t tile)
{
    return n / tile + (n % tile != 0);
}

#endif
