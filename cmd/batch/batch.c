// quern batch: answers a file of prompts row by row, many at once. A run can be resumed wherever it stopped.
#include "cmd/batch/batch_embed.h"
#include "cmd/batch/batch_ids.h"
#include "cmd/batch/batch_interrupt.h"
#include "cmd/batch/batch_job.h"
#include "cmd/batch/batch_merge.h"
#include "cmd/batch/batch_output.h"
#include "cmd/batch/batch_shard.h"
#include "cmd/batch/batch_tally.h"
#include "cmd/confine.h"
#include "cmd/load.h"
#include "cmd/terminal/progress.h"
#include "cmd/terminal/terminal.h"
#include "engine/clock.h"
#include "engine/file_replace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct batch {
    const struct options *o;
    struct options named; // the flags with the name of this shard's output
    char *out_path;
    struct batch_shard shard;
    struct loaded l;
    struct sampling sampling;
    struct batch_context context;
    struct batch_input input;
    struct batch_survey survey;
    struct row_form form;
    struct arena arena; // holds the names of columns
    struct batch_manifest manifest;
    struct batch_output *output;
    struct scheduler *scheduler; // NULL: the rows are embedded
    struct batch_embed embed;
    struct batch_job *jobs; // jobs that the scheduler or the embedder has
    struct batch_ids ids;
    // progress
    bool ended;    // all records have been read
    bool stopping; // no new rows are begun
    bool too_many_errors;
    int64_t n_fed, n_rows; // records of this shard that were read in this run; records that are done
    int64_t n_errors;      // of the records that are done
    char first_error[160]; // the reason of the first of them, cut
    int64_t n_bad_calls;   // tool calls that could not be read
    int64_t n_cut;         // rows of embeddings with a text that was cut
    uint64_t fed_bytes;    // bytes of this shard's records that were computed
    uint64_t left_bytes;   // bytes of this shard's records that are not done, roughly
    int64_t n_prompt_fed;  // tokens of the prompts of fed records
    double start_ms;
    struct progress bar;
};

enum {
    WINDOW_LEAST = 1024,
    SCORED_ROWS = 64, // rows of a step that can have logits, for prompts whose log-probabilities are wanted
};

// What --as says, by the order of its words in options.def.
enum { AS_AUTO, AS_COMPLETION, AS_CHAT, AS_EMBEDDING };

// --- opening ---

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? strndup(path, MAX((size_t)(slash - path), 1u)) : strdup(".");
}

static int check_usage(const struct options *o, struct error *err)
{
    if (o->args.n > 1)
        return fail(err, E_USAGE, "%s: a second input; one run takes one", o->args.at[1]);
    if (!o->args.n && terminal_is_tty(STDIN_FILENO))
        return fail(err, E_USAGE, "no input: give a file, or - for stdin");
    if (!o->out && !o->dry_run)
        return fail(err, E_USAGE, "no output: name one with -o FILE; -o - is stdout, and cannot be resumed");
    return 0;
}

static int open_input(struct batch *b, struct error *err)
{
    const char *path = b->o->args.n ? b->o->args.at[0] : "-";
    char *folder = folder_of(b->out_path ? b->out_path : "-");
    int status = folder ? batch_input_open(&b->input, path, folder, (enum batch_format)b->o->format, err)
                        : fail(err, E_MEMORY, "no memory for a path");
    free(folder);
    return status ? -1 : batch_input_survey(&b->input, &b->survey, err);
}

// Sets how rows are read where they do not say it themselves. The header of CSV and TSV is read here, and is not a
// row.
static void open_form(struct batch *b)
{
    const bool embeds = b->l.model->hidden;
    bool chats = b->o->as == AS_CHAT || (b->o->as == AS_AUTO && batch_context_chats(&b->context));
    b->form = (struct row_form){.format = b->input.format,
                                .kind = embeds  ? ROW_EMBEDDING
                                        : chats ? ROW_CHAT
                                                : ROW_COMPLETION,
                                .ignore_unknown = b->o->ignore_unknown};
    if (b->o->form)
        b->form.prompt = str_from(b->o->form);
    if (b->o->system)
        b->form.system = str_from(b->o->system);
}

