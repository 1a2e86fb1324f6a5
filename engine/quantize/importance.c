// The entries of an importance matrix and their conversion to weights per column, the readers of both file forms, and
// the writer of GGUF. Entries are found by linear search. Files are not trusted: names, counts and values are
// checked, and long lists are read in pieces.
#include "engine/quantize/importance.h"
#include "engine/file_replace.h"

#include "gguf/gguf.h"
#include "gguf/writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// NAME_MOST is the longest name of a matrix: NAME.in_sum2 must also be the name of a tensor. ENTRIES_MOST is about ten
// times the number of matrices of the largest models.
enum { NAME_MOST = 120, ENTRIES_MOST = 1 << 14 };

void importance_free(struct importance *m)
{
    free(m->entries);
    arena_free(&m->arena);
    *m = (struct importance){0};
}

const struct importance_entry *importance_find(const struct importance *m, struct str name)
{
    for (int i = 0; i < m->n; i++)
        if (str_equal_z(name, m->entries[i].name))
            return &m->entries[i];
    return NULL;
}

static int make_room(struct importance *m, struct error *err)
{
    if (m->n < m->cap)
        return 0;
    if (m->n >= ENTRIES_MOST)
        return fail(err, E_MODEL, "an importance matrix of more than %d entries", m->n);
    int cap = m->cap ? 2 * m->cap : 64;
    struct importance_entry *entries = realloc(m->entries, (size_t)cap * sizeof *entries);
    if (!entries)
        return fail(err, E_MEMORY, "no memory for an importance matrix");
    m->entries = entries;
    m->cap = cap;
    return 0;
}

struct importance_entry *importance_add(struct importance *m, struct str name, int64_t n_columns, int64_t n_matrices,
                                        struct error *err)
{
    const struct importance_entry *old = importance_find(m, name);
    if (old) {
        if (old->n_columns == n_columns && old->n_matrices == n_matrices)
            return &m->entries[old - m->entries];
        fail(err, E_USAGE, "importance of %.*s: %lld x %lld values, and before %lld x %lld", STR_ARG(name),
             (long long)n_columns, (long long)n_matrices, (long long)old->n_columns, (long long)old->n_matrices);
        return NULL;
    }
    struct importance_entry e = {.n_columns = n_columns, .n_matrices = n_matrices};
    size_t n;
    if (!name.len || name.len > NAME_MOST || memchr(name.data, 0, name.len)) {
        fail(err, E_MODEL, "importance of \"%.*s\": no name of a tensor", STR_ARG(name));
        return NULL;
    }
    if (make_room(m, err))
        return NULL;
    e.name = arena_strdup(&m->arena, name);
    e.sums = size_mul((size_t)n_columns, (size_t)n_matrices, &n) ? NULL : ARENA_ARRAY(&m->arena, float, n);
    e.counts = ARENA_ARRAY(&m->arena, int64_t, (size_t)n_matrices);
    if (!e.name || !e.sums || !e.counts) {
        fail(err, E_MEMORY, "no memory for the importance of %.*s", STR_ARG(name));
        return NULL;
    }
    m->entries[m->n] = e;
    return &m->entries[m->n++];
}

int importance_merge(struct importance *m, const struct importance *other, struct error *err)
{
    for (int i = 0; i < other->n; i++) {
        const struct importance_entry *from = &other->entries[i];
        struct importance_entry *to = importance_add(m, str_from(from->name), from->n_columns, from->n_matrices, err);
        if (!to)
            return -1;
        for (int64_t j = 0; j < from->n_columns * from->n_matrices; j++)
            if (!isfinite(to->sums[j] += from->sums[j]))
                return fail(err, E_MODEL, "importance of %s: a sum is too large for a number", from->name);
        for (int64_t j = 0; j < from->n_matrices; j++)
            to->counts[j] += from->counts[j];
    }
    m->n_chunks += other->n_chunks;
    return 0;
}

// Returns the average of the sums of matrix i over its columns; 0 when no row was counted.
static double average_sum(const struct importance_entry *e, int64_t i)
{
    const float *sums = e->sums + i * e->n_columns;
    double total = 0;
    for (int64_t j = 0; j < e->n_columns; j++)
        total += sums[j];
    return e->counts[i] > 0 ? total / (double)e->n_columns : 0;
}

// A column whose sum is less than this part of the average was not measured: its inputs were 0 on that text.
static bool is_measured(float sum, double average)
{
    return sum > average * 0x1p-20;
}

void importance_weights(const struct importance_entry *e, int64_t i, float *out)
{
    const float *sums = e->sums + i * e->n_columns;
    double average = average_sum(e, i);
    for (int64_t j = 0; j < e->n_columns; j++)
        out[j] = average > 0 && is_measured(sums[j], average) ? (float)(sums[j] / average) : 1.0f;
}

int64_t importance_unmeasured(const struct importance_entry *e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e->n_matrices; i++) {
        const double average = average_sum(e, i);
        for (int64_t j = 0; j < e->n_columns; j++)
            n += e->counts[i] > 0 && !is_measured(e->sums[i * e->n_columns + j], average);
    }
    return n;
}

