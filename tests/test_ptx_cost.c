// Tests the cost of GPU products against lower and upper bounds.
#include <criterion/criterion.h>
#include <stdio.h>

#include "kernels/ptx/emit_matmul.h"
#include "kernels/ptx/loop_cost.h"
#include "tests/ptx/product_cost.h"

static const enum dtype types[] = {
#define TILE(NAME, ...) DT_##NAME,
#include "kernels/ptx/weight_tile.def"
#undef TILE
};

static struct product_cost cost_of(enum dtype t, uint32_t n_rows, uint32_t target)
{
    struct error err;
    struct product_cost c;
    cr_assert_eq(product_cost(t, n_rows, target, &c, &err), 0, "%s: %s", dtype_info[t].name, err.text);
    return c;
}

// The cost that ptx_loop_cost reads from a text equals what is executed, except for the code before and after the loop.
static void check_loop(enum dtype t, const struct product_cost *c)
{
    double rest = c->instructions - c->loop;
    cr_expect(c->loop > 0 && rest > 0 &&
                  rest < (c->rows == 1    ? 0.16
                          : c->rows == 8  ? 0.06
                          : c->rows == 32 ? 0.03
                                          : 0.02),
              "%s, %u rows: %g counted, %g by its loop", dtype_info[t].name, c->rows, c->instructions, c->loop);
}

static double stored(enum dtype t)
{
    return (double)dtype_info[t].bytes / dtype_info[t].block;
}

// A dp4a computes four products.
Test(ptx_cost, a_row_of_q8_0_takes_few_more_than_its_dp4a)
{
    struct product_cost c = cost_of(DT_Q8_0, 1, 75);
    cr_expect_eq(c.rows, 1);
    cr_expect(c.instructions > 0.25 && c.instructions < 1.1, "%g instructions", c.instructions);
    cr_expect(c.bytes > stored(DT_Q8_0) + 1 && c.bytes < stored(DT_Q8_0) + 1.2, "%g bytes", c.bytes);
}

// On tensor cores each thread computes 128 products per instruction.
Test(ptx_cost, more_rows_cost_less_each)
{
    static const enum dtype of[] = {DT_Q8_0, DT_Q4_K, DT_Q6_K, DT_F16, DT_IQ2_XS, DT_NVFP4};
    for (size_t i = 0; i < COUNT_OF(of); i++) {
        const uint32_t n = ptx_takes_q8(of[i]) ? 128 : 64;
        struct product_cost one = cost_of(of[i], 1, 80), few = cost_of(of[i], 8, 80), some = cost_of(of[i], 32, 80),
                            many = cost_of(of[i], n, 80);
        cr_expect(one.instructions > few.instructions && few.instructions > many.instructions &&
                      (n == 64 || (few.instructions > some.instructions && some.instructions > many.instructions)),
                  "%s: %g, %g, %g, %g", dtype_info[of[i]].name, one.instructions, few.instructions, some.instructions,
                  many.instructions);
        printf("%s: instructions a product by 1, 8, 32 and %u rows: %.3f %.3f %.3f %.3f\n", dtype_info[of[i]].name, n,
               one.instructions, few.instructions, some.instructions, many.instructions);
        cr_expect_eq(many.rows, PTX_MANY_ROWS);
        cr_expect_eq(some.rows, n == 64 ? PTX_MANY_ROWS : 32);
        if (some.rows == 32)
            check_loop(of[i], &some);
        check_loop(of[i], &few);
        check_loop(of[i], &many);
        cr_expect(!ptx_takes_q8(of[i]) || many.instructions < 0.25, "%s: %g", dtype_info[of[i]].name,
                  many.instructions);
        cr_expect(ptx_takes_q8(of[i]) || many.instructions > 1, "%s: an fma each", dtype_info[of[i]].name);
    }
}

// Only a kernel that reads or decodes weights more than once exceeds these bounds.
Test(ptx_cost, every_type_is_read_once_for_a_row)
{
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        struct product_cost c = cost_of(types[i], 1, 90);
        double x = ptx_takes_q8(types[i]) ? 1 : 4;
        check_loop(types[i], &c);
        cr_expect(c.bytes >= stored(types[i]) && c.bytes < stored(types[i]) + 2 * x + 1, "%s: %g bytes",
                  dtype_info[types[i]].name, c.bytes);
        cr_expect(c.instructions > (x > 1 ? 1 : 0.25) && c.instructions < 16, "%s: %g instructions",
                  dtype_info[types[i]].name, c.instructions);
    }
}

// On sm_75 tensor cores need four instructions for one of sm_80, and x is copied through registers.
Test(ptx_cost, older_cards_have_loops_of_their_own)
{
    static const enum dtype of[] = {DT_Q4_K, DT_F16};
    for (size_t i = 0; i < COUNT_OF(of); i++) {
        const uint32_t n = ptx_takes_q8(of[i]) ? 128 : 64;
        struct product_cost c = cost_of(of[i], n, 75);
        cr_expect(c.loop > cost_of(of[i], n, 80).loop);
        check_loop(of[i], &c);
    }
}

Test(ptx_cost, loops_are_counted_with_their_turns)
{
    // 3 iterations of 4 instructions, 2 of which are skipped 3 of 4 times, and 4 around them: (12 - 4.5 + 4) / 8; then
    // a cheaper loop
    static const char text[] = "    mov.u32 %a, 0;\n"
                               "STEP: // 8 products a turn\n"
                               "    .reg .u32 %b;\n"
                               "    // node 3\n"
                               "PART: // 3 turns\n"
                               "    @%p bra OVER; // 3 of 4 times\n"
                               "    {\n"
                               "    mov.u32 %b, 0;\n"
                               "    mov.u32 %b, 1;\n"
                               "    }\n"
                               "OVER:\n"
                               "    @%p bra PART;\n"
                               "    @%p bra AWAY;\n"
                               "    mov.u32 %b, 1;\n"
                               "AWAY:\n"
                               "    add.u32 %a, %a, 1;\n"
                               "    @%p bra STEP;\n"
                               "FORM_2: // 256 products a turn\n"
                               "    @%p bra FORM_2;\n"
                               "OPEN: // 2 products a turn\n"
                               "    ret;";
    cr_expect_float_eq(ptx_loop_cost((struct str){text, sizeof(text) - 1}), (12 - 4.5 + 4) / 8, 1e-12);
    cr_expect_eq(ptx_loop_cost(STR_LIT("    ret;\n")), 0);
}
