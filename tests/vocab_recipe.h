// Makes vocabularies for tests in memory: valid ones, and ones that no converter would write.
//
// A recipe is a line a key, "NAME TYPE VALUE...", the values separated by spaces:
//   model str gpt2            tokens strs a b ab          scores f32s 0 -1.5 2
//   token_type i32s 1 1 3     bos_token_id u32 1          add_bos_token bool 1
// NAME follows "tokenizer.ggml." unless it starts with "general." or "tokenizer.". In strings \xNN is a byte and \s a
// space. The line that starts with @ is the one of the expected error. f32, i32, u8, u64 and their plurals exist too.
// Each test links its own copy. Threads: no shared state.
#ifndef QUERN_VOCAB_RECIPE_H
#define QUERN_VOCAB_RECIPE_H

#include "engine/text/tokenizer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct vocab_file {
    uint8_t *data;
    size_t size, room;
    uint64_t n_keys;
    uint64_t mark; // where the key after @ lies, ERR_NO_OFFSET without one
};

static inline void vocab_put(struct vocab_file *f, const void *bytes, size_t n)
{
    if (f->size + n > f->room) {
        f->room = 2 * (f->size + n) + 4096;
        f->data = realloc(f->data, f->room);
        assert(f->data);
    }
    if (n > 0)
        memcpy(f->data + f->size, bytes, n);
    f->size += n;
}

static inline void vocab_put_u32(struct vocab_file *f, uint32_t v)
{
    vocab_put(f, &v, 4);
}

static inline void vocab_put_u64(struct vocab_file *f, uint64_t v)
{
    vocab_put(f, &v, 8);
}

static inline void vocab_put_string(struct vocab_file *f, const char *s, size_t n)
{
    vocab_put_u64(f, n);
    vocab_put(f, s, n);
}

static inline void vocab_begin(struct vocab_file *f)
{
    *f = (struct vocab_file){.mark = ERR_NO_OFFSET};
    vocab_put(f, "GGUF", 4);
    vocab_put_u32(f, 3);
    vocab_put_u64(f, 0);
    vocab_put_u64(f, 0); // the keys, counted as they come
}

static inline void vocab_key(struct vocab_file *f, const char *name)
{
    char key[128];
    bool whole = strncmp(name, "general.", 8) == 0 || strncmp(name, "tokenizer.", 10) == 0;
    snprintf(key, sizeof key, "%s%s", whole ? "" : "tokenizer.ggml.", name);
    vocab_put_string(f, key, strlen(key));
    f->n_keys++;
}

static inline void vocab_key_str(struct vocab_file *f, const char *name, const char *value)
{
    vocab_key(f, name);
    vocab_put_u32(f, GGUF_STRING);
    vocab_put_string(f, value, strlen(value));
}

static inline void vocab_key_u32(struct vocab_file *f, const char *name, uint32_t value)
{
    vocab_key(f, name);
    vocab_put_u32(f, GGUF_U32);
    vocab_put_u32(f, value);
}

// An array of n elements; its bytes follow.
static inline void vocab_key_array(struct vocab_file *f, const char *name, enum gguf_type element, uint64_t n)
{
    vocab_key(f, name);
    vocab_put_u32(f, GGUF_ARRAY);
    vocab_put_u32(f, element);
    vocab_put_u64(f, n);
}

// Undoes \xNN and \s in place; returns the length.
static inline size_t vocab_unescape(char *s)
{
    char *out = s, *start = s;
    while (*s) {
        if (s[0] == '\\' && s[1] == 'x') {
            char hex[3] = {s[2], s[3], 0};
            *out++ = (char)strtoul(hex, NULL, 16);
            s += 4;
        } else if (s[0] == '\\' && s[1] == 's') {
            *out++ = ' ';
            s += 2;
        } else if (s[0] == '\\' && s[1] == 'e') {
            s += 2;
        } else {
            *out++ = *s++;
        }
    }
    return (size_t)(out - start);
}

