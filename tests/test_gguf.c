// Tests reading valid GGUF files: every type of value, every reader function, mapped and copied data, split files, and
// speed.
#include "gguf/mapped.h"
#include "tests/gguf_recipe.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <time.h>

// Opens what the recipe makes; the test fails when it does not open.
static struct gguf *open_recipe(const char *recipe, unsigned flags)
{
    struct blob b = {0};
    blob_put_recipe(&b, recipe);
    struct gguf *g;
    struct error err;
    cr_assert_eq(gguf_open_bytes(&g, b.data, b.size, flags, &err), 0, "%s", err.text);
    blob_free(&b);
    return g;
}

// ---- Keys ----

#define EVERY_TYPE                                                                                                     \
    "header:3,0,17 kv:u8,u8,255 kv:i8,i8,-128 kv:u16,u16,65535 kv:i16,i16,-32768 kv:u32,u32,4294967295 "               \
    "kv:i32,i32,-2147483648 kv:u64,u64,18446744073709551615 kv:i64,i64,-9223372036854775808 kv:f32,f32,0.5 "           \
    "kv:f64,f64,-2.25 kv:yes,bool,1 kv:no,bool,0 key:text type:string str:a_b "                                        \
    "key:ints type:array type:i32 u64:3 i32:-1 i32:0 i32:1 key:words type:array type:u32 u64:2 u32:7 u32:-1 "          \
    "key:floats type:array type:f32 u64:2 f32:1.5 f32:-2 key:strings type:array type:string u64:3 str:x str: str:zz "

Test(gguf, integers_of_every_width_read_as_i64)
{
    static const struct {
        const char *key;
        int64_t want;
    } cases[] = {{"u8", 255},         {"i8", -128},       {"u16", 65535},    {"i16", -32768},
                 {"u32", UINT32_MAX}, {"i32", INT32_MIN}, {"i64", INT64_MIN}};
    struct gguf *g = open_recipe(EVERY_TYPE, 0);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int64_t v = 42;
        struct error err;
        cr_expect_eq(gguf_get_i64(g, cases[i].key, &v, &err), 1, "%s", cases[i].key);
        cr_expect_eq(v, cases[i].want, "%s", cases[i].key);
    }
    gguf_close(g);
}

Test(gguf, an_absent_key_leaves_the_default)
{
    struct gguf *g = open_recipe(EVERY_TYPE, 0);
    uint32_t u = 42;
    int64_t i = 43;
    float f = 44;
    bool b = true;
    struct str s = STR_LIT("45");
    const struct gguf_kv *array = NULL;
    cr_assert_eq(gguf_get_u32(g, "none", &u, NULL), 0);
    cr_assert_eq(gguf_get_i64(g, "none", &i, NULL), 0);
    cr_assert_eq(gguf_get_f32(g, "none", &f, NULL), 0);
    cr_assert_eq(gguf_get_bool(g, "none", &b, NULL), 0);
    cr_assert_eq(gguf_get_str(g, "none", &s, NULL), 0);
    cr_assert_eq(gguf_get_array(g, "none", GGUF_I32, &array, NULL), 0);
    cr_assert(u == 42 && i == 43 && f == 44 && b && str_equal_z(s, "45") && !array);
    cr_assert_null(gguf_find(g, ""));
    gguf_close(g);
}

Test(gguf, values_of_each_kind_read)
{
    struct gguf *g = open_recipe(EVERY_TYPE, 0);
    uint32_t u;
    float f;
    bool b;
    struct str s;
    cr_assert_eq(gguf_get_u32(g, "u32", &u, NULL), 1);
    cr_assert_eq(u, UINT32_MAX);
    cr_assert_eq(gguf_get_f32(g, "f32", &f, NULL), 1);
    cr_assert_eq(f, 0.5f);
    cr_assert_eq(gguf_get_f32(g, "f64", &f, NULL), 1);
    cr_assert_eq(f, -2.25f);
    cr_assert_eq(gguf_get_f32(g, "i16", &f, NULL), 1);
    cr_assert_eq(f, -32768.0f);
    cr_assert_eq(gguf_get_f32(g, "u64", &f, NULL), 1);
    cr_assert_eq(f, 0x1p64f);
    cr_assert_eq(gguf_get_bool(g, "yes", &b, NULL), 1);
    cr_assert(b);
    cr_assert_eq(gguf_get_bool(g, "no", &b, NULL), 1);
    cr_assert_not(b);
    cr_assert_eq(gguf_get_str(g, "text", &s, NULL), 1);
    cr_assert(str_equal_z(s, "a b"));
    gguf_close(g);
}