// --- reading a GGUF ---

static bool cut_suffix(struct str *name, const char *suffix)
{
    size_t n = strlen(suffix);
    if (name->len <= n || memcmp(name->data + name->len - n, suffix, n))
        return false;
    name->len -= n;
    return true;
}

static const struct gguf_tensor *find_counts(const struct gguf *g, struct str name)
{
    char wanted[160];
    snprintf(wanted, sizeof wanted, "%.*s.counts", STR_ARG(name));
    return gguf_find_tensor(g, wanted);
}

static int check_values(const struct gguf *g, const struct gguf_tensor *t, const float *values, int64_t n,
                        struct error *err)
{
    for (int64_t i = 0; i < n; i++)
        if (!(values[i] >= 0 && isfinite(values[i])))
            return gguf_fail(g, t->shard, t->offset + 4 * (uint64_t)i, err,
                             "%.*s: value %lld is %g; a sum of squares or a count must be a number, 0 or more",
                             STR_ARG(t->name), (long long)i, (double)values[i]);
    return 0;
}

static int read_entry(struct importance *m, const struct gguf *g, const struct gguf_tensor *t, struct str name,
                      struct error *err)
{
    const struct gguf_tensor *counts = find_counts(g, name);
    if (!counts)
        return gguf_fail(g, t->shard, t->info_offset, err, "%.*s has no counts beside it", STR_ARG(t->name));
    if (t->type != DT_F32 || counts->type != DT_F32)
        return gguf_fail(g, t->shard, t->info_offset, err, "%.*s: sums and counts must be F32", STR_ARG(name));
    int64_t n = (int64_t)(t->size / 4), n_matrices = (int64_t)(counts->size / 4);
    if (n_matrices < 1 || n % n_matrices)
        return gguf_fail(g, t->shard, t->info_offset, err, "%.*s: %lld sums for %lld counts", STR_ARG(name),
                         (long long)n, (long long)n_matrices);
    struct importance_entry *e = importance_add(m, name, n / n_matrices, n_matrices, err);
    if (!e)
        return -1;
    memcpy(e->sums, t->data, (size_t)n * 4);
    if (check_values(g, t, e->sums, n, err))
        return -1;
    for (int64_t i = 0; i < n_matrices; i++) {
        float count;
        memcpy(&count, (const char *)counts->data + 4 * i, 4);
        if (check_values(g, counts, &count, 1, err))
            return -1;
        e->counts[i] = llround(MIN((double)count, 1e15));
    }
    return 0;
}

static int read_gguf(struct importance *m, const struct gguf *g, struct error *err)
{
    const struct gguf_kv *datasets = NULL;
    if (gguf_get_array(g, "imatrix.datasets", GGUF_STRING, &datasets, err) < 0 ||
        gguf_get_u32(g, "imatrix.chunk_count", &m->n_chunks, err) < 0 ||
        gguf_get_u32(g, "imatrix.chunk_size", &m->chunk_size, err) < 0)
        return -1;
    if (datasets && datasets->count)
        m->dataset = arena_strdup(&m->arena, datasets->strings[datasets->count - 1]);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct str name = t->name;
        if (cut_suffix(&name, ".in_sum2") && read_entry(m, g, t, name, err))
            return -1;
    }
    if (m->n == 0)
        return gguf_fail(g, 0, ERR_NO_OFFSET, err, "no importance matrix: it has no tensors NAME.in_sum2");
    return 0;
}

// --- reading the older form ---
//
// The file: int32 n; then n times: int32 length of the name, the name, int32 calls, int32 n_values, float
// values[n_values], which are means times calls.

struct stream {
    FILE *f;
    const char *path;
};

static int take(struct stream *s, void *out, size_t n, struct error *err)
{
    long at = ftell(s->f);
    if (fread(out, 1, n, s->f) == n)
        return 0;
    return fail_at(err, E_MODEL, (uint64_t)at, "%s: neither a GGUF nor an older importance matrix: ends at byte %ld",
                   s->path, at);
}

static int take_count(struct stream *s, int32_t most, const char *what, int32_t *out, struct error *err)
{
    long at = ftell(s->f);
    if (take(s, out, 4, err))
        return -1;
    if (*out < 1 || *out > most)
        return fail_at(err, E_MODEL, (uint64_t)at,
                       "%s: byte %ld: neither a GGUF nor an older importance matrix: %s is %d", s->path, at, what,
                       *out);
    return 0;
}

// Reads n values in pieces, so that a wrong count does not allocate much more memory than the file has bytes.
static int take_values(struct stream *s, float **out, int32_t n, struct error *err)
{
    for (int32_t have = 0; have < n;) {
        int32_t more = MIN(n - have, 1 << 16);
        float *grown = realloc(*out, (size_t)(have + more) * sizeof *grown);
        if (!grown)
            return fail(err, E_MEMORY, "%s: no memory for %d values", s->path, n);
        *out = grown;
        if (take(s, grown + have, (size_t)more * sizeof *grown, err))
            return -1;
        have += more;
    }
    return 0;
}

