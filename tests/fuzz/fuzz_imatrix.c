// Fuzz target: any bytes as an importance matrix, a GGUF or the older form. What is taken is proven: every entry is
// found by its name, its means are numbers of 0 or more, and what is written of it is read back the same; an error says
// what is wrong in one clean line.
//
// With -DFUZZ_SEEDS it is a program that writes a few sound files into the directory that it is given, to start from.
#include "engine/quantize/importance.h"
#include "tests/gguf_recipe.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_imatrix: %s\n", what);
    abort();
}

static void check_error(const struct error *err)
{
    check(err->code == E_MODEL || err->code == E_USAGE, "an odd error code");
    check(strlen(err->text) > 0 && utf8_valid(str_from(err->text)), "an odd error text");
    for (const char *c = err->text; *c; c++)
        check((unsigned char)*c >= 0x20 && *c != 0x7F, "a control character in an error");
}

static void check_entry(const struct importance *m, const struct importance_entry *e)
{
    check(importance_find(m, str_from(e->name)) == e, "an entry that its name does not find");
    check(e->n_columns > 0 && e->n_matrices > 0, "an entry without values");
    float *weights = malloc((size_t)e->n_columns * sizeof *weights);
    for (int64_t i = 0; i < e->n_matrices; i++) {
        check(e->counts[i] >= 0, "a negative count");
        importance_weights(e, i, weights);
        for (int64_t j = 0; j < e->n_columns; j++)
            check(weights[j] > 0 && isfinite(weights[j]), "a weight that is no number, or not positive");
    }
    free(weights);
}

static void check_same(const struct importance *a, const struct importance *b)
{
    check(a->n == b->n, "the copy has more or fewer entries");
    for (int i = 0; i < a->n; i++) {
        const struct importance_entry *x = &a->entries[i], *y = importance_find(b, str_from(x->name));
        check(y && x->n_columns == y->n_columns && x->n_matrices == y->n_matrices, "the copy has other entries");
        check(!memcmp(x->sums, y->sums, (size_t)(x->n_columns * x->n_matrices) * sizeof *x->sums),
              "the copy has other sums");
    }
}

// What has been read can be written, unless a name is too long for a GGUF; then the writer says so.
static void check_copy(const struct importance *m, const char *path)
{
    struct importance again;
    struct error err;
    if (importance_write(m, path, &err)) {
        check(strlen(err.text) > 0, "it is not written, and nothing is said");
        return;
    }
    check(importance_read(&again, path, &err) == 0, err.text);
    check_same(m, &again);
    importance_free(&again);
    unlink(path);
}

static void put_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    check(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0, "a file cannot be written");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct importance m;
    struct error err;
    snprintf(path, sizeof path, "/tmp/fuzz-imatrix-%ld", (long)getpid());
    put_file(path, data, size);
    int status = importance_read(&m, path, &err);
    unlink(path);
    if (status) {
        check_error(&err);
        return 0;
    }
    for (int i = 0; i < m.n; i++)
        check_entry(&m, &m.entries[i]);
    check_copy(&m, path);
    if (importance_merge(&m, &m, &err))
        check_error(&err);
    else
        for (int i = 0; i < m.n; i++)
            check_entry(&m, &m.entries[i]);
    importance_free(&m);
    return 0;
}

#ifdef FUZZ_SEEDS
int main(int argc, char **argv)
{
    static const char *const recipes[] = {
        "header:3,2,1 kv:imatrix.chunk_count,u32,5 tensor:a.weight.in_sum2,0,0,2 tensor:a.weight.counts,0,32,1 align:32 "
        "f32:1 f32:2 align:32 f32:7",
        "header:3,2,4 key:general.type type:string str:imatrix key:imatrix.datasets type:array type:string u64:1 "
        "str:text kv:imatrix.chunk_count,u32,5 kv:imatrix.chunk_size,u32,512 tensor:e.in_sum2,0,0,3,2 "
        "tensor:e.counts,0,32,1,2 align:32 f32:1 f32:2 f32:3 f32:0 f32:0 f32:0 align:32 f32:7 f32:0",
        // the older form: a count; length, name, calls, number of values, values
        "u32:2 u32:1 raw:x u32:9 u32:2 f32:1 f32:0.5 u32:2 raw:yz u32:1 u32:1 f32:3",
    };
    for (size_t i = 0; argc > 1 && i < COUNT_OF(recipes); i++) {
        char path[512];
        struct blob b = {0};
        snprintf(path, sizeof path, "%s/seed%zu", argv[1], i);
        blob_put_recipe(&b, recipes[i]);
        put_file(path, b.data, b.size);
        blob_free(&b);
    }
    return 0;
}
#endif
