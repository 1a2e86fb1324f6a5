// Tests quern run as a program: its inputs and their order, and its output as text, as an object and as lines; that
// log-probabilities equal those of `quern logits`, and that speculation changes nothing that is printed.
#include "models/synth_model.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGS_MAX = 600, N_VOCAB = 600, BYTE_FIRST = 3, BYTE_LAST = 258 };

static char model[] = "/tmp/quern-run-XXXXXX", other[] = "/tmp/quern-run-XXXXXX", scratch[] = "/tmp/quern-run-XXXXXX";

static void make_model(char *path, const char *preset, int n_vocab, uint64_t seed)
{
    struct error err;
    struct synth_options o = {.preset = preset, .mix = "Q8_0", .n_vocab = n_vocab, .seed = seed};
    cr_assert_eq(synth_model_write(&o, path, &err), 0, "%s", err.text);
}

static void make_all(void)
{
    char *const paths[] = {model, other, scratch};
    for (size_t i = 0; i < COUNT_OF(paths); i++)
        close(mkstemp(paths[i]));
    make_model(model, "llama-tiny", N_VOCAB, 1);
    make_model(other, "llama-tiny", 900, 1);
}

static void remove_all(void)
{
    unlink(model);
    unlink(other);
    unlink(scratch);
}

TestSuite(run, .init = make_all, .fini = remove_all);

struct result {
    int status;
    char out[1 << 17], err[1 << 13];
    size_t n;
};

static int empty_file(const char *content)
{
    char path[] = "/tmp/quern-run-XXXXXX";
    int fd = mkstemp(path);
    unlink(path);
    cr_assert_eq(write(fd, content, strlen(content)), (ssize_t)strlen(content));
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static size_t read_back(int fd, char *out, size_t size)
{
    ssize_t n = pread(fd, out, size - 1, 0);
    cr_assert_geq(n, 0);
    out[n] = '\0';
    close(fd);
    return (size_t)n;
}

// Tokens that are single bytes make no text that can be compared: they are forbidden.
static int forbid_bytes(const char **argv, int argc)
{
    static char bans[BYTE_LAST + 1][12];
    for (int id = BYTE_FIRST; id <= BYTE_LAST; id++) {
        snprintf(bans[id], sizeof bans[id], "%d-inf", id);
        argv[argc++] = "-l";
        argv[argc++] = bans[id];
    }
    return argc;
}

static bool allow_bytes; // where a grammar sees to it that they make text

// Runs quern VERB -m model ARGS, with `in` on stdin.
static void quern(struct result *r, const char *verb, const char *in, ...)
{
    const char *argv[ARGS_MAX] = {getenv("QUERN_BIN"), verb, "-m", model};
    int argc = strcmp(verb, "run") || allow_bytes ? 4 : forbid_bytes(argv, 4);
    cr_assert(argv[0]);
    va_list args;
    va_start(args, in);
    while (argc < ARGS_MAX - 1 && (argv[argc] = va_arg(args, const char *)))
        argc++;
    va_end(args);
    int fds[] = {empty_file(in), empty_file(""), empty_file("")};
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 3; i++)
            dup2(fds[i], i);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    int status;
    while (waitpid(pid, &status, 0) < 0)
        cr_assert_eq(errno, EINTR);
    r->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    r->n = read_back(fds[1], r->out, sizeof r->out);
    read_back(fds[2], r->err, sizeof r->err);
    close(fds[0]);
}

static void put_file(const char *content, size_t n)
{
    int fd = open(scratch, O_WRONLY | O_TRUNC);
    cr_assert_eq(write(fd, content, n), (ssize_t)n);
    close(fd);
}

static const char *text_of(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(object, key));
    cr_assert(text, "no text \"%s\"", key);
    return text;
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *number = cJSON_GetObjectItem(object, key);
    cr_assert(cJSON_IsNumber(number), "no number \"%s\"", key);
    return number->valuedouble;
}

// --- prompts ---

