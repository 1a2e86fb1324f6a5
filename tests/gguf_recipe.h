// Builds valid and invalid GGUF files from one-line recipes, and reads everything in an opened file.
//
// A recipe is a row of words, separated by spaces:
//   header:V,T,K     magic, u32 version, u64 tensors, u64 keys
//   u8:N u16:N u32:N u64:N f32:X f64:X    a number (may be negative, or 0x...)
//   str:TEXT         u64 length and the bytes; raw:TEXT the bytes alone. \xNN is a byte, _ a space
//   key:NAME         as str:, and the type follows as u32: or by name: type:string
//   kv:NAME,TYPE,V   a key with a number as its value
//   tensor:NAME,TYPE,OFFSET,NE...  an entry; TYPE is the number of the type
//   zero:N           N bytes of zero; align:N zeros up to a multiple
//   @                marks the byte at which the error must be
// Each test links its own copy. Threads: no shared state.
#ifndef QUERN_GGUF_RECIPE_H
#define QUERN_GGUF_RECIPE_H

#include "gguf/gguf.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct blob {
    uint8_t *data;
    size_t size, room;
    uint64_t mark;
};

static inline void blob_put(struct blob *b, const void *bytes, size_t n)
{
    if (b->size + n > b->room) {
        b->room = 2 * (b->size + n) + 256;
        b->data = realloc(b->data, b->room);
        assert(b->data);
    }
    if (n > 0)
        memcpy(b->data + b->size, bytes, n);
    b->size += n;
}

static inline void blob_put_number(struct blob *b, uint64_t v, size_t bytes)
{
    blob_put(b, &v, bytes);
}

static inline void blob_put_str(struct blob *b, const char *s, size_t n)
{
    blob_put_number(b, n, 8);
    blob_put(b, s, n);
}

static inline void blob_put_zeros(struct blob *b, size_t n)
{
    while (n-- > 0)
        blob_put_number(b, 0, 1);
}

static inline void blob_free(struct blob *b)
{
    free(b->data);
    *b = (struct blob){0};
}

// "-1", "0x10", "18446744073709551615"
static inline uint64_t recipe_number(const char *s)
{
    return *s == '-' ? (uint64_t)strtoll(s, NULL, 0) : strtoull(s, NULL, 0);
}

// Undoes \xNN and _ in place; returns the length.
static inline size_t recipe_unescape(char *s)
{
    char *out = s, *start = s;
    while (*s) {
        if (s[0] == '\\' && s[1] == 'x') {
            char hex[3] = {s[2], s[3], 0};
            *out++ = (char)strtoul(hex, NULL, 16);
            s += 4;
        } else {
            *out++ = *s == '_' ? ' ' : *s;
            s++;
        }
    }
    return (size_t)(out - start);
}

static inline uint32_t recipe_type(const char *name)
{
    for (int t = 0; t < GGUF_TYPE_COUNT; t++)
        if (strcmp(name, gguf_type_name((enum gguf_type)t)) == 0)
            return (uint32_t)t;
    fprintf(stderr, "recipe: no type %s\n", name);
    abort();
}

// A number of the named type, as the file holds it.
static inline void blob_put_typed(struct blob *b, const char *type, const char *value)
{
    if (strcmp(type, "f32") == 0) {
        float f = strtof(value, NULL);
        blob_put(b, &f, 4);
    } else if (strcmp(type, "f64") == 0) {
        double d = strtod(value, NULL);
        blob_put(b, &d, 8);
    } else {
        blob_put_number(b, recipe_number(value), gguf_type_bytes((enum gguf_type)recipe_type(type)));
    }
}

// tensor:NAME,TYPE,OFFSET,NE...
static inline void blob_put_tensor(struct blob *b, char *args)
{
    char *field[7];
    int n = 0;
    for (char *s = strtok_r(args, ",", &args); s && n < 7; s = strtok_r(NULL, ",", &args))
        field[n++] = s;
    assert(n >= 3);
    size_t len = recipe_unescape(field[0]);
    blob_put_str(b, field[0], len);
    blob_put_number(b, (uint64_t)n - 3, 4);
    for (int i = 3; i < n; i++)
        blob_put_number(b, recipe_number(field[i]), 8);
    blob_put_number(b, recipe_number(field[1]), 4);
    blob_put_number(b, recipe_number(field[2]), 8);
}

