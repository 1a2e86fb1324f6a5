// Checks the whole plan before anything is written, then converts tensor after tensor. Tensors that keep their type
// are copied. Each round converts one piece of at most 4 MiB (or one row) on all threads, while thread 0 first writes
// the piece of the round before; two buffers alternate. Threads take shares of at most 32768 weights (or one row)
// from an atomic counter. The mapped pages of a tensor are dropped once it is done.
#include "kernels/cpu.h"
#include "engine/quantize/quantizer.h"
#include "engine/file_replace.h"

#include "gguf/writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 4 << 20,    // bytes of a piece, which is written at once
    SHARE_ELEMENTS = 1 << 15, // weights that a thread converts at a time, at least one row
    QUANTIZATION_VERSION = 2,
};

void quantizer_free(struct quantizer *q)
{
    free(q->choices);
    *q = (struct quantizer){0};
}

// --- the plan ---

static uint64_t bytes_as(const struct gguf_tensor *t, enum dtype type)
{
    return (uint64_t)dtype_row_bytes(type, t->ne[0]) * (uint64_t)(t->ne[1] * t->ne[2] * t->ne[3]);
}

static const struct importance_entry *importance_of(const struct quantizer *q, const struct gguf_tensor *t)
{
    return q->o.importance ? importance_find(q->o.importance, t->name) : NULL;
}

static int check_importance(const struct quantizer *q, const struct gguf_tensor *t, const struct mix_choice *c,
                            struct error *err)
{
    const struct importance_entry *e = importance_of(q, t);
    if (!e && c->needs_importance)
        return fail(err, E_USAGE, "%.*s in %s would be useless without an importance matrix; %s", STR_ARG(t->name),
                    dtype_info[c->type].name,
                    q->o.importance ? "the one given has nothing on it (--tensor-type gives it another type)"
                                    : "make one with `quern imatrix` and give it with --imatrix FILE");
    if (e && c->type != t->type && (e->n_columns != t->ne[0] || e->n_matrices != t->ne[2]) &&
        !str_equal_z(t->name, "token_embd.weight"))
        return fail(err, E_USAGE,
                    "the importance matrix has %lld x %lld values for %.*s, which has %lld columns and %lld "
                    "matrices: it is of another model",
                    (long long)e->n_columns, (long long)e->n_matrices, STR_ARG(t->name), (long long)t->ne[0],
                    (long long)t->ne[2]);
    return 0;
}

static int check_tensor(struct quantizer *q, const struct converters *k, const struct gguf_tensor *t,
                        const struct mix_choice *c, struct error *err)
{
    q->bytes_in += t->size;
    q->bytes_out += c->type == t->type ? t->size : bytes_as(t, c->type);
    q->n_weights += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    q->n_fallback += c->type != c->wanted;
    if (c->type == t->type || q->o.types_only)
        return 0;
    if (dtype_info[t->type].kind == DTYPE_KIND_QUANT && !q->o.allow_requantize)
        return fail(err, E_USAGE, "%.*s is %s already; --allow-requantize takes it from there, at a loss",
                    STR_ARG(t->name), dtype_info[t->type].name);
    bool uses = dtype_info[c->type].kind == DTYPE_KIND_QUANT && c->type != DT_Q8_0;
    const struct importance_entry *e = importance_of(q, t);
    q->n_without_importance += q->o.importance && uses && !e;
    q->n_unmeasured += e && uses ? importance_unmeasured(e) : 0;
    if (check_importance(q, t, c, err))
        return -1;
    if (!k->quantize[c->type] && !k->encode[c->type])
        return fail(err, E_USAGE, "%.*s: quern does not write %s", STR_ARG(t->name), dtype_info[c->type].name);
    return 0;
}

int quantizer_plan(struct quantizer *q, const struct gguf *g, struct machine *m, const struct quantize_options *o,
                   struct error *err)
{
    struct converters k;
    *q = (struct quantizer){.file = g, .machine = m, .o = *o, .n_tensors = gguf_n_tensors(g)};
    q->choices = calloc(q->n_tensors + 1, sizeof *q->choices);
    int status = q->choices ? 0 : fail(err, E_MEMORY, "no memory for %zu tensors", q->n_tensors);
    if (!status && q->n_tensors == 0)
        status = fail(err, E_MODEL, "%s: it holds no tensors", gguf_path(g, 0));
    if (!status)
        status = mix_choose(g, &o->mix, q->choices, err);
    machine_cpu_converters(m, &k);
    for (size_t i = 0; !status && i < q->n_tensors; i++)
        status = check_tensor(q, &k, gguf_tensor_at(g, i), &q->choices[i], err);
    if (status)
        quantizer_free(q);
    return status;
}