Test(gguf, arrays_read_by_element)
{
    struct gguf *g = open_recipe(EVERY_TYPE, 0);
    const struct gguf_kv *a;
    cr_assert_eq(gguf_get_array(g, "ints", GGUF_I32, &a, NULL), 1);
    cr_assert_eq(a->count, 3u);
    cr_assert(gguf_array_i64(a, 0) == -1 && gguf_array_i64(a, 1) == 0 && gguf_array_i64(a, 2) == 1);
    cr_assert_eq(gguf_array_f32(a, 0), -1.0f);
    cr_assert_eq(gguf_get_array(g, "words", GGUF_I32, &a, NULL), 1, "u32 will do for i32");
    cr_assert_eq(gguf_array_i64(a, 1), (int64_t)UINT32_MAX);
    cr_assert_eq(gguf_get_array(g, "ints", GGUF_U32, &a, NULL), 1, "and the reverse");
    cr_assert_eq(gguf_get_array(g, "floats", GGUF_F32, &a, NULL), 1);
    cr_assert(gguf_array_f32(a, 0) == 1.5f && gguf_array_i64(a, 1) == -2);
    cr_assert_eq(gguf_get_array(g, "strings", GGUF_STRING, &a, NULL), 1);
    cr_assert(str_equal_z(a->strings[0], "x") && a->strings[1].len == 0 && str_equal_z(a->strings[2], "zz"));
    gguf_close(g);
}

Test(gguf, a_value_of_the_wrong_type_names_key_place_and_types)
{
    struct gguf *g = open_recipe(EVERY_TYPE, 0);
    struct error err;
    int64_t i;
    uint32_t u;
    float f;
    bool b;
    struct str s;
    const struct gguf_kv *a;
    struct {
        int status;
        const char *key, *text;
    } want;
#define REFUSED(call, KEY, TEXT)                                                                                       \
    do {                                                                                                               \
        want.status = (call);                                                                                          \
        want.key = KEY;                                                                                                \
        want.text = "key '" KEY "': " TEXT;                                                                            \
        cr_expect_eq(want.status, -1, KEY);                                                                            \
        cr_expect_eq(err.code, E_MODEL, KEY);                                                                          \
        cr_expect_eq(err.offset, gguf_find(g, KEY)->offset, KEY);                                                      \
        cr_expect_not_null(strstr(err.text, want.text), "%s, not %s", err.text, want.text);                            \
    } while (0)
    REFUSED(gguf_get_i64(g, "text", &i, &err), "text", "has type string, wanted an integer");
    REFUSED(gguf_get_i64(g, "f32", &i, &err), "f32", "has type f32, wanted an integer");
    REFUSED(gguf_get_i64(g, "ints", &i, &err), "ints", "is an array of i32, wanted an integer");
    REFUSED(gguf_get_i64(g, "yes", &i, &err), "yes", "has type bool, wanted an integer");
    REFUSED(gguf_get_i64(g, "u64", &i, &err), "u64", "18446744073709551615 is out of range");
    REFUSED(gguf_get_u32(g, "i8", &u, &err), "i8", "-128 is out of range, wanted 0 to 4294967295");
    REFUSED(gguf_get_u32(g, "text", &u, &err), "text", "has type string, wanted an integer");
    REFUSED(gguf_get_f32(g, "yes", &f, &err), "yes", "has type bool, wanted a number");
    REFUSED(gguf_get_bool(g, "u8", &b, &err), "u8", "has type u8, wanted a bool");
    REFUSED(gguf_get_str(g, "strings", &s, &err), "strings", "is an array of string, wanted a string");
    REFUSED(gguf_get_array(g, "floats", GGUF_I32, &a, &err), "floats", "is an array of f32, wanted an array of i32");
    REFUSED(gguf_get_array(g, "u32", GGUF_U32, &a, &err), "u32", "has type u32, wanted an array of u32");
    REFUSED(gguf_get_array(g, "words", GGUF_U8, &a, &err), "words", "is an array of u32, wanted an array of u8");
    gguf_close(g);
}

Test(gguf, of_a_long_key_a_message_has_the_beginning)
{
    struct blob b = {0};
    char key[201];
    memset(key, 'k', 200);
    key[200] = '\0';
    blob_put_recipe(&b, "header:3,0,1");
    blob_put_str(&b, key, 200);
    blob_put_recipe(&b, "type:u8 u8:1");
    struct gguf *g;
    struct error err;
    bool v;
    cr_assert_eq(gguf_open_bytes(&g, b.data, b.size, 0, &err), 0, "%s", err.text);
    cr_assert_eq(gguf_get_bool(g, key, &v, &err), -1);
    char want[256];
    snprintf(want, sizeof want, ": byte 24: key '%.128s': has type u8, wanted a bool", key);
    cr_assert_not_null(strstr(err.text, want), "%s", err.text);
    gguf_close(g);
    blob_free(&b);
}

