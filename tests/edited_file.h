// Copies of good model files with a few edits, for tests of files that are well formed but invalid. Errors of these helpers
// fail the test. Ownership: nothing is kept. Threads: any.
#ifndef QUERN_EDITED_FILE_H
#define QUERN_EDITED_FILE_H

#include "gguf/gguf.h"
#include "gguf/writer.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

// Edits are words, separated by spaces:
//   u32:KEY,N i32:KEY,N u64:KEY,N f32:KEY,X bool:KEY,N str:KEY,S   sets a key (adds it where there is none)
//   u32s:KEY,N,N..  bools:KEY,N,N..   an array; strs:KEY,N an array of N empty strings
//   no:KEY            takes the key out
//   shape:TENSOR,N,N..  dtype:TENSOR,TYPE  fill:TENSOR,X  name:TENSOR,NEW  drop:TENSOR
enum { EDITS_MAX = 32, NUMBERS_MAX = 80 };

struct edit {
    char verb[8], name[80], arg[160];
};

struct edits {
    struct edit list[EDITS_MAX];
    bool done[EDITS_MAX];
    int n;
};

static inline struct edits parse_edits(const char *text)
{
    struct edits e = {0};
    for (const char *word = text; *word; word += strcspn(word, " "), word += *word == ' ') {
        cr_assert_lt(e.n, EDITS_MAX);
        struct edit *to = &e.list[e.n++];
        char copy[256];
        snprintf(copy, sizeof copy, "%.*s", (int)strcspn(word, " "), word);
        int fields = sscanf(copy, "%7[^:]:%79[^,],%159s", to->verb, to->name, to->arg);
        cr_assert_geq(fields, 2, "%s", copy);
    }
    return e;
}

static inline bool is_verb(const struct edit *e, const char *verbs)
{
    char padded[16];
    snprintf(padded, sizeof padded, " %s ", e->verb);
    return strstr(verbs, padded) != NULL;
}

static inline struct edit *find_edit(struct edits *e, struct str name, const char *verbs)
{
    for (int i = 0; i < e->n; i++)
        if (str_equal_z(name, e->list[i].name) && is_verb(&e->list[i], verbs)) {
            e->done[i] = true;
            return &e->list[i];
        }
    return NULL;
}

static inline int parse_numbers(const char *arg, int64_t *out)
{
    int n = 0;
    for (char *end; *arg && n < NUMBERS_MAX; arg = *end ? end + 1 : end)
        out[n++] = strtoll(arg, &end, 0);
    return n;
}

static inline void write_edited_key(struct gguf_writer *w, const struct edit *e)
{
    static const struct {
        const char *verb;
        enum gguf_type type;
    } types[] = {{" u32 ", GGUF_U32}, {" i32 ", GGUF_I32}, {" u64 ", GGUF_U64}, {" bool ", GGUF_BOOL}};
    int64_t v[NUMBERS_MAX] = {0};
    int n = parse_numbers(e->arg, v);
    if (is_verb(e, " f32 ")) {
        gguf_write_f32(w, e->name, strtof(e->arg, NULL));
    } else if (is_verb(e, " str ")) {
        gguf_write_str(w, e->name, str_from(e->arg));
    } else if (is_verb(e, " u32s ")) {
        uint32_t words[NUMBERS_MAX];
        for (int i = 0; i < n; i++)
            words[i] = (uint32_t)v[i];
        gguf_write_array(w, e->name, GGUF_U32, words, (size_t)n);
    } else if (is_verb(e, " bools ")) {
        uint8_t flags[NUMBERS_MAX];
        for (int i = 0; i < n; i++)
            flags[i] = (uint8_t)v[i];
        gguf_write_array(w, e->name, GGUF_BOOL, flags, (size_t)n);
    } else if (is_verb(e, " strs ")) {
        struct str *empty = calloc((size_t)v[0] + 1, sizeof *empty);
        cr_assert_not_null(empty);
        for (int64_t i = 0; i < v[0]; i++)
            empty[i] = STR_LIT("");
        gguf_write_str_array(w, e->name, empty, (size_t)v[0]);
        free(empty);
    }
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (is_verb(e, types[i].verb))
            gguf_write_kv(w, &(struct gguf_kv){.key = str_from(e->name),
                                               .type = types[i].type,
                                               .element = types[i].type,
                                               .count = 1,
                                               .data = (const uint8_t *)v});
}

