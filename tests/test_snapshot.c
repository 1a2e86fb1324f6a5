// Tests files of computed state: loading restores what was saved, or nothing; a damaged file never changes an answer.
#include "engine/file_replace.h"
#include "engine/snapshot.h"
#include "gguf/writer.h"
#include "models/synth_model.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_TOKENS = 200, N_MORE = 10 };

static char folder[] = "/tmp/quern-snapshot-XXXXXX";
static char model_path[100], other_path[100], file[100];
static struct model *model;
static struct session *session;
static int32_t text[N_TOKENS + N_MORE];
static float *wanted; // the logits after the whole text, computed without a file

static void make_model(char *path, size_t size, const char *name, uint64_t seed)
{
    struct error err = {0};
    snprintf(path, size, "%s/%s", folder, name);
    struct synth_options o = {.preset = "llama-tiny", .mix = "Q8_0", .n_vocab = 400, .seed = seed};
    cr_assert_eq(synth_model_write(&o, path, &err), 0, "%s", err.text);
}

static struct model *open_model(const char *path)
{
    struct error err = {0};
    struct model *m;
    struct model_options o = {.path = path, .device = DEVICE_CPU, .machine = {.n_threads = 1}};
    cr_assert_eq(model_open(&m, &o, &err), 0, "%s", err.text);
    return m;
}

static struct session *open_session(const struct model *m, int n_ctx, enum dtype keys)
{
    struct error err = {0};
    struct session *s;
    struct session_options o = {.n_ctx = n_ctx, .n_batch = 256, .kv_type = {keys, DT_F16}};
    cr_assert_eq(session_open(&s, m, &o, &err), 0, "%s", err.text);
    return s;
}

static void prompt(struct session *s, int n, int *n_reused)
{
    struct error err = {0};
    cr_assert_eq(session_prompt(s, 0, text, n, n_reused, &err), 0, "%s", err.text);
}

static void set_up(void)
{
    struct error err = {0};
    cr_assert(mkdtemp(folder));
    make_model(model_path, sizeof model_path, "a.gguf", 1);
    make_model(other_path, sizeof other_path, "b.gguf", 2);
    snprintf(file, sizeof file, "%s/state.kv", folder);
    for (int i = 0; i < N_TOKENS + N_MORE; i++)
        text[i] = 3 + i * 7919 % 390;
    model = open_model(model_path);
    session = open_session(model, 512, DT_F16);
    prompt(session, N_TOKENS + N_MORE, NULL);
    size_t bytes = (size_t)model->info.n_vocab * sizeof *wanted;
    wanted = malloc(bytes);
    memcpy(wanted, session_logits(session, 0), bytes);
    session_close(session);
    session = open_session(model, 512, DT_F16);
    prompt(session, N_TOKENS, NULL);
    cr_assert_eq(snapshot_save(file, model, session, 0, 7, &err), 0, "%s", err.text);
    session_close(session);
    session = open_session(model, 512, DT_F16);
}

static void tear_down(void)
{
    char command[100];
    session_close(session);
    model_close(model);
    free(wanted);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_expect_eq(system(command), 0);
}

TestSuite(snapshot, .init = set_up, .fini = tear_down, .timeout = 120);

// Clears the session, so that no computed state of an earlier step is reused.
static void forget(void)
{
    session_close(session);
    session = open_session(model, 512, DT_F16);
}

static void expect_same_answer(int n_held, const char *what)
{
    int n_reused;
    prompt(session, N_TOKENS + N_MORE, &n_reused);
    cr_expect_eq(n_reused, n_held, "%s: %d tokens were held, not %d", what, n_reused, n_held);
    cr_expect_eq(memcmp(session_logits(session, 0), wanted, (size_t)model->info.n_vocab * sizeof *wanted), 0,
                 "%s: other logits", what);
}

