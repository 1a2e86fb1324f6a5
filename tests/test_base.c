// Tests gguf/base.h: errors and their texts, strings, checked sizes, UTF-8 and arenas.
#include "gguf/base.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <wchar.h>

Test(base, fail_fills_code_offset_and_text)
{
    struct error err;
    cr_assert_eq(fail(&err, E_MODEL, "layer %d of %s", 3, "x.gguf"), -1);
    cr_assert_eq(err.code, E_MODEL);
    cr_assert_eq(err.offset, ERR_NO_OFFSET);
    cr_assert_str_eq(err.text, "layer 3 of x.gguf");
    cr_assert_eq(fail_at(&err, E_IO, 77, "short"), -1);
    cr_assert_eq(err.code, E_IO);
    cr_assert_eq(err.offset, 77);
}

Test(base, fail_accepts_no_error_struct)
{
    cr_assert_eq(fail(NULL, E_IO, "x"), -1);
    cr_assert_eq(fail_at(NULL, E_IO, 1, "x"), -1);
    cr_assert_eq(fail_prefix(NULL, "x"), -1);
}

Test(base, fail_escapes_what_a_terminal_would_obey)
{
    struct error err;
    fail(&err, E_MODEL, "a%sz", "\n\r\t\x1b[2J\x7f");
    cr_assert_str_eq(err.text, "a\\x0A\\x0D\\x09\\x1B[2J\\x7Fz");
    fail(&err, E_MODEL, "%s",
         "\xC2\x9B"
         "31m"); // CSI as one C1 character
    cr_assert_str_eq(err.text, "\\xC2\\x9B31m");
    fail(&err, E_MODEL, "%s",
         "\xE2\x80\xAE"
         "fdp.exe"); // right-to-left override
    cr_assert_str_eq(err.text, "\\xE2\\x80\\xAE"
                               "fdp.exe");
    fail(&err, E_MODEL, "%s", "\xE2\x80\xA8|"); // line separator
    cr_assert_str_eq(err.text, "\\xE2\\x80\\xA8|");
}

Test(base, fail_keeps_valid_utf8_and_escapes_the_rest)
{
    struct error err;
    fail(&err, E_MODEL, "%s",
         "Stra\xC3\x9F"
         "e \xE6\x97\xA5 \xF0\x9F\x99\x82");
    cr_assert_str_eq(err.text, "Stra\xC3\x9F"
                               "e \xE6\x97\xA5 \xF0\x9F\x99\x82");
    fail(&err, E_MODEL, "%s", "\xC0\x80 \xED\xA0\x80 \xFF \xE6\x97");
    cr_assert_str_eq(err.text, "\\xC0\\x80 \\xED\\xA0\\x80 \\xFF \\xE6\\x97");
}

// Texts near the limit must end with a NUL, must not end within an escape or a character, and are marked if they were
// truncated.
static void check_cut(const char *unit, size_t unit_out, size_t head)
{
    struct error err;
    char raw[4000] = "";
    memset(raw, 'x', head);
    for (size_t n = head; n + strlen(unit) < sizeof raw; n += strlen(unit))
        memcpy(raw + n, unit, strlen(unit) + 1);
    fail(&err, E_MODEL, "%s", raw);
    size_t len = strlen(err.text);
    cr_assert_lt(len, (size_t)ERR_TEXT);
    cr_assert_geq(len, (size_t)ERR_TEXT - 1 - 3 - unit_out);
    cr_assert_str_eq(err.text + len - 3, "...");
    cr_assert_eq((len - 3 - head) % unit_out, 0u, "cut inside a unit at head %zu", head);
    cr_assert(utf8_valid(str_from(err.text)));
}

Test(base, fail_cuts_long_texts_between_characters)
{
    for (size_t head = 0; head < 20; head++) {
        check_cut("y", 1, head);
        check_cut("\x01", 4, head);
        check_cut("\xE6\x97\xA5", 3, head);
        check_cut("\xC2\x80", 8, head);
    }
}

Test(base, fail_shows_a_text_that_just_fits_whole)
{
    struct error err;
    char raw[ERR_TEXT + 1];
    memset(raw, 'x', sizeof raw);
    raw[ERR_TEXT - 1] = '\0';
    fail(&err, E_MODEL, "%s", raw);
    cr_assert_str_eq(err.text, raw);
    raw[ERR_TEXT - 1] = 'x';
    raw[ERR_TEXT] = '\0';
    fail(&err, E_MODEL, "%s", raw);
    cr_assert_eq(strlen(err.text), (size_t)ERR_TEXT - 1);
    cr_assert_str_eq(err.text + ERR_TEXT - 4, "...");
}

Test(base, fail_may_quote_the_error_it_replaces)
{
    struct error err;
    fail_at(&err, E_MODEL, 9, "inner");
    fail_at(&err, E_IO, 10, "outer (%s)", err.text);
    cr_assert_str_eq(err.text, "outer (inner)");
}

