// Tests quern inspect as a program: stdout, stderr and the exit status.
#include "cmd/verbs.h"
#include "tests/gguf_recipe.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/wait.h>

struct output {
    int status;
    char out[1 << 16], err[4096];
};

static void capture(FILE *f, char *to, size_t room)
{
    rewind(f);
    size_t n = fread(to, 1, room - 1, f);
    to[n] = '\0';
    fclose(f);
}

// Runs the verb on the file that the recipe makes (NULL: on "/nonexistent.gguf"), with up to 3 more arguments.
static void run_inspect(struct output *o, const char *recipe, const char *a, const char *b, const char *c)
{
    char path[32] = "/nonexistent.gguf";
    int fd = -1;
    if (recipe) {
        struct blob blob = {0};
        blob_put_recipe(&blob, recipe);
        fd = memory_file(blob.data, blob.size, path);
        blob_free(&blob);
    }
    char *argv[] = {strdup("inspect"),    strdup(path),         a ? strdup(a) : NULL,
                    b ? strdup(b) : NULL, c ? strdup(c) : NULL, NULL};
    int argc = 2 + (a != NULL) + (b != NULL) + (c != NULL);
    FILE *out = tmpfile(), *err = tmpfile();
    cr_assert(out && err);
    fflush(stdout);
    fflush(stderr);
    // in a child, for the verb confines its process
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(fileno(out), 1);
        dup2(fileno(err), 2);
        const int status = cmd_inspect(argc, argv);
        fflush(stdout);
        fflush(stderr);
        _exit(status);
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status));
    o->status = WEXITSTATUS(status);
    capture(out, o->out, sizeof o->out);
    capture(err, o->err, sizeof o->err);
    for (int i = 0; i < argc; i++)
        free(argv[i]);
    if (fd >= 0)
        close(fd);
}

#define MODEL                                                                                                          \
    "header:3,3,9 key:general.architecture type:string str:llama kv:llama.block_count,u32,7 kv:k.eps,f32,1e-05 "       \
    "kv:k.big,u64,18446744073709551615 kv:k.flag,bool,1 key:k.few type:array type:i32 u64:3 i32:1 i32:-2 i32:3 "       \
    "key:k.many type:array type:u8 u64:10 u8:0 u8:1 u8:2 u8:3 u8:4 u8:5 u8:6 u8:7 u8:8 u8:9 "                          \
    "key:k.words type:array type:string u64:3 str:a\\x0ab str:\\xFF\\x00 str:z "                                       \
    "key:k.text type:string str:one\\x0atwo "                                                                          \
    "tensor:w,12,0,256,2 tensor:b,0,288,2 tensor:c,0,320,2 align:32 zero:352 "

Test(inspect, text_names_sizes_types_and_keys)
{
    static struct output o;
    run_inspect(&o, MODEL, NULL, NULL, NULL);
    cr_assert_eq(o.status, 0);
    cr_assert_str_empty(o.err);
    static const char *const want[] = {
        "  architecture llama\n",
        "  parameters   516 in 3 tensors, 304 B, 4.71 bits each\n",
        "  Q4_K              1 tensors             512       288 B   94.7 %\n",
        "  F32               2 tensors               4        16 B    5.3 %\n",
        "\n9 keys\n",
        "  llama.block_count     u32             7\n",
        "  k.eps                 f32             1e-05\n",
        "  k.big                 u64             18446744073709551615\n",
        "  k.flag                bool            true\n",
        "  k.few                 i32[3]          1 -2 3\n",
        "  k.many                u8[10]          0 1 2 3 4 5 6 7 ...\n",
        "  k.words               string[3]       \"a\\nb\" \"\xEF\xBF\xBD\" \"z\"\n",
        "  k.text                string          one\\ntwo\n",
    };
    for (size_t i = 0; i < COUNT_OF(want); i++)
        cr_expect_not_null(strstr(o.out, want[i]), "no %s in\n%s", want[i], o.out);
    cr_expect_null(strstr(o.out, "256 x 2"), "tensors are listed only when asked for");
}

Test(inspect, tensors_are_listed_when_asked_for)
{
    static struct output o;
    run_inspect(&o, MODEL, "--tensors", NULL, NULL);
    cr_assert_eq(o.status, 0);
    cr_expect_not_null(strstr(o.out, "\n3 tensors\n"));
    cr_expect_not_null(strstr(o.out, "  w  Q4_K     256 x 2                        288 B  at "), "%s", o.out);
}

