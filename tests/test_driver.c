// Tests the driver layer of the GPU machine against the tests' libcuda: its functions, the result of each failing call,
// and that no object is leaked.
#include "bench/ptx/emitters.h"
#include "tests/driver_rig.h"
#include "tests/ptx/interpreter.h"

enum { ILLEGAL_ADDRESS = 700, OUT_OF_MEMORY = 2, SEED = 20261121 };

// ---- cards

Test(driver, tells_what_card_there_is)
{
    struct error err = {0};
    int n = 0;
    struct driver_card card;
    quern_cuda_set(
        &(struct quern_cuda_setup){.n_cards = 2, .major = 8, .minor = 6, .version = 12040, .memory = 1 << 20});
    OK(driver_count(NULL, &n, &err));
    cr_expect_eq(n, 2);
    OK(driver_card(NULL, 1, &card, &err));
    cr_expect_eq(card.major * 10 + card.minor, 86);
    cr_expect_eq(card.warp, 32);
    cr_expect_eq(card.max_shared, 99 * 1024);
    cr_expect_eq(card.version, 12040);
    cr_expect_eq(card.total, 1 << 20);
    cr_expect_eq(card.free, 1 << 20);
    cr_expect_str_eq(card.pci, "FFFF:01:00.0");
    cr_expect_eq(driver_card(NULL, 2, &card, &err), -1);
    cr_expect_str_eq(err.text, "there is no card 2: the driver finds 2");
    cr_expect_eq(alive(), 0);
}

Test(driver, says_in_one_line_that_there_is_no_driver)
{
    struct error err = {0};
    int n;
    cr_expect_eq(driver_count("libcuda-that-nobody-has.so.1", &n, &err), -1);
    cr_expect_eq(err.code, E_GPU);
    cr_expect_str_eq(err.text, "no CUDA driver on this machine: libcuda-that-nobody-has.so.1 was not found");
}

Test(driver, names_the_call_that_a_library_lacks)
{
    struct error err = {0};
    int n;
    cr_expect_eq(driver_count("libm.so.6", &n, &err), -1);
    cr_expect(strstr(err.text, "has no cuInit"), "%s", err.text);
}

Test(driver, says_that_a_driver_has_no_card)
{
    struct error err = {0};
    int n;
    quern_cuda_set(&(struct quern_cuda_setup){.n_cards = 0, .major = 8, .version = 12000, .memory = 1});
    cr_expect_eq(driver_count(NULL, &n, &err), -1);
    cr_expect(strstr(err.text, "CUDA_ERROR_NO_DEVICE (100)"), "%s", err.text);
}

// ---- memory

Test(driver, memory_is_zeroed_put_copied_and_read_back)
{
    struct error err = {0};
    struct driver *d = open_card(NULL);
    uint64_t a, b;
    uint8_t in[300], out[300];
    for (int i = 0; i < 300; i++)
        in[i] = (uint8_t)(i * 7);
    OK(driver_alloc(d, 300, &a, &err));
    OK(driver_alloc(d, 300, &b, &err));
    cr_expect_eq(a % 256 + b % 256, 0);
    OK(driver_get(d, out, a, 300, &err));
    for (int i = 0; i < 300; i++)
        cr_assert_eq(out[i], 0);
    OK(driver_put(d, a, in, 300, &err));
    memset(in + 100, 0, 10); // what was put is what was there then
    OK(driver_copy(d, b, a, 300, &err));
    OK(driver_zero(d, b + 7, 11, &err));
    OK(driver_get(d, out, b, 300, &err));
    for (int i = 0; i < 300; i++)
        cr_assert_eq(out[i], i >= 7 && i < 18 ? 0 : (uint8_t)(i * 7), "byte %d", i);
    size_t free;
    OK(driver_memory(d, &free, &err));
    cr_expect_eq(free, driver_facts(d)->total - 600);
    driver_free(d, a);
    driver_free(d, b);
    driver_free(d, 0);
    driver_close(d);
    cr_expect_eq(alive(), 0);
}

