// Errors, UTF-8 and the arena. Error texts may quote a file, so bytes that are not printable UTF-8 are written as
// \xNN. The arena takes zeroed chunks from the heap, each as large as all before it together, from 4 KiB to 1 MiB. A
// request for more than a quarter of the next chunk has a chunk of its own.
#include "gguf/base.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

// ---- Errors ----

bool utf8_printable(uint32_t cp)
{
    if (cp < 0x20 || (cp >= 0x7F && cp < 0xA0))
        return false;
    bool bidi_mark = cp == 0x061C || cp == 0x200E || cp == 0x200F;
    bool bidi_control = (cp >= 0x202A && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069);
    bool line_break = cp == 0x2028 || cp == 0x2029;
    return !bidi_mark && !bidi_control && !line_break;
}

// Writes the NUL-terminated `raw` as one clean line into out[ERR_TEXT]; what does not fit ends in "...".
static void sanitize(const char *raw, char *out)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t n = strlen(raw), used = 0;
    size_t fit = 0; // the longest output that still leaves room for the dots
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(raw + i, n - i, &cp);
        bool clean = len > 0 && utf8_printable(cp);
        size_t eat = len > 0 ? (size_t)len : 1;
        size_t need = clean ? eat : 4 * eat;
        if (used + need >= ERR_TEXT) {
            memcpy(out + fit, "...", 4);
            return;
        }
        for (size_t k = 0; k < eat; k++) {
            unsigned char c = (unsigned char)raw[i + k];
            if (clean) {
                out[used++] = (char)c;
                continue;
            }
            out[used++] = '\\';
            out[used++] = 'x';
            out[used++] = hex[c >> 4];
            out[used++] = hex[c & 15];
        }
        i += eat;
        if (used + 4 <= ERR_TEXT)
            fit = used;
    }
    out[used] = '\0';
}

// Twice the size of the result. Text that is cut here is cut again in the result, so half a character never shows.
enum { RAW_TEXT = 2 * ERR_TEXT };

__attribute__((format(printf, 4, 0))) static int fail_v(struct error *err, enum err_code code, uint64_t offset,
                                                        const char *fmt, va_list args)
{
    if (!err)
        return -1;
    char raw[RAW_TEXT]; // the arguments may point into err->text
    if (vsnprintf(raw, sizeof raw, fmt, args) < 0)
        raw[0] = '\0';
    err->code = code;
    err->offset = offset;
    sanitize(raw, err->text);
    return -1;
}

int(fail)(struct error *err, enum err_code code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail_v(err, code, ERR_NO_OFFSET, fmt, args);
    va_end(args);
    return -1;
}

int(fail_at)(struct error *err, enum err_code code, uint64_t offset, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail_v(err, code, offset, fmt, args);
    va_end(args);
    return -1;
}

int fail_first_v(struct error *err, enum err_code code, const char *fmt, va_list args)
{
    return err->code == E_OK ? fail_v(err, code, ERR_NO_OFFSET, fmt, args) : -1;
}

int(fail_first)(struct error *err, enum err_code code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail_first_v(err, code, fmt, args);
    va_end(args);
    return -1;
}

int(fail_prefix)(struct error *err, const char *prefix)
{
    return err ? fail_at(err, err->code, err->offset, "%s: %s", prefix, err->text) : -1;
}

// ---- Files ----

int check_replaceable(const char *path, struct error *err)
{
    struct stat there;
    if (stat(path, &there))
        return lstat(path, &there) ? 0 : fail(err, E_USAGE, "%s: is a link that leads nowhere", path);
    if (S_ISREG(there.st_mode))
        return 0;
    return fail(err, E_USAGE, "%s: is there already and no ordinary file, so it is not replaced", path);
}

// ---- Text ----

struct str str_from(const char *z)
{
    return (struct str){z, strlen(z)};
}