static char *answer_to(const char *in, const char *flag, const char *value, const char *flag2, const char *value2)
{
    static struct result r;
    quern(&r, "run", in, "--raw", "--seed", "3", "-n", "12", flag, value, flag2, value2, NULL);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_gt(r.n, 0);
    return strdup(r.out);
}

Test(run, a_prompt_is_the_same_however_it_is_given)
{
    put_file("ka to mi\n", 9);
    char *answers[] = {
        answer_to("", "-p", "ka to mi", NULL, NULL),    answer_to("", "ka to mi", NULL, NULL, NULL),
        answer_to("", "-f", scratch, NULL, NULL),       answer_to("ka to mi\n", NULL, NULL, NULL, NULL),
        answer_to("ka to mi\n", "-f", "-", NULL, NULL),
    };
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        cr_expect_str_eq(answers[i], answers[0], "way %zu", i);
        if (i)
            free(answers[i]);
    }
    char *both = answer_to("", "-p", "ka to", "-f", scratch),
         *joined = answer_to("", "-p", "ka to\n\nka to mi", NULL, NULL);
    cr_expect_str_eq(both, joined, "-p stands before the file");
    free(answers[0]);
    free(both);
    free(joined);
}

Test(run, images_are_refused_by_name)
{
    static struct result r;
    put_file("\x89PNG\r\n\x1a\n....", 12);
    quern(&r, "run", "", "-f", scratch, NULL);
    cr_expect_eq(r.status, 2);
    cr_expect(strstr(r.err, scratch) && strstr(r.err, "an image (PNG); quern reads text alone"), "%s", r.err);
    quern(&r, "run", "", "--image", "cat.jpg", "what is this", NULL);
    cr_expect_eq(r.status, 2);
    cr_expect(strstr(r.err, "cat.jpg: quern reads text alone"), "%s", r.err);
    quern(&r, "run", "", "-p", "a", "b", NULL);
    cr_expect_eq(r.status, 2);
}

Test(run, echo_puts_the_prompt_first)
{
    static struct result plain, echoed;
    quern(&plain, "run", "", "--raw", "--temp", "0", "-n", "9", "-p", "ka to", NULL);
    quern(&echoed, "run", "", "--raw", "--temp", "0", "-n", "9", "--echo", "-p", "ka to", NULL);
    cr_expect_eq(strncmp(echoed.out, "ka to", 5), 0);
    cr_expect_str_eq(echoed.out + 5, plain.out);
    quern(&echoed, "run", "", "--raw", "--temp", "0", "-n", "9", "--echo", "--json", "-p", "ka to", NULL);
    cJSON *object = cJSON_Parse(echoed.out);
    cr_assert(object, "%s", echoed.out);
    cr_expect_str_eq(text_of(object, "prompt"), "ka to");
    // text for a pipe ends with a line, the member of an object as the model ended it
    cr_expect_eq(strlen(text_of(object, "text")), plain.n - 1);
    cr_expect(!strncmp(text_of(object, "text"), plain.out, plain.n - 1) && plain.out[plain.n - 1] == '\n');
    cJSON_Delete(object);
}

// --- lines ---

// The lines of --jsonl, as an array.
static cJSON *lines_of(char *out)
{
    cJSON *lines = cJSON_CreateArray();
    char *rest = out;
    for (char *line; (line = strtok_r(NULL, "\n", &rest)) != NULL;) {
        cJSON *event = cJSON_Parse(line);
        cr_assert(event, "no JSON: %s", line);
        cJSON_AddItemToArray(lines, event);
    }
    return lines;
}

