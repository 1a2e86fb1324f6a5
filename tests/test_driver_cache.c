// Tests the folder of compiled kernels: what is kept is found again, and what is damaged, strange or of another kernel is
// made anew.
#include "tests/driver_rig.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
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

static void put_byte(const char *path, long at, int c)
{
    FILE *f = fopen(path, "r+b");
    fseek(f, at, SEEK_SET);
    fputc(c, f);
    fclose(f);
}

static void change_magic(const char *path)
{
    put_byte(path, 0, 'Q');
}

// The size is in bytes 8 to 15.
static void say_empty(const char *path)
{
    for (long at = 8; at < 16; at++)
        put_byte(path, at, 0);
}

static void say_huge(const char *path)
{
    put_byte(path, 15, 0x7f);
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
    void (*const damages[])(const char *) = {flip_last_byte, cut, empty, change_magic, say_empty, say_huge};
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

// --- a text beside the kernels ---

Test(driver_cache, a_text_is_kept_and_read_again)
{
    char folder[64], path[100], below[120];
    make_folder(folder);
    snprintf(below, sizeof below, "%s/a/b", folder);
    snprintf(path, sizeof path, "%s/a/b/text", folder);
    cr_assert(driver_keep(below, path, STR_LIT("first")));
    cr_assert(driver_keep(below, path, STR_LIT("second")));
    char *text = driver_kept(path);
    cr_assert_not_null(text);
    cr_expect_str_eq(text, "second");
    free(text);
    cr_expect_null(driver_kept(below), "a folder");
    cr_assert_eq(truncate(path, (1 << 20) + 1), 0);
    cr_expect_null(driver_kept(path), "more than a text may have");
    unlink(path);
    cr_expect_null(driver_kept(path));
    make_fifo(path);
    cr_expect_null(driver_kept(path), "a FIFO");
    remove_folder(folder);
}

Test(driver_cache, a_text_that_cannot_be_kept_leaves_the_old_one)
{
    char folder[64], path[100], long_path[6000];
    make_folder(folder);
    snprintf(path, sizeof path, "%s/text", folder);
    cr_assert(driver_keep(folder, path, STR_LIT("old")));
    memset(long_path, 'x', sizeof long_path);
    long_path[0] = '/';
    long_path[sizeof long_path - 1] = '\0';
    cr_expect(!driver_keep(folder, long_path, STR_LIT("new")) && errno == ENAMETOOLONG);
    cr_expect(!driver_keep(long_path, "/dev/null/x", STR_LIT("new")) && errno == ENOTDIR);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){2, RLIM_INFINITY});
    cr_expect(!driver_keep(folder, path, STR_LIT("newer")) && errno == EFBIG);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    char *text = driver_kept(path);
    cr_assert_not_null(text);
    cr_expect_str_eq(text, "old");
    free(text);
    cr_expect_eq(each_file(folder, NULL, false), 1, "no temporary file is left");
    remove_folder(folder);
}

Test(driver_cache, a_hash_is_of_the_text_the_seed_and_the_card)
{
    struct driver *d = open_card(NULL);
    const uint64_t h = driver_hash(d, STR_LIT("text"), 1);
    cr_expect_eq(h, driver_hash(d, STR_LIT("text"), 1));
    cr_expect_neq(h, driver_hash(d, STR_LIT("texts"), 1));
    cr_expect_neq(h, driver_hash(d, STR_LIT("text"), 2));
    driver_close(d);
    quern_cuda_set(&(struct quern_cuda_setup){.n_cards = 1, .major = 9, .version = 12080, .memory = 10000});
    d = open_card(NULL);
    cr_expect_neq(h, driver_hash(d, STR_LIT("text"), 1));
    driver_close(d);
}

// A folder whose name leaves no room for that of an entry.
Test(driver_cache, a_folder_with_a_long_name_costs_only_time)
{
    static char folder[5000] = "/tmp";
    while (strlen(folder) < 4090)
        strcat(folder, "/.");
    struct driver_cache c = load_once(folder);
    cr_expect(c.compiled == 1 && c.unwritten == 1 && !c.corrupt);
}
