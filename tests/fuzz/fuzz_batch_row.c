// Fuzz target: any input of a batch. Every record becomes a row or an error row, whose line is one that a resumed run
// reads back; the records are the same however the file is read.
//
// With -DFUZZ_SEEDS it is a program that writes a few sound inputs into the directory that it is given, to start from.
// An input is a byte for the format and whether there is a template, then the file.
#include "cmd/batch/batch_job.h"
#include "cmd/batch/batch_output.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_batch_row: %s\n", what);
    abort();
}

static void check_line(const struct batch_row *row, const char *code, const struct error *err)
{
    struct text line = {0};
    struct output_line back;
    struct error failed;
    check(code && *code && err->text[0], "an error without a code or a text");
    check(!batch_error_print(row->number, row->custom_id, code, err->text, &line, &failed), "a line is not printed");
    check(line.size && line.data[line.size - 1] == '\n' && !memchr(line.data, '\n', line.size - 1), "no line");
    check(output_line_parse((struct str){line.data, line.size - 1}, &back), "a line is not read back");
    check(back.is_error && back.number == row->number, "a line is read back as another");
    text_free(&line);
}

static void check_row(const struct batch_row *row)
{
    check(row->custom_id.data && utf8_valid(row->custom_id), "a row without an id");
    check(row->kind != ROW_CHAT || row->messages, "a chat without messages");
    check(row->kind != ROW_COMPLETION || row->prompt, "a completion without a prompt");
    check(row->kind == ROW_EMBEDDING || (row->settings.n >= 1 && row->settings.n <= ROW_SAMPLES_MOST), "n");
    check(row->n_stops <= ROW_STOPS_MOST, "stops");
}

static void read_all(struct batch_input *in, struct row_form *form, struct arena *arena)
{
    struct record record;
    struct error err;
    int64_t n = 0;
    bool has_columns = form->format != FORMAT_CSV && form->format != FORMAT_TSV;
    while (batch_input_next(in, &record, &err) == 1) {
        check(record.number == ++n, "records are not counted");
        if (!has_columns) {
            if (batch_row_columns(&record, form->format, arena, &form->fields, &form->n_fields, &err))
                return;
            has_columns = true;
            continue;
        }
        struct batch_row row = {0};
        const char *code = NULL;
        if (batch_row_parse(&row, &record, form, &code, &err))
            check_line(&row, code, &err);
        else
            check_row(&row);
        batch_row_free(&row);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct batch_input in;
    struct batch_survey survey;
    struct arena arena = {0};
    struct error err;
    char path[64];
    if (size < 1)
        return 0;
    int fd = memfd_create("batch", 0);
    check(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)(size - 1), "no file in memory");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    static const enum batch_format formats[] = {FORMAT_AUTO, FORMAT_JSONL, FORMAT_LINES, FORMAT_CSV, FORMAT_TSV};
    check(!batch_input_open(&in, path, ".", formats[data[0] % COUNT_OF(formats)], &err), "the file is not opened");
    check(!batch_input_survey(&in, &survey, &err), "the file is not read");
    struct row_form form = {.format = in.format, .kind = data[0] & 64 ? ROW_CHAT : ROW_COMPLETION};
    if (data[0] & 128)
        form.prompt = STR_LIT("{{text}} and {{q}}");
    if (data[0] & 32)
        form.system = STR_LIT("Be brief.");
    read_all(&in, &form, &arena);
    check(in.n_records == survey.n_records || form.fields == NULL, "the survey counts others");
    arena_free(&arena);
    batch_input_close(&in);
    close(fd);
    return 0;
}

#ifdef FUZZ_SEEDS
int main(int argc, char **argv)
{
    static const char *const seeds[] = {
        "\1{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/"
        "completions\",\"body\":{\"model\":\"m\",\"messages\":"
        "[{\"role\":\"user\",\"content\":\"hi\"}],\"temperature\":0.5,\"top_p\":0.9,\"max_tokens\":5,\"stop\":[\"x\"],"
        "\"seed\":7,\"n\":2,\"logprobs\":true,\"top_logprobs\":3,\"logit_bias\":{\"5\":-100},\"response_format\":"
        "{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{}}},\"tools\":[],\"reasoning_effort\":\"low\"}}\n",
        "\1{\"custom_id\":\"b\",\"url\":\"/v1/"
        "completions\",\"body\":{\"prompt\":[[1,2],\"x\"],\"logprobs\":2,\"echo\":false}}\n",
        "\1{\"custom_id\":\"c\",\"url\":\"/v1/embeddings\",\"body\":{\"input\":\"x\"}}\n{\"id\":3,\"prompt\":\"y\"}\n",
        "\xc1{\"q\":[1,{\"a\":null}],\"text\":\"z\"}\n",
        "\2one\n\ntwo\r\n",
        "\xc3q,text,id\n\"a \"\"b\"\"\nc\",d,1\ne,f,2\n",
        "\xc4q\ttext\na\tb\n",
        "\5{\"text\":\"x\"}\n"};
    for (size_t i = 0; argc > 1 && i < COUNT_OF(seeds); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed-%zu", argv[1], i);
        FILE *f = fopen(path, "w");
        if (!f || fputs(seeds[i], f) < 0 || fclose(f))
            return 1;
    }
    return 0;
}
#endif