static uint8_t *read_file(size_t *size)
{
    FILE *f = fopen(file, "rb");
    cr_assert(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*size);
    cr_assert_eq(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

static void write_file(const uint8_t *data, size_t size)
{
    FILE *f = fopen(file, "wb");
    cr_assert(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

Test(snapshot, a_sequence_comes_back_as_it_was)
{
    struct error err = {0};
    int n = 0;
    cr_assert_eq(snapshot_load(file, model, session, 0, 7, &n, &err), 0, "%s", err.text);
    cr_expect_eq(n, N_TOKENS);
    cr_expect_eq(memcmp(session_tokens(session, 0), text, N_TOKENS * sizeof *text), 0);
    expect_same_answer(N_TOKENS, "whole");
    struct stat there;
    cr_assert_eq(stat(file, &there), 0);
    cr_expect_eq(there.st_mode & 0777, 0600u);
}

Test(snapshot, what_was_loaded_is_kept_again_byte_by_byte)
{
    struct error err = {0};
    int n;
    size_t size, size_again;
    uint8_t *before = read_file(&size);
    cr_assert_eq(snapshot_load(file, model, session, 0, 7, &n, &err), 0);
    cr_assert_eq(snapshot_save(file, model, session, 0, 7, &err), 0);
    uint8_t *after = read_file(&size_again);
    cr_expect(size == size_again && !memcmp(before, after, size));
    free(before);
    free(after);
}

Test(snapshot, a_smaller_context_takes_what_fits)
{
    struct error err = {0};
    int n;
    struct session *small = open_session(model, 100, DT_F16);
    cr_assert_eq(snapshot_load(file, model, small, 0, 7, &n, &err), 0, "%s", err.text);
    cr_expect_eq(n, 100);
    session_close(small);
}

static void expect_refused(const struct model *m, struct session *s, uint64_t salt, const char *what)
{
    struct error err = {0};
    int n = -1;
    cr_expect_eq(snapshot_load(file, m, s, 0, salt, &n, &err), -1, "%s", what);
    cr_expect_eq(err.code, E_MODEL, "%s", what);
    cr_expect(strstr(err.text, "of another model"), "%s: %s", what, err.text);
    cr_expect_eq(n, 0, "%s", what);
}

Test(snapshot, another_model_or_way_to_compute_does_not_take_it)
{
    struct model *other = open_model(other_path);
    struct session *s = open_session(other, 512, DT_F16);
    expect_refused(other, s, 7, "other weights");
    session_close(s);
    model_close(other);
    s = open_session(model, 512, DT_Q8_0);
    expect_refused(model, s, 7, "other type of keys");
    session_close(s);
    expect_refused(model, session, 8, "other flags");
}

// Writes a control vector for layer 1 of `model`, all of whose elements are `value`.
static void write_vector(const char *path, float value)
{
    struct gguf_writer *w;
    struct error err = {0};
    const int64_t n = model->info.n_embd;
    cr_assert_eq(gguf_writer_open(&w, path, &err), 0, "%s", err.text);
    cr_assert_eq(gguf_write_tensor_info(w, "direction.1", DT_F32, 1, &n, &err), 0, "%s", err.text);
    for (int64_t i = 0; i < n; i++)
        cr_assert_eq(gguf_write_data(w, &value, sizeof value, &err), 0, "%s", err.text);
    cr_assert_eq(gguf_writer_close(w, &err), 0, "%s", err.text);
}

static void expect_refused_steered(const char *vector, float scale, struct control_range range)
{
    struct error err = {0};
    struct model *m;
    const struct model_adapter control = {vector, scale};
    struct model_options o = {.path = model_path, .device = DEVICE_CPU, .machine = {.n_threads = 1}};
    o.adapters = &control, o.n_adapters = o.n_controls = 1, o.control_range = range;
    cr_assert_eq(model_open(&m, &o, &err), 0, "%s", err.text);
    struct session *s = open_session(m, 512, DT_F16);
    expect_refused(m, s, 7, "control vector");
    session_close(s);
    model_close(m);
}

Test(snapshot, another_control_vector_scale_or_range_does_not_take_it)
{
    char vector[256], second[256];
    struct error err = {0};
    snprintf(vector, sizeof vector, "%s/vector.gguf", folder);
    snprintf(second, sizeof second, "%s/second.gguf", folder);
    write_vector(vector, 0.5f);
    write_vector(second, 0.25f);
    expect_refused_steered(vector, 1, (struct control_range){0}); // the file is of the plain model
    struct model *steered;
    const struct model_adapter control = {vector, 1};
    struct model_options o = {.path = model_path, .device = DEVICE_CPU, .machine = {.n_threads = 1}};
    o.adapters = &control, o.n_adapters = o.n_controls = 1;
    cr_assert_eq(model_open(&steered, &o, &err), 0, "%s", err.text);
    struct session *s = open_session(steered, 512, DT_F16);
    int n = 0;
    prompt(s, N_TOKENS, NULL);
    cr_assert_eq(snapshot_save(file, steered, s, 0, 7, &err), 0, "%s", err.text);
    session_close(s);
    s = open_session(steered, 512, DT_F16);
    cr_expect_eq(snapshot_load(file, steered, s, 0, 7, &n, &err), 0, "the same vector: %s", err.text);
    session_close(s);
    model_close(steered);
    expect_refused(model, session, 7, "no control vector");
    expect_refused_steered(second, 1, (struct control_range){0});
    expect_refused_steered(vector, 2, (struct control_range){0});
    expect_refused_steered(vector, 1, (struct control_range){2, 9});
    unlink(vector);
    unlink(second);
}

// Returns how many tokens may be present after a load if byte `at` has changed.
static int tokens_before(size_t at, size_t page_bytes)
{
    size_t pages_at = SNAPSHOT_HEAD + N_TOKENS * 4;
    return at < pages_at ? 0 : (int)((at - pages_at) / (page_bytes + 8)) * KV_PAGE;
}

Test(snapshot, any_changed_byte_is_found_and_the_answer_is_the_same)
{
    size_t size, page = session_page_bytes(session);
    uint8_t *data = read_file(&size);
    cr_assert_eq(N_TOKENS % 2, 0, "no padding");
    size_t places[400], n_places = 0;
    for (size_t at = 0; at < SNAPSHOT_HEAD; at++)
        places[n_places++] = at;
    for (size_t i = 0; i < 30; i++)
        places[n_places++] = SNAPSHOT_HEAD + i * 26; // tokens
    size_t pages_at = SNAPSHOT_HEAD + N_TOKENS * 4;
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 24; k++)
            places[n_places++] = pages_at + i * (page + 8) + (k < 16 ? k * (page / 16) : page + k - 16);
    for (size_t i = 0; i < n_places; i++) {
        struct error err = {0};
        int n = -1;
        char what[40];
        snprintf(what, sizeof what, "byte %zu", places[i]);
        data[places[i]] ^= (uint8_t)(1u << i % 8);
        write_file(data, size);
        cr_expect_eq(snapshot_load(file, model, session, 0, 7, &n, &err), -1, "%s", what);
        cr_expect_eq(err.code, E_MODEL, "%s: %s", what, err.text);
        cr_expect_eq(n, tokens_before(places[i], page), "%s: %d tokens", what, n);
        if (i % 20 == 0) {
            int held = session_length(session, 0);
            expect_same_answer(held, what);
            forget();
        }
        data[places[i]] ^= (uint8_t)(1u << i % 8);
    }
    free(data);
}

Test(snapshot, a_file_of_another_length_is_refused)
{
    size_t size;
    uint8_t *data = read_file(&size);
    uint8_t *longer = calloc(1, size + 8);
    memcpy(longer, data, size);
    const size_t sizes[] = {0,        1,        63,       64,       65,       64 + N_TOKENS * 4,
                            size / 2, size - 9, size - 8, size - 1, size + 1, size + 8};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct error err = {0};
        int n = -1;
        write_file(longer, sizes[i]);
        cr_expect_eq(snapshot_load(file, model, session, 0, 7, &n, &err), -1, "%zu bytes", sizes[i]);
        cr_expect_eq(err.code, E_MODEL);
        cr_expect_eq(n, 0);
    }
    free(longer);
    free(data);
}

Test(snapshot, heads_that_lie_are_found)
{
    struct snapshot_head out;
    struct error err;
    size_t size;
    uint8_t *data = read_file(&size), head[SNAPSHOT_HEAD];
    static const struct {
        size_t at;
        uint64_t value;
        const char *says;
    } cases[] = {
        {0, 0, "not a cache"},
        {8, 99, "version 99"},
        {8, 1, "version 1"},
        {8, 0, "version 0"},
        {32, UINT64_MAX, "another size"},
        {40, 32, "pages of other sizes"},
        {48, 0, "more tokens than bytes, or none"},
        {48, UINT64_MAX, "more tokens than bytes"},
        {48, UINT64_C(1) << 62, "more tokens than bytes"},
        {48, N_TOKENS + 100, "another size"},
    };
    // A file that is longer than its pages has a state behind them.
    memcpy(head, data, sizeof head);
    memset(head + 32, 0, 8);
    cr_expect(snapshot_parse(head, size, &out, &err) == 0 && out.state_bytes > 0);
    cr_expect(snapshot_parse(data, size, &out, &err) == 0 && out.state_bytes == 0);
    cr_expect_eq(snapshot_parse(data, size + 8, &out, &err), -1);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        memcpy(head, data, sizeof head);
        memcpy(head + cases[i].at, &cases[i].value, 8);
        cr_expect_eq(snapshot_parse(head, size, &out, &err), -1, "%zu", i);
        cr_expect(strstr(err.text, cases[i].says), "%zu: %s", i, err.text);
    }
    free(data);
}

Test(snapshot, what_is_no_file_is_no_snapshot)
{
    struct error err;
    int n;
    cr_expect_eq(snapshot_load(folder, model, session, 0, 7, &n, &err), -1);
    cr_expect(strstr(err.text, "not a cache of quern"), "%s", err.text);
    cr_expect_eq(snapshot_load("/nonsense/x", model, session, 0, 7, &n, &err), -1);
    cr_expect_eq(err.code, E_IO);
    cr_expect_eq(snapshot_save("/nonsense/x", model, session, 0, 7, &err), -1);
    cr_expect_eq(err.code, E_USAGE, "an empty sequence: %s", err.text);
    prompt(session, N_TOKENS, NULL);
    cr_expect_eq(snapshot_save("/nonsense/x", model, session, 0, 7, &err), -1);
    cr_expect_eq(err.code, E_IO);
}

Test(snapshot, a_full_disk_leaves_the_old_file)
{
    struct error err = {0};
    size_t size, size_after;
    uint8_t *before = read_file(&size);
    prompt(session, N_TOKENS + N_MORE, NULL);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {100000, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    cr_expect_eq(snapshot_save(file, model, session, 0, 7, &err), -1);
    cr_expect_eq(err.code, E_IO, "%s", err.text);
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_FSIZE, &limit);
    uint8_t *after = read_file(&size_after);
    cr_expect(size == size_after && !memcmp(before, after, size));
    char command[200];
    snprintf(command, sizeof command, "test $(ls '%s' | wc -l) = 3", folder);
    cr_expect_eq(system(command), 0, "nothing is left behind");
    free(before);
    free(after);
}

Test(snapshot, a_link_keeps_leading_to_the_file)
{
    char link_path[200], target[200];
    struct file_replace f;
    struct error err;
    struct stat there;
    snprintf(link_path, sizeof link_path, "%s/link", folder);
    snprintf(target, sizeof target, "%s/target", folder);
    close(open(target, O_CREAT | O_WRONLY, 0600));
    cr_assert_eq(symlink(target, link_path), 0);
    cr_assert_eq(file_replace_begin(&f, link_path, &err), 0);
    cr_assert_eq(file_replace_write(&f, "x", 1, &err), 0);
    cr_assert_eq(file_replace_end(&f, &err), 0);
    cr_expect(lstat(link_path, &there) == 0 && S_ISLNK(there.st_mode));
    cr_expect(stat(target, &there) == 0 && there.st_size == 1);
}

Test(snapshot, a_device_is_not_replaced)
{
    char pipe_path[200];
    struct file_replace f;
    struct error err;
    struct stat there;
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", folder);
    cr_assert_eq(mkfifo(pipe_path, 0600), 0);
    cr_expect_eq(file_replace_begin(&f, pipe_path, &err), -1);
    cr_expect(err.code == E_USAGE && strstr(err.text, "no ordinary file"), "%s", err.text);
    cr_expect(stat(pipe_path, &there) == 0 && S_ISFIFO(there.st_mode));
}
