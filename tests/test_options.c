// Tests the parser of the command line and the text that it prints.
#include "cmd/options.h"
#include "cmd/terminal/terminal.h"
#include "engine/sample/sampler.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int parse(struct options *o, enum verb_number verb, struct error *err, ...)
{
    char *argv[32] = {(char *)(uintptr_t)verbs[verb].name};
    int argc = 1;
    va_list args;
    va_start(args, err);
    while (argc < 31 && (argv[argc] = va_arg(args, char *)))
        argc++;
    va_end(args);
    return options_parse(o, verb, argc, argv, err);
}

Test(options, numbers_of_whole_size)
{
    const struct {
        const char *text;
        int64_t want; // -77: none
    } cases[] = {
        {"0", 0},         {"-1", -1},      {"512", 512},
        {"25.6k", 25600}, {"32K", 32768},  {"1.5K", 1536},
        {"2m", 2000000},  {"1M", 1 << 20}, {"1G", 1 << 30},
        {"0.1k", 100},    {"", -77},       {"x", -77},
        {"1.5", -77},     {"1kk", -77},    {"1k2", -77},
        {"0x10", -77},    {"1e3", -77},    {"nan", -77},
        {"inf", -77},     {" 1", -77},     {"99999999999999999999", -77},
        {"0.0001k", -77},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int64_t got = -77;
        int status = options_parse_integer(cases[i].text, &got);
        cr_expect_eq(status, cases[i].want == -77 ? -1 : 0, "'%s'", cases[i].text);
        cr_expect_eq(got, cases[i].want, "'%s': %lld", cases[i].text, (long long)got);
    }
}

Test(options, flags_and_their_values)
{
    struct options o;
    struct error err;
    cr_assert_eq(parse(&o, VERB_RUN, &err, "-m", "a.gguf", "--temp=0.5", "-n", "-1", "--stop", "x", "--stop", "--y",
                       "-ctk", "Q8_0", "--", "-p", NULL),
                 0, "%s", err.text);
    cr_expect_str_eq(o.model, "a.gguf");
    cr_expect_eq(o.temp, 0.5);
    cr_expect_eq(o.n_predict, -1);
    cr_expect_eq(o.stops.n, 2);
    cr_expect_str_eq(o.stops.at[1], "--y");
    cr_expect_eq(o.kv_key, DT_Q8_0);
    cr_expect_eq(o.kv_value, DT_F16);
    cr_expect(o.args.n == 1 && !strcmp(o.args.at[0], "-p"));
    cr_expect(o.given[OPT_temp] && !o.given[OPT_top_k]);
    options_free(&o);
    cr_assert_eq(parse(&o, VERB_RUN, &err, "--device", "ref", "-s", "18446744073709551615", "-", NULL), 0, "%s",
                 err.text);
    cr_expect_eq(o.device, 2);
    cr_expect_eq(o.seed, UINT64_MAX);
    cr_expect(o.args.n == 1, "a dash alone is no flag");
    options_free(&o);
    cr_assert_eq(
        parse(&o, VERB_LOGITS, &err, "-t", "1", "-t", "2", "-o", "a", "-o", "a", "-m", "x.gguf", "-m", "y.gguf", NULL),
        0, "%s", err.text);
    cr_expect(o.threads == 2 && !strcmp(o.out, "a") && !strcmp(o.model, "y.gguf"), "the last of two counts");
    options_free(&o);
}

