// Tests the GGUF writer: written files read back the same, and a refused one leaves no file behind. Temporary files, too.
#include "gguf/temporary.h"
#include "gguf/writer.h"
#include "tests/gguf_recipe.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64], path[96];

static void setup(void)
{
    strcpy(dir, "/tmp/quern-writer-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/out.gguf", dir);
}

static int count_files(void)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void teardown(void)
{
    unlink(path);
    cr_expect_eq(rmdir(dir), 0, "something else was left behind");
}

TestSuite(gguf_writer, .init = setup, .fini = teardown);

static struct gguf_writer *open_writer(void)
{
    struct gguf_writer *w;
    struct error err;
    cr_assert_eq(gguf_writer_open(&w, path, &err), 0, "%s", err.text);
    return w;
}

static struct gguf *reopen(void)
{
    struct gguf *g;
    struct error err;
    cr_assert_eq(gguf_open(&g, path, 0, &err), 0, "%s", err.text);
    return g;
}

static void write_every_key(struct gguf_writer *w)
{
    static const struct str strings[] = {{"a", 1}, {"", 0}, {"x\0\xFF", 3}};
    static const int32_t ints[] = {-1, 0, INT32_MAX};
    static const uint8_t bools[] = {0, 1, 1};
    static const double doubles[] = {0.5, -1e300};
    gguf_write_u32(w, "k.u32", 7);
    gguf_write_f32(w, "k.f32", 1.5f);
    gguf_write_bool(w, "k.bool", true);
    gguf_write_str(w, "k.str", STR_LIT("text with \n and \x1b"));
    gguf_write_str(w, "k.empty", STR_LIT(""));
    gguf_write_str_array(w, "k.strings", strings, COUNT_OF(strings));
    gguf_write_array(w, "k.i32s", GGUF_I32, ints, COUNT_OF(ints));
    gguf_write_array(w, "k.bools", GGUF_BOOL, bools, COUNT_OF(bools));
    gguf_write_array(w, "k.f64s", GGUF_F64, doubles, COUNT_OF(doubles));
    gguf_write_array(w, "k.none", GGUF_U16, NULL, 0);
    gguf_write_str_array(w, "k.no_strings", NULL, 0);
}

static void check_every_key(const struct gguf *g)
{
    uint32_t u;
    float f;
    bool b;
    struct str s;
    const struct gguf_kv *a;
    cr_assert_eq(gguf_n_kv(g), 11u);
    cr_assert(gguf_get_u32(g, "k.u32", &u, NULL) == 1 && u == 7);
    cr_assert(gguf_get_f32(g, "k.f32", &f, NULL) == 1 && f == 1.5f);
    cr_assert(gguf_get_bool(g, "k.bool", &b, NULL) == 1 && b);
    cr_assert(gguf_get_str(g, "k.str", &s, NULL) == 1 && str_equal_z(s, "text with \n and \x1b"));
    cr_assert(gguf_get_str(g, "k.empty", &s, NULL) == 1 && s.len == 0);
    cr_assert(gguf_get_array(g, "k.strings", GGUF_STRING, &a, NULL) == 1 && a->count == 3);
    cr_assert(str_equal(a->strings[2], (struct str){"x\0\xFF", 3}));
    cr_assert(gguf_get_array(g, "k.i32s", GGUF_I32, &a, NULL) == 1 && a->count == 3);
    cr_assert(gguf_array_i64(a, 0) == -1 && gguf_array_i64(a, 2) == INT32_MAX);
    cr_assert(gguf_get_array(g, "k.bools", GGUF_BOOL, &a, NULL) == 1 && gguf_array_i64(a, 1) == 1);
    cr_assert(gguf_get_array(g, "k.f64s", GGUF_F64, &a, NULL) == 1 && a->count == 2);
    cr_assert(gguf_get_array(g, "k.none", GGUF_U16, &a, NULL) == 1 && a->count == 0);
    cr_assert(gguf_get_array(g, "k.no_strings", GGUF_STRING, &a, NULL) == 1 && a->count == 0);
}