#define KEY_VERBS " u32 i32 u64 f32 bool str u32s bools strs no "

static inline void write_keys(struct gguf_writer *w, const struct gguf *g, struct edits *e)
{
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        if (!find_edit(e, gguf_kv_at(g, i)->key, KEY_VERBS))
            gguf_write_kv(w, gguf_kv_at(g, i));
    for (int i = 0; i < e->n; i++)
        if (is_verb(&e->list[i], KEY_VERBS)) {
            cr_assert(e->done[i] || !is_verb(&e->list[i], " no "), "no key %s", e->list[i].name);
            e->done[i] = true;
            write_edited_key(w, &e->list[i]);
        }
}

static inline int64_t element_count(const int64_t *ne)
{
    return ne[0] * ne[1] * ne[2] * ne[3];
}

// The tensor as it will be; its data is NULL where there are as many zeros, or `fill`s.
static inline struct gguf_tensor edited_tensor(const struct gguf_tensor *t, struct edits *e, float *fill)
{
    struct gguf_tensor out = *t;
    const struct edit *renamed = find_edit(e, t->name, " name "), *typed = find_edit(e, t->name, " dtype ");
    const struct edit *shaped = find_edit(e, t->name, " shape "), *filled = find_edit(e, t->name, " fill ");
    if (renamed)
        out.name = str_from(renamed->arg);
    if (typed)
        cr_assert_eq(dtype_from_name(str_from(typed->arg), &out.type), 0, "%s", typed->arg);
    if (shaped) {
        for (int i = 0; i < 4; i++)
            out.ne[i] = 1;
        int64_t ne[NUMBERS_MAX];
        out.n_dims = parse_numbers(shaped->arg, ne);
        memcpy(out.ne, ne, (size_t)out.n_dims * sizeof *ne);
    }
    *fill = filled ? strtof(filled->arg, NULL) : 0;
    if (typed || shaped || filled)
        out.data = NULL;
    out.size = dtype_row_bytes(out.type, out.ne[0]) * (size_t)(element_count(out.ne) / out.ne[0]);
    return out;
}

static inline int write_file(const char *path, const struct gguf *g, struct edits *e, struct error *err)
{
    struct gguf_writer *w;
    if (gguf_writer_open(&w, path, err) != 0)
        return -1;
    write_keys(w, g, e);
    size_t n = 0;
    struct gguf_tensor *list = calloc(gguf_n_tensors(g), sizeof *list);
    float *fills = calloc(gguf_n_tensors(g), sizeof *fills);
    cr_assert(list && fills);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (find_edit(e, t->name, " drop "))
            continue;
        list[n] = edited_tensor(t, e, &fills[n]);
        char name[80];
        snprintf(name, sizeof name, "%.*s", STR_ARG(list[n].name));
        if (gguf_write_tensor_info(w, name, list[n].type, list[n].n_dims, list[n].ne, err) != 0)
            goto failed;
        n++;
    }
    for (size_t i = 0; i < n; i++) {
        void *made = list[i].data ? NULL : calloc(1, list[i].size);
        for (size_t k = 0; made && fills[i] != 0 && k < list[i].size / 4; k++)
            ((float *)made)[k] = fills[i];
        int status = gguf_write_data(w, made ? made : list[i].data, list[i].size, err);
        free(made);
        if (status != 0)
            goto failed;
    }
    free(list);
    free(fills);
    for (int i = 0; i < e->n; i++)
        cr_assert(e->done[i], "no tensor %s", e->list[i].name);
    return gguf_writer_close(w, err);
failed:
    free(list);
    free(fills);
    gguf_writer_abort(w);
    return -1;
}

// The tests write and sync thousands of small files, in memory if there is such a folder.
#endif
