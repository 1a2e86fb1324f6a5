// Tests what `quern batch` makes of files that are damaged, cut, or not its own: a row that has changed never goes on into
// the result, and nothing that belongs to somebody else is touched.
#include "cmd/batch/batch_journal.h"
#include "cmd/batch/batch_output.h"
#include "tests/batch_rig.h"

#include <signal.h>
#include <time.h>

TestSuite(batch_damage, .init = rig_open, .fini = rig_close, .timeout = 240);

enum { N_ROWS = 30, N_OUT = 12, N_WAITING = 6 };

static char *lines[N_ROWS + 1]; // of the whole output, by their numbers

static void read_lines(const char *path)
{
    char *all = read_text(path);
    int n = 0;
    for (char *line = strtok(all, "\n"); line && n < N_ROWS; line = strtok(NULL, "\n"))
        lines[++n] = strdup(line);
    cr_assert_eq(n, (int)N_ROWS);
    free(all);
}

static void put_file(const char *path, const char *data, size_t n)
{
    FILE *f = fopen(path, "w");
    cr_assert(f && fwrite(data, 1, n, f) == n);
    cr_assert_eq(fclose(f), 0);
}

// The state of a run that was interrupted: the first N_OUT rows are in the output, and some of the others in the journal.
// Rows of the output from `unknown` on have no checksum there.
static void put_state(int unknown)
{
    struct text out = {0}, journal = {0};
    text_append(&journal, STR_LIT(JOURNAL_HEAD));
    for (int i = 1; i <= N_OUT; i++) {
        text_print(&out, "%s\n", lines[i]);
        if (i < unknown)
            batch_journal_print_sum(&journal, i, batch_row_sum(str_from(lines[i])));
    }
    for (int i = 0; i < N_WAITING; i++)
        batch_journal_print_row(&journal, str_from(lines[N_ROWS - i * 2]));
    put_file("out", out.data, out.size);
    put_file("out.journal", journal.data, journal.size);
    text_free(&out);
    text_free(&journal);
    cr_assert_eq(shell("cp whole.manifest out.manifest"), 0);
}

static void make_whole(void)
{
    write_rows("in", N_ROWS);
    cr_assert_eq(shell("$Q batch in -o whole --format jsonl"), 1);
    read_lines("whole");
}

#define GO_ON "$Q batch in -o out --format jsonl"

static void flip(const char *path, size_t at, int bit)
{
    FILE *f = fopen(path, "r+");
    cr_assert(f);
    cr_assert_eq(fseek(f, (long)at, SEEK_SET), 0);
    int c = fgetc(f);
    cr_assert_eq(fseek(f, (long)at, SEEK_SET), 0);
    fputc(c ^ 1 << bit, f);
    fclose(f);
}

Test(batch_damage, a_sound_state_is_gone_on_from)
{
    make_whole();
    put_state(N_OUT + 1);
    cr_assert_eq(shell(GO_ON), 1);
    expect_says("err", "12 rows in");
    cr_assert(same_files("out", "whole"));
    cr_assert_neq(access("out.journal", F_OK), 0);
    cr_assert_eq(shell("ls *.tmp"), 2);
}

// Whatever bit is flipped, the result is that of an undisturbed run, or there is none and the row is named.
Test(batch_damage, a_flipped_bit_never_goes_on_into_the_output)
{
    unsigned seed = 4711;
    int refused = 0, mended = 0;
    make_whole();
    printf("seed %u\n", seed);
    for (int i = 0; i < 40; i++) {
        const char *file = i % 2 ? "out" : "out.journal";
        struct stat st;
        put_state(N_OUT + 1);
        cr_assert_eq(stat(file, &st), 0);
        const size_t at = (size_t)rand_r(&seed) % (size_t)st.st_size;
        flip(file, at, rand_r(&seed) % 8);
        const int status = shell(GO_ON);
        if (status == 1) {
            cr_assert(same_files("out", "whole"), "a bit of byte %zu of %s went on", at, file);
            mended++;
            continue;
        }
        char *err = read_text("err");
        cr_assert((status == 5 && strstr(err, "is not as it was written")) || (status == 2 && strstr(err, "is no ")) ||
                      (status == 2 && strstr(err, "another input")),
                  "byte %zu of %s: %d %s", at, file, status, err);
        free(err);
        refused++;
    }
    printf("%d refused, %d mended\n", refused, mended);
    cr_expect_gt(refused, 10);
    cr_expect_gt(mended, 5);
}