Test(gguf_writer, every_kind_of_value_reads_back)
{
    struct gguf_writer *w = open_writer();
    struct error err;
    write_every_key(w);
    cr_assert_eq(gguf_writer_close(w, &err), 0, "%s", err.text);
    struct gguf *g = reopen();
    check_every_key(g);
    cr_assert_eq(gguf_n_tensors(g), 0u);
    gguf_close(g);
}

// All types of values, through a copy of a copy: bytes equal.
Test(gguf_writer, pairs_copied_from_a_file_make_the_same_file)
{
    struct gguf_writer *w = open_writer();
    struct error err;
    write_every_key(w);
    static const uint64_t numbers[] = {1, UINT64_MAX};
    for (int t = 0; t < GGUF_TYPE_COUNT; t++) {
        char key[32];
        snprintf(key, sizeof key, "scalar%d", t);
        struct gguf_kv kv = {.key = str_from(key), .type = (enum gguf_type)t, .element = (enum gguf_type)t, .count = 1};
        kv.data = (const uint8_t *)(t == GGUF_BOOL ? &numbers[0] : &numbers[1]);
        if (t != GGUF_STRING && t != GGUF_ARRAY)
            gguf_write_kv(w, &kv);
    }
    cr_assert_eq(gguf_writer_close(w, &err), 0, "%s", err.text);
    struct gguf *g = reopen();
    cr_assert_eq(gguf_n_kv(g), 11u + 11u);

    char copy_path[112];
    snprintf(copy_path, sizeof copy_path, "%s.copy", path);
    cr_assert_eq(gguf_writer_open(&w, copy_path, &err), 0);
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        gguf_write_kv(w, gguf_kv_at(g, i));
    cr_assert_eq(gguf_writer_close(w, &err), 0, "%s", err.text);
    gguf_close(g);

    static char a[4096], b[4096];
    FILE *fa = fopen(path, "rb"), *fb = fopen(copy_path, "rb");
    size_t n = fread(a, 1, sizeof a, fa), m = fread(b, 1, sizeof b, fb);
    fclose(fa);
    fclose(fb);
    unlink(copy_path);
    cr_assert(n > 500 && n < sizeof a && n == m);
    cr_assert_eq(memcmp(a, b, n), 0);
}

static void write_tensors(uint32_t alignment, size_t piece)
{
    static uint8_t data[3][5000000]; // the first is longer than what the writer keeps to itself, twice
    static const int64_t ne[3][4] = {{1250000}, {32, 7, 3}, {3, 1, 1, 5}};
    static const enum dtype type[3] = {DT_F32, DT_Q8_0, DT_I8};
    static const size_t size[3] = {5000000, 34 * 21, 15};
    static const char *const name[3] = {"token_embd.weight", "b", "c"};
    for (size_t t = 0; t < 3; t++)
        for (size_t i = 0; i < size[t]; i++)
            data[t][i] = (uint8_t)(i * 31 + t * 7 + (i >> 8));
    struct gguf_writer *w = open_writer();
    struct error err;
    if (alignment != 32)
        gguf_write_u32(w, "general.alignment", alignment);
    for (int t = 0; t < 3; t++)
        cr_assert_eq(gguf_write_tensor_info(w, name[t], type[t], (int[]){1, 3, 4}[t], ne[t], &err), 0, "%s", err.text);
    for (int t = 0; t < 3; t++) {
        for (size_t done = 0; done < size[t];) {
            size_t n = MIN(piece, size[t] - done);
            cr_assert_eq(gguf_write_data(w, data[t] + done, n, &err), 0, "%s", err.text);
            done += n;
        }
    }
    cr_assert_eq(gguf_writer_close(w, &err), 0, "%s", err.text);
    struct gguf *g = reopen();
    cr_assert_eq(gguf_alignment(g), alignment);
    cr_assert_eq(gguf_file_bytes(g) % alignment, 0u);
    for (int t = 0; t < 3; t++) {
        const struct gguf_tensor *have = gguf_find_tensor(g, name[t]);
        cr_assert_eq(have, gguf_tensor_at(g, (size_t)t));
        cr_assert_eq(have->size, size[t]);
        cr_assert_eq(have->offset % alignment, 0u);
        cr_assert_eq(memcmp(have->data, data[t], size[t]), 0);
    }
    gguf_close(g);
}

