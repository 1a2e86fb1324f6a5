// The feed-forward of a layer, between its norm and its residual: (n, n_embd) to (n, n_embd).
#ifndef QUERN_BLOCKS_FEED_FORWARD_H
#define QUERN_BLOCKS_FEED_FORWARD_H

#include "models/build.h"

// down (act(gate x) * up x), with n_ff columns inside. `scaled` tells what the scales of the matrices multiply.
struct tensor *feed_forward(struct build *b, struct tensor *x, int n_ff, enum act_kind act, enum scaled scaled);
// The same with gate and up in one matrix, ffn_up.
struct tensor *feed_forward_fused(struct build *b, struct tensor *x, int n_ff, enum act_kind act);
// act(gate) * up or, with a limit above 0, min(act(gate), limit) * up, where up is within -limit .. limit. act must not give
// less than -limit.
struct tensor *gated_unit(struct build *b, const char *name, struct tensor *gate, struct tensor *up, enum act_kind act,
                          float limit);
// down (silu(gate x) * up x) with a limit of both factors; 0: there is none.
struct tensor *feed_forward_within(struct build *b, struct tensor *x, int n_ff, float limit);
// down act(up x)
struct tensor *feed_forward_plain(struct build *b, struct tensor *x, int n_ff, enum act_kind act);

#endif
