// Writes a GGUF file to a temporary file beside its place, in large aligned pieces, and renames it when it is complete.
// The head of the file (header, keys, entries) is built in memory and written before the first byte of data, because
// only then the number of keys and tensors and the start of the data are known.
#include "gguf/writer.h"
#include "gguf/gguf_internal.h"
#include "gguf/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// The file is written in pieces of this size, at multiples of it. On a system with large pages the page cache then
// holds the file in pages of this size, and weights are read through fewer page tables (measured,
// bench/results/cpu_zen4.md).
enum { BUFFER = 2 << 20 };

struct entry {
    struct str name; // must be the first member, for names_sort
    struct entry *next;
    uint64_t size;
};

struct gguf_writer {
    struct arena arena;
    char *path, *temp;
    int fd;
    bool created; // the temporary file exists
    bool head_written;
    struct error first; // the first error; code E_OK while there is none
    uint8_t *keys, *infos;
    size_t keys_size, keys_room, infos_size, infos_room;
    struct entry *key_list, *tensor_list; // newest first until the head is written, then tensors in order
    struct entry *current;                // the tensor whose data is next
    uint64_t written;                     // bytes of its data that have been written
    uint64_t n_keys, n_tensors;
    uint64_t data_size; // of all announced tensors, with padding
    uint32_t alignment;
    size_t buffered;
    uint8_t buffer[BUFFER];
};

// ---- The first error ----

__attribute__((format(printf, 3, 4))) static int writer_fail(struct gguf_writer *w, enum err_code code, const char *fmt,
                                                             ...)
{
    if (w->first.code != E_OK)
        return -1;
    va_list args;
    va_start(args, fmt);
    fail_first_v(&w->first, code, fmt, args);
    va_end(args);
    return fail_prefix(&w->first, w->path);
}
// As with fail, analysers see the value.
#define writer_fail(...) minus_one(writer_fail(__VA_ARGS__))

// The status of a call: 0, or -1 with the first error.
static int writer_status(const struct gguf_writer *w, struct error *err)
{
    if (w->first.code == E_OK)
        return 0;
    if (err)
        *err = w->first;
    return -1;
}

// ---- Bytes in memory ----

static void append(struct gguf_writer *w, uint8_t **data, size_t *size, size_t *room, const void *bytes, size_t n)
{
    size_t need;
    if (w->first.code != E_OK || n == 0)
        return;
    if (size_add(*size, n, &need) || need > METADATA_MAX) {
        writer_fail(w, E_USAGE, "the metadata is over the limit of %d bytes", METADATA_MAX);
        return;
    }
    if (need > *room) {
        size_t grown = MAX(2 * need, (size_t)4096);
        uint8_t *moved = realloc(*data, grown);
        if (!moved) {
            writer_fail(w, E_MEMORY, "out of memory: %zu bytes for the metadata", grown);
            return;
        }
        *data = moved;
        *room = grown;
    }
    memcpy(*data + *size, bytes, n);
    *size = need;
}

static void put_key(struct gguf_writer *w, const void *bytes, size_t n)
{
    append(w, &w->keys, &w->keys_size, &w->keys_room, bytes, n);
}

static void put_info(struct gguf_writer *w, const void *bytes, size_t n)
{
    append(w, &w->infos, &w->infos_size, &w->infos_room, bytes, n);
}

static void put_key_u32(struct gguf_writer *w, uint32_t v)
{
    put_key(w, &v, sizeof v);
}

static void put_key_str(struct gguf_writer *w, struct str s)
{
    uint64_t len = s.len;
    put_key(w, &len, sizeof len);
    put_key(w, s.data, s.len);
}

// Applies the rule of the reader, so that the file can be opened again.
static bool name_is_valid(struct str name, size_t max)
{
    if (name.len == 0 || name.len > max)
        return false;
    for (size_t i = 0; i < name.len;) {
        uint32_t cp;
        int len = utf8_decode(name.data + i, name.len - i, &cp);
        if (len == 0 || !utf8_printable(cp))
            return false;
        i += (size_t)len;
    }
    return true;
}

