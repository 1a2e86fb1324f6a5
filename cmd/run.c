// quern run: a prompt is continued, and the answer goes to stdout as it comes.
#include "cmd/input.h"
#include "cmd/load.h"
#include "cmd/sampling_options.h"
#include "cmd/speculation.h"
#include "cmd/terminal.h"

#include <stdlib.h>
#include <unistd.h>

// --- the prompt ---

// The prompt; what comes from a file or a pipe ends with a line end, which the model would take for that of a
// paragraph.
static int take_prompt(const struct options *o, char **data, struct str *prompt, struct error *err)
{
    if (input_take(o, "prompt", data, prompt, err))
        return -1;
    if (*data && prompt->len && prompt->data[prompt->len - 1] == '\n')
        prompt->len--;
    return 0;
}

// A text of nothing is started by bos, where the model has one.
static int tokenize(const struct model *m, struct str prompt, bool special, struct token_list *tokens,
                    struct error *err)
{
    unsigned flags = TOKENIZE_BOS | (special ? TOKENIZE_SPECIAL : 0);
    if (tokenizer_encode(m->tokenizer, prompt, flags, tokens, err))
        return -1;
    // what the file asks for behind a whole text does not stand before a continuation
    if (tokenizer_adds_eos(m->tokenizer) && tokens->n > 1)
        tokens->n--;
    if (tokens->n > 0)
        return 0;
    int32_t bos = tokenizer_role(m->tokenizer, TOKEN_BOS);
    if (bos < 0)
        return fail(err, E_USAGE, "an empty prompt, and the model has no token to begin a text with; give a prompt");
    return token_list_push(tokens, bos, err);
}

// --- the answer ---

// Where the answer goes: to stdout as it comes, and into a text, which --json prints.
struct sink {
    bool json;
    struct text text;
    struct error error;
};

static int take_text(void *arg, struct str text)
{
    struct sink *sink = arg;
    if (!text.len)  // the prompt is computed
        terminal_set_phase(PHASE_ANSWERING);
    text_append(&sink->text, text);
    if (sink->json)
        return sink->text.failed ? fail(&sink->error, E_MEMORY, "no memory for the answer") : 0;
    return terminal_write_untrusted(text, &sink->error);
}

// A shell's prompt begins a line.
static int end_line(const struct sink *sink, struct error *err)
{
    bool ends = !sink->text.size || sink->text.data[sink->text.size - 1] == '\n';
    return sink->json || ends || !terminal_is_tty(STDOUT_FILENO) ? 0 : terminal_write(STR_LIT("\n"), err);
}

static double per_second(double n, double ms)
{
    return ms > 0 ? n * 1e3 / ms : 0;
}

static int print_json(const struct loaded *l, const struct generate_result *r, const struct sampler_params *p,
                      const struct sink *sink, struct error *err)
{
    struct text out = {0};
    text_print(&out, "{\"text\": ");
    terminal_print_json(&out, (struct str){sink->text.data, sink->text.size});
    text_print(&out, ", \"prompt_tokens\": %d, \"tokens\": %lld, \"stop_reason\": \"%s\", \"timings\": {", r->n_prompt,
               (long long)r->n_generated, stop_reason_name[r->reason]);
    text_print(&out, "\"load_ms\": %.3f, \"prompt_ms\": %.3f, \"prompt_per_second\": %.3f, ", l->model->load_ms,
               r->prompt_ms, per_second(r->n_prompt - r->n_reused, r->prompt_ms));
    text_print(&out, "\"predicted_ms\": %.3f, \"predicted_per_second\": %.3f, \"ttft_ms\": %.3f}, \"model\": ",
               r->generate_ms, per_second((double)r->n_steps, r->generate_ms), r->first_ms);
    terminal_print_json(&out, str_from(gguf_path(l->model->file, 0)));
    text_print(&out, ", \"seed\": %llu}\n", (unsigned long long)p->seed);
    int status = out.failed ? fail(err, E_MEMORY, "no memory for the answer")
                            : terminal_write((struct str){out.data, out.size}, err);
    text_free(&out);
    return status;
}

static void note_result(const struct generate_result *r)
{
    terminal_note("prompt: %d tokens in %.1f ms, %.2f tokens/s", r->n_prompt, r->prompt_ms,
                  per_second(r->n_prompt - r->n_reused, r->prompt_ms));
    terminal_note("answer: %lld tokens in %.1f ms, %.2f tokens/s; the first after %.1f ms; ended by: %s",
                  (long long)r->n_generated, r->generate_ms, per_second((double)r->n_steps, r->generate_ms),
                  r->first_ms, stop_reason_name[r->reason]);
    if (r->n_guessed)
        terminal_note("guessed ahead: %lld tokens, %lld of them right; %lld steps", (long long)r->n_guessed,
                      (long long)r->n_right, (long long)r->n_steps);
}

static int answer(const struct loaded *l, const struct speculation *ahead, const struct options *o,
                  const struct token_list *prompt, struct error *err)
{
    struct sink sink = {.json = o->json};
    struct generate_result r;
    struct sampling sampling = {0};
    struct generate_options g = {
        .prompt = prompt->ids,
        .n_prompt = (int)MIN(prompt->n, (size_t)INT32_MAX),
        .n_logprobs = -1,
        .emit = take_text,
        .arg = &sink,
        .speculator = ahead->speculator,
        .cancel = &terminal_interrupted,
    };
    int status = sampling_take(&sampling, o, l->model, err);
    sampling_apply(&sampling, o, &g);
    struct text stages = {0};
    if (!status && o->verbose)
        sampler_describe(&g.sampler, &stages);
    load_note_text(&stages);
    if (!status)
        status = generate(l->session, l->model, 0, &g, &r, err);
    if (!status && r.reason == STOP_OUTPUT) {
        *err = sink.error;
        status = -1;
    }
    if (!status)
        status = o->json ? print_json(l, &r, &g.sampler, &sink, err) : end_line(&sink, err);
    if (!status && o->verbose)
        note_result(&r);
    if (!status && r.reason == STOP_CONTEXT)
        terminal_note("quern: note: the context of %d tokens is full; -c sets its size", session_n_ctx(l->session));
    if (!status && r.reason == STOP_INTERRUPTED) {
        *err = (struct error){.code = E_INTERRUPTED};
        status = -1;
    }
    sampling_free(&sampling);
    text_free(&sink.text);
    return status;
}

static int run(const struct options *o, struct error *err)
{
    struct loaded l = {0};
    struct speculation ahead = {0};
    struct token_list tokens = {0};
    char *data = NULL;
    struct str prompt;
    int status = load_path(o, err) ? take_prompt(o, &data, &prompt, err) : -1;
    if (!status)
        status = load_model(&l, o, err);
    if (!status)
        status = tokenize(l.model, prompt, o->special, &tokens, err);
    if (!status)
        status = load_session(&l, o, (int64_t)tokens.n + MAX(o->n_predict, 0), speculation_rows(o), err);
    if (!status)
        status = speculation_open(&ahead, o, &l, err);
    if (!status)
        status = answer(&l, &ahead, o, &tokens, err);
    token_list_free(&tokens);
    speculation_close(&ahead);
    load_close(&l);
    free(data);
    return status;
}

int cmd_run(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    if (options_parse(&o, VERB_RUN, argc, argv, &err))
        return verb_fail(&err);
    int status = run(&o, &err);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
