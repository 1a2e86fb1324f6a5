// Which type each tensor of a model gets when it is quantised: the same choice as llama-quantize's, tensor by tensor.
//
// A mix has a type for most tensors. Those that suffer most from it get more bits: the output and the embeddings, the
// values of attention, the down projection in the first and the last layers. The counts by layer go by the tensors in
// order of layer and name, whatever their order in the file. Rows that are no multiple of a type's block get a type
// with a smaller block, or F16 (llama-quantize refuses where it knows no such type).
// Ownership: the file outlives the plan, whose arrays are the caller's to free. Threads: none shared.
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
    int file_type;   // general.file_type; -1: as it was
    enum dtype type; // of most tensors
    const char *about;
};
extern const struct mix_info mix_info[MIX_COUNT];
// By name in either case, also Q3_K, Q4_K, Q5_K for their _M; -1 when there is none.
int mix_from_name(const char *name, enum mix *out);

// Tensors whose name matches the pattern (an extended regular expression found anywhere in it) get the type.
struct type_override {
    const char *pattern;
    enum dtype type;
};
struct mix_options {
    enum mix mix;
    bool pure;                       // the mix's type for all
    bool leave_output;               // output.weight as it is
    bool has_importance;             // an importance matrix is at hand, which changes some choices
    int output_type, embedding_type; // enum dtype, -1: the mix's
    const struct type_override *overrides;
    int n_overrides;
};

struct mix_choice {
    enum dtype type;       // equal to the tensor's own where it stays as it is
    enum dtype wanted;     // other than type where the rows do not fit
    bool needs_importance; // the result would be useless without
};
// Fills choices[gguf_n_tensors]. E_USAGE for a pattern that is no expression, E_MODEL, E_MEMORY.
int mix_choose(const struct gguf *g, const struct mix_options *o, struct mix_choice *choices, struct error *err);

#endif