Test(gguf_writer, tensors_read_back_at_any_alignment)
{
    write_tensors(32, 1 << 20);
    write_tensors(1, 1 << 20);
    write_tensors(64, 1 << 20);
    write_tensors(65536, 1 << 20);
}

Test(gguf_writer, data_comes_in_pieces_of_any_size)
{
    write_tensors(32, 1);
    write_tensors(32, 4097);
    write_tensors(32, 65536);
    write_tensors(32, (2 << 20) - 1);
    write_tensors(32, 3 << 20);
}

Test(gguf_writer, one_piece_may_span_tensors)
{
    struct gguf_writer *w = open_writer();
    struct error err;
    const int64_t ne = 3;
    cr_assert_eq(gguf_write_tensor_info(w, "a", DT_I8, 1, &ne, &err), 0);
    cr_assert_eq(gguf_write_tensor_info(w, "b", DT_I8, 1, &ne, &err), 0);
    cr_assert_eq(gguf_write_data(w, "xy", 2, &err), 0);
    cr_assert_eq(gguf_write_data(w, "zXYZ", 4, &err), 0);
    cr_assert_eq(gguf_writer_close(w, &err), 0, "%s", err.text);
    struct gguf *g = reopen();
    cr_assert_eq(memcmp(gguf_find_tensor(g, "a")->data, "xyz", 3), 0);
    cr_assert_eq(memcmp(gguf_find_tensor(g, "b")->data, "XYZ", 3), 0);
    gguf_close(g);
}

// ---- What is refused ----

static void expect_refused(struct gguf_writer *w, enum err_code code, const char *text)
{
    struct error err = {0};
    cr_expect_eq(gguf_writer_close(w, &err), -1, "%s", text);
    cr_expect_eq(err.code, code, "%s", text);
    cr_expect_not_null(strstr(err.text, text), "%s, not %s", err.text, text);
    cr_expect_eq(count_files(), 0, "%s", text);
}

Test(gguf_writer, a_key_that_could_not_be_read_is_refused)
{
    struct gguf_writer *w = open_writer();
    gguf_write_u32(w, "", 1);
    expect_refused(w, E_USAGE, "'' is no valid key");
    w = open_writer();
    gguf_write_u32(w, "a\nb", 1);
    expect_refused(w, E_USAGE, "'a\\x0Ab' is no valid key");
    w = open_writer();
    gguf_write_u32(w, "twice", 1);
    gguf_write_f32(w, "other", 1);
    gguf_write_f32(w, "twice", 2);
    expect_refused(w, E_USAGE, "key 'twice' was written twice");
    w = open_writer();
    gguf_write_array(w, "k", GGUF_ARRAY, "", 0);
    expect_refused(w, E_USAGE, "key 'k': no array of 0 array");
    w = open_writer();
    gguf_write_u32(w, "general.alignment", 24);
    expect_refused(w, E_USAGE, "general.alignment must be a power of two up to 65536, of type u32");
    w = open_writer();
    gguf_write_f32(w, "general.alignment", 32);
    expect_refused(w, E_USAGE, "general.alignment must be a power of two up to 65536, of type u32");
    w = open_writer();
    gguf_write_u32(w, "general.alignment", 131072);
    expect_refused(w, E_USAGE, "general.alignment must be a power of two up to 65536, of type u32");
    w = open_writer();
    gguf_write_u32(w, "general.alignment", 0);
    expect_refused(w, E_USAGE, "general.alignment must be a power of two up to 65536, of type u32");
    w = open_writer();
    gguf_write_str(w, "general.alignment", STR_LIT("32"));
    expect_refused(w, E_USAGE, "general.alignment must be of type u32");
    w = open_writer();
    gguf_write_u32(w, "a\xFF", 1);
    expect_refused(w, E_USAGE, "'a\\xFF' is no valid key");
    w = open_writer();
    gguf_write_array(w, "k", GGUF_U64, "", SIZE_MAX / 4);
    expect_refused(w, E_USAGE, "key 'k': no array of 4611686018427387903 u64");
}

