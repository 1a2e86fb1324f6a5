// Reads tasks of choice. The files are not trusted: sizes are compared with what is left before they are used, and as
// many tasks are allocated as the bytes can hold.
#include "engine/measure/choice_tasks.h"

#include <limits.h>

enum { HELLASWAG_LINES = 6, HELLASWAG_ENDINGS = 4, WINOGRANDE_COMMAS = 4 };

const char *choice_kind_unit(enum choice_kind kind)
{
    return kind == CHOICE_MULTIPLE ? "task" : "line";
}

bool choice_task_is_right(const struct choice_task *t, int choice)
{
    return t->right[choice / 64] >> (choice % 64) & 1;
}

static void mark_right(struct choice_task *t, int choice)
{
    t->right[choice / 64] |= (uint64_t)1 << (choice % 64);
}

static int alloc_choices(struct choice_tasks *t, struct choice_task *task, int n, struct error *err)
{
    task->n = n;
    task->choices = ARENA_ARRAY(&t->arena, struct str, (size_t)n);
    return task->choices ? 0 : fail(err, E_MEMORY, "no memory for %d choices", n);
}

static int alloc_tasks(struct choice_tasks *t, size_t most, struct error *err)
{
    if (most > INT_MAX)
        return fail(err, E_USAGE, "%zu tasks are more than can be counted", most);
    t->tasks = ARENA_ARRAY(&t->arena, struct choice_task, most);
    return t->tasks ? 0 : fail(err, E_MEMORY, "no memory for %zu tasks", most);
}

// --- lines ---

struct lines {
    struct str rest;
    int at; // number of the line that was taken last
};

// Takes the next line, without its line break. False at the end.
static bool take_line(struct lines *l, struct str *line)
{
    if (!l->rest.len)
        return false;
    const char *end = memchr(l->rest.data, '\n', l->rest.len);
    size_t len = end ? (size_t)(end - l->rest.data) : l->rest.len, taken = end ? len + 1 : len;
    *line = (struct str){l->rest.data, len};
    if (len && line->data[len - 1] == '\r')
        line->len--;
    l->rest = (struct str){l->rest.data + taken, l->rest.len - taken};
    l->at++;
    return true;
}

static size_t count_lines(struct str file)
{
    struct lines l = {.rest = file};
    struct str line;
    size_t n = 0;
    while (take_line(&l, &line))
        n++;
    return n;
}

// The file without the line breaks at its end and a byte order mark at its beginning.
static struct str trimmed(struct str file)
{
    static const char mark[] = "\xEF\xBB\xBF";
    while (file.len && (file.data[file.len - 1] == '\n' || file.data[file.len - 1] == '\r'))
        file.len--;
    if (file.len >= 3 && !memcmp(file.data, mark, 3))
        file = (struct str){file.data + 3, file.len - 3};
    return file;
}

// A whole number from `least` to `most`, of one digit; -1 if the text is something else.
static int digit_of(struct str text, int least, int most)
{
    text = str_stripped(text);
    int value = text.len == 1 ? text.data[0] - '0' : -1;
    return value >= least && value <= most ? value : -1;
}

// --- HellaSwag ---

static int read_ending_lines(struct choice_tasks *t, struct choice_task *task, struct lines *l, struct error *err)
{
    struct str gold;
    if (alloc_choices(t, task, HELLASWAG_ENDINGS, err))
        return -1;
    bool whole = take_line(l, &gold);
    int right = whole ? digit_of(gold, 0, HELLASWAG_ENDINGS - 1) : -1;
    if (whole && right < 0)
        return fail(err, E_USAGE, "line %d: '%.*s' is no number of an ending, 0 to 3", l->at, STR_ARG(gold));
    for (int i = 0; i < HELLASWAG_ENDINGS; i++)
        whole = whole && take_line(l, &task->choices[i]);
    if (!whole)
        return fail(err, E_USAGE, "line %d: the file ends within a task, which has 6 lines: context, number, 4 endings",
                    l->at);
    mark_right(task, right);
    return 0;
}

static int read_hellaswag(struct choice_tasks *t, struct str file, struct error *err)
{
    struct lines l = {.rest = trimmed(file)};
    struct str context;
    if (alloc_tasks(t, count_lines(l.rest) / HELLASWAG_LINES + 1, err))
        return -1;
    for (; take_line(&l, &context); t->n++) {
        struct choice_task *task = &t->tasks[t->n];
        task->head = context;
        task->at = l.at;
        if (read_ending_lines(t, task, &l, err))
            return -1;
    }
    return 0;
}

// --- WinoGrande ---

// Finds the commas outside of quotes. Returns how many there are, up to 4.
static int find_commas(struct str line, size_t at[WINOGRANDE_COMMAS])
{
    bool quoted = false;
    int n = 0;
    for (size_t i = 0; i < line.len && n < WINOGRANDE_COMMAS; i++) {
        quoted ^= line.data[i] == '"';
        if (line.data[i] == ',' && !quoted)
            at[n++] = i;
    }
    return n;
}

// The field between two positions, without the quotes around it.
static struct str field_of(struct str line, size_t from, size_t to)
{
    struct str field = {line.data + from, to - from};
    if (field.len >= 2 && field.data[0] == '"' && field.data[field.len - 1] == '"')
        field = (struct str){field.data + 1, field.len - 2};
    return field;
}

// The answer in the field that begins at `from`: 1 or 2; -1 if it is something else.
static int answer_of(struct str line, size_t from, struct str *field)
{
    const char *end = from < line.len ? memchr(line.data + from, ',', line.len - from) : NULL;
    *field = field_of(line, from, end ? (size_t)(end - line.data) : line.len);
    return digit_of(*field, 1, 2);
}

