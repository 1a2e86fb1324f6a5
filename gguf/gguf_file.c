// One part (shard) of a GGUF file: opened and checked to be a regular file, read with pread, and its tensor data mapped
// or read into memory. Memory for read data asks the system for large pages.
#include "gguf/gguf_internal.h"
#include "gguf/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int(shard_fail)(const struct gguf_shard *shard, struct error *err, enum err_code code, uint64_t offset, const char *fmt,
                ...)
{
    char text[ERR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (offset == ERR_NO_OFFSET)
        return fail(err, code, "%s: %s", shard->label, text);
    return fail_at(err, code, offset, "%s: byte %" PRIu64 ": %s", shard->label, offset, text);
}

int(gguf_fail_memory)(struct error *err, size_t bytes, const char *what)
{
    return fail(err, E_MEMORY, "out of memory: %zu bytes for %s", bytes, what);
}

static const char *kind_of_file(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a pipe";
    if (S_ISCHR(mode) || S_ISBLK(mode))
        return "a device";
    return "of an unknown kind";
}

int shard_open(struct gguf_shard *shard, struct error *err)
{
    // O_NONBLOCK: a pipe without a writer would block in open(). It has no effect on a regular file.
    shard->fd = open(shard->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (shard->fd < 0)
        return shard_fail(shard, err, E_IO, ERR_NO_OFFSET, "cannot open: %s", strerror(errno));
    struct stat st;
    if (fstat(shard->fd, &st) != 0)
        return shard_fail(shard, err, E_IO, ERR_NO_OFFSET, "cannot read: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return shard_fail(shard, err, E_MODEL, ERR_NO_OFFSET, "is %s, not a file", kind_of_file(st.st_mode));
    shard->size = (uint64_t)st.st_size;
    return 0;
}

int shard_read(const struct gguf_shard *shard, void *dst, size_t n, uint64_t offset, struct error *err)
{
    enum { PIECE = 1 << 30 }; // one read moves less than 2 GiB
    uint8_t *out = dst;
    if (shard->view) {
        memcpy(dst, shard->view + offset, n);
        return 0;
    }
    while (n > 0) {
        ssize_t got = pread(shard->fd, out, MIN(n, (size_t)PIECE), (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return shard_fail(shard, err, E_IO, offset, "cannot read: %s", strerror(errno));
        if (got == 0)
            return shard_fail(shard, err, E_IO, offset, "the file became shorter while it was read");
        out += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

// Asks the system for pages of 2 MB, from which weights are read faster than from pages of 4 KB because fewer page
// tables are walked. Memory into which a file is read consists of such pages. A mapped file that is not in memory yet
// is read in such pages if its file system supports them, which is faster as well. This is only a hint.
static void ask_for_large_pages(void *mem, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    madvise(mem, bytes, MADV_HUGEPAGE);
#else
    (void)mem, (void)bytes;
#endif
}

// Reads only the data of the tensors, into anonymous pages. They are aligned to more than the alignment of the file.
static int read_data(struct gguf_shard *shard, struct error *err)
{
    shard->map_bytes = shard->data_end - shard->data_start;
    shard->map_offset = shard->data_start;
    void *mem = mmap(NULL, shard->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mem == MAP_FAILED)
        return gguf_fail_memory(err, shard->map_bytes, "the tensors");
    shard->map = mem;
    ask_for_large_pages(mem, shard->map_bytes);
    return shard_read(shard, mem, shard->map_bytes, shard->data_start, err);
}

// Maps the file from its first byte on, so that addresses have the alignment of the offsets.
static int map_data(struct gguf_shard *shard, struct error *err)
{
    shard->map_bytes = shard->data_end;
    shard->map_offset = 0;
    void *mem = mmap(NULL, shard->map_bytes, PROT_READ, MAP_SHARED, shard->fd, 0);
    if (mem == MAP_FAILED)
        return shard_fail(shard, err, errno == ENOMEM ? E_MEMORY : E_IO, ERR_NO_OFFSET, "cannot map %zu bytes: %s",
                          shard->map_bytes, strerror(errno));
    shard->map = mem;
    mapped_add(mem, shard->map_bytes, shard->path);
    ask_for_large_pages(mem, shard->map_bytes);
    return 0;
}

int shard_map(struct gguf_shard *shard, bool into_memory, struct error *err)
{
    if (shard->view)
        return 0;
    if (shard->n_tensors > 0 && (into_memory ? read_data(shard, err) : map_data(shard, err)) != 0)
        return -1;
    close(shard->fd);
    shard->fd = -1;
    return 0;
}

int gguf_check_whole(const struct gguf *g, struct error *err)
{
    for (int i = 0; g && i < g->n_shards; i++) {
        const struct gguf_shard *shard = &g->shards[i];
        struct stat st;
        if (shard->map && mapped_find(shard->map) && !stat(shard->path, &st) && (uint64_t)st.st_size < shard->data_end)
            return shard_fail(shard, err, E_IO, ERR_NO_OFFSET,
                              "model file changed while it was in use; run again with the whole file");
    }
    return 0;
}

void shard_close(struct gguf_shard *shard)
{
    if (shard->map) {
        mapped_remove(shard->map);
        munmap(shard->map, shard->map_bytes);
    }
    shard->map = NULL;
    if (shard->fd >= 0)
        close(shard->fd);
    shard->fd = -1;
}
