// Calls OpenBLAS for float products of many rows (--blas). Each thread of the pool calls it for its own columns, so
// OpenBLAS itself uses one thread. Its order of summation depends on the shape, so with --blas the bits of a result
// depend on how a prompt is cut into chunks.
#include "kernels/cpu/exec.h"

#ifdef QUERN_OPENBLAS
#include <pthread.h>

// As cblas.h declares them, with 32-bit sizes.
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                      const float *b, int ldb, float beta, float *c, int ldc);
typedef void set_threads_fn(int n);

static sgemm_fn *sgemm; // written once, by blas_open
static struct error why;

#ifdef QUERN_OPENBLAS_LINKED
extern sgemm_fn cblas_sgemm;
extern set_threads_fn openblas_set_num_threads;

static set_threads_fn *find_calls(void)
{
    sgemm = cblas_sgemm;
    return openblas_set_num_threads;
}
#else
#include <dlfcn.h>

static const char library[] = "libopenblas.so.0";

// Finds a function of the library; `call` points at a function pointer. Its bytes are copied, because C has no
// conversion from dlsym's data pointer to a function pointer; POSIX promises that both are alike.
static bool find_call(void *handle, const char *name, void *call)
{
    void *address = dlsym(handle, name);
    memcpy(call, &address, sizeof address);
    return address || fail(&why, E_USAGE, "--blas: %s has no %s", library, name) == 0;
}

// Loads the library at its first use, because it starts threads, which map memory, as soon as it is loaded.
// RTLD_NODELETE keeps it loaded after dlclose, because its threads run on.
static set_threads_fn *find_calls(void)
{
    set_threads_fn *set_threads = NULL;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        const char *reason = dlerror();
        fail(&why, E_USAGE, "--blas: %s cannot be loaded: %s", library, reason ? reason : "no reason is told");
        return NULL;
    }
    sgemm_fn *found = NULL;
    if (find_call(handle, "cblas_sgemm", &found) && find_call(handle, "openblas_set_num_threads", &set_threads))
        sgemm = found;
    dlclose(handle);
    return sgemm ? set_threads : NULL;
}
#endif

static void open_once(void)
{
    set_threads_fn *set_threads = find_calls();
    if (set_threads)
        set_threads(1);
}

int blas_open(struct error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_once);
    if (!sgemm)
        *err = why;
    return sgemm ? 0 : -1;
}

static bool is_plain_float(enum dtype type)
{
    return type == DT_F32 || type == DT_F16 || type == DT_BF16;
}

// Decodes the weights to float32 in the scratch, one slice of k columns after another; sgemm adds each slice's
// products to y. F32 weights that are aligned are used in place.
bool blas_matmul(const struct matmul_args *a, size_t x_stride, size_t y_stride)
{
    if (!is_plain_float(a->type) || a->n_rows <= 0)
        return false;
    bool in_place = a->type == DT_F32 && (uintptr_t)a->w % sizeof(float) == 0 && a->w_stride % sizeof(float) == 0;
    int64_t slice = in_place ? a->k : MIN(a->k, (int64_t)(SCRATCH_BYTES / sizeof(float)) / a->n_rows);
    if (slice < 1)
        return false;
    for (int64_t at = 0; at < a->k; at += slice) {
        int64_t n = MIN(slice, a->k - at);
        const float *w = in_place ? a->w : a->scratch;
        for (int r = 0; !in_place && r < a->n_rows; r++)
            dtype_decode[a->type]((const uint8_t *)a->w + (size_t)r * a->w_stride + dtype_row_bytes(a->type, at),
                                  (float *)a->scratch + r * n, n);
        sgemm(ROW_MAJOR, NO_TRANS, TRANS, a->n_x, a->n_rows, (int)n, 1.0f, (const float *)a->x[0] + at,
              (int)(x_stride / sizeof(float)), w, (int)(in_place ? a->w_stride / sizeof(float) : (size_t)n),
              at ? 1.0f : 0.0f, a->y[0], (int)(y_stride / sizeof(float)));
    }
    return true;
}

#else

int blas_open(struct error *err)
{
    return fail(err, E_USAGE, "--blas: this binary was built without OpenBLAS");
}

bool blas_matmul(const struct matmul_args *a, size_t x_stride, size_t y_stride)
{
    (void)a, (void)x_stride, (void)y_stride;
    return false;
}

#endif
