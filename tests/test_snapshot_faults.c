// Tests saving and loading computed state, and the turns of a dialogue, where calls fail: each allocation fails once, also those
// of arenas, and each read of a file. The error says so and no call leaks; what was loaded before it is right, and the next
// load or turn gives what it gives otherwise.
#include "engine/chat/dialogue.h"
#include "engine/snapshot.h"
#include "models/synth_model.h"
#include "tests/arena_faults.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct fault read_fault = {.after = -1}, status_fault = {.after = -1};
static int fault_number = EIO; // errno of the call that fails

WRAP(ssize_t, pread64, (int fd, void *to, size_t n, off_t at))
{
    return fault_hits(&read_fault, fault_number) ? -1 : __real_pread64(fd, to, n, at);
}

WRAP(int, fstat64, (int fd, struct stat *st))
{
    return fault_hits(&status_fault, fault_number) ? -1 : __real_fstat64(fd, st);
}

// The results of these are of the C library's own heap, and are freed here.
WRAP(char *, realpath, (const char *name, char *out))
{
    char *p = __real_realpath(name, out);
    heap_live += p != NULL && !out;
    return p;
}

WRAP(char *, strdup, (const char *text))
{
    char *p = memory_fails() ? NULL : __real_strdup(text);
    heap_live += p != NULL;
    return p;
}

enum { N_TOKENS = 80, N_LONG = 240 };
static char folder[] = "/tmp/quern-snapshot-faults-XXXXXX";
static char path[100], file[100];
static struct model *model;
static struct session *session;

static struct session *open_session(int n_ctx)
{
    struct error err = {0};
    struct session *s;
    struct session_options o = {.n_ctx = n_ctx, .n_batch = 64, .kv_type = {DT_F16, DT_F16}};
    cr_assert_eq(session_open(&s, model, &o, &err), 0, "%s", err.text);
    return s;
}

static void reopen(int n_ctx)
{
    session_close(session);
    session = open_session(n_ctx);
}

static void open_all(const char *preset)
{
    struct error err = {0};
    struct synth_options synth = {.preset = preset, .mix = "Q8_0", .n_vocab = 400, .seed = 5};
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    snprintf(file, sizeof file, "%s/state.kv", folder);
    cr_assert_eq(synth_model_write(&synth, path, &err), 0, "%s", err.text);
    struct model_options o = {.path = path, .device = DEVICE_CPU, .machine = {.n_threads = 1}};
    cr_assert_eq(model_open(&model, &o, &err), 0, "%s", err.text);
    session = open_session(256);
}

static void close_all(void)
{
    char command[100];
    session_close(session);
    model_close(model);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_expect_eq(system(command), 0);
}

// Computes the first n tokens of a text. Returns how many of them were there.
static int prompt(struct session *s, int n)
{
    struct error err = {0};
    int32_t text[N_LONG];
    int n_reused;
    for (int i = 0; i < n; i++)
        text[i] = 3 + i * 7919 % 390;
    cr_assert_eq(session_prompt(s, 0, text, n, &n_reused, &err), 0, "%s", err.text);
    return n_reused;
}

// --- computed state ---

static int load(struct error *err)
{
    int n;
    return snapshot_load(file, model, session, 0, 7, &n, err);
}

static int save(struct error *err)
{
    return snapshot_save(file, model, session, 0, 7, err);
}

static void fail_each(struct fault *fault, int (*work)(struct error *err), int code, long least)
{
    long n = 0, failed = 0;
    struct error err = {0};
    cr_assert_eq(work(&err), 0, "%s", err.text);
    const long live = heap_live;
    do {
        err = (struct error){0};
        fault_arm(fault, n++);
        const int status = work(&err);
        fault_disarm(fault);
        cr_expect(!status || ((int)err.code == code && err.text[0]), "call %ld: %d %s", n, (int)err.code, err.text);
        cr_expect(!status == !err.code);
        failed += status != 0;
    } while (fault->fired);
    cr_expect_geq(failed, least, "%ld failed", failed);
    cr_assert_eq(heap_live, live, "%ld blocks leak", heap_live - live);
    cr_expect_eq(work(&err), 0, "%s", err.text);
}