static struct entry *remember(struct gguf_writer *w, struct entry **list, struct str name)
{
    struct entry *e = ARENA_NEW(&w->arena, struct entry);
    char *copy = e ? arena_strdup(&w->arena, name) : NULL;
    if (!copy) {
        writer_fail(w, E_MEMORY, "out of memory: %zu bytes for a name", sizeof *e + name.len + 1);
        return NULL;
    }
    *e = (struct entry){.name = {copy, name.len}, .next = *list};
    *list = e;
    return e;
}

// ---- Keys ----

// Starts a key and its value. -1 when the caller must not write the value.
static int begin_key(struct gguf_writer *w, struct str key, enum gguf_type type)
{
    if (w->first.code != E_OK)
        return -1;
    if (w->head_written)
        return writer_fail(w, E_USAGE, "key '%.*s' comes after the first data", SHORT_ARG(key));
    if (!name_is_valid(key, KEY_LENGTH_MAX))
        return writer_fail(w, E_USAGE, "'%.*s' is no valid key", SHORT_ARG(key));
    if (w->n_keys == KEYS_MAX)
        return writer_fail(w, E_USAGE, "more than %d keys", KEYS_MAX);
    if (!remember(w, &w->key_list, key))
        return -1;
    w->n_keys++;
    put_key_str(w, key);
    put_key_u32(w, type);
    return 0;
}

static void write_scalar(struct gguf_writer *w, struct str key, enum gguf_type type, const void *v)
{
    if (str_equal_z(key, ALIGNMENT_KEY)) {
        uint32_t align = 0;
        if (type == GGUF_U32)
            memcpy(&align, v, sizeof align);
        if (align == 0 || (align & (align - 1)) != 0 || align > ALIGNMENT_MAX) {
            writer_fail(w, E_USAGE, ALIGNMENT_KEY " must be a power of two up to %d, of type u32", ALIGNMENT_MAX);
            return;
        }
        w->alignment = align;
    }
    if (begin_key(w, key, type) == 0)
        put_key(w, v, gguf_type_bytes(type));
}

static void begin_array(struct gguf_writer *w, enum gguf_type element, uint64_t n)
{
    put_key_u32(w, element);
    put_key(w, &n, sizeof n);
}

static void write_strings(struct gguf_writer *w, struct str key, const struct str *v, uint64_t n)
{
    if (begin_key(w, key, GGUF_ARRAY) != 0)
        return;
    begin_array(w, GGUF_STRING, n);
    for (uint64_t i = 0; i < n; i++)
        put_key_str(w, v[i]);
}

static void write_numbers(struct gguf_writer *w, struct str key, enum gguf_type element, const void *v, uint64_t n)
{
    size_t bytes;
    if (gguf_type_bytes(element) == 0 || size_mul(n, gguf_type_bytes(element), &bytes)) {
        writer_fail(w, E_USAGE, "key '%.*s': no array of %" PRIu64 " %s", SHORT_ARG(key), n, gguf_type_name(element));
        return;
    }
    if (begin_key(w, key, GGUF_ARRAY) != 0)
        return;
    begin_array(w, element, n);
    put_key(w, v, bytes);
}

void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    write_scalar(w, str_from(key), GGUF_U32, &v);
}

void gguf_write_f32(struct gguf_writer *w, const char *key, float v)
{
    write_scalar(w, str_from(key), GGUF_F32, &v);
}

void gguf_write_bool(struct gguf_writer *w, const char *key, bool v)
{
    uint8_t byte = v;
    write_scalar(w, str_from(key), GGUF_BOOL, &byte);
}

static void write_string(struct gguf_writer *w, struct str key, struct str v)
{
    if (str_equal_z(key, ALIGNMENT_KEY))
        writer_fail(w, E_USAGE, ALIGNMENT_KEY " must be of type u32");
    if (begin_key(w, key, GGUF_STRING) == 0)
        put_key_str(w, v);
}

void gguf_write_str(struct gguf_writer *w, const char *key, struct str v)
{
    write_string(w, str_from(key), v);
}