Test(driver, pinned_memory_is_read_and_written_when_it_is_waited_for)
{
    struct error err = {0};
    struct driver *d = open_card(NULL);
    uint64_t at;
    void *pinned;
    OK(driver_alloc(d, 4, &at, &err));
    OK(driver_pinned(d, 4, &pinned, &err));
    memcpy(pinned, "abc", 4);
    OK(driver_put(d, at, pinned, 4, &err));
    OK(driver_wait(d, &err));
    memcpy(pinned, "xyz", 4);
    OK(driver_get(d, pinned, at, 4, &err));
    cr_expect_str_eq(pinned, "abc");
    driver_pinned_free(d, pinned);
    driver_free(d, at);
    driver_close(d);
    cr_expect_eq(alive(), 0);
}

Test(driver, too_little_memory_is_an_error_of_memory)
{
    struct error err = {0};
    quern_cuda_set(&(struct quern_cuda_setup){.n_cards = 1, .major = 8, .version = 12000, .memory = 1000});
    struct driver *d = open_card(NULL);
    uint64_t at;
    cr_expect_eq(driver_alloc(d, 1001, &at, &err), -1);
    cr_expect_eq(err.code, E_MEMORY);
    cr_expect(strstr(err.text, "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"), "%s", err.text);
    driver_close(d);
}

Test(driver, bytes_beside_an_allocation_are_refused)
{
    struct error err = {0};
    struct driver *d = open_card(NULL);
    uint64_t at;
    char bytes[16] = "";
    OK(driver_alloc(d, 15, &at, &err));
    cr_expect_eq(driver_put(d, at, bytes, 16, &err), -1);
    cr_expect_eq(driver_get(d, bytes, at + 1, 15, &err), -1);
    cr_expect_eq(driver_zero(d, at - 1, 1, &err), -1);
    driver_free(d, at);
    driver_close(d);
}

// ---- kernels

Test(driver, broken_ptx_gives_the_compilers_log_and_the_line)
{
    struct error err = {0};
    struct driver *d = open_card(NULL);
    struct driver_module *m;
    static const char broken[] = ".version 6.3\n.target sm_75\n.address_size 64\n.visible .entry f()\n{\n"
                                 "    frobnicate.u32 1;\n    ret;\n}\n";
    cr_expect_eq(driver_load(d, STR_LIT(broken), &m, &err), -1);
    cr_expect_eq(err.code, E_GPU);
    cr_expect(strstr(err.text, "cuLinkAddData_v2: CUDA_ERROR_INVALID_PTX (218)"), "%s", err.text);
    cr_expect(strstr(err.text, "ptxas application ptx input, line 6"), "%s", err.text);
    cr_expect(strstr(err.text, "[line 6: frobnicate.u32 1;]"), "%s", err.text);
    driver_close(d);
    cr_expect_eq(alive(), 0);
}

Test(driver, ptx_for_a_newer_driver_or_card_is_refused_with_the_reason)
{
    struct error err = {0};
    struct driver_module *m;
    quern_cuda_set(&(struct quern_cuda_setup){.n_cards = 1, .major = 7, .minor = 5, .version = 11040, .memory = 1000});
    struct driver *d = open_card(NULL);
    cr_expect_eq(driver_load(d, STR_LIT(".version 7.8\n.target sm_75\n.address_size 64\n"), &m, &err), -1);
    cr_expect(strstr(err.text, "UNSUPPORTED_PTX_VERSION (222)"), "%s", err.text);
    cr_expect(strstr(err.text, "a newer NVIDIA driver"), "%s", err.text);
    cr_expect_eq(driver_load(d, STR_LIT(".version 7.0\n.target sm_80\n.address_size 64\n"), &m, &err), -1);
    cr_expect(strstr(err.text, "sm_80"), "%s", err.text);
    driver_close(d);
}

