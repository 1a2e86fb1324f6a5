#include "kernels/cpu/quantize_search.h"
quantize_fn *const ISA_FN(quantize_grid)[DT_COUNT] = {[DT_F32] = NULL};
