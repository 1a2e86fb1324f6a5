// Prints the cost of products on a GPU for every type of weights, as a Markdown table: product_costs [TARGET]
//
// TARGET is the compute capability that the kernels are written for; the default is 90.
#include <stdio.h>
#include <stdlib.h>

#include "kernels/ptx/emit_matmul.h"
#include "tests/ptx/product_cost.h"

static const enum dtype types[] = {
#define TILE(NAME, ...) DT_##NAME,
#include "kernels/ptx/weight_tile.def"
#undef TILE
};
static const uint32_t n_rows[] = {1, 8, 64};

static int print_type(enum dtype t, uint32_t target, struct error *err)
{
    printf("| %s | %s | %.2f ", dtype_info[t].name, ptx_takes_q8(t) ? "8 bits" : "floats",
           (double)dtype_info[t].bytes / dtype_info[t].block);
    for (size_t i = 0; i < COUNT_OF(n_rows); i++) {
        struct product_cost c;
        if (product_cost(t, n_rows[i], target, &c, err))
            return -1;
        printf("| %.3f | %.2f ", c.instructions, c.bytes);
    }
    printf("|\n");
    return 0;
}

int main(int argc, char **argv)
{
    struct error err;
    uint32_t target = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 90;
    if (argc > 2 || target < 75) {
        fprintf(stderr, "product_costs [TARGET]: a compute capability, 75 or more\n");
        return E_USAGE;
    }
    printf("| weights | x | bytes each ");
    for (size_t i = 0; i < COUNT_OF(n_rows); i++)
        printf("| %u row%s | bytes ", n_rows[i], n_rows[i] > 1 ? "s" : "");
    printf("|\n|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (print_type(types[i], target, &err)) {
            fprintf(stderr, "%s: %s\n", dtype_info[types[i]].name, err.text);
            return 1;
        }
    return 0;
}
