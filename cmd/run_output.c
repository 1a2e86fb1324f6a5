// --jsonl writes each event as a line at once and collects only the text and the reasoning; --json collects
// everything, with the tokens already in their JSON form, and writes one object at the end. Text for people goes
// through wrap_write, which filters it and breaks its lines if stdout is a terminal.
#include "cmd/run_output.h"
#include "cmd/terminal/terminal.h"
#include "engine/clock.h"

#include <unistd.h>

// Writes the finished line, or the part of an object collected so far, and empties the buffer.
static int flush(struct text *line, struct error *err)
{
    int status = line->failed ? fail(err, E_MEMORY, "no memory for the answer")
                              : terminal_write_json((struct str){line->data, line->size}, err);
    text_free(line);
    return status;
}

// --- tokens ---

static void print_bytes(struct text *out, struct str piece)
{
    text_print(out, ", \"bytes\": [");
    for (size_t i = 0; i < piece.len; i++)
        text_print(out, "%s%d", i ? ", " : "", (uint8_t)piece.data[i]);
    text_print(out, "]");
}

// Appends the members of a token's JSON object. If its bytes are not whole UTF-8 characters, they are given as
// numbers as well.
static void print_token(struct text *out, int32_t id, struct str piece)
{
    text_print(out, "\"id\": %d, \"token\": ", id);
    terminal_print_json(out, piece);
    if (!utf8_valid(piece))
        print_bytes(out, piece);
}

static void print_logprobs(const struct run_output *o, struct text *out, const struct generate_token *token)
{
    text_print(out, ", \"logprob\": %.7g, \"top_logprobs\": [", (double)token->logprob);
    for (int i = 0; i < token->n_top; i++) {
        text_print(out, "%s{", i ? ", " : "");
        print_token(out, token->top[i].id, tokenizer_piece(o->model->tokenizer, token->top[i].id, true));
        text_print(out, ", \"logprob\": %.7g}", (double)token->top[i].logit);
    }
    text_print(out, "]");
}

int run_output_token(void *arg, const struct generate_token *token)
{
    struct run_output *out = arg;
    struct text line = {0}, *to = out->o->jsonl ? &line : &out->tokens;
    if (out->o->jsonl)
        text_print(to, "{\"type\": \"token\", \"index\": %lld, ", (long long)token->index);
    else
        text_print(to, "%s{", out->tokens.size ? ", " : "");
    print_token(to, token->id, token->piece);
    if (out->o->given[OPT_logprobs])
        print_logprobs(out, to, token);
    text_print(to, out->o->jsonl ? "}\n" : "}");
    if (out->o->jsonl)
        return flush(&line, &out->error);
    return to->failed ? fail(&out->error, E_MEMORY, "no memory for the answer") : 0;
}

// --- text ---

static void print_start(const struct run_output *out, struct text *line)
{
    text_print(line, "{\"type\": \"start\", \"model\": ");
    terminal_print_json(line, str_from(out->loaded->name));
    text_print(line, ", \"seed\": %llu", (unsigned long long)out->seed);
    if (out->o->echo) {
        text_print(line, ", \"prompt\": ");
        terminal_print_json(line, out->prompt);
    }
    text_print(line, "}\n");
}

int run_output_begin(struct run_output *out, struct error *err)
{
    struct text line = {0};
    if (out->o->jsonl) {
        print_start(out, &line);
        return flush(&line, err);
    }
    wrap_begin(&out->wrap, !out->o->no_wrap);
    return out->o->echo && !out->o->json ? wrap_write(&out->wrap, out->prompt, err) : 0;
}

void run_output_prompt(void *arg, bool over)
{
    struct run_output *out = arg;
    load_show_prompt(out->loaded, over);
}

static int write_line(struct run_output *out, const char *type, struct str text)
{
    struct text line = {0};
    text_print(&line, "{\"type\": \"%s\", \"text\": ", type);
    terminal_print_json(&line, text);
    text_print(&line, "}\n");
    return flush(&line, &out->error);
}