bool str_equal(struct str a, struct str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

bool str_equal_z(struct str a, const char *z)
{
    return str_equal(a, str_from(z));
}

static bool is_white(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct str str_stripped(struct str s)
{
    while (s.len && is_white(s.data[0]))
        s = (struct str){s.data + 1, s.len - 1};
    while (s.len && is_white(s.data[s.len - 1]))
        s.len--;
    return s;
}

// The number of bytes of the UTF-8 sequence that starts with this byte; 0 when none does.
static int utf8_length(unsigned char c)
{
    if (c < 0x80)
        return 1;
    if (c < 0xC2 || c > 0xF4)
        return 0;
    return c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

int utf8_decode(const char *p, size_t n, uint32_t *cp)
{
    static const uint8_t lead_bits[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    int len = n > 0 ? utf8_length((unsigned char)p[0]) : 0;
    if (len == 0 || (size_t)len > n)
        return 0;
    uint32_t v = (unsigned char)p[0] & lead_bits[len];
    for (int i = 1; i < len; i++) {
        unsigned char c = (unsigned char)p[i];
        if ((c & 0xC0) != 0x80)
            return 0;
        v = v << 6 | (c & 0x3F);
    }
    if (v < least[len] || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000))
        return 0;
    if (cp)
        *cp = v;
    return len;
}

int utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    int len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--, cp >>= 6)
        out[i] = (char)(0x80 | (cp & 0x3F));
    out[0] = (char)((0xF00 >> len & 0xFF) | cp); // as many leading ones as there are bytes
    return len;
}

bool utf8_valid(struct str s)
{
    for (size_t i = 0; i < s.len;) {
        int len = utf8_decode(s.data + i, s.len - i, NULL);
        if (len == 0)
            return false;
        i += (size_t)len;
    }
    return true;
}

// ---- Arena ----

enum { ARENA_ALIGN = 64, ARENA_FIRST = 4096, ARENA_LARGEST = 1 << 20 };

struct arena_chunk {
    struct arena_chunk *prev;
    size_t size;   // usable bytes at data
    uint8_t *data; // aligned to ARENA_ALIGN
};

// `size` is at most PTRDIFF_MAX.
static struct arena_chunk *chunk_new(struct arena *arena, size_t size)
{
    const size_t bytes = size + sizeof(struct arena_chunk) + ARENA_ALIGN;
    if (bytes > PTRDIFF_MAX)
        return NULL;
    struct arena_chunk *chunk = calloc(1, bytes);
    if (!chunk)
        return NULL;
    uintptr_t start = (uintptr_t)(chunk + 1);
    chunk->data = (uint8_t *)(chunk + 1) + (align_up(start, ARENA_ALIGN) - start);
    chunk->size = size;
    arena->total += bytes;
    return chunk;
}

// Gives a large request a chunk of its own. That chunk is linked behind the last one, whose free rest stays in use.
static void *alloc_alone(struct arena *arena, size_t size)
{
    struct arena_chunk *chunk = chunk_new(arena, size);
    if (!chunk)
        return NULL;
    if (arena->last) {
        chunk->prev = arena->last->prev;
        arena->last->prev = chunk;
    } else {
        arena->last = chunk;
        arena->used = size;
    }
    return chunk->data;
}

void *arena_alloc(struct arena *arena, size_t size, size_t align)
{
    assert(align > 0 && align <= ARENA_ALIGN && (align & (align - 1)) == 0);
    if (size > PTRDIFF_MAX)
        return NULL;
    struct arena_chunk *chunk = arena->last;
    if (chunk) {
        size_t at = align_up(arena->used, align);
        if (at <= chunk->size && size <= chunk->size - at) {
            arena->used = at + size;
            return chunk->data + at;
        }
    }
    // A chunk is as large as all chunks before it together, so that many small objects cost few calls and little waste.
    size_t next = MIN(MAX(align_up(arena->total, ARENA_ALIGN), (size_t)ARENA_FIRST), (size_t)ARENA_LARGEST);
    if (size > next / 4)
        return alloc_alone(arena, size);
    chunk = chunk_new(arena, next);
    if (!chunk)
        return NULL;
    chunk->prev = arena->last;
    arena->last = chunk;
    arena->used = size;
    return chunk->data;
}

void *arena_array(struct arena *arena, size_t count, size_t size, size_t align)
{
    size_t bytes;
    return size_mul(count, size, &bytes) ? NULL : arena_alloc(arena, bytes, align);
}

char *arena_strdup(struct arena *arena, struct str s)
{
    size_t bytes;
    char *copy = size_add(s.len, 1, &bytes) ? NULL : arena_alloc(arena, bytes, 1);
    if (copy && s.len > 0)
        memcpy(copy, s.data, s.len);
    return copy;
}

void arena_free(struct arena *arena)
{
    for (struct arena_chunk *chunk = arena->last, *prev; chunk; chunk = prev) {
        prev = chunk->prev;
        free(chunk);
    }
    *arena = (struct arena){0};
}