Test(inspect, key_prints_the_value_alone)
{
    static const struct {
        const char *key, *want;
    } cases[] = {
        {"general.architecture", "llama\n"},          {"llama.block_count", "7\n"}, {"k.eps", "1e-05\n"},
        {"k.big", "18446744073709551615\n"},          {"k.flag", "true\n"},         {"k.few", "1\n-2\n3\n"},
        {"k.many", "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"}, {"k.text", "one\ntwo\n"},
    };
    static struct output o;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        run_inspect(&o, MODEL, "--key", cases[i].key, NULL);
        cr_expect_eq(o.status, 0);
        cr_expect_str_eq(o.out, cases[i].want, "%s: %s", cases[i].key, o.out);
    }
}

static cJSON *inspect_json(const char *recipe, const char *flag, const char *value)
{
    static struct output o;
    run_inspect(&o, recipe, "--json", flag, value);
    cr_assert_eq(o.status, 0, "%s", o.err);
    cJSON *json = cJSON_Parse(o.out);
    cr_assert_not_null(json, "no JSON: %s", o.out);
    return json;
}

static const cJSON *member(const cJSON *json, const char *name)
{
    const cJSON *m = cJSON_GetObjectItemCaseSensitive(json, name);
    cr_assert_not_null(m, "no %s", name);
    return m;
}

Test(inspect, json_has_everything)
{
    cJSON *json = inspect_json(MODEL, NULL, NULL);
    cr_assert_eq(member(json, "version")->valueint, 3);
    cr_assert_eq(member(json, "alignment")->valueint, 32);
    cr_assert_eq(cJSON_GetArraySize(member(json, "parts")), 1);
    cr_assert_eq(member(member(json, "total"), "parameters")->valueint, 516);
    cr_assert_eq(member(member(member(json, "types"), "Q4_K"), "bytes")->valueint, 288);
    const cJSON *keys = member(json, "keys");
    cr_assert_eq(cJSON_GetArraySize(keys), 9);
    cr_assert_str_eq(member(member(keys, "general.architecture"), "value")->valuestring, "llama");
    cr_assert_eq(cJSON_GetArraySize(member(member(keys, "k.few"), "value")), 3);
    const cJSON *many = member(keys, "k.many");
    cr_assert_eq(member(many, "count")->valueint, 10);
    cr_assert_eq(cJSON_GetArraySize(member(many, "first")), 8);
    cr_assert_str_eq(cJSON_GetArrayItem(member(member(keys, "k.words"), "value"), 0)->valuestring, "a\nb");
    const cJSON *tensors = member(json, "tensors");
    cr_assert_eq(cJSON_GetArraySize(tensors), 3);
    const cJSON *w = cJSON_GetArrayItem(tensors, 0);
    cr_assert_str_eq(member(w, "name")->valuestring, "w");
    cr_assert_str_eq(member(w, "type")->valuestring, "Q4_K");
    cr_assert_eq(cJSON_GetArraySize(member(w, "shape")), 2);
    cJSON_Delete(json);
}

Test(inspect, json_keeps_all_64_bits_and_has_no_nan)
{
    static struct output o;
    run_inspect(&o, MODEL, "--json", "--key", "k.big");
    cr_assert_str_eq(o.out, "{\"key\":\"k.big\",\"type\":\"u64\",\"value\":18446744073709551615}\n");
    run_inspect(&o, "header:3,0,1 kv:k,f32,nan", "--json", "--key", "k");
    cr_assert_str_eq(o.out, "{\"key\":\"k\",\"type\":\"f32\",\"value\":null}\n");
    run_inspect(&o, "header:3,0,1 kv:k,f64,-inf", "--key", "k", NULL);
    cr_assert_str_eq(o.out, "-inf\n");
}

Test(inspect, json_of_one_key_is_whole)
{
    cJSON *json = inspect_json(MODEL, "--key", "k.many");
    cr_assert_eq(cJSON_GetArraySize(member(json, "value")), 10);
    cJSON_Delete(json);
}