Test(gguf, a_type_that_does_not_exist_has_no_name_and_no_bytes)
{
    cr_assert_str_eq(gguf_type_name(GGUF_TYPE_COUNT), "unknown");
    cr_assert_eq(gguf_type_bytes(GGUF_TYPE_COUNT), 0u);
    cr_assert_str_eq(gguf_type_name(GGUF_F64), "f64");
    cr_assert_eq(gguf_type_bytes(GGUF_F64), 8u);
}

Test(gguf, the_greatest_integer_is_in_range)
{
    struct gguf *g = open_recipe("header:3,0,2 kv:most,u64,9223372036854775807 kv:more,u64,9223372036854775808", 0);
    int64_t v;
    uint32_t u;
    struct error err;
    cr_assert_eq(gguf_get_i64(g, "most", &v, &err), 1);
    cr_assert_eq(v, INT64_MAX);
    cr_assert_eq(gguf_get_i64(g, "more", &v, &err), -1);
    cr_assert_eq(gguf_get_u32(g, "most", &u, &err), -1);
    cr_assert_not_null(strstr(err.text, "key 'most': 9223372036854775807 is out of range, wanted 0 to 4294967295"),
                       "%s", err.text);
    gguf_close(g);
}

// What callers say about a value that they find invalid.
Test(gguf, a_caller_s_error_names_file_and_place)
{
    struct gguf *g = open_recipe("header:3,0,1 kv:k,u8,1", 0);
    struct error err;
    char want[64];
    cr_assert_eq(gguf_fail(g, 0, gguf_find(g, "k")->offset, &err, "%d is %s", 7, "odd"), -1);
    cr_assert_eq(err.code, E_MODEL);
    cr_assert_eq(err.offset, 24u);
    snprintf(want, sizeof want, "%s: byte 24: 7 is odd", gguf_path(g, 0));
    cr_assert_str_eq(err.text, want);
    cr_assert_eq(gguf_fail(g, 0, ERR_NO_OFFSET, &err, "no place"), -1);
    cr_assert_eq(err.offset, ERR_NO_OFFSET);
    snprintf(want, sizeof want, "%s: no place", gguf_path(g, 0));
    cr_assert_str_eq(err.text, want);
    gguf_close(g);
}

// ---- Keys that a user sets ----

// Each type of value replaces a key of the file and is added as a new one.
static void set_key(struct gguf *g, struct gguf_override o, const char *key)
{
    struct error err;
    o.key = key;
    cr_assert_eq(gguf_set(g, &o, &err), 0, "%s", err.text);
    const struct gguf_kv *kv = gguf_find(g, key);
    cr_assert(kv && str_equal_z(kv->key, key) && kv->type == o.type && kv->count == 1);
    cr_assert_eq(kv->offset, ERR_NO_OFFSET);
}

Test(gguf, a_key_that_is_set_replaces_the_file_s_or_is_added)
{
    struct gguf *g = open_recipe("header:3,0,4 kv:n,u8,1 kv:x,f32,1 kv:b,bool,0 key:s type:string str:old", 0);
    const struct gguf_override set[] = {{.type = GGUF_I64, .integer = -3},
                                        {.type = GGUF_F64, .real = 0.25},
                                        {.type = GGUF_BOOL, .boolean = true},
                                        {.type = GGUF_STRING, .string = "new"}};
    static const char *const old[] = {"n", "x", "b", "s"}, *const added[] = {"a.n", "z.x", "b.b", "s.s"};
    for (size_t i = 0; i < COUNT_OF(set); i++) {
        set_key(g, set[i], old[i]);
        cr_assert_eq(gguf_n_kv(g), 4 + i);
        set_key(g, set[i], added[i]);
        cr_assert_eq(gguf_n_kv(g), 5 + i);
    }
    const char *const *names[] = {old, added};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        int64_t n;
        float x;
        bool b;
        struct str s;
        cr_assert(gguf_get_i64(g, names[i][0], &n, NULL) == 1 && n == -3);
        cr_assert(gguf_get_f32(g, names[i][1], &x, NULL) == 1 && x == 0.25f);
        cr_assert(gguf_get_bool(g, names[i][2], &b, NULL) == 1 && b);
        cr_assert(gguf_get_str(g, names[i][3], &s, NULL) == 1 && str_equal_z(s, "new"));
    }
    cr_assert(str_equal_z(gguf_kv_at(g, 0)->key, "n"), "a replaced key keeps its place");
    set_key(g, (struct gguf_override){.type = GGUF_BOOL, .boolean = false}, "b");
    bool b;
    cr_assert(gguf_get_bool(g, "b", &b, NULL) == 1 && !b);
    gguf_close(g);
}

