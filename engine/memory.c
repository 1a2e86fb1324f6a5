// Parses /proc and the files of control groups, versions 1 and 2, under a root folder that tests can replace. A limit
// may be set on any ancestor of a group, so all of them are read and the smallest number of free bytes counts.
#include "engine/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PATH_BYTES = 4200 };

static FILE *open_under(const char *root, const char *path)
{
    char full[PATH_BYTES];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    return n > 0 && (size_t)n < sizeof full ? fopen(full, "re") : NULL;
}

// The number after `name` at the start of a line; UINT64_MAX when there is none.
static uint64_t read_field(const char *root, const char *path, const char *name)
{
    FILE *f = open_under(root, path);
    if (!f)
        return UINT64_MAX;
    uint64_t value = UINT64_MAX;
    char line[512];
    size_t len = strlen(name);
    while (value == UINT64_MAX && fgets(line, sizeof line, f))
        if (!strncmp(line, name, len) && sscanf(line + len, " %" SCNu64, &value) != 1)
            value = UINT64_MAX;
    fclose(f);
    return value;
}

static uint64_t kibibytes(uint64_t n)
{
    return n > UINT64_MAX / 1024 ? UINT64_MAX : n * 1024;
}

// The names of the files of control groups, in one of the two versions of the interface.
struct cgroup_files {
    const char *mount, *limit, *usage, *cache; // cache: the line of memory.stat with the file pages that can be dropped
};
static const struct cgroup_files unified = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};
static const struct cgroup_files legacy = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                           "total_inactive_file"};

// The free bytes of one group: its limit minus its use, of which file pages that can be dropped count as free.
static uint64_t group_free(const char *root, const struct cgroup_files *files, const char *group)
{
    char path[PATH_BYTES];
    uint64_t value[3];
    const char *names[] = {files->limit, files->usage, "memory.stat"};
    for (int i = 0; i < 3; i++) {
        int n = snprintf(path, sizeof path, "%s%s/%s", files->mount, group, names[i]);
        if (n < 0 || (size_t)n >= sizeof path)
            return UINT64_MAX;
        value[i] = read_field(root, path, i == 2 ? files->cache : "");
        if (i < 2 && value[i] == UINT64_MAX)
            return UINT64_MAX; // "max", or no such file
    }
    uint64_t cache = value[2] == UINT64_MAX ? 0 : MIN(value[2], value[1]);
    uint64_t used = value[1] - cache;
    return used < value[0] ? value[0] - used : 0;
}

// The smallest number of free bytes of a group and all groups that contain it. Shortens `group` on the way.
static uint64_t groups_free(const char *root, const struct cgroup_files *files, char *group)
{
    uint64_t least = UINT64_MAX;
    for (;;) {
        size_t len = strlen(group);
        while (len > 0 && group[len - 1] == '/')
            group[--len] = '\0';
        uint64_t bytes = group_free(root, files, group);
        least = MIN(least, bytes);
        char *slash = strrchr(group, '/');
        if (!slash)
            return least;
        *slash = '\0';
    }
}

// The free bytes of the control groups of this process; UINT64_MAX when none of them has a limit.
static uint64_t cgroup_free(const char *root)
{
    FILE *f = open_under(root, "/proc/self/cgroup");
    if (!f)
        return UINT64_MAX;
    uint64_t least = UINT64_MAX;
    char line[PATH_BYTES];
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        controllers++;
        const struct cgroup_files *files = !*controllers ? &unified : strstr(controllers, "memory") ? &legacy : NULL;
        if (files) {
            uint64_t bytes = groups_free(root, files, group);
            least = MIN(least, bytes);
        }
    }
    fclose(f);
    return least;
}

// RLIMIT_AS minus the address space that is mapped already.
static uint64_t address_space_free(const char *root)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    uint64_t used = kibibytes(read_field(root, "/proc/self/status", "VmSize:"));
    if (used == UINT64_MAX)
        used = 0;
    return used < limit.rlim_cur ? limit.rlim_cur - used : 0;
}

void memory_query(const char *root, struct memory_free *out)
{
    uint64_t total = read_field(root, "/proc/meminfo", "MemTotal:");
    out->total = total == UINT64_MAX ? 0 : kibibytes(total);
    out->bytes = kibibytes(read_field(root, "/proc/meminfo", "MemAvailable:"));
    out->limit = "MemAvailable";
    uint64_t group = cgroup_free(root);
    if (group < out->bytes) {
        out->bytes = group;
        out->limit = "the control group's limit";
    }
    out->address_space = address_space_free(root);
}

uint64_t memory_sum(const struct memory_need *need)
{
    uint64_t parts[] = {need->weights, need->kv, need->states, need->plan, need->other};
    uint64_t sum = 0;
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (__builtin_add_overflow(sum, parts[i], &sum))
            return UINT64_MAX;
    return sum;
}

void memory_format(uint64_t bytes, char out[24])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < COUNT_OF(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(out, 24, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}