// --- the metadata ---

static bool is_replaced(struct str key)
{
    static const char *const keys[] = {"general.quantization_version", "general.file_type"};
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if (str_equal_z(key, keys[i]))
            return true;
    return key.len > 6 && !memcmp(key.data, "split.", 6); // the parts of a split file are joined
}

static uint32_t file_type(const struct quantizer *q)
{
    uint32_t type = 0;
    if (mix_info[q->o.mix.mix].file_type >= 0)
        return (uint32_t)mix_info[q->o.mix.mix].file_type;
    gguf_get_u32(q->file, "general.file_type", &type, NULL);
    return type;
}

static void write_keys(const struct quantizer *q, struct gguf_writer *w)
{
    const struct importance *m = q->o.importance;
    for (size_t i = 0; i < gguf_n_kv(q->file); i++) {
        const struct gguf_kv *kv = gguf_kv_at(q->file, i);
        bool stale = m && kv->key.len > 17 && !memcmp(kv->key.data, "quantize.imatrix.", 17);
        if (!is_replaced(kv->key) && !stale)
            gguf_write_kv(w, kv);
    }
    gguf_write_u32(w, "general.quantization_version", QUANTIZATION_VERSION);
    gguf_write_u32(w, "general.file_type", file_type(q));
    if (!m)
        return;
    gguf_write_str(w, "quantize.imatrix.file", str_from(q->o.importance_path ? q->o.importance_path : ""));
    if (m->dataset)
        gguf_write_str(w, "quantize.imatrix.dataset", str_from(m->dataset));
    gguf_write_u32(w, "quantize.imatrix.entries_count", (uint32_t)m->n);
    gguf_write_u32(w, "quantize.imatrix.chunks_count", m->n_chunks);
}

// --- the tensors ---

// Successive rows of a tensor, converted into a buffer. One piece is computed while the piece before it is written.
struct piece {
    uint8_t *out;   // PIECE_BYTES, or one row when that is longer
    size_t size;    // bytes to write
    int64_t row, n; // the first row, and the number of rows
};

struct conversion {
    struct quantizer *q;
    struct gguf_writer *w;
    struct converters k;
    const struct gguf_tensor *t;
    enum dtype type;
    size_t row_in, row_out;
    const float *importance;          // [n_matrices][columns]; NULL: all columns have the same weight
    float *rows;                      // [n_threads][share_rows][columns] rows decoded to floats
    int64_t share_rows;               // rows that a thread converts at a time
    struct piece *computed, *written; // the pieces of this round; NULL: none
    _Atomic int64_t next;             // the first row of `computed` that no thread has taken
    _Atomic int64_t bad_row;          // the first row of a share with a value that is not finite; -1: none
    _Atomic int64_t large_row;        // the first row of a share with a value that the type cannot hold; -1: none
    struct error error;               // an error of writing
    bool failed;
};

// Returns the largest magnitude of n values; infinite or NaN when one of them is. The bits of floats without their sign
// are in the order of the floats, and those that are not finite come last.
static float largest_magnitude(const float *x, int64_t n)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        largest = MAX(largest, bits & 0x7fffffffu);
    }
    float out;
    memcpy(&out, &largest, sizeof out);
    return out;
}

// Whether converted blocks hold n values of which `largest` is the largest magnitude. Only values beyond the range of
// half precision, in which types have their values or scales, can fail; a scale that was cut to that range shows as
// values of less than half their magnitude. Overwrites `x` with what the blocks hold.
static bool holds(const struct conversion *c, const uint8_t *blocks, float *x, int64_t n, float largest)
{
    if (largest <= 65504.0f)
        return true;
    c->k.decode[c->type](blocks, x, n);
    float kept = largest_magnitude(x, n);
    return isfinite(kept) && kept >= largest / 2;
}