static int begin_input(struct batch *b, struct error *err)
{
    struct record header;
    if (batch_input_rewind(&b->input, err))
        return -1;
    b->ended = false;
    if (b->form.format != FORMAT_CSV && b->form.format != FORMAT_TSV)
        return 0;
    int got = batch_input_next(&b->input, &header, err);
    if (got < 0)
        return -1;
    if (!got)
        return fail(err, E_USAGE, "%s: empty, where a header of columns is wanted", b->input.path);
    b->input.n_records = 0; // the header is not a row
    return batch_row_columns(&header, b->form.format, &b->arena, &b->form.fields, &b->form.n_fields, err);
}

// The limit of the KV cache: half of the free memory, because the weights should stay in memory as well.
static uint64_t kv_limit(const struct batch *b)
{
    struct memory_free free_now;
    if (b->o->kv_memory)
        return (uint64_t)b->o->kv_memory;
    memory_query("", &free_now);
    uint64_t weights = b->l.model->weights_are_mapped ? (uint64_t)b->l.model->info.weight_bytes : 0;
    uint64_t room = MIN(free_now.bytes, free_now.address_space);
    return room > weights ? MAX((room - weights) / 2, 1u) : 1;
}

static int open_session(struct batch *b, struct error *err)
{
    int rows = (int)MIN(b->o->batch, b->o->ubatch);
    int n_seqs = (int)MIN(b->o->parallel, (int64_t)rows);
    n_seqs = (int)MIN(n_seqs, MAX(b->survey.n_records, 1) * ROW_SAMPLES_MOST);
    struct session_options options = {
        .n_seqs = n_seqs,
        .n_batch = rows,
        .n_outputs = MAX(n_seqs, MIN(rows, SCORED_ROWS)),
        .kv_type = {b->o->kv_key, b->o->kv_value},
        .kv_limit = kv_limit(b),
    };
    if (session_open(&b->l.session, b->l.model, &options, err) ||
        scheduler_new(&b->scheduler, b->l.session, b->l.model, n_seqs, err))
        return -1;
    struct text text = {0};
    if (b->o->verbose)
        session_describe(b->l.session, &text);
    load_note_text(&text);
    return 0;
}

// The fingerprint of the model and of its adapters.
static int digest_all(const struct model *m, struct digest_value *out, struct error *err)
{
    struct digest d = {0};
    struct digest_value part;
    if (digest_model(m->file, out, err))
        return -1;
    digest_add(&d, out, sizeof *out);
    for (int i = 0; i < m->n_adapters; i++) {
        if (digest_model(m->adapter_files[i], &part, err))
            return -1;
        digest_add(&d, &part, sizeof part);
    }
    *out = m->n_adapters ? digest_end(&d) : *out;
    return 0;
}

static int open_output(struct batch *b, struct error *err)
{
    struct digest_value model;
    struct stat st;
    bool is_file = strcmp(b->out_path, "-") != 0 && (stat(b->out_path, &st) || S_ISREG(st.st_mode)), is_new = false;
    uint64_t size = is_file && !stat(b->out_path, &st) ? (uint64_t)st.st_size : 0;
    struct batch_output_options options = {
        .path = b->out_path,
        .n_records = b->survey.n_records,
        .ordered = !b->o->unordered,
        .retry_errors = b->o->retry_errors,
        .trusts = b->o->force,
        .shard = b->shard,
        .window = MAX(WINDOW_LEAST, 8 * (int)b->o->parallel),
    };
    if (digest_all(b->l.model, &model, err) ||
        batch_manifest_make(&b->manifest, b->o, model, &b->survey, b->shard, err))
        return -1;
    if (is_file && (batch_manifest_check(&b->manifest, b->out_path, size, b->o->force, &is_new, err) ||
                    batch_output_check_path(b->out_path, err)))
        return -1;
    b->context.now = b->manifest.started;
    // the output is opened first: its lock keeps a second process away
    if (batch_output_open(&b->output, &options, err))
        return -1;
    return is_new ? batch_manifest_write(&b->manifest, b->out_path, err) : 0;
}

