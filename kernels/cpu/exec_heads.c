// Operations on an item whose columns are heads: so far a gate for each head.
#include "kernels/cpu/item_access.h"

// The gates of a row go through the activation into the scratch, and then each multiplies its head.
void do_head_glu(const struct item *it, const struct tensor *n)
{
    const struct kernels *k = it->run->k;
    const int64_t heads = n->src[0]->width, dim = n->width / heads;
    float *gates = (void *)it->local;
    _Static_assert(GATED_HEADS_MAX * sizeof(float) <= SCRATCH_BYTES, "the gates of a row fit a thread's scratch");
    for (int row = it->row0; row < it->row1; row++) {
        k->act(n->p.act.kind, at(it, n->src[0], row, 0), gates, heads);
        for (int64_t h = 0; h < heads; h++)
            k->scale(at(it, n->src[1], row, h * dim), gates[h], at(it, n, row, h * dim), dim);
    }
}
