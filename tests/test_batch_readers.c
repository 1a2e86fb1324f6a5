// Tests what reads the files of a batch, piece by piece: the records of an input, the header of a table, the lines of an output
// and of its journal, ids, and the tools and guides of a row. Calls that fail, or that a signal interrupts, are told apart.
#include "cmd/batch/batch_guide.h"
#include "cmd/batch/batch_ids.h"
#include "cmd/batch/batch_input.h"
#include "cmd/batch/batch_journal.h"
#include "cmd/batch/batch_output.h"
#include "cmd/batch/batch_schema.h"
#include "cmd/batch/batch_tools.h"
#include "engine/json.h"
#include "tests/arena_faults.h"
#include "tests/token_expect.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

// --- calls that fail ---

static struct fault read_fault = {.after = -1}, write_fault = {.after = -1}, seek_fault = {.after = -1};
static int fault_number; // errno of the call that fails

WRAP(ssize_t, read, (int fd, void *to, size_t n))
{
    return fault_hits(&read_fault, fault_number) ? -1 : __real_read(fd, to, n);
}

WRAP(ssize_t, write, (int fd, const void *from, size_t n))
{
    return fault_hits(&write_fault, fault_number) ? -1 : __real_write(fd, from, n);
}

WRAP(off_t, lseek64, (int fd, off_t at, int whence))
{
    return fault_hits(&seek_fault, fault_number) ? -1 : __real_lseek64(fd, at, whence);
}

// A string literal as an initialiser.
#define STR_INIT(lit)                                                                                                  \
    {                                                                                                                  \
        (lit), sizeof(lit) - 1                                                                                         \
    }

static char folder[] = "/tmp/quern-readers-XXXXXX";

