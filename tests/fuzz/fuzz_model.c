// Fuzz target: a small model file with changed numbers, taken from the file to the first logits. It is refused with an
// error that says what is wrong, or it is loaded, compiled and run for a step of two tokens with one thread.
//
// An input is the number of a model in its first byte, then changes of 11 bytes each: which number of the metadata (two
// bytes), how it changes (a byte), and a value (eight bytes). The models are synthetic and are made at the first input.
#include "engine/session.h"
#include "models/synth_model.h"
#include "tests/fuzz/mutate_gguf.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHANGE_BYTES = 11, N_VOCAB = 300 };
static const char *const presets[] = {"llama-tiny", "llama-moe-tiny", "qwen35-tiny", "deepseek2-tiny"};

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
    struct layout layout;
};

// The bytes of the i-th model.
static const struct base *base_of(size_t i)
{
    static struct base bases[COUNT_OF(presets)];
    struct base *b = &bases[i];
    struct synth_options o = {.preset = presets[i], .mix = "Q8_0", .n_vocab = N_VOCAB, .seed = 1};
    struct error err;
    struct stat st;
    if (b->data)
        return b;
    int fd = memfd_create("base", 0);
    check(fd >= 0 && synth_model_write_fd(&o, fd, "base", &err) == 0 && fstat(fd, &st) == 0, "no base");
    b->size = (size_t)st.st_size;
    b->data = malloc(b->size);
    check(b->data && pread(fd, b->data, b->size, 0) == (ssize_t)b->size, "no base");
    close(fd);
    layout_read(&b->layout, b->data, b->size);
    return b;
}

// Applies the changes to the file, and takes each back afterwards by writing the base's bytes again.
static void change(const struct base *b, int fd, const uint8_t *changes, size_t n, bool back)
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
        check(pwrite(fd, &v, width, (off_t)at) == width, "the file cannot be written");
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
    static int files[COUNT_OF(presets)];
    if (size < 1 + CHANGE_BYTES)
        return 0;
    size_t which = data[0] % COUNT_OF(presets);
    const struct base *b = base_of(which);
    if (!files[which]) {
        files[which] = memfd_create("model", 0);
        check(files[which] > 0 && write(files[which], b->data, b->size) == (ssize_t)b->size, "no file");
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", files[which]);
    struct model_options o = {.path = path, .device = DEVICE_CPU, .n_ctx = 64, .machine = {.n_threads = 1}};
    struct error err = {0};
    struct model *m;
    change(b, files[which], data + 1, size - 1, false);
    if (model_open(&m, &o, &err)) {
        check_error(&err);
    } else {
        if (run_step(m, &err))
            check_error(&err);
        model_close(m);
    }
    change(b, files[which], data + 1, size - 1, true);
    return 0;
}
#endif

#ifdef FUZZ_SEEDS
int main(int argc, char **argv)
{
    for (unsigned i = 0; argc > 1 && i < COUNT_OF(presets); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed%u", argv[1], i);
        FILE *f = fopen(path, "wb");
        const uint8_t input[1 + 2 * CHANGE_BYTES] = {(uint8_t)i, 40, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 200, 4};
        check(f && fwrite(input, 1, sizeof input, f) == sizeof input && fclose(f) == 0, "a seed cannot be written");
    }
    return 0;
}
#endif