// A model that is made for embeddings embeds, unless the flags say otherwise.
static int load_for_rows(struct batch *b, struct error *err)
{
    return b->o->as == AS_EMBEDDING ? load_model_hidden(&b->l, b->o, err)
           : b->o->as == AS_AUTO    ? load_model_as_meant(&b->l, b->o, err)
                                    : load_model(&b->l, b->o, err);
}

// A name of stdout, such as /dev/stdout, is taken as "-". Nothing can stand beside another descriptor.
static int check_descriptor(struct batch *b, struct error *err)
{
    const int descriptor = b->out_path ? file_replace_descriptor(b->out_path) : -1;
    if (descriptor < 0)
        return 0;
    if (descriptor != STDOUT_FILENO)
        return fail(err, E_USAGE,
                    "%s: an open descriptor, whose rows could not be gone on with; name a file, or - for stdout",
                    b->out_path);
    free(b->out_path);
    b->out_path = strdup("-");
    return b->out_path ? 0 : fail(err, E_MEMORY, "no memory for a path");
}

static int open_all(struct batch *b, struct error *err)
{
    const char *why;
    if (check_usage(b->o, err) || batch_shard_take(&b->shard, b->o->shard, &why, err))
        return -1;
    if (why)
        terminal_note("quern: note: shard %lld/%lld, by %s", (long long)b->shard.index, (long long)b->shard.count, why);
    if (b->o->out && !(b->out_path = batch_shard_path(b->shard, b->o->out)))
        return fail(err, E_MEMORY, "no memory for a path");
    if (check_descriptor(b, err))
        return -1;
    b->named = *b->o;
    b->named.out = b->out_path;
    b->o = &b->named;
    confine(b->o);
    // the model is opened before the input is read, so that a mistyped name is reported at once
    if (!load_path(b->o, err) || load_for_rows(b, err) || batch_embed_check(b->l.model, b->o, err) ||
        open_input(b, err))
        return -1;
    if (sampling_take(&b->sampling, b->o, b->l.model, err) ||
        batch_context_open(&b->context, b->l.model, b->o, &b->sampling, b->l.model->n_ctx, err))
        return -1;
    open_form(b);
    if (begin_input(b, err))
        return -1;
    b->left_bytes = b->survey.n_bytes / (uint64_t)b->shard.count;
    return 0;
}

static void add_job(struct batch *b, struct batch_job *job)
{
    job->next = b->jobs;
    job->link = &b->jobs;
    if (job->next)
        job->next->link = &job->next;
    b->jobs = job;
}

// Frees a job, and removes it from the list if it is there.
static void drop_job(struct batch_job *job)
{
    if (job->link)
        *job->link = job->next;
    if (job->next)
        job->next->link = job->link;
    batch_job_free(job);
    free(job);
}

static void close_all(struct batch *b)
{
    progress_end(&b->bar);
    scheduler_free(b->scheduler);
    batch_embed_free(&b->embed);
    for (struct batch_job *job = b->jobs, *next; job; job = next) {
        next = job->next;
        drop_job(job);
    }
    batch_output_close(b->output);
    batch_manifest_free(&b->manifest);
    batch_ids_free(&b->ids);
    batch_input_close(&b->input);
    batch_context_close(&b->context);
    sampling_free(&b->sampling);
    arena_free(&b->arena);
    free(b->out_path);
    load_close(&b->l);
}

// --- reading rows ---

