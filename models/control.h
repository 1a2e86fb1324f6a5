// Control vectors: directions that are added to the residual stream behind layers, to steer what a model writes (Zou et al.
// 2023, arXiv 2310.01405). A file of them has a tensor direction.N, F32 and as long as a row of the model, for each layer N
// that it steers, counted from 0; layer 0 never has one.
//
// Ownership: sums are in the arena; the files must stay open only while they are read. Threads: one at a time.
#ifndef QUERN_CONTROL_H
#define QUERN_CONTROL_H

#include "models/weights.h"

struct control_range {
    int first, last; // layers that are steered, both included; 0: from the first that can be, and to the last one
};

struct control {
    struct weight **behind; // [n] what is added behind each layer, F32; NULL: nothing
    bool *used;             // [n] whether control_behind was asked
    int n;                  // one more than the last layer that is steered
};

// Adds up the vectors of all files, each times its scale. `arch` is the family of the model. E_MODEL names the file and the
// tensor that is no direction, is too long or short, or is not finite, or the family that the file was made for.
int control_read(struct control *c, const struct adapter *vectors, int n, struct control_range range, int64_t n_embd,
                 const char *arch, struct arena *arena, struct error *err);
// What is added behind a layer; NULL: nothing.
const struct weight *control_behind(struct control *c, int layer);
// E_MODEL if a direction belongs to a layer that the model does not have, or to a family that cannot be steered.
int control_check_used(const struct control *c, const char *arch, int n_layer, struct error *err);

#endif
