// Tests failing system calls: each C library call of the GGUF reader and writer, and each allocation from an arena, fails
// once, the N-th one for every N. The error must have the right code, nothing may leak, and no file may be left behind.
#include "gguf/temporary.h"
#include "gguf/writer.h"
#include "tests/arena_faults.h"
#include "tests/gguf_recipe.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/random.h>
#include <sys/stat.h>

// ---- Further calls that fail ----

static struct fault io_fault = {.after = -1};
static struct fault map_fault = {.after = -1};   // mappings of files, for lack of memory
static struct fault close_fault = {.after = -1}; // the file is closed, and an error comes to light
static mode_t pretended;                         // the kind of file that fstat reports, if not 0
static bool no_random;                           // the system has no random numbers yet
static long taken;                               // so many new files exist already
static bool interrupting;                        // reads and writes are interrupted (EINTR) or short instead
static int cut; // the read, counted from 1, before which the model's file is truncated; 0: none

static char dir[64], path[128], part2[128];

WRAP(ssize_t, pread, (int fd, void *dst, size_t n, off_t at))
{
    if (fault_hits(&io_fault, EIO))
        return -1;
    if (cut > 0 && --cut == 0 && truncate(path, 30) != 0)
        return -1;
    static int turn;
    if (interrupting && ++turn % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return __real_pread(fd, dst, interrupting && n > 1 ? n / 2 : n, at);
}

static int short_pieces; // writes of something else than multiples of 2 MB

WRAP(ssize_t, write, (int fd, const void *src, size_t n))
{
    short_pieces += n % (2 << 20) != 0;
    if (fault_hits(&io_fault, EIO))
        return -1;
    static int turn;
    if (interrupting && ++turn % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return __real_write(fd, src, interrupting && n > 1 ? n / 2 : n);
}

WRAP(int, fstat, (int fd, struct stat *st))
{
    int status = fault_hits(&io_fault, EIO) ? -1 : __real_fstat(fd, st);
    if (pretended)
        st->st_mode = pretended;
    return status;
}

WRAP(int, open, (const char *name, int flags, mode_t mode))
{
    if ((flags & O_EXCL) && taken > 0) {
        taken--;
        errno = EEXIST;
        return -1;
    }
    return __real_open(name, flags, mode);
}

WRAP(int, close, (int fd))
{
    int status = __real_close(fd);
    return fault_hits(&close_fault, EIO) ? -1 : status;
}

WRAP(ssize_t, getrandom, (void *dst, size_t n, unsigned flags))
{
    return no_random ? -1 : __real_getrandom(dst, n, flags);
}

WRAP(int, fsync, (int fd))
{
    return fault_hits(&io_fault, EIO) ? -1 : __real_fsync(fd);
}

WRAP(int, rename, (const char *from, const char *to))
{
    return fault_hits(&io_fault, EIO) ? -1 : __real_rename(from, to);
}

WRAP(void *, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t offset))
{
    if ((flags & MAP_ANONYMOUS) && memory_fails())
        return MAP_FAILED;
    if (!(flags & MAP_ANONYMOUS) && (fault_hits(&io_fault, EIO) || fault_hits(&map_fault, ENOMEM)))
        return MAP_FAILED;
    return __real_mmap(at, n, prot, flags, fd, offset);
}

// The names under which a C library with 64-bit offsets may know the same calls.
ssize_t __wrap_pread64(int fd, void *dst, size_t n, off_t at) __attribute__((alias("__wrap_pread")));
int __wrap_open64(const char *name, int flags, mode_t mode) __attribute__((alias("__wrap_open")));
int __wrap_fstat64(int fd, struct stat *st) __attribute__((alias("__wrap_fstat")));
void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t offset)
    __attribute__((alias("__wrap_mmap")));

// ---- What is tried ----