// why: the reason of an error; NULL: the line is an answer.
static int put_line(struct batch *b, int64_t number, const struct text *line, const char *why, struct error *err)
{
    if (line->failed)
        return fail(err, E_MEMORY, "no memory for a line of output");
    if (batch_output_put(b->output, number, (struct str){line->data, line->size}, why != NULL, err))
        return -1;
    b->n_rows++;
    if (why && !b->n_errors++)
        snprintf(b->first_error, sizeof b->first_error, "%s", why);
    if (b->o->max_errors >= 0 && b->n_errors > b->o->max_errors)
        b->too_many_errors = b->stopping = true;
    return 0;
}

static int put_error(struct batch *b, const struct batch_row *row, const char *code, const struct error *what,
                     struct error *err)
{
    struct text line = {0};
    int status = batch_error_print(row->number, row->custom_id, code, what->text, &line, err);
    if (!status)
        status = put_line(b, row->number, &line, what->text, err);
    text_free(&line);
    return status;
}

// Lack of memory ends the run instead of failing a row.
static bool is_fatal(const struct error *err)
{
    return err->code == E_MEMORY || err->code == E_IO;
}

// Checks that the id is new. If it is not, *err names the record that had it.
static int check_id(struct batch *b, const struct batch_row *row, const char **code, struct error *err)
{
    int64_t first;
    if (!row->custom_id.data || b->form.format == FORMAT_LINES) // the ids of lines are their numbers
        return 0;
    if (batch_ids_add(&b->ids, row->custom_id, row->number, row->own_id, &first, err))
        return -1;
    if (first == row->number)
        return 0;
    *code = "duplicate_id";
    return fail(err, E_USAGE, "custom_id: row %lld has it already", (long long)first);
}

// Skips a row that is done. Its id must be the one in the output.
static int skip_done(struct batch *b, const struct batch_row *row, struct error *err)
{
    struct text id = {0};
    if (!batch_output_is_regular(b->output))
        return 0;
    if (batch_id_print(row->custom_id, &id, err))
        return -1;
    uint64_t hash = batch_id_hash((struct str){id.data, id.size});
    text_free(&id);
    if (hash != batch_output_id_hash(b->output, row->number))
        return fail(err, E_USAGE, "%s: its row %lld is another one than the input's; name another output", b->out_path,
                    (long long)row->number);
    return batch_output_expect(b->output, row->number, err);
}

// Gives the job to the next group that is embedded.
static int submit_text(struct batch *b, struct batch_job *job)
{
    add_job(b, job);
    b->embed.jobs[b->embed.n++] = job;
    return 0;
}

static int submit(struct batch *b, struct batch_job *job, struct error *err)
{
    if (b->l.model->hidden)
        return submit_text(b, job);
    job->n_open = job->n_requests;
    add_job(b, job);
    for (int i = 0; i < job->n_requests; i++) {
        b->n_prompt_fed += job->requests[i].n_prompt;
        if (scheduler_add(b->scheduler, &job->requests[i], err))
            return -1; // the job is freed with the run
    }
    return 0;
}

static int make_job(const struct batch *b, struct batch_job *job, const char **code, struct error *err)
{
    return (b->l.model->hidden ? batch_embed_make : batch_job_make)(job, &b->context, code, err);
}

// Handles one record of this shard that is not done: the scheduler takes it, or its error is written at once.
static int feed_job(struct batch *b, struct batch_job *job, const char *code, struct error *found, struct error *err)
{
    if (batch_output_expect(b->output, job->row.number, err)) {
        drop_job(job);
        return -1;
    }
    b->n_fed++;
    if (!found->code && !make_job(b, job, &code, found))
        return submit(b, job, err);
    int status = is_fatal(found) ? -1 : put_error(b, &job->row, code, found, err);
    if (is_fatal(found))
        *err = *found;
    drop_job(job);
    return status;
}

