// quern-builtin-export: makes a GGUF of the records that export.py writes; that script describes their layout.
//
// Matrices are encoded in the selected type, vectors stay F32. The records are read twice, because a GGUF has the
// entries of all tensors before the data of the first one.
#include "gguf/writer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct records {
    const char *path;
    struct bytes all;
    size_t at;
};

struct record {
    char kind;
    char name[256];
    struct bytes value; // numbers and strings
    uint32_t count;     // of the elements of an array
    int n_dims;         // of a tensor
    int64_t ne[4];
};

static int damaged(const struct records *r, struct error *err)
{
    return fail_at(err, E_MODEL, r->at, "%s: byte %zu: the record is damaged", r->path, r->at);
}

// Returns the next n bytes; NULL with an error if there are fewer.
static const uint8_t *take(struct records *r, size_t n, struct error *err)
{
    const uint8_t *p = r->all.data + r->at;
    if (n > r->all.size - r->at) {
        damaged(r, err);
        return NULL;
    }
    r->at += n;
    return p;
}

static int take_u32(struct records *r, uint32_t *out, struct error *err)
{
    const uint8_t *p = take(r, sizeof *out, err);
    if (!p)
        return -1;
    memcpy(out, p, sizeof *out);
    return 0;
}

static int take_bytes(struct records *r, size_t n, struct bytes *out, struct error *err)
{
    *out = (struct bytes){take(r, n, err), n};
    return out->data ? 0 : -1;
}

static int take_string(struct records *r, struct bytes *out, struct error *err)
{
    uint32_t n;
    return take_u32(r, &n, err) ? -1 : take_bytes(r, n, out, err);
}

static int take_tensor(struct records *r, struct record *rec, struct error *err)
{
    uint32_t n_dims;
    size_t bytes = sizeof(float);
    if (take_u32(r, &n_dims, err))
        return -1;
    if (n_dims < 1 || n_dims > COUNT_OF(rec->ne))
        return damaged(r, err);
    rec->n_dims = (int)n_dims;
    for (uint32_t i = 0; i < n_dims; i++) {
        const uint8_t *p = take(r, sizeof rec->ne[i], err);
        if (!p)
            return -1;
        memcpy(&rec->ne[i], p, sizeof rec->ne[i]);
        if (rec->ne[i] < 1 || size_mul(bytes, (size_t)rec->ne[i], &bytes))
            return damaged(r, err);
    }
    return take_bytes(r, bytes, &rec->value, err);
}

// The strings of an array are contiguous, each after its length; rec->value points to the first one. Its size is not
// set.
static int take_strings(struct records *r, struct record *rec, struct error *err)
{
    struct bytes s;
    if (take_u32(r, &rec->count, err))
        return -1;
    rec->value.data = r->all.data + r->at;
    for (uint32_t i = 0; i < rec->count; i++)
        if (take_string(r, &s, err))
            return -1;
    return 0;
}

static int take_value(struct records *r, struct record *rec, struct error *err)
{
    switch (rec->kind) {
    case 'u':
    case 'f':
        return take_bytes(r, 4, &rec->value, err);
    case 'b':
        return take_bytes(r, 1, &rec->value, err);
    case 's':
        return take_string(r, &rec->value, err);
    case 'S':
        return take_strings(r, rec, err);
    case 'i':
        return take_u32(r, &rec->count, err) ? -1 : take_bytes(r, (size_t)rec->count * 4, &rec->value, err);
    case 'T':
        return take_tensor(r, rec, err);
    default:
        return damaged(r, err);
    }
}

// Returns 1 with the next record, 0 at the end, -1 with an error.
static int next_record(struct records *r, struct record *rec, struct error *err)
{
    struct bytes name;
    *rec = (struct record){0};
    if (r->at == r->all.size)
        return 0;
    rec->kind = (char)r->all.data[r->at++];
    if (take_string(r, &name, err))
        return -1;
    if (name.size >= sizeof rec->name)
        return damaged(r, err);
    memcpy(rec->name, name.data, name.size);
    return take_value(r, rec, err) ? -1 : 1;
}

static int write_strings(struct gguf_writer *w, const struct record *rec, struct error *err)
{
    struct str *views = calloc((size_t)rec->count + 1, sizeof *views);
    if (!views)
        return fail(err, E_MEMORY, "no memory for %u strings", rec->count);
    const uint8_t *p = rec->value.data;
    for (uint32_t i = 0; i < rec->count; i++) {
        uint32_t n;
        memcpy(&n, p, sizeof n);
        views[i] = (struct str){(const char *)p + sizeof n, n};
        p += sizeof n + n;
    }
    gguf_write_str_array(w, rec->name, views, rec->count);
    free(views);
    return 0;
}

