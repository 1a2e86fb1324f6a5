// Takes the first line "model name" of /proc/cpuinfo. Where the file has no such line, the name is "unknown".
#include "engine/cpu_name.h"

#include <stdio.h>
#include <string.h>

void cpu_name(char *out, size_t size)
{
    snprintf(out, size, "unknown");
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];
    while (f && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (!value || strncmp(line, "model name", 10))
            continue;
        value[strcspn(value, "\n")] = '\0';
        snprintf(out, size, "%s", value + 1 + (value[1] == ' '));
        break;
    }
    if (f)
        fclose(f);
}
