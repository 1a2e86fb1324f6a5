// Writes and reads the file in sequence, one row of logits at a time, so the memory used does not depend on the
// length of the text except for its tokens. A reader checks every field of the head and the size of the file before
// it allocates.
#include "engine/measure/logits_base.h"
#include "engine/file_replace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static const char magic[8] = "QUERNKL1";

enum field { N_VOCAB, N_WINDOW, STEP, FIRST, N_SCORED, N_WINDOWS, BOS, N_TOKENS, FIELDS };
static const char *const field_names[FIELDS] = {"n_vocab",  "n_window",  "step", "first",
                                                "n_scored", "n_windows", "bos",  "n_tokens"};

struct logits_base {
    FILE *file; // the stream of `whole` while the file is written
    struct file_replace whole;
    bool is_written;
    char *path;
    struct text_windows windows;
    int32_t *tokens;
    size_t n_tokens;
    int n_vocab;
    int64_t n_rows, at; // number of rows, and the next row
    float *row;
};

static int io_error(const struct logits_base *b, struct error *err)
{
    return fail(err, E_IO, "%s: %s", b->path, strerror(errno));
}

static struct logits_base *make(const char *path, struct error *err)
{
    struct logits_base *b = calloc(1, sizeof *b);
    if (b && !(b->path = strdup(path))) {
        free(b);
        b = NULL;
    }
    if (!b)
        fail(err, E_MEMORY, "no memory for %s", path);
    return b;
}

void logits_base_close(struct logits_base *b)
{
    if (!b)
        return;
    if (b->is_written)
        file_replace_abort(&b->whole);
    else if (b->file)
        fclose(b->file);
    free(b->path);
    free(b->tokens);
    free(b->row);
    free(b);
}

// --- writing ---

static int put(struct logits_base *b, const void *data, size_t n, struct error *err)
{
    return fwrite(data, 1, n, b->file) == n ? 0 : io_error(b, err);
}

// Opens a temporary file, which logits_base_finish renames when it is complete.
static int open_temporary(struct logits_base *b, struct error *err)
{
    if (check_replaceable(b->path, err) || file_replace_output(&b->whole, b->path, err))
        return -1;
    b->is_written = true;
    return (b->file = file_replace_stream(&b->whole, err)) ? 0 : -1;
}

int logits_base_create(struct logits_base **out, const char *path, const struct text_windows *w, size_t n_tokens,
                       int n_vocab, struct error *err)
{
    struct logits_base *b = make(path, err);
    if (!b)
        return -1;
    b->windows = *w;
    b->n_vocab = n_vocab;
    b->n_rows = (int64_t)w->n * w->n_scored;
    int32_t head[FIELDS] = {n_vocab, w->n_window, w->step, w->first, w->n_scored, w->n, w->bos, (int32_t)n_tokens};
    if (open_temporary(b, err) || put(b, magic, sizeof magic, err) || put(b, head, sizeof head, err) ||
        put(b, w->tokens, n_tokens * sizeof *w->tokens, err)) {
        logits_base_close(b);
        return -1;
    }
    *out = b;
    return 0;
}

int logits_base_write(struct logits_base *b, const float *logits, struct error *err)
{
    b->at++;
    return put(b, logits, (size_t)b->n_vocab * sizeof *logits, err);
}

int logits_base_finish(struct logits_base *b, struct error *err)
{
    int status = 0;
    if (b->at != b->n_rows)
        status = fail(err, E_IO, "%s: %lld rows of %lld were written", b->path, (long long)b->at, (long long)b->n_rows);
    if (!status)
        status = file_replace_end(&b->whole, err);
    logits_base_close(b);
    return status;
}

// --- reading ---

static int get(struct logits_base *b, void *data, size_t n, const char *what, struct error *err)
{
    if (fread(data, 1, n, b->file) == n)
        return 0;
    return ferror(b->file) ? io_error(b, err) : fail(err, E_MODEL, "%s: ends within its %s", b->path, what);
}

// Checks that each field is within its range, which depends on the fields before it.
static int check_head(const struct logits_base *b, const int32_t head[FIELDS], struct error *err)
{
    const int32_t least[FIELDS] = {1, 4, 1, 0, 1, 1, -1, 1};
    const int64_t most[FIELDS] = {1 << 28,
                                  1 << 30,
                                  head[N_WINDOW],
                                  head[N_WINDOW] - 2,
                                  (int64_t)head[N_WINDOW] - 1 - head[FIRST],
                                  1 << 30,
                                  (int64_t)head[N_VOCAB] - 1,
                                  INT32_MAX};
    for (int i = 0; i < FIELDS; i++)
        if (head[i] < least[i] || head[i] > most[i])
            return fail_at(err, E_MODEL, sizeof magic + 4 * (size_t)i, "%s: %s is %d, must be %d to %lld", b->path,
                           field_names[i], head[i], least[i], (long long)most[i]);
    int64_t needed = (int64_t)(head[N_WINDOWS] - 1) * head[STEP] + head[N_WINDOW];
    if (needed > head[N_TOKENS])
        return fail(err, E_MODEL, "%s: %d windows need %lld tokens, it has %d", b->path, head[N_WINDOWS],
                    (long long)needed, head[N_TOKENS]);
    return 0;
}