Test(options, mistakes_are_named_with_what_would_be_right)
{
    const struct {
        enum verb_number verb;
        const char *args[3];
        const char *says;
    } cases[] = {
        {VERB_RUN, {"--tmep", "1"}, "--tmep: unknown flag, did you mean --temp; see `quern help run`"},
        {VERB_RUN, {"--seeed=1"}, "--seeed: unknown flag, did you mean --seed"},
        {VERB_RUN, {"--qqqqqq"}, "--qqqqqq: unknown flag; see `quern help run`"},
        {VERB_RUN, {"--measure"}, "--measure: not a flag of run, but of device"},
        {VERB_LOGITS, {"--temp", "1"}, "--temp: not a flag of logits, but of run"},
        {VERB_RUN, {"-n"}, "-n: needs a value, N"},
        {VERB_RUN, {"-n", "many"}, "--predict many: not a whole number such as 512, 25.6k or 32K"},
        {VERB_RUN, {"-n", "-2"}, "--predict -2: from -1 to"},
        {VERB_RUN, {"-ub", "0"}, "--ubatch-size 0: from 1 to"},
        {VERB_RUN, {"--temp", "hot"}, "--temp hot: not a number"},
        {VERB_RUN, {"--temp", "nan"}, "--temp nan: not a number"},
        {VERB_RUN, {"--top-p", "1.5"}, "--top-p 1.5: from 0 to 1"},
        {VERB_RUN, {"--device", "cpuu"}, "--device cpuu: one of auto|cpu|ref|gpu"},
        {VERB_RUN, {"--device", ""}, "--device : one of"},
        {VERB_RUN, {"-ctk", "q4_k"}, "--cache-type-k q4_k: one of f32, f16, bf16, q8_0, q4_0"},
        {VERB_RUN, {"--seed", "-2"}, "--seed -2: not a number from 0"},
        {VERB_RUN, {"--threads", "-2"}, "--threads -2: from 0 to 1024; -1 is 0"},
        {VERB_RUN, {"-hf", "a/b"}, "-hf: quern downloads nothing; `quern ls`"},
        {VERB_RUN, {"-tt", "1"}, "-tt: unknown flag; see"}, // flags of a letter or two are near to all others
        {VERB_RUN, {"--host", "x"}, "--host: there is no server"},
        {VERB_BENCH, {"-ngl"}, "-ngl: needs a value"},
        {VERB_RUN, {"-sysf", "/nosuch"}, "/nosuch: No such file"},
        {VERB_LOGITS, {"-r", "x"}, "-r: not a flag of logits, but of bench"},
        {VERB_RUN, {"--json=1"}, "--json takes no value"},
        {VERB_RUN, {"--stop", ""}, "--stop: an empty text"},
        {VERB_LOGITS, {"--output=a", "--output=b"}, "--output: given twice, a and b, but it takes one"},
        {VERB_RUN, {"--file=a", "--file=b"}, "--file: given twice"},
        {VERB_BENCH, {"--plot=a", "--plot=b"}, "--plot: given twice"},
        {VERB_BENCH, {"--save=a", "--save=b"}, "--save: given twice"},
        {VERB_QUANTIZE, {"--imatrix=a", "--imatrix=b"}, "--imatrix: given twice"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct options o;
        struct error err = {0};
        cr_expect_eq(parse(&o, cases[i].verb, &err, cases[i].args[0], cases[i].args[1], NULL), -1, "case %zu", i);
        cr_expect(err.code == E_USAGE || err.code == E_IO);
        cr_expect(strstr(err.text, cases[i].says), "case %zu: %s", i, err.text);
    }
}

// Flags that hands know from other engines.
Test(options, habits_do_what_they_mean)
{
    struct options o;
    struct error err = {0};
    cr_redirect_stderr();
    cr_assert_eq(parse(&o, VERB_RUN, &err, "--n-predict", "7", "--temperature=0.5", "-r", "User:", "-fa", "on", "-ngl",
                       "99", "--jinja", "--flash-attn", "-no-cnv", "--reasoning-budget", "0", "-s", "-1", "-t", "-1",
                       "text", NULL),
                 0, "%s", err.text);
    cr_expect(o.n_predict == 7 && o.temp == 0.5 && o.raw && o.think_budget == 0 && o.threads == 0);
    cr_expect(o.stops.n == 1 && !strcmp(o.stops.at[0], "User:") && !o.given[OPT_seed]);
    cr_expect(o.args.n == 1 && !strcmp(o.args.at[0], "text"));
    options_free(&o);
    char path[] = "/tmp/quern-habit-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, "be\nbrief\n", 9), 9);
    cr_assert_eq(parse(&o, VERB_CHAT, &err, "-sysf", path, NULL), 0, "%s", err.text);
    cr_expect_str_eq(o.system, "be\nbrief");
    options_free(&o);
    close(fd);
    unlink(path);
}

// NAME:TAG is no prompt where no model has that name; a sentence with a colon, a time or an address is one.
Test(options, a_name_that_no_model_has_is_an_error)
{
    static const char *const names[] = {"no-such-model:3b", "someone/none:latest"}, *const prompts[] = {
                                                                                        "Note: be brief", "12:30",
                                                                                        "https://example.org",
                                                                                        "why:", "a::b"};
    struct options o;
    struct error err;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        cr_expect_eq(parse(&o, VERB_RUN, &err, names[i], NULL), -1, "%s", names[i]);
        cr_expect(strstr(err.text, names[i]), "%s", err.text);
        cr_expect_eq(parse(&o, VERB_CHAT, &err, names[i], NULL), -1, "%s", names[i]);
    }
    for (size_t i = 0; i < COUNT_OF(prompts); i++) {
        cr_assert_eq(parse(&o, VERB_RUN, &err, prompts[i], NULL), 0, "%s: %s", prompts[i], err.text);
        cr_expect(o.args.n == 1 && !strcmp(o.args.at[0], prompts[i]));
        options_free(&o);
    }
}