Test(run, lines_tell_what_the_object_tells)
{
    static struct result lines, whole;
    quern(&whole, "run", "", "--raw", "--seed", "5", "-n", "25", "--json", "--logprobs", "2", "-p", "ka to", NULL);
    quern(&lines, "run", "", "--raw", "--seed", "5", "-n", "25", "--jsonl", "--logprobs", "2", "-p", "ka to", NULL);
    cr_assert(whole.status == 0 && lines.status == 0, "%s%s", whole.err, lines.err);
    cJSON *object = cJSON_Parse(whole.out), *events = lines_of(lines.out);
    const cJSON *event, *logprobs = cJSON_GetObjectItem(object, "logprobs");
    cr_expect_eq(cJSON_GetArraySize(logprobs), 25);
    char text[4096] = "";
    int n_tokens = 0;
    cJSON_ArrayForEach(event, events)
    {
        const char *type = text_of(event, "type");
        if (!strcmp(type, "text"))
            strcat(text, text_of(event, "text"));
        if (strcmp(type, "token"))
            continue;
        const cJSON *same = cJSON_GetArrayItem(logprobs, n_tokens);
        cr_expect_eq(number_of(event, "index"), n_tokens++);
        cr_expect_eq(number_of(event, "id"), number_of(same, "id"));
        cr_expect_eq(number_of(event, "logprob"), number_of(same, "logprob"));
        cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItem(event, "top_logprobs")), 2);
    }
    cr_expect_eq(n_tokens, 25);
    cr_expect_str_eq(text, text_of(object, "text"));
    event = cJSON_GetArrayItem(events, 0);
    cr_expect_str_eq(text_of(event, "type"), "start");
    cr_expect_eq(number_of(event, "seed"), 5);
    event = cJSON_GetArrayItem(events, cJSON_GetArraySize(events) - 1);
    cr_expect_str_eq(text_of(event, "type"), "end");
    cr_expect_str_eq(text_of(event, "stop_reason"), "length");
    cr_expect_eq(number_of(event, "tokens"), 25);
    cJSON_Delete(object);
    cJSON_Delete(events);
    quern(&whole, "run", "", "--logprobs", "2", "-p", "ka to", NULL);
    cr_expect_eq(whole.status, 2);
    cr_expect(strstr(whole.err, "--logprobs: needs --json or --jsonl"), "%s", whole.err);
}

Test(run, a_stop_string_across_tokens_ends_the_answer)
{
    static struct result whole, cut;
    quern(&whole, "run", "", "--raw", "--temp", "0", "-n", "40", "-p", "ka to", NULL);
    cr_assert_gt(whole.n, 30);
    for (size_t at = 3; at < 25; at += 7) {
        char stop[8] = "";
        memcpy(stop, whole.out + at, 6); // tokens of this vocabulary have about three letters
        quern(&cut, "run", "", "--raw", "--temp", "0", "-n", "40", "--stop", stop, "--json", "-p", "ka to", NULL);
        cJSON *object = cJSON_Parse(cut.out);
        cr_assert(object, "%s", cut.out);
        size_t want = (size_t)(strstr(whole.out, stop) - whole.out);
        cr_expect_eq(strlen(text_of(object, "text")), want);
        cr_expect_eq(strncmp(text_of(object, "text"), whole.out, want), 0);
        cr_expect_str_eq(text_of(object, "stop_reason"), "stop");
        cJSON_Delete(object);
    }
}

// --- log-probabilities ---

static void write_ids(const int32_t *ids, int32_t n)
{
    int32_t head[2] = {n, N_VOCAB};
    FILE *f = fopen(scratch, "wb");
    fwrite(head, sizeof head, 1, f);
    fwrite(ids, sizeof *ids, (size_t)n, f);
    for (int i = 0; i < n * N_VOCAB; i++)
        fwrite(&(float){0}, sizeof(float), 1, f);
    fclose(f);
}

static double log_softmax(const float *logits, int id)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < N_VOCAB; i++)
        max = fmax(max, (double)logits[i]);
    for (int i = 0; i < N_VOCAB; i++)
        sum += exp((double)logits[i] - max);
    return (double)logits[id] - max - log(sum);
}