void gguf_write_str_array(struct gguf_writer *w, const char *key, const struct str *v, size_t n)
{
    write_strings(w, str_from(key), v, n);
}

void gguf_write_array(struct gguf_writer *w, const char *key, enum gguf_type element, const void *v, size_t n)
{
    write_numbers(w, str_from(key), element, v, n);
}

void gguf_write_kv(struct gguf_writer *w, const struct gguf_kv *kv)
{
    if (kv->type == GGUF_STRING)
        write_string(w, kv->key, kv->strings[0]);
    else if (kv->type != GGUF_ARRAY)
        write_scalar(w, kv->key, kv->type, kv->data);
    else if (kv->element == GGUF_STRING)
        write_strings(w, kv->key, kv->strings, kv->count);
    else
        write_numbers(w, kv->key, kv->element, kv->data, kv->count);
}

// ---- Tensors ----

// Computes the bytes of a tensor of this shape. False when the shape or its size is not allowed.
static bool tensor_size(enum dtype type, int n_dims, const int64_t *ne, uint64_t *size)
{
    if (n_dims < 1 || n_dims > 4 || (unsigned)type >= DT_COUNT || ne[0] <= 0 || ne[0] % dtype_info[type].block != 0)
        return false;
    int64_t elements = 1;
    size_t bytes = (size_t)dtype_info[type].bytes;
    for (int i = 0; i < n_dims; i++) {
        if (ne[i] <= 0 || __builtin_mul_overflow(elements, ne[i], &elements))
            return false;
        if (size_mul(bytes, (size_t)(i == 0 ? ne[0] / dtype_info[type].block : ne[i]), &bytes))
            return false;
    }
    *size = bytes;
    return bytes <= INT64_MAX;
}

static void announce(struct gguf_writer *w, struct str name, enum dtype type, int n_dims, const int64_t *ne)
{
    uint64_t size, padded;
    if (w->first.code != E_OK)
        return;
    if (w->head_written) {
        writer_fail(w, E_USAGE, "tensor '%.*s' is announced after the first data", STR_ARG(name));
        return;
    }
    if (!name_is_valid(name, TENSOR_NAME_MAX)) {
        writer_fail(w, E_USAGE, "'%.*s' is no valid tensor name", SHORT_ARG(name));
        return;
    }
    if (w->n_tensors == TENSORS_MAX) {
        writer_fail(w, E_USAGE, "more than %d tensors", TENSORS_MAX);
        return;
    }
    if (!tensor_size(type, n_dims, ne, &size)) {
        writer_fail(w, E_USAGE, "tensor '%.*s' has a shape that cannot be written", STR_ARG(name));
        return;
    }
    if (size_add(w->data_size, size + ALIGNMENT_MAX, &padded) || padded > INT64_MAX) { // size is at most INT64_MAX
        writer_fail(w, E_USAGE, "tensor '%.*s' makes the file too large", STR_ARG(name));
        return;
    }
    w->data_size = padded; // an upper bound, because the alignment may still change
    struct entry *e = remember(w, &w->tensor_list, name);
    if (!e)
        return;
    e->size = size;
    w->n_tensors++;
    uint64_t len = name.len, offset = 0;
    uint32_t dims = (uint32_t)n_dims, id = dtype_info[type].id;
    put_info(w, &len, sizeof len);
    put_info(w, name.data, name.len);
    put_info(w, &dims, sizeof dims);
    put_info(w, ne, (size_t)n_dims * sizeof *ne);
    put_info(w, &id, sizeof id);
    put_info(w, &offset, sizeof offset); // filled in by settle_offsets
}

int gguf_write_tensor_info(struct gguf_writer *w, const char *name, enum dtype type, int n_dims, const int64_t *ne,
                           struct error *err)
{
    announce(w, str_from(name), type, n_dims, ne);
    return writer_status(w, err);
}

// ---- The file ----

