// Shared by the tests of quern batch that read its lines of output.
#ifndef QUERN_BATCH_ROWS_H
#define QUERN_BATCH_ROWS_H

#include "tests/batch_rig.h"

#include <cjson/cJSON.h>

// The i-th row of a file, from 1; to be deleted.
static inline cJSON *row_of(const char *path, int i)
{
    char *text = read_text(path), *line = text;
    while (--i && line)
        line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL;
    cr_assert(line && *line, "%s is too short", path);
    cJSON *row = cJSON_ParseWithLength(line, strcspn(line, "\n"));
    cr_assert(row, "no JSON: %s", line);
    free(text);
    return row;
}

static inline const cJSON *at(const cJSON *v, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(v, key);
}

static inline const cJSON *choice_of(const cJSON *row, int i)
{
    return cJSON_GetArrayItem(at(at(at(row, "response"), "body"), "choices"), i);
}

static inline void expect_error(const char *path, int i, const char *code, const char *text)
{
    cJSON *row = row_of(path, i);
    const cJSON *error = at(row, "error");
    cr_assert(cJSON_IsNull(at(row, "response")));
    cr_assert_str_eq(cJSON_GetStringValue(at(error, "code")), code);
    cr_assert(strstr(cJSON_GetStringValue(at(error, "message")), text), "%s: %s", code,
              cJSON_GetStringValue(at(error, "message")));
    cJSON_Delete(row);
}

static inline int count_lines(const char *path)
{
    char *text = read_text(path);
    int n = 0;
    for (char *c = text; *c; c++)
        n += *c == '\n';
    free(text);
    return n;
}

#endif