Test(base, fail_prefix_keeps_code_and_offset)
{
    struct error err;
    fail_at(&err, E_MODEL, 24, "bad magic");
    cr_assert_eq(fail_prefix(&err, "a\x1b.gguf"), -1);
    cr_assert_str_eq(err.text, "a\\x1B.gguf: bad magic");
    cr_assert_eq(err.code, E_MODEL);
    cr_assert_eq(err.offset, 24);
}

// printf knows no bytes for a wide character that does not exist.
Test(base, fail_has_no_text_when_the_arguments_cannot_be_printed)
{
    struct error err;
    cr_assert_eq(fail(&err, E_MODEL, "before %lc", (wint_t)0x110000), -1);
    cr_assert_eq(err.code, E_MODEL);
    cr_assert_str_eq(err.text, "");
}

Test(base, fail_first_keeps_the_first_error)
{
    struct error err = {0};
    cr_assert_eq(fail_first(&err, E_IO, "the %s", "first"), -1);
    cr_assert_eq(fail_first(&err, E_MODEL, "the %s", "second"), -1);
    cr_assert_eq(err.code, E_IO);
    cr_assert_eq(err.offset, ERR_NO_OFFSET);
    cr_assert_str_eq(err.text, "the first");
}

Test(base, str_arg_never_yields_a_negative_precision)
{
    struct str s = {"", (size_t)INT_MAX + 1};
    char out[8];
    cr_assert_eq(snprintf(out, sizeof out, "[%.*s]", STR_ARG(s)), 2);
}

Test(base, str_equality_is_by_bytes)
{
    cr_assert(str_equal(STR_LIT("ab"), str_from("ab")));
    cr_assert(str_equal((struct str){NULL, 0}, STR_LIT("")));
    cr_assert_not(str_equal(STR_LIT("ab"), STR_LIT("abc")));
    cr_assert_not(str_equal(STR_LIT("ab"), STR_LIT("ac")));
    cr_assert_not(str_equal_z(STR_LIT("a\0"), "a"));
}

Test(base, str_stripped_takes_white_space_from_the_ends_alone)
{
    static const struct {
        const char *text, *want;
    } cases[] = {{"", ""}, {" \t\r\n", ""}, {"a", "a"}, {"\t a b\r\n", "a b"}, {"\n\n\va\v ", "\va\v"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct str s = str_stripped(str_from(cases[i].text));
        cr_expect(str_equal_z(s, cases[i].want), "case %zu: '%.*s'", i, STR_ARG(s));
    }
}

// --- Files ---

Test(base, only_an_ordinary_file_may_be_replaced)
{
    struct error err = {0};
    cr_expect_eq(check_replaceable("/proc/self/none", &err), 0);
    cr_expect_eq(check_replaceable("/proc/self/exe", &err), 0);
    cr_expect_eq(err.code, E_OK);
    cr_expect_eq(check_replaceable("/dev/null", &err), -1);
    cr_expect_eq(err.code, E_USAGE);
    cr_expect_str_eq(err.text, "/dev/null: is there already and no ordinary file, so it is not replaced");
}

Test(base, checked_sizes_report_overflow)
{
    size_t out;
    cr_assert(size_add(SIZE_MAX, 1, &out));
    cr_assert(size_mul(SIZE_MAX / 2 + 1, 2, &out));
    cr_assert_not(size_add(SIZE_MAX - 1, 1, &out));
    cr_assert_eq(out, SIZE_MAX);
    cr_assert_not(size_mul(SIZE_MAX, 1, &out));
    cr_assert_eq(align_up(0, 64), 0u);
    cr_assert_eq(align_up(65, 64), 128u);
}

Test(base, utf8_round_trips_every_scalar_value)
{
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp >= 0xD800 && cp < 0xE000)
            continue;
        char buf[4];
        uint32_t back = 0;
        int len = utf8_encode(cp, buf);
        cr_assert_eq(utf8_decode(buf, (size_t)len, &back), len, "U+%04X", cp);
        cr_assert_eq(back, cp, "U+%04X", cp);
        cr_assert_eq(utf8_decode(buf, (size_t)len - 1, &back), 0, "U+%04X cut short", cp);
    }
}

