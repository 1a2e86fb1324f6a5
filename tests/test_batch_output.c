// Tests the output of a batch by itself, with rows of a megabyte: a journal that has grown is written anew without the rows
// that have moved to the output, and what it holds then is enough to go on from.
#include "cmd/batch/batch_output.h"
#include "tests/batch_rig.h"

TestSuite(batch_output, .init = rig_open, .fini = rig_close, .timeout = 60);

enum { RECORDS = 14, LARGE = 1300000, SMALL = 100 };

static struct batch_output *open_output(int window)
{
    struct batch_output *o;
    struct error err = {0};
    const struct batch_output_options options = {
        .path = "out", .n_records = RECORDS, .ordered = true, .shard = {0, 1}, .window = window};
    cr_assert_eq(batch_output_open(&o, &options, &err), 0, "%s", err.text);
    return o;
}

// A row whose answer has n bytes.
static struct text make_row(int number, size_t n)
{
    struct text row = {0};
    text_print(&row, "{\"id\":\"batch_req_%d\",\"custom_id\":\"row-%d\",\"response\":\"", number, number);
    for (size_t i = 0; i < n; i++)
        text_append(&row, (struct str){"abcdefghij" + (i + (size_t)number) % 10, 1});
    text_append(&row, STR_LIT("\",\"error\":null}\n"));
    cr_assert(!row.failed);
    return row;
}

static void put(struct batch_output *o, int number, size_t n)
{
    struct error err = {0};
    struct text row = make_row(number, n);
    cr_assert_eq(batch_output_put(o, number, (struct str){row.data, row.size}, false, &err), 0, "%s", err.text);
    text_free(&row);
}

static void expect_all(struct batch_output *o)
{
    struct error err = {0};
    for (int i = 1; i <= RECORDS; i++)
        cr_assert_eq(batch_output_expect(o, i, &err), 0, "%s", err.text);
}

static off_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) ? -1 : st.st_size;
}

// Rows 2 to 10 are large, 11 is missing, and those behind it are small.
static size_t bytes_of(int number)
{
    return number > 1 && number < 11 ? LARGE : SMALL;
}

static void check_whole(void)
{
    struct text all = {0};
    for (int i = 1; i <= RECORDS; i++) {
        struct text row = make_row(i, bytes_of(i));
        text_append(&all, (struct str){row.data, row.size});
        text_free(&row);
    }
    char *out = read_text("out");
    cr_assert_eq((size_t)size_of("out"), all.size);
    cr_assert(!memcmp(out, all.data, all.size), "another output");
    free(out);
    text_free(&all);
}

Test(batch_output, a_journal_that_has_grown_is_written_anew)
{
    struct error err = {0};
    struct batch_output *o = open_output(RECORDS);
    expect_all(o);
    for (int i = RECORDS; i > 1; i--)
        if (i != 11)
            put(o, i, bytes_of(i));
    cr_assert_gt(size_of("out.journal"), 9 * LARGE);
    put(o, 1, bytes_of(1)); // and with it all rows before the one that is missing
    cr_expect_lt(size_of("out.journal"), 3000, "%lld bytes", (long long)size_of("out.journal"));
    batch_output_close(o);
    // another run finds the rows of both files
    o = open_output(RECORDS);
    cr_expect_eq(batch_output_n_done(o), RECORDS - 1);
    cr_expect(!batch_output_is_done(o, 11) && batch_output_is_done(o, 12));
    expect_all(o);
    put(o, 11, bytes_of(11));
    cr_assert_eq(batch_output_finish(o, &err), 0, "%s", err.text);
    batch_output_close(o);
    check_whole();
    cr_expect_lt(size_of("out.journal"), 0);
}

Test(batch_output, no_more_rows_wait_than_there_is_room_for)
{
    struct error err = {0};
    struct batch_output *o = open_output(4);
    for (int i = 1; i <= 4; i++) {
        cr_expect(batch_output_has_room(o));
        cr_assert_eq(batch_output_expect(o, i, &err), 0);
    }
    cr_expect(!batch_output_has_room(o));
    put(o, 1, SMALL);
    cr_expect(batch_output_has_room(o));
    batch_output_close(o);
}

// A row of more than 64 MiB could not be read again.
Test(batch_output, a_row_that_is_too_long_becomes_an_error)
{
    struct error err = {0};
    struct batch_output *o = open_output(RECORDS);
    expect_all(o);
    put(o, 1, OUTPUT_ROW_MOST);
    cr_expect_eq(batch_output_n_failed(o), 1);
    put(o, 2, SMALL);
    cr_expect_eq(batch_output_n_done(o), 2);
    cr_expect_eq(batch_output_finish(o, &err), 0, "%s", err.text);
    batch_output_close(o);
    char *out = read_text("out");
    cr_expect(strstr(out, "{\"id\":\"batch_req_1\",\"custom_id\":\"row-1\",\"response\":null,\"error\":{\"code\":"
                          "\"response_too_long\",\"message\":\"the answer takes more than 64 MiB"),
              "%.200s", out);
    free(out);
    o = open_output(RECORDS);
    cr_expect_eq(batch_output_n_failed(o), 1);
    batch_output_close(o);
}
