// Bytes are added in words of 8, each of which is mixed into two lanes with different odd multipliers; the end adds
// the last bytes and the length. The digest of a model does not read whole files: it covers the size of each file,
// its first MiB, and 64 pieces of 4 KiB spread evenly over the rest.
#include "cmd/digest.h"
#include "gguf/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

// The finaliser of SplitMix64: a bijective mix of 64 bits.
static uint64_t scramble(uint64_t h)
{
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

static uint64_t rotate(uint64_t v, int by)
{
    return v << by | v >> (64 - by);
}

// Two lanes are multiplied by different odd constants, so that values that collide in one lane rarely collide in the
// other.
static void add_word(struct digest *d, uint64_t word)
{
    d->a = rotate(d->a ^ word * 0x9e3779b97f4a7c15u, 29) * 0xd6e8feb86659fd93u + 0x2545f4914f6cdd1du;
    d->b = rotate(d->b + (word ^ 0xa0761d6478bd642fu) * 0xe7037ed1a0b428dbu, 31) * 0x8ebc6af09c88c6e3u ^ word;
}

void digest_add(struct digest *d, const void *data, size_t n)
{
    const uint8_t *at = data;
    uint64_t word;
    size_t used = d->n % sizeof d->tail;
    if (!n) // an empty text may have no address
        return;
    d->n += n;
    if (used) {
        size_t more = MIN(n, sizeof d->tail - used);
        memcpy(d->tail + used, at, more);
        at += more;
        n -= more;
        if (used + more < sizeof d->tail)
            return;
        memcpy(&word, d->tail, sizeof word);
        add_word(d, word);
    }
    for (; n >= sizeof word; n -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        add_word(d, word);
    }
    memcpy(d->tail, at, n);
}

struct digest_value digest_end(const struct digest *d)
{
    struct digest end = *d;
    uint64_t word = 0;
    memcpy(&word, end.tail, end.n % sizeof end.tail);
    add_word(&end, word);
    add_word(&end, end.n);
    uint64_t a = scramble(end.a + rotate(end.b, 17));
    return (struct digest_value){a, scramble(end.b ^ a)};
}

struct digest_value digest_of(struct str s)
{
    struct digest d = {0};
    digest_add(&d, s.data, s.len);
    return digest_end(&d);
}

void digest_format(struct digest_value v, char out[33])
{
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)v.a, (unsigned long long)v.b);
}

// --- models ---

enum { BLOCK = 1 << 16, BLOCKS = 64, HEAD = 1 << 20 };

static int add_block(struct digest *d, int fd, const char *path, void *buffer, size_t n, off_t at, struct error *err)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, (char *)buffer + done, n - done, at + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail(err, E_IO, "%s: byte %lld: %s", path, (long long)at, strerror(errno));
        if (got == 0)
            break;
        done += (size_t)got;
    }
    digest_add(d, buffer, done);
    return 0;
}

static int add_file(struct digest *d, const char *path, void *buffer, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) {
        if (fd >= 0)
            close(fd);
        return fail(err, E_IO, "%s: %s", path, strerror(errno));
    }
    digest_add(d, &(int64_t){st.st_size}, sizeof(int64_t));
    int status = 0;
    for (off_t at = 0; !status && at < MIN(st.st_size, (off_t)HEAD); at += BLOCK)
        status = add_block(d, fd, path, buffer, BLOCK, at, err);
    off_t stride = (st.st_size - HEAD) / BLOCKS;
    for (int i = 0; !status && stride > 0 && i < BLOCKS; i++)
        status = add_block(d, fd, path, buffer, 4096, HEAD + i * stride, err);
    close(fd);
    return status;
}

// The built-in model has no file of its own, so its tensors are added instead.
static void add_tensors(struct digest *d, const struct gguf *file)
{
    for (size_t i = 0; i < gguf_n_tensors(file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(file, i);
        if (t->data)
            digest_add(d, t->data, t->size);
    }
}

int digest_model(const struct gguf *file, struct digest_value *out, struct error *err)
{
    struct digest d = {0};
    void *buffer = malloc(BLOCK);
    int status = buffer ? 0 : fail(err, E_MEMORY, "no memory to read %s", gguf_path(file, 0));
    bool in_memory = gguf_n_shards(file) == 1 && access(gguf_path(file, 0), F_OK);
    if (in_memory)
        add_tensors(&d, file);
    for (int i = 0; !in_memory && !status && i < gguf_n_shards(file); i++)
        status = add_file(&d, gguf_path(file, i), buffer, err);
    free(buffer);
    *out = digest_end(&d);
    return status;
}