Test(run, log_probabilities_are_those_of_the_logits)
{
    static struct result r;
    static int32_t ids[64];
    int32_t n = 0;
    quern(&r, "tokenize", "", "--bos", "ka to mi", NULL);
    char *rest = r.out;
    for (char *word; (word = strtok_r(NULL, " \n", &rest)) != NULL;)
        ids[n++] = atoi(word);
    int n_prompt = n;
    quern(&r, "run", "", "--raw", "--seed", "2", "--temp", "1.2", "-n", "30", "--json", "--logprobs", "3", "-p",
          "ka to mi", NULL);
    cJSON *object = cJSON_Parse(r.out);
    cr_assert(object, "%s", r.err);
    cr_assert_eq(number_of(object, "prompt_tokens"), n_prompt);
    const cJSON *token, *top;
    cJSON_ArrayForEach(token, cJSON_GetObjectItem(object, "logprobs")) ids[n++] = (int32_t)number_of(token, "id");
    write_ids(ids, n);
    char out_path[80];
    snprintf(out_path, sizeof out_path, "%s.out", scratch);
    quern(&r, "logits", "", "--ids", scratch, "-o", out_path, NULL);
    cr_assert_eq(r.status, 0, "%s", r.err);
    static float logits[64][N_VOCAB];
    FILE *f = fopen(out_path, "rb");
    cr_assert(f && !fseek(f, 8 + 4 * n, SEEK_SET) && fread(logits, sizeof *logits, (size_t)n, f) == (size_t)n);
    fclose(f);
    unlink(out_path);
    int row = n_prompt - 1;
    cJSON_ArrayForEach(token, cJSON_GetObjectItem(object, "logprobs"))
    {
        // seven digits are printed
        double want = log_softmax(logits[row], (int)number_of(token, "id"));
        cr_expect_float_eq(number_of(token, "logprob"), want, 1e-6 * fabs(want) + 1e-7);
        double last = 1;
        cJSON_ArrayForEach(top, cJSON_GetObjectItem(token, "top_logprobs"))
        {
            want = log_softmax(logits[row], (int)number_of(top, "id"));
            cr_expect_float_eq(number_of(top, "logprob"), want, 1e-6 * fabs(want) + 1e-7);
            cr_expect_leq(number_of(top, "logprob"), last);
            last = number_of(top, "logprob");
        }
        int greater = 0;
        for (int i = 0; i < N_VOCAB; i++)
            greater += log_softmax(logits[row], i) > last + 1e-5;
        cr_expect_leq(greater, 2, "no other is more likely than the third");
        row++;
    }
    cJSON_Delete(object);
}

// --- speculation and sampling ---

Test(run, speculation_changes_nothing_that_is_printed)
{
    static struct result plain, ahead;
    static const char *const ways[][4] = {{"--speculate", "on", "--draft-max", "5"},
                                          {"--speculate", "auto", "--draft-max", "16"},
                                          {"-md", model, "--speculate", "on"}};
    static const char *const temps[] = {"0", "0.9"};
    for (size_t t = 0; t < COUNT_OF(temps); t++) {
        quern(&plain, "run", "", "--raw", "--seed", "4", "--temp", temps[t], "-n", "80", "--speculate", "off", "-p",
              "ka to mi ka to mi ka to", NULL);
        cr_assert_eq(plain.status, 0, "%s", plain.err);
        for (size_t i = 0; i < COUNT_OF(ways); i++) {
            quern(&ahead, "run", "", "--raw", "--seed", "4", "--temp", temps[t], "-n", "80", ways[i][0], ways[i][1],
                  ways[i][2], ways[i][3], "-p", "ka to mi ka to mi ka to", NULL);
            cr_assert_eq(ahead.status, 0, "%s", ahead.err);
            cr_expect_str_eq(ahead.out, plain.out, "temperature %s, way %zu", temps[t], i);
        }
    }
    quern(&ahead, "run", "", "-md", other, "-p", "ka", NULL);
    cr_expect_eq(ahead.status, 2);
    cr_expect(strstr(ahead.err, "the draft model has another vocabulary"), "%s", ahead.err);
}

static char *sampled(const char *flag, const char *value)
{
    static struct result r;
    quern(&r, "run", "", "--raw", "--seed", "4", "-n", "40", flag, value, "-p", "ka to", NULL);
    cr_assert_eq(r.status, 0, "%s %s: %s", flag, value, r.err);
    return strdup(r.out);
}

