// The choice of a type for each tensor of a model that is quantised. It is the choice that llama-quantize makes.
//
// A mix has one type for most tensors. Tensors that lose most from it get more bits: the output and the embeddings, the
// values of attention, and the down projections of the first and the last layers. Layers are counted in the order of
// layer and name, whatever the order of the tensors in the file. When the rows of a tensor are not a multiple of the
// block of its type, it gets a type with a smaller block, or F16 (llama-quantize fails where it has no such type).
// Ownership: the choices are in an array of the caller. Threads: any; no state is shared.
#ifndef QUERN_QUANTIZE_MIX_H
#define QUERN_QUANTIZE_MIX_H

#include "gguf/gguf.h"

enum mix {
#define MIX(NAME, ...) MIX_##NAME,
#include "engine/quantize/quantize_mix.def"
#undef MIX
    MIX_COUNT
};
struct mix_info {
    const char *name;
    int file_type;   // general.file_type; -1: unchanged
    enum dtype type; // of most tensors
    const char *about;
};
extern const struct mix_info mix_info[MIX_COUNT];
// Finds a mix by its name, in upper or lower case. Q3_K, Q4_K and Q5_K stand for the mixes with _M. -1 when there is
// none.
int mix_from_name(const char *name, enum mix *out);

// Sets the type of the tensors in whose names the pattern, an extended regular expression, is found.
struct type_override {
    const char *pattern;
    enum dtype type;
};
struct mix_options {
    enum mix mix;
    bool pure;                       // use the type of the mix for all tensors
    bool leave_output;               // do not convert output.weight
    bool has_importance;             // there is an importance matrix, which changes some choices
    int output_type, embedding_type; // enum dtype; -1: the choice of the mix
    const struct type_override *overrides;
    int n_overrides;
};

struct mix_choice {
    enum dtype type;       // equal to the present type when the tensor is not converted
    enum dtype wanted;     // the choice of the mix; differs from `type` when the rows do not fit it
    bool needs_importance; // without an importance matrix the result would be useless
};
// Fills choices[gguf_n_tensors]. E_USAGE for an invalid pattern, E_MODEL for invalid metadata, E_MEMORY.
int mix_choose(const struct gguf *g, const struct mix_options *o, struct mix_choice *choices, struct error *err);

#endif