// Of each refusal that names a key, or a tensor.
Test(gguf_writer, of_a_long_name_a_message_has_the_beginning)
{
    char key[201], want[256];
    memset(key, 'k', 200);
    key[200] = '\0';
    struct gguf_writer *w = open_writer();
    gguf_write_array(w, key, GGUF_ARRAY, "", 0);
    snprintf(want, sizeof want, "key '%.128s': no array of 0 array", key);
    expect_refused(w, E_USAGE, want);
    w = open_writer();
    gguf_write_u32(w, key, 1);
    gguf_write_u32(w, key, 1);
    snprintf(want, sizeof want, "key '%.128s' was written twice", key);
    expect_refused(w, E_USAGE, want);
    w = open_writer();
    const int64_t ne = 1;
    gguf_write_tensor_info(w, key, DT_I8, 1, &ne, NULL);
    snprintf(want, sizeof want, "'%.128s' is no valid tensor name", key);
    expect_refused(w, E_USAGE, want);
    w = open_writer();
    gguf_write_tensor_info(w, "t", DT_I8, 1, &ne, NULL);
    cr_assert_eq(gguf_write_data(w, "1", 1, NULL), 0);
    gguf_write_u32(w, key, 1);
    snprintf(want, sizeof want, "key '%.128s' comes after the first data", key);
    expect_refused(w, E_USAGE, want);
    w = open_writer();
    key[199] = '\n';
    gguf_write_u32(w, key, 1);
    snprintf(want, sizeof want, "'%.128s' is no valid key", key);
    expect_refused(w, E_USAGE, want);
}

// What the reader takes of one file, and one more.
Test(gguf_writer, more_than_a_reader_takes_is_refused)
{
    char name[32];
    struct gguf_writer *w = open_writer();
    for (int i = 0; i <= 65536; i++) {
        snprintf(name, sizeof name, "%d", i);
        gguf_write_u32(w, name, 0);
    }
    expect_refused(w, E_USAGE, "more than 65536 keys");
    w = open_writer();
    const int64_t ne = 1;
    for (int i = 0; i <= 262144; i++) {
        snprintf(name, sizeof name, "%d", i);
        struct error err;
        cr_assert_eq(gguf_write_tensor_info(w, name, DT_I8, 1, &ne, &err), i < 262144 ? 0 : -1);
    }
    expect_refused(w, E_USAGE, "more than 262144 tensors");
    w = open_writer();
    gguf_write_array(w, "k", GGUF_U8, "", 134217728); // so much is never read
    expect_refused(w, E_USAGE, "the metadata is over the limit of 134217728 bytes");
    w = open_writer();
    gguf_write_str(w, "k", (struct str){"", SIZE_MAX});
    expect_refused(w, E_USAGE, "the metadata is over the limit of 134217728 bytes");
}

