// Tests the folder of compiled kernels: what is kept is found again, and what is damaged, strange or of another kernel is
// made anew.
#include "tests/driver_rig.h"

#include <sys/stat.h>

static struct driver_cache load_once(const char *folder)
{
    struct driver *d = open_card(&(struct driver_options){.cache = folder});
    load_scale(d);
    struct driver_cache facts = *driver_cache_facts(d);
    driver_close(d);
    return facts;
}

static void flip_last_byte(const char *path)
{
    FILE *f = fopen(path, "r+b");
    fseek(f, -1, SEEK_END);
    int c = fgetc(f);
    fseek(f, -1, SEEK_END);
    fputc(c ^ 1, f);
    fclose(f);
}

static void cut(const char *path)
{
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(truncate(path, st.st_size / 2), 0);
}

static void empty(const char *path)
{
    cr_assert_eq(truncate(path, 0), 0);
}

Test(driver_cache, a_compiled_kernel_is_kept_and_found_again)
{
    char folder[64];
    make_folder(folder);
    struct driver_cache c = load_once(folder);
    cr_expect(c.compiled == 1 && !c.hits && !c.unwritten && !c.corrupt);
    cr_expect_eq(each_file(folder, NULL, false), 1);
    uint64_t links = quern_cuda_calls("cuLinkCreate_v2");
    c = load_once(folder);
    cr_expect(c.hits == 1 && !c.compiled);
    cr_expect_eq(quern_cuda_calls("cuLinkCreate_v2"), links);
    // Another driver or card compiles its own.
    quern_cuda_set(&(struct quern_cuda_setup){.n_cards = 1, .major = 9, .version = 12080, .memory = 10000});
    c = load_once(folder);
    cr_expect(c.compiled == 1 && !c.hits);
    quern_cuda_set(&(struct quern_cuda_setup){.n_cards = 1, .major = 8, .version = 12080, .memory = 10000});
    c = load_once(folder);
    cr_expect(c.compiled == 1 && !c.hits);
    cr_expect_eq(each_file(folder, NULL, false), 3);
    remove_folder(folder);
}

Test(driver_cache, a_damaged_kernel_on_disk_is_told_and_made_again)
{
    void (*const damages[])(const char *) = {flip_last_byte, cut, empty};
    char folder[64];
    make_folder(folder);
    load_once(folder);
    for (size_t i = 0; i < COUNT_OF(damages); i++) {
        each_file(folder, damages[i], false);
        struct driver_cache c = load_once(folder);
        cr_expect(c.corrupt == 1 && c.compiled == 1 && !c.hits, "damage %zu", i);
        c = load_once(folder);
        cr_expect(!c.corrupt && c.hits == 1, "after damage %zu", i);
    }
    // One that is whole but that this driver will not take.
    quern_cuda_fail("cuModuleLoadDataEx", 1, 200);
    struct driver_cache c = load_once(folder);
    cr_expect(c.corrupt == 1 && c.compiled == 1);
    cr_expect_eq(each_file(folder, NULL, false), 1);
    remove_folder(folder);
}

static char first_file[512];

static void note_file(const char *path)
{
    snprintf(first_file, sizeof first_file, "%s", path);
}

static void make_fifo(const char *path)
{
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
}

static void make_first(const char *path)
{
    cr_assert_eq(rename(first_file, path), 0);
}

// A whole entry under the name of another kernel, and a FIFO in the place of one.
Test(driver_cache, an_entry_of_another_kernel_is_not_used)
{
    char folder[64], other[64];
    make_folder(folder);
    make_folder(other);
    load_once(folder);
    each_file(folder, note_file, false);
    quern_cuda_set(&(struct quern_cuda_setup){.n_cards = 1, .major = 9, .version = 12080, .memory = 10000});
    load_once(other);
    each_file(other, make_first, false);
    struct driver_cache c = load_once(other);
    cr_expect(c.corrupt == 1 && c.compiled == 1 && !c.hits);
    each_file(other, make_fifo, false);
    c = load_once(other);
    cr_expect(c.corrupt == 1 && c.compiled == 1 && !c.hits);
    c = load_once(other);
    cr_expect(c.hits == 1, "the FIFO is replaced");
    remove_folder(folder);
    remove_folder(other);
}

Test(driver_cache, a_folder_that_cannot_be_written_costs_only_time)
{
    struct driver_cache c = load_once("/dev/null/kernels");
    cr_expect(c.compiled == 1 && c.unwritten == 1);
}
