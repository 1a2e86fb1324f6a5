// Flags count as important unless they are listed in `unimportant`. They are stored as they would be written on the
// command line, and only if they were given; the types of the KV cache and the context are always stored. The
// comparison of two manifests goes both ways, so that a flag that is given in only one of them is found too.
#include "cmd/batch/batch_manifest.h"
#include "cmd/batch/batch_output.h"
#include "cmd/input.h"
#include "engine/file_replace.h"
#include "engine/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

// Flags that do not change an answer, or only change which machine computes it.
static const int unimportant[] = {
    OPT_model,      OPT_device, OPT_threads,      OPT_isa,       OPT_no_mmap, OPT_batch,   OPT_ubatch,
    OPT_out,        OPT_force,  OPT_parallel,     OPT_kv_memory, OPT_timeout, OPT_dry_run, OPT_unordered,
    OPT_max_errors, OPT_shard,  OPT_retry_errors, OPT_verbose,   OPT_help,
};

static bool is_important(int n)
{
    for (size_t i = 0; i < COUNT_OF(unimportant); i++)
        if (unimportant[i] == n)
            return false;
    return true;
}

static int set(struct value *to, struct arena *arena, const char *key, const char *text, struct error *err)
{
    struct value v;
    return value_string_copy(&v, arena, str_from(text), err) || value_dict_set(arena, to, key, v, err);
}

int batch_manifest_make(struct batch_manifest *m, const struct options *o, struct digest_value model,
                        const struct batch_survey *input, struct batch_shard shard, struct error *err)
{
    struct arena arena = {0};
    struct value parameters;
    *m = (struct batch_manifest){.model = model, .input = *input, .shard = shard, .started = time(NULL)};
    int status = value_dict_new(&parameters, &arena, err);
    for (int i = 0; !status && i < OPT_COUNT; i++) {
        struct text value = {0};
        text_append(&value, STR_LIT(""));
        const char *name = is_important(i) ? options_print_value(o, i, V_BATCH, &value) : NULL;
        // a flag that was not given has the file's or the built-in default, which the model's fingerprint covers
        if (name && (o->given[i] || i == OPT_kv_key || i == OPT_kv_value || i == OPT_n_ctx))
            status = value.failed ? fail(err, E_MEMORY, "no memory for the parameters of a batch")
                                  : set(&parameters, &arena, name, value.data, err);
        text_free(&value);
    }
    if (!status)
        status = json_write_text(&parameters, NULL, &m->parameters, err);
    arena_free(&arena);
    return status ? -1 : 0;
}

void batch_manifest_free(struct batch_manifest *m)
{
    text_free(&m->parameters);
}

// --- writing ---

static void print(const struct batch_manifest *m, struct text *out)
{
    char model[33], input[33];
    digest_format(m->model, model);
    digest_format(m->input.digest, input);
    text_print(out, "{\"quern\": \"%s\", \"model\": \"%s\", \"input\": \"%s\", \"records\": %lld, ", QUERN_VERSION,
               model, input, (long long)m->input.n_records);
    text_print(out, "\"shard\": %lld, \"shards\": %lld, \"started\": %lld, \"parameters\": ", (long long)m->shard.index,
               (long long)m->shard.count, (long long)m->started);
    text_append(out, (struct str){m->parameters.data, m->parameters.size});
    text_print(out, "}\n");
}

// Gives the manifest the permissions of the output: who may read the answers may read what they were made with.
static void share_as(const struct file_replace *f, const char *out_path)
{
    struct stat st;
    if (!stat(out_path, &st))
        fchmod(f->fd, st.st_mode & 0777);
}

int batch_manifest_write(const struct batch_manifest *m, const char *out_path, struct error *err)
{
    char *path = output_beside(out_path, ".manifest");
    struct text text = {0};
    struct file_replace f;
    print(m, &text);
    int status = path && !text.failed ? 0 : fail(err, E_MEMORY, "no memory for a manifest");
    if (!status && !(status = file_replace_beside(&f, path, err))) {
        share_as(&f, out_path);
        status = file_replace_write(&f, text.data, text.size, err);
        if (status)
            file_replace_abort(&f);
        else
            status = file_replace_end(&f, err);
    }
    text_free(&text);
    free(path);
    return status;
}

// --- reading ---

// Reads the manifest. Returns 1, or 0 if there is none.
static int read_manifest(const char *out_path, struct arena *arena, struct value *out, struct error *err)
{
    char *path = output_beside(out_path, ".manifest"), *data = NULL;
    size_t size;
    struct json_reader reader = {.arena = arena};
    int status = path ? 1 : fail(err, E_MEMORY, "no memory for a path");
    if (status == 1 && access(path, F_OK))
        status = 0;
    if (status == 1 && input_read_regular(path, INPUT_MANIFEST, &data, &size, err))
        status = -1;
    const bool unread = status == 1 && json_read(out, &reader, (struct str){data, size}, err);
    if (unread && err->code == E_MEMORY)
        status = -1;
    else if (unread || (status == 1 && (out->kind != VALUE_DICT || !value_is(value_get(out, "quern"), VALUE_STRING))))
        status = fail(err, E_USAGE, "%s: is no manifest of a batch; move it away, or name another output", path);
    free(data);
    free(path);
    return status;
}

