// Reads and checks the metadata of one file: header, keys and values, tensor entries.
//
// Layout (all little-endian; a string is a u64 length and that many bytes):
//   header   "GGUF", u32 version, u64 tensors, u64 keys
//   keys     string key, u32 type, value; an array is u32 element type, u64 count, elements
//   tensors  string name, u32 dims, u64 ne[dims], u32 type, u64 offset from the start of the data
//   data     from the next multiple of the alignment
// Everything is read by pread into the arena, once, and checked there; the file is not read a second time.
#include "gguf/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// The smallest sizes of a key with its value, and of the entry of a tensor. With them a count is checked against the
// bytes that are left in the file.
enum { HEADER_BYTES = 24, KEY_BYTES_MIN = 8 + 1 + 4 + 1, TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8 };

enum { WINDOW = 1 << 16 };

struct reader {
    struct gguf *g;
    struct gguf_shard *shard;
    struct error *err;
    uint64_t pos;        // offset of the next byte
    const char *subject; // what is being read, for messages: "key" or "tensor"
    struct str name;     // its name; empty until it is known
    uint64_t window_at;  // offset of window[0]
    size_t window_size;
    uint8_t *window;
};

__attribute__((format(printf, 3, 4))) static int broken(const struct reader *r, uint64_t offset, const char *fmt, ...)
{
    char text[ERR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (r->name.len == 0)
        return shard_fail(r->shard, r->err, E_MODEL, offset, "%s", text);
    // A name can be longer than a message.
    return shard_fail(r->shard, r->err, E_MODEL, offset, "%s '%.*s': %s", r->subject, SHORT_ARG(r->name), text);
}
// As with fail, analysers see the value.
#define broken(...) minus_one(broken(__VA_ARGS__))

static void *take(struct reader *r, size_t count, size_t size, size_t align)
{
    void *p = arena_array(&r->g->arena, count, size, align);
    if (!p)
        gguf_fail_memory(r->err, count * size, "the metadata");
    return p;
}
#define TAKE(r, type, count) ((type *)take((r), (count), sizeof(type), _Alignof(type)))

static uint64_t bytes_left(const struct reader *r)
{
    return r->shard->size - r->pos;
}

// ---- Bytes, numbers, strings ----

static int fill_window(struct reader *r)
{
    r->window_at = r->pos;
    r->window_size = (size_t)MIN(bytes_left(r), (uint64_t)WINDOW);
    return shard_read(r->shard, r->window, r->window_size, r->pos, r->err);
}

// Checks n more bytes of metadata against the limit, before they are read and memory is allocated for them.
static int check_budget(const struct reader *r, uint64_t offset, uint64_t n)
{
    if (n > METADATA_MAX - r->g->metadata_bytes)
        return broken(r, offset, "the metadata is over the limit of %d bytes", METADATA_MAX);
    return 0;
}

static int read_bytes(struct reader *r, const char *field, void *dst, uint64_t n)
{
    if (n > bytes_left(r))
        return broken(r, r->pos, "the file ends within the %s (%" PRIu64 " bytes, %" PRIu64 " are left)", field, n,
                      bytes_left(r));
    if (check_budget(r, r->pos, n) != 0)
        return -1;
    r->g->metadata_bytes += n;
    if (n > WINDOW) {
        if (shard_read(r->shard, dst, n, r->pos, r->err) != 0)
            return -1;
    } else if (n > 0) {
        if (r->pos + n > r->window_at + r->window_size && fill_window(r) != 0) // pos never goes back
            return -1;
        memcpy(dst, r->window + (r->pos - r->window_at), n);
    }
    r->pos += n;
    return 0;
}

static int read_u32(struct reader *r, const char *field, uint32_t *out)
{
    return read_bytes(r, field, out, sizeof *out);
}

static int read_u64(struct reader *r, const char *field, uint64_t *out)
{
    return read_bytes(r, field, out, sizeof *out);
}

static int read_string(struct reader *r, const char *field, uint64_t max, struct str *out)
{
    uint64_t at = r->pos, len;
    if (read_u64(r, field, &len) != 0)
        return -1;
    if (len > max)
        return broken(r, at, "a %s of %" PRIu64 " bytes is over the limit of %" PRIu64, field, len, max);
    if (len > bytes_left(r))
        return broken(r, at, "a %s of %" PRIu64 " bytes, but only %" PRIu64 " are left in the file", field, len,
                      bytes_left(r));
    if (check_budget(r, at, len) != 0)
        return -1;
    char *text = TAKE(r, char, len);
    if (!text)
        return -1;
    *out = (struct str){text, len};
    return read_bytes(r, field, text, len);
}

// Checks that a name is printable UTF-8, because names are shown to users. `offset` is the offset of its length.
static int check_name(const struct reader *r, const char *what, struct str name, uint64_t offset)
{
    if (name.len == 0)
        return broken(r, offset, "an empty %s", what);
    for (size_t i = 0; i < name.len;) {
        uint32_t cp;
        int len = utf8_decode(name.data + i, name.len - i, &cp);
        if (len == 0)
            return broken(r, offset + 8 + i, "a %s that is not UTF-8", what);
        if (!utf8_printable(cp))
            return broken(r, offset + 8 + i, "a %s with the control character U+%04X", what, (unsigned)cp);
        i += (size_t)len;
    }
    return 0;
}

// ---- Header ----

static int check_version(const struct reader *r, uint32_t version)
{
    if (version == 2 || version == 3)
        return 0;
    if (version == 0)
        return broken(r, 4, "version 0 does not exist");
    if (version == 1)
        return broken(r, 4, "version 1 is too old; convert the model again");
    if ((version & 0xFFFF) == 0)
        return broken(r, 4, "the file is big-endian; convert the model for little-endian machines");
    return broken(r, 4, "version %u is newer than quern knows (2 and 3)", version);
}

static int check_count(const struct reader *r, const char *what, uint64_t count, uint64_t max, uint64_t least_bytes,
                       uint64_t offset)
{
    if (count > max)
        return broken(r, offset, "%" PRIu64 " %s are over the limit of %" PRIu64, count, what, max);
    if (count * least_bytes > bytes_left(r)) // count is below 2^19 here
        return broken(r, offset, "%" PRIu64 " %s do not fit in the %" PRIu64 " bytes that are left", count, what,
                      bytes_left(r));
    return 0;
}

static int parse_header(struct reader *r, uint64_t *n_tensors, uint64_t *n_kv)
{
    if (r->shard->size == 0)
        return broken(r, 0, "the file is empty");
    char magic[4];
    if (read_bytes(r, "magic", magic, sizeof magic) != 0)
        return -1;
    if (memcmp(magic, "GGUF", 4) != 0)
        return broken(r, 0, "is no GGUF file: it starts with %02x %02x %02x %02x", magic[0] & 0xFF, magic[1] & 0xFF,
                      magic[2] & 0xFF, magic[3] & 0xFF);
    if (r->shard->size < HEADER_BYTES)
        return broken(r, r->shard->size, "the file ends within the header of %d bytes", HEADER_BYTES);
    if (read_u32(r, "version", &r->shard->version) != 0 || check_version(r, r->shard->version) != 0 ||
        read_u64(r, "number of tensors", n_tensors) != 0 || read_u64(r, "number of keys", n_kv) != 0)
        return -1;
    uint64_t tensors_left = TENSORS_MAX - r->g->n_tensors;
    if (check_count(r, "tensors", *n_tensors, tensors_left, TENSOR_BYTES_MIN, 8) != 0)
        return -1;
    return check_count(r, "keys", *n_kv, KEYS_MAX, KEY_BYTES_MIN, 16);
}

// ---- Keys and values ----

static int parse_strings(struct reader *r, struct gguf_kv *kv, uint64_t at)
{
    if (kv->type == GGUF_ARRAY && kv->count > bytes_left(r) / 8) // each string has at least a length of 8 bytes
        return broken(r, at, "%" PRIu64 " strings do not fit in the %" PRIu64 " bytes that are left", kv->count,
                      bytes_left(r));
    if (check_budget(r, at, kv->count * 8) != 0)
        return -1;
    struct str *strings = TAKE(r, struct str, kv->count);
    if (!strings)
        return -1;
    kv->strings = strings;
    for (uint64_t i = 0; i < kv->count; i++)
        if (read_string(r, "string", STRING_MAX, &strings[i]) != 0)
            return -1;
    return 0;
}

// Reads a number or an array of numbers. `at` is the offset for errors about their count.
static int parse_numbers(struct reader *r, struct gguf_kv *kv, uint64_t at)
{
    size_t bytes;
    if (size_mul(kv->count, gguf_type_bytes(kv->element), &bytes))
        return broken(r, at, "the size of an array of %" PRIu64 " %s overflows", kv->count,
                      gguf_type_name(kv->element));
    if (kv->type == GGUF_ARRAY && bytes > bytes_left(r))
        return broken(r, at, "%" PRIu64 " %s do not fit in the %" PRIu64 " bytes that are left", kv->count,
                      gguf_type_name(kv->element), bytes_left(r));
    if (check_budget(r, at, bytes) != 0)
        return -1;
    uint8_t *data = TAKE(r, uint8_t, bytes);
    if (!data)
        return -1;
    kv->data = data;
    uint64_t start = r->pos;
    if (read_bytes(r, "value", data, bytes) != 0)
        return -1;
    for (size_t i = 0; kv->element == GGUF_BOOL && i < kv->count; i++)
        if (data[i] > 1)
            return broken(r, start + i, "a bool is %d, not 0 or 1", data[i]);
    return 0;
}

static int parse_value(struct reader *r, struct gguf_kv *kv)
{
    uint64_t at = r->pos;
    uint32_t type, element;
    if (read_u32(r, "type", &type) != 0)
        return -1;
    if (type >= GGUF_TYPE_COUNT)
        return broken(r, at, "the value has the unknown type %u", type);
    kv->type = kv->element = (enum gguf_type)type;
    kv->count = 1;
    if (kv->type == GGUF_ARRAY) {
        at = r->pos;
        if (read_u32(r, "array's type", &element) != 0)
            return -1;
        if (element == GGUF_ARRAY)
            return broken(r, at, "an array of arrays is not supported");
        if (element >= GGUF_TYPE_COUNT)
            return broken(r, at, "an array of the unknown type %u", element);
        kv->element = (enum gguf_type)element;
        at = r->pos;
        if (read_u64(r, "array's length", &kv->count) != 0)
            return -1;
    }
    return kv->element == GGUF_STRING ? parse_strings(r, kv, at) : parse_numbers(r, kv, at);
}

static int parse_kv(struct reader *r, struct gguf_kv *kv)
{
    kv->offset = r->pos;
    kv->shard = r->shard->index;
    r->name = (struct str){0};
    if (read_string(r, "key", KEY_LENGTH_MAX, &kv->key) != 0 || check_name(r, "key", kv->key, kv->offset) != 0)
        return -1;
    r->name = kv->key;
    return parse_value(r, kv);
}

static int parse_keys(struct reader *r, size_t n)
{
    struct gguf_shard *shard = r->shard;
    shard->n_kv = n;
    shard->kv = TAKE(r, struct gguf_kv, n);
    shard->by_key = TAKE(r, const void *, n);
    if (!shard->kv || !shard->by_key)
        return -1;
    r->subject = "key";
    for (size_t i = 0; i < n; i++) {
        if (parse_kv(r, &shard->kv[i]) != 0)
            return -1;
        shard->by_key[i] = &shard->kv[i];
    }
    r->name = (struct str){0};
    if (names_sort(shard->by_key, n, r->err) != 0)
        return -1;
    const struct gguf_kv *twice = names_duplicate(shard->by_key, n);
    if (!twice)
        return 0;
    r->name = twice->key;
    return broken(r, twice->offset, "stands in the file twice");
}

const struct gguf_kv *shard_find(const struct gguf_shard *shard, const char *key)
{
    return names_find(shard->by_key, shard->n_kv, str_from(key));
}

static int parse_alignment(struct reader *r)
{
    r->shard->alignment = ALIGNMENT_DEFAULT;
    const struct gguf_kv *kv = shard_find(r->shard, ALIGNMENT_KEY);
    if (!kv)
        return 0;
    r->name = kv->key;
    if (kv->type != GGUF_U32)
        return broken(r, kv->offset, "has type %s, not u32", gguf_type_name(kv->type));
    uint32_t align;
    memcpy(&align, kv->data, sizeof align);
    if (align == 0 || (align & (align - 1)) != 0)
        return broken(r, kv->offset, "%u is not a power of two", align);
    if (align > ALIGNMENT_MAX)
        return broken(r, kv->offset, "%u is over the limit of %d", align, ALIGNMENT_MAX);
    r->shard->alignment = align;
    r->name = (struct str){0};
    return 0;
}

// ---- Tensors ----

// The offset in the file of the last field of an entry, which is the offset of the data.
static uint64_t offset_field(const struct gguf_tensor *t)
{
    return t->info_offset + 8 + t->name.len + 4 + 8 * (uint64_t)t->n_dims + 4;
}

static int parse_shape(struct reader *r, struct gguf_tensor *t)
{
    uint64_t at = r->pos;
    uint32_t n_dims;
    if (read_u32(r, "number of dimensions", &n_dims) != 0)
        return -1;
    if (n_dims < 1 || n_dims > 4)
        return broken(r, at, "has %u dimensions, not 1 to 4", n_dims);
    t->n_dims = (int)n_dims;
    int64_t elements = 1;
    for (int i = 0; i < 4; i++) {
        t->ne[i] = 1;
        at = r->pos;
        if (i < t->n_dims && read_bytes(r, "dimensions", &t->ne[i], sizeof t->ne[i]) != 0)
            return -1;
        if (t->ne[i] <= 0)
            return broken(r, at, "dimension %d is %" PRId64, i, t->ne[i]);
        if (__builtin_mul_overflow(elements, t->ne[i], &elements))
            return broken(r, at, "the number of elements overflows");
    }
    return 0;
}

static int parse_type(struct reader *r, struct gguf_tensor *t)
{
    uint64_t at = r->pos;
    uint32_t id;
    if (read_u32(r, "type", &id) != 0)
        return -1;
    struct error why;
    if (dtype_from_id(id, &t->type, &why) != 0)
        return broken(r, at, "%s", why.text);
    const struct dtype_info *info = &dtype_info[t->type];
    if (t->ne[0] % info->block != 0)
        return broken(r, at, "rows of %" PRId64 " elements are no whole blocks of %s (%d)", t->ne[0], info->name,
                      info->block);
    t->size = (uint64_t)(t->ne[0] / info->block);
    bool over = size_mul(t->size, (size_t)info->bytes, &t->size);
    for (int i = 1; i < 4 && !over; i++)
        over = size_mul(t->size, (size_t)t->ne[i], &t->size);
    return over ? broken(r, at, "the size in bytes overflows") : 0;
}

// Reads an entry. t->offset is then relative to the start of the data, which is not known yet.
static int parse_tensor(struct reader *r, struct gguf_tensor *t)
{
    *t = (struct gguf_tensor){.info_offset = r->pos, .shard = r->shard->index};
    r->name = (struct str){0};
    if (read_string(r, "tensor name", TENSOR_NAME_MAX, &t->name) != 0 ||
        check_name(r, "tensor name", t->name, t->info_offset) != 0)
        return -1;
    r->name = t->name;
    if (parse_shape(r, t) != 0 || parse_type(r, t) != 0 || read_u64(r, "offset", &t->offset) != 0)
        return -1;
    if (t->offset % r->shard->alignment != 0)
        return broken(r, offset_field(t), "offset %" PRIu64 " is no multiple of the alignment %" PRIu64, t->offset,
                      r->shard->alignment);
    return 0;
}

// Converts the offset of a tensor to an offset in the file, and checks that its data is within the file.
static int place_tensor(struct reader *r, struct gguf_tensor *t)
{
    r->name = t->name;
    uint64_t room = r->shard->size - MIN(r->shard->data_start, r->shard->size);
    if (t->offset >= room)
        return broken(r, offset_field(t), "offset %" PRIu64 " is past the end of the data (%" PRIu64 " bytes)",
                      t->offset, room);
    if (t->size > room - t->offset)
        return broken(r, offset_field(t),
                      "%" PRIu64 " bytes at offset %" PRIu64 " run past the end of the file, %" PRIu64 " are missing",
                      t->size, t->offset, t->size - (room - t->offset));
    t->offset += r->shard->data_start;
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct gguf_tensor *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int check_overlap(struct reader *r, const struct gguf_tensor *tensors, size_t n)
{
    const void **order = TAKE(r, const void *, n);
    if (!order)
        return -1;
    for (size_t i = 0; i < n; i++)
        order[i] = &tensors[i];
    if (pointers_sort(order, n, by_offset, r->err) != 0)
        return -1;
    for (size_t i = 1; i < n; i++) {
        const struct gguf_tensor *a = order[i - 1], *b = order[i];
        if (a->offset + a->size <= b->offset)
            continue;
        r->name = b->name;
        return broken(r, offset_field(b), "the data overlaps that of '%.*s'", STR_ARG(a->name));
    }
    return 0;
}

static int parse_tensors(struct reader *r, size_t n)
{
    struct gguf *g = r->g;
    struct gguf_shard *shard = r->shard;
    size_t bytes = (g->n_tensors + n) * sizeof *g->tensors; // both are below TENSORS_MAX
    struct gguf_tensor *tensors = realloc(g->tensors, MAX(bytes, (size_t)1));
    if (!tensors)
        return gguf_fail_memory(r->err, bytes, "the tensors' entries");
    g->tensors = tensors;
    tensors += g->n_tensors;
    r->subject = "tensor";
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (parse_tensor(r, &tensors[i]) != 0)
            return -1;
        if (size_add(sum, tensors[i].size, &sum))
            return broken(r, tensors[i].info_offset, "the sizes of the tensors together overflow");
    }
    shard->data_start = n > 0 ? align_up(r->pos, shard->alignment) : r->pos;
    shard->data_end = shard->data_start;
    for (size_t i = 0; i < n; i++) {
        if (place_tensor(r, &tensors[i]) != 0)
            return -1;
        shard->data_end = MAX(shard->data_end, tensors[i].offset + tensors[i].size);
    }
    shard->first_tensor = g->n_tensors;
    shard->n_tensors = n;
    g->n_tensors += n;
    return check_overlap(r, tensors, n);
}

int shard_parse(struct gguf *g, struct gguf_shard *shard, struct error *err)
{
    struct reader r = {.g = g, .shard = shard, .err = err, .window = malloc(WINDOW)};
    if (!r.window)
        return gguf_fail_memory(err, WINDOW, "reading the metadata");
    uint64_t n_tensors, n_kv;
    int status = -1;
    if (parse_header(&r, &n_tensors, &n_kv) == 0 && parse_keys(&r, n_kv) == 0 && parse_alignment(&r) == 0)
        status = parse_tensors(&r, n_tensors);
    free(r.window);
    return status;
}