// Quantises n rows from `row` on. With an importance matrix each row is a call of its own, because the importance is
// that of the matrix (expert) to which the row belongs.
static void quantize_rows(const struct conversion *c, const float *x, int64_t row, int64_t n, uint8_t *out)
{
    int64_t columns = c->t->ne[0];
    if (c->k.encode[c->type])
        c->k.encode[c->type](x, out, n * columns);
    else if (!c->importance)
        c->k.quantize[c->type](x, NULL, out, n * columns);
    else
        for (int64_t i = 0; i < n; i++) {
            const float *importance = c->importance + (row + i) / c->t->ne[1] * columns;
            c->k.quantize[c->type](x + i * columns, importance, out + (size_t)i * c->row_out, columns);
        }
}

static void convert_rows(struct conversion *c, int thread)
{
    const struct piece *p = c->computed;
    int64_t columns = c->t->ne[0], at;
    float *x = c->rows + thread * c->share_rows * columns;
    while ((at = atomic_fetch_add(&c->next, c->share_rows)) < p->n) {
        int64_t row = p->row + at, n = MIN(c->share_rows, p->n - at);
        c->k.decode[c->t->type]((const uint8_t *)c->t->data + (size_t)row * c->row_in, x, n * columns);
        uint8_t *out = p->out + (size_t)at * c->row_out;
        float largest = largest_magnitude(x, n * columns);
        if (!isfinite(largest)) {
            atomic_store(&c->bad_row, row);
            continue;
        }
        quantize_rows(c, x, row, n, out);
        if (!holds(c, out, x, n * columns, largest))
            atomic_store(&c->large_row, row);
    }
}

static void work(void *ctx, int thread)
{
    struct conversion *c = ctx;
    if (thread == 0 && c->written)
        c->failed |= gguf_write_data(c->w, c->written->out, c->written->size, &c->error) != 0;
    if (c->computed)
        convert_rows(c, thread);
}

static int check_round(struct conversion *c, struct error *err)
{
    int64_t bad = atomic_load(&c->bad_row), large = atomic_load(&c->large_row);
    if (c->failed) {
        *err = c->error;
        return -1;
    }
    if (bad >= 0)
        return gguf_fail(c->q->file, c->t->shard, c->t->offset + (uint64_t)bad * c->row_in, err,
                         "%.*s: row %lld or one of the next %lld holds a value that is no number", STR_ARG(c->t->name),
                         (long long)bad, (long long)c->share_rows);
    if (large >= 0)
        return gguf_fail(c->q->file, c->t->shard, c->t->offset + (uint64_t)large * c->row_in, err,
                         "%.*s: row %lld or one of the next %lld holds a value that is too large for %s; --tensor-type "
                         "gives the tensor another type",
                         STR_ARG(c->t->name), (long long)large, (long long)c->share_rows, dtype_info[c->type].name);
    if (c->q->o.cancel && atomic_load_explicit(c->q->o.cancel, memory_order_relaxed))
        return fail(err, E_INTERRUPTED, "interrupted");
    return 0;
}

// Converts a tensor piece by piece. Each round computes one piece and writes the piece before it.
static int convert(struct conversion *c, struct piece pieces[2], int64_t piece_rows, int64_t done, int64_t total,
                   struct error *err)
{
    int64_t n_rows = c->t->ne[1] * c->t->ne[2] * c->t->ne[3];
    c->written = NULL;
    for (int64_t row = 0, round = 0; row < n_rows || c->written; row += piece_rows, round++) {
        struct piece *p = &pieces[round % 2];
        int64_t n = MIN(piece_rows, n_rows - row);
        *p = (struct piece){p->out, n > 0 ? (size_t)n * c->row_out : 0, row, n};
        c->computed = n > 0 ? p : NULL;
        atomic_store(&c->next, 0);
        machine_cpu_share(c->q->machine, work, c);
        if (check_round(c, err))
            return -1;
        c->written = c->computed;
        if (c->q->o.progress)
            c->q->o.progress(c->q->o.arg, done + (int64_t)c->row_in * MIN(row + piece_rows, n_rows), total, c->t);
    }
    return 0;
}

static int take_importance(struct conversion *c, float **weights, struct error *err)
{
    const struct importance_entry *e = importance_of(c->q, c->t);
    c->importance = NULL;
    if (!e || e->n_columns != c->t->ne[0] || e->n_matrices != c->t->ne[2])
        return 0;
    *weights = malloc((size_t)(e->n_columns * e->n_matrices) * sizeof **weights);
    if (!*weights)
        return fail(err, E_MEMORY, "no memory for the importance of %s", e->name);
    for (int64_t i = 0; i < e->n_matrices; i++)
        importance_weights(e, i, *weights + i * e->n_columns);
    c->importance = *weights;
    return 0;
}