// In run every flag of the table is answered, and the flags that it stands for are ours.
Test(options, every_habit_is_answered)
{
    static const struct {
        const char *flag, *ours, *text;
    } rows[] = {
#define HABIT(flag, kind, ours, text) {flag, ours, text},
#define VERB_HABIT(verb, text)
#include "cmd/habits.def"
#undef HABIT
#undef VERB_HABIT
    };
    cr_redirect_stderr();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct options o;
        struct error err = {0};
        if (parse(&o, VERB_RUN, &err, rows[i].flag, "1", NULL) == 0)
            options_free(&o);
        else
            cr_expect(!strstr(err.text, "unknown flag"), "%s: %s", rows[i].flag, err.text);
        if (rows[i].ours && parse(&o, VERB_RUN, &err, rows[i].ours, "1", NULL) == 0)
            options_free(&o);
        else if (rows[i].ours)
            cr_expect(false, "%s: %s", rows[i].flag, err.text);
        cr_expect(!rows[i].text || strlen(rows[i].text) < 110, "%s: a long line", rows[i].flag);
    }
}

// A first argument that is a GGUF file is the model.
Test(options, a_model_may_stand_first)
{
    struct options o;
    struct error err = {0};
    char path[] = "/tmp/quern-model-XXXXXX.gguf";
    int fd = mkstemps(path, 5);
    cr_assert(fd >= 0);
    cr_assert_eq(parse(&o, VERB_RUN, &err, path, "a prompt", NULL), 0, "%s", err.text);
    cr_expect(o.model && !strcmp(o.model, path) && o.args.n == 1 && !strcmp(o.args.at[0], "a prompt"));
    options_free(&o);
    cr_assert_eq(parse(&o, VERB_RUN, &err, "-m", path, path, NULL), 0, "%s", err.text);
    cr_expect(o.args.n == 1 && !strcmp(o.args.at[0], path), "a model is given: the argument is the prompt");
    options_free(&o);
    cr_assert_eq(parse(&o, VERB_INSPECT, &err, path, NULL), 0, "%s", err.text);
    cr_expect(o.args.n == 1, "inspect takes files as arguments");
    options_free(&o);
    close(fd);
    unlink(path);
}

Test(options, the_manual_has_every_habit)
{
    static const char *const names[] = {
#define HABIT(flag, ...) flag,
#define VERB_HABIT(verb, text) verb,
#include "cmd/habits.def"
#undef HABIT
#undef VERB_HABIT
    };
    static char page[1 << 16];
    char path[500];
    const char *tests = getenv("QUERN_TESTS");
    if (!tests)
        cr_skip_test("skipped: QUERN_TESTS does not say where the tests are");
    snprintf(path, sizeof path, "%s/../docs/habits.md", tests);
    FILE *f = fopen(path, "r");
    cr_assert(f, "%s", path);
    page[fread(page, 1, sizeof page - 1, f)] = '\0';
    fclose(f);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char cell[100];
        snprintf(cell, sizeof cell, "| `%s` |", names[i]);
        cr_expect(strstr(page, cell), "%s", names[i]);
    }
}

