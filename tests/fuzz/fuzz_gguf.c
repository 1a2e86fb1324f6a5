// Fuzz target: any bytes as a GGUF file. What opens is read from end to end, and written again: a file that this reader
// accepts must be one that the writer can make, and the copy must open with the same contents.
//
//   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -D_GNU_SOURCE tests/fuzz/fuzz_gguf.c \
//       gguf/base.c gguf/dtype*.c gguf/gguf*.c gguf/writer.c -lm -o fuzz_gguf
//   ./fuzz_gguf -max_len=4096 -rss_limit_mb=512 -timeout=2 CORPUS
// With -DFUZZ_SEEDS it is a program that writes a few sound files into the directory that it is given, to start from.
#include "gguf/writer.h"
#include "tests/fuzz/mutate_gguf.h"
#include "tests/gguf_recipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_gguf: %s\n", what);
    abort();
}

static void copy(const struct gguf *g, const char *path)
{
    struct gguf_writer *w;
    struct error err;
    check(gguf_writer_open(&w, path, &err) == 0, "the copy cannot be created");
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        gguf_write_kv(w, gguf_kv_at(g, i));
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char name[64];
        snprintf(name, sizeof name, "%.*s", STR_ARG(t->name));
        check(gguf_write_tensor_info(w, name, t->type, t->n_dims, t->ne, &err) == 0, err.text);
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        check(gguf_write_data(w, t->data, t->size, &err) == 0, err.text);
    }
    check(gguf_writer_close(w, &err) == 0, err.text);
}

static void check_same(const struct gguf *a, const struct gguf *b)
{
    check(gguf_n_kv(a) == gguf_n_kv(b) && gguf_n_tensors(a) == gguf_n_tensors(b), "the copy has other counts");
    for (size_t i = 0; i < gguf_n_kv(a); i++) {
        const struct gguf_kv *x = gguf_kv_at(a, i), *y = gguf_kv_at(b, i);
        check(str_equal(x->key, y->key) && x->type == y->type && x->element == y->element && x->count == y->count,
              "the copy has other keys");
        for (uint64_t k = 0; x->strings && k < x->count; k++)
            check(str_equal(x->strings[k], y->strings[k]), "the copy has other strings");
        if (!x->strings && x->count > 0)
            check(memcmp(x->data, y->data, x->count * gguf_type_bytes(x->element)) == 0, "the copy has other numbers");
    }
    for (size_t i = 0; i < gguf_n_tensors(a); i++) {
        const struct gguf_tensor *x = gguf_tensor_at(a, i), *y = gguf_tensor_at(b, i);
        check(str_equal(x->name, y->name) && x->type == y->type && memcmp(x->ne, y->ne, sizeof x->ne) == 0 &&
                  x->size == y->size && memcmp(x->data, y->data, x->size) == 0,
              "the copy has other tensors");
    }
}

// An error says what is wrong, in one clean line.
static void check_error(const struct error *err)
{
    check(err->code == E_MODEL || err->code == E_IO, "an odd error code");
    check(strlen(err->text) > 0 && strlen(err->text) < ERR_TEXT && utf8_valid(str_from(err->text)),
          "an odd error text");
    for (const char *c = err->text; *c; c++)
        check((unsigned char)*c >= 0x20 && *c != 0x7F, "a control character in an error");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g, *again;
    struct error err;
    if (gguf_open_bytes(&g, data, size, size % 2 ? GGUF_NO_MMAP : 0, &err) != 0) {
        check_error(&err);
        return 0;
    }
    gguf_read_all(g);
    char path[64];
    const char *folder = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm"; // in memory: the copy is synced
    snprintf(path, sizeof path, "%s/fuzz-gguf-%ld.gguf", folder, (long)getpid());
    copy(g, path);
    check(gguf_open(&again, path, 0, &err) == 0, err.text);
    check_same(g, again);
    gguf_close(again);
    gguf_close(g);
    unlink(path);
    return 0;
}

#ifndef FUZZ_SEEDS
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    return mutate_gguf(data, size, max, seed, LLVMFuzzerMutate);
}
#endif

#ifdef FUZZ_SEEDS
int main(int argc, char **argv)
{
    static const char *const recipes[] = {
        "header:3,0,0",
        "header:2,1,1 kv:k,u32,5 tensor:t,0,0,2 align:32 f32:1 f32:2",
        "header:3,2,1 kv:general.alignment,u32,1 tensor:a,24,0,3 tensor:b,2,3,32,2 raw:xyz zero:36",
        "header:3,0,4 key:s type:string str:text key:ss type:array type:string u64:2 str:a str:\\xFF "
        "key:bb type:array type:bool u64:2 u8:0 u8:1 kv:f,f64,2.5",
        "header:3,2,2 kv:split.no,u16,0 kv:split.count,u16,0 tensor:q,12,0,256 tensor:r,30,160,8,1,2,1 align:32 "
        "zero:192",
    };
    for (size_t i = 0; argc > 1 && i < COUNT_OF(recipes); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed%zu", argv[1], i);
        struct blob b = {0};
        blob_put_recipe(&b, recipes[i]);
        FILE *f = fopen(path, "wb");
        check(f && fwrite(b.data, 1, b.size, f) == b.size && fclose(f) == 0, "a seed cannot be written");
        blob_free(&b);
    }
    return 0;
}
#endif