// A product through the driver and straight on the interpreter: the same bits.
Test(driver, kernels_give_the_bits_of_the_interpreter)
{
    enum { M = 20, K = 12, COLS = 24, BUFFER = 1 << 16 };
    static char text[BUFFER];
    struct error err = {0};
    struct ptx p;
    struct ptx_launch shape;
    float a[M * K], b[K * COLS], c[M * COLS], direct[M * COLS];
    printf("seed %d\n", SEED);
    srand(SEED);
    for (size_t i = 0; i < COUNT_OF(a); i++)
        a[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    for (size_t i = 0; i < COUNT_OF(b); i++)
        b[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    ptx_start(&p, text, sizeof(text));
    OK(ptx_emit_gemm_tiled(&p, &(struct ptx_gemm){.node = 7, .m = M, .n = COLS, .k = K, .tile = 16}, &shape, &err));
    OK(ptx_finish(&p, &err));

    struct driver *d = open_card(NULL);
    struct driver_module *m;
    struct driver_kernel *k;
    uint64_t at[3];
    void *params[] = {&at[0], &at[1], &at[2]};
    OK(driver_load(d, (struct str){p.data, p.size}, &m, &err));
    OK(driver_find(d, m, "gemm_tiled_7", &k, &err));
    OK(driver_alloc(d, sizeof(a), &at[0], &err));
    OK(driver_alloc(d, sizeof(b), &at[1], &err));
    OK(driver_alloc(d, sizeof(c), &at[2], &err));
    OK(driver_put(d, at[0], a, sizeof(a), &err));
    OK(driver_put(d, at[1], b, sizeof(b), &err));
    struct driver_launch l = {.params = params};
    memcpy(l.grid, shape.grid, sizeof(l.grid));
    memcpy(l.block, shape.block, sizeof(l.block));
    OK(driver_run(d, k, &l, &err));
    OK(driver_get(d, c, at[2], sizeof(c), &err));

    struct simt *s = simt_new();
    uint64_t here[3] = {simt_alloc(s, sizeof(a)), simt_alloc(s, sizeof(b)), simt_alloc(s, sizeof(c))};
    OK(simt_put(s, here[0], a, sizeof(a), &err));
    OK(simt_put(s, here[1], b, sizeof(b), &err));
    OK(simt_load(s, (struct str){p.data, p.size}, &err));
    OK(simt_launch(s, simt_find(s, "gemm_tiled_7"), (struct simt_dim){l.grid[0], l.grid[1], l.grid[2]},
                   (struct simt_dim){l.block[0], l.block[1], l.block[2]}, 0, here, sizeof(here), &err));
    OK(simt_get(s, here[2], direct, sizeof(direct), &err));
    simt_free(s);
    cr_expect_eq(memcmp(c, direct, sizeof(c)), 0);
    for (int i = 0; i < 3; i++)
        driver_free(d, at[i]);
    driver_close(d);
    cr_expect_eq(alive(), 0);
}

Test(driver, two_modules_may_have_kernels_of_one_name)
{
    struct error err = {0};
    struct driver *d = open_card(NULL);
    char other[sizeof(scale_text)];
    memcpy(other, scale_text, sizeof(other));
    memcpy(strstr(other, "mul.lo.u32"), "add.u32   ", 10);
    struct driver_module *m[2];
    struct driver_kernel *k[2];
    uint64_t x;
    uint32_t in[N] = {0}, out[N];
    OK(driver_load(d, SCALE, &m[0], &err));
    OK(driver_load(d, (struct str){other, sizeof(other) - 1}, &m[1], &err));
    for (int i = 0; i < 2; i++)
        OK(driver_find(d, m[i], "scale", &k[i], &err));
    OK(driver_alloc(d, sizeof(in), &x, &err));
    OK(run_scale(d, k[1], x, x, 5, &err));
    OK(run_scale(d, k[0], x, x, 3, &err));
    OK(driver_get(d, out, x, sizeof(out), &err));
    cr_expect_eq(out[N - 1], 15);
    cr_expect_eq(driver_find(d, m[0], "nobody", &k[0], &err), -1);
    cr_expect(strstr(err.text, "nobody: cuModuleGetFunction: CUDA_ERROR_NOT_FOUND (500)"), "%s", err.text);
    driver_unload(d, m[0]);
    driver_unload(d, m[1]);
    driver_free(d, x);
    driver_close(d);
    cr_expect_eq(alive(), 0);
}

Test(driver, a_bad_access_is_an_error_at_the_next_wait_and_loses_the_context)
{
    struct error err = {0};
    struct driver *d = open_card(NULL);
    struct driver_kernel *k = load_scale(d);
    uint64_t x;
    OK(driver_alloc(d, N * 4 - 4, &x, &err));
    OK(run_scale(d, k, x, x, 2, &err));
    cr_expect_eq(driver_wait(d, &err), -1);
    cr_expect(strstr(err.text, "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "%s", err.text);
    cr_expect_eq(driver_zero(d, x, 1, &err), -1);
    cr_expect_eq(driver_alloc(d, 1, &x, &err), -1);
    driver_close(d);
}

static const char early_text[] = ".version 7.8\n.target sm_90\n.address_size 64\n"
                                 ".visible .entry early(.param .u64 px)\n{\n"
                                 "    .reg .b64 %x;\n    .reg .b32 %v;\n"
                                 "    ld.param.u64 %x, [px];\n"
                                 "    ld.global.u32 %v, [%x];\n"
                                 "    griddepcontrol.wait;\n"
                                 "    st.global.u32 [%x+4], %v;\n    ret;\n}\n";

// A kernel that starts early must not read, before it waits, what the kernel before it writes.
Test(driver, a_dependent_kernel_waits_before_it_reads_what_the_one_before_writes)
{
    struct error err = {0};
    struct driver *d = open_card(NULL);
    struct driver_kernel *scale = load_scale(d), *early;
    struct driver_module *m;
    uint64_t x, y;
    OK(driver_load(d, STR_LIT(early_text), &m, &err));
    OK(driver_find(d, m, "early", &early, &err));
    OK(driver_alloc(d, N * 4, &x, &err));
    OK(driver_alloc(d, N * 4, &y, &err));
    void *params[] = {&x};
    struct driver_launch l = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .params = params, .dependent = true};
    OK(run_scale(d, scale, x, y, 2, &err));
    OK(driver_run(d, early, &l, &err));
    OK(driver_wait(d, &err));
    cr_expect_eq(counts().dependent, 1);
    OK(run_scale(d, scale, x, x, 2, &err));
    OK(driver_run(d, early, &l, &err));
    cr_expect_eq(driver_wait(d, &err), -1);
    driver_close(d);
}

Test(driver, a_kernel_that_never_waits_is_not_started_early)
{
    struct error err = {0};
    struct driver *d = open_card(NULL);
    struct driver_kernel *k = load_scale(d);
    uint64_t x;
    uint32_t f = 1;
    OK(driver_alloc(d, N * 4, &x, &err));
    void *params[] = {&x, &x, &f};
    struct driver_launch l = {.grid = {1, 1, 1}, .block = {N, 1, 1}, .params = params, .dependent = true};
    cr_expect_eq(driver_run(d, k, &l, &err), -1);
    driver_free(d, x);
    driver_close(d);
    // Cards that do not know it run all kernels one after the other.
    quern_cuda_set(&(struct quern_cuda_setup){.n_cards = 1, .major = 8, .version = 12000, .memory = 10000});
    d = open_card(NULL);
    k = load_scale(d);
    OK(driver_alloc(d, N * 4, &x, &err));
    OK(driver_run(d, k, &l, &err));
    OK(driver_wait(d, &err));
    driver_free(d, x);
    driver_close(d);
}

// The card has 4 multiprocessors, which hold 2,048 threads each.
Test(driver, a_cooperative_launch_that_is_not_resident_is_refused)
{
    struct error err = {0};
    struct driver *d = open_card(NULL);
    struct driver_kernel *k = load_scale(d);
    uint64_t x;
    uint32_t f = 1;
    OK(driver_alloc(d, N * 4, &x, &err));
    void *params[] = {&x, &x, &f};
    struct driver_launch l = {.grid = {1, 1, 1}, .block = {N, 1, 1}, .params = params, .cooperative = true};
    OK(driver_run(d, k, &l, &err));
    OK(driver_wait(d, &err));
    l.grid[0] = 4 * 32 + 1;
    cr_expect_eq(driver_run(d, k, &l, &err), -1);
    cr_expect(strstr(err.text, "cuLaunchCooperativeKernel: CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"), "%s", err.text);
    driver_free(d, x);
    driver_close(d);
}

Test(driver, shared_memory_beyond_the_usual_is_asked_for_once)
{
    struct error err = {0};
    struct driver *d = open_card(NULL);
    struct driver_module *m;
    struct driver_kernel *k;
    static const char text[] = ".version 6.3\n.target sm_75\n.address_size 64\n.extern .shared .align 16 .b8 room[];\n"
                               ".visible .entry big()\n{\n    .reg .b32 %a, %v;\n    mov.u32 %a, room;\n"
                               "    mov.u32 %v, 1;\n    st.shared.u32 [%a+99996], %v;\n    ret;\n}\n";
    OK(driver_load(d, STR_LIT(text), &m, &err));
    OK(driver_find(d, m, "big", &k, &err));
    struct driver_launch l = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .shared = 100000};
    OK(driver_run(d, k, &l, &err));
    OK(driver_run(d, k, &l, &err));
    OK(driver_wait(d, &err));
    cr_expect_eq(quern_cuda_calls("cuFuncSetAttribute"), 1);
    l.shared = 228 * 1024;
    cr_expect_eq(driver_run(d, k, &l, &err), -1);
    cr_expect(strstr(err.text, "needs 233472 bytes of shared memory; this card has 232448"), "%s", err.text);
    struct driver_kernel_facts facts;
    OK(driver_kernel_facts(d, k, &facts, &err));
    cr_expect_eq(facts.local, 0);
    driver_close(d);
}

// ---- recorded work

Test(driver, a_graph_keeps_its_parameters_and_reads_its_inputs_anew)
{
    struct error err = {0};
    struct driver *d = open_card(NULL);
    struct driver_kernel *k = load_scale(d);
    struct driver_graph *g;
    uint64_t x, y;
    uint32_t *pinned;
    OK(driver_alloc(d, N * 4, &x, &err));
    OK(driver_alloc(d, N * 4, &y, &err));
    OK(driver_pinned(d, 2 * N * 4, (void **)&pinned, &err));
    OK(driver_record(d, &err));
    OK(driver_put(d, x, pinned, N * 4, &err));
    OK(run_scale(d, k, x, y, 3, &err));
    OK(run_scale(d, k, y, x, 5, &err));
    OK(driver_get(d, pinned + N, x, N * 4, &err));
    OK(driver_recorded(d, &g, &err));
    uint64_t allocations = counts().allocations;
    cr_expect_eq(counts().launches, 0);
    for (uint32_t round = 1; round < 4; round++) {
        for (uint32_t i = 0; i < N; i++)
            pinned[i] = round + i;
        OK(driver_replay(d, g, &err));
        OK(driver_wait(d, &err));
        for (uint32_t i = 0; i < N; i++)
            cr_assert_eq(pinned[N + i], 15 * (round + i));
    }
    struct quern_cuda_counts c = counts();
    cr_expect_eq(c.allocations, allocations);
    cr_expect_eq(c.launches, 6);
    cr_expect_eq(c.replays, 3);
    cr_expect_eq(c.bytes_in, 3 * N * 4);
    cr_expect_eq(c.bytes_out, 3 * N * 4);
    driver_graph_free(d, g);
    driver_pinned_free(d, pinned);
    driver_free(d, x);
    driver_free(d, y);
    driver_close(d);
    cr_expect_eq(alive(), 0);
}

Test(driver, nothing_is_allocated_or_loaded_while_it_records)
{
    struct error err = {0};
    struct driver *d = open_card(NULL);
    struct driver_kernel *k = load_scale(d);
    struct driver_module *m;
    struct driver_graph *g;
    uint64_t x, y;
    OK(driver_alloc(d, N * 4, &x, &err));
    cr_expect_eq(driver_recorded(d, &g, &err), -1);
    OK(driver_record(d, &err));
    cr_expect_eq(driver_record(d, &err), -1);
    cr_expect_eq(driver_alloc(d, 1, &y, &err), -1);
    cr_expect_str_eq(err.text, "the driver cannot allocate while it records");
    cr_expect_eq(driver_load(d, SCALE, &m, &err), -1);
    OK(run_scale(d, k, x, x, 2, &err));
    OK(driver_recorded(d, NULL, &err)); // forgotten
    OK(driver_wait(d, &err));
    cr_expect_eq(counts().launches, 0);
    OK(driver_record(d, &err)); // and one that is left open
    driver_free(d, x);
    driver_close(d);
    cr_expect_eq(counts().graphs + counts().execs + counts().streams, 0);
}

Test(driver, marks_measure_time_on_the_card)
{
    struct error err = {0};
    struct driver *d = open_card(NULL);
    double seconds = -1;
    uint64_t at;
    OK(driver_alloc(d, 1 << 20, &at, &err));
    OK(driver_mark(d, 0, &err));
    OK(driver_zero(d, at, 1 << 20, &err));
    OK(driver_mark(d, 1, &err));
    OK(driver_between(d, &seconds, &err));
    cr_expect(seconds > 0 && seconds < 10, "%g", seconds);
    driver_free(d, at);
    driver_close(d);
}

// ---- every call failing in turn

// Does everything that a machine does, once, and releases all that it has acquired in any case.
static int scenario(const char *folder, struct error *err)
{
    struct driver *d = NULL;
    struct driver_module *m;
    struct driver_kernel *k;
    struct driver_kernel_facts facts;
    struct driver_graph *g = NULL;
    struct driver_options o = {.cache = folder};
    uint64_t x = 0;
    void *pinned = NULL;
    uint32_t out[N];
    double seconds;
    int n, rc = -1;
    if (driver_count(NULL, &n, err) || driver_open(&d, &o, err))
        return -1;
    if (driver_alloc(d, N * 4, &x, err) || driver_pinned(d, N * 4, &pinned, err) || driver_load(d, SCALE, &m, err) ||
        driver_find(d, m, "scale", &k, err) || driver_kernel_facts(d, k, &facts, err) || driver_mark(d, 0, err) ||
        run_scale(d, k, x, x, 2, err) || driver_copy(d, x, x, 8, err) || driver_zero(d, x, 4, err) ||
        driver_mark(d, 1, err) || driver_between(d, &seconds, err))
        goto out;
    if (driver_record(d, err))
        goto out;
    int status = driver_put(d, x, pinned, N * 4, err) || run_scale(d, k, x, x, 2, err);
    if (driver_recorded(d, status ? NULL : &g, status ? NULL : err) || status)
        goto out;
    rc = driver_replay(d, g, err) || driver_wait(d, err) || driver_get(d, out, x, sizeof(out), err) ? -1 : 0;
out:
    driver_graph_free(d, g);
    driver_pinned_free(d, pinned);
    driver_free(d, x);
    driver_close(d);
    return rc;
}

// Calls that release an object. They cannot report errors, and an object that they fail to free remains.
static bool gives_back(const char *call)
{
    static const char *const calls[] = {"cuMemFree_v2",       "cuMemFreeHost",  "cuStreamDestroy_v2",
                                        "cuEventDestroy_v2",  "cuLinkDestroy",  "cuModuleUnload",
                                        "cuGraphExecDestroy", "cuGraphDestroy", "cuDevicePrimaryCtxRelease_v2"};
    for (size_t i = 0; i < COUNT_OF(calls); i++)
        if (!strcmp(calls[i], call))
            return true;
    return false;
}

static const char *const calls[] = {
#define CU_CALL(symbol, params) #symbol,
#define CU_MAYBE CU_CALL
#include "kernels/ptx/cuda_api.def"
#undef CU_MAYBE
#undef CU_CALL
};

Test(driver, every_failing_call_is_an_error_and_leaves_nothing_alive)
{
    char folder[64];
    make_folder(folder);
    int tried = 0;
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        for (uint64_t n = 1; !gives_back(calls[i]); n++) {
            struct error err = {0};
            each_file(folder, NULL, true);
            uint64_t before = quern_cuda_calls(calls[i]);
            quern_cuda_fail(calls[i], n, 999);
            int rc = scenario(folder, &err);
            quern_cuda_fail(NULL, 0, 0);
            cr_assert_eq(alive(), 0, "%s, call %d: %d are left alive", calls[i], (int)n, (int)alive());
            if (quern_cuda_calls(calls[i]) - before < n) {
                cr_assert_eq(rc, 0, "%s: %s", calls[i], err.text);
                break;
            }
            tried++;
            if (rc == 0)
                continue; // of driver_close: nobody is told
            cr_assert(strstr(err.text, calls[i]) && strstr(err.text, "CUDA_ERROR_UNKNOWN (999)"), "%s, call %d: %s",
                      calls[i], (int)n, err.text);
        }
    }
    printf("%d calls failed in turn\n", tried);
    cr_assert_gt(tried, 50);
    remove_folder(folder);
}

Test(driver, every_result_has_its_name_in_the_error)
{
    static const struct {
        int result;
        const char *words;
    } cases[] = {{1, "CUDA_ERROR_INVALID_VALUE (1)"},
                 {2, "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"},
                 {209, "CUDA_ERROR_NO_BINARY_FOR_GPU (209)"},
                 {221, "JIT_COMPILER_NOT_FOUND (221): jit compiler not found; in a container"},
                 {223, "JIT_COMPILATION_DISABLED (223): jit compilation disabled; CUDA_DISABLE_PTX_JIT"},
                 {700, "CUDA_ERROR_ILLEGAL_ADDRESS (700)"},
                 {12345, "an error without a name (12345)"}};
    struct driver *d = open_card(NULL);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct error err = {0};
        struct driver_module *m;
        quern_cuda_fail("cuLinkAddData_v2", 1, cases[i].result);
        cr_expect_eq(driver_load(d, SCALE, &m, &err), -1);
        cr_expect(strstr(err.text, cases[i].words), "%s", err.text);
        cr_expect_eq(err.code, cases[i].result == OUT_OF_MEMORY ? E_MEMORY : E_GPU);
    }
    driver_close(d);
    cr_expect_eq(alive(), 0);
}