Test(run, flags_of_sampling_reach_the_sampler)
{
    static struct result r;
    char *plain = sampled("--temp", "0.8");
    static const char *const flags[][2] = {
        {"--temp", "3"},      {"--top-k", "2"},        {"--top-p", "0.1"},          {"--min-p", "0.9"},
        {"--typical", "0.2"}, {"--top-nsigma", "0.5"}, {"--xtc-probability", "1"},  {"--repeat-penalty", "1.9"},
        {"--mirostat", "2"},  {"--samplers", "t"},     {"--dynatemp-range", "0.7"}, {"--logit-bias", "300+30"},
    };
    int differ = 0;
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        char *text = sampled(flags[i][0], flags[i][1]);
        // a model that is sure of its tokens may be moved by little: most flags change the text
        differ += strcmp(text, plain) != 0;
        free(text);
    }
    cr_expect_gt(differ, 8, "%d of %zu", differ, COUNT_OF(flags));
    free(plain);
    static const struct {
        const char *flag, *value, *says;
    } bad[] = {
        {"--logit-bias", "x", "--logit-bias x: not TOKEN+NUMBER"},
        {"--logit-bias", "9999+1", "the vocabulary has 600 tokens"},
        {"--logit-bias", "5+inf", "not TOKEN+NUMBER"},
        {"--samplers", "top_q", "\"top_q\" is no sampler"},
        {"--mirostat", "3", "from 0 to 2"},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        quern(&r, "run", "", bad[i].flag, bad[i].value, "-p", "x", NULL);
        cr_expect_eq(r.status, 2, "%s", bad[i].value);
        cr_expect(strstr(r.err, bad[i].says), "%s", r.err);
    }
}

Test(run, a_bias_forbids_and_forces)
{
    static struct result r;
    quern(&r, "run", "", "--raw", "--temp", "0", "-n", "5", "--jsonl", "-l", "300+1000", "-p", "ka", NULL);
    cJSON *events = lines_of(r.out);
    const cJSON *event;
    int n = 0;
    cJSON_ArrayForEach(event, events) if (!strcmp(text_of(event, "type"), "token"))
    {
        cr_expect_eq(number_of(event, "id"), 300);
        n++;
    }
    cr_expect_eq(n, 5);
    cJSON_Delete(events);
}

// --- chat templates ---

Test(run, a_template_makes_the_prompt_one_turn_of_a_user)
{
    static struct result r, raw;
    const char *template = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}bo";
    put_file(template, strlen(template));
    quern(&r, "run", "", "--chat-template-file", scratch, "-sys", "mi", "--temp", "0", "-n", "15", "ka to", NULL);
    cr_assert_eq(r.status, 0, "%s", r.err);
    quern(&raw, "run", "", "--raw", "--temp", "0", "-n", "15", "-p", "system mi user ka to bo", NULL);
    cr_expect_str_eq(r.out, raw.out);
    quern(&r, "run", "", "--raw", "-sys", "mi", "ka to", NULL);
    cr_expect_eq(r.status, 2);
    cr_expect(strstr(r.err, "--system: has no place in a raw prompt"), "%s", r.err);
    quern(&r, "run", "", "-sys", "mi", "ka to", NULL);
    cr_expect_eq(r.status, 2);
    cr_expect(strstr(r.err, "no chat template; --chat-template chatml or plain"), "%s", r.err);
    put_file("{% if %}", 8);
    quern(&r, "run", "", "--chat-template-file", scratch, "ka to", NULL);
    cr_expect_eq(r.status, 3);
    cr_expect(strstr(r.err, "line 1"), "%s", r.err);
}

