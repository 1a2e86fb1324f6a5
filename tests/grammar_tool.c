// A filter for check_schemas.py: answers requests, one line of JSON each, about the texts that a schema's grammar
// accepts and generates.
//   {"schema": "TEXT", "open": false, "texts": ["..."], "samples": 3, "seed": 1}
// becomes {"error": "..."} or {"accepts": [true], "samples": ["..."]}. A sample that reached its limit is null.
#include "engine/json.h"
#include "tests/grammar_rig.h"

static void print_string(struct text *out, const char *data, size_t n)
{
    struct value v = value_string((struct str){data, n});
    struct error err;
    json_write_text(&v, &(struct json_style){.ascii = true}, out, &err);
}

static void answer(struct rig *r, const struct value *request, struct text *out)
{
    const struct value *schema = value_get(request, "schema"), *texts = value_get(request, "texts");
    const struct value *samples = value_get(request, "samples"), *seed = value_get(request, "seed");
    char *z = strndup(schema->text.data, schema->text.len), sample[1 << 16];
    if (!rig_schema(r, z, value_is_true(value_get(request, "open")))) {
        text_print(out, "{\"error\": ");
        print_string(out, r->err.text, strlen(r->err.text));
        text_print(out, "}\n");
        free(z);
        return;
    }
    text_print(out, "{\"accepts\": [");
    for (size_t i = 0; i < value_count(texts); i++) {
        struct str text = texts->list->items[i].text;
        text_print(out, "%s%s", i ? ", " : "", rig_accepts_n(r, text.data, text.len) ? "true" : "false");
    }
    text_print(out, "], \"samples\": [");
    uint64_t state = seed ? (uint64_t)seed->integer : 1;
    for (int64_t i = 0; samples && i < samples->integer; i++) {
        int n = rig_answer(r, &state, 3000, sample, sizeof sample);
        text_print(out, "%s", i ? ", " : "");
        if (n < 0)
            text_print(out, "null");
        else
            print_string(out, sample, (size_t)n);
    }
    text_print(out, "]}\n");
    free(z);
}

int main(void)
{
    struct rig r;
    char *line = NULL;
    size_t cap = 0;
    rig_begin(&r);
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
        struct arena arena = {0};
        struct json_reader reader = {.arena = &arena};
        struct value request;
        struct error err = {0};
        struct text out = {0};
        if (json_read(&request, &reader, (struct str){line, (size_t)n}, &err))
            text_print(&out, "{\"error\": \"request: %s\"}\n", err.text);
        else
            answer(&r, &request, &out);
        fwrite(out.data, 1, out.size, stdout);
        fflush(stdout);
        text_free(&out);
        arena_free(&arena);
    }
    free(line);
    rig_end(&r);
    return 0;
}
