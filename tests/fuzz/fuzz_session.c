// Fuzz target: any text as the file of a saved chat. It is refused in one clean line and the dialogue stays what it was,
// or it is loaded, and what is saved of it is the same dialogue when it is loaded again.
//
// The model is the built-in one. With -DFUZZ_SEEDS it is a program that writes a few sound inputs into the directory that
// it is given, to start from.
#include "cmd/chat/chat_verb.h"
#include "cmd/template_choice.h"
#include "tests/fuzz/mutate_json.h"

#include <fcntl.h>
#include <sanitizer/common_interface_defs.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifndef FUZZ_SEEDS
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

static struct {
    struct options o;
    struct chat chat;
    int file, messages, nowhere; // the input; stderr as it was; /dev/null
    char path[64], saved[64];
} rig;

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    dprintf(rig.messages ? rig.messages : STDERR_FILENO, "fuzz_session: %s\n", what);
    abort();
}

// What the chat notes is not wanted here.
static void quiet(bool on)
{
    dup2(on ? rig.nowhere : rig.messages, STDERR_FILENO);
}

static void parse_options(void)
{
    struct error err;
    char *argv[] = {(char *)(uintptr_t) "chat",      (char *)(uintptr_t) "-c", (char *)(uintptr_t) "128",
                    (char *)(uintptr_t) "--threads", (char *)(uintptr_t) "1",  NULL};
    check(!options_parse(&rig.o, VERB_CHAT, COUNT_OF(argv) - 1, argv, &err), "the command line is refused");
    rig.o.given[OPT_n_ctx] = rig.o.given[OPT_threads] = false; // not to be saved
}

static void begin(void)
{
    struct error err = {0};
    struct chat *c = &rig.chat;
    const char *folder = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    parse_options();
    c->o = &rig.o;
    check(!load_model(&c->l, &rig.o, &err) && !load_session(&c->l, &rig.o, 0, 1, &err), err.text);
    check(!template_choice_open(&c->chat, &rig.o, c->l.model, &err), err.text);
    dialogue_open(&c->dialogue, c->l.model, c->l.session, c->chat);
    rig.file = memfd_create("session", MFD_CLOEXEC);
    rig.nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    rig.messages = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    check(rig.file >= 0 && rig.nowhere >= 0 && rig.messages >= 0, "no descriptors");
    __sanitizer_set_report_fd((void *)(uintptr_t)(unsigned)rig.messages);
    snprintf(rig.path, sizeof rig.path, "/proc/self/fd/%d", rig.file);
    snprintf(rig.saved, sizeof rig.saved, "%s/fuzz-session-%ld.json", folder, (long)getpid());
}

// An error says what is wrong, in one clean line.
static void check_error(const struct error *err)
{
    check(err->code == E_USAGE || err->code == E_MEMORY || err->code == E_IO, "an odd error code");
    check(*err->text && utf8_valid(str_from(err->text)), "an odd error text");
    for (const char *c = err->text; *c; c++)
        check((unsigned char)*c >= 0x20 && *c != 0x7F, "a control character in an error");
}

static void check_same(const struct dialogue *a, const struct dialogue *b)
{
    check(a->n == b->n && str_equal(a->system, b->system), "another dialogue is loaded than was saved");
    for (size_t i = 0; i < a->n; i++)
        check(a->messages[i].role == b->messages[i].role && str_equal(a->messages[i].content, b->messages[i].content) &&
                  str_equal(a->messages[i].reasoning, b->messages[i].reasoning),
              "another message is loaded than was saved");
}

// Saves the dialogue, loads it in its own place, and compares.
static void save_and_load(struct chat *c)
{
    struct error err = {0};
    struct dialogue before;
    c->session_path = rig.saved; // which is ours, and may be replaced
    check(!chat_session_save(c, rig.saved, &err), err.text);
    before = c->dialogue;
    dialogue_open(&c->dialogue, c->l.model, c->l.session, c->chat);
    check(!chat_session_load(c, rig.saved, &err), err.text);
    check_same(&before, &c->dialogue);
    dialogue_close(&before);
    c->session_path = NULL;
    unlink(rig.saved);
}

// A new chat, in which nothing was said and no flag is given.
static void start_over(struct chat *c)
{
    dialogue_close(&c->dialogue);
    constrained_close(&c->form);
    sampling_free(&c->sampling);
    options_free(&rig.o);
    parse_options();
    dialogue_open(&c->dialogue, c->l.model, c->l.session, c->chat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = {0};
    struct chat *c = &rig.chat;
    if (!c->o)
        begin();
    check(!ftruncate(rig.file, 0) && pwrite(rig.file, data, size, 0) == (ssize_t)size, "no file in memory");
    quiet(true);
    check(!dialogue_add(&c->dialogue, ROLE_USER, STR_LIT("before"), (struct str){0}, &err), err.text);
    if (!chat_session_load(c, rig.path, &err)) {
        rig.o.cache = false; // a setting of the text, with which a file would be left beside it
        save_and_load(c);
    } else {
        check_error(&err);
        check(c->dialogue.n == 1 && str_equal_z(c->dialogue.messages[0].content, "before"), "what was said is gone");
    }
    start_over(c);
    quiet(false);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    return mutate_json(data, size, max, 0, seed, LLVMFuzzerMutate);
}
#endif

#ifdef FUZZ_SEEDS
int main(int argc, char **argv)
{
    static const char *const seeds[] = {
        "{\"format\": \"quern-session\", \"version\": 1, \"model\": \"built-in\", \"settings\": {}, \"messages\": []}",
        "{\"format\": \"quern-session\", \"version\": 1, \"model\": \"m\", \"settings\": {\"--temp\": \"0.5\", "
        "\"--seed\": \"7\", \"--stop\": [\"a\", \"b\"], \"--no-wrap\": \"\", \"--think\": \"\"}, "
        "\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", \"content\": \"Hi\"}, "
        "{\"role\": \"assistant\", \"content\": \"Hello\\n\", \"reasoning_content\": \"They greet.\"}]}",
        "{\"format\": \"quern-session\", \"version\": 1, \"settings\": {\"--hide-thinking\": \"\", \"--top-k\": \"40\", "
        "\"--logit-bias\": [\"5-1\", \"6+2\"], \"--samplers\": \"top-k;temp\"}, \"messages\": [{\"role\": "
        "\"assistant\", \"content\": \"\"}, {\"role\": \"user\", \"content\": \"\\u202e\"}]}",
    };
    for (size_t i = 0; argc > 1 && i < COUNT_OF(seeds); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed-%zu", argv[1], i);
        FILE *f = fopen(path, "w");
        if (!f || fputs(seeds[i], f) < 0 || fclose(f))
            return 1;
    }
    return 0;
}
#endif