static inline void blob_put_word(struct blob *b, char *word)
{
    char *arg = strchr(word, ':');
    if (strcmp(word, "@") == 0) {
        b->mark = b->size;
        return;
    }
    assert(arg);
    *arg++ = '\0';
    if (strcmp(word, "header") == 0) {
        char *rest = arg;
        blob_put(b, "GGUF", 4);
        blob_put_number(b, recipe_number(strtok_r(NULL, ",", &rest)), 4);
        blob_put_number(b, recipe_number(strtok_r(NULL, ",", &rest)), 8);
        blob_put_number(b, recipe_number(strtok_r(NULL, ",", &rest)), 8);
    } else if (strcmp(word, "str") == 0 || strcmp(word, "key") == 0) {
        size_t n = recipe_unescape(arg);
        blob_put_str(b, arg, n);
    } else if (strcmp(word, "raw") == 0) {
        size_t n = recipe_unescape(arg);
        blob_put(b, arg, n);
    } else if (strcmp(word, "kv") == 0) {
        char *rest = arg, *name = strtok_r(NULL, ",", &rest), *type = strtok_r(NULL, ",", &rest);
        blob_put_str(b, name, strlen(name));
        blob_put_number(b, recipe_type(type), 4);
        blob_put_typed(b, type, strtok_r(NULL, ",", &rest));
    } else if (strcmp(word, "type") == 0) {
        blob_put_number(b, recipe_type(arg), 4);
    } else if (strcmp(word, "tensor") == 0) {
        blob_put_tensor(b, arg);
    } else if (strcmp(word, "zero") == 0) {
        blob_put_zeros(b, recipe_number(arg));
    } else if (strcmp(word, "align") == 0) {
        blob_put_zeros(b, align_up(b->size, recipe_number(arg)) - b->size);
    } else {
        blob_put_typed(b, word, arg);
    }
}

static inline void blob_put_recipe(struct blob *b, const char *recipe)
{
    char *copy = strdup(recipe), *rest = copy;
    for (char *word; (word = strtok_r(NULL, " ", &rest)) != NULL;)
        blob_put_word(b, word);
    free(copy);
}

// ---- Files without a place on the disk ----

// Puts the bytes into a file in memory; returns its descriptor and a path under which it opens.
static inline int memory_file(const void *data, size_t size, char path[32])
{
    int fd = memfd_create("gguf", MFD_CLOEXEC);
    assert(fd >= 0);
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, (const char *)data + done, size - done);
        assert(n > 0);
        done += (size_t)n;
    }
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

static inline int gguf_open_bytes(struct gguf **g, const void *data, size_t size, unsigned flags, struct error *err)
{
    char path[32];
    int fd = memory_file(data, size, path);
    int status = gguf_open(g, path, flags, err);
    close(fd);
    return status;
}

// ---- Reading everything ----

// Touches all that an opened file gives, so that a sanitizer sees each byte; returns a sum, for the compiler's sake.
static inline uint64_t gguf_read_all(const struct gguf *g)
{
    uint64_t sum = gguf_version(g) + gguf_alignment(g) + gguf_file_bytes(g);
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        for (uint64_t k = 0; k < kv->count; k++) {
            for (size_t c = 0; kv->strings && c < kv->strings[k].len; c++)
                sum += (uint8_t)kv->strings[k].data[c];
            if (kv->data) {
                float f = gguf_array_f32(kv, k);
                sum += (uint64_t)gguf_array_i64(kv, k) + (f != f);
            }
        }
        char key[256];
        snprintf(key, sizeof key, "%.*s", STR_ARG(kv->key));
        uint32_t u;
        float f;
        bool b;
        struct str s;
        const struct gguf_kv *array;
        sum += gguf_get_u32(g, key, &u, NULL) == 1;
        sum += gguf_get_f32(g, key, &f, NULL) == 1;
        sum += gguf_get_bool(g, key, &b, NULL) == 1;
        sum += gguf_get_str(g, key, &s, NULL) == 1;
        sum += gguf_get_array(g, key, kv->element, &array, NULL) == 1;
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char name[64];
        snprintf(name, sizeof name, "%.*s", STR_ARG(t->name));
        sum += gguf_find_tensor(g, name) == t;
        if (t->data)
            sum += ((const uint8_t *)t->data)[0] + ((const uint8_t *)t->data)[t->size - 1];
    }
    return sum;
}

#endif
