// OpenBLAS for float GEMMs of many rows. Each thread of the pool multiplies its own columns, so OpenBLAS runs unthreaded.
// Its order of summation is its own and changes with the shape: --blas gives up the promise of equal bits across chunks.
#include "kernels/cpu/exec.h"

#ifdef QUERN_OPENBLAS
#include <cblas.h>
#include <pthread.h>

static void run_unthreaded(void)
{
    openblas_set_num_threads(1);
}

bool blas_available(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, run_unthreaded);
    return true;
}

static bool is_plain_float(enum dtype type)
{
    return type == DT_F32 || type == DT_F16 || type == DT_BF16;
}

// Weights are taken in slices of k that fit the scratch as float32; F32 rows that lie aligned are used in place.
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
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, a->n_x, a->n_rows, (blasint)n, 1.0f, (const float *)a->x[0] + at,
                    (blasint)(x_stride / sizeof(float)), w, (blasint)(in_place ? a->w_stride / sizeof(float) : (size_t)n),
                    at ? 1.0f : 0.0f, a->y[0], (blasint)(y_stride / sizeof(float)));
    }
    return true;
}

#else

bool blas_available(void)
{
    return false;
}

bool blas_matmul(const struct matmul_args *a, size_t x_stride, size_t y_stride)
{
    (void)a, (void)x_stride, (void)y_stride;
    return false;
}

#endif