static int take_older_entry(struct importance *m, struct stream *s, struct error *err)
{
    int32_t length, calls, n;
    char name[256];
    float *values = NULL;
    if (take_count(s, sizeof name - 1, "a name's length", &length, err) || take(s, name, (size_t)length, err) ||
        take(s, &calls, 4, err) || take_count(s, INT32_MAX, "a number of values", &n, err) ||
        take_values(s, &values, n, err)) {
        free(values);
        return -1;
    }
    struct importance_entry *e = importance_add(m, (struct str){name, (size_t)length}, n, 1, err);
    int status = e ? 0 : -1;
    for (int32_t i = 0; !status && i < n; i++) {
        if (!(values[i] >= 0 && isfinite(values[i])))
            status = fail(err, E_MODEL, "%s: importance of %s: value %d is %g", s->path, e->name, i, (double)values[i]);
        e->sums[i] = values[i];
    }
    if (e)
        e->counts[0] = MAX(calls, 1);
    free(values);
    return status;
}

static int read_older(struct importance *m, const char *path, struct error *err)
{
    struct stream s = {fopen(path, "re"), path};
    if (!s.f)
        return fail(err, E_IO, "%s: cannot be opened", path);
    int32_t n;
    int status = take_count(&s, ENTRIES_MOST, "the number of entries", &n, err);
    for (int32_t i = 0; !status && i < n; i++)
        status = take_older_entry(m, &s, err);
    fclose(s.f);
    return status;
}

static bool is_gguf(const char *path)
{
    char magic[4] = "";
    FILE *f = fopen(path, "re");
    bool yes = !f || (fread(magic, 1, 4, f) == 4 && !memcmp(magic, "GGUF", 4));
    if (f)
        fclose(f);
    return yes;
}

int importance_read(struct importance *out, const char *path, struct error *err)
{
    *out = (struct importance){0};
    struct gguf *g = NULL;
    int status;
    if (is_gguf(path))
        status = gguf_open(&g, path, GGUF_NO_MMAP, err) || read_gguf(out, g, err) ? -1 : 0;
    else
        status = read_older(out, path, err);
    gguf_close(g);
    if (status)
        importance_free(out);
    return status;
}

// --- writing ---

static int by_name(const void *a, const void *b)
{
    const struct importance_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int announce(struct gguf_writer *w, const struct importance_entry *e, struct error *err)
{
    char name[160];
    int64_t sums[2] = {e->n_columns, e->n_matrices}, counts[2] = {1, e->n_matrices};
    snprintf(name, sizeof name, "%s.in_sum2", e->name);
    int n_dims = e->n_matrices > 1 ? 2 : 1;
    if (gguf_write_tensor_info(w, name, DT_F32, n_dims, sums, err))
        return -1;
    snprintf(name, sizeof name, "%s.counts", e->name);
    return gguf_write_tensor_info(w, name, DT_F32, n_dims, counts, err);
}

static int write_values(struct gguf_writer *w, const struct importance_entry *e, struct error *err)
{
    if (gguf_write_data(w, e->sums, (size_t)(e->n_columns * e->n_matrices) * sizeof *e->sums, err))
        return -1;
    for (int64_t i = 0; i < e->n_matrices; i++) {
        float count = (float)e->counts[i];
        if (gguf_write_data(w, &count, sizeof count, err))
            return -1;
    }
    return 0;
}

static int write_matrix(const struct importance *m, const struct file_replace *f, struct error *err)
{
    const struct importance_entry **sorted = calloc((size_t)m->n + 1, sizeof *sorted);
    struct gguf_writer *w = NULL;
    if (!sorted)
        return fail(err, E_MEMORY, "no memory for an importance matrix");
    for (int i = 0; i < m->n; i++)
        sorted[i] = &m->entries[i];
    qsort(sorted, (size_t)m->n, sizeof *sorted, by_name);
    int status = gguf_writer_open_fd(&w, f->fd, f->path, err);
    if (!status) {
        struct str dataset = str_from(m->dataset ? m->dataset : "");
        gguf_write_str(w, "general.type", STR_LIT("imatrix"));
        gguf_write_str_array(w, "imatrix.datasets", &dataset, m->dataset != NULL);
        gguf_write_u32(w, "imatrix.chunk_count", m->n_chunks);
        gguf_write_u32(w, "imatrix.chunk_size", m->chunk_size);
    }
    for (int i = 0; !status && i < m->n; i++)
        status = announce(w, sorted[i], err);
    for (int i = 0; !status && i < m->n; i++)
        status = write_values(w, sorted[i], err);
    free(sorted);
    if (status) {
        gguf_writer_abort(w);
        return -1;
    }
    return gguf_writer_close(w, err);
}

int importance_write(const struct importance *m, const char *path, struct error *err)
{
    struct file_replace f;
    if (file_replace_output(&f, path, err))
        return -1;
    if (!write_matrix(m, &f, err))
        return file_replace_end(&f, err);
    file_replace_abort(&f);
    return -1;
}