Test(batch_damage, the_row_is_named_and_what_helps)
{
    make_whole();
    put_state(N_OUT + 1);
    char *text = read_text("out");
    flip("out", (size_t)(strstr(text, lines[5]) - text) + strlen(lines[5]) / 2, 0);
    free(text);
    cr_assert_eq(shell("cp out before; " GO_ON), 5);
    expect_says("err", "out: row 5 is not as it was written");
    cr_assert(same_files("before", "out"));
    // without the line it is computed again
    cr_assert_eq(shell("sed -i 5d out; " GO_ON), 1);
    cr_assert(same_files("out", "whole"));
    put_state(N_OUT + 1);
    flip("out", 200, 1);
    cr_assert_eq(shell(GO_ON " --force"), 1);
}

// In a power cut the end of the output may reach the disk, and its checksums not.
Test(batch_damage, the_end_of_an_output_without_checksums_is_computed_again)
{
    make_whole();
    put_state(9);
    cr_assert_eq(shell(GO_ON), 1);
    expect_says("err", "out: the rows from 9 on have no checksums, and are computed again");
    cr_assert(same_files("out", "whole"));
    // damaged lines of the journal are not taken
    put_state(N_OUT + 1);
    shell("sed -i 's/^+ ./+ g/' out.journal");
    cr_assert_eq(shell(GO_ON), 1);
    expect_says("err", "out.journal: 6 lines are damaged; their rows are computed again");
    cr_assert(same_files("out", "whole"));
}

// A row that could not be read again is not written.
Test(batch_damage, an_answer_that_is_too_long_is_a_row_that_says_so)
{
    static const char head[] = "{\"id\":\"batch_req_1\",\"custom_id\":\"a\",\"response\":\"",
                      end[] = "\",\"error\":null}\n";
    const size_t n = sizeof head - 1 + OUTPUT_ROW_MOST + sizeof end - 1;
    char *line = malloc(n + 1);
    struct batch_output *o;
    struct error err = {0};
    cr_assert(line);
    memset(line, 'x', n);
    memcpy(line, head, sizeof head - 1);
    memcpy(line + n - (sizeof end - 1), end, sizeof end);
    const struct batch_output_options options = {.path = "long", .n_records = 2, .ordered = true, .window = 2};
    cr_assert_eq(batch_output_open(&o, &options, &err), 0, "%s", err.text);
    cr_assert_eq(batch_output_expect(o, 1, &err) || batch_output_put(o, 1, (struct str){line, n}, false, &err), 0);
    cr_expect_eq(batch_output_n_failed(o), 1);
    cr_assert_eq(batch_output_finish(o, &err), 0, "%s", err.text);
    batch_output_close(o);
    expect_says(
        "long",
        "{\"id\":\"batch_req_1\",\"custom_id\":\"a\",\"response\":null,\"error\":{\"code\":\"response_too_long\",");
    free(line);
}

// Lines behind the last row: what a crash may have left is dropped, and that is said; what somebody has written there is not.
Test(batch_damage, foreign_lines_at_the_end_are_not_dropped_in_silence)
{
    static const char *const notes[] = {"my note", "{\"mine\":1}", "# no newline\\c"};
    make_whole();
    for (size_t i = 0; i < COUNT_OF(notes); i++) {
        put_state(N_OUT + 1);
        cr_assert_eq(shell("echo '%s' | sed 's/.c$//' >>out; cp out before", notes[i]), 0);
        cr_expect_eq(shell(GO_ON), 5, "%s", notes[i]);
        expect_says("err", "out: line 13 is nothing that a batch writes");
        cr_expect(same_files("out", "before"));
        cr_assert_eq(shell("sed -i '$d' out; " GO_ON), 1);
        cr_expect(same_files("out", "whole"));
    }
    put_state(N_OUT + 1);
    cr_expect_eq(shell("(head -c 40 out; echo; head -c 100 /dev/zero; echo; head -c 20 out) >t; cat t >>out; " GO_ON),
                 1);
    expect_says("err", "out: 2 damaged lines at the end are dropped");
    cr_expect(same_files("out", "whole"));
    put_state(9);
    cr_assert_eq(shell(GO_ON), 1);
    expect_says("err", "and are computed again: 4 lines are dropped");
    // of an output that is finished, too
    cr_expect_eq(shell("echo mine >>out; " GO_ON), 5);
    expect_says("err", "out: line 31 is nothing that a batch writes");
}

