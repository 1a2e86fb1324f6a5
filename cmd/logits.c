// quern logits: computes the logits of every token of a list.
//
// A logits file is, little-endian: int32 n_tokens, int32 n_vocab, int32 ids[n_tokens], float32
// logits[n_tokens][n_vocab].
#include "cmd/load.h"
#include "cmd/confine.h"
#include "cmd/terminal/terminal.h"
#include "engine/file_replace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int read_exactly(FILE *f, const char *path, void *dst, size_t n, const char *what, struct error *err)
{
    if (fread(dst, 1, n, f) == n)
        return 0;
    if (ferror(f))
        return fail(err, E_IO, "%s: %s", path, strerror(errno));
    return fail(err, E_MODEL, "%s: ends within its %s", path, what);
}

// Reads only the ids of a logits file. They are read in pieces, so that a false count in the header cannot make it
// allocate more than the file holds.
static int read_ids(const char *path, int n_vocab, struct token_list *ids, struct error *err)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return fail(err, E_IO, "%s: %s", path, strerror(errno));
    int32_t head[2];
    int status = read_exactly(f, path, head, sizeof head, "two counts", err);
    if (!status && head[0] < 1)
        status = fail_at(err, E_MODEL, 0, "%s: n_tokens is %d, must be 1 or more", path, head[0]);
    for (int i = 0; !status && i < head[0]; i++) {
        int32_t id;
        status = read_exactly(f, path, &id, sizeof id, "ids", err);
        if (!status && (id < 0 || id >= n_vocab))
            status = fail_at(err, E_MODEL, 8 + 4 * (uint64_t)i, "%s: id %d of token %d is not in the vocabulary of %d",
                             path, id, i, n_vocab);
        if (!status)
            status = token_list_push(ids, id, err);
    }
    fclose(f);
    return status;
}

static int write_exactly(FILE *f, const char *path, const void *src, size_t n, struct error *err)
{
    return fwrite(src, 1, n, f) == n ? 0 : fail(err, E_IO, "%s: %s", path, strerror(errno));
}

// Computes and writes every row, one chunk of the prompt at a time.
static int write_rows(struct session *s, const struct token_list *ids, int n_vocab, FILE *f, const char *path,
                      struct error *err)
{
    int n_batch = session_n_batch(s);
    struct session_row *rows = calloc((size_t)n_batch, sizeof *rows);
    int status = rows ? 0 : fail(err, E_MEMORY, "no memory for %d rows", n_batch);
    for (size_t at = 0; !status && at < ids->n;) {
        int n = (int)MIN(ids->n - at, (size_t)n_batch);
        if (atomic_load(&terminal_interrupted)) {
            status = fail(err, E_INTERRUPTED, "interrupted");
            break;
        }
        for (int i = 0; i < n; i++)
            rows[i] = (struct session_row){ids->ids[at + (size_t)i], 0, true};
        status = session_step(s, rows, n, err);
        for (int i = 0; !status && i < n; i++)
            status = write_exactly(f, path, session_logits(s, i), (size_t)n_vocab * sizeof(float), err);
        at += (size_t)n;
    }
    free(rows);
    return status;
}

static int write_all(struct session *s, const struct token_list *ids, int n_vocab, FILE *f, const char *path,
                     struct error *err)
{
    const int32_t head[2] = {(int32_t)ids->n, n_vocab};
    if (write_exactly(f, path, head, sizeof head, err) ||
        write_exactly(f, path, ids->ids, ids->n * sizeof *ids->ids, err) || write_rows(s, ids, n_vocab, f, path, err))
        return -1;
    return fflush(f) ? fail(err, E_IO, "%s: %s", path, strerror(errno)) : 0;
}

// The file gets its name when it is whole, so that a half-written one is not mistaken for it.
static int write_file(struct session *s, const struct token_list *ids, int n_vocab, const char *path, struct error *err)
{
    struct file_replace whole;
    terminal_set_phase(PHASE_ANSWERING);
    if (!strcmp(path, "-"))
        return write_all(s, ids, n_vocab, stdout, "stdout", err);
    if (file_replace_output(&whole, path, err))
        return -1;
    FILE *f = file_replace_stream(&whole, err);
    if (f && !write_all(s, ids, n_vocab, f, path, err))
        return file_replace_end(&whole, err);
    file_replace_abort(&whole);
    return -1;
}

static int logits(const struct options *o, struct error *err)
{
    if (o->args.n)
        return fail(err, E_USAGE, "%s: logits takes no argument but flags", o->args.at[0]);
    if (!o->ids || !o->out)
        return fail(err, E_USAGE, "logits needs --ids FILE and -o OUT");
    struct loaded l;
    struct token_list ids = {0};
    int status = load_model(&l, o, err);
    if (!status)
        status = read_ids(o->ids, l.model->info.n_vocab, &ids, err);
    if (!status && o->given[OPT_n_ctx] && o->n_ctx && ids.n > (size_t)o->n_ctx)
        status = fail(err, E_USAGE, "%s: %zu tokens, limit %lld; -c sets it", o->ids, ids.n, (long long)o->n_ctx);
    if (!status)
        status = load_session(&l, o, (int64_t)ids.n, -1, err);
    if (!status)
        status = write_file(l.session, &ids, l.model->info.n_vocab, o->out, err);
    if (!status)
        status = load_finish_taps(&l, err);
    token_list_free(&ids);
    load_close(&l);
    return status;
}

int cmd_logits(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    if (options_parse(&o, VERB_LOGITS, argc, argv, &err))
        return verb_fail(&err);
    confine(&o);
    int status = logits(&o, &err);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
