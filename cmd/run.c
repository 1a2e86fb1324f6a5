// quern run: answers a prompt, or continues a text, and writes the answer to stdout while it is generated.
#include "cmd/constraint_options.h"
#include "cmd/confine.h"
#include "cmd/load.h"
#include "cmd/run_output.h"
#include "cmd/run_prompt.h"
#include "cmd/sampling_options.h"
#include "cmd/speculation.h"
#include "cmd/terminal/terminal.h"
#include "engine/clock.h"

// What one run opens, in the order of opening.
struct run {
    struct run_prompt prompt;
    struct loaded l;
    struct speculation ahead;
    struct sampling sampling;
    struct constrained form;
    struct run_output out;
};

static void note_sampling(const struct sampler_params *p)
{
    struct text stages = {0};
    sampler_describe(p, &stages);
    load_note_text(&stages);
}

static void note_result(const struct generate_result *r)
{
    terminal_note("prompt: %d tokens in %.1f ms, %.2f tokens/s", r->n_prompt, r->prompt_ms,
                  per_second(r->n_prompt - r->n_reused, r->prompt_ms));
    terminal_note("answer: %lld tokens in %.1f ms, %.2f tokens/s; the first after %.1f ms; ended by: %s",
                  (long long)r->n_generated, r->generate_ms,
                  per_second((double)MAX(r->n_generated - 1, 0), r->generate_ms), r->first_ms,
                  stop_reason_name[r->reason]);
    if (r->n_drafted)
        terminal_note("drafted: %lld tokens, %lld of them accepted; %lld steps", (long long)r->n_drafted,
                      (long long)r->n_right, (long long)r->n_steps);
}

static int answer(struct run *run, const struct options *o, struct generate_result *r, struct error *err)
{
    struct generate_options g = {
        .prompt = run->prompt.tokens.ids,
        .n_prompt = (int)MIN(run->prompt.tokens.n, (size_t)INT32_MAX),
        .n_logprobs = o->given[OPT_logprobs] ? (int)o->logprobs : -1,
        .on_token = o->jsonl || o->given[OPT_logprobs] ? run_output_token : NULL,
        .on_prompt = run_output_prompt,
        .emit = run_output_text,
        .style = run->prompt.is_chat ? &run->prompt.style : NULL,
        .emit_aside = run_output_aside,
        .arg = &run->out,
        .rule = constrained_rule(&run->form),
        .speculator = run->ahead.speculator,
        .cancel = &terminal_interrupted,
    };
    sampling_apply(&run->sampling, o, &g);
    if (o->verbose)
        note_sampling(&g.sampler);
    run->out.o = o;
    run->out.loaded = &run->l;
    run->out.model = run->l.model;
    run->out.seed = g.sampler.seed;
    run->out.prompt = run->prompt.text;
    if (run_output_begin(&run->out, err) || generate(run->l.session, run->l.model, 0, &g, r, err))
        return -1;
    if (r->reason == STOP_OUTPUT) {
        *err = run->out.error;
        return -1;
    }
    return run_output_end(&run->out, r, err);
}

static int start(struct run *run, const struct options *o, struct error *err)
{
    if (o->given[OPT_logprobs] && !o->json && !o->jsonl)
        return fail(err, E_USAGE, "--logprobs: needs --json or --jsonl, for text has no room for them");
    if (o->json && o->jsonl)
        return fail(err, E_USAGE, "--json and --jsonl: one of them");
    if (!load_path(o, err) || run_prompt_read(&run->prompt, o, err) || load_model(&run->l, o, err) ||
        run_prompt_encode(&run->prompt, o, run->l.model, err) || sampling_take(&run->sampling, o, run->l.model, err) ||
        constrained_open(&run->form, o, run->l.model, &run->prompt.style, err))
        return -1;
    int64_t n_wanted = (int64_t)run->prompt.tokens.n + MAX(o->n_predict, 0);
    if (load_session(&run->l, o, n_wanted, speculation_rows(o), err))
        return -1;
    return speculation_open(&run->ahead, o, &run->l, err);
}

static int run_all(struct run *run, const struct options *o, struct error *err)
{
    struct generate_result r;
    if (start(run, o, err) || answer(run, o, &r, err))
        return -1;
    if (o->verbose)
        note_result(&r);
    const bool cut = (r.reason == STOP_CONTEXT || r.reason == STOP_LENGTH) && constrained_note_end(&run->form);
    if (r.reason == STOP_CONTEXT)
        terminal_note("quern: note: the context of %d tokens is full; -c sets its size", session_n_ctx(run->l.session));
    if (r.reason != STOP_INTERRUPTED && !cut)
        return 0;
    *err = (struct error){.code = cut ? E_ITEMS : E_INTERRUPTED}; // what there is to say has been said
    return -1;
}

int cmd_run(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    if (options_parse(&o, VERB_RUN, argc, argv, &err))
        return verb_fail(&err);
    confine(&o);
    struct run run = {0};
    int status = run_all(&run, &o, &err);
    if (!status)
        status = load_finish_taps(&run.l, &err);
    run_output_free(&run.out);
    constrained_close(&run.form);
    sampling_free(&run.sampling);
    speculation_close(&run.ahead);
    load_close(&run.l);
    run_prompt_free(&run.prompt);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