Test(gguf_writer, a_tensor_that_could_not_be_read_is_refused)
{
    static const struct {
        const char *name;
        enum dtype type;
        int n_dims;
        int64_t ne[4];
        const char *text;
    } cases[] = {
        {"", DT_F32, 1, {1}, "'' is no valid tensor name"},
        {"0123456789012345678901234567890123456789012345678901234567890123", DT_F32, 1, {1}, "is no valid tensor name"},
        {"t\xFF", DT_F32, 1, {1}, "'t\\xFF' is no valid tensor name"},
        {"t\x7F", DT_F32, 1, {1}, "'t\\x7F' is no valid tensor name"},
        {"t", DT_COUNT, 1, {1}, "tensor 't' has a shape that cannot be written"},
        {"t", DT_F32, 0, {1}, "tensor 't' has a shape that cannot be written"},
        {"t", DT_F32, 5, {1}, "tensor 't' has a shape that cannot be written"},
        {"t", DT_F32, 2, {1, 0}, "tensor 't' has a shape that cannot be written"},
        {"t", DT_F32, 2, {-1, 1}, "tensor 't' has a shape that cannot be written"},
        {"t", DT_Q4_K, 1, {128}, "tensor 't' has a shape that cannot be written"},
        {"t", DT_F32, 1, {INT64_MAX}, "tensor 't' has a shape that cannot be written"},
        {"t", DT_I8, 3, {1ll << 31, 1ll << 31, 4}, "tensor 't' has a shape that cannot be written"},
        {"t", DT_I8, 1, {INT64_MAX}, "tensor 't' makes the file too large"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct gguf_writer *w = open_writer();
        struct error err;
        cr_expect_eq(gguf_write_tensor_info(w, cases[i].name, cases[i].type, cases[i].n_dims, cases[i].ne, &err), -1);
        cr_expect_not_null(strstr(err.text, cases[i].text), "%s, not %s", err.text, cases[i].text);
        expect_refused(w, E_USAGE, cases[i].text);
    }
    struct gguf_writer *w = open_writer();
    const int64_t ne = 1;
    gguf_write_tensor_info(w, "t", DT_I8, 1, &ne, NULL);
    gguf_write_tensor_info(w, "t", DT_I8, 1, &ne, NULL);
    expect_refused(w, E_USAGE, "tensor 't' was written twice");
    w = open_writer();
    const int64_t huge[2] = {INT64_MAX - 65536, INT64_MAX}; // their sum overflows even 64 bits without a sign
    cr_assert_eq(gguf_write_tensor_info(w, "t", DT_I8, 1, &huge[0], NULL), 0);
    cr_assert_eq(gguf_write_tensor_info(w, "u", DT_I8, 1, &huge[1], NULL), -1);
    expect_refused(w, E_USAGE, "tensor 'u' makes the file too large");
}

Test(gguf_writer, too_little_or_too_much_data_is_refused)
{
    const int64_t ne = 4;
    struct error err;
    struct gguf_writer *w = open_writer();
    gguf_write_tensor_info(w, "t", DT_F32, 1, &ne, NULL);
    cr_assert_eq(gguf_write_data(w, "1234567", 7, &err), 0);
    expect_refused(w, E_USAGE, "tensor 't' lacks 9 bytes of data");
    w = open_writer();
    gguf_write_tensor_info(w, "t", DT_I8, 1, &ne, NULL);
    cr_assert_eq(gguf_write_data(w, "1234567", 7, &err), -1);
    expect_refused(w, E_USAGE, "3 bytes of data after the last tensor");
    w = open_writer();
    gguf_write_tensor_info(w, "t", DT_I8, 1, &ne, NULL);
    cr_assert_eq(gguf_write_data(w, "1", 1, &err), 0);
    gguf_write_u32(w, "late", 1);
    expect_refused(w, E_USAGE, "key 'late' comes after the first data");
    w = open_writer();
    gguf_write_tensor_info(w, "t", DT_I8, 1, &ne, NULL);
    cr_assert_eq(gguf_write_data(w, "1", 1, &err), 0);
    cr_assert_eq(gguf_write_tensor_info(w, "late", DT_I8, 1, &ne, &err), -1);
    expect_refused(w, E_USAGE, "tensor 'late' is announced after the first data");
}

Test(gguf_writer, the_first_error_is_the_one_reported)
{
    struct gguf_writer *w = open_writer();
    struct error err;
    gguf_write_u32(w, "", 1);
    gguf_write_u32(w, "general.alignment", 3);
    cr_assert_eq(gguf_write_data(w, "x", 1, &err), -1);
    cr_assert_not_null(strstr(err.text, "no valid key"));
    expect_refused(w, E_USAGE, "no valid key");
}

// ---- Files that are open already ----

Test(gguf_writer, an_open_file_is_written_and_left_to_the_caller)
{
    struct gguf_writer *w;
    struct error err;
    char open_path[32];
    const int64_t ne = 3;
    int fd = memory_file("", 0, open_path);
    cr_assert_eq(gguf_writer_open_fd(&w, fd, "a file", &err), 0, "%s", err.text);
    gguf_write_u32(w, "k", 5);
    cr_assert_eq(gguf_write_tensor_info(w, "t", DT_I8, 1, &ne, &err), 0);
    cr_assert_eq(gguf_write_data(w, "xyz", 3, &err), 0);
    cr_assert_eq(gguf_writer_close(w, &err), 0, "%s", err.text);
    struct gguf *g;
    cr_assert_eq(gguf_open(&g, open_path, 0, &err), 0, "%s", err.text); // the descriptor is still open
    cr_assert_eq(memcmp(gguf_find_tensor(g, "t")->data, "xyz", 3), 0);
    gguf_close(g);
    close(fd);
    cr_assert_eq(gguf_writer_open_fd(&w, fd, "a file", &err), -1);
    cr_assert_eq(err.code, E_IO);
    cr_assert_str_eq(err.text, "a file: Bad file descriptor");
    cr_assert_null(w);
    fd = memory_file("", 0, open_path);
    cr_assert_eq(gguf_writer_open_fd(&w, fd, "a file", &err), 0);
    gguf_write_u32(w, "", 1);
    cr_assert_eq(gguf_writer_close(w, &err), -1);
    cr_assert_str_eq(err.text, "a file: '' is no valid key");
    cr_assert_eq(close(fd), 0);
    cr_assert_eq(count_files(), 0);
}

// ---- The file under its name ----

Test(gguf_writer, a_name_without_a_folder_is_one_of_this_folder)
{
    struct gguf_writer *w;
    struct error err;
    cr_assert_eq(chdir(dir), 0);
    cr_assert_eq(gguf_writer_open(&w, "out.gguf", &err), 0, "%s", err.text);
    cr_assert_eq(gguf_writer_close(w, &err), 0, "%s", err.text);
    cr_assert_eq(count_files(), 1);
    gguf_close(reopen());
    cr_assert_eq(chdir("/"), 0);
}

Test(gguf_writer, the_name_is_taken_only_at_the_end)
{
    struct error err;
    FILE *f = fopen(path, "w");
    fputs("old", f);
    fclose(f);
    struct gguf_writer *w = open_writer();
    gguf_write_u32(w, "k", 1);
    cr_assert_eq(count_files(), 2);
    struct stat st;
    cr_assert(stat(path, &st) == 0 && st.st_size == 3);
    gguf_writer_abort(w);
    cr_assert(stat(path, &st) == 0 && st.st_size == 3);
    cr_assert_eq(count_files(), 1);
    gguf_writer_abort(NULL);

    umask(027);
    w = open_writer();
    cr_assert_eq(gguf_writer_close(w, &err), 0);
    cr_assert(stat(path, &st) == 0 && st.st_size == 24);
    cr_assert_eq(st.st_mode & 0777, 0640u, "the mode of any new file");
    cr_assert_eq(count_files(), 1);
}

Test(gguf_writer, two_writers_of_one_name_do_not_mix)
{
    struct error err;
    struct gguf_writer *a = open_writer(), *b = open_writer();
    gguf_write_u32(a, "from", 1);
    gguf_write_u32(b, "from", 2);
    cr_assert_eq(gguf_writer_close(b, &err), 0);
    cr_assert_eq(gguf_writer_close(a, &err), 0);
    struct gguf *g = reopen();
    uint32_t from;
    cr_assert(gguf_get_u32(g, "from", &from, NULL) == 1 && from == 1);
    gguf_close(g);
}

Test(gguf_writer, a_directory_that_is_not_there_is_an_io_error)
{
    struct gguf_writer *w;
    struct error err;
    char none[128], want[ERR_TEXT];
    snprintf(none, sizeof none, "%s/none/x.gguf", dir);
    snprintf(want, sizeof want, "%s: cannot create: No such file or directory", none);
    cr_assert_eq(gguf_writer_open(&w, none, &err), -1);
    cr_assert_eq(err.code, E_IO);
    cr_assert_str_eq(err.text, want);
    cr_assert_null(w);
}

// As root a rename onto /dev/null would take it from everyone.
Test(gguf_writer, a_device_is_not_replaced)
{
    struct gguf_writer *w;
    struct error err;
    struct stat there;
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_eq(gguf_writer_open(&w, path, &err), -1);
    cr_expect_eq(err.code, E_USAGE);
    cr_expect_not_null(strstr(err.text, "out.gguf: is there already and no ordinary file"), "%s", err.text);
    cr_expect(stat(path, &there) == 0 && S_ISFIFO(there.st_mode));
}

// A full disk, as a limit on the size of files: E_IO, and nothing is left.
Test(gguf_writer, a_full_disk_leaves_nothing_behind)
{
    static const uint8_t zeros[4 << 20]; // more than the writer keeps to itself
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){300000, 300000});
    struct gguf_writer *w = open_writer();
    struct error err;
    const int64_t ne = 4 << 20;
    cr_assert_eq(gguf_write_tensor_info(w, "t", DT_I8, 1, &ne, &err), 0);
    cr_assert_eq(gguf_write_data(w, zeros, sizeof zeros, &err), -1);
    cr_assert_eq(err.code, E_IO);
    cr_assert_not_null(strstr(err.text, "out.gguf: cannot write: File too large"), "%s", err.text);
    cr_assert_eq(gguf_write_data(w, zeros, 1, &err), -1, "the error stays");
    expect_refused(w, E_IO, "cannot write: File too large");
}

