// Compiled kernels on disk, one file each, named by a hash of what the kernel was compiled from. An entry is written
// to a temporary file and renamed, so that a reader sees a complete entry or none. An entry damaged by a crash or a
// bad disk is detected by its size and checksum, and is not used.
#include "kernels/ptx/driver_internal.h"
#include "gguf/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENTRY_MAX = 1 << 28, PATH_SIZE = 4096 };
// The head of an entry, in host byte order: a folder is used by one computer only.
struct entry_head {
    char magic[8];
    uint64_t size;   // of the cubin that follows
    uint64_t sum[2]; // checksums of the entry's key and the cubin: under another entry's name they do not match
};
static const char entry_magic[8] = "quernPTX";

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t hash(const void *data, size_t n, uint64_t seed)
{
    const uint8_t *p = data;
    uint64_t h = mix(seed, n), word;
    for (; n >= sizeof(word); p += sizeof(word), n -= sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        h = mix(h, word);
    }
    word = 0;
    memcpy(&word, p, n);
    h = mix(mix(h, word), seed);
    return h ^ h >> 32;
}

struct cache_key cache_key_of(struct str ptx, const struct driver_card *card)
{
    // The compiler gets no options except for its logs. If one is added, it has to become a part of the key.
    const uint64_t target[] = {(uint64_t)card->major, (uint64_t)card->minor, (uint64_t)card->version, 2};
    struct cache_key key;
    for (int i = 0; i < 2; i++)
        key.h[i] = hash(ptx.data, ptx.len, hash(target, sizeof(target), 0x6a09e667f3bcc908u * (unsigned)(i + 1)));
    return key;
}

uint64_t driver_hash(const struct driver *d, struct str text, uint64_t seed)
{
    const uint64_t target[] = {(uint64_t)d->card.major, (uint64_t)d->card.minor, (uint64_t)d->card.version};
    uint64_t h = hash(d->card.name, strlen(d->card.name), seed);
    return hash(text.data, text.len, hash(target, sizeof(target), h));
}

static bool entry_path(char *path, const char *folder, struct cache_key key, const char *end)
{
    int n = snprintf(path, PATH_SIZE, "%s/%016llx%016llx.%s", folder, (unsigned long long)key.h[0],
                     (unsigned long long)key.h[1], end);
    return n > 0 && n < PATH_SIZE;
}

static struct entry_head head_of(struct cache_key key, const void *cubin, size_t size)
{
    struct entry_head head = {.size = size, .sum = {hash(cubin, size, key.h[0]), hash(cubin, size, key.h[1])}};
    memcpy(head.magic, entry_magic, sizeof(head.magic));
    return head;
}

static bool read_all(int fd, void *out, size_t n)
{
    char *p = out;
    while (n) {
        ssize_t got = read(fd, p, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        p += got;
        n -= (size_t)got;
    }
    return true;
}

static void *read_entry(int fd, struct cache_key key, size_t *size)
{
    struct entry_head head, found;
    struct stat st;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || !read_all(fd, &head, sizeof(head)))
        return NULL;
    if (memcmp(head.magic, entry_magic, sizeof(head.magic)) || !head.size || head.size > ENTRY_MAX ||
        (uint64_t)st.st_size != head.size + sizeof(head))
        return NULL;
    void *cubin = malloc(head.size);
    if (cubin && read_all(fd, cubin, head.size)) {
        found = head_of(key, cubin, head.size);
        *size = head.size;
        if (!memcmp(&found, &head, sizeof(head)))
            return cubin;
    }
    free(cubin);
    return NULL;
}

void *cache_read(const char *folder, struct cache_key key, size_t *size, bool *corrupt)
{
    char path[PATH_SIZE];
    *corrupt = false;
    if (!entry_path(path, folder, key, "cubin"))
        return NULL;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); // a FIFO of this name is not waited for
    if (fd < 0)
        return NULL;
    void *cubin = read_entry(fd, key, size);
    *corrupt = !cubin;
    close(fd);
    return cubin;
}

static bool write_all(int fd, const void *data, size_t n)
{
    const char *p = data;
    while (n) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        p += put;
        n -= (size_t)put;
    }
    return true;
}

// Creates the folder and those above it. Errors are ignored, because they show when the entry is opened.
static void make_folder(const char *folder)
{
    char path[PATH_SIZE];
    if (snprintf(path, sizeof(path), "%s", folder) >= (int)sizeof(path))
        return;
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        mkdir(path, 0700);
        *p = '/';
    }
    mkdir(path, 0700);
}

// Replaces the file `path` of a folder by one that holds two runs of bytes, one after the other.
static bool replace(const char *folder, const char *path, struct str head, struct str rest)
{
    char name[PATH_SIZE + TEMPORARY_SUFFIX];
    if (strlen(path) >= PATH_SIZE) {
        errno = ENAMETOOLONG;
        return false;
    }
    make_folder(folder);
    int fd = temporary_create(path, name, 0600);
    if (fd < 0)
        return false;
    bool whole = write_all(fd, head.data, head.len) && write_all(fd, rest.data, rest.len);
    whole = !close(fd) && whole;
    if (whole && !temporary_rename(name, path))
        return true;
    const int why = errno;
    temporary_remove(name);
    errno = why;
    return false;
}

bool cache_write(const char *folder, struct cache_key key, const void *cubin, size_t size)
{
    char path[PATH_SIZE];
    if (!size || size > ENTRY_MAX || !entry_path(path, folder, key, "cubin"))
        return false;
    struct entry_head head = head_of(key, cubin, size);
    return replace(folder, path, (struct str){(const char *)&head, sizeof(head)}, (struct str){cubin, size});
}

bool driver_keep(const char *folder, const char *path, struct str text)
{
    return replace(folder, path, text, (struct str){"", 0});
}

char *driver_kept(const char *path)
{
    enum { MOST = 1 << 20 };
    struct stat st;
    char *text = NULL;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size <= MOST && (text = calloc(1, (size_t)st.st_size + 1)) &&
        !read_all(fd, text, (size_t)st.st_size)) {
        free(text);
        text = NULL;
    }
    close(fd);
    return text;
}
