// The base of the program, made for parsers of hostile files: errors, views of bytes, checked sizes, arenas.
//
// Ownership: views own nothing. An arena owns all that was allocated from it, until arena_free.
// Threads: nothing is shared; each struct belongs to one thread at a time.
#ifndef QUERN_BASE_H
#define QUERN_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Kinds of errors. Their numbers are the exit statuses of the program.
enum err_code {
    E_OK = 0,
    E_ITEMS = 1, // some items failed, the others have results
    E_USAGE = 2,
    E_MODEL = 3, // an invalid model file, or one that needs something unsupported
    E_MEMORY = 4,
    E_IO = 5,
    E_GPU = 6,
    E_INTERRUPTED = 130,
};

enum { ERR_TEXT = 1024 };
#define ERR_NO_OFFSET UINT64_MAX

// One error: what is wrong, where, and what would help. The text is one line without control characters.
struct error {
    enum err_code code;
    uint64_t offset; // byte offset of the error in its file, or ERR_NO_OFFSET
    char text[ERR_TEXT];
};

// Fills *err (which may be NULL) and returns -1, so that a function can end with `return fail(...)`.
// Control and bidi characters, DEL and invalid UTF-8 that come from a file are written as \xNN.
int fail(struct error *err, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// The same, with the offset of the error in its file.
int fail_at(struct error *err, enum err_code code, uint64_t offset, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
// The same, unless *err holds an error already, which is then kept. For builders that continue after their first error.
int fail_first(struct error *err, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int fail_first_v(struct error *err, enum err_code code, const char *fmt, va_list args)
    __attribute__((format(printf, 3, 0)));
// Puts "prefix: " before the text of an error that is set already; returns -1.
int fail_prefix(struct error *err, const char *prefix);

// The compiler and static analysers see from these macros that the value is -1. Without them an analyser follows paths on
// which a function fails and yet returns 0. The functions are defined with their names in parentheses.
static inline int minus_one(int status)
{
    (void)status;
    return -1;
}
#define fail(...) minus_one(fail(__VA_ARGS__))
#define fail_at(...) minus_one(fail_at(__VA_ARGS__))
#define fail_first(...) minus_one(fail_first(__VA_ARGS__))
#define fail_prefix(...) minus_one(fail_prefix(__VA_ARGS__))

// Checks whether a finished file may be renamed to a path: 0 when the path does not exist or is an ordinary file; E_USAGE for
// a device, a pipe or a folder, because the rename would replace it (root could lose /dev/null), and for a symbolic link that
// leads nowhere.
int check_replaceable(const char *path, struct error *err);

// A view of bytes, and one of text (not NUL-terminated).
struct bytes {
    const uint8_t *data;
    size_t size;
};
struct str {
    const char *data;
    size_t len;
};

// printf("%.*s", STR_ARG(s)). A length that does not fit into an int is cut, because printf would read to a NUL with a
// negative one.
#define STR_ARG(s) (int)MIN((s).len, (size_t)INT32_MAX), (s).data
#define STR_LIT(lit) ((struct str){(lit), sizeof(lit) - 1})
struct str str_from(const char *z);
bool str_equal(struct str a, struct str b);
bool str_equal_z(struct str a, const char *z);
// The text without spaces, tabs and line breaks at its ends.
struct str str_stripped(struct str s);

// A helper that is always inlined, so that the compiler propagates its constant arguments and keeps its arrays in
// registers.
#define INLINE static inline __attribute__((always_inline, unused))

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

// Checked sizes: true when the result does not fit, as with the compiler's builtins.
static inline bool size_add(size_t a, size_t b, size_t *out)
{
    return __builtin_add_overflow(a, b, out);
}
static inline bool size_mul(size_t a, size_t b, size_t *out)
{
    return __builtin_mul_overflow(a, b, out);
}
// Rounds up to a multiple of align, a power of two. The caller ensures that the result fits.
static inline size_t align_up(size_t n, size_t align)
{
    return (n + align - 1) & ~(align - 1);
}
// The least common multiple of two positive numbers. The caller ensures that the result fits.
static inline int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

// A bump allocator that grows by chunks. Zero-initialise it; memory comes zeroed and up to 64-byte aligned on request.
// An allocation of 0 bytes gives a pointer that is not NULL.
struct arena_chunk;
struct arena {
    struct arena_chunk *last;
    size_t used;  // in the last chunk
    size_t total; // bytes taken from the heap
};
// NULL when memory is short or size is absurd. `align` is a power of two up to 64.
void *arena_alloc(struct arena *arena, size_t size, size_t align);
// Allocates `count` objects of `size` bytes; NULL when the product overflows.
void *arena_array(struct arena *arena, size_t count, size_t size, size_t align);
char *arena_strdup(struct arena *arena, struct str s); // NUL-terminated
void arena_free(struct arena *arena);

#define ARENA_NEW(arena, type) ((type *)arena_alloc((arena), sizeof(type), _Alignof(type)))
#define ARENA_ARRAY(arena, type, count) ((type *)arena_array((arena), (count), sizeof(type), _Alignof(type)))

// The number of bytes (1-4) of the valid UTF-8 sequence at p, 0 when there is none within n bytes
// (overlong forms, surrogates and values over U+10FFFF are not valid). The code point goes to *cp when not NULL.
int utf8_decode(const char *p, size_t n, uint32_t *cp);
// Writes cp as UTF-8, returns 1-4 bytes; cp is a valid scalar value.
int utf8_encode(uint32_t cp, char out[4]);
bool utf8_valid(struct str s);
// Whether a code point from a file may reach a terminal: no control character, line separator or bidi control.
bool utf8_printable(uint32_t cp);

#endif
