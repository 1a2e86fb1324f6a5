// The lookup in earlier text is always part of the speculator; a draft model is loaded with the flags of the target
// and the same context size. Nothing is opened with --speculate off, with --draft-max 0 or with OpenBLAS.
#include "cmd/speculation.h"
#include "cmd/terminal/terminal.h"

enum { SPECULATE_AUTO, SPECULATE_ON, SPECULATE_OFF };

// Whether to speculate. With OpenBLAS the logits of several rows may differ in the last bits from those of one row,
// and so the text might change.
static bool wanted(const struct options *o)
{
    return o->speculate != SPECULATE_OFF && o->draft_max > 0 && !o->blas;
}

int speculation_rows(const struct options *o)
{
    return wanted(o) ? 1 + (int)o->draft_max : 1;
}

static int open_draft(struct speculation *s, const struct options *o, const struct loaded *l, struct error *err)
{
    struct options draft = *o;
    draft.model = o->draft_model;
    // adapters and keys are those of the model that answers
    draft.loras.n = draft.controls.n = draft.overrides.n = 0;
    draft.given[OPT_rope_scaling] = draft.given[OPT_rope_freq_base] = draft.given[OPT_rope_freq_scale] = false;
    draft.given[OPT_rope_scale] = draft.given[OPT_yarn_orig_ctx] = false;
    draft.n_ctx = session_n_ctx(l->session);
    if (load_model(&s->draft, &draft, err) || load_session(&s->draft, &draft, 0, 1, err))
        return fail_prefix(err, "-md");
    return speculate_check_vocab(l->model->tokenizer, s->draft.model->tokenizer, err);
}

int speculation_open(struct speculation *s, const struct options *o, const struct loaded *l, struct error *err)
{
    if (!wanted(o))
        return 0;
    if (o->draft_model && open_draft(s, o, l, err))
        return -1;
    struct speculate_options options = {
        .lookup = true,
        .draft = s->draft.session,
        .draft_model = s->draft.model,
        .most = (int)o->draft_max,
        .least = (int)o->draft_min,
        .p_min = (float)o->draft_p_min,
        .always = o->speculate == SPECULATE_ON,
    };
    return speculator_new(&s->speculator, &options, session_n_ctx(l->session), err);
}

void speculation_close(struct speculation *s)
{
    speculator_free(s->speculator);
    load_close(&s->draft);
    *s = (struct speculation){0};
}
