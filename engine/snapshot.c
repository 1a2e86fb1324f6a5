// Saves and restores the KV pages of a sequence. The file has a head with checksums and a key, which is a hash of the
// model's metadata and weights, of the graph and of the machine, so that a snapshot is only read by what wrote it.
#include "kernels/cpu.h"
#include "engine/snapshot.h"
#include "engine/file_replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = {'Q', 'U', 'E', 'R', 'N', '-', 'K', 'V'};
enum { WORDS = SNAPSHOT_HEAD / 8, CHECKED_BYTES = SNAPSHOT_HEAD - 8 };

// --- checksums ---

static uint64_t load_word(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static uint64_t mix(uint64_t h)
{
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

// Four lanes of 8-byte words. Each step is a bijection of the word and of the lane, so a change of one word always
// changes the sum.
uint64_t snapshot_checksum(const void *data, size_t n, uint64_t seed)
{
    const uint8_t *p = data;
    uint64_t lanes[4] = {seed, seed + 1, seed + 2, seed + 3};
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (size_t k = 0; k < 4; k++) {
            uint64_t w;
            memcpy(&w, p + i + 8 * k, sizeof w);
            lanes[k] = (lanes[k] ^ w) * 0x9e3779b97f4a7c15u;
            lanes[k] ^= lanes[k] >> 29;
        }
    uint64_t h = mix(n + seed);
    for (size_t k = 0; k < 4; k++)
        h = mix(h ^ lanes[k]);
    for (; i < n; i += 8)
        h = mix(h ^ load_word(p + i, MIN(n - i, (size_t)8)));
    return h;
}

// --- the key ---

struct key_hash {
    uint64_t key[2];
};

static void hash_bytes(struct key_hash *k, const void *data, size_t n)
{
    for (int i = 0; i < 2; i++)
        k->key[i] = snapshot_checksum(data, n, k->key[i]);
}

// Hashes all weights of a small file. Of a large file it hashes slices of each tensor, which suffice to distinguish one
// training of a model from another.
static void hash_tensor(struct key_hash *k, const struct gguf_tensor *t, bool whole)
{
    enum { SLICES = 8, SLICE_BYTES = 512 };
    hash_bytes(k, t->name.data, t->name.len);
    hash_bytes(k, t->ne, sizeof t->ne);
    hash_bytes(k, &t->type, sizeof t->type);
    if (!t->data)
        return;
    if (whole || t->size <= SLICES * SLICE_BYTES) {
        hash_bytes(k, t->data, t->size);
        return;
    }
    for (uint64_t i = 0; i < SLICES; i++)
        hash_bytes(k, (const uint8_t *)t->data + (t->size - SLICE_BYTES) / (SLICES - 1) * i, SLICE_BYTES);
}

static void hash_metadata(struct key_hash *k, const struct gguf *g)
{
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        hash_bytes(k, kv->key.data, kv->key.len);
        for (uint64_t j = 0; kv->strings && j < kv->count; j++)
            hash_bytes(k, kv->strings[j].data, kv->strings[j].len);
        if (!kv->strings && kv->type != GGUF_STRING)
            hash_bytes(k, kv->data, kv->count * gguf_type_bytes(kv->element));
    }
}

// Hashes the graph, which states what is computed: sizes, norms, windows and the rotary angles, which depend on the
// size of the context.
static int hash_graph(struct key_hash *k, const struct graph *g, struct error *err)
{
    struct text text = {0};
    int status = graph_print(g, &text) < 0 || text.failed ? fail(err, E_MEMORY, "no memory for a graph's text") : 0;
    hash_bytes(k, text.data, text.size);
    text_free(&text);
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op == OP_ROPE_TABLE)
            hash_bytes(k, g->nodes[i]->p.rope_table.inv_freq,
                       (size_t)g->nodes[i]->p.rope_table.n_pairs * sizeof *g->nodes[i]->p.rope_table.inv_freq);
    return status;
}