Test(run, a_template_has_a_name_and_takes_variables)
{
    static struct result r, raw;
    quern(&r, "run", "", "--chat-template", "plain", "--temp", "0", "-n", "15", "ka to", NULL);
    cr_assert_eq(r.status, 0, "%s", r.err);
    quern(&raw, "run", "", "--raw", "--stop", "\nUser:", "--temp", "0", "-n", "15", "-p",
          "User: ka to\nAssistant:", NULL);
    cr_expect_str_eq(r.out, raw.out);
    const char *template = "{{ messages[0].content }} {{ word }}";
    put_file(template, strlen(template));
    quern(&r, "run", "", "--chat-template-file", scratch, "--chat-template-kwargs", "{\"word\": \"bo\"}", "--temp", "0",
          "-n", "9", "ka to", NULL);
    quern(&raw, "run", "", "--raw", "--temp", "0", "-n", "9", "-p", "ka to bo", NULL);
    cr_expect_str_eq(r.out, raw.out, "%s", r.err);
    quern(&r, "run", "", "--chat-template-file", scratch, "--chat-template", "chatml", "ka", NULL);
    cr_expect(r.status == 2 && strstr(r.err, "give one of them"), "%s", r.err);
    quern(&r, "run", "", "--chat-template", "nosuch", "ka", NULL);
    cr_expect(r.status == 3 && strstr(r.err, "no chat template named 'nosuch'"), "%s", r.err);
    quern(&r, "run", "", "--chat-template", "plain", "--chat-template-kwargs", "[1]", "ka", NULL);
    cr_expect(r.status == 2 && strstr(r.err, "array where an object"), "%s", r.err);
}

// A byte order mark is no part of a grammar, a template or a prompt.
Test(run, byte_order_marks_are_passed_over)
{
    static struct result r, plain;
    static const char grammar[] = "\xef\xbb\xbfroot ::= \"ka bo\"", prompt[] = "\xef\xbb\xbfka to";
    put_file(grammar, strlen(grammar));
    quern(&r, "run", "", "--raw", "--grammar-file", scratch, "ka", NULL);
    cr_expect_str_eq(r.out, "ka bo\n", "%s", r.err);
    put_file(prompt, strlen(prompt));
    quern(&r, "run", "", "--raw", "--temp", "0", "-n", "9", "-f", scratch, NULL);
    quern(&plain, "run", "", "--raw", "--temp", "0", "-n", "9", "-p", "ka to", NULL);
    cr_expect_str_eq(r.out, plain.out, "%s", r.err);
}

// The ids of a text, and then its logits.
Test(run, tokenize_writes_what_logits_reads)
{
    static struct result r;
    char ids[] = "/tmp/quern-ids-XXXXXX", out[] = "/tmp/quern-logits-XXXXXX";
    close(mkstemp(ids));
    close(mkstemp(out));
    quern(&r, "tokenize", "", "-o", ids, "ka to\nbo", NULL);
    cr_assert_eq(r.status, 0, "%s", r.err);
    quern(&r, "logits", "", "--ids", ids, "-o", out, NULL);
    cr_assert_eq(r.status, 0, "%s", r.err);
    int32_t a[2], b[2], n_ids;
    FILE *f = fopen(ids, "r"), *g = fopen(out, "r");
    cr_assert(fread(a, 4, 2, f) == 2 && fread(b, 4, 2, g) == 2 && a[0] == b[0] && a[1] == b[1]);
    for (n_ids = 0; fread(a, 4, 1, f) == 1; n_ids++)
        cr_assert(fread(b + 1, 4, 1, g) == 1 && a[0] == b[1]);
    cr_expect_eq(n_ids, b[0]);
    fclose(f);
    fclose(g);
    quern(&r, "tokenize", "", "-o", ids, "--json", "ka", NULL);
    cr_expect(r.status == 2 && strstr(r.err, "no other form"), "%s", r.err);
    unlink(ids);
    unlink(out);
}

// --- forms ---

static const char *const schema =
    "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": "
    "8}, \"n\": {\"type\": \"integer\"}}, \"required\": [\"name\", \"n\"]}";