Test(gguf, floats_out_of_range_clamp_as_integers)
{
    struct gguf *g = open_recipe("header:3,0,2 key:d type:array type:f64 u64:3 f64:1e300 f64:-1e300 f64:nan "
                                 "kv:u,u64,18446744073709551615",
                                 0);
    const struct gguf_kv *a = gguf_find(g, "d");
    cr_assert_eq(gguf_array_i64(a, 0), INT64_MAX);
    cr_assert_eq(gguf_array_i64(a, 1), INT64_MIN);
    cr_assert_eq(gguf_array_i64(a, 2), 0);
    cr_assert_eq(gguf_array_i64(gguf_find(g, "u"), 0), INT64_MAX);
    gguf_close(g);
}

Test(gguf, keys_come_in_the_order_of_the_file_and_are_found_by_name)
{
    struct gguf *g = open_recipe("header:3,0,4 kv:z,u8,0 kv:a,u8,1 kv:ab,u8,2 kv:Z,u8,3", 0);
    static const char *const order[] = {"z", "a", "ab", "Z"};
    cr_assert_eq(gguf_n_kv(g), 4u);
    for (size_t i = 0; i < 4; i++) {
        cr_assert(str_equal_z(gguf_kv_at(g, i)->key, order[i]));
        cr_assert_eq(gguf_find(g, order[i]), gguf_kv_at(g, i));
    }
    cr_assert_null(gguf_find(g, "b"));
    cr_assert_null(gguf_find(g, "abc"));
    gguf_close(g);
}

// ---- The container ----

Test(gguf, a_file_of_nothing_opens)
{
    struct gguf *g = open_recipe("header:3,0,0", 0);
    cr_assert_eq(gguf_n_kv(g), 0u);
    cr_assert_eq(gguf_n_tensors(g), 0u);
    cr_assert_eq(gguf_version(g), 3u);
    cr_assert_eq(gguf_alignment(g), 32u);
    cr_assert_eq(gguf_file_bytes(g), 24u);
    cr_assert_eq(gguf_n_shards(g), 1);
    cr_assert_null(gguf_find(g, "k"));
    cr_assert_null(gguf_find_tensor(g, "t"));
    gguf_close(g);
    gguf_close(NULL);
}

Test(gguf, version_2_reads_like_3)
{
    struct gguf *g = open_recipe("header:2,1,1 kv:k,u32,5 tensor:t,0,0,2 align:32 f32:1 f32:2", 0);
    cr_assert_eq(gguf_version(g), 2u);
    const float *data = gguf_find_tensor(g, "t")->data;
    cr_assert(data[0] == 1 && data[1] == 2);
    gguf_close(g);
}

static void check_two_tensors(struct gguf *g, bool with_data)
{
    cr_assert_eq(gguf_n_tensors(g), 2u);
    const struct gguf_tensor *b = gguf_tensor_at(g, 0);
    cr_assert(str_equal_z(b->name, "b"));
    cr_assert_eq(gguf_find_tensor(g, "b"), b);
    cr_assert_eq(b->type, DT_F32);
    cr_assert_eq(b->n_dims, 2);
    cr_assert(b->ne[0] == 2 && b->ne[1] == 3 && b->ne[2] == 1 && b->ne[3] == 1);
    cr_assert_eq(b->size, 24u);
    cr_assert_eq(b->info_offset, 24u);
    cr_assert_eq(b->shard, 0);
    for (int i = 0; with_data && i < 6; i++)
        cr_assert_eq(((const float *)b->data)[i], (float)(i + 1));
    if (!with_data)
        cr_assert_null(b->data);
}

Test(gguf, tensors_lie_where_the_file_says)
{
    const char *recipe = "header:3,2,0 tensor:b,0,64,2,3 tensor:a,8,0,32 align:32 zero:64 f32:1 f32:2 f32:3 f32:4 "
                         "f32:5 f32:6 zero:1000"; // what trails is no matter
    static const unsigned flags[] = {0, GGUF_NO_MMAP, GGUF_METADATA_ONLY};
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        struct gguf *g = open_recipe(recipe, flags[i]);
        check_two_tensors(g, !(flags[i] & GGUF_METADATA_ONLY));
        gguf_close(g);
    }
}