static int write_all(struct gguf_writer *w, const void *data, size_t n)
{
    for (const uint8_t *p = data; n > 0;) {
        ssize_t done = write(w->fd, p, MIN(n, (size_t)1 << 30));
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return writer_fail(w, E_IO, "cannot write: %s", strerror(errno));
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

static int flush(struct gguf_writer *w)
{
    size_t n = w->buffered;
    w->buffered = 0;
    return write_all(w, w->buffer, n);
}

static int write_bytes(struct gguf_writer *w, const void *data, size_t n)
{
    for (const uint8_t *p = data; n > 0;) {
        size_t m = MIN(n, BUFFER - w->buffered);
        if (w->buffered == 0 && n >= BUFFER) {
            m = n / BUFFER * BUFFER;
            if (write_all(w, p, m) != 0)
                return -1;
        } else {
            memcpy(w->buffer + w->buffered, p, m);
            w->buffered += m;
        }
        if (w->buffered == BUFFER && flush(w) != 0)
            return -1;
        p += m, n -= m;
    }
    return 0;
}

static int write_padding(struct gguf_writer *w, uint64_t position)
{
    static const uint8_t zeros[ALIGNMENT_MAX];
    return write_bytes(w, zeros, align_up(position, w->alignment) - position);
}

static struct entry *reverse(struct entry *list)
{
    struct entry *out = NULL;
    for (struct entry *next; list; list = next) {
        next = list->next;
        list->next = out;
        out = list;
    }
    return out;
}

// Sets the last field of each entry, the offset of its data.
static void settle_offsets(struct gguf_writer *w)
{
    uint64_t offset = 0;
    uint8_t *info = w->infos;
    for (const struct entry *e = w->tensor_list; e; e = e->next) {
        uint32_t dims;
        memcpy(&dims, info + 8 + e->name.len, sizeof dims);
        info += 8 + e->name.len + 4 + 8 * (size_t)dims + 4;
        memcpy(info, &offset, sizeof offset);
        info += sizeof offset;
        offset += align_up(e->size, w->alignment);
    }
}

static int check_unique(struct gguf_writer *w, const char *what, struct entry *list, uint64_t n)
{
    const void **index = ARENA_ARRAY(&w->arena, const void *, n);
    if (!index)
        return writer_fail(w, E_MEMORY, "out of memory: %zu bytes for the index of names", (size_t)n * sizeof *index);
    size_t i = 0;
    for (const struct entry *e = list; e; e = e->next)
        index[i++] = e;
    struct error why;
    if (names_sort(index, n, &why) != 0)
        return writer_fail(w, why.code, "%s", why.text);
    const struct entry *twice = names_duplicate(index, n);
    if (twice)
        return writer_fail(w, E_USAGE, "%s '%.*s' was written twice", what, SHORT_ARG(twice->name));
    return 0;
}

static int write_head(struct gguf_writer *w)
{
    if (w->first.code != E_OK)
        return -1;
    if (w->head_written)
        return 0;
    w->head_written = true;
    w->tensor_list = w->current = reverse(w->tensor_list);
    if (check_unique(w, "key", w->key_list, w->n_keys) != 0 ||
        check_unique(w, "tensor", w->tensor_list, w->n_tensors) != 0)
        return -1;
    settle_offsets(w);
    const struct {
        char magic[4];
        uint32_t version;
        uint64_t n_tensors, n_keys;
    } header = {{'G', 'G', 'U', 'F'}, 3, w->n_tensors, w->n_keys};
    if (write_bytes(w, &header, sizeof header) != 0 || write_bytes(w, w->keys, w->keys_size) != 0 ||
        write_bytes(w, w->infos, w->infos_size) != 0)
        return -1;
    return w->n_tensors > 0 ? write_padding(w, sizeof header + w->keys_size + w->infos_size) : 0;
}

static void write_pieces(struct gguf_writer *w, const uint8_t *data, size_t size)
{
    while (size > 0) {
        struct entry *e = w->current;
        if (!e) {
            writer_fail(w, E_USAGE, "%zu bytes of data after the last tensor", size);
            return;
        }
        size_t n = (size_t)MIN((uint64_t)size, e->size - w->written);
        if (write_bytes(w, data, n) != 0)
            return;
        w->written += n;
        data += n;
        size -= n;
        if (w->written < e->size)
            continue;
        if (write_padding(w, e->size) != 0)
            return;
        w->current = e->next;
        w->written = 0;
    }
}

int gguf_write_data(struct gguf_writer *w, const void *data, size_t size, struct error *err)
{
    if (write_head(w) == 0)
        write_pieces(w, data, size);
    return writer_status(w, err);
}

// ---- Open and close ----

// The temporary file is in the folder of the target, so that the rename stays within one file system. It has the mode of
// any new file.
static int create_temp(struct gguf_writer *w)
{
    size_t room = strlen(w->path) + TEMPORARY_SUFFIX;
    w->temp = arena_alloc(&w->arena, room, 1);
    if (!w->temp)
        return writer_fail(w, E_MEMORY, "out of memory: %zu bytes for a file name", room);
    w->fd = temporary_create(w->path, w->temp, 0666);
    if (w->fd < 0)
        return writer_fail(w, E_IO, "cannot create: %s", strerror(errno));
    w->created = true;
    return 0;
}

static void destroy(struct gguf_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    if (w->created)
        temporary_remove(w->temp);
    free(w->keys);
    free(w->infos);
    arena_free(&w->arena);
    free(w);
}

// Allocates a writer without a file.
static struct gguf_writer *create(const char *path, struct error *err)
{
    struct gguf_writer *w = calloc(1, sizeof *w);
    if (!w) {
        gguf_fail_memory(err, sizeof *w, "writing a model file");
        return NULL;
    }
    w->fd = -1;
    w->alignment = ALIGNMENT_DEFAULT;
    w->path = arena_strdup(&w->arena, str_from(path));
    if (!w->path) {
        destroy(w);
        gguf_fail_memory(err, strlen(path) + 1, "a file name");
        return NULL;
    }
    return w;
}

int gguf_writer_open(struct gguf_writer **out, const char *path, struct error *err)
{
    *out = NULL;
    struct gguf_writer *w = create(path, err);
    if (!w)
        return -1;
    if (check_replaceable(path, &w->first) != 0 || create_temp(w) != 0) {
        writer_status(w, err);
        destroy(w);
        return -1;
    }
    *out = w;
    return 0;
}

int gguf_writer_open_fd(struct gguf_writer **out, int fd, const char *name, struct error *err)
{
    *out = NULL;
    struct gguf_writer *w = create(name, err);
    if (!w)
        return -1;
    w->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (w->fd < 0) {
        fail(err, E_IO, "%s: %s", name, strerror(errno));
        destroy(w);
        return -1;
    }
    *out = w;
    return 0;
}

// Syncs the folder, so that the new name survives a crash. Errors are ignored: some file systems cannot do it, and the
// file itself has been synced.
static void sync_directory(struct gguf_writer *w)
{
    const char *slash = strrchr(w->path, '/');
    struct str dir = slash ? (struct str){w->path, (size_t)(slash - w->path) + 1} : STR_LIT(".");
    const char *name = arena_strdup(&w->arena, dir);
    int fd = name ? open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

static int finish(struct gguf_writer *w)
{
    if (write_head(w) != 0)
        return -1;
    if (w->current)
        return writer_fail(w, E_USAGE, "tensor '%.*s' lacks %" PRIu64 " bytes of data", STR_ARG(w->current->name),
                           w->current->size - w->written);
    if (flush(w) != 0)
        return -1;
    if (w->created && fsync(w->fd) != 0)
        return writer_fail(w, E_IO, "cannot write: %s", strerror(errno));
    int status = close(w->fd);
    w->fd = -1;
    if (status != 0)
        return writer_fail(w, E_IO, "cannot write: %s", strerror(errno));
    if (!w->created)
        return 0;
    if (temporary_rename(w->temp, w->path) != 0)
        return writer_fail(w, E_IO, "cannot rename %s: %s", w->temp, strerror(errno));
    w->created = false;
    sync_directory(w);
    return 0;
}

int gguf_writer_close(struct gguf_writer *w, struct error *err)
{
    finish(w);
    int status = writer_status(w, err);
    destroy(w);
    return status;
}

void gguf_writer_abort(struct gguf_writer *w)
{
    if (w)
        destroy(w);
}
