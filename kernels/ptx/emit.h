// PTX text: lines written one after the other into one buffer that the caller brings.
//
// A kernel's source stands in its emitter as PTX, line for line; what varies is a number at a mark. $0 to $9 stand for
// the values in decimal, $x0 to $x9 for eight hexadecimal digits (a float's bits: 0f$x0). Nothing but literals of the
// program and numbers can come into the text, so the same inputs give the same bytes and no file can put words in it.
//
// Ownership: the buffer is the caller's; nothing is allocated here. When it is full the rest is dropped, and
// ptx_finish says so, once. Threads: one at a time for each struct.
#ifndef QUERN_EMIT_H
#define QUERN_EMIT_H

#include "gguf/base.h"

struct ptx {
    char *data;    // not NUL-terminated before ptx_finish
    size_t size;   // of the text
    size_t cap;    // of the buffer, less the byte for the NUL
    bool overflow; // the buffer was too small: the text ends before the first part that did not fit
    bool bad_mark; // a mark names a value that was not given: a fault of an emitter
};

void ptx_start(struct ptx *p, char *buffer, size_t size);
// The text is whole and ends with a NUL, or an error.
int ptx_finish(struct ptx *p, struct error *err);

// Adds text with values at its marks. Behind its len bytes another PTX_PAD can be read, whatever they are.
enum { PTX_PAD = 8 };
#define PTX_PADDING "\0\0\0\0\0\0\0" // and the literal's own NUL
void ptx_fill(struct ptx *p, const char *text, size_t len, const uint32_t *values, unsigned n_values);

// Adds text that has no marks. Inline, for most lengths are known where it is compiled.
static inline void ptx_copy(struct ptx *p, const char *text, size_t len)
{
    if (p->overflow || p->cap - p->size < len) {
        p->overflow = true;
        return;
    }
    memcpy(p->data + p->size, text, len);
    p->size += len;
}

#define PTX_LINES(p, lines) ptx_copy((p), "" lines, sizeof(lines) - 1)
#define PTX_FILL(p, lines, ...)                                                                                        \
    ptx_fill((p), "" lines PTX_PADDING, sizeof(lines) - 1, (const uint32_t[]){__VA_ARGS__},                            \
             sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

// The first lines of a text: `version` is 10 * major + minor, `target` the number of an architecture (75: sm_75).
void ptx_header(struct ptx *p, uint32_t version, uint32_t target);

static inline uint32_t ptx_float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

// The shape of a kernel's launch.
struct ptx_launch {
    const char *entry; // the name before _NODE
    uint32_t grid[3], block[3];
};

// Tiles that cover n.
static inline uint32_t ptx_tiles(uint32_t n, uint32_t tile)
{
    return n / tile + (n % tile != 0);
}

#endif
