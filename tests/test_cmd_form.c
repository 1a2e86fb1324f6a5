// Tests constrained answers through the program: a model that knows no JSON writes JSON with any seed.
#include "engine/grammar/grammar.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *stories(void)
{
    static char path[512];
    const char *shared = getenv("QUERN_SHARED");
    snprintf(path, sizeof path, "%s/models/stories260K.gguf", shared ? shared : "../shared");
    if (access(path, R_OK))
        cr_skip_test("skipped: no %s", path);
    return path;
}

static char out[1 << 16];

// Runs quern with these words, as a shell reads them; what it printed (errors too, where asked for) is in `out`.
static int run(const char *words, bool errors)
{
    char command[4096];
    const char *quern = getenv("QUERN_BIN");
    snprintf(command, sizeof command, "'%s' run -m '%s' %s 2>%s", quern ? quern : "build/cmd/quern", stories(), words,
             errors ? "&1" : "/dev/null");
    FILE *f = popen(command, "r");
    cr_assert_not_null(f);
    size_t n = fread(out, 1, sizeof out - 1, f);
    out[n] = '\0';
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static cJSON *parse_whole(const char *text)
{
    const char *end;
    cJSON *v = cJSON_ParseWithOpts(text, &end, true);
    cr_expect(v, "no JSON: %s", text);
    return v;
}

static void check_person(const cJSON *v)
{
    const cJSON *name = cJSON_GetObjectItem(v, "name"), *age = cJSON_GetObjectItem(v, "age");
    const cJSON *tags = cJSON_GetObjectItem(v, "tags");
    cr_expect(cJSON_IsString(name) && strlen(name->valuestring) <= 4 * 12, "%s", out);
    cr_expect(cJSON_IsNumber(age) && age->valuedouble >= 0 && age->valuedouble <= 120, "%s", out);
    cr_expect(cJSON_IsArray(tags) && cJSON_GetArraySize(tags) <= 3, "%s", out);
}

TestSuite(form, .timeout = 120);

Test(form, answers_meet_their_schema_at_any_seed)
{
    char words[1024];
    for (int seed = 1; seed <= 50; seed++) {
        snprintf(words, sizeof words,
                 "-p 'Once upon a time' --temp 1.5 --top-k 0 --top-p 1 --min-p 0 -s %d -c 600 -j '{\"type\":\"object\","
                 "\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},\"age\":{\"type\":\"integer\","
                 "\"minimum\":0,\"maximum\":120},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\"]},"
                 "\"maxItems\":3}},\"required\":[\"name\",\"age\",\"tags\"]}'",
                 seed);
        cr_assert_eq(run(words, false), 0, "seed %d", seed);
        cJSON *v = parse_whole(out);
        if (v)
            check_person(v);
        cJSON_Delete(v);
    }
}

Test(form, any_json_is_json_where_the_answer_came_to_its_end)
{
    char words[512];
    int ended = 0;
    for (int seed = 1; seed <= 20; seed++) {
        snprintf(words, sizeof words, "-p 'Tom said' --temp 1.5 -s %d -c 600 -n 500 --json -j '{}'", seed);
        const int status = run(words, false); // 1: it was cut before it was JSON
        cr_assert(status == 0 || status == 1, "seed %d: %d", seed, status);
        cJSON *result = parse_whole(out);
        const cJSON *text = cJSON_GetObjectItem(result, "text"), *why = cJSON_GetObjectItem(result, "stop_reason");
        if (cJSON_IsString(text) && cJSON_IsString(why) && !strcmp(why->valuestring, "end")) {
            cJSON_Delete(parse_whole(text->valuestring));
            cr_expect_eq(status, 0, "seed %d", seed);
            ended++;
        }
        cJSON_Delete(result);
    }
    cr_expect_gt(ended, 10, "%d of 20 ended", ended);
}

Test(form, grammars_hold_and_files_are_read)
{
    char path[] = "/tmp/quern-grammar-XXXXXX", words[512];
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    const char grammar[] = "root ::= (\"ab\" | \"cd\"){3} \"!\"\n";
    cr_assert_eq(write(fd, grammar, sizeof grammar - 1), (ssize_t)sizeof grammar - 1);
    close(fd);
    snprintf(words, sizeof words, "-p x --temp 1 -s 5 --grammar-file %s", path);
    cr_expect_eq(run(words, false), 0);
    cr_expect(strlen(out) == 8 && !strcmp(out + 6, "!\n"), "%s", out);
    unlink(path);
    cr_expect_eq(run("-p x --temp 1 -s 5 --grammar 'root ::= \"yes\" | \"no\"'", false), 0);
    cr_expect(!strcmp(out, "yes\n") || !strcmp(out, "no\n"), "%s", out);
    // until its trigger has come, anything may
    cr_expect_eq(run("-p 'Once' --temp 1 -s 5 -c 1000 --grammar-after he --grammar 'root ::= \"[1]\"'", false), 0);
    const char *form = strstr(out, "he");
    cr_expect(form && !strcmp(form + 2 + strspn(form + 2, " \t\n"), "[1]\n"), "%s", out);
}

Test(form, what_is_wrong_is_said_in_one_line)
{
    static const char *const cases[][2] = {
        {"-p x --grammar 'root ::= b'", "--grammar: grammar: line 1, column 10: rule b is not defined"},
        {"-p x -j '{\"$dynamicRef\":\"#\"}'",
         "--json-schema: schema: /$dynamicRef: the keyword '$dynamicRef' is not supported"},
        {"-p x -j '{}' --grammar 'root ::= \"a\"'", "--grammar and --json-schema: one of them"},
        {"-p x -j '{}' --ignore-eos", "--json-schema and --ignore-eos"},
        {"-p x --grammar-after y", "--grammar-after: needs --grammar or --json-schema"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cr_expect_eq(run(cases[i][0], true), E_USAGE, "%s: %s", cases[i][0], out);
        cr_expect(strstr(out, cases[i][1]), "%s: %s", cases[i][0], out);
        cr_expect_eq(strchr(out, '\n') - out, (ptrdiff_t)strlen(out) - 1, "%s", out);
    }
}
