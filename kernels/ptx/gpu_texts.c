// Shows the kernels that a machine has loaded: their PTX, their number of users, and an estimate of their cost.
#include "kernels/card.h"
#include "kernels/ptx/gpu.h"
#include "kernels/ptx/loop_cost.h"

bool card_kernel(const struct machine *m, int i, struct card_kernel *out)
{
    const struct gpu *g = (const struct gpu *)m;
    if (i < 0 || i >= g->n_kernels)
        return false;
    const struct gpu_kernel *k = g->kernels[i];
    *out = (struct card_kernel){.text = {k->text, k->text_size},
                                .name = k->launch.entry,
                                .users = k->users,
                                .per_product = ptx_loop_cost((struct str){k->text, k->text_size}),
                                .threads = k->launch.block[0] * k->launch.block[1] * k->launch.block[2]};
    return true;
}