static int feed_record(struct batch *b, const struct record *record, struct error *err)
{
    struct batch_job *job = calloc(1, sizeof *job);
    struct error found = {.code = E_OK};
    const char *code = NULL;
    if (!job)
        return fail(err, E_MEMORY, "no memory for a row");
    int status = batch_row_parse(&job->row, record, &b->form, &code, &found);
    // the second row with an id fails with that error, whatever else is wrong with it
    struct error twice = {.code = E_OK};
    if (check_id(b, &job->row, &code, &twice))
        found = twice, status = -1;
    if (status && is_fatal(&found)) {
        *err = found;
    } else {
        bool is_own = batch_shard_has(b->shard, record->number);
        bool is_done = is_own && batch_output_is_done(b->output, record->number);
        if (is_own && !is_done) {
            b->fed_bytes += record->bytes.len;
            return feed_job(b, job, code, &found, err);
        }
        b->left_bytes -= is_own ? MIN(b->left_bytes, record->bytes.len) : 0;
        status = is_done ? skip_done(b, &job->row, err) : 0;
    }
    drop_job(job);
    return status;
}

static bool is_hungry(const struct batch *b)
{
    return b->scheduler ? scheduler_is_hungry(b->scheduler) : b->embed.n < EMBED_GROUP_ROWS;
}

// Reads records while more are wanted and the output has room.
static int feed(struct batch *b, struct error *err)
{
    while (!b->ended && !b->stopping && is_hungry(b) && batch_output_has_room(b->output)) {
        struct record record;
        int got = batch_input_next(&b->input, &record, err);
        if (got < 0 || (got && feed_record(b, &record, err)))
            return -1;
        b->ended = !got;
    }
    return 0;
}

// --- writing rows ---

static int finish_job(struct batch *b, struct batch_job *job, struct error *err)
{
    struct text line = {0};
    const char *why;
    bool is_stopped = false;
    for (int i = 0; i < job->n_requests; i++)
        is_stopped |= job->requests[i].error.code == E_INTERRUPTED;
    int status = 0;
    if (!is_stopped) {
        status = batch_job_print(job, &b->context, &line, &why, err);
        if (!status)
            status = put_line(b, job->row.number, &line, why, err);
        b->n_bad_calls += job->n_bad_calls;
    }
    text_free(&line);
    drop_job(job);
    return status;
}

static int take_done(struct batch *b, struct error *err)
{
    for (struct request *r; (r = scheduler_take(b->scheduler));) {
        struct batch_job *job = r->user;
        if (--job->n_open == 0 && finish_job(b, job, err))
            return -1;
    }
    return batch_output_check(b->output, err);
}

// Estimates the tokens of the whole run: of prompts by the bytes of their rows, of answers by the mean of the rows
// that are done.
static int64_t expected_tokens(const struct batch *b, const struct scheduler_stats *s)
{
    double bytes = (double)MAX(b->left_bytes, b->fed_bytes), fed = (double)MAX(b->fed_bytes, 1);
    double rows = (double)b->n_fed * bytes / fed, done = (double)MAX(b->n_rows, 1);
    return (int64_t)((double)b->n_prompt_fed * bytes / fed + (double)s->n_generated / done * rows);
}

// Computes each row by itself, after a row of their group was found bad, so that it fails alone.
static int embed_alone(struct batch *b, struct error *err)
{
    struct batch_embed all = b->embed;
    b->embed.n = 1;
    for (int i = 0; i < all.n; i++) {
        struct error bad = {.code = E_OK};
        b->embed.jobs[0] = all.jobs[i];
        if (batch_embed_run(&b->embed, &b->context, &bad) && bad.code != E_MODEL) {
            *err = bad;
            return -1;
        }
        all.jobs[i]->failed = bad.code == E_MODEL;
    }
    memcpy(b->embed.jobs, all.jobs, sizeof all.jobs);
    b->embed.n = all.n;
    return 0;
}

static int print_embedded(struct batch *b, struct batch_job *job, struct text *line, struct error *err)
{
    static const char why[] = "a vector that is not finite: the weights hold values that are no numbers";
    if (job->failed)
        return batch_error_print(job->row.number, job->row.custom_id, "model_error", why, line, err) ||
               put_line(b, job->row.number, line, why, err);
    return batch_embed_print(job, &b->context, line, err) || put_line(b, job->row.number, line, NULL, err);
}