// Hashes the kind of machine, because the layout of a page and the rounding of its content depend on it.
static void hash_machine(struct key_hash *k, const struct model *m)
{
    hash_bytes(k, m->device, strlen(m->device));
    struct machine_cpu_choice choice = {.isa = ""};
    if (!strcmp(m->device, "cpu"))
        machine_cpu_choice(m->machine, &choice);
    hash_bytes(k, choice.isa, strlen(choice.isa));
}

int snapshot_key(const struct model *m, const struct session *s, uint64_t salt, uint64_t key[2], struct error *err)
{
    enum { SMALL = 64 << 20 };
    struct key_hash k = {{SNAPSHOT_VERSION, ~UINT64_C(0)}};
    bool whole = gguf_file_bytes(m->file) <= SMALL;
    hash_metadata(&k, m->file);
    for (size_t i = 0; i < gguf_n_tensors(m->file); i++)
        hash_tensor(&k, gguf_tensor_at(m->file, i), whole);
    for (int i = 0; i < m->n_adapters; i++) {
        hash_bytes(&k, &m->adapters[i].scale, sizeof m->adapters[i].scale);
        for (size_t j = 0; j < gguf_n_tensors(m->adapters[i].file); j++)
            hash_tensor(&k, gguf_tensor_at(m->adapters[i].file, j), true);
    }
    if (hash_graph(&k, m->graph, err))
        return -1;
    hash_machine(&k, m);
    enum dtype types[2];
    session_kv_types(s, types);
    uint64_t rest[] = {(uint64_t)types[0], (uint64_t)types[1], session_page_bytes(s), KV_PAGE, salt};
    hash_bytes(&k, rest, sizeof rest);
    memcpy(key, k.key, sizeof k.key);
    return 0;
}

// --- the head ---

