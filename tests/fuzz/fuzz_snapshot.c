// Fuzz target: any bytes as a file of computed state. What is taken is proven: the tokens are within the vocabulary and
// the context, no more pages are appended than there are, and an error says what is wrong.
//
// The session is one of this file's, with pages of 64 bytes. Checksums are nothing that mutation finds: the first byte
// says which of them, and the key, are put right before the file is read.
// With -DFUZZ_SEEDS it is a program that writes a few sound files into the directory that it is given, to start from.
#include "kernels/cpu.h"
#include "engine/snapshot.h"
#include "tests/gguf_recipe.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_snapshot: %s\n", what);
    abort();
}

// --- the session, as far as snapshots know it ---

enum { PAGE_BYTES = 64, STATE_BYTES = 24, N_VOCAB = 100, N_CTX = 300 };

struct session {
    int length;
    int32_t tokens[N_CTX];
};

size_t session_page_bytes(const struct session *s)
{
    (void)s;
    return PAGE_BYTES;
}
void session_kv_types(const struct session *s, enum dtype out[2])
{
    (void)s;
    out[0] = out[1] = DT_F16;
}
bool session_is_whole(const struct session *s, int seq)
{
    (void)s, (void)seq;
    return true;
}
int session_length(const struct session *s, int seq)
{
    (void)seq;
    return s->length;
}
int session_n_ctx(const struct session *s)
{
    (void)s;
    return N_CTX;
}
const int32_t *session_tokens(const struct session *s, int seq)
{
    (void)seq;
    return s->tokens;
}
bool session_truncate(struct session *s, int seq, int n)
{
    (void)seq;
    s->length = n;
    return true;
}
size_t session_state_bytes(const struct session *s)
{
    (void)s;
    return STATE_BYTES;
}
int session_state_get(struct session *s, int seq, void *out, struct error *err)
{
    (void)s, (void)seq, (void)err;
    memset(out, 77, STATE_BYTES);
    return 0;
}
int session_state_put(struct session *s, int seq, const void *state, struct error *err)
{
    (void)seq, (void)err;
    check(s->length > 0 && state, "a state of nothing");
    return 0;
}
int session_page_get(struct session *s, int seq, int i, void *out, struct error *err)
{
    (void)s, (void)seq, (void)err;
    memset(out, i, PAGE_BYTES);
    return 0;
}
int session_page_append(struct session *s, int seq, const int32_t *tokens, int n, const void *state, struct error *err)
{
    (void)seq, (void)state, (void)err;
    check(s->length % KV_PAGE == 0 && n > 0 && n <= KV_PAGE && s->length + n <= N_CTX, "a page that does not fit");
    memcpy(s->tokens + s->length, tokens, (size_t)n * sizeof *tokens);
    s->length += n;
    return 0;
}
int graph_print(const struct graph *g, struct text *out)
{
    (void)g;
    text_print(out, "a graph");
    return 0;
}
void machine_cpu_choice(const struct machine *m, struct machine_cpu_choice *out)
{
    (void)m;
    *out = (struct machine_cpu_choice){.isa = "none"};
}

static struct gguf *file;
static struct graph graph;
static struct model model = {.graph = &graph, .device = "cpu", .info = {.n_vocab = N_VOCAB}};
static uint64_t key[2];

static void open_model(void)
{
    struct error err;
    struct session s = {0};
    struct blob b = {0};
    blob_put_recipe(&b, "header:3,0,1 kv:k,u32,5");
    check(gguf_open_bytes(&file, b.data, b.size, 0, &err) == 0, err.text);
    blob_free(&b);
    model.file = file;
    check(snapshot_key(&model, &s, 0, key, &err) == 0, "no key");
}

// --- files ---

static void put_word(uint8_t *p, uint64_t v)
{
    memcpy(p, &v, 8);
}

static void put_right(uint8_t *p, size_t size, uint8_t what)
{
    uint64_t n = 0;
    if (size < SNAPSHOT_HEAD)
        return;
    if (what & 1) {
        memcpy(p, "QUERN-KV", 8);
        put_word(p + 8, SNAPSHOT_VERSION);
        put_word(p + 16, key[0]);
        put_word(p + 24, key[1]);
        put_word(p + 32, PAGE_BYTES);
        put_word(p + 40, KV_PAGE);
    }
    memcpy(&n, p + 48, 8);
    if (n > (size - SNAPSHOT_HEAD) / 4)
        return;
    for (size_t at = SNAPSHOT_HEAD + (n * 4 + 7) / 8 * 8, i = 0; what & 2 && at + PAGE_BYTES + 8 <= size;
         at += PAGE_BYTES + 8, i++)
        put_word(p + at + PAGE_BYTES, snapshot_checksum(p + at, PAGE_BYTES, i));
    if (what & 4)
        put_word(p + 56, snapshot_checksum(p + SNAPSHOT_HEAD, n * 4, snapshot_checksum(p, 56, 0)));
}

static void load(const char *path, struct session *s)
{
    struct error err = {0};
    int n = -1;
    int status = snapshot_load(path, &model, s, 0, 0, &n, &err);
    check(n == s->length && n >= 0 && n <= N_CTX, "an odd number of tokens");
    check(status == 0 || (status == -1 && err.text[0] && (err.code == E_MODEL || err.code == E_IO)), "an odd error");
    for (int i = 0; i < n; i++)
        check(s->tokens[i] >= 0 && s->tokens[i] < N_VOCAB, "a token from outside the vocabulary");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct session s = {0};
    if (!file)
        open_model();
    if (!size)
        return 0;
    uint8_t *copy = malloc(size);
    memcpy(copy, data + 1, size - 1);
    put_right(copy, size - 1, data[0]);
    snprintf(path, sizeof path, "/tmp/fuzz-snapshot-%ld", (long)getpid());
    FILE *f = fopen(path, "wb");
    check(f && fwrite(copy, 1, size - 1, f) == size - 1 && fclose(f) == 0, "the file cannot be written");
    load(path, &s);
    unlink(path);
    free(copy);
    return 0;
}

#ifdef FUZZ_SEEDS
int main(int argc, char **argv)
{
    static const int lengths[] = {1, 64, 65, 300};
    open_model();
    for (size_t i = 0; argc > 1 && i < COUNT_OF(lengths); i++) {
        char path[512];
        uint8_t bytes[4096] = {7};
        struct error err;
        struct session s = {.length = lengths[i]};
        for (int k = 0; k < s.length; k++)
            s.tokens[k] = k % N_VOCAB;
        snprintf(path, sizeof path, "%s/seed%zu", argv[1], i);
        check(snapshot_save(path, &model, &s, 0, 0, &err) == 0, err.text);
        FILE *f = fopen(path, "rb");
        size_t n = fread(bytes + 1, 1, sizeof bytes - 1, f);
        fclose(f);
        f = fopen(path, "wb");
        check(fwrite(bytes, 1, n + 1, f) == n + 1 && fclose(f) == 0, "a seed cannot be written");
    }
    return 0;
}
#endif