// Computes the group of rows that was read, and writes their lines.
static int embed_group(struct batch *b, struct error *err)
{
    if (b->embed.n && batch_embed_run(&b->embed, &b->context, err) && (err->code != E_MODEL || embed_alone(b, err)))
        return -1;
    for (int i = 0; i < b->embed.n; i++) {
        struct text line = {0};
        struct batch_job *job = b->embed.jobs[i];
        for (int j = 0; j < job->n_requests; j++)
            b->embed.n_tokens += (int64_t)job->prompts[j].n;
        b->n_cut += job->cut;
        int status = print_embedded(b, job, &line, err);
        text_free(&line);
        if (status)
            return -1;
        drop_job(job);
    }
    b->embed.n = 0;
    return batch_output_check(b->output, err);
}

static void show_progress(struct batch *b)
{
    struct scheduler_stats s = scheduler_stats(b->scheduler);
    double ms = clock_ms() - b->start_ms;
    char note[160];
    int64_t own = (b->survey.n_records - b->shard.index + b->shard.count - 1) / b->shard.count;
    snprintf(note, sizeof note, "%lld/%lld rows  prompt %.0f t/s  answers %.1f t/s  shared %.0f%%%s",
             (long long)batch_output_n_done(b->output), (long long)own,
             per_second((double)(s.n_prompt - s.n_reused), ms), per_second((double)s.n_generated, ms),
             100.0 * (double)s.n_reused / (double)MAX(s.n_prompt, 1), b->stopping ? "  stopping" : "");
    int64_t done = s.n_prompt + s.n_generated;
    progress_show(&b->bar, done, MAX(expected_tokens(b, &s), done + 1), note);
}

// After an interrupt, running rows are finished and waiting rows are left for a later run.
static void look_at_interrupt(struct batch *b)
{
    if (atomic_load(&terminal_interrupted))
        b->stopping = true;
    if (b->stopping)
        scheduler_stop(b->scheduler);
}

static int run_rows(struct batch *b, struct error *err)
{
    b->start_ms = clock_ms();
    progress_begin(&b->bar, "batch", "t");
    terminal_set_phase(PHASE_ANSWERING);
    batch_interrupt_watch(batch_output_is_regular(b->output));
    do {
        look_at_interrupt(b);
        if (feed(b, err) || scheduler_step(b->scheduler, err) || take_done(b, err))
            return -1;
        batch_interrupt_count(scheduler_n_begun(b->scheduler));
        show_progress(b);
    } while (!scheduler_is_idle(b->scheduler) || (!b->ended && !b->stopping));
    progress_end(&b->bar);
    return batch_output_finish(b->output, err);
}

// Group by group. An interrupt ends the run behind the group that is being computed.
static int embed_rows(struct batch *b, struct error *err)
{
    b->start_ms = clock_ms();
    progress_begin(&b->bar, "batch", "rows");
    terminal_set_phase(PHASE_ANSWERING);
    batch_interrupt_watch(batch_output_is_regular(b->output));
    do {
        b->stopping |= atomic_load(&terminal_interrupted) != 0;
        if (feed(b, err) || embed_group(b, err))
            return -1;
        progress_show(&b->bar, batch_output_n_done(b->output), b->survey.n_records, "");
    } while (!b->ended && !b->stopping);
    progress_end(&b->bar);
    return batch_output_finish(b->output, err);
}

// --- summary ---

static void note_verbose(struct batch *b, const struct scheduler_stats *s, double ms)
{
    struct batch_sync_stats syncs = batch_output_syncs(b->output);
    terminal_note("%lld steps of %.1f rows; within them %.1f ms, outside %.1f ms: %.2f%% of the whole",
                  (long long)s->n_steps, (double)s->n_rows / (double)MAX(s->n_steps, 1), s->step_ms, ms - s->step_ms,
                  100 * (ms - s->step_ms) / MAX(ms, 1e-3));
    terminal_note("choosing tokens and rows %.1f ms; %lld answers put off, %lld tokens computed again", s->own_ms,
                  (long long)s->n_preempted, (long long)s->n_recomputed);
    terminal_note("%lld syncs of %.1f rows, %.2f ms each, %.1f ms at worst, beside the computation", (long long)syncs.n,
                  (double)syncs.n_rows / (double)MAX(syncs.n, 1), syncs.ms / (double)MAX(syncs.n, 1), syncs.worst_ms);
}

