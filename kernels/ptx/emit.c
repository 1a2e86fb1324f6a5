// Appends PTX text and replaces marks with numbers; see emit.h. Text between marks is copied 8 bytes at a time, and
// numbers below 10000 are written without a loop, because kernels are written while the user waits for the model.
#include "kernels/ptx/emit.h"

#include <endian.h>

enum { MAX_DIGITS = 10 }; // decimal digits of a 32-bit number

void ptx_start(struct ptx *p, char *buffer, size_t size)
{
    *p = (struct ptx){.data = buffer, .cap = size ? size - 1 : 0, .overflow = size == 0};
}

int ptx_finish(struct ptx *p, struct error *err)
{
    if (p->overflow)
        return fail(err, E_GPU, "PTX: the text of a kernel is larger than its buffer of %zu bytes", p->cap);
    if (p->bad_mark)
        return fail(err, E_GPU, "PTX: an emitter names a value that it does not give");
    p->data[p->size] = '\0';
    return 0;
}

static const char digit_pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                                  "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                                  "8081828384858687888990919293949596979899";

static size_t put_long_decimal(char *out, uint32_t v)
{
    size_t n = v < 10 ? 1 : 1 + put_long_decimal(out, v / 10);
    out[n - 1] = (char)('0' + v % 10);
    return n;
}

// Writes v and returns the number of its digits. Most numbers in a kernel have four digits or fewer.
static inline size_t put_decimal(char *out, uint32_t v)
{
    if (v < 10) {
        out[0] = (char)('0' + v);
        return 1;
    }
    if (v < 100) {
        memcpy(out, digit_pairs + 2 * v, 2);
        return 2;
    }
    if (v < 1000) {
        out[0] = (char)('0' + v / 100);
        memcpy(out + 1, digit_pairs + 2 * (v % 100), 2);
        return 3;
    }
    if (v < 10000) {
        memcpy(out, digit_pairs + 2 * (v / 100), 2);
        memcpy(out + 2, digit_pairs + 2 * (v % 100), 2);
        return 4;
    }
    return put_long_decimal(out, v);
}

static size_t put_hex(char *out, uint32_t v)
{
    for (int i = 0; i < 8; i++)
        out[i] = "0123456789ABCDEF"[v >> (28 - 4 * i) & 15];
    return 8;
}

// Writes the value of the mark at text (text[0] == '$') to out and returns the number of digits. *len receives the
// length of the mark.
static inline size_t put_value(struct ptx *p, char *out, const char *text, const char *end, const uint32_t *values,
                               unsigned n_values, size_t *len)
{
    bool hex = end - text > 2 && text[1] == 'x';
    *len = hex ? 3 : 2;
    unsigned index = end - text > 1 ? (unsigned)(text[*len - 1] - '0') : n_values;
    if (index >= n_values) {
        p->bad_mark = true;
        *len = MIN(*len, (size_t)(end - text));
        return 0;
    }
    return hex ? put_hex(out, values[index]) : put_decimal(out, values[index]);
}

// Copies text up to the next mark or the end, 8 bytes at a time, and returns the number of bytes. It reads and writes
// up to 7 bytes more than that: the text is padded, and ptx_fill leaves room in the buffer.
static inline size_t copy_to_mark(char *out, const char *text, size_t n)
{
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word;
        memcpy(&word, text + i, 8);
        memcpy(out + i, &word, 8);
        word = le64toh(word);
        word ^= ones * '$';
        // The lowest bit set belongs to the first byte that is '$'. Higher bits may be set by a borrow.
        uint64_t marks = (word - ones) & ~word & highs;
        if (marks)
            return MIN(n, i + (size_t)__builtin_ctzll(marks) / 8);
    }
    return n;
}

// Does what ptx_fill does, byte by byte: near the end of the buffer there is no room for 8 bytes at a time.
static void fill_slowly(struct ptx *p, const char *text, size_t len, const uint32_t *values, unsigned n_values)
{
    const char *end = text + len;
    while (text < end) {
        char number[MAX_DIGITS];
        size_t mark = 1;
        if (*text == '$')
            ptx_copy(p, number, put_value(p, number, text, end, values, n_values, &mark));
        else
            ptx_copy(p, text, 1);
        text += mark;
    }
}

void ptx_fill(struct ptx *p, const char *text, size_t len, const uint32_t *values, unsigned n_values)
{
    // A mark of at least 2 bytes becomes at most MAX_DIGITS bytes.
    if (p->overflow || p->cap - p->size < len * (MAX_DIGITS / 2) + 8) {
        fill_slowly(p, text, len, values, n_values);
        return;
    }
    char *out = p->data + p->size;
    const char *end = text + len;
    for (;;) {
        size_t n = copy_to_mark(out, text, (size_t)(end - text));
        out += n;
        text += n;
        if (text >= end)
            break;
        size_t mark;
        out += put_value(p, out, text, end, values, n_values, &mark);
        text += mark;
    }
    p->size = (size_t)(out - p->data);
}

void ptx_header(struct ptx *p, uint32_t version, uint32_t target)
{
    PTX_FILL(p,
             ".version $0.$1\n"
             ".target sm_$2\n"
             ".address_size 64\n",
             version / 10, version % 10, target);
}

uint32_t ptx_shared_of(uint32_t target)
{
    static const struct {
        uint32_t first, kib; // the lowest compute capability that has so much
    } cards[] = {{120, 100}, {90, 228}, {89, 100}, {87, 164}, {86, 100}, {80, 164}};
    for (size_t i = 0; i < COUNT_OF(cards); i++)
        if (target >= cards[i].first)
            return cards[i].kib << 10;
    return 0;
}