static void enter_folder(void)
{
    cr_assert(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
}

static void remove_folder(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(batch_readers, .init = enter_folder, .fini = remove_folder, .timeout = 60);

static void write_bytes(const char *path, struct str bytes)
{
    FILE *f = fopen(path, "wb");
    cr_assert(f);
    cr_assert_eq(fwrite(bytes.data, 1, bytes.len, f), bytes.len);
    cr_assert_eq(fclose(f), 0);
}

// --- the records of an input ---

// Shows the records as NUMBER@LINE "bytes", with ! behind one that is too long and ? behind one whose quote is open.
static int show_records(const char *path, enum batch_format format, struct text *out, struct error *err)
{
    struct batch_input in;
    struct batch_survey survey;
    struct record r;
    if (batch_input_open(&in, path, ".", format, err))
        return -1;
    int got = batch_input_survey(&in, &survey, err);
    if (!got)
        text_print(out, "%d: %lld records, %llu bytes", (int)in.format, (long long)survey.n_records,
                   (unsigned long long)survey.n_bytes);
    while (!got && (got = batch_input_next(&in, &r, err)) == 1) {
        const struct str head = {r.bytes.data, MIN(r.bytes.len, (size_t)20)};
        text_print(out, " %lld@%lld \"", (long long)r.number, (long long)r.line);
        text_append(out, head);
        text_print(out, "\"%s%s", r.is_too_long ? "!" : "", r.is_open ? "?" : "");
        got = 0;
    }
    batch_input_close(&in);
    text_append(out, (struct str){"", 1});
    return got;
}

static const struct {
    const char *name;
    enum batch_format format;
    struct str bytes;
    const char *shown;
} inputs[] = {
    {"a.csv", FORMAT_AUTO, STR_INIT("x\n"), "3: 1 records, 2 bytes 1@1 \"x\""},
    {"a.TSV", FORMAT_AUTO, STR_INIT("x\n"), "4: 1 records, 2 bytes 1@1 \"x\""},
    {"a.jsonl", FORMAT_AUTO, STR_INIT("x\n"), "1: 1 records, 2 bytes 1@1 \"x\""},
    {"a", FORMAT_AUTO, STR_INIT("\xef\xbb\xbf \t\r\n{}"), "1: 1 records, 9 bytes 1@2 \"{}\""},
    {"a", FORMAT_AUTO, STR_INIT("x {"), "2: 1 records, 3 bytes 1@1 \"x {\""},
    {"a", FORMAT_AUTO, STR_INIT(""), "2: 0 records, 0 bytes"},
    {"a", FORMAT_AUTO, STR_INIT(" \n\t"), "2: 0 records, 3 bytes"},
    {"a.csv", FORMAT_AUTO, STR_INIT("a,b\r1,2\r3,4\r"), "3: 3 records, 12 bytes 1@1 \"a,b\" 2@2 \"1,2\" 3@3 \"3,4\""},
    {"a.csv", FORMAT_AUTO, STR_INIT("a\r\n\"b\rc\"\rd\r\r\ne"),
     "3: 4 records, 14 bytes 1@1 \"a\" 2@2 \"\"b\rc\"\" 3@3 \"d\" 4@5 \"e\""},
    {"a.tsv", FORMAT_AUTO, STR_INIT("a\t\"b\rc\r\nd"), "4: 3 records, 9 bytes 1@1 \"a\t\"b\" 2@2 \"c\" 3@3 \"d\""},
    {"a.csv", FORMAT_LINES, STR_INIT("\"a\nb\""), "2: 2 records, 5 bytes 1@1 \"\"a\" 2@2 \"b\"\""},
    {"a", FORMAT_LINES,
     STR_INIT("\xef\xbb\xbf"
              "a\r\n\n \v\f\r\nb\r"),
     "2: 2 records, 14 bytes 1@1 \"a\" 2@4 \"b\""},
    {"a", FORMAT_LINES,
     STR_INIT("a\n\xef\xbb\xbf"
              "b"),
     "2: 2 records, 6 bytes 1@1 \"a\" 2@2 \"\xef\xbb\xbf"
     "b\""},
    {"a", FORMAT_CSV, STR_INIT("a,\"b\nc\",d\n\"e\"\"f\n\"\n"),
     "3: 2 records, 18 bytes 1@1 \"a,\"b\nc\",d\" 2@3 \"\"e\"\"f\n\"\""},
    {"a", FORMAT_CSV, STR_INIT("a\"b\nc,\"d\ne"), "3: 2 records, 10 bytes 1@1 \"a\"b\" 2@2 \"c,\"d\ne\"?"},
    {"a", FORMAT_CSV, STR_INIT("\"a\"x,\"b\n\"\n"), "3: 1 records, 10 bytes 1@1 \"\"a\"x,\"b\n\"\""},
};

Test(batch_readers, inputs_are_cut_into_records)
{
    for (size_t i = 0; i < COUNT_OF(inputs); i++) {
        struct text got = {0};
        struct error err = {0};
        write_bytes(inputs[i].name, inputs[i].bytes);
        cr_assert_eq(show_records(inputs[i].name, inputs[i].format, &got, &err), 0, "%s", err.text);
        cr_expect_str_eq(got.data, inputs[i].shown, "row %zu: %s, not %s", i, got.data, inputs[i].shown);
        text_free(&got);
    }
}

// A record that is longer than the first buffer, and one that is longer than a record may be.
// Whoever changes the input after it was surveyed: bytes behind the end it had then are left alone, and others are found.
Test(batch_readers, an_input_that_somebody_changes_is_found_out)
{
    static const struct {
        const char *now, *says; // NULL: nothing
    } cases[] = {{"one\ntwo\n", NULL},
                 {"one\ntwo\nthree\nfour\n", NULL},
                 {"one\ntw", "was changed"},
                 {"", "was changed"},
                 {"one\nsix\n", "was changed"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct batch_input in;
        struct batch_survey survey;
        struct record r;
        struct error err = {0};
        int n = 0, got;
        write_bytes("in", STR_LIT("one\ntwo\n"));
        cr_assert_eq(batch_input_open(&in, "in", ".", FORMAT_LINES, &err), 0);
        cr_assert_eq(batch_input_survey(&in, &survey, &err), 0);
        cr_assert_eq(survey.n_records, 2);
        write_bytes("in", str_from(cases[i].now));
        while ((got = batch_input_next(&in, &r, &err)) == 1)
            n++;
        cr_expect_eq(got, cases[i].says ? -1 : 0, "case %zu: %s", i, err.text);
        cr_expect(cases[i].says ? strstr(err.text, cases[i].says) && err.code == E_IO : n == 2, "case %zu: %d rows, %s",
                  i, n, err.text);
        batch_input_close(&in);
    }
}

Test(batch_readers, long_records_are_whole_or_said_to_be_too_long)
{
    struct text got = {0};
    struct error err = {0};
    int fd = open("long", O_RDWR | O_CREAT | O_TRUNC, 0600);
    cr_assert_eq(ftruncate(fd, 700000), 0);
    cr_assert_eq(pwrite(fd, "\nx\n", 3, 700000), 3);
    cr_assert_eq(show_records("long", FORMAT_LINES, &got, &err), 0, "%s", err.text);
    cr_expect(strstr(got.data, "2: 2 records, 700003 bytes 1@1 \""), "%s", got.data);
    got.size = 0;
    cr_assert_eq(ftruncate(fd, 0), 0);
    cr_assert_eq(ftruncate(fd, RECORD_MOST + 3000000), 0);
    cr_assert_eq(pwrite(fd, "begin", 5, 0), 5);
    cr_assert_eq(show_records("long", FORMAT_CSV, &got, &err), 0, "%s", err.text);
    cr_expect(strstr(got.data, ": 1 records, 70108864 bytes 1@1 \"begin"), "%s", got.data);
    cr_expect(memmem(got.data, got.size, "\"!", 2));
    got.size = 0;
    cr_assert_eq(pwrite(fd, "\nx\n", 3, RECORD_MOST + 3000000), 3);
    cr_assert_eq(show_records("long", FORMAT_LINES, &got, &err), 0, "%s", err.text);
    cr_expect(strstr(got.data, ": 2 records, 70108867 bytes 1@1 \"begin"), "%s", got.data);
    cr_expect(memmem(got.data, got.size, "\"! 2@2 \"x\"", 10));
    close(fd);
    text_free(&got);
}

// Lets each call of a kind fail in turn.
static void fail_each(struct fault *fault, int number, int code, const char *says)
{
    struct text want = {0};
    struct error err = {0};
    const long live = heap_live;
    cr_assert_eq(show_records("in", FORMAT_LINES, &want, &err), 0, "%s", err.text);
    long n = 0, failed = 0;
    do {
        struct text got = {0};
        err = (struct error){0};
        fault_number = number;
        fault_arm(fault, n++);
        const int status = show_records("in", FORMAT_LINES, &got, &err);
        fault_disarm(fault);
        failed += status != 0;
        if (status)
            cr_expect(says && (int)err.code == code && strstr(err.text, says), "call %ld: %d %s", n, (int)err.code,
                      err.text);
        else if (!got.failed)
            cr_expect_str_eq(got.data, want.data, "call %ld", n);
        text_free(&got);
    } while (fault->fired);
    cr_expect_eq(failed > 0, says != NULL, "%ld failed", failed);
    text_free(&want);
    cr_expect_eq(heap_live, live);
}

Test(batch_readers, calls_that_fail_are_named_and_interrupted_ones_go_on)
{
    char *text = malloc(600000);
    memset(text, 'x', 600000);
    write_bytes("in", (struct str){text, 600000});
    free(text);
    fail_each(&read_fault, EIO, E_IO, "in: byte ");
    fail_each(&read_fault, EINTR, E_OK, NULL);
    fail_each(&seek_fault, EIO, E_IO, "in: Input/output error");
    fail_each(&memory_fault, 0, E_MEMORY, "no memory");
}

static const char *refusal(const char *path)
{
    static struct error err;
    struct batch_input in;
    cr_expect_eq(batch_input_open(&in, path, ".", FORMAT_AUTO, &err), -1, "%s", path);
    return err.text;
}

Test(batch_readers, what_is_no_file_is_refused)
{
    cr_assert_eq(mkfifo("fifo", 0600), 0);
    const int keep = open("fifo", O_RDWR);
    cr_expect_str_eq(refusal("fifo"), "fifo: Illegal seek; what is no file is given as `-`, on stdin");
    cr_expect_str_eq(refusal("/dev/zero"), "/dev/zero: is a device, which has no end");
    cr_expect_str_eq(refusal("missing"), "missing: No such file or directory");
    close(keep);
    struct batch_input in;
    struct error err;
    cr_expect_eq(batch_input_open(&in, "/dev/null", ".", FORMAT_AUTO, &err), 0);
    batch_input_close(&in);
}

// Puts a pipe with these bytes, and then its end, in the place of stdin.
static void give_stdin(struct str bytes)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(write(ends[1], bytes.data, bytes.len), (ssize_t)bytes.len);
    close(ends[1]);
    cr_assert_eq(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
}

Test(batch_readers, stdin_is_copied_where_there_is_a_place)
{
    static const struct {
        const char *folder;
        struct fault *fault;
        int number;
        const char *says; // NULL: the copy is made
    } cases[] = {{".", NULL, 0, NULL},
                 {"/proc", NULL, 0, NULL}, // beside no output: in /tmp
                 {".", &read_fault, EINTR, NULL},
                 {".", &write_fault, EINTR, NULL},
                 {".", &read_fault, EIO, "stdin: Input/output error"},
                 {".", &write_fault, ENOSPC, "the copy of stdin: No space left on device"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct batch_input in;
        struct error err = {0};
        struct record r;
        give_stdin(STR_LIT("{\"a\": 1}\n"));
        fault_number = cases[i].number;
        if (cases[i].fault)
            fault_arm(cases[i].fault, 0);
        const int status = batch_input_open(&in, "-", cases[i].folder, FORMAT_AUTO, &err);
        if (cases[i].fault)
            cr_expect(cases[i].fault->fired);
        cr_assert_eq(status, cases[i].says ? -1 : 0, "row %zu: %s", i, err.text);
        if (status) {
            cr_expect_str_eq(err.text, cases[i].says);
            continue;
        }
        cr_expect_eq(in.format, FORMAT_JSONL);
        cr_expect_eq(batch_input_next(&in, &r, &err), 1);
        cr_expect(str_equal_z(r.bytes, "{\"a\": 1}"));
        batch_input_close(&in);
    }
}

// --- the header of a table ---

static int header(const struct record *r, struct text *out, struct error *err)
{
    struct arena arena = {0};
    const struct str *fields;
    int n;
    const int status = batch_row_columns(r, FORMAT_CSV, &arena, &fields, &n, err);
    for (int i = 0; !status && i < n; i++)
        text_print(out, "<%.*s>", STR_ARG(fields[i]));
    arena_free(&arena);
    return status;
}

Test(batch_readers, headers_have_columns_or_are_refused)
{
    char many[2048];
    memset(many, ',', sizeof many);
    struct {
        struct record r;
        const char *gives;
    } cases[] = {{{.line = 1, .bytes = STR_LIT("a,\"b,\"\"\"")}, "<a><b,\">"},
                 {{.line = 1, .bytes = STR_LIT("a,")}, "<a><>"},
                 {{.line = 2, .bytes = STR_LIT("a\xff")}, "line 2: no header of columns"},
                 {{.line = 2, .bytes = STR_LIT("a"), .is_open = true}, "line 2: no header of columns"},
                 {{.line = 2, .bytes = STR_LIT("a"), .is_too_long = true}, "line 2: no header of columns"},
                 {{.line = 3, .bytes = {many, sizeof many}}, "line 3: 2049 columns, limit 1024"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        long n = 0;
        do {
            struct text got = {0};
            struct error err = {0};
            fault_arm(&memory_fault, n++);
            const int status = header(&cases[i].r, &got, &err);
            fault_disarm(&memory_fault);
            text_append(&got, (struct str){"", 1});
            const char *text = status ? err.text : got.data;
            if (!memory_fault.fired)
                cr_expect_str_eq(text, cases[i].gives);
            else
                cr_expect(got.failed || (status && err.code == E_MEMORY) || !strcmp(text, cases[i].gives), "header %zu",
                          i);
            text_free(&got);
        } while (memory_fault.fired);
    }
}

// --- the lines of an output and of a journal ---

#define HEAD "{\"id\":\"batch_req_"
Test(batch_readers, lines_of_an_output_are_told_from_others)
{
    static const struct {
        struct str line;
        bool is_row, is_error;
        int64_t number;
        const char *id;
    } cases[] = {
        {STR_INIT(HEAD "7\",\"custom_id\":\"a\\\"b\",\"response\":{},\"error\":null}"), true, false, 7, "\"a\\\"b\""},
        {STR_INIT(HEAD "7\",\"custom_id\":null,\"response\":null,\"error\":{\"code\":\"x\",\"message\":\"y\"}}"), true,
         true, 7, "null"},
        {STR_INIT(""), false, false, 0, NULL},
        {STR_INIT("{}"), false, false, 0, NULL},
        {STR_INIT(HEAD), false, false, 0, NULL},
        {STR_INIT(HEAD "0\",\"custom_id\":null"), false, false, 0, NULL},
        {STR_INIT(HEAD "x\",\"custom_id\":null"), false, false, 0, NULL},
        {STR_INIT(HEAD "1234567890123456789012\",\"custom_id\":null"), false, false, 0, NULL},
        {STR_INIT(HEAD "7\",\"other\":null"), false, false, 0, NULL},
        {STR_INIT(HEAD "7\",\"custom_id\":5"), false, false, 0, NULL},
        {STR_INIT(HEAD "7\",\"custom_id\":\"a"), false, false, 0, NULL},
        {STR_INIT(HEAD "7\",\"custom_id\":\"a\",\"other\":5"), false, false, 0, NULL},
        {STR_INIT(HEAD "7\",\"custom_id\":\"a\",\"response\":{},\"error\":nul"), false, false, 0, NULL},
        {STR_INIT(HEAD "7\",\"custom_id\":\"a\",\"response\":null,\"error\":{\"code\":\"x"), false, false, 0, NULL},
        {STR_INIT(HEAD "7\",\"custom_id\":\"a\0\",\"response\":{},\"error\":null}"), false, false, 0, NULL},
        {STR_INIT(HEAD "7\",\"custom_id\":\"a\xff\",\"response\":{},\"error\":null}"), false, false, 0, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct output_line got = {0};
        cr_expect_eq(output_line_parse(cases[i].line, &got), cases[i].is_row, "row %zu", i);
        if (!cases[i].is_row)
            continue;
        cr_expect_eq(got.number, cases[i].number, "row %zu", i);
        cr_expect_eq(got.is_error, cases[i].is_error, "row %zu", i);
        cr_expect(str_equal_z(got.custom_id, cases[i].id), "row %zu", i);
    }
}

Test(batch_readers, lines_of_a_journal_are_checked)
{
    struct text row = {0}, sum = {0};
    batch_journal_print_row(&row, STR_LIT("text"));
    batch_journal_print_sum(&sum, 42, 0xabcdef);
    struct journal_line got;
    const struct str good = {row.data, row.size - 1}, other = {sum.data, sum.size - 1};
    cr_expect(batch_journal_parse(good, &got) && str_equal_z(got.row, "text") &&
              got.sum == batch_row_sum(STR_LIT("text")));
    cr_expect(batch_journal_parse(other, &got) && got.number == 42 && got.sum == 0xabcdef && !got.row.data);
    static const char *const bad[] = {
        "",
        "= 0000000000abcdef",
        "=x0000000000abcdef 42",
        "= 0000000000abcdefx42",
        "= 0000000000abcdeF 42",
        "= 0000000000abcde/ 42",
        "= 0000000000abcde: 42",
        "= 0000000000abcde` 42",
        "= 0000000000abcdeg 42",
        "= 0000000000abcdef 4/",
        "= 0000000000abcdef 4:",
        "= 0000000000abcdef 0",
        "= 0000000000abcdef 1234567890123456789",
        "= 0000000000000000 42",
        "+ 0000000000abcdef text",
        "- 0000000000abcdef 42",
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        cr_expect(!batch_journal_parse(str_from(bad[i]), &got), "%s", bad[i]);
    row.data[3] ^= 1; // a bit of the sum
    cr_expect(!batch_journal_parse(good, &got));
    text_free(&row);
    text_free(&sum);
}

// --- ids ---

Test(batch_readers, ids_that_were_there_before_are_found)
{
    static const struct {
        const char *id;
        int64_t number;
        bool own;
        int64_t first;
    } cases[] = {{"a", 1, false, 1},
                 {"a", 2, false, 1},
                 {"row-3", 3, true, 3},
                 {"row-3", 4, false, 3},
                 {"row-03", 5, false, 5},
                 {"row-x", 6, false, 6},
                 {"row-", 7, false, 7},
                 {"row-0", 8, false, 8},
                 {"row-10", 9, false, 9},
                 {"row-10", 10, true, 9},
                 {"row-99999", 11, false, 11},
                 {"row--3", 12, false, 12},
                 {"row-9223372036854775808", 13, false, 13},
                 {"", 14, false, 14},
                 {"row-9999", 9999, true, 9999},
                 {"row-9999", 16, false, 9999}};
    struct batch_ids ids = {0};
    struct error err;
    int64_t first;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cr_assert_eq(batch_ids_add(&ids, str_from(cases[i].id), cases[i].number, cases[i].own, &first, &err), 0);
        cr_expect_eq(first, cases[i].first, "%s, row %lld: %lld", cases[i].id, (long long)cases[i].number,
                     (long long)first);
    }
    for (int i = 100; i < 3000; i++) { // the table grows
        char id[20];
        snprintf(id, sizeof id, "id %d", i);
        cr_assert_eq(batch_ids_add(&ids, str_from(id), i, false, &first, &err), 0);
        cr_expect_eq(first, i);
    }
    cr_assert_eq(batch_ids_add(&ids, STR_LIT("id 100"), 5000, false, &first, &err), 0);
    cr_expect_eq(first, 100);
    batch_ids_free(&ids);
}

Test(batch_readers, ids_without_memory_say_so)
{
    struct batch_ids ids = {0};
    struct error err;
    int64_t first;
    fault_arm(&memory_fault, 0);
    cr_expect_eq(batch_ids_add(&ids, STR_LIT("a"), 1, false, &first, &err), -1);
    cr_expect_str_eq(err.text, "no memory for 1024 ids");
    fault_arm(&memory_fault, 0);
    cr_expect_eq(batch_ids_add(&ids, STR_LIT("row-1"), 1, true, &first, &err), -1);
    cr_expect_str_eq(err.text, "no memory for the ids of 1 rows");
    cr_expect_eq(err.code, E_MEMORY);
    batch_ids_free(&ids);
}

// --- tools ---

static void read_value(struct value *out, struct arena *arena, const char *text)
{
    struct json_reader reader = {.arena = arena};
    struct error err;
    cr_assert_eq(json_read(out, &reader, str_from(text), &err), 0, "%s: %s", text, err.text);
}

struct tool_case {
    enum tool_format tools;
    const char *call_open;
    enum row_choice choice;
    bool one_call;
    const char *given, *gives; // the tools, and the frame with the schema, or the error
};

static int tool_schema(const struct tool_case *c, struct batch_row *row, struct text *out, struct error *err)
{
    struct schema_frame f;
    const struct value *schema;
    const struct answer_style style = {.tools = c->tools, .call_open = c->call_open};
    if (batch_tools_schema(row, &style, &schema, &f, err))
        return -1;
    text_print(out, "%.*s|%.*s|%.*s|%d ", STR_ARG(f.open), STR_ARG(f.close), STR_ARG(f.gap), f.many);
    return json_write_text(schema, NULL, out, err);
}

#define TOOL(name, rest) "{\"type\": \"function\", \"function\": {\"name\": \"" name "\"" rest "}}"
#define CALL(name, arguments, parameters)                                                                              \
    "{\"type\": \"object\", \"properties\": {\"name\": {\"const\": \"" name "\"}, \"" arguments "\": " parameters      \
    "}, \"required\": [\"name\", \"" arguments "\"]}"
#define NOTHING "{\"type\": \"object\", \"properties\": {}}"
#define REF "{\"$ref\": \"#/$defs/d\"}"
static const struct tool_case tools[] = {
    {TOOLS_JSON_TAG, "<tool_call>", CHOICE_REQUIRED, false, "[" TOOL("f", "") "]",
     "<tool_call>|</tool_call>|\n|1 {\"anyOf\": [" CALL("f", "arguments", NOTHING) "]}"},
    {TOOLS_JSON_TAG, "<TOOLCALL>", CHOICE_REQUIRED, true, "[" TOOL("f", "") "]",
     "|||0 {\"type\": \"array\", \"minItems\": 1, \"maxItems\": 1, \"items\": {\"anyOf\": [" CALL("f", "parameters",
                                                                                                  NOTHING) "]}}"},
    {TOOLS_JSON_LIST, "[TOOL_CALLS]", CHOICE_REQUIRED, false, "[" TOOL("f", "") "]",
     "[TOOL_CALLS]|||0 {\"type\": \"array\", \"minItems\": 1, \"items\": {\"anyOf\": [" CALL("f", "arguments",
                                                                                             NOTHING) "]}}"},
    {TOOLS_JSON_BARE, "", CHOICE_REQUIRED, false, "[" TOOL("f", ", \"parameters\": {\"required\": []}") "]",
     "|||0 {\"anyOf\": [" CALL("f", "parameters", "{\"type\": \"object\", \"required\": []}") "]}"},
    {TOOLS_NONE, NULL, CHOICE_NAMED, false, "[" TOOL("f", ", \"parameters\": {\"$defs\": {\"d\": {}}}") "]",
     "|||0 {\"type\": \"object\", \"$defs\": {\"d\": {}}}"},
    {TOOLS_JSON_TAG, "<tool_call>", CHOICE_NAMED, false, "[" TOOL("f", "") ", " TOOL("g", "") "]",
     "<tool_call>|</tool_call>|\n|0 {\"anyOf\": [" CALL("f", "arguments", NOTHING) "]}"},
    {TOOLS_JSON_BARE, "", CHOICE_REQUIRED, false,
     "[" TOOL("f", ", \"parameters\": {\"$defs\": {\"d\": {}}, \"a\": " REF
                   "}") ", " TOOL("g", ", \"parameters\": {\"definitions\": {\"d\": {}}, \"$defs\": {\"d\": {}}}") "]",
     "|||0 {\"anyOf\": [" CALL("f", "parameters", "{\"type\": \"object\", \"a\": " REF "}") ", " CALL(
         "g", "parameters", "{\"type\": \"object\"}") "], \"$defs\": {\"d\": {}}, \"definitions\": {\"d\": {}}}"},
    {TOOLS_JSON_BARE, "", CHOICE_REQUIRED, false,
     "[" TOOL("f", ", \"parameters\": {\"$defs\": {\"d\": {}}}") ", " TOOL(
         "g", ", \"parameters\": {\"$defs\": {\"d\": true}}") "]",
     "tools: two of them have different $defs of d"},
    {TOOLS_JSON_BARE, "", CHOICE_REQUIRED, false,
     "[" TOOL("f", ", \"parameters\": {\"a\": [{\"$ref\": \"#/properties/a\"}]}") "]",
     "tools: a reference to #/properties/a, where only definitions can be referred to"},
    {TOOLS_JSON_BARE, "", CHOICE_REQUIRED, false,
     "[" TOOL(
         "f",
         ", \"parameters\": {\"a\": {\"$ref\": \"#/definitions/x\"}, \"b\": {\"$ref\": \"u\"}, \"c\": {\"$ref\": \"\"}, \"d\": {\"$ref\": 5}}") "]",
     "|||0 {\"anyOf\": [" CALL(
         "f", "parameters",
         "{\"type\": \"object\", \"a\": {\"$ref\": \"#/definitions/x\"}, \"b\": {\"$ref\": \"u\"}, \"c\": {\"$ref\": \"\"}, \"d\": {\"$ref\": 5}}") "]}"},
};

Test(batch_readers, tools_become_a_schema_of_calls)
{
    for (size_t i = 0; i < COUNT_OF(tools); i++) {
        struct arena arena = {0};
        struct value given;
        long n = 0;
        read_value(&given, &arena, tools[i].given);
        do {
            struct batch_row row = {.tools = &given, .choice = tools[i].choice, .one_call = tools[i].one_call};
            struct text got = {0};
            struct error err = {0};
            row.chosen = &given.list->items[0];
            fault_arm(&memory_fault, n++);
            const int status = tool_schema(&tools[i], &row, &got, &err);
            fault_disarm(&memory_fault);
            text_append(&got, (struct str){"", 1});
            const char *text = status ? err.text : got.data;
            if (!memory_fault.fired)
                cr_expect_str_eq(text, tools[i].gives, "row %zu: %s, not %s", i, text, tools[i].gives);
            else
                cr_expect(got.failed || (status && (err.code == E_MEMORY || !strcmp(text, tools[i].gives))), "row %zu",
                          i);
            text_free(&got);
            batch_row_free(&row);
        } while (memory_fault.fired);
        arena_free(&arena);
    }
}

Test(batch_readers, forced_answers_are_read_as_calls)
{
    static const struct {
        enum row_choice choice;
        const char *answer, *gives; // NULL: refused
    } cases[] = {{CHOICE_NAMED, "{\"a\": 1}", "[{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}]"},
                 {CHOICE_REQUIRED, "[{\"name\": \"g\", \"parameters\": {}}]",
                  "[{\"function\": {\"name\": \"g\", \"arguments\": {}}}]"},
                 {CHOICE_REQUIRED, "[]", "[]"},
                 {CHOICE_REQUIRED, "[{\"name\": \"g\"}]", NULL},
                 {CHOICE_REQUIRED, "[{\"parameters\": {}}]", NULL},
                 {CHOICE_REQUIRED, "{\"name\": \"g\"}", NULL},
                 {CHOICE_REQUIRED, "[", NULL}};
    struct arena arena = {0};
    struct value given, calls;
    read_value(&given, &arena, "[" TOOL("f", "") "]");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        long n = 0;
        do {
            struct batch_row row = {.tools = &given, .choice = cases[i].choice, .chosen = &given.list->items[0]};
            struct text got = {0};
            struct error err = {0};
            fault_arm(&memory_fault, n++);
            const int status = batch_tools_read(&row, str_from(cases[i].answer), &calls, &err);
            fault_disarm(&memory_fault);
            if (!memory_fault.fired || !status) {
                cr_assert_eq(status, cases[i].gives ? 0 : -1, "%s: %s", cases[i].answer, err.text);
                if (!status)
                    json_write_text(&calls, NULL, &got, &err);
                text_append(&got, (struct str){"", 1});
                cr_expect(status || !strcmp(got.data, cases[i].gives), "%s", got.data);
            } else {
                cr_expect_eq(err.code, E_MEMORY, "%s", err.text);
            }
            text_free(&got);
            batch_row_free(&row);
        } while (memory_fault.fired);
    }
    arena_free(&arena);
}

// --- guides ---

// One more guide than there are places for: while all are held, the last one is in none of them.
Test(batch_readers, guides_are_kept_while_rows_hold_them)
{
    struct tokenizer *t =
        vocab_from("model str gpt2\npre str gpt-2\ntokens strs a b\ntoken_type i32s 1 1\nmerges strs");
    struct batch_schemas s = {.tokenizer = t, .n_vocab = 2};
    struct batch_schema *held[SCHEMAS_KEPT + 1], *again;
    struct value texts[SCHEMAS_KEPT + 1];
    char made[SCHEMAS_KEPT + 1][20];
    struct error err = {0};
    for (int i = 0; i <= SCHEMAS_KEPT; i++) {
        snprintf(made[i], sizeof made[i], "a{%d}", i + 1);
        texts[i] = value_string(str_from(made[i]));
        const struct guide guide = {.kind = GUIDE_REGEX, .v = &texts[i]};
        cr_assert_eq(batch_schemas_take(&s, &guide, &held[i], &err), 0, "%s", err.text);
    }
    const struct guide first = {.kind = GUIDE_REGEX, .v = &texts[0]},
                       last = {.kind = GUIDE_REGEX, .v = &texts[SCHEMAS_KEPT]};
    cr_assert_eq(batch_schemas_take(&s, &first, &again, &err), 0);
    cr_expect_eq(again, held[0]);
    batch_schemas_release(&s, again);
    cr_assert_eq(batch_schemas_take(&s, &last, &again, &err), 0);
    cr_expect_neq(again, held[SCHEMAS_KEPT], "it has no place");
    batch_schemas_release(&s, again);
    for (int i = 0; i <= SCHEMAS_KEPT; i++)
        batch_schemas_release(&s, held[i]);
    batch_schemas_release(&s, NULL);
    cr_assert_eq(batch_schemas_take(&s, &last, &again, &err), 0);
    cr_expect_eq(again, s.kept[1], "the one that was used longest ago gives way, and the first was used since");
    batch_schemas_release(&s, again);
    batch_schemas_free(&s);
    tokenizer_free(t);
}

Test(batch_readers, guides_without_memory_say_so)
{
    struct tokenizer *t = vocab_from(
        "model str gpt2\npre str gpt-2\ntokens strs a b 1 \" { } : ,\ntoken_type i32s 1 1 1 1 1 1 1 1\nmerges strs");
    struct arena arena = {0};
    struct value choice, schema;
    read_value(&choice, &arena, "[\"a\", \"b\"]");
    read_value(&schema, &arena, "{\"enum\": [1, \"a\"]}");
    const struct value grammar = VALUE_LIT("root ::= \"a\"");
    const struct guide guides[] = {{.kind = GUIDE_OBJECT},
                                   {.kind = GUIDE_CHOICE, .v = &choice},
                                   {.kind = GUIDE_SCHEMA, .v = &schema},
                                   {.kind = GUIDE_GRAMMAR, .v = &grammar}};
    for (size_t i = 0; i < COUNT_OF(guides); i++) {
        long n = 0, failed = 0;
        const long live = heap_live;
        do {
            struct batch_schemas s = {.tokenizer = t, .n_vocab = 8};
            struct batch_schema *got;
            struct error err = {0};
            fault_arm(&memory_fault, n++);
            const int status = batch_schemas_take(&s, &guides[i], &got, &err);
            fault_disarm(&memory_fault);
            cr_expect(status ? err.code == E_MEMORY && !got : got != NULL, "guide %zu, allocation %ld: %s", i, n,
                      err.text);
            failed += status != 0;
            if (!status)
                batch_schemas_release(&s, got);
            batch_schemas_free(&s);
            cr_assert_eq(heap_live, live, "guide %zu, allocation %ld: %ld blocks leak", i, n, heap_live - live);
            n += n > 300 ? 6 : 0; // grammars make thousands
        } while (memory_fault.fired);
        cr_expect_gt(failed, 10);
    }
    arena_free(&arena);
    tokenizer_free(t);
}