static void store_word(uint8_t *p, uint64_t v)
{
    for (size_t i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t head_checksum(const uint8_t head[SNAPSHOT_HEAD], const int32_t *tokens, size_t n)
{
    return snapshot_checksum(tokens, n * sizeof *tokens, snapshot_checksum(head, CHECKED_BYTES, 0));
}

static uint64_t pages_for(uint64_t n_tokens)
{
    return (n_tokens + KV_PAGE - 1) / KV_PAGE;
}

static int damaged(const char *what, struct error *err)
{
    return fail(err, E_MODEL, "the cache is damaged: %s", what);
}

int snapshot_parse(const uint8_t head[SNAPSHOT_HEAD], uint64_t size, struct snapshot_head *out, struct error *err)
{
    uint64_t words[WORDS];
    for (size_t i = 0; i < WORDS; i++)
        words[i] = load_word(head + 8 * i, 8);
    if (memcmp(head, magic, sizeof magic))
        return fail(err, E_MODEL, "not a cache of quern");
    if (words[1] != SNAPSHOT_VERSION)
        return fail(err, E_MODEL, "a cache of version %llu, this quern knows %d", (unsigned long long)words[1],
                    SNAPSHOT_VERSION);
    *out = (struct snapshot_head){
        .key = {words[2], words[3]}, .page_bytes = words[4], .n_tokens = words[6], .tokens_at = SNAPSHOT_HEAD};
    if (words[5] != KV_PAGE)
        return fail(err, E_MODEL, "a cache of pages of other sizes");
    if (out->n_tokens == 0 || out->n_tokens > size / 4)
        return damaged("it has more tokens than bytes, or none", err);
    uint64_t page, pages, end;
    out->pages_at = SNAPSHOT_HEAD + align_up(out->n_tokens * 4, 8);
    if (__builtin_add_overflow(out->page_bytes, 8, &page) ||
        __builtin_mul_overflow(page, pages_for(out->n_tokens), &pages) ||
        __builtin_add_overflow(pages, out->pages_at, &end) || end > size || (end < size && size - end <= 8))
        return damaged("it has another size than its head says", err);
    out->state_bytes = end < size ? size - end - 8 : 0;
    return 0;
}

// --- saving ---

static int write_head(struct file_replace *f, const uint64_t key[2], struct session *s, int seq, struct error *err)
{
    uint8_t head[SNAPSHOT_HEAD] = {0};
    size_t n = (size_t)session_length(s, seq);
    const int32_t *tokens = session_tokens(s, seq);
    memcpy(head, magic, sizeof magic);
    const uint64_t words[] = {SNAPSHOT_VERSION, key[0], key[1], session_page_bytes(s), KV_PAGE, n};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        store_word(head + 8 * (i + 1), words[i]);
    store_word(head + CHECKED_BYTES, head_checksum(head, tokens, n));
    if (file_replace_write(f, head, sizeof head, err) || file_replace_write(f, tokens, n * sizeof *tokens, err))
        return -1;
    return file_replace_write(f, (uint8_t[8]){0}, n % 2 * 4, err);
}

static int write_pages(struct file_replace *f, struct session *s, int seq, uint8_t *page, struct error *err)
{
    size_t size = session_page_bytes(s);
    for (uint64_t i = 0; i < pages_for((uint64_t)session_length(s, seq)); i++) {
        if (session_page_get(s, seq, (int)i, page, err))
            return -1;
        store_word(page + size, snapshot_checksum(page, size, i));
        if (file_replace_write(f, page, size + 8, err))
            return -1;
    }
    return 0;
}

static int write_state(struct file_replace *f, struct session *s, int seq, struct error *err)
{
    const size_t size = session_state_bytes(s);
    if (!size)
        return 0;
    uint8_t *state = malloc(size + 8);
    int status = state ? session_state_get(s, seq, state, err) : fail(err, E_MEMORY, "no memory for %zu bytes", size);
    if (!status) {
        store_word(state + size, snapshot_checksum(state, size, pages_for((uint64_t)session_length(s, seq))));
        status = file_replace_write(f, state, size + 8, err);
    }
    free(state);
    return status;
}

// A file that is there and no snapshot is not replaced: its name is made from that of a session, and may be somebody's.
static int check_own(const char *path, struct error *err)
{
    char found[sizeof magic];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
    const ssize_t n = fd < 0 ? 0 : read(fd, found, sizeof found);
    if (fd >= 0)
        close(fd);
    if (n > 0 && memcmp(found, magic, (size_t)n))
        return fail(err, E_USAGE, "%s: is no snapshot, and is not replaced; move it away", path);
    return 0;
}

int snapshot_save(const char *path, const struct model *m, struct session *s, int seq, uint64_t salt, struct error *err)
{
    uint64_t key[2];
    struct file_replace f;
    if (check_own(path, err))
        return -1;
    if (session_length(s, seq) == 0)
        return fail(err, E_USAGE, "nothing has been computed yet");
    if (!session_is_whole(s, seq))
        return fail(err, E_USAGE, "the beginning has left the model's window, and is not held any more");
    uint8_t *page = malloc(session_page_bytes(s) + 8);
    if (!page)
        return fail(err, E_MEMORY, "no memory for a page of %zu bytes", session_page_bytes(s));
    int status = snapshot_key(m, s, salt, key, err) || file_replace_beside(&f, path, err) ? -1 : 0;
    if (!status) {
        status = write_head(&f, key, s, seq, err) || write_pages(&f, s, seq, page, err) || write_state(&f, s, seq, err)
                     ? -1
                     : 0;
        status = status ? (file_replace_abort(&f), -1) : file_replace_end(&f, err);
    }
    free(page);
    return status;
}

// --- loading ---

static int read_at(int fd, void *out, size_t n, uint64_t at, struct error *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)out + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail(err, E_IO, "byte %llu: %s", (unsigned long long)(at + done), strerror(errno));
        if (got == 0)
            return damaged("it ends too early", err);
        done += (size_t)got;
    }
    return 0;
}