// ---- Temporary files ----

static bool is_there(const char *name)
{
    return access(name, F_OK) == 0;
}

Test(gguf_writer, temporary_files_are_there_until_they_are_renamed_or_removed)
{
    char kept[sizeof path + TEMPORARY_SUFFIX], removed[sizeof path + TEMPORARY_SUFFIX];
    struct stat st;
    umask(027);
    int fd = temporary_create(path, kept, 0666);
    cr_assert(fd >= 0 && fstat(fd, &st) == 0);
    cr_assert_eq(st.st_mode & 0777, 0640u);
    cr_assert_eq(strncmp(kept, path, strlen(path)), 0);
    cr_assert_str_eq(kept + strlen(kept) - 4, ".tmp");
    close(fd);
    close(temporary_create(path, removed, 0600));
    cr_assert_str_neq(kept, removed);
    char none[128];
    snprintf(none, sizeof none, "%s/none/x", dir);
    cr_assert_eq(temporary_rename(kept, none), -1);
    cr_assert_eq(errno, ENOENT);
    cr_assert(is_there(kept), "is temporary still");
    cr_assert_eq(temporary_rename(kept, path), 0);
    temporary_remove(removed);
    cr_assert_eq(count_files(), 1);
    temporary_remove_all(); // of none
    cr_assert(is_there(path), "is none any more");
}

// As many as are known, and one more. All vanish at once, and then there is room again.
Test(gguf_writer, all_temporary_files_are_removed_at_once)
{
    enum { KNOWN = 256 };
    static char names[KNOWN + 1][sizeof path + TEMPORARY_SUFFIX];
    for (int i = 0; i < KNOWN; i++) {
        int fd = temporary_create(path, names[i], 0600);
        cr_assert_geq(fd, 0);
        close(fd);
    }
    cr_assert_eq(temporary_create(path, names[KNOWN], 0600), -1);
    cr_assert_eq(errno, EMFILE);
    cr_assert_eq(count_files(), KNOWN);
    temporary_remove(names[KNOWN]); // neither there nor known: the others stay
    cr_assert_eq(count_files(), KNOWN);
    temporary_remove_all();
    cr_assert_eq(count_files(), 0);
    int fd = temporary_create(path, names[0], 0600);
    cr_assert_geq(fd, 0);
    close(fd);
    temporary_remove(names[0]);
}