// What was read into memory needs its file no more.
Test(gguf, a_mapped_file_that_became_shorter_is_found)
{
    char path[] = "/tmp/quern-gguf-XXXXXX";
    const int fd = mkstemp(path);
    struct blob b = {0};
    blob_put_recipe(&b, "header:3,1,0 tensor:a,0,0,64 align:32 zero:256");
    for (int mapped = 0; mapped < 2; mapped++) {
        struct gguf *g;
        struct error err = {0};
        cr_assert_eq(pwrite(fd, b.data, b.size, 0), (ssize_t)b.size);
        cr_assert_eq(gguf_open(&g, path, mapped ? 0 : GGUF_NO_MMAP, &err), 0, "%s", err.text);
        cr_expect_eq(gguf_check_whole(g, &err), 0);
        cr_assert_eq(ftruncate(fd, (off_t)b.size - 1), 0);
        cr_expect_eq(gguf_check_whole(g, &err), mapped ? -1 : 0);
        cr_expect(!mapped || (err.code == E_IO && strstr(err.text, ": model file changed")), "%s", err.text);
        gguf_close(g);
    }
    close(fd);
    unlink(path);
    blob_free(&b);
}

// A number that was closed may be another file's by the time the model is closed.
Test(gguf, its_descriptor_is_closed_once)
{
    static const unsigned flags[] = {0, GGUF_NO_MMAP, GGUF_METADATA_ONLY};
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        struct gguf *g = open_recipe("header:3,1,0 tensor:a,0,0,1 align:32 f32:1", flags[i]);
        int others[4];
        for (size_t k = 0; k < COUNT_OF(others); k++)
            others[k] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        gguf_close(g);
        for (size_t k = 0; k < COUNT_OF(others); k++)
            cr_expect_eq(close(others[k]), 0, "flags %u", flags[i]);
    }
}

Test(gguf, addresses_are_aligned_as_the_file_is)
{
    static const unsigned flags[] = {0, GGUF_NO_MMAP};
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        struct gguf *g = open_recipe("header:3,2,1 kv:general.alignment,u32,1024 tensor:a,0,0,1 tensor:b,0,1024,1 "
                                     "align:1024 zero:1028",
                                     flags[i]);
        cr_assert_eq(gguf_alignment(g), 1024u);
        cr_assert_eq((uintptr_t)gguf_tensor_at(g, 0)->data % 1024, 0u);
        cr_assert_eq((uintptr_t)gguf_tensor_at(g, 1)->data % 1024, 0u);
        gguf_close(g);
    }
}

Test(gguf, alignment_of_1_packs_tensors_anywhere)
{
    struct gguf *g = open_recipe("header:3,3,1 kv:general.alignment,u32,1 tensor:a,24,0,3 tensor:b,0,3,1 "
                                 "tensor:c,24,7,1 raw:xyz f32:2.5 raw:!",
                                 0);
    float f;
    memcpy(&f, gguf_find_tensor(g, "b")->data, 4);
    cr_assert_eq(f, 2.5f);
    cr_assert_eq(*(const char *)gguf_find_tensor(g, "c")->data, '!');
    gguf_close(g);
}

Test(gguf, limits_that_are_still_allowed)
{
    struct gguf *g = open_recipe("header:3,1,1 kv:general.alignment,u32,65536 "
                                 "tensor:0123456789012345678901234567890123456789012345678901234567890_2,24,0,1,1,1,1 "
                                 "align:65536 zero:1",
                                 0);
    cr_assert_eq(gguf_tensor_at(g, 0)->name.len, 63u);
    cr_assert_eq(gguf_tensor_at(g, 0)->n_dims, 4);
    gguf_close(g);

    struct blob b = {0};
    blob_put_recipe(&b, "header:3,0,1");
    blob_put_number(&b, 65535, 8);
    for (int i = 0; i < 65535; i++)
        blob_put_number(&b, 'k', 1);
    blob_put_recipe(&b, "type:u8 u8:0");
    struct error err;
    cr_assert_eq(gguf_open_bytes(&g, b.data, b.size, 0, &err), 0, "%s", err.text);
    cr_assert_eq(gguf_kv_at(g, 0)->key.len, 65535u);
    gguf_close(g);
    blob_free(&b);
}

Test(gguf, empty_arrays_are_legal)
{
    struct gguf *g = open_recipe("header:3,0,2 key:s type:array type:string u64:0 key:n type:array type:f64 u64:0", 0);
    cr_assert_eq(gguf_find(g, "s")->count, 0u);
    cr_assert_eq(gguf_find(g, "n")->count, 0u);
    gguf_close(g);
}