// Whether all rows were in the output before.
static bool had_nothing_to_do(const struct batch *b)
{
    return !b->n_fed && !b->stopping && batch_output_n_done(b->output) > 0;
}

static void note_embedded(const struct batch *b, double ms)
{
    if (b->n_cut)
        terminal_note("quern: note: texts of %lld rows were cut to what the model takes", (long long)b->n_cut);
    terminal_note("quern: %lld rows in %.1f s, %lld failed; %lld tokens, %.1f tokens/s", (long long)b->n_rows, ms / 1e3,
                  (long long)b->n_errors, (long long)b->embed.n_tokens, per_second((double)b->embed.n_tokens, ms));
    if (b->n_errors && b->n_errors == b->n_rows)
        terminal_note("quern: note: every row failed, the first one because: %s", b->first_error);
}

static void note_result(struct batch *b)
{
    struct scheduler_stats s = b->scheduler ? scheduler_stats(b->scheduler) : (struct scheduler_stats){0};
    double ms = clock_ms() - b->start_ms;
    if (had_nothing_to_do(b)) {
        if (!batch_output_n_failed(b->output)) // else the error says it
            terminal_note("quern: nothing to do: all %lld rows are in %s", (long long)batch_output_n_done(b->output),
                          b->out_path);
        return;
    }
    if (!b->scheduler) {
        note_embedded(b, ms);
        return;
    }
    terminal_note("quern: %lld rows in %.1f s, %lld failed; %lld prompt tokens, %lld of them shared; %lld generated; "
                  "%.1f tokens/s",
                  (long long)b->n_rows, ms / 1e3, (long long)b->n_errors, (long long)s.n_prompt, (long long)s.n_reused,
                  (long long)s.n_generated, per_second((double)(s.n_prompt + s.n_generated), ms));
    if (b->n_bad_calls)
        terminal_note("quern: note: %lld tool calls could not be read; they are content of their answers",
                      (long long)b->n_bad_calls);
    if (b->n_errors && b->n_errors == b->n_rows)
        terminal_note("quern: note: every row failed, the first one because: %s", b->first_error);
    if (b->o->verbose)
        note_verbose(b, &s, ms);
}

static int fail_for_rows(const struct batch *b, struct error *err)
{
    const long long n = batch_output_n_failed(b->output), before = n - b->n_errors;
    const char *again = batch_output_is_regular(b->output) ? ", --retry-errors computes them again" : "";
    char of_them[64] = "";
    if (had_nothing_to_do(b))
        return fail(err, E_ITEMS, "nothing to do: all %lld rows are in %s, but %lld of them failed%s",
                    (long long)batch_output_n_done(b->output), b->out_path, n, again);
    if (before > 0)
        snprintf(of_them, sizeof of_them, ", %lld of them in earlier runs", before);
    return fail(err, E_ITEMS, "%lld rows failed%s; see their errors in %s%s", n, of_them, b->out_path, again);
}

static int result_of(struct batch *b, struct error *err)
{
    const char *resume = batch_output_is_regular(b->output) ? "; the same command goes on" : "";
    if (atomic_load(&terminal_interrupted)) {
        return fail(err, E_INTERRUPTED, "stopped after %lld rows%s", (long long)batch_output_n_done(b->output), resume);
    }
    if (b->too_many_errors)
        return fail(err, E_ITEMS, "%lld rows failed, more than --max-errors %lld%s", (long long)b->n_errors,
                    (long long)b->o->max_errors, resume);
    return batch_output_n_failed(b->output) ? fail_for_rows(b, err) : 0;
}

// --- dry run ---

