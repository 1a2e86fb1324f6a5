// Chooses the number of threads by the CPU affinity, the quotas of control groups and the physical cores.
#include "kernels/cpu/pool.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CPUS_MAX = 4096, PATH_BYTES = 1024 };

// Reads the first size - 1 bytes of a file as text. False: it cannot be read.
static bool read_small(const char *root, const char *path, char *out, size_t size)
{
    char full[PATH_BYTES + 256];
    if ((size_t)snprintf(full, sizeof(full), "%s%s", root, path) >= sizeof(full))
        return false;
    int fd = open(full, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, out, size - 1);
    close(fd);
    if (n < 0)
        return false;
    out[n] = 0;
    return true;
}

// The CPU time that one control group allows, in CPUs. 0: it sets no limit.
static double group_quota(const char *root, const char *mount, const char *group, bool v2)
{
    char path[PATH_BYTES], text[64];
    double quota = 0, period = 0;
    if (v2) {
        snprintf(path, sizeof(path), "%s%s/cpu.max", mount, group);
        if (!read_small(root, path, text, sizeof(text)) || sscanf(text, "%lf %lf", &quota, &period) != 2)
            return 0;
    } else {
        snprintf(path, sizeof(path), "%s%s/cpu.cfs_quota_us", mount, group);
        if (!read_small(root, path, text, sizeof(text)) || sscanf(text, "%lf", &quota) != 1)
            return 0;
        snprintf(path, sizeof(path), "%s%s/cpu.cfs_period_us", mount, group);
        if (!read_small(root, path, text, sizeof(text)) || sscanf(text, "%lf", &period) != 1)
            return 0;
    }
    return quota > 0 && period > 0 ? quota / period : 0;
}

// The lesser of two quotas, of which 0 means none.
static double least(double a, double b)
{
    return a > 0 && (b <= 0 || a < b) ? a : b;
}

// The least quota of a group and its ancestors. `group` is shortened on the way up.
static double path_quota(const char *root, const char *mount, char *group, bool v2)
{
    double quota = 0;
    for (;;) {
        size_t len = strlen(group);
        while (len && group[len - 1] == '/')
            group[--len] = 0;
        quota = least(group_quota(root, mount, group, v2), quota);
        char *slash = strrchr(group, '/');
        if (!slash)
            return quota;
        *slash = 0;
    }
}

// The quota that a line of /proc/self/cgroup leads to. A line is ID:CONTROLLERS:PATH; v2 names no controllers.
static double line_quota(const char *root, char *line)
{
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group || strlen(group) > PATH_BYTES / 2)
        return 0;
    *controllers++ = 0;
    *group++ = 0;
    if (!*controllers)
        return path_quota(root, "/sys/fs/cgroup", group, true);
    char list[128];
    if ((size_t)snprintf(list, sizeof(list), ",%s,", controllers) >= sizeof(list) || !strstr(list, ",cpu,"))
        return 0;
    char copy[PATH_BYTES];
    snprintf(copy, sizeof(copy), "%s", group);
    double q = path_quota(root, "/sys/fs/cgroup/cpu", copy, false);
    return least(path_quota(root, "/sys/fs/cgroup/cpu,cpuacct", group, false), q);
}

static double quota_of_self(const char *root)
{
    char text[8192];
    double quota = 0;
    if (!read_small(root, "/proc/self/cgroup", text, sizeof(text)))
        return 0;
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        quota = least(line_quota(root, line), quota);
    return quota;
}

// Counts the cores of the allowed CPUs: a CPU is not counted if the first hardware thread of its core is another
// allowed CPU.
static int physical_cores(const char *root, const cpu_set_t *allowed, size_t set_bytes)
{
    static const char topology[] = "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list";
    int cores = 0;
    for (int cpu = 0; cpu < CPUS_MAX; cpu++) {
        char path[128], text[128];
        int first = cpu, second = -1;
        if (!CPU_ISSET_S(cpu, set_bytes, allowed))
            continue;
        snprintf(path, sizeof(path), topology, cpu);
        if (!read_small(root, path, text, sizeof(text)) || sscanf(text, "%d%*[,-]%d", &first, &second) < 1)
            first = cpu;
        bool earlier_sibling = first < cpu && first >= 0 && CPU_ISSET_S(first, set_bytes, allowed);
        cores += !earlier_sibling;
    }
    return cores;
}

void threads_choose(const char *root, int wanted, struct thread_choice *out)
{
    cpu_set_t *allowed = CPU_ALLOC(CPUS_MAX);
    size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
    *out = (struct thread_choice){.allowed = 1, .cores = 1};
    if (allowed && sched_getaffinity(0, bytes, allowed) == 0) {
        out->allowed = MAX(CPU_COUNT_S(bytes, allowed), 1);
        out->cores = MAX(physical_cores(root, allowed, bytes), 1);
    }
    CPU_FREE(allowed);
    out->quota = quota_of_self(root);
    out->n = out->cores;
    snprintf(out->why, sizeof(out->why), "%d physical cores of %d CPUs allowed", out->cores, out->allowed);
    if (out->quota > 0 && out->quota < out->n) {
        out->n = MAX((int)out->quota, 1);
        snprintf(out->why, sizeof(out->why), "a control group allows %.2f CPUs", out->quota);
    }
    if (wanted > 0) {
        out->n = wanted;
        snprintf(out->why, sizeof(out->why), "asked for");
    }
}
