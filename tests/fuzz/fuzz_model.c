// Fuzz target: a small model file with changed numbers, taken from the file to the first logits. It is refused with an
// error that says what is wrong, or it is loaded, compiled and run for a step of two tokens with one thread.
//
// An input is the number of a model in its first byte, then changes of 11 bytes each: which number of the metadata (two
// bytes), how it changes (a byte), and a value (eight bytes). The models are those of tests/data/arch, one of each kind of
// layer that quern knows.
#include "engine/session.h"
#include "tests/fuzz/mutate_gguf.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHANGE_BYTES = 11, MODELS_MAX = 128 };

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_model: %s\n", what);
    abort();
}

#ifndef FUZZ_SEEDS
struct base {
    uint8_t *data;
    size_t size;
    int fd; // a copy in memory, which is changed, and changed back
    struct layout layout;
};

static void read_base(struct base *b, const char *path)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    check(fd >= 0 && !fstat(fd, &st), path);
    b->size = (size_t)st.st_size;
    b->data = malloc(b->size);
    check(b->data && pread(fd, b->data, b->size, 0) == (ssize_t)b->size, path);
    close(fd);
    layout_read(&b->layout, b->data, b->size);
    b->fd = memfd_create("model", MFD_CLOEXEC);
    check(b->fd >= 0 && write(b->fd, b->data, b->size) == (ssize_t)b->size, "no file in memory");
}

// The models, read at the first call.
static struct base *all_bases(size_t *n)
{
    static struct base bases[MODELS_MAX];
    static size_t n_bases;
    glob_t found;
    if (!n_bases) {
        check(!glob(MODELS_FOLDER "/tiny-*.gguf", 0, NULL, &found), "no models");
        for (; n_bases < MIN(found.gl_pathc, (size_t)MODELS_MAX); n_bases++)
            read_base(&bases[n_bases], found.gl_pathv[n_bases]);
        globfree(&found);
    }
    *n = n_bases;
    return bases;
}

// Applies the changes to the file, and takes each back afterwards by writing the base's bytes again.
static void change(const struct base *b, const uint8_t *changes, size_t n, bool back)
{
    for (size_t i = 0; i + CHANGE_BYTES <= n; i += CHANGE_BYTES) {
        uint16_t which;
        uint64_t v = 0, given;
        memcpy(&which, changes + i, sizeof which);
        memcpy(&given, changes + i + 3, sizeof given);
        size_t field = which % b->layout.n_fields, at = b->layout.fields[field].at;
        uint8_t width = b->layout.fields[field].width, how = changes[i + 2];
        uint32_t state = how;
        memcpy(&v, b->data + at, width);
        if (!back)
            v = how < 128 ? mutate_value(v, b->size, &state) : how < 192 ? given : v + given % 9 - 4;
        check(pwrite(b->fd, &v, width, (off_t)at) == width, "the file cannot be written");
    }
}

// An error says what is wrong, in one clean line.
static void check_error(const struct error *err)
{
    check(err->code == E_MODEL || err->code == E_MEMORY || err->code == E_USAGE, "an odd error code");
    check(*err->text && utf8_valid(str_from(err->text)), "an odd error text");
    for (const char *c = err->text; *c; c++)
        check((unsigned char)*c >= 0x20 && *c != 0x7F, "a control character in an error");
}

static int run_step(const struct model *m, struct error *err)
{
    struct session_options o = {.n_ctx = 64, .n_batch = 4, .kv_type = {DT_F16, DT_F16}};
    struct session_row rows[] = {{0, 0, false}, {1, 0, true}};
    struct session *s;
    if (session_open(&s, m, &o, err))
        return -1;
    int status = session_step(s, rows, COUNT_OF(rows), err);
    float sum = 0;
    for (int i = 0; !status && i < m->info.n_vocab; i++)
        sum += session_logits(s, 0)[i];
    check(status || sum - sum == 0, "logits that are no numbers");
    session_close(s);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n;
    const struct base *bases = all_bases(&n);
    if (size < 1 + CHANGE_BYTES)
        return 0;
    const struct base *b = &bases[data[0] % n];
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", b->fd);
    struct model_options o = {.path = path, .device = DEVICE_CPU, .n_ctx = 64, .machine = {.n_threads = 1}};
    struct error err = {0};
    struct model *m;
    change(b, data + 1, size - 1, false);
    if (model_open(&m, &o, &err)) {
        check_error(&err);
    } else {
        if (run_step(m, &err))
            check_error(&err);
        model_close(m);
    }
    change(b, data + 1, size - 1, true);
    return 0;
}
#endif

#ifdef FUZZ_SEEDS
int main(int argc, char **argv)
{
    for (unsigned i = 0; argc > 1 && i < 64; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed%u", argv[1], i);
        FILE *f = fopen(path, "wb");
        const uint8_t input[1 + 2 * CHANGE_BYTES] = {(uint8_t)i, 40, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 200, 4};
        check(f && fwrite(input, 1, sizeof input, f) == sizeof input && fclose(f) == 0, "a seed cannot be written");
    }
    return 0;
}
#endif