// Strings longer than the window in which the file is read, and numbers across its edge.
Test(gguf, values_of_any_length_are_read_whole)
{
    struct blob b = {0};
    blob_put_recipe(&b, "header:3,0,40");
    for (unsigned i = 0; i < 40; i++) {
        char key[16];
        snprintf(key, sizeof key, "key%u", i);
        blob_put_str(&b, key, strlen(key));
        blob_put_number(&b, GGUF_STRING, 4);
        size_t n = i * 4999;
        blob_put_number(&b, n, 8);
        for (size_t k = 0; k < n; k++)
            blob_put_number(&b, (k + i) % 251, 1);
    }
    struct gguf *g;
    struct error err;
    cr_assert_eq(gguf_open_bytes(&g, b.data, b.size, 0, &err), 0, "%s", err.text);
    for (unsigned i = 0; i < 40; i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        cr_assert_eq(kv->strings->len, i * 4999u);
        for (size_t k = 0; k < kv->strings->len; k++)
            cr_assert_eq((uint8_t)kv->strings->data[k], (k + i) % 251);
    }
    gguf_close(g);
    blob_free(&b);
}

// ---- Splits ----

static char split_dir[64];

static void make_split_dir(void)
{
    strcpy(split_dir, "/tmp/quern-gguf-XXXXXX");
    cr_assert_not_null(mkdtemp(split_dir));
}

static void remove_split_dir(void)
{
    DIR *dir = opendir(split_dir);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.')
            unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    rmdir(split_dir);
}

static void put_file(const char *name, const char *recipe)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", split_dir, name);
    struct blob b = {0};
    blob_put_recipe(&b, recipe);
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(b.data, 1, b.size, f), b.size);
    fclose(f);
    blob_free(&b);
}

static struct gguf *open_file(const char *name, unsigned flags)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", split_dir, name);
    struct gguf *g;
    struct error err;
    cr_assert_eq(gguf_open(&g, path, flags, &err), 0, "%s", err.text);
    return g;
}

static void put_three_parts(void)
{
    put_file("m-00001-of-00003.gguf", "header:3,1,4 kv:general.quirk,u8,7 kv:split.no,u16,0 kv:split.count,u16,3 "
                                      "kv:split.tensors.count,i32,4 tensor:a,0,0,1 align:32 f32:1");
    put_file("m-00002-of-00003.gguf", "header:3,2,4 kv:split.no,u16,1 kv:split.count,u16,3 kv:general.alignment,u32,64 "
                                      "kv:split.tensors.count,i32,4 tensor:c,0,64,1 tensor:b,0,0,1 align:64 f32:2 "
                                      "align:64 f32:3");
    put_file("m-00003-of-00003.gguf", "header:2,1,3 kv:split.no,u16,2 kv:split.count,u16,3 "
                                      "kv:split.tensors.count,i32,4 tensor:d,0,0,1 align:32 f32:4");
}

Test(gguf, a_split_model_opens_as_one, .init = make_split_dir, .fini = remove_split_dir)
{
    static const unsigned flags[] = {0, GGUF_NO_MMAP, GGUF_METADATA_ONLY};
    put_three_parts();
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        struct gguf *g = open_file("m-00001-of-00003.gguf", flags[i]);
        cr_assert_eq(gguf_n_shards(g), 3);
        cr_assert_not_null(strstr(gguf_path(g, 2), "/m-00003-of-00003.gguf"));
        cr_assert_eq(gguf_n_tensors(g), 4u);
        cr_assert_eq(gguf_n_kv(g), 4u, "the keys are those of the first part");
        cr_assert_eq(gguf_alignment(g), 32u);
        static const struct {
            const char *name;
            int shard;
            float value;
        } want[] = {{"a", 0, 1}, {"c", 1, 3}, {"b", 1, 2}, {"d", 2, 4}};
        for (size_t t = 0; t < 4; t++) {
            const struct gguf_tensor *tensor = gguf_tensor_at(g, t);
            cr_assert(str_equal_z(tensor->name, want[t].name));
            cr_assert_eq(gguf_find_tensor(g, want[t].name), tensor);
            cr_assert_eq(tensor->shard, want[t].shard);
            if (!(flags[i] & GGUF_METADATA_ONLY))
                cr_assert_eq(*(const float *)tensor->data, want[t].value);
        }
        gguf_close(g);
    }
}