static void put_file(const char *name, const char *recipe)
{
    struct blob b = {0};
    blob_put_recipe(&b, recipe);
    FILE *f = fopen(name, "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(b.data, 1, b.size, f), b.size);
    fclose(f);
    blob_free(&b);
}

static void setup(void)
{
    strcpy(dir, "/tmp/quern-faults-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/m-00001-of-00002.gguf", dir);
    snprintf(part2, sizeof part2, "%s/m-00002-of-00002.gguf", dir);
    put_file(path, "header:3,1,5 kv:split.no,u16,0 kv:split.count,u16,2 kv:split.tensors.count,i32,2 "
                   "key:big type:array type:u32 u64:50000 zero:200000 "
                   "key:s type:array type:string u64:2 str:ab str:c tensor:a,0,0,4 align:32 f32:1 zero:8 f32:3");
    put_file(part2, "header:3,1,3 kv:split.no,u16,1 kv:split.count,u16,2 kv:split.tensors.count,i32,2 "
                    "tensor:b,0,0,4 align:32 f32:2 zero:8 f32:4");
}

static void teardown(void)
{
    unlink(path);
    unlink(part2);
    cr_expect_eq(rmdir(dir), 0, "a temporary file was left behind");
}

TestSuite(gguf_faults, .init = setup, .fini = teardown);

static int open_model(unsigned flags, struct error *err)
{
    struct gguf *g;
    if (gguf_open(&g, path, flags, err) != 0)
        return -1;
    cr_assert_eq(gguf_n_tensors(g), 2u);
    gguf_read_all(g);
    for (size_t i = 0; i < 2; i++) { // whole, up to the last byte
        const float *data = gguf_tensor_at(g, i)->data;
        cr_assert(data[0] == 1 + (float)i && data[3] == 3 + (float)i);
    }
    gguf_close(g);
    return 0;
}

static int read_mapped(struct error *err)
{
    return open_model(0, err);
}

static int read_into_memory(struct error *err)
{
    return open_model(GGUF_NO_MMAP, err);
}

// Of a path that is shortened for messages.
static int read_by_a_long_path(struct error *err)
{
    char far[400];
    int n = snprintf(far, sizeof far, "%s", dir);
    for (int i = 0; i < 100; i++)
        n += snprintf(far + n, sizeof far - (size_t)n, "/.");
    snprintf(far + n, sizeof far - (size_t)n, "/m-00001-of-00002.gguf");
    struct gguf *g;
    if (gguf_open(&g, far, 0, err) != 0)
        return -1;
    gguf_close(g);
    return 0;
}

// Replaces a key of the file, and adds one.
static int set_keys(struct error *err)
{
    static const struct gguf_override set[] = {{.key = "s", .type = GGUF_STRING, .string = "text"},
                                               {.key = "new", .type = GGUF_I64, .integer = 7}};
    struct gguf *g;
    if (gguf_open(&g, path, GGUF_METADATA_ONLY, err) != 0)
        return -1;
    int status = gguf_set(g, &set[0], err);
    if (status == 0)
        status = gguf_set(g, &set[1], err);
    gguf_close(g);
    return status;
}

// What was written is whole: a call that failed in silence has done no harm.
static int check_written(const char *out, size_t n_kv, size_t n_tensors, struct error *err)
{
    struct gguf *g;
    int status = gguf_open(&g, out, 0, err);
    unlink(out);
    if (status != 0)
        return -1;
    cr_assert_eq(gguf_n_kv(g), n_kv);
    cr_assert_eq(gguf_n_tensors(g), n_tensors);
    gguf_close(g);
    return 0;
}

// Takes the end of the head, or that of a tensor, to the edge of the buffer of 2 MB, so that each part of the file is
// written when it is added. `key` and `tensor` are bytes of a key's value and of a tensor.
static int write_parts(size_t key, int64_t tensor, struct error *err)
{
    static const uint8_t bytes[3 << 20];
    char out[128];
    snprintf(out, sizeof out, "%s/out.gguf", dir);
    struct gguf_writer *w;
    if (gguf_writer_open(&w, out, err) != 0)
        return -1;
    if (key > 0)
        gguf_write_array(w, "k", GGUF_U8, bytes, key);
    if (gguf_write_tensor_info(w, "a", DT_I8, 1, &tensor, err) != 0 ||
        gguf_write_data(w, bytes, (size_t)tensor, err) != 0) {
        gguf_writer_abort(w);
        return -1;
    }
    if (gguf_writer_close(w, err) != 0)
        return -1;
    return check_written(out, key > 0, 1, err);
}

enum { EDGE = 2 << 20, HEADER = 24, KEY = 8 + 1 + 4 + 4 + 8, ENTRY = 8 + 1 + 4 + 8 + 4 + 8 };

static int write_a_long_key(struct error *err)
{
    return write_parts(EDGE, 1, err);
}

static int write_an_entry_over_the_edge(struct error *err)
{
    return write_parts(EDGE - HEADER - KEY - 5, 1, err);
}

static int write_padding_to_the_edge(struct error *err)
{
    return write_parts(0, EDGE - (int64_t)align_up(HEADER + ENTRY, 32) - 5, err);
}

static int write_an_open_file(struct error *err)
{
    char name[32];
    int fd = memory_file("", 0, name);
    struct gguf_writer *w;
    int status = gguf_writer_open_fd(&w, fd, "a file", err);
    if (status == 0) {
        gguf_write_u32(w, "k", 1);
        status = gguf_writer_close(w, err);
    }
    if (status == 0)
        status = check_written(name, 1, 0, err);
    close(fd);
    return status;
}

static int write_model(struct error *err)
{
    static const uint8_t bytes[5000000];
    static const struct str strings[] = {{"a", 1}, {"bc", 2}};
    char out[128];
    snprintf(out, sizeof out, "%s/out.gguf", dir);
    struct gguf_writer *w;
    const int64_t ne = sizeof bytes;
    if (gguf_writer_open(&w, out, err) != 0)
        return -1;
    gguf_write_u32(w, "k", 1);
    gguf_write_str_array(w, "s", strings, 2);
    gguf_write_array(w, "big", GGUF_U8, bytes, 20000);
    if (gguf_write_tensor_info(w, "a", DT_I8, 1, &ne, err) != 0 ||
        gguf_write_tensor_info(w, "b", DT_I8, 1, &ne, err) != 0 || gguf_write_data(w, bytes, 2500000, err) != 0 ||
        gguf_write_data(w, bytes, 2500000, err) != 0 || gguf_write_data(w, bytes, sizeof bytes, err) != 0) {
        gguf_writer_abort(w);
        return -1;
    }
    if (gguf_writer_close(w, err) != 0)
        return -1;
    return check_written(out, 3, 2, err);
}

static int open_descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

// Lets the N-th call fail for every N until none is left to fail. Returns how many there were.
static int fail_each(int (*work)(struct error *), struct fault *fault, enum err_code code)
{
    struct error err = {0};
    cr_assert_eq(work(&err), 0, "%s", err.text); // what the library allocates once is allocated now
    for (int n = 0;; n++) {
        int descriptors = open_descriptors();
        long live = heap_live;
        fault_arm(fault, n);
        int status = work(&err);
        fault_disarm(fault);
        cr_assert_eq(heap_live, live, "call %d: %ld blocks leaked (%s)", n, heap_live - live, err.text);
        cr_assert_eq(open_descriptors(), descriptors, "call %d: a descriptor leaked (%s)", n, err.text);
        if (!fault->fired) {
            cr_assert_eq(status, 0, "%s", err.text);
            return n;
        }
        if (status == 0)
            continue; // only the sync of the directory may fail in silence
        cr_assert_eq(err.code, code, "call %d: %s", n, err.text);
        cr_assert_not_null(strstr(err.text, fault == &memory_fault ? "bytes" : "Input/output error"), "%s", err.text);
    }
}

Test(gguf_faults, reading_survives_every_failed_allocation)
{
    cr_assert_gt(fail_each(read_mapped, &memory_fault, E_MEMORY), 8);
    cr_assert_gt(fail_each(read_into_memory, &memory_fault, E_MEMORY), 10);
    cr_assert_gt(fail_each(read_by_a_long_path, &memory_fault, E_MEMORY), 10);
}

Test(gguf_faults, setting_keys_survives_every_failed_allocation)
{
    cr_assert_gt(fail_each(set_keys, &memory_fault, E_MEMORY), 20);
}

Test(gguf_faults, reading_survives_every_failed_read)
{
    cr_assert_geq(fail_each(read_mapped, &io_fault, E_IO), 7); // fstat, window, large value, ... map, of both parts
    cr_assert_geq(fail_each(read_into_memory, &io_fault, E_IO), 7);
}

Test(gguf_faults, writing_survives_every_failed_allocation)
{
    cr_assert_gt(fail_each(write_model, &memory_fault, E_MEMORY), 5);
    cr_assert_gt(fail_each(write_an_open_file, &memory_fault, E_MEMORY), 5);
}

Test(gguf_faults, writing_survives_every_failed_write)
{
    cr_assert_geq(fail_each(write_model, &io_fault, E_IO), 6);
    cr_assert_geq(fail_each(write_a_long_key, &io_fault, E_IO), 5); // the edge, the rest, two of sync, rename
    cr_assert_geq(fail_each(write_an_entry_over_the_edge, &io_fault, E_IO), 5);
    cr_assert_geq(fail_each(write_padding_to_the_edge, &io_fault, E_IO), 4); // there is no rest
}

Test(gguf_faults, a_file_that_is_not_open_leaks_nothing)
{
    struct gguf_writer *w;
    struct error err;
    long live = heap_live;
    cr_assert_eq(gguf_writer_open_fd(&w, -1, "a file", &err), -1);
    cr_assert_str_eq(err.text, "a file: Bad file descriptor");
    cr_assert_eq(heap_live, live);
}

// What is written may be lost when the file is closed: some file systems say so only then.
Test(gguf_faults, a_file_that_cannot_be_closed_is_not_renamed)
{
    struct error err = {0};
    fault_arm(&close_fault, 0);
    cr_assert_eq(write_model(&err), -1);
    fault_disarm(&close_fault);
    char want[ERR_TEXT];
    snprintf(want, sizeof want, "%s/out.gguf: cannot write: Input/output error", dir);
    cr_assert_eq(err.code, E_IO);
    cr_assert_str_eq(err.text, want);
}

// So that a system keeps what was written in pages as large.
Test(gguf_faults, all_but_the_last_piece_are_multiples_of_2_mb)
{
    struct error err;
    short_pieces = 0;
    cr_assert_eq(write_model(&err), 0, "%s", err.text);
    cr_expect_eq(short_pieces, 1);
}

Test(gguf_faults, interrupted_and_short_calls_lose_nothing)
{
    struct error err = {0};
    interrupting = true;
    cr_assert_eq(read_mapped(&err), 0, "%s", err.text);
    cr_assert_eq(read_into_memory(&err), 0, "%s", err.text);
    cr_assert_eq(write_model(&err), 0, "%s", err.text);
    interrupting = false;
}

// Cut before the first read, before that of the large array, and before that of the tensors.
Test(gguf_faults, a_file_that_shrinks_while_it_is_read_is_an_io_error)
{
    struct error err;
    for (int n = 1; n <= 4; n++) {
        unlink(path);
        unlink(part2);
        rmdir(dir);
        setup();
        cut = n;
        cr_assert_eq(read_into_memory(&err), -1);
        cr_assert_eq(err.code, E_IO, "read %d: %s", n, err.text);
        cr_assert_not_null(strstr(err.text, "the file became shorter while it was read"), "read %d: %s", n, err.text);
        cr_assert_geq(err.offset, 30u);
    }
}

Test(gguf_faults, a_file_that_is_too_large_to_map_is_a_lack_of_memory)
{
    struct error err = {0};
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    fault_arm(&map_fault, 0);
    cr_assert_eq(read_mapped(&err), -1);
    fault_disarm(&map_fault);
    char want[ERR_TEXT];
    snprintf(want, sizeof want, "%s: cannot map %lld bytes: Cannot allocate memory", path, (long long)st.st_size);
    cr_assert_eq(err.code, E_MEMORY);
    cr_assert_str_eq(err.text, want);
}

// Kinds of files that a test cannot make, or not without rights.
Test(gguf_faults, what_is_no_regular_file_is_named_by_its_kind)
{
    static const struct {
        mode_t mode;
        const char *kind;
    } cases[] = {{S_IFDIR, "a directory"},
                 {S_IFIFO, "a pipe"},
                 {S_IFCHR, "a device"},
                 {S_IFBLK, "a device"},
                 {S_IFSOCK, "of an unknown kind"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct error err = {0};
        char want[ERR_TEXT];
        pretended = cases[i].mode;
        cr_expect_eq(read_mapped(&err), -1);
        pretended = 0;
        snprintf(want, sizeof want, "%s: is %s, not a file", path, cases[i].kind);
        cr_expect_eq(err.code, E_MODEL);
        cr_expect_str_eq(err.text, want);
    }
}

// ---- Names of temporary files ----

static int create_and_remove(char *name)
{
    int fd = temporary_create(path, name, 0600);
    if (fd >= 0) {
        close(fd);
        temporary_remove(name);
    }
    return fd;
}

// More names than the list has places: those that exist already are taken out of it again.
Test(gguf_faults, a_name_that_exists_is_not_taken)
{
    char name[sizeof path + TEMPORARY_SUFFIX];
    for (int i = 0; i < 100; i++) {
        taken = 3;
        cr_assert_geq(create_and_remove(name), 0, "round %d: %s", i, strerror(errno));
        cr_assert_eq(taken, 0);
    }
    taken = 1000;
    cr_assert_eq(create_and_remove(name), -1);
    cr_assert_eq(errno, EEXIST);
    cr_assert_eq(taken, 900, "a hundred names were tried");
    taken = 0;
}

Test(gguf_faults, names_differ_without_random_numbers)
{
    char a[sizeof path + TEMPORARY_SUFFIX], b[sizeof path + TEMPORARY_SUFFIX];
    no_random = true;
    cr_assert_geq(create_and_remove(a), 0);
    cr_assert_geq(create_and_remove(b), 0);
    cr_assert_str_neq(a, b);
    no_random = false;
}
