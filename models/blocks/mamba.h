// Mamba 1 and 2 (Gu and Dao 2023, arXiv 2312.00752; Dao and Gu 2024, arXiv 2405.21060), in place of attention: a short
// convolution and a selective scan, whose state is what a sequence remembers.
#ifndef QUERN_BLOCKS_MAMBA_H
#define QUERN_BLOCKS_MAMBA_H

#include "models/build.h"

struct mamba {
    int inner;        // columns of the scan
    int n_state;      // floats of a column's state
    int rank;         // Mamba 1: columns from which dt is made; Mamba 2: heads
    int n_group;      // Mamba 2: groups of heads that share B and C
    int kernel;       // rows that the convolution sees
    bool plain_norms; // Mamba 1: dt, B and C are normalised without gains
};

// Reads the keys ssm.*.
struct mamba mamba_read(struct build *b);
struct mamba mamba2_read(struct build *b);
// Mamba 1: projection, convolution, scan, gate: (n_tok, inner).
struct tensor *mamba(struct build *b, struct tensor *x, const struct mamba *m);
// Mamba 2, with a norm of each group at its end if the file has one: (n_tok, inner).
struct tensor *mamba2(struct build *b, struct tensor *x, const struct mamba *m);

#endif
