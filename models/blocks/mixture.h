// A mixture of experts in place of a feed-forward: each row chooses some experts, and their outputs are added up.
#ifndef QUERN_BLOCKS_MIXTURE_H
#define QUERN_BLOCKS_MIXTURE_H

#include "models/build.h"

struct experts {
    int n, n_used; // number of experts, and of those used per token; n is 0 if the model has none
    int n_ff;      // width of an expert; 0: the width of the layer's feed-forward
    enum route_kind route;
    bool normalise;            // the weights of the chosen experts are divided by their sum
    float scale;               // of the weights of the chosen experts
    bool unscaled;             // the scales of the matrices are ignored
    int n_group, n_group_used; // experts are chosen from the best groups; 0: there are no groups
    float limit;               // of the factors of the gated units, see gated_unit; 0: there is none
    bool chosen_by_bias;       // exp_probs_b, if the file has it, is added for the choice
};

// Reads the number of experts, the number used, the scale of their weights, and the groups. Presets a normalised
// softmax.
struct experts experts_read(struct build *b);
// The same for a family that has no other feed-forward: a file without experts is refused.
struct experts experts_require(struct build *b);
// Reads the width of an expert; without that key, the width of the feed-forward is divided by the number of experts
// used.
void experts_read_width(struct build *b, struct experts *e);

// Reads by what experts are chosen and weighted: softmax or sigmoid, where `fallback` is what a missing key means, and
// whether the weights are divided by their sum. Biases count.
void experts_read_choice(struct build *b, struct experts *e, enum route_kind fallback);

// down (act(gate x) * up x) of each chosen expert, weighted: (n, n_embd).
struct tensor *mixture(struct build *b, struct tensor *x, const struct experts *e, enum act_kind act);
// The same, where the weights multiply what goes into the experts, and their outputs are added as they are.
struct tensor *mixture_weighed_before(struct build *b, struct tensor *x, const struct experts *e, enum act_kind act);
// The same, where the experts of a row are chosen by `seen`, another value of it.
struct tensor *mixture_chosen_by(struct build *b, struct tensor *seen, struct tensor *x, const struct experts *e,
                                 enum act_kind act);
// y, the output of the mixture, plus that of an expert of n_ff columns that all rows use: (n, n_embd).
struct tensor *shared_expert(struct build *b, struct tensor *x, struct tensor *y, int n_ff, enum act_kind act,
                             enum scaled scaled);

// The same with SiLU, no scales, and a limit of the factors of its gated unit; 0: there is none.
struct tensor *shared_expert_within(struct build *b, struct tensor *x, struct tensor *y, int n_ff, float limit);

// The same, where the expert's output is multiplied in each row by a sigmoid, the product of x with one more column.
struct tensor *gated_shared_expert(struct build *b, struct tensor *x, struct tensor *y, int n_ff, enum act_kind act,
                                   enum scaled scaled);
// down act(up x) of each expert that `seen` chooses, weighted: the shape of x.
struct tensor *mixture_plain(struct build *b, struct tensor *seen, struct tensor *x, const struct experts *e,
                             enum act_kind act);

#endif