// Whatever a file holds: no escape, no C1 control, no bidi override reaches the table.
Test(inspect, text_of_the_file_cannot_drive_a_terminal)
{
    static struct output o;
    run_inspect(
        &o,
        "header:3,0,2 key:general.name type:string str:\\x1b]0;x\\x07\\x1b[31mred\\xC2\\x9B1m\\xE2\\x80\\xAEfdp "
        "key:general.architecture type:string str:\\x0da\\x7F\\xE2\\x81\\xA6b\\x09",
        NULL, NULL, NULL);
    cr_assert_eq(o.status, 0);
    for (const char *c = o.out; *c;) {
        uint32_t cp;
        int n = utf8_decode(c, strlen(c), &cp);
        cr_assert_gt(n, 0);
        cr_assert(cp == '\n' || utf8_printable(cp), "U+%04X", (unsigned)cp);
        c += n;
    }
    cr_expect_not_null(strstr(o.out, "]0;x[31mred1mfdp\n"));
    cr_expect_not_null(strstr(o.out, "  architecture ab\\t\n"));
}

Test(inspect, long_values_are_cut_between_characters)
{
    char recipe[4096] = "header:3,0,1 key:k type:string str:";
    for (int i = 0; i < 300; i++)
        strcat(recipe, "\xE6\x97\xA5");
    static struct output o;
    run_inspect(&o, recipe, NULL, NULL, NULL);
    cr_assert_eq(o.status, 0);
    cr_assert(utf8_valid(str_from(o.out)));
    char *dots = strstr(o.out, "\xA5...\n");
    cr_assert_not_null(dots);
    cr_assert_lt(dots - strstr(o.out, "\xE6"), 3 * 72);
}

Test(inspect, errors_are_one_line_with_the_right_status)
{
    static const struct {
        const char *recipe, *a, *b, *c, *want;
        int status;
    } cases[] = {
        {NULL, NULL, NULL, NULL, "quern: /nonexistent.gguf: cannot open: No such file or directory\n", E_IO},
        {"raw:XXXXXXXXXXXXXXXXXXXXXXXXXX", NULL, NULL, NULL, ": byte 0: is no GGUF file: it starts with 58 58 58 58\n",
         E_MODEL},
        {MODEL, "--key", "none\x1b", NULL, ": there is no key 'none\\x1B'\n", E_MODEL},
        {MODEL, "--tensors", "--key", "k.few", "quern: --key and --tensors exclude each other\n", E_USAGE},
        {MODEL, "second.gguf", NULL, NULL, "quern: inspect takes one model; see `quern help inspect`\n", E_USAGE},
        {MODEL, "--nonsense", NULL, NULL, "quern: --nonsense: unknown flag", E_USAGE},
        {MODEL, "--key", NULL, NULL, "quern: --key: needs a value, NAME\n", E_USAGE},
    };
    static struct output o;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        run_inspect(&o, cases[i].recipe, cases[i].a, cases[i].b, cases[i].c);
        cr_expect_eq(o.status, cases[i].status, "case %zu: %d %s", i, o.status, o.err);
        cr_expect_not_null(strstr(o.err, cases[i].want), "case %zu: %s", i, o.err);
        cr_expect_eq(strncmp(o.err, "quern: ", 7), 0);
        cr_expect_eq(strchr(o.err, '\n'), o.err + strlen(o.err) - 1, "one line: %s", o.err);
        cr_expect_str_empty(o.out);
    }
}

// A model on the command line wins over the one of the environment, whatever that is.
Test(inspect, the_argument_wins_over_the_environment)
{
    static struct output o;
    static const char *const models[] = {"/nonexistent.gguf", "no-such-model", ""};
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        setenv("QUERN_MODEL", models[i], 1);
        run_inspect(&o, MODEL, "--key", "llama.block_count", NULL);
        cr_expect_eq(o.status, E_OK, "%s: %s", models[i], o.err);
        cr_expect_str_eq(o.out, "7\n");
    }
    run_inspect(&o, MODEL, "-m", "second.gguf", NULL);
    cr_expect_eq(o.status, E_USAGE);
}

Test(inspect, a_full_disk_is_an_io_error)
{
    struct blob b = {0};
    blob_put_recipe(&b, MODEL);
    char path[32];
    int fd = memory_file(b.data, b.size, path);
    blob_free(&b);
    int full = open("/dev/full", O_WRONLY), old = dup(1);
    cr_assert_geq(full, 0);
    fflush(stdout);
    dup2(full, 1);
    int status = cmd_inspect(2, (char *[]){(char[]){"inspect"}, path, NULL});
    dup2(old, 1);
    close(fd);
    cr_assert_eq(status, E_IO);
}