Test(run, answers_have_the_form_that_is_asked_for)
{
    static struct result r, ahead;
    const char *const seeds[] = {"1", "2", "3", "4", "5"};
    allow_bytes = true;
    for (size_t i = 0; i < COUNT_OF(seeds); i++) {
        quern(&r, "run", "", "--raw", "--seed", seeds[i], "--temp", "1.5", "-j", schema, "--speculate", "off", "ka",
              NULL);
        cr_assert_eq(r.status, 0, "%s", r.err);
        cJSON *object = cJSON_Parse(r.out);
        cr_assert(object, "%s", r.out);
        cr_expect_leq(strlen(text_of(object, "name")), 8 * 4);
        cr_expect_eq(number_of(object, "n"), floor(number_of(object, "n")));
        cJSON_Delete(object);
        quern(&ahead, "run", "", "--raw", "--seed", seeds[i], "--temp", "1.5", "-j", schema, "--speculate", "on", "ka",
              NULL);
        cr_expect_str_eq(ahead.out, r.out, "drafts hold to the grammar too");
    }
    put_file("root ::= \"ka \" [a-c]{3}", strlen("root ::= \"ka \" [a-c]{3}"));
    quern(&r, "run", "", "--raw", "--grammar-file", scratch, "ka", NULL);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_expect(r.n == 7 && !strncmp(r.out, "ka ", 3) && strspn(r.out + 3, "abc") == 3, "%s", r.out);
    quern(&r, "run", "", "--raw", "--grammar-file", scratch, "-n", "1", "ka", NULL);
    cr_expect(r.status == 1 && strstr(r.err, "cut before its form was complete"), "%d: %s", r.status, r.err);
    quern(&r, "run", "", "--grammar", "root ::= x", "ka", NULL);
    cr_expect_eq(r.status, 2);
    cr_expect(strstr(r.err, "--grammar"), "%s", r.err);
    quern(&r, "run", "", "--grammar", "root ::= \"x\"", "-j", "{}", "ka", NULL);
    cr_expect_eq(r.status, 2);
    cr_expect(strstr(r.err, "--grammar and --json-schema: one of them"), "%s", r.err);
    quern(&r, "run", "", "-j", "{\"type\": 5}", "ka", NULL);
    cr_expect_eq(r.status, 2);
}

// Reasoning is cut where its budget is spent, by the mark that closes it, and the form holds behind that.
Test(run, reasoning_has_a_budget_and_the_form_comes_behind_it)
{
    static struct result r;
    allow_bytes = true;
    const char *template = "{# </think> #}{% for m in messages %}{{ m.content }}{% endfor %}<think>\n";
    put_file(template, strlen(template));
    quern(&r, "run", "", "--chat-template-file", scratch, "--think-budget", "5", "--grammar",
          "root ::= \"yes\" | \"no\"", "--jsonl", "ka to", NULL);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cJSON *events = lines_of(r.out);
    const cJSON *event;
    char text[4096] = "";
    int n = 0, closed = -1;
    cJSON_ArrayForEach(event, events) if (!strcmp(text_of(event, "type"), "token"))
    {
        strcat(text, text_of(event, "token"));
        n++;
        closed = closed < 0 && strstr(text, "</think>") ? n : closed;
    }
    const char *mark = strstr(text, "</think>");
    cr_assert(mark, "%s", text);
    cr_expect_leq(closed, 5 + 8, "five tokens, and those of the mark");
    const char *form = mark + 8 + strspn(mark + 8, " \t\r\n"); // white space may stand between
    cr_expect(!strcmp(form, "yes") || !strcmp(form, "no"), "%s", text);
    char reasoning[4096] = "", content[4096] = "";
    cJSON_ArrayForEach(event, events)
    {
        const char *type = text_of(event, "type");
        char *to = !strcmp(type, "reasoning") ? reasoning : !strcmp(type, "text") ? content : NULL;
        if (to)
            strcat(to, text_of(event, "text"));
    }
    cr_expect_str_eq(content, form, "the content is what stands behind the mark");
    cr_expect(*reasoning && !strstr(reasoning, "think>"), "%s", reasoning);
    quern(&r, "run", "", "--chat-template-file", scratch, "--think-budget", "5", "--grammar",
          "root ::= \"yes\" | \"no\"", "ka to", NULL);
    cr_expect(!strcmp(r.out, "yes\n") || !strcmp(r.out, "no\n"), "of a pipe the answer alone: %s", r.out);
    cJSON_Delete(events);
}