static int read_sentence(struct choice_tasks *t, struct choice_task *task, struct str line, struct error *err)
{
    size_t comma[WINOGRANDE_COMMAS];
    if (find_commas(line, comma) < WINOGRANDE_COMMAS)
        return fail(err, E_USAGE, "line %d: fewer than 5 fields: number, sentence, choice, choice, answer", task->at);
    struct str sentence = field_of(line, comma[0] + 1, comma[1]), answer;
    const char *blank = sentence.len ? memchr(sentence.data, '_', sentence.len) : NULL;
    if (!blank)
        return fail(err, E_USAGE, "line %d: its sentence has no _", task->at);
    int right = answer_of(line, comma[3] + 1, &answer);
    if (right < 0)
        return fail(err, E_USAGE, "line %d: the answer '%.*s' is not 1 or 2", task->at, STR_ARG(answer));
    if (alloc_choices(t, task, 2, err))
        return -1;
    size_t before = (size_t)(blank - sentence.data);
    task->head = (struct str){sentence.data, before};
    task->tail = (struct str){blank + 1, sentence.len - before - 1};
    for (int i = 0; i < 2; i++)
        task->choices[i] = field_of(line, comma[1 + i] + 1, comma[2 + i]);
    mark_right(task, right - 1);
    return 0;
}

static int read_winogrande(struct choice_tasks *t, struct str file, struct error *err)
{
    struct lines l = {.rest = trimmed(file)};
    struct str line;
    if (alloc_tasks(t, count_lines(l.rest) + 1, err))
        return -1;
    while (take_line(&l, &line)) {
        if (!str_stripped(line).len)
            continue;
        t->tasks[t->n].at = l.at;
        if (read_sentence(t, &t->tasks[t->n], line, err))
            return -1;
        t->n++;
    }
    return 0;
}

// --- multiple choice ---

// What is left of the bytes. A read beyond their end sets `over` and gives zeros.
struct reader {
    struct str rest;
    bool over;
};

static struct str take(struct reader *r, size_t size)
{
    r->over |= size > r->rest.len;
    if (r->over)
        return (struct str){"", 0};
    struct str taken = {r->rest.data, size};
    r->rest = (struct str){r->rest.data + size, r->rest.len - size};
    return taken;
}

static uint32_t take_u32(struct reader *r)
{
    uint32_t value = 0;
    struct str bytes = take(r, sizeof value);
    memcpy(&value, bytes.data, bytes.len);
    return value;
}

static struct str take_text(struct reader *r)
{
    return take(r, take_u32(r));
}

// Passes over a set of answers, or reads it if `task` is not NULL.
static int read_answers(struct choice_tasks *t, struct reader *r, int at, struct choice_task *task, struct error *err)
{
    uint32_t n = take_u32(r);
    if (r->over || n > CHOICES_MAX || (task && !n))
        return fail(err, E_USAGE, "task %d: %s", at,
                    r->over ? "the file ends within it"
                    : n     ? "it has more than 100 answers, so this is no file of multiple choice"
                            : "it has no answers");
    if (task && alloc_choices(t, task, (int)n, err))
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        struct str text = take_text(r);
        if (task)
            task->choices[i] = text;
        if (task && !text.len && !r->over)
            return fail(err, E_USAGE, "task %d: answer %u is empty", at, i + 1);
    }
    for (uint32_t i = 0; i < n; i++)
        if (take_u32(r) == 1 && task)
            mark_right(task, (int)i);
    return r->over ? fail(err, E_USAGE, "task %d: the file ends within it", at) : 0;
}

static int read_multiple(struct choice_tasks *t, struct str file, struct error *err)
{
    struct reader r = {.rest = file};
    size_t n = take_u32(&r);
    enum { LEAST = 3 * sizeof(uint32_t) }; // the bytes of a task
    if (r.over || n > r.rest.len / (sizeof(uint32_t) + LEAST))
        return fail(err, E_USAGE, "%zu bytes cannot hold %zu tasks: this is no file of multiple choice", file.len, n);
    take(&r, n * sizeof(uint32_t));
    if (alloc_tasks(t, n, err))
        return -1;
    for (; (size_t)t->n < n; t->n++) {
        struct choice_task *task = &t->tasks[t->n];
        task->at = t->n + 1;
        task->head = take_text(&r);
        if (!task->head.len && !r.over)
            return fail(err, E_USAGE, "task %d: its question is empty", task->at);
        if (read_answers(t, &r, task->at, task, err) || read_answers(t, &r, task->at, NULL, err))
            return -1;
    }
    return 0;
}

// --- all kinds ---

int choice_tasks_read(struct choice_tasks *t, enum choice_kind kind, struct str file, struct error *err)
{
    static int (*const read[CHOICE_KINDS])(struct choice_tasks *, struct str, struct error *) = {
        [CHOICE_HELLASWAG] = read_hellaswag,
        [CHOICE_WINOGRANDE] = read_winogrande,
        [CHOICE_MULTIPLE] = read_multiple,
    };
    *t = (struct choice_tasks){.kind = kind};
    int status = read[kind](t, file, err);
    if (!status && !t->n)
        status = fail(err, E_USAGE, "the file has no tasks");
    if (status)
        choice_tasks_free(t);
    return status;
}

void choice_tasks_free(struct choice_tasks *t)
{
    arena_free(&t->arena);
    *t = (struct choice_tasks){.kind = t->kind};
}