// The number of all tensors may be left out of the first part, or out of all.
Test(gguf, a_split_model_need_not_state_its_number_of_tensors, .init = make_split_dir, .fini = remove_split_dir)
{
    static const char *const second[] = {
        "header:3,1,2 kv:split.no,u16,1 kv:split.count,u16,2 tensor:b,0,0,1 align:32 f32:2",
        "header:3,1,3 kv:split.no,u16,1 kv:split.count,u16,2 "
        "kv:split.tensors.count,i32,9 tensor:b,0,0,1 align:32 f32:2"};
    put_file("m-00001-of-00002.gguf",
             "header:3,1,2 kv:split.no,u16,0 kv:split.count,u16,2 tensor:a,0,0,1 align:32 f32:1");
    for (size_t i = 0; i < COUNT_OF(second); i++) {
        put_file("m-00002-of-00002.gguf", second[i]);
        struct gguf *g = open_file("m-00001-of-00002.gguf", 0);
        cr_assert_eq(gguf_n_tensors(g), 2u);
        cr_assert_eq(*(const float *)gguf_find_tensor(g, "b")->data, 2.0f);
        gguf_close(g);
    }
}

Test(gguf, a_split_model_opens_from_its_own_directory, .init = make_split_dir, .fini = remove_split_dir)
{
    put_three_parts();
    cr_assert_eq(chdir(split_dir), 0);
    struct gguf *g;
    struct error err;
    cr_assert_eq(gguf_open(&g, "m-00001-of-00003.gguf", 0, &err), 0, "%s", err.text);
    cr_assert_str_eq(gguf_path(g, 1), "m-00002-of-00003.gguf");
    gguf_close(g);
    cr_assert_eq(chdir("/"), 0);
}

Test(gguf, no_descriptor_stays_open, .init = make_split_dir, .fini = remove_split_dir)
{
    put_three_parts();
    int before = dup(0);
    close(before);
    struct gguf *g = open_file("m-00001-of-00003.gguf", 0);
    int after = dup(0);
    close(after);
    gguf_close(g);
    cr_assert_eq(before, after);
}

Test(gguf, a_merged_model_may_say_that_it_has_0_parts)
{
    struct gguf *g = open_recipe("header:3,0,3 kv:split.no,u16,0 kv:split.count,u16,0 kv:split.tensors.count,i32,9", 0);
    cr_assert_eq(gguf_n_shards(g), 1);
    gguf_close(g);
}

// ---- Mapped files by address ----

Test(gguf, an_address_of_mapped_data_leads_to_its_file, .init = make_split_dir, .fini = remove_split_dir)
{
    put_three_parts();
    struct gguf *g = open_file("m-00001-of-00003.gguf", 0);
    const char *at[4];
    for (size_t i = 0; i < 4; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        at[i] = t->data;
        cr_assert_eq(mapped_find(at[i]), gguf_path(g, t->shard), "tensor %zu", i);
    }
    const char *page = (const char *)((uintptr_t)at[0] / 4096 * 4096);
    cr_assert_eq(mapped_find(page + 4095), gguf_path(g, 0), "the whole page is the file's");
    int here;
    cr_assert_null(mapped_find(&here));
    cr_assert_null(mapped_find(NULL));
    gguf_close(g);
    for (size_t i = 0; i < 4; i++)
        cr_assert_null(mapped_find(at[i]), "tensor %zu", i);
    g = open_file("m-00001-of-00003.gguf", GGUF_NO_MMAP);
    cr_assert_null(mapped_find(gguf_tensor_at(g, 0)->data), "memory is no file");
    gguf_close(g);
}

// 256 mappings are known. A later one is not, is no error, and is known if it comes when there is room again.
Test(gguf, of_too_many_mappings_the_later_ones_are_not_known)
{
    enum { KNOWN = 256, PAGE = 65536 };
    static char addresses[(KNOWN + 1) * PAGE];
    static const char path[] = "a", later[] = "b";
    char *last = addresses + KNOWN * PAGE;
    for (int i = 0; i < KNOWN; i++)
        mapped_add(addresses + i * PAGE, 1, path);
    mapped_add(last, 1, later);
    cr_assert_eq(mapped_find(addresses), path);
    cr_assert_eq(mapped_find(last - PAGE), path);
    cr_assert_null(mapped_find(last));
    mapped_remove(last); // is not there
    mapped_remove(NULL);
    cr_assert_eq(mapped_find(last - PAGE), path);
    mapped_remove(addresses + 7 * PAGE);
    cr_assert_null(mapped_find(addresses + 7 * PAGE));
    mapped_add(last, 1, later);
    cr_assert_eq(mapped_find(last), later);
    cr_assert_eq(mapped_find(addresses + 8 * PAGE), path);
}

// ---- Real files ----