static inline void vocab_put_value(struct vocab_file *f, enum gguf_type type, char *value)
{
    if (type == GGUF_STRING) {
        size_t n = vocab_unescape(value);
        vocab_put_string(f, value, n);
    } else if (type == GGUF_F32) {
        float v = strtof(value, NULL);
        vocab_put(f, &v, 4);
    } else {
        uint64_t v = *value == '-' ? (uint64_t)strtoll(value, NULL, 0) : strtoull(value, NULL, 0);
        vocab_put(f, &v, type == GGUF_U64 ? 8 : type == GGUF_U8 || type == GGUF_BOOL ? 1 : 4);
    }
}

static inline void vocab_put_line(struct vocab_file *f, char *line)
{
    static const struct {
        const char *name;
        enum gguf_type type;
    } types[] = {{"str", GGUF_STRING}, {"f32", GGUF_F32}, {"i32", GGUF_I32},  {"u32", GGUF_U32},
                 {"u8", GGUF_U8},      {"u64", GGUF_U64}, {"bool", GGUF_BOOL}};
    char *rest = line, *name = strtok_r(NULL, " ", &rest), *type = strtok_r(NULL, " ", &rest), *values[300];
    assert(name && type);
    if (*name == '@') {
        f->mark = f->size;
        name++;
    }
    size_t n = 0, len = strlen(type);
    for (char *v; (v = strtok_r(NULL, " ", &rest)) != NULL; n++) {
        assert(n < COUNT_OF(values));
        values[n] = v;
    }
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        bool plural = len == strlen(types[i].name) + 1 && type[len - 1] == 's';
        if (strncmp(type, types[i].name, strlen(types[i].name)) != 0 || (!plural && len != strlen(types[i].name)))
            continue;
        vocab_key(f, name);
        if (plural) {
            vocab_put_u32(f, GGUF_ARRAY);
            vocab_put_u32(f, types[i].type);
            vocab_put_u64(f, n);
        } else {
            vocab_put_u32(f, types[i].type);
        }
        for (size_t k = 0; k < n; k++)
            vocab_put_value(f, types[i].type, values[k]);
        return;
    }
    fprintf(stderr, "recipe: no type %s\n", type);
    abort();
}

static inline void vocab_put_recipe(struct vocab_file *f, const char *recipe)
{
    char *copy = strdup(recipe), *rest = copy;
    assert(copy);
    for (char *line; (line = strtok_r(NULL, "\n", &rest)) != NULL;)
        vocab_put_line(f, line);
    free(copy);
}

// Puts the file where it can be opened; returns its descriptor and a path. Frees the bytes.
static inline int vocab_memory_file(struct vocab_file *f, char path[32])
{
    memcpy(f->data + 16, &f->n_keys, 8);
    int fd = memfd_create("vocab", MFD_CLOEXEC);
    assert(fd >= 0);
    for (size_t done = 0; done < f->size;) {
        ssize_t n = write(fd, f->data + done, f->size - done);
        assert(n > 0);
        done += (size_t)n;
    }
    free(f->data);
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

// Opens the file and loads its vocabulary; frees the file.
static inline int vocab_load(struct vocab_file *f, unsigned flags, struct tokenizer **t, struct error *err)
{
    char path[32];
    int fd = vocab_memory_file(f, path);
    struct gguf *g = NULL;
    *t = NULL;
    int status = gguf_open(&g, path, GGUF_METADATA_ONLY, err);
    if (status == 0)
        status = tokenizer_load(t, g, flags, err);
    gguf_close(g);
    close(fd);
    return status;
}

// A recipe that must load.
static inline struct tokenizer *vocab_from(const char *recipe)
{
    struct vocab_file f;
    struct tokenizer *t;
    struct error err = {0};
    vocab_begin(&f);
    vocab_put_recipe(&f, recipe);
    if (vocab_load(&f, 0, &t, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return t;
}

// --- random numbers, the same for the same seed ---

static inline uint64_t random_next(uint64_t *state)
{
    *state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static inline size_t random_below(uint64_t *state, size_t n)
{
    return (size_t)(random_next(state) % n);
}

#endif
