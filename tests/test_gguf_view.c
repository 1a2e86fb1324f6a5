// Tests a model file in memory: it is opened and refused like the file, and it is neither copied nor read past its end.
#include "tests/gguf_recipe.h"

#include <criterion/criterion.h>

#define WHOLE                                                                                                          \
    "header:3,2,6 kv:general.alignment,u32,16 kv:k.u8,u8,7 kv:k.f64,f64,2.5 key:k.string type:string str:text "        \
    "key:k.strings type:array type:string u64:3 str:a str: str:\\xFF\\x00b "                                           \
    "key:k.bools type:array type:bool u64:4 u8:0 u8:1 u8:1 u8:0 "                                                      \
    "tensor:first,0,0,4,2 tensor:second,2,32,32,2,1,1 align:16 zero:32 zero:36"

// Bytes between two guard pages. They end at the second one, or a few bytes before it so that they begin at a multiple
// of `align`.
struct guarded {
    uint8_t *pages;
    size_t n_bytes;
    struct bytes image;
};

static struct guarded guard(const void *data, size_t size, size_t align)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = align_up(size + align, page);
    struct guarded g = {.n_bytes = inner + 2 * page};
    g.pages = mmap(NULL, g.n_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(g.pages, MAP_FAILED);
    cr_assert_eq(mprotect(g.pages + page, inner, PROT_READ | PROT_WRITE), 0);
    uint8_t *at = g.pages + page + inner - align_up(size, align);
    if (size > 0)
        memcpy(at, data, size);
    cr_assert_eq(mprotect(g.pages + page, inner, PROT_READ), 0);
    g.image = (struct bytes){at, size};
    return g;
}

static void unguard(struct guarded *g)
{
    munmap(g->pages, g->n_bytes);
}

static struct blob make(const char *recipe)
{
    struct blob b = {0};
    blob_put_recipe(&b, recipe);
    return b;
}

Test(gguf_view, gives_what_the_file_gives_without_a_copy)
{
    struct blob b = make(WHOLE);
    struct guarded mem = guard(b.data, b.size, 64);
    struct gguf *file, *view;
    struct error err;
    cr_assert_eq(gguf_open_bytes(&file, b.data, b.size, 0, &err), 0, "%s", err.text);
    cr_assert_eq(gguf_open_view(&view, "in memory", mem.image, 0, &err), 0, "%s", err.text);
    cr_expect_eq(gguf_read_all(view), gguf_read_all(file));
    cr_expect_eq(gguf_file_bytes(view), b.size);
    cr_expect_str_eq(gguf_path(view, 0), "in memory");
    cr_assert_eq(gguf_n_tensors(view), 2);
    for (size_t i = 0; i < 2; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(view, i);
        cr_expect_eq((const uint8_t *)t->data, mem.image.data + t->offset, "tensor %zu", i);
    }
    gguf_close(view);
    gguf_close(file);
    unguard(&mem);
    blob_free(&b);
}

Test(gguf_view, of_the_metadata_alone_has_no_data)
{
    struct blob b = make(WHOLE);
    struct guarded mem = guard(b.data, b.size, 64);
    struct gguf *view;
    struct error err;
    cr_assert_eq(gguf_open_view(&view, "in memory", mem.image, GGUF_METADATA_ONLY, &err), 0, "%s", err.text);
    cr_expect_null(gguf_tensor_at(view, 1)->data);
    gguf_close(view);
    unguard(&mem);
    blob_free(&b);
}

// What stands behind the name in a message.
static const char *behind_name(const char *text)
{
    const char *colon = strchr(text, ':');
    return colon ? colon : text;
}

static void expect_alike(const struct blob *b, const char *what, uint64_t number)
{
    struct guarded mem = guard(b->data, b->size, 1);
    struct gguf *file, *view;
    struct error by_file = {0}, by_view = {0};
    int status = gguf_open_bytes(&file, b->data, b->size, 0, &by_file);
    int seen = gguf_open_view(&view, "view", mem.image, 0, &by_view);
    if (status == 0 && seen != 0) { // sound, but flush with the guard it may lie askew
        cr_assert_not_null(strstr(by_view.text, "wants to lie at a multiple of"), "%s %llu: %s", what,
                           (unsigned long long)number, by_view.text);
        gguf_close(file);
    } else {
        cr_assert_eq(seen, status, "%s %llu: %s%s", what, (unsigned long long)number, by_file.text, by_view.text);
        cr_assert_eq(by_view.code, by_file.code, "%s %llu", what, (unsigned long long)number);
        cr_assert_eq(by_view.offset, by_file.offset, "%s %llu", what, (unsigned long long)number);
        cr_assert_str_eq(behind_name(by_view.text), behind_name(by_file.text), "%s %llu", what,
                         (unsigned long long)number);
        if (status == 0) {
            cr_assert_eq(gguf_read_all(view), gguf_read_all(file), "%s %llu", what, (unsigned long long)number);
            gguf_close(view);
            gguf_close(file);
        }
    }
    unguard(&mem);
}

Test(gguf_view, is_refused_as_the_file_is_wherever_it_is_cut)
{
    struct blob b = make(WHOLE);
    for (; b.size > 0; b.size--)
        expect_alike(&b, "bytes", b.size);
    expect_alike(&b, "bytes", 0);
    blob_free(&b);
}

Test(gguf_view, is_refused_as_the_file_is_whatever_it_holds)
{
    const uint64_t seed = 20251121;
    cr_log_info("seed %llu", (unsigned long long)seed);
    uint64_t x = seed;
    struct blob sound = make(WHOLE);
    for (uint64_t i = 0; i < 4000; i++) {
        struct blob b = {0};
        blob_put(&b, sound.data, sound.size);
        for (int k = 0; k < 1 + (int)(i % 3); k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            size_t at = (size_t)(x >> 33) % b.size;
            b.data[at] = x >> 32 & 1 ? (uint8_t)(x >> 24) : (uint8_t)(b.data[at] ^ 1u << (x >> 24 & 7));
        }
        expect_alike(&b, "mutant", i);
        blob_free(&b);
    }
    blob_free(&sound);
}

Test(gguf_view, that_lies_askew_is_refused)
{
    struct blob b = make(WHOLE);
    blob_put_zeros(&b, 64 - b.size % 64 + 1); // its start stands one byte before a multiple of 64
    struct guarded mem = guard(b.data, b.size, 1);
    struct gguf *view;
    struct error err;
    cr_assert_eq(gguf_open_view(&view, "in memory", mem.image, 0, &err), -1);
    cr_expect_eq(err.code, E_MODEL);
    cr_expect_str_eq(err.text, "in memory: wants to lie at a multiple of 16 bytes in memory");
    cr_expect_null(view);
    unguard(&mem);
    blob_free(&b);
}

Test(gguf_view, of_a_part_is_refused_whatever_its_name)
{
    struct blob b = make("header:3,0,3 kv:split.no,u16,0 kv:split.count,u16,2 kv:split.tensors.count,i32,0 align:32");
    struct guarded mem = guard(b.data, b.size, 64);
    struct gguf *view;
    struct error err;
    cr_assert_eq(gguf_open_view(&view, "m-00001-of-00002.gguf", mem.image, 0, &err), -1);
    cr_expect_eq(err.code, E_MODEL);
    cr_expect_not_null(strstr(err.text, "this is one part of 2, and lies in memory"), "%s", err.text);
    unguard(&mem);
    blob_free(&b);
}