// Checks the size of the file against the head, before memory is allocated for what the head announces.
static int check_size(const struct logits_base *b, const int32_t head[FIELDS], struct error *err)
{
    struct stat st;
    if (fstat(fileno(b->file), &st))
        return io_error(b, err);
    // the product may be close to 2^28 * 4 * 2^60, which does not fit into 64 bits, so overflow is checked
    uint64_t rows, bytes;
    bool over =
        __builtin_mul_overflow((uint64_t)head[N_WINDOWS], (uint64_t)head[N_SCORED], &rows) ||
        __builtin_mul_overflow(rows, 4 * (uint64_t)head[N_VOCAB], &bytes) ||
        __builtin_add_overflow(bytes, sizeof magic + 4 * (uint64_t)FIELDS + 4 * (uint64_t)head[N_TOKENS], &bytes);
    if (over || (S_ISREG(st.st_mode) && (uint64_t)st.st_size != bytes))
        return fail(err, E_MODEL, "%s: has %lld bytes, but its head announces %s%llu", b->path, (long long)st.st_size,
                    over ? "more than " : "", over ? (unsigned long long)UINT64_MAX : (unsigned long long)bytes);
    return 0;
}

static int read_tokens(struct logits_base *b, struct error *err)
{
    b->tokens = malloc(b->n_tokens * sizeof *b->tokens);
    b->row = malloc((size_t)b->n_vocab * sizeof *b->row);
    if (!b->tokens || !b->row)
        return fail(err, E_MEMORY, "no memory for the tokens of %s", b->path);
    if (get(b, b->tokens, b->n_tokens * sizeof *b->tokens, "tokens", err))
        return -1;
    for (size_t i = 0; i < b->n_tokens; i++)
        if (b->tokens[i] < 0 || b->tokens[i] >= b->n_vocab)
            return fail_at(err, E_MODEL, sizeof magic + 4 * (FIELDS + i), "%s: id %d of token %zu is not within %d",
                           b->path, b->tokens[i], i, b->n_vocab);
    b->windows.tokens = b->tokens;
    return 0;
}

static int read_head(struct logits_base *b, struct error *err)
{
    char start[sizeof magic];
    int32_t head[FIELDS];
    if (get(b, start, sizeof start, "head", err))
        return -1;
    if (!memcmp(start, "_logits_", sizeof magic))
        return fail_at(err, E_MODEL, 0,
                       "%s: base logits of llama-perplexity, which are cut to 16 bits; --kl-base of the base model "
                       "writes them whole",
                       b->path);
    if (memcmp(start, magic, sizeof magic))
        return fail_at(err, E_MODEL, 0, "%s: no file of base logits (these begin with QUERNKL1; --kl-base writes one)",
                       b->path);
    if (get(b, head, sizeof head, "head", err) || check_head(b, head, err) || check_size(b, head, err))
        return -1;
    b->windows = (struct text_windows){.n_window = head[N_WINDOW],
                                       .step = head[STEP],
                                       .first = head[FIRST],
                                       .n_scored = head[N_SCORED],
                                       .n = head[N_WINDOWS],
                                       .bos = head[BOS]};
    b->n_vocab = head[N_VOCAB];
    b->n_tokens = (size_t)head[N_TOKENS];
    b->n_rows = (int64_t)b->windows.n * b->windows.n_scored;
    return read_tokens(b, err);
}

int logits_base_open(struct logits_base **out, const char *path, struct error *err)
{
    struct logits_base *b = make(path, err);
    if (!b)
        return -1;
    b->file = fopen(path, "re");
    if ((!b->file && io_error(b, err)) || read_head(b, err)) {
        logits_base_close(b);
        return -1;
    }
    *out = b;
    return 0;
}

const struct text_windows *logits_base_windows(const struct logits_base *b)
{
    return &b->windows;
}

size_t logits_base_n_tokens(const struct logits_base *b)
{
    return b->n_tokens;
}

int logits_base_n_vocab(const struct logits_base *b)
{
    return b->n_vocab;
}

const float *logits_base_read(struct logits_base *b, struct error *err)
{
    if (get(b, b->row, (size_t)b->n_vocab * sizeof *b->row, "logits", err))
        return NULL;
    for (int i = 0; i < b->n_vocab; i++)
        if (!isfinite(b->row[i])) {
            fail(err, E_MODEL, "%s: row %lld holds a value that is no number", b->path, (long long)b->at);
            return NULL;
        }
    b->at++;
    return b->row;
}
