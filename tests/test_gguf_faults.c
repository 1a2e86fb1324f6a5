// Tests failing system calls: each C library call of the GGUF reader and writer fails once, the N-th one for every N.
// The error must have the right code, nothing may leak, and no file may be left behind.
#include "gguf/writer.h"
#include "tests/gguf_recipe.h"
#include "tests/memory_faults.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <malloc.h>
#include <sys/stat.h>

// ---- Further calls that fail ----

static struct fault io_fault = {.after = -1};
static bool interrupting; // reads and writes are interrupted (EINTR) or short instead
static int cut;           // the read, counted from 1, before which the model's file is truncated; 0: none

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
    return fault_hits(&io_fault, EIO) ? -1 : __real_fstat(fd, st);
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
    if (!(flags & MAP_ANONYMOUS) && fault_hits(&io_fault, EIO))
        return MAP_FAILED;
    return __real_mmap(at, n, prot, flags, fd, offset);
}

// The names under which a C library with 64-bit offsets may know the same calls.
ssize_t __wrap_pread64(int fd, void *dst, size_t n, off_t at) __attribute__((alias("__wrap_pread")));
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
                   "key:s type:array type:string u64:2 str:ab str:c tensor:a,0,0,4 align:32 f32:1 zero:12");
    put_file(part2, "header:3,1,3 kv:split.no,u16,1 kv:split.count,u16,2 kv:split.tensors.count,i32,2 "
                    "tensor:b,0,0,4 align:32 f32:2 zero:12");
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
    unlink(out);
    return 0;
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
        cr_assert_not_null(strstr(err.text, fault == &io_fault ? "Input/output error" : "bytes"), "%s", err.text);
    }
}

Test(gguf_faults, reading_survives_every_failed_allocation)
{
    cr_assert_gt(fail_each(read_mapped, &memory_fault, E_MEMORY), 8);
    cr_assert_gt(fail_each(read_into_memory, &memory_fault, E_MEMORY), 10);
}

Test(gguf_faults, reading_survives_every_failed_read)
{
    cr_assert_geq(fail_each(read_mapped, &io_fault, E_IO), 7); // fstat, window, large value, ... map, of both parts
    cr_assert_geq(fail_each(read_into_memory, &io_fault, E_IO), 7);
}

Test(gguf_faults, writing_survives_every_failed_allocation)
{
    cr_assert_gt(fail_each(write_model, &memory_fault, E_MEMORY), 5);
}

Test(gguf_faults, writing_survives_every_failed_write)
{
    cr_assert_geq(fail_each(write_model, &io_fault, E_IO), 6);
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