static void every_call_fails(void)
{
    prompt(session, N_TOKENS);
    fail_each(&memory_fault, save, E_MEMORY, 1);
    fail_each(&memory_fault, load, E_MEMORY, 2);
    fail_each(&read_fault, load, E_IO, 3);
    fail_each(&status_fault, load, E_IO, 1);
    cr_expect_eq(session_length(session, 0), N_TOKENS);
}

Test(snapshot_faults, calls_that_fail_are_named, .fini = close_all, .timeout = 60)
{
    open_all("llama-tiny");
    every_call_fails();
}

// A read that a signal interrupts goes on.
Test(snapshot_faults, interrupted_reads_go_on, .fini = close_all, .timeout = 60)
{
    struct error err = {0};
    open_all("llama-tiny");
    prompt(session, N_TOKENS);
    cr_assert_eq(save(&err), 0, "%s", err.text);
    fault_number = EINTR;
    for (long n = 0; n < 4; n++) {
        fault_arm(&read_fault, n);
        cr_expect_eq(load(&err), 0, "%s", err.text);
        fault_disarm(&read_fault);
    }
}

// A model with recurrent state has it behind its pages: it is restored, or refused if it was changed or does not fit.
Test(snapshot_faults, recurrent_state_comes_back_or_is_refused, .fini = close_all, .timeout = 60)
{
    struct error err = {0};
    struct stat st;
    open_all("qwen35-tiny");
    every_call_fails();
    reopen(256);
    const size_t bytes = (size_t)model->info.n_vocab * sizeof(float);
    float *wanted = malloc(bytes);
    cr_expect_eq(prompt(session, N_TOKENS + 1), 0);
    memcpy(wanted, session_logits(session, 0), bytes);
    reopen(256);
    cr_assert_eq(load(&err), 0, "%s", err.text);
    cr_expect_eq(prompt(session, N_TOKENS + 1), N_TOKENS, "the text is not computed again");
    cr_expect(!memcmp(session_logits(session, 0), wanted, bytes));
    free(wanted);
    reopen(64); // fewer than the tokens
    cr_expect_eq(load(&err), -1);
    cr_expect(strstr(err.text, "the cache is of 80 tokens, which the context does not hold"), "%s", err.text);
    cr_expect_eq(session_length(session, 0), 0);
    reopen(256);
    FILE *f = fopen(file, "r+b");
    cr_assert(f && !fstat(fileno(f), &st) && !fseek(f, (long)st.st_size - 20, SEEK_SET));
    fputc('x', f);
    fclose(f);
    cr_expect_eq(load(&err), -1);
    cr_expect(strstr(err.text, "the cache is damaged: its state has changed"), "%s", err.text);
    cr_expect_eq(session_length(session, 0), 0, "pages without their state are not kept");
}

// A model whose every layer has a window gives up the beginning of a long text.
Test(snapshot_faults, a_text_whose_beginning_is_gone_is_not_kept, .fini = close_all, .timeout = 60)
{
    struct error err = {0};
    open_all("phi3-window-tiny");
    prompt(session, N_TOKENS);
    cr_expect_eq(save(&err), 0, "%s", err.text);
    prompt(session, N_LONG);
    cr_expect_eq(save(&err), -1);
    cr_expect_str_eq(err.text, "the beginning has left the model's window, and is not held any more");
}