static bool says(const struct value *manifest, const char *key, const char *text)
{
    const struct value *v = value_get(manifest, key);
    return value_is(v, VALUE_STRING) && str_equal_z(v->text, text);
}

static int64_t number_of(const struct value *manifest, const char *key)
{
    const struct value *v = value_get(manifest, key);
    return value_is(v, VALUE_INT) ? v->integer : -1;
}

static struct str parameter(const struct value *dict, struct str name)
{
    const struct value *v = value_get_str(dict, name);
    return value_is(v, VALUE_STRING) ? v->text : STR_LIT("(not given)");
}

// Whether a flag of `a` has another value in `b`; *name is the first such flag.
static bool differs(const struct value *a, const struct value *b, struct str *name)
{
    for (size_t i = 0; i < value_count(a); i++) {
        *name = a->dict->entries[i].key.text;
        if (!str_equal(parameter(a, *name), parameter(b, *name)))
            return true;
    }
    return false;
}

static int compare(const struct batch_manifest *m, const struct value *there, const char *path, struct arena *arena,
                   struct error *err)
{
    char model[33], input[33];
    struct value ours;
    struct str name;
    digest_format(m->model, model);
    digest_format(m->input.digest, input);
    if (!says(there, "model", model))
        return fail(err, E_USAGE, "%s: begun with another model; name another output, or go on with --force", path);
    if (!says(there, "input", input))
        return fail(err, E_USAGE, "%s: begun with another input; name another output, or go on with --force", path);
    if (number_of(there, "shard") != m->shard.index || number_of(there, "shards") != m->shard.count)
        return fail(err, E_USAGE, "%s: begun as shard %lld/%lld; name another output, or go on with --force", path,
                    (long long)number_of(there, "shard"), (long long)number_of(there, "shards"));
    struct json_reader reader = {.arena = arena};
    if (json_read(&ours, &reader, (struct str){m->parameters.data, m->parameters.size}, err))
        return -1;
    const struct value *theirs = value_get(there, "parameters");
    if (!value_is(theirs, VALUE_DICT))
        return fail(err, E_USAGE, "%s: its manifest holds no parameters; go on with --force", path);
    if (!differs(&ours, theirs, &name) && !differs(theirs, &ours, &name))
        return 0;
    struct str old = parameter(theirs, name), now = parameter(&ours, name);
    return fail(err, E_USAGE, "%s: begun with %.*s %.*s, now %.*s; name another output, or go on with --force", path,
                STR_ARG(name), STR_ARG(old), STR_ARG(now));
}

// Whether the manifest can be written.
static int check_writable(const char *out_path, struct error *err)
{
    char *path = output_beside(out_path, ".manifest");
    int status = path ? file_replace_check_beside(path, err) : fail(err, E_MEMORY, "no memory for a path");
    free(path);
    return status;
}

int batch_manifest_check(struct batch_manifest *m, const char *out_path, uint64_t n_bytes, bool force, bool *is_new,
                         struct error *err)
{
    struct arena arena = {0};
    struct value there;
    int status = read_manifest(out_path, &arena, &there, err);
    *is_new = force || status == 0;
    if (status == 1 && number_of(&there, "started") > 0)
        m->started = (time_t)number_of(&there, "started");
    if (status == 0 && !force && n_bytes)
        status = fail(err, E_USAGE,
                      "%s: holds something, but has no manifest; name another output, or go on with --force", out_path);
    if (status == 1 && !force)
        status = compare(m, &there, out_path, &arena, err);
    arena_free(&arena);
    if (status >= 0 && *is_new)
        status = check_writable(out_path, err);
    return MIN(status, 0);
}

int batch_manifest_read_part(const char *out_path, struct batch_part *out, struct error *err)
{
    struct arena arena = {0};
    struct value there;
    *out = (struct batch_part){.n_records = -1};
    int status = read_manifest(out_path, &arena, &there, err);
    if (status == 1) {
        const struct value *input = value_get(&there, "input"), *model = value_get(&there, "model");
        if (value_is(input, VALUE_STRING))
            snprintf(out->input, sizeof out->input, "%.*s", STR_ARG(input->text));
        if (value_is(model, VALUE_STRING))
            snprintf(out->model, sizeof out->model, "%.*s", STR_ARG(model->text));
        out->n_records = number_of(&there, "records");
        out->shard = (struct batch_shard){number_of(&there, "shard"), number_of(&there, "shards")};
    }
    arena_free(&arena);
    return status;
}