static int write_key(struct gguf_writer *w, const struct record *rec, struct error *err)
{
    uint32_t u = 0;
    float f = 0;
    switch (rec->kind) {
    case 'u':
        memcpy(&u, rec->value.data, sizeof u);
        gguf_write_u32(w, rec->name, u);
        return 0;
    case 'f':
        memcpy(&f, rec->value.data, sizeof f);
        gguf_write_f32(w, rec->name, f);
        return 0;
    case 'b':
        gguf_write_bool(w, rec->name, rec->value.data[0]);
        return 0;
    case 's':
        gguf_write_str(w, rec->name, (struct str){(const char *)rec->value.data, rec->value.size});
        return 0;
    case 'i':
        gguf_write_array(w, rec->name, GGUF_I32, rec->value.data, rec->count);
        return 0;
    default:
        return write_strings(w, rec, err);
    }
}

static enum dtype type_of(const struct record *rec, enum dtype matrices)
{
    return rec->n_dims > 1 ? matrices : DT_F32;
}

static int write_values(struct gguf_writer *w, const struct record *rec, enum dtype type, struct error *err)
{
    int64_t n = rec->ne[0];
    size_t n_rows = rec->value.size / sizeof(float) / (size_t)n, row_bytes = dtype_row_bytes(type, n);
    float *x = malloc((size_t)n * sizeof *x);
    void *row = malloc(row_bytes);
    int status = x && row ? 0 : fail(err, E_MEMORY, "no memory for a row of %s", rec->name);
    for (size_t i = 0; !status && i < n_rows; i++) {
        memcpy(x, rec->value.data + i * (size_t)n * sizeof *x, (size_t)n * sizeof *x);
        dtype_encode[type](x, row, n);
        status = gguf_write_data(w, row, row_bytes, err);
    }
    free(x);
    free(row);
    return status;
}

// Returns the file type number that other programs use for this mix of types; 1024 if there is none.
static uint32_t file_type(enum dtype type)
{
    return type == DT_F32 ? 0 : type == DT_F16 ? 1 : type == DT_Q8_0 ? 7 : 1024;
}

static int write_entries(struct gguf_writer *w, struct records *r, enum dtype type, struct error *err)
{
    struct record rec;
    int more;
    while ((more = next_record(r, &rec, err)) == 1) {
        if (rec.kind == 'T' && rec.ne[0] % dtype_info[type_of(&rec, type)].block)
            return fail(err, E_MODEL, "%s: rows of %lld are no multiple of the block of %s", rec.name,
                        (long long)rec.ne[0], dtype_info[type].name);
        if (rec.kind == 'T' ? gguf_write_tensor_info(w, rec.name, type_of(&rec, type), rec.n_dims, rec.ne, err)
                            : write_key(w, &rec, err))
            return -1;
    }
    gguf_write_u32(w, "general.file_type", file_type(type));
    gguf_write_u32(w, "general.quantization_version", 2);
    return more;
}

static int write_tensors(struct gguf_writer *w, struct records *r, enum dtype type, struct error *err)
{
    struct record rec;
    int more;
    r->at = 0;
    while ((more = next_record(r, &rec, err)) == 1)
        if (rec.kind == 'T' && write_values(w, &rec, type_of(&rec, type), err))
            return -1;
    return more;
}

static int export(struct records *r, enum dtype type, const char *out, struct error *err)
{
    struct gguf_writer *w;
    if (gguf_writer_open(&w, out, err))
        return -1;
    if (write_entries(w, r, type, err) || write_tensors(w, r, type, err)) {
        gguf_writer_abort(w);
        return -1;
    }
    return gguf_writer_close(w, err);
}

static int read_all(const char *path, struct bytes *out, struct error *err)
{
    FILE *f = fopen(path, "rbe");
    long size = f && !fseek(f, 0, SEEK_END) ? ftell(f) : -1;
    uint8_t *data = size > 0 ? malloc((size_t)size) : NULL;
    int status = 0;
    if (!data || fseek(f, 0, SEEK_SET) || fread(data, 1, (size_t)size, f) != (size_t)size)
        status = fail(err, E_IO, "%s: %s", path, errno ? strerror(errno) : "cannot be read");
    if (f)
        fclose(f);
    if (status)
        free(data);
    else
        *out = (struct bytes){data, (size_t)size};
    return status;
}

int main(int argc, char **argv)
{
    struct error err;
    enum dtype type;
    if (argc != 4 || dtype_from_name(str_from(argv[2]), &type) || !dtype_encode[type]) {
        fprintf(stderr, "usage: quern-builtin-export RECORDS TYPE OUT.gguf\n"
                        "TYPE: F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K or Q6_K, that of the matrices\n");
        return E_USAGE;
    }
    struct records r = {.path = argv[1]};
    int status = read_all(argv[1], &r.all, &err);
    if (!status)
        status = export(&r, type, argv[3], &err);
    if (status)
        fprintf(stderr, "quern-builtin-export: %s\n", err.text);
    free((void *)(uintptr_t)r.all.data);
    return status ? (int)err.code : E_OK;
}