static int convert_tensor(struct conversion *c, int64_t done, int64_t total, struct error *err)
{
    int n_threads = 1;
    struct machine_cpu_choice choice;
    machine_cpu_choice(c->q->machine, &choice);
    n_threads = MAX(1, choice.n_threads);
    int64_t columns = c->t->ne[0];
    c->row_in = dtype_row_bytes(c->t->type, columns);
    c->row_out = dtype_row_bytes(c->type, columns);
    c->share_rows = MAX(1, SHARE_ELEMENTS / columns);
    int64_t piece_rows = MAX(1, (int64_t)(PIECE_BYTES / c->row_out));
    struct piece pieces[2] = {{0}};
    float *weights = NULL;
    size_t n_floats = (size_t)n_threads * (size_t)c->share_rows * (size_t)columns;
    c->rows = malloc(n_floats * sizeof *c->rows);
    pieces[0].out = malloc((size_t)piece_rows * c->row_out);
    pieces[1].out = malloc((size_t)piece_rows * c->row_out);
    int status = 0;
    if (!c->rows || !pieces[0].out || !pieces[1].out)
        status = fail(err, E_MEMORY, "no memory for rows of %lld", (long long)columns);
    if (!status)
        status = take_importance(c, &weights, err);
    if (!status)
        status = convert(c, pieces, piece_rows, done, total, err);
    free(c->rows);
    free(pieces[0].out);
    free(pieces[1].out);
    free(weights);
    return status;
}

static int copy_tensor(struct conversion *c, int64_t done, int64_t total, struct error *err)
{
    for (uint64_t at = 0; at < c->t->size; at += PIECE_BYTES) {
        size_t n = (size_t)MIN(c->t->size - at, (uint64_t)PIECE_BYTES);
        if (gguf_write_data(c->w, (const uint8_t *)c->t->data + at, n, err) || check_round(c, err))
            return -1;
        if (c->q->o.progress)
            c->q->o.progress(c->q->o.arg, done + (int64_t)(at + n), total, c->t);
    }
    return 0;
}

// Drops the mapped pages of a tensor that has been converted. They were never written to, so the system can read them
// from the file again.
static void drop_pages(const struct gguf_tensor *t)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)t->data + page - 1) & ~(page - 1);
    uintptr_t to = ((uintptr_t)t->data + t->size) & ~(page - 1);
    if (to > from)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

static int write_tensors(struct quantizer *q, struct gguf_writer *w, struct error *err)
{
    struct conversion c = {.q = q, .w = w, .bad_row = -1, .large_row = -1};
    int64_t done = 0;
    machine_cpu_converters(q->machine, &c.k);
    for (size_t i = 0; i < q->n_tensors; i++) {
        c.t = gguf_tensor_at(q->file, i);
        c.type = q->choices[i].type;
        int64_t total = (int64_t)q->bytes_in;
        if (c.type == c.t->type ? copy_tensor(&c, done, total, err) : convert_tensor(&c, done, total, err))
            return -1;
        drop_pages(c.t);
        done += (int64_t)c.t->size;
    }
    return 0;
}

static int write_model(struct quantizer *q, const struct file_replace *f, struct error *err)
{
    struct gguf_writer *w = NULL;
    int status = gguf_writer_open_fd(&w, f->fd, f->path, err);
    if (!status)
        write_keys(q, w);
    for (size_t i = 0; !status && i < q->n_tensors; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(q->file, i);
        char name[256];
        snprintf(name, sizeof name, "%.*s", STR_ARG(t->name));
        status = gguf_write_tensor_info(w, name, q->choices[i].type, t->n_dims, t->ne, err);
    }
    if (!status)
        status = write_tensors(q, w, err);
    if (status) {
        gguf_writer_abort(w);
        return -1;
    }
    return gguf_writer_close(w, err);
}

int quantizer_write(struct quantizer *q, const char *path, struct error *err)
{
    struct file_replace f;
    if (file_replace_output(&f, path, err))
        return -1;
    if (!write_model(q, &f, err))
        return file_replace_end(&f, err);
    file_replace_abort(&f);
    return -1;
}