int run_output_aside(void *arg, enum answer_part part, struct str text)
{
    struct run_output *out = arg;
    text_append(&out->reasoning, text);
    if (out->reasoning.failed)
        return fail(&out->error, E_MEMORY, "no memory for the answer");
    if (out->o->jsonl)
        return write_line(out, part == ANSWER_REASONING ? "reasoning" : "tool_calls", text);
    if (out->o->json || out->o->hide_thinking || !terminal_is_tty(STDOUT_FILENO))
        return 0;
    out->is_aside = true;
    if (terminal_write(STR_LIT("\x1b[2m"), &out->error) || wrap_write(&out->wrap, text, &out->error))
        return -1;
    return terminal_write(STR_LIT("\x1b[0m"), &out->error);
}

int run_output_text(void *arg, struct str text)
{
    struct run_output *out = arg;
    if (!text.len) { // an empty text means that the prompt has been computed
        terminal_set_phase(PHASE_ANSWERING);
        return 0;
    }
    text_append(&out->text, text);
    if (out->text.failed)
        return fail(&out->error, E_MEMORY, "no memory for the answer");
    if (out->o->json)
        return 0;
    if (out->o->jsonl)
        return write_line(out, "text", text);
    if (out->is_aside && wrap_write(&out->wrap, STR_LIT("\n\n"), &out->error))
        return -1;
    out->is_aside = false;
    return wrap_write(&out->wrap, text, &out->error);
}

// --- the end ---

static void print_counts(const struct run_output *out, struct text *line, const struct generate_result *r)
{
    double more = (double)MAX(r->n_generated - 1, 0); // the first token was computed together with the prompt
    text_print(line, "\"prompt_tokens\": %d, \"reused_tokens\": %d, \"tokens\": %lld, \"stop_reason\": \"%s\"",
               r->n_prompt, r->n_reused, (long long)r->n_generated, stop_reason_name[r->reason]);
    text_print(line, ", \"timings\": {\"load_ms\": %.3f, \"prompt_ms\": %.3f, \"prompt_per_second\": %.3f",
               out->model->load_ms, r->prompt_ms, per_second(r->n_prompt - r->n_reused, r->prompt_ms));
    text_print(line, ", \"predicted_ms\": %.3f, \"predicted_per_second\": %.3f, \"ttft_ms\": %.3f", r->generate_ms,
               per_second(more, r->generate_ms), r->first_ms);
    text_print(line, ", \"steps\": %lld, \"draft_n\": %lld, \"draft_n_accepted\": %lld}", (long long)r->n_steps,
               (long long)r->n_drafted, (long long)r->n_right);
}

static void print_object(const struct run_output *out, struct text *object, const struct generate_result *r)
{
    text_print(object, "{\"text\": ");
    terminal_print_json(object, (struct str){out->text.data, out->text.size});
    if (out->reasoning.size) {
        text_print(object, ", \"reasoning\": ");
        terminal_print_json(object, (struct str){out->reasoning.data, out->reasoning.size});
    }
    if (out->o->echo) {
        text_print(object, ", \"prompt\": ");
        terminal_print_json(object, out->prompt);
    }
    if (out->o->given[OPT_logprobs]) {
        text_print(object, ", \"logprobs\": [");
        text_append(object, (struct str){out->tokens.data, out->tokens.size});
        text_print(object, "]");
    }
    text_print(object, ", ");
    print_counts(out, object, r);
    text_print(object, ", \"model\": ");
    terminal_print_json(object, str_from(out->loaded->name));
    text_print(object, ", \"seed\": %llu}\n", (unsigned long long)out->seed);
}

int run_output_end(struct run_output *out, const struct generate_result *r, struct error *err)
{
    struct text last = {0};
    if (out->o->jsonl) {
        text_print(&last, "{\"type\": \"end\", ");
        print_counts(out, &last, r);
        text_print(&last, "}\n");
        return flush(&last, err);
    }
    if (out->o->json) {
        print_object(out, &last, r);
        return flush(&last, err);
    }
    // the shell's next prompt, and what a pipe's reader appends, must start on a line of its own
    const bool ends = !out->is_aside && (!out->text.size || out->text.data[out->text.size - 1] == '\n');
    return ends ? 0 : terminal_write(STR_LIT("\n"), err);
}

void run_output_free(struct run_output *out)
{
    text_free(&out->text);
    text_free(&out->reasoning);
    text_free(&out->tokens);
}