static int read_head(int fd, const uint64_t key[2], const struct session *s, struct snapshot_head *head,
                     int32_t **tokens, struct error *err)
{
    uint8_t bytes[SNAPSHOT_HEAD];
    struct stat there;
    if (fstat(fd, &there))
        return fail(err, E_IO, "%s", strerror(errno));
    if (!S_ISREG(there.st_mode) || there.st_size < SNAPSHOT_HEAD)
        return fail(err, E_MODEL, "not a cache of quern");
    if (read_at(fd, bytes, sizeof bytes, 0, err) || snapshot_parse(bytes, (uint64_t)there.st_size, head, err))
        return -1;
    if (memcmp(head->key, key, sizeof head->key) || head->page_bytes != session_page_bytes(s) ||
        head->state_bytes != session_state_bytes(s))
        return fail(err, E_MODEL, "the cache is of another model, machine or type of cache");
    *tokens = malloc(head->n_tokens * sizeof **tokens);
    if (!*tokens)
        return fail(err, E_MEMORY, "no memory for %llu tokens", (unsigned long long)head->n_tokens);
    if (read_at(fd, *tokens, head->n_tokens * sizeof **tokens, head->tokens_at, err))
        return -1;
    if (head_checksum(bytes, *tokens, head->n_tokens) != load_word(bytes + CHECKED_BYTES, 8))
        return damaged("its head or its tokens have changed", err);
    return 0;
}

static int read_pages(int fd, const struct snapshot_head *head, const int32_t *tokens, struct session *s, int seq,
                      uint8_t *page, struct error *err)
{
    uint64_t n = MIN(head->n_tokens, (uint64_t)session_n_ctx(s)), size = head->page_bytes;
    for (uint64_t i = 0; i < pages_for(n); i++) {
        if (read_at(fd, page, size + 8, head->pages_at + i * (size + 8), err))
            return -1;
        if (load_word(page + size, 8) != snapshot_checksum(page, size, i))
            return damaged("a page has changed", err);
        int n_here = (int)MIN(n - i * KV_PAGE, (uint64_t)KV_PAGE);
        if (session_page_append(s, seq, tokens + i * KV_PAGE, n_here, page, err))
            return -1;
    }
    return 0;
}

// Reads the state of recurrent layers. Without it no page of the text is of use.
static int read_state(int fd, const struct snapshot_head *head, struct session *s, int seq, struct error *err)
{
    const uint64_t pages = pages_for(head->n_tokens), size = head->state_bytes;
    if (!size)
        return 0;
    if (head->n_tokens > (uint64_t)session_n_ctx(s))
        return fail(err, E_MODEL, "the cache is of %llu tokens, which the context does not hold",
                    (unsigned long long)head->n_tokens);
    uint8_t *state = malloc(size + 8);
    int status = state ? read_at(fd, state, size + 8, head->pages_at + pages * (head->page_bytes + 8), err)
                       : fail(err, E_MEMORY, "no memory for %llu bytes", (unsigned long long)size);
    if (!status && load_word(state + size, 8) != snapshot_checksum(state, size, pages))
        status = damaged("its state has changed", err);
    if (!status)
        status = session_state_put(s, seq, state, err);
    free(state);
    return status;
}

static int check_tokens(const struct model *m, const int32_t *tokens, uint64_t n, struct error *err)
{
    for (uint64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= m->info.n_vocab)
            return damaged("a token is not in the vocabulary", err);
    return 0;
}

int snapshot_load(const char *path, const struct model *m, struct session *s, int seq, uint64_t salt, int *n,
                  struct error *err)
{
    uint64_t key[2];
    struct snapshot_head head;
    int32_t *tokens = NULL;
    uint8_t *page = malloc(session_page_bytes(s) + 8);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    session_truncate(s, seq, 0);
    int status = fd < 0 ? fail(err, E_IO, "%s", strerror(errno)) : snapshot_key(m, s, salt, key, err);
    if (!status && !page)
        status = fail(err, E_MEMORY, "no memory for a page of %zu bytes", session_page_bytes(s));
    if (!status)
        status = read_head(fd, key, s, &head, &tokens, err);
    if (!status)
        status = check_tokens(m, tokens, head.n_tokens, err);
    if (!status)
        status = read_pages(fd, &head, tokens, s, seq, page, err);
    if (!status)
        status = read_state(fd, &head, s, seq, err);
    if (status && session_state_bytes(s))
        session_truncate(s, seq, 0);
    *n = session_length(s, seq);
    if (fd >= 0)
        close(fd);
    free(tokens);
    free(page);
    return status ? fail_prefix(err, path) : 0;
}