static int tally_record(struct batch *b, struct batch_tally *t, const struct record *record, struct error *err)
{
    struct batch_job *job = calloc(1, sizeof *job);
    struct error found = {.code = E_OK};
    const char *code = NULL;
    if (!job)
        return fail(err, E_MEMORY, "no memory for a row");
    int status = batch_row_parse(&job->row, record, &b->form, &code, &found);
    if (!status)
        status = check_id(b, &job->row, &code, &found);
    if (!status && batch_shard_has(b->shard, record->number)) {
        status = make_job(b, job, &code, &found);
        if (!status && b->l.model->hidden) {
            t->n_rows++;
            drop_job(job);
            return 0;
        }
        if (!status) {
            batch_tally_job(t, job, b->context.n_ctx);
            return 0;
        }
    }
    drop_job(job);
    if (status && is_fatal(&found)) {
        *err = found;
        return -1;
    }
    if (status && batch_shard_has(b->shard, record->number))
        batch_tally_error(t, record->number, code, &found);
    return 0;
}

static int dry_run(struct batch *b, struct error *err)
{
    struct batch_tally t = {0};
    struct record record;
    int got;
    while ((got = batch_input_next(&b->input, &record, err)) == 1)
        if (tally_record(b, &t, &record, err)) {
            got = -1;
            break;
        }
    int status = got < 0 ? -1 : 0;
    if (!status && b->l.model->hidden)
        terminal_note("quern: %lld rows can be embedded, %lld would fail", (long long)t.n_rows, (long long)t.n_failed);
    else if (!status)
        status = open_session(b, err) || batch_tally_probe(&t, b->scheduler, err) ||
                 batch_tally_print(&t, b->l.session, err);
    // requests that the measurement began are not finished
    scheduler_free(b->scheduler);
    b->scheduler = NULL;
    batch_tally_free(&t);
    if (!status && t.n_failed)
        return fail(err, E_ITEMS, "%lld rows would fail", (long long)t.n_failed);
    return status ? -1 : 0;
}

// A GPU or memory that fails ends the run, not the work: the error says how it goes on. Returns -1.
static int say_how_to_go_on(const struct batch *b, struct error *err)
{
    const struct error why = *err;
    if ((why.code != E_GPU && why.code != E_MEMORY) || !b->output || !batch_output_is_regular(b->output))
        return -1;
    return fail(err, why.code, "%s; %lld rows are in %s, and the same command goes on", why.text,
                (long long)batch_output_n_done(b->output), b->out_path);
}

static int run(struct batch *b, struct error *err)
{
    if (open_all(b, err))
        return -1;
    if (b->o->dry_run)
        return dry_run(b, err);
    // the output is opened before the session: a refused output should not wait for memory to be allocated
    const bool embeds = b->l.model->hidden;
    if (open_output(b, err) || (!embeds && open_session(b, err)) || (embeds ? embed_rows : run_rows)(b, err))
        return say_how_to_go_on(b, err);
    note_result(b);
    return result_of(b, err);
}

static int merge(const struct options *o, struct error *err)
{
    struct option_list args = {o->args.at + 1, o->args.n - 1};
    int64_t n_missing, n_failed;
    if (batch_merge(&args, o->force, &n_missing, &n_failed, err))
        return -1;
    if (n_missing > 0)
        return fail(err, E_ITEMS, "%s: %lld rows of the input are in no part", args.at[0], (long long)n_missing);
    if (n_failed)
        return fail(err, E_ITEMS, "%lld rows failed; see their errors in %s", (long long)n_failed, args.at[0]);
    return 0;
}

int cmd_batch(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    if (options_parse(&o, VERB_BATCH, argc, argv, &err))
        return verb_fail(&err);
    struct batch b = {.o = &o};
    b.input.fd = -1;
    bool is_merge = o.args.n > 0 && !strcmp(o.args.at[0], "merge");
    if (is_merge)
        confine(&o);
    int status = is_merge ? merge(&o, &err) : run(&b, &err);
    close_all(&b);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
