// The feed-forward of a layer, between its norm and its residual: (n, n_embd) to (n, n_embd).
#ifndef QUERN_BLOCKS_FEED_FORWARD_H
#define QUERN_BLOCKS_FEED_FORWARD_H

#include "models/build.h"

// down (act(gate x) * up x), with n_ff columns inside. `scaled` tells what the scales of the matrices multiply.
struct tensor *feed_forward(struct build *b, struct tensor *x, int n_ff, enum act_kind act, enum scaled scaled);
// The same with gate and up in one matrix, ffn_up.
struct tensor *feed_forward_fused(struct build *b, struct tensor *x, int n_ff, enum act_kind act);
// down act(up x)
struct tensor *feed_forward_plain(struct build *b, struct tensor *x, int n_ff, enum act_kind act);

#endif
