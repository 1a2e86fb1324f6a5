// The index of a Slurm task is its id less the smallest id of the array, divided by the step, so that arrays that do
// not start at 0 work too. A Kubernetes job gives only an index, so the number of shards must then be given as
// --shard /N.
#include "cmd/batch/batch_shard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

// Reads a whole number from an environment variable. False if it is not set.
static bool take_number(const char *name, int64_t *out)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return !*end && !errno;
}

// The index of this task in its array, counted from 0.
static bool take_task(int64_t *index)
{
    int64_t id, least = 0, step = 1;
    if (!take_number("SLURM_ARRAY_TASK_ID", &id))
        return take_number("JOB_COMPLETION_INDEX", index);
    take_number("SLURM_ARRAY_TASK_MIN", &least);
    take_number("SLURM_ARRAY_TASK_STEP", &step);
    *index = (id - least) / MAX(step, 1);
    return true;
}

int batch_shard_take(struct batch_shard *s, const char *text, const char **why, struct error *err)
{
    char *end;
    *s = (struct batch_shard){0, 1};
    *why = NULL;
    if (!text) {
        int64_t count;
        if (getenv("SLURM_ARRAY_TASK_ID") && take_number("SLURM_ARRAY_TASK_COUNT", &count) && take_task(&s->index)) {
            s->count = count;
            *why = "the Slurm array";
        }
    } else if (*text == '/') {
        s->count = strtoll(text + 1, &end, 10);
        if (!text[1] || *end)
            return fail(err, E_USAGE, "--shard %s: not I/N, such as 0/8", text);
        if (!take_task(&s->index))
            return fail(err, E_USAGE, "--shard %s: neither $SLURM_ARRAY_TASK_ID nor $JOB_COMPLETION_INDEX says which",
                        text);
        *why = getenv("SLURM_ARRAY_TASK_ID") ? "the Slurm array" : "$JOB_COMPLETION_INDEX";
    } else {
        s->index = strtoll(text, &end, 10);
        if (end == text || *end != '/' || !end[1])
            return fail(err, E_USAGE, "--shard %s: not I/N, such as 0/8", text);
        s->count = strtoll(end + 1, &end, 10);
        if (*end)
            return fail(err, E_USAGE, "--shard %s: not I/N, such as 0/8", text);
    }
    if (s->count < 1 || s->count > INT32_MAX || s->index < 0 || s->index >= s->count)
        return fail(err, E_USAGE, "shard %lld of %lld: I is from 0 to N - 1", (long long)s->index, (long long)s->count);
    return 0;
}

char *batch_shard_path(struct batch_shard s, const char *path)
{
    static const char mark[] = "{shard}";
    const char *at = strstr(path, mark);
    char *out;
    if (!at)
        return strdup(path);
    int n = asprintf(&out, "%.*s%lld-of-%lld%s", (int)(at - path), path, (long long)s.index, (long long)s.count,
                     at + sizeof mark - 1);
    return n < 0 ? NULL : out;
}