// The journal, the manifest and temporary files are made from the name of the output: something else may be there.
Test(batch_damage, what_is_not_ours_is_left_alone)
{
    static const char *const plants[] = {
        "echo mine >out.journal",
        "cp in out.journal",
        "echo mine >notes; ln -s notes out.journal",
        ": >notes; ln -s notes out.journal",
        "ln -s nowhere out.journal",
        "mkfifo out.journal",
        "mkdir out.journal",
        "mkfifo out.manifest",
        "echo mine >out.manifest",
        "echo '{}' >out.manifest",
        "echo mine >notes; ln -s notes out.manifest",
        "cp whole.manifest notes; ln -s notes out.manifest",
        "ln -s nowhere out.manifest",
        "echo mine >out",
        "cp in out",
    };
    make_whole();
    for (size_t i = 0; i < COUNT_OF(plants); i++) {
        cr_assert_eq(shell("rm -rf out out.* notes nowhere; %s; ls -ld out out.* notes >ls-before; cat out out.* notes "
                           "2>/dev/null >before </dev/null & sleep 0.1; kill $! 2>/dev/null; true",
                           plants[i]),
                     0);
        cr_expect_eq(shell("timeout 20 " GO_ON " --force"), 2, "%s", plants[i]);
        expect_says("err", "out");
        cr_expect_eq(shell("ls -ld $(tr -s ' ' <ls-before | cut -d' ' -f9) >ls-after; [ ! -e nowhere ]"), 0, "%s",
                     plants[i]);
        if (!strstr(plants[i], "fifo"))
            cr_expect_eq(shell("cat $(tr -s ' ' <ls-before | cut -d' ' -f9) >after 2>/dev/null; cmp before after"), 0,
                         "%s changed", plants[i]);
    }
    // a file with the name that a temporary one once had
    cr_assert_eq(shell("rm -rf out out.* notes; echo mine >out.new; echo mine >out.journal.new"), 0);
    cr_assert_eq(
        shell(GO_ON " --retry-errors; " GO_ON " --retry-errors; cat out.new out.journal.new | uniq | grep mine"), 0);
}

// With shards, the row to go on with is one of this shard that is not done.
Test(batch_damage, resumable_at_row_says_the_true_row)
{
    make_whole();
    for (int blocks = 1; blocks < 12; blocks += 2)
        for (int shard = 0; shard < 2; shard++) {
            cr_assert_eq(shell("rm -f out out.*; ulimit -f %d; " GO_ON " --shard %d/2 -np 4", blocks, shard), 5);
            char *err = read_text("err"), *said = strstr(err, "resumable at row "), line[80];
            cr_assert(said, "%s", err);
            const int row = atoi(said + strlen("resumable at row "));
            for (int i = 1 + shard; i <= row; i += 2) {
                snprintf(line, sizeof line, "\"batch_req_%d\"", i);
                cr_expect_eq(shell("grep -v '^=' out.journal | cat - out | grep -q %s", line) == 0, i < row,
                             "row %d: %s", i, err);
            }
            cr_expect_eq((row - 1) % 2, shard);
            free(err);
        }
}

// --- manifests ---

#define WITH "; name another output, or go on with --force"
static const struct {
    const char *sed; // an edit of the manifest
    int status;      // of going on
    int forced;      // with --force
    const char *says;
} manifests[] = {
    {"s/\"model\": *\"[0-9a-f]*\"/\"model\": \"x\"/", 2, 1, "out: begun with another model" WITH},
    {"s/\"model\"/\"other\"/", 2, 1, "out: begun with another model" WITH},
    {"s/\"input\": *\"[0-9a-f]*\"/\"input\": 5/", 2, 1, "out: begun with another input" WITH},
    {"s/\"shard\": *[0-9]*/\"shard\": 5/", 2, 1, "out: begun as shard 5/1" WITH},
    {"s/\"shards\": *[0-9]*/\"shards\": null/", 2, 1, "out: begun as shard 0/-1" WITH},
    {"s/\"parameters\"/\"other\"/", 2, 1, "out: its manifest holds no parameters; go on with --force"},
    {"s/\"quern\"/\"other\"/", 2, 2, "out.manifest: is no manifest of a batch; move it away, or name another output"},
    {"s/^.*$//", 2, 2, "out.manifest: is no manifest of a batch; move it away, or name another output"},
    {"s/\"started\": *[0-9]*/\"started\": \"x\"/", 1, 1, "12 rows in"},
};