Test(options, the_help_names_the_defaults_that_hold)
{
    struct options o;
    struct error err;
    cr_assert_eq(parse(&o, VERB_RUN, &err, NULL), 0);
    struct sampler_params p = sampler_defaults();
    cr_expect_eq((float)o.temp, p.temperature);
    cr_expect_eq(o.top_k, p.top_k);
    cr_expect_eq((float)o.top_p, p.top_p);
    cr_expect_eq((float)o.min_p, p.min_p);
    cr_expect_eq((float)o.repeat_penalty, p.repeat_penalty);
    cr_expect_eq(o.repeat_last, p.repeat_last);
    cr_expect_eq((float)o.typical_p, p.typical_p);
    cr_expect_eq((float)o.top_n_sigma, p.top_n_sigma);
    cr_expect_eq((float)o.xtc_probability, p.xtc_probability);
    cr_expect_eq((float)o.xtc_threshold, p.xtc_threshold);
    cr_expect_eq((float)o.presence_penalty, p.presence_penalty);
    cr_expect_eq((float)o.frequency_penalty, p.frequency_penalty);
    cr_expect_eq((float)o.dry_multiplier, p.dry_multiplier);
    cr_expect_eq((float)o.dry_base, p.dry_base);
    cr_expect_eq(o.dry_allowed_length, p.dry_allowed_length);
    cr_expect_eq(o.dry_last, p.dry_last);
    cr_expect_eq((float)o.dynatemp_range, p.dynatemp_range);
    cr_expect_eq((float)o.dynatemp_exponent, p.dynatemp_exponent);
    cr_expect_eq(o.mirostat, p.mirostat);
    cr_expect_eq((float)o.mirostat_tau, p.mirostat_tau);
    cr_expect_eq((float)o.mirostat_eta, p.mirostat_eta);
    options_free(&o);
}

Test(options, help_finds_flags_by_word)
{
    struct text out = {0};
    cr_expect_geq(options_print_help(V_ALL, "CACHE", &out), 2);
    cr_expect(strstr(out.data, "--cache-type-k") && !strstr(out.data, "--temp"));
    out.size = 0;
    cr_expect_eq(options_print_help(V_ALL, "nothing speaks of this", &out), 0);
    text_free(&out);
}

// --- the terminal ---

static void check_filter(const char *text, size_t n, const char *want)
{
    char out[256];
    size_t got = terminal_filter((struct str){text, n}, out);
    cr_expect(got == strlen(want) && !memcmp(out, want, got), "%.*s", (int)got, out);
}
#define CHECK_FILTER(text, want) check_filter(text, sizeof(text) - 1, want)

Test(terminal, control_codes_and_bidi_overrides_are_dropped)
{
    CHECK_FILTER("a\tb\nc", "a\tb\nc");
    CHECK_FILTER("\x1b[31mred\x1b[0m", "[31mred[0m");
    CHECK_FILTER("\x1b]0;title\x07 x", "]0;title x");
    CHECK_FILTER("a\rb\bc\x7f\x00"
                 "d\vd",
                 "abcdd");
    CHECK_FILTER("\xc2\x9b"
                 "31m \xc2\x80",
                 "31m ");
    CHECK_FILTER("\x9b"
                 "31m",
                 "\xef\xbf\xbd"
                 "31m");
    CHECK_FILTER("x\xe2\x80\xae"
                 "evil\xe2\x81\xa6y",
                 "xevily");
    CHECK_FILTER("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    CHECK_FILTER("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

Test(terminal, json_is_valid_whatever_the_text)
{
    struct text out = {0};
    terminal_print_json(&out, STR_LIT("a\"b\\c\n\t\r\b\f\x01\x00\x7f \xc3\xa9 \xff\xe2\x82 z"));
    cr_expect_str_eq(
        out.data,
        "\"a\\\"b\\\\c\\n\\t\\r\\b\\f\\u0001\\u0000\\u007f \xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd z\"");
    text_free(&out);
}
