// The forms in which `quern embed` writes vectors:
//   json   one object, as /v1/embeddings answers: {"object": "list", "data": [{"index": 0, "embedding": [...]}, ...], ...}
//   jsonl  one line a text: {"index": 0, "embedding": [...]}
//   array  a list of lists of numbers
//   npy    a NumPy file of float32, (texts, width); with --pooling none (tokens, width)
//   raw    the same numbers without a header
// Scores of a reranker stand in place of vectors as "score", a number, or "scores", a list of several.
#include "cmd/embed/embed.h"
#include "cmd/outputs.h"
#include "cmd/terminal/terminal.h"
#include "engine/file_replace.h"
#include "engine/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum form { FORM_AUTO, FORM_JSON, FORM_JSONL, FORM_ARRAY, FORM_NPY, FORM_RAW };

// Where bytes go: a file that appears when it is whole, or stdout.
struct sink {
    struct file_replace file;
    bool to_file;
    struct text pending;
};
enum { PENDING_MAX = 1 << 16 };

static int sink_write(struct sink *s, const void *data, size_t n, struct error *err)
{
    return s->to_file ? file_replace_write(&s->file, data, n, err) : terminal_write((struct str){data, n}, err);
}

static int sink_flush(struct sink *s, struct error *err)
{
    if (s->pending.failed)
        return fail(err, E_MEMORY, "no memory for the output");
    const struct str json = {s->pending.data, s->pending.size};
    int status = 0;
    if (json.len)
        status = s->to_file ? sink_write(s, json.data, json.len, err) : terminal_write_json(json, err);
    s->pending.size = 0;
    return status;
}

static void print_vector(struct text *out, const float *v, int n)
{
    text_print(out, "[");
    for (int i = 0; i < n; i++) {
        text_print(out, i ? ", " : "");
        text_print_float32(out, v[i]);
    }
    text_print(out, "]");
}

// What belongs to a text: its vector, a list of vectors of its tokens, or its scores.
static void print_value(struct text *out, const struct embed_result *r, const float *v, int rows)
{
    if (r->by_token) {
        text_print(out, "[");
        for (int i = 0; i < rows; i++) {
            text_print(out, i ? ", " : "");
            print_vector(out, v + (ptrdiff_t)i * r->width, r->width);
        }
        text_print(out, "]");
    } else if (r->scores && r->width == 1) {
        text_print_float32(out, v[0]);
    } else {
        print_vector(out, v, r->width);
    }
}

static void print_row(struct text *out, const struct embed_result *r, size_t i, const float *v, bool object)
{
    const struct embed_text *t = &r->texts->at[i];
    text_print(out, "{");
    if (t->id.len) {
        text_print(out, "\"id\": ");
        text_append(out, t->id);
        text_print(out, ", ");
    }
    if (object)
        text_print(out, "\"object\": \"%s\", ", r->scores ? "score" : "embedding");
    text_print(out, "\"index\": %zu, \"%s\": ", i, !r->scores ? "embedding" : r->width == 1 ? "score" : "scores");
    print_value(out, r, v, t->n);
    text_print(out, "}");
}

static int write_rows(struct sink *s, const struct embed_result *r, enum form form, struct error *err)
{
    const float *v = r->vectors;
    for (size_t i = 0; i < r->texts->n; i++) {
        const int rows = r->by_token ? r->texts->at[i].n : 1;
        if (form != FORM_JSONL)
            text_print(&s->pending, i ? ",\n " : "");
        if (form == FORM_ARRAY)
            print_value(&s->pending, r, v, rows);
        else
            print_row(&s->pending, r, i, v, form == FORM_JSON);
        if (form == FORM_JSONL)
            text_print(&s->pending, "\n");
        v += (ptrdiff_t)rows * r->width;
        if (s->pending.size > PENDING_MAX && sink_flush(s, err))
            return -1;
    }
    return 0;
}

static int write_json(struct sink *s, const struct embed_result *r, struct error *err)
{
    const size_t n = r->texts->tokens.n;
    text_print(&s->pending, "{\"object\": \"list\", \"model\": ");
    terminal_print_json(&s->pending, str_from(r->model));
    text_print(&s->pending, ",\n \"data\": [\n ");
    if (write_rows(s, r, FORM_JSON, err))
        return -1;
    text_print(&s->pending, "],\n \"usage\": {\"prompt_tokens\": %zu, \"total_tokens\": %zu}}\n", n, n);
    return 0;
}

static int write_text(struct sink *s, const struct embed_result *r, enum form form, struct error *err)
{
    if (form == FORM_JSON)
        return write_json(s, r, err) ? -1 : sink_flush(s, err);
    if (form == FORM_ARRAY)
        text_print(&s->pending, "[");
    if (write_rows(s, r, form, err))
        return -1;
    if (form == FORM_ARRAY)
        text_print(&s->pending, "]\n");
    return sink_flush(s, err);
}

// The header of a NumPy file, version 1: magic, its length, a dict in Python's form, filled with spaces to 64 bytes.
static int write_npy_header(struct sink *s, size_t rows, int width, struct error *err)
{
    char dict[118];
    int n = snprintf(dict, sizeof dict, "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %d), }", rows, width);
    memset(dict + n, ' ', sizeof dict - (size_t)n);
    dict[sizeof dict - 1] = '\n';
    const unsigned char magic[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, sizeof dict, 0};
    return sink_write(s, magic, sizeof magic, err) ? -1 : sink_write(s, dict, sizeof dict, err);
}

static int write_form(struct sink *s, const struct embed_result *r, enum form form, struct error *err)
{
    const size_t rows = r->by_token ? r->texts->tokens.n : r->texts->n;
    if (form < FORM_NPY)
        return write_text(s, r, form, err);
    if (form == FORM_NPY && write_npy_header(s, rows, r->width, err))
        return -1;
    return sink_write(s, r->vectors, rows * (size_t)r->width * sizeof(float), err);
}

// The form that the flags or the name of the file ask for.
static enum form form_of(const struct options *o)
{
    static const struct {
        const char *end;
        enum form form;
    } ends[] = {{".npy", FORM_NPY}, {".jsonl", FORM_JSONL}, {".f32", FORM_RAW}, {".raw", FORM_RAW}, {".bin", FORM_RAW}};
    if (o->embed_form != FORM_AUTO)
        return (enum form)o->embed_form;
    const size_t len = o->out ? strlen(o->out) : 0;
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        if (len > strlen(ends[i].end) && !strcmp(o->out + len - strlen(ends[i].end), ends[i].end))
            return ends[i].form;
    return FORM_JSON;
}

int embed_check_output(const struct options *o, struct error *err)
{
    return form_of(o) >= FORM_NPY ? outputs_check_terminal(o->out ? o->out : "-", err) : 0;
}

int embed_write(const struct embed_result *r, const struct options *o, struct error *err)
{
    struct sink s = {.to_file = o->out && strcmp(o->out, "-")};
    if (s.to_file && file_replace_output(&s.file, o->out, err))
        return -1;
    int status = write_form(&s, r, form_of(o), err);
    if (s.to_file && !status)
        status = file_replace_end(&s.file, err);
    if (s.to_file && status)
        file_replace_abort(&s.file);
    text_free(&s.pending);
    return status;
}