// Counts the valid ones of all strings of one to three bytes, and of four bytes by their first two.
Test(base, utf8_accepts_exactly_the_scalar_values)
{
    size_t valid[5] = {0};
    for (uint32_t v = 0; v < 1u << 24; v++) {
        char b[3] = {(char)(v >> 16), (char)(v >> 8), (char)v};
        if ((v & 0xFFFF) == 0)
            valid[1] += utf8_decode(b, 1, NULL) == 1;
        if ((v & 0xFF) == 0)
            valid[2] += utf8_decode(b, 2, NULL) == 2;
        valid[3] += utf8_decode(b, 3, NULL) == 3;
    }
    for (uint32_t v = 0; v < 1u << 16; v++) {
        char b[4] = {(char)(v >> 8), (char)v, (char)0x80, (char)0xBF};
        valid[4] += utf8_decode(b, 4, NULL) == 4;
    }
    cr_assert_eq(valid[1], 0x80u);
    cr_assert_eq(valid[2], 0x780u);
    cr_assert_eq(valid[3], 0x10000u - 0x800 - 0x800);
    cr_assert_eq(valid[4], 0x100000u / 0x1000);
}

Test(base, utf8_rejects_an_empty_and_a_broken_tail)
{
    cr_assert_eq(utf8_decode("a", 0, NULL), 0);
    cr_assert(utf8_valid(STR_LIT("")));
    cr_assert(utf8_valid(STR_LIT("a\0b")));
    cr_assert_not(utf8_valid(STR_LIT("a\xE2\x82")));
    cr_assert_not(utf8_valid(STR_LIT("\x80")));
    cr_assert_not(utf8_valid(STR_LIT("\xF4\x90\x80\x80")));
}

Test(base, utf8_printable_refuses_controls_and_bidi)
{
    static const uint32_t bad[] = {0,      0x1B,   '\n',   0x1F,   0x7F,   0x80,   0x9F,   0x61C,
                                   0x200E, 0x200F, 0x2028, 0x2029, 0x202A, 0x202E, 0x2066, 0x2069};
    static const uint32_t good[] = {0x20, 0x7E, 0xA0, 0x61D, 0x200D, 0x2010, 0x202F, 0x206A, 0x10FFFF};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        cr_assert_not(utf8_printable(bad[i]), "U+%04X", bad[i]);
    for (size_t i = 0; i < COUNT_OF(good); i++)
        cr_assert(utf8_printable(good[i]), "U+%04X", good[i]);
}

Test(base, arena_memory_is_zeroed_aligned_and_apart)
{
    struct arena arena = {0};
    enum { N = 3000 };
    static uint8_t *p[N];
    static size_t size[N];
    unsigned seed = 12345;
    for (size_t i = 0; i < N; i++) {
        seed = seed * 1103515245u + 12345u;
        size[i] = (seed >> 8) % (i % 100 == 0 ? 40000 : 90);
        size_t align = (size_t)1 << (seed >> 28) % 7;
        p[i] = arena_alloc(&arena, size[i], align);
        cr_assert_not_null(p[i]);
        cr_assert_eq((uintptr_t)p[i] % align, 0u);
        for (size_t k = 0; k < size[i]; k++)
            cr_assert_eq(p[i][k], 0);
        memset(p[i], (int)(i % 251) + 1, size[i]);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < size[i]; k++)
            cr_assert_eq(p[i][k], i % 251 + 1);
    arena_free(&arena);
    cr_assert_null(arena.last);
    cr_assert_eq(arena.total, 0u);
}

Test(base, arena_waste_is_bounded)
{
    struct arena arena = {0};
    size_t asked = 0;
    for (int i = 0; i < 100000; i++, asked += 48)
        cr_assert_not_null(arena_alloc(&arena, 48, 8));
    cr_assert_lt(arena.total, 2 * asked + (1 << 20));
    arena_free(&arena);
}

Test(base, arena_large_block_leaves_the_current_chunk_in_use)
{
    struct arena arena = {0};
    char *a = arena_alloc(&arena, 16, 1);
    cr_assert_not_null(arena_alloc(&arena, 1 << 22, 64));
    char *b = arena_alloc(&arena, 16, 1);
    cr_assert_eq(b, a + 16);
    arena_free(&arena);
}

Test(base, arena_refuses_absurd_sizes)
{
    struct arena arena = {0};
    cr_assert_null(arena_alloc(&arena, SIZE_MAX, 1));
    cr_assert_null(arena_alloc(&arena, PTRDIFF_MAX, 64));
    cr_assert_null(arena_array(&arena, SIZE_MAX / 2, 3, 8));
    cr_assert_null(ARENA_ARRAY(&arena, uint64_t, SIZE_MAX / 8 + 1));
    cr_assert_not_null(arena_alloc(&arena, 0, 1));
    arena_free(&arena);
    arena_free(&arena);
}

Test(base, arena_strdup_ends_in_nul)
{
    struct arena arena = {0};
    char *s = arena_strdup(&arena, STR_LIT("abc"));
    cr_assert_str_eq(s, "abc");
    cr_assert_str_eq(arena_strdup(&arena, (struct str){NULL, 0}), "");
    cr_assert_null(arena_strdup(&arena, (struct str){"", SIZE_MAX}));
    arena_free(&arena);
}