Test(batch_damage, a_manifest_that_says_something_else_is_refused_but_by_force)
{
    make_whole();
    for (size_t i = 0; i < COUNT_OF(manifests); i++) {
        put_state(N_OUT + 1);
        cr_assert_eq(shell("sed -i '%s' out.manifest && ! cmp -s out.manifest whole.manifest", manifests[i].sed), 0,
                     "%s", manifests[i].sed);
        cr_expect_eq(shell(GO_ON), manifests[i].status, "%s: %s", manifests[i].sed, read_text("err"));
        expect_says("err", manifests[i].says);
        cr_assert_eq(shell(GO_ON " --force"), manifests[i].forced, "%s: %s", manifests[i].sed, read_text("err"));
        cr_expect(manifests[i].forced == 2 || same_files("out", "whole"));
    }
}

// Rows that waited in the journal need not wait if the order of the output does not matter.
Test(batch_damage, without_order_the_rows_of_the_journal_come_first)
{
    make_whole();
    put_state(N_OUT + 1);
    cr_assert_eq(shell(GO_ON " --unordered --force"), 1, "%s", read_text("err"));
    cr_assert_eq(shell("head -n %d out | tail -n %d >first; sort first >a; sort out >b; sort whole >c",
                       N_OUT + N_WAITING, N_WAITING),
                 0);
    cr_expect(same_files("b", "c"), "each row is there once");
    for (int i = 0; i < N_WAITING; i++)
        expect_says("a", lines[N_ROWS - i * 2]);
}

#define HEAD_OF_ROW "{\"id\":\"batch_req_"
Test(batch_damage, rows_of_another_input_and_rows_that_are_there_twice_are_refused)
{
    make_whole();
    put_state(N_OUT + 1);
    cr_assert_eq(shell("head -n 3 whole >>out; " GO_ON), 2);
    expect_says("err", "out: row 1 is there twice");
    put_state(N_OUT + 1);
    cr_assert_eq(shell("sed -n 2p whole | sed 's/batch_req_2/batch_req_99/' >>out; " GO_ON), 2, "%s", read_text("err"));
    expect_says("err", "out: row 99, but the input has 30: it is the output of another input");
    struct text journal = {0}, row = {0};
    text_print(&row, HEAD_OF_ROW "99%s", lines[9] + strlen(HEAD_OF_ROW "9"));
    text_append(&journal, STR_LIT(JOURNAL_HEAD));
    batch_journal_print_row(&journal, (struct str){row.data, row.size});
    put_state(1);
    put_file("out", "", 0);
    put_file("out.journal", journal.data, journal.size);
    cr_assert_eq(shell(GO_ON), 2, "%s", read_text("err"));
    expect_says("err", "out.journal: row 99, but the input has 30: it is the output of another input");
    journal.size = sizeof JOURNAL_HEAD - 1; // a row that waits there twice is taken once
    for (int i = 0; i < 2; i++)
        batch_journal_print_row(&journal, str_from(lines[9]));
    put_file("out.journal", journal.data, journal.size);
    cr_assert_eq(shell(GO_ON), 1, "%s", read_text("err"));
    cr_expect(same_files("out", "whole"));
    text_free(&journal);
    text_free(&row);
}

// Runs a batch, stops it once there are rows, does something to the output, and lets it go on. The status of the batch.
static int meddle(const char *what)
{
    return shell("rm -f out*; $Q batch many -o out -n 24 --device cpu & p=$!; while [ ! -s out ]; do sleep 0.01; done; "
                 "kill -STOP $p; %s; kill -CONT $p; wait $p",
                 what);
}

Test(batch_damage, what_somebody_else_does_to_the_output_meanwhile_is_found)
{
    static const struct {
        const char *what;
        int then; // the status of the same command afterwards
    } changes[] = {{": >out", 0}, {"truncate -s 700 out", 5}, {"echo a note >>out", 2}};
    cr_assert_eq(shell("seq -f 'line %%g' 500 >many; $Q batch many -o whole -n 24 --device cpu"), 0);
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        cr_expect_eq(meddle(changes[i].what), 5, "%s", changes[i].what);
        expect_says("err", "out: was changed by somebody else while it was written");
        cr_expect_eq(shell("$Q batch many -o out -n 24 --device cpu"), changes[i].then, "%s: %s", changes[i].what,
                     read_text("err"));
        cr_expect(changes[i].then || same_files("out", "whole"), "%s", changes[i].what);
    }
}