Test(driver, a_release_that_fails_stops_nothing)
{
    char folder[64];
    make_folder(folder);
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        struct error err = {0};
        if (!gives_back(calls[i]))
            continue;
        quern_cuda_fail(calls[i], 1, 999);
        cr_expect_eq(scenario(folder, &err), 0, "%s: %s", calls[i], err.text);
    }
    remove_folder(folder);
}

Test(driver, on_paper_everything_succeeds_and_no_library_is_asked)
{
    struct error err = {0};
    const struct driver_card paper = {.name = "paper", .major = 9, .max_shared = 65536, .total = 1 << 20};
    struct driver *d = open_card(&(struct driver_options){.library = "/nowhere", .paper = &paper});
    struct driver_kernel *k = load_scale(d);
    struct driver_graph *g;
    uint64_t a, b;
    void *pinned;
    cr_expect_eq(driver_facts(d)->major, 9);
    OK(driver_alloc(d, 100, &a, &err));
    OK(driver_alloc(d, 100, &b, &err));
    cr_expect_neq(a, b);
    OK(driver_pinned(d, 100, &pinned, &err));
    OK(driver_record(d, &err));
    OK(driver_put(d, a, pinned, 100, &err));
    OK(run_scale(d, k, a, b, 2, &err));
    OK(driver_recorded(d, &g, &err));
    OK(driver_replay(d, g, &err));
    OK(driver_get(d, pinned, b, 100, &err));
    driver_pinned_free(d, pinned);
    driver_free(d, a);
    driver_free(d, b);
    driver_close(d);
    cr_expect_eq(quern_cuda_calls("cuMemAlloc_v2"), 0);
}