static void open_all(const char *dir)
{
    const char *shared = getenv("QUERN_SHARED");
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", shared ? shared : "../shared", dir);
    DIR *d = opendir(path);
    if (!d)
        cr_skip("no golden files at %s", path);
    size_t base = strlen(path);
    int opened = 0;
    for (struct dirent *e; (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n < 5 || strcmp(e->d_name + n - 5, ".gguf") != 0)
            continue;
        snprintf(path + base, sizeof path - base, "/%s", e->d_name);
        struct gguf *g;
        struct error err;
        cr_expect_eq(gguf_open(&g, path, 0, &err), 0, "%s", err.text);
        if (g)
            gguf_read_all(g);
        gguf_close(g);
        opened++;
    }
    closedir(d);
    cr_assert_gt(opened, 0);
}

Test(gguf, golden_models_open)
{
    open_all("golden/arch");
    open_all("golden/quant");
}

Test(gguf, golden_vocabularies_open)
{
    open_all("vocab");
}

// ---- Speed and memory ----

#if defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 };
#elif defined(__has_feature)
enum { SANITIZED = __has_feature(address_sanitizer) };
#else
enum { SANITIZED = 0 };
#endif

// n strings of a word, or of two.
static void put_string_array(struct blob *b, const char *key, unsigned n, bool pairs)
{
    blob_put_str(b, key, strlen(key));
    blob_put_recipe(b, "type:array type:string");
    blob_put_number(b, n, 8);
    for (unsigned i = 0; i < n; i++) {
        char text[32];
        int len = snprintf(text, sizeof text, "%x", i * 2654435761u >> 12);
        if (pairs)
            len += snprintf(text + len, sizeof text - (size_t)len, " %x", i);
        blob_put_str(b, text, (size_t)len);
    }
}

// 128k tokens, 280k merges, 300 tensors: 5 GB, of which the file system stores the head alone.
static int make_large_file(const char *path)
{
    enum { TOKENS = 128256, MERGES = 280147, TENSORS = 300 };
    const uint64_t tensor_bytes = 5000000000ull / TENSORS / 4096 * 4096;
    struct blob b = {0};
    blob_put_recipe(&b, "header:3,300,4");
    put_string_array(&b, "tokenizer.ggml.tokens", TOKENS, false);
    put_string_array(&b, "tokenizer.ggml.merges", MERGES, true);
    blob_put_recipe(&b, "key:tokenizer.ggml.token_type type:array type:i32 u64:128256 zero:513024");
    blob_put_recipe(&b, "key:tokenizer.ggml.scores type:array type:f32 u64:128256 zero:513024");
    for (unsigned i = 0; i < TENSORS; i++) {
        char recipe[128];
        snprintf(recipe, sizeof recipe, "tensor:blk.%u.ffn_down.weight,0,%llu,1024,%llu", i,
                 (unsigned long long)(i * tensor_bytes), (unsigned long long)(tensor_bytes / 4096));
        blob_put_recipe(&b, recipe);
    }
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(b.data, 1, b.size, f) != b.size || fflush(f) != 0)
        return -1;
    int status = ftruncate(fileno(f), (off_t)(align_up(b.size, 32) + TENSORS * tensor_bytes));
    fclose(f);
    blob_free(&b);
    return status;
}

Test(gguf, a_model_of_5_gb_opens_at_once, .init = make_split_dir, .fini = remove_split_dir)
{
    char path[128];
    snprintf(path, sizeof path, "%s/large.gguf", split_dir);
    if (make_large_file(path) != 0)
        cr_skip("no room for a sparse file of 5 GB: %s", strerror(errno));
    double best = 1e9;
    size_t heap = 0;
    for (int i = 0; i < 10; i++) {
        struct mallinfo2 before = mallinfo2();
        struct timespec t0, t1;
        clock_gettime(CLOCK_MONOTONIC, &t0);
        struct gguf *g = open_file("large.gguf", 0);
        clock_gettime(CLOCK_MONOTONIC, &t1);
        struct mallinfo2 after = mallinfo2();
        heap = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
        best = MIN(best, (double)(t1.tv_sec - t0.tv_sec) + 1e-9 * (double)(t1.tv_nsec - t0.tv_nsec));
        gguf_close(g);
    }
    cr_log_info("5 GB, 128k tokens: %.1f ms, %.1f MiB of heap", best * 1e3, (double)heap / (1 << 20));
    if (SANITIZED || getenv("QUERN_WATCHED")) // times mean nothing where every access is watched
        return;
    cr_assert_lt(best, 0.050, "%.1f ms", best * 1e3);
    cr_assert_lt(heap, (size_t)64 << 20, "%zu bytes", heap);
}