// Whoever writes a cache of tokens that are none gets it refused, checksums or not.
Test(snapshot_faults, tokens_that_are_none_are_refused, .fini = close_all, .timeout = 60)
{
    enum { CHECKED = SNAPSHOT_HEAD - 8 }; // bytes of the head before its checksum
    const int32_t bad[] = {-1, 400};
    struct error err = {0};
    open_all("llama-tiny");
    prompt(session, N_TOKENS);
    cr_assert_eq(save(&err), 0, "%s", err.text);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        uint8_t head[SNAPSHOT_HEAD];
        int32_t tokens[N_TOKENS];
        FILE *f = fopen(file, "r+b");
        cr_assert(f && fread(head, 1, sizeof head, f) == sizeof head && fread(tokens, 4, N_TOKENS, f) == N_TOKENS);
        tokens[N_TOKENS - 1] = bad[i];
        const uint64_t sum = snapshot_checksum(tokens, sizeof tokens, snapshot_checksum(head, CHECKED, 0));
        memcpy(head + CHECKED, &sum, sizeof sum);
        rewind(f);
        cr_assert(fwrite(head, 1, sizeof head, f) == sizeof head && fwrite(tokens, 4, N_TOKENS, f) == N_TOKENS);
        fclose(f);
        cr_expect_eq(load(&err), -1);
        cr_expect(strstr(err.text, "the cache is damaged: a token is not in the vocabulary"), "%s", err.text);
        cr_expect_eq(session_length(session, 0), 0);
    }
}

// --- dialogues ---

static const char template_text[] =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}<think>"
    "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

static int take_part(void *arg, enum answer_part part, struct str text)
{
    (void)arg, (void)part, (void)text;
    return 0;
}

// A dialogue with a system prompt and a thought, and one more answer. Its text goes to `answer`.
static int talk(struct chat_template *chat, char *answer, size_t room, struct error *err)
{
    static const struct logit_bias words[] = {{300, 50}, {310, 50}};
    struct dialogue d;
    struct dialogue_result r;
    struct dialogue_settings s = {.emit = take_part};
    s.base.n_predict = 8;
    s.base.n_logprobs = -1;
    s.base.sampler = sampler_defaults();
    s.base.sampler.temperature = 0;
    s.base.sampler.biases = words;
    s.base.sampler.n_biases = COUNT_OF(words);
    dialogue_open(&d, model, session, chat);
    const int status = dialogue_set_system(&d, STR_LIT("be brief"), err) ||
                               dialogue_add(&d, ROLE_USER, STR_LIT("one"), (struct str){0}, err) ||
                               dialogue_add(&d, ROLE_ASSISTANT, STR_LIT("two"), STR_LIT("a thought"), err) ||
                               dialogue_add(&d, ROLE_USER, STR_LIT("three"), (struct str){0}, err) ||
                               dialogue_answer(&d, &s, &r, err)
                           ? -1
                           : 0;
    if (!status)
        snprintf(answer, room, "%.*s", STR_ARG(d.messages[d.n - 1].content));
    dialogue_close(&d);
    return status;
}

Test(snapshot_faults, dialogues_without_memory_say_so_and_go_on, .fini = close_all, .timeout = 120)
{
    char want[400], got[400];
    struct error err = {0};
    struct chat_template *chat;
    struct chat_choice choice = {.source = STR_LIT(template_text)};
    open_all("llama-tiny");
    cr_assert_eq(chat_open(&chat, model->file, model->tokenizer, &choice, &err), 0, "%s", err.text);
    cr_assert_eq(talk(chat, want, sizeof want, &err), 0, "%s", err.text);
    const long live = heap_live;
    long n = 0, failed = 0;
    do {
        err = (struct error){0};
        fault_arm(&memory_fault, n++);
        const int status = talk(chat, got, sizeof got, &err);
        fault_disarm(&memory_fault);
        cr_expect(status ? err.code == E_MEMORY : !strcmp(got, want), "allocation %ld: %d %s", n, status, err.text);
        cr_assert_eq(heap_live, live, "allocation %ld: %ld blocks leak", n, heap_live - live);
        failed += status != 0;
    } while (memory_fault.fired);
    printf("%ld allocations, %ld of them needed\n", n - 1, failed);
    cr_expect_gt(failed, 30);
    chat_close(chat);
}
