// Tests tasks of choice: the files of llama-perplexity and what is wrong with bad ones, the tasks that it draws, and
// scores against those of texts computed one by one, token by token.
#include "engine/measure/choice_score.h"
#include "models/synth_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// --- files ---

static const char hellaswag[] = "Playing: a child\n2\nruns.\nis red.\nhas a ball.\nnever\n"
                                "Eating: a dog\n0\nbarks, loudly.\neats a bone.\nsings a song\nsleeps";
static const char winogrande[] = "0,Lily saw Tom because _ was tall.,Lily,Tom,2\n\n"
                                 "1,\"Max, who had a _ in the bag, ran.\",ball,\"red, round ball\",1\r\n";

static void put_u32(struct text *out, uint32_t v)
{
    text_append(out, (struct str){(const char *)&v, sizeof v});
}

static void put_text(struct text *out, const char *words)
{
    put_u32(out, (uint32_t)strlen(words));
    text_append(out, str_from(words));
}

static void put_answers(struct text *out, const char *const *answers, uint32_t n, uint32_t right)
{
    put_u32(out, n);
    for (uint32_t i = 0; i < n; i++)
        put_text(out, answers[i]);
    for (uint32_t i = 0; i < n; i++)
        put_u32(out, i == right);
}

// Two tasks, the second with a second set of answers.
static struct text multiple(void)
{
    static const char *const answers[] = {"a cat", "the dog", "two"};
    struct text out = {0};
    put_u32(&out, 2);
    put_u32(&out, 12);
    put_u32(&out, 70);
    for (uint32_t i = 0; i < 2; i++) {
        put_text(&out, i ? "What is it?" : "Who?");
        put_answers(&out, answers, 3 - i, 1);
        put_answers(&out, answers + 1, i, 0);
    }
    return out;
}

static struct str file_of(enum choice_kind kind, struct text *room)
{
    *room = kind == CHOICE_MULTIPLE ? multiple() : (struct text){0};
    if (kind == CHOICE_HELLASWAG)
        text_append(room, STR_LIT(hellaswag));
    if (kind == CHOICE_WINOGRANDE)
        text_append(room, STR_LIT(winogrande));
    return (struct str){room->data, room->size};
}

static void read_sound(struct choice_tasks *t, enum choice_kind kind, struct str file)
{
    struct error err;
    cr_assert_eq(choice_tasks_read(t, kind, file, &err), 0, "%s", err.text);
}

Test(choice, hellaswag_has_six_lines_a_task)
{
    struct choice_tasks t;
    read_sound(&t, CHOICE_HELLASWAG, STR_LIT(hellaswag));
    cr_assert(t.n == 2 && t.tasks[1].n == 4);
    cr_expect(str_equal_z(t.tasks[0].head, "Playing: a child") && str_equal_z(t.tasks[1].choices[3], "sleeps"));
    for (int i = 0; i < 4; i++)
        cr_expect(choice_task_is_right(&t.tasks[0], i) == (i == 2) && choice_task_is_right(&t.tasks[1], i) == (i == 0));
    cr_expect_eq(t.tasks[1].at, 7);
    choice_tasks_free(&t);
}

Test(choice, winogrande_has_a_line_of_csv_a_task)
{
    struct choice_tasks t;
    read_sound(&t, CHOICE_WINOGRANDE, STR_LIT(winogrande));
    cr_assert_eq(t.n, 2);
    const struct choice_task *a = &t.tasks[0], *b = &t.tasks[1];
    cr_expect(str_equal_z(a->head, "Lily saw Tom because ") && str_equal_z(a->tail, " was tall."));
    cr_expect(str_equal_z(a->choices[1], "Tom") && choice_task_is_right(a, 1) && !choice_task_is_right(a, 0));
    cr_expect(str_equal_z(b->head, "Max, who had a ") && str_equal_z(b->tail, " in the bag, ran."));
    cr_expect(str_equal_z(b->choices[1], "red, round ball") && choice_task_is_right(b, 0) && b->at == 3);
    choice_tasks_free(&t);
}

Test(choice, multiple_choice_takes_the_first_set_of_answers)
{
    struct text file = multiple();
    struct choice_tasks t;
    read_sound(&t, CHOICE_MULTIPLE, (struct str){file.data, file.size});
    cr_assert(t.n == 2 && t.tasks[0].n == 3 && t.tasks[1].n == 2);
    cr_expect(str_equal_z(t.tasks[1].head, "What is it?") && str_equal_z(t.tasks[0].choices[2], "two"));
    cr_expect(choice_task_is_right(&t.tasks[0], 1) && !choice_task_is_right(&t.tasks[0], 2));
    choice_tasks_free(&t);
    text_free(&file);
}

Test(choice, a_bad_file_is_an_error_with_its_line_or_task)
{
    static const struct {
        enum choice_kind kind;
        const char *file, *says;
    } cases[] = {
        {CHOICE_HELLASWAG, "", "no tasks"},
        {CHOICE_HELLASWAG, "a\n1\nb\nc\nd\n", "line 5: the file ends within a task"},
        {CHOICE_HELLASWAG, "a", "line 1: the file ends within a task"},
        {CHOICE_HELLASWAG, "a\n4\nb\nc\nd\ne\n", "line 2: '4' is no number of an ending"},
        {CHOICE_HELLASWAG, "a\n1\nb\nc\nd\ne\nf\nx\nb\nc\nd\ne", "line 8: 'x'"},
        {CHOICE_WINOGRANDE, "\n \n", "no tasks"},
        {CHOICE_WINOGRANDE, "0,a _ b,c,d", "line 1: fewer than 5 fields"},
        {CHOICE_WINOGRANDE, "0,a _ b,c,d,1\n1,\"a _, b,c,d,1", "line 2: fewer than 5 fields"},
        {CHOICE_WINOGRANDE, "0,a b,c,d,1", "line 1: its sentence has no _"},
        {CHOICE_WINOGRANDE, "0,a _ b,c,d,3", "line 1: the answer '3' is not 1 or 2"},
        {CHOICE_WINOGRANDE, "0,a _ b,c,d,", "line 1: the answer '' is not 1 or 2"},
        {CHOICE_MULTIPLE, "", "cannot hold 0 tasks"},
        {CHOICE_MULTIPLE, "\xff\xff\xff\x7f....", "cannot hold 2147483647 tasks"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct choice_tasks t;
        struct error err = {0};
        cr_expect_eq(choice_tasks_read(&t, cases[i].kind, str_from(cases[i].file), &err), -1, "%s", cases[i].file);
        cr_expect(err.code == E_USAGE && strstr(err.text, cases[i].says), "'%s' says not '%s'", err.text,
                  cases[i].says);
    }
}

static void expect_refused(uint32_t value, size_t at, const char *says)
{
    struct text file = multiple();
    struct choice_tasks t;
    struct error err = {0};
    memcpy(file.data + at, &value, sizeof value);
    cr_expect_eq(choice_tasks_read(&t, CHOICE_MULTIPLE, (struct str){file.data, file.size}, &err), -1, "%s", says);
    cr_expect(strstr(err.text, says), "'%s' says not '%s'", err.text, says);
    text_free(&file);
}

Test(choice, sizes_in_a_binary_file_are_checked)
{
    expect_refused(1u << 31, 12, "task 1: the file ends within it");
    expect_refused(0, 12, "task 1: its question is empty");
    expect_refused(101, 20, "task 1: it has more than 100 answers");
    expect_refused(0, 20, "task 1: it has no answers");
    expect_refused(UINT32_MAX, 24, "task 1: the file ends within it");
    expect_refused(0, 24, "task 1: answer 1 is empty");
    expect_refused(3, 0, "the file ends within it"); // one offset more, so that all else moves
}

// Any bytes are read or refused; every view lies within them. A copy of exact size lets sanitizers see a byte too far.
static void try_bytes(enum choice_kind kind, const char *data, size_t size)
{
    char *copy = malloc(size + !size);
    struct choice_tasks t;
    struct error err = {0};
    memcpy(copy, data, size);
    if (choice_tasks_read(&t, kind, (struct str){copy, size}, &err)) {
        cr_expect(err.code == E_USAGE && err.text[0], "an error without words");
        free(copy);
        return;
    }
    for (int i = 0; i < t.n; i++)
        for (int k = 0; k < t.tasks[i].n; k++) {
            struct str c = t.tasks[i].choices[k];
            cr_assert(!c.len || (c.data >= copy && c.data + c.len <= copy + size));
        }
    cr_expect_eq(choice_tasks_select(&t, t.n - 1, &err), 0);
    choice_tasks_free(&t);
    free(copy);
}

Test(choice, a_file_cut_or_changed_anywhere_is_read_or_refused)
{
    srand(7);
    for (int kind = 0; kind < CHOICE_KINDS; kind++) {
        struct text room;
        struct str file = file_of((enum choice_kind)kind, &room);
        for (size_t n = 0; n < file.len; n++)
            try_bytes((enum choice_kind)kind, file.data, n);
        for (int i = 0; i < 20000; i++) {
            char *byte = &room.data[(size_t)rand() % file.len], kept = *byte;
            *byte = (char)(i % 3 ? rand() : rand() % 4);
            try_bytes((enum choice_kind)kind, file.data, file.len);
            if (i % 5) // a few changes stay
                *byte = kept;
        }
        text_free(&room);
    }
}

// --- which tasks are drawn ---

static void expect_drawn(enum choice_kind kind, const char *task, const int *wanted, int n)
{
    struct text file = {0};
    struct choice_tasks t;
    struct error err;
    for (int i = 0; i < 100; i++)
        text_append(&file, str_from(task));
    read_sound(&t, kind, (struct str){file.data, file.size});
    cr_assert_eq(choice_tasks_select(&t, n, &err), 0);
    cr_assert_eq(t.n, n);
    int lines = kind == CHOICE_HELLASWAG ? 6 : 1;
    for (int i = 0; i < n; i++)
        cr_expect_eq((t.tasks[i].at - 1) / lines, wanted[i], "%d: %d", i, (t.tasks[i].at - 1) / lines);
    choice_tasks_free(&t);
    text_free(&file);
}

// The numbers are those of std::mt19937 with std::uniform_int_distribution, and with a product in float.
Test(choice, a_part_of_a_file_is_the_one_that_llama_perplexity_draws)
{
    expect_drawn(CHOICE_HELLASWAG, "a\n1\nb\nc\nd\ne\n", (int[]){41, 99, 71, 92, 0, 13, 30, 98, 15, 24, 9, 42}, 12);
    expect_drawn(CHOICE_WINOGRANDE, "0,a _ b,c,d,1\n", (int[]){41, 98, 70, 90, 0, 12, 28, 92, 13, 21, 8, 35}, 12);
}

Test(choice, draws_beyond_the_first_thousand_are_those_of_the_library_too)
{
    struct text file = {0};
    struct choice_tasks t;
    struct error err;
    long sum = 0;
    for (int i = 0; i < 2000; i++)
        text_print(&file, "a\n1\nb\nc\nd\ne\n");
    read_sound(&t, CHOICE_HELLASWAG, (struct str){file.data, file.size});
    cr_assert_eq(choice_tasks_select(&t, 1500, &err), 0);
    for (int i = 0; i < t.n; i++)
        sum += (long)(t.tasks[i].at - 1) / 6 * (i + 1);
    cr_expect_eq(sum, 1137359210);
    cr_expect_eq((t.tasks[1499].at - 1) / 6, 1224);
    choice_tasks_free(&t);
    text_free(&file);
}

// --- scores ---

static struct model *open_synthetic(const char *preset)
{
    char path[] = "/tmp/quern-choice-XXXXXX";
    struct model *m;
    struct error err;
    close(mkstemp(path));
    cr_assert_eq(synth_model_write(&(struct synth_options){.preset = preset, .mix = "F32", .n_vocab = 400, .seed = 7},
                                   path, &err),
                 0, "%s", err.text);
    cr_assert_eq(model_open(&m, &(struct model_options){.path = path, .machine.n_threads = 2}, &err), 0, "%s",
                 err.text);
    unlink(path);
    return m;
}

// The mean of a text's scored tokens, in a session of its own, a token a step.
static double score_plainly(struct model *m, const struct choice_text *t)
{
    struct session *s;
    struct error err;
    double sum = 0;
    cr_assert_eq(session_open(&s, m, &(struct session_options){.n_ctx = t->n, .n_batch = 1}, &err), 0, "%s", err.text);
    for (int i = 0; i + 1 < t->to; i++) {
        cr_assert_eq(session_step(s, &(struct session_row){t->ids[i], 0, true}, 1, &err), 0, "%s", err.text);
        const float *logits = session_logits(s, 0);
        if (i + 1 >= t->from)
            sum += logits[t->ids[i + 1]] - log_sum_exp(logits, m->info.n_vocab);
    }
    session_close(s);
    return sum / (t->to - t->from);
}

// `plain` has the scores of all texts of the set, computed one by one in the first run.
struct expectation {
    struct model *m;
    const struct choice_set *set;
    int at, n_plain, text;
    double plain[16];
};

static void expect_item(void *arg, const struct choice_item *item, const double *scores, int chosen)
{
    struct expectation *e = arg;
    cr_expect_eq(item, &e->set->items[e->at++]);
    for (int k = 0; k < item->task->n; k++) {
        if (e->text == e->n_plain)
            e->plain[e->n_plain++] = score_plainly(e->m, &item->texts[k]);
        double wanted = e->plain[e->text++];
        cr_expect_eq(scores[k], wanted, "%.17g, not %.17g", scores[k], wanted);
        cr_expect_leq(scores[k], scores[chosen]);
    }
}

static void run_set(struct expectation *e, struct choice_set *set, int n_batch)
{
    struct session *s;
    struct error err;
    struct session_options o = choice_set_session(set, n_batch, e->m->info.n_vocab);
    cr_assert_eq(session_open(&s, e->m, &o, &err), 0, "%s", err.text);
    struct choice_sink sink = {.item = expect_item, .arg = e};
    e->at = e->text = 0;
    cr_assert_eq(choice_set_run(set, s, &sink, &err), 0, "%s", err.text);
    cr_expect_eq(e->at, set->n);
    session_close(s);
}

static void expect_scores(struct model *m, enum choice_kind kind)
{
    struct text room;
    struct choice_tasks tasks;
    struct choice_set set;
    struct error err;
    const int batches[] = {1, 7, 64, 512};
    read_sound(&tasks, kind, file_of(kind, &room));
    cr_assert_eq(choice_set_prepare(&set, &tasks, m->tokenizer, 0, &err), 0, "%s", err.text);
    struct expectation e = {.m = m, .set = &set};
    for (size_t i = 0; i < COUNT_OF(batches); i++)
        run_set(&e, &set, batches[i]);
    choice_set_free(&set);
    choice_tasks_free(&tasks);
    text_free(&room);
}

// Common tokens are computed once, and texts beside each other, with no bit changed: also with a sliding window, and
// with layers that keep a state.
Test(choice, scores_in_any_batch_are_those_of_single_texts)
{
    static const char *const presets[] = {"llama-tiny", "gemma2-tiny", "qwen35-tiny"};
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        struct model *m = open_synthetic(presets[i]);
        for (int kind = 0; kind < CHOICE_KINDS; kind++)
            expect_scores(m, (enum choice_kind)kind);
        model_close(m);
    }
}

Test(choice, a_text_that_begins_another_one_has_its_last_token_scored)
{
    struct model *m = open_synthetic("llama-tiny");
    struct choice_tasks tasks;
    struct choice_set set;
    struct error err;
    read_sound(&tasks, CHOICE_HELLASWAG, STR_LIT("a b\n0\nc\nc\nc\nc\n"));
    cr_assert_eq(choice_set_prepare(&set, &tasks, m->tokenizer, 0, &err), 0, "%s", err.text);
    const struct choice_text *t = &set.items[0].texts[3];
    cr_expect(set.items[0].n_common == t->n - 1 && t->from == t->n - 1 && t->to == t->n);
    choice_set_free(&set);
    cr_expect_eq(choice_set_prepare(&set, &tasks, m->tokenizer, 2, &err), -1);
    cr_expect(strstr(err.text, "line 1: a text has") && strstr(err.text, "-c"), "%s", err.text);
    choice_tasks_free(&tasks);
    model_close(m);
}

static atomic_bool stopped;

static void stop(void *arg, int64_t done, int64_t total)
{
    (void)arg, (void)total;
    atomic_store(&stopped, done > 0);
}

static void refuse_item(void *arg, const struct choice_item *item, const double *scores, int chosen)
{
    (void)arg, (void)item, (void)scores, (void)chosen;
    cr_expect(false, "a task that was not computed");
}

Test(choice, an_interrupt_ends_the_run_after_a_step)
{
    struct model *m = open_synthetic("llama-tiny");
    struct choice_tasks tasks;
    struct choice_set set;
    struct session *s;
    struct error err = {0};
    read_sound(&tasks, CHOICE_HELLASWAG, STR_LIT(hellaswag));
    cr_assert_eq(choice_set_prepare(&set, &tasks, m->tokenizer, 0, &err), 0, "%s", err.text);
    struct session_options o = choice_set_session(&set, 4, m->info.n_vocab);
    cr_assert_eq(session_open(&s, m, &o, &err), 0, "%s", err.text);
    struct choice_sink sink = {.item = refuse_item, .progress = stop, .cancel = &stopped};
    cr_expect_eq(choice_set_run(&set, s, &sink, &err), -1);
    cr_expect_eq(err.code, E_INTERRUPTED);
    session_close(s);
    choice_set_free(&set);
    choice_tasks_free(&tasks);
    model_close(m);
}

// --- counting ---

Test(choice, the_interval_is_that_of_wilson)
{
    struct choice_tally t = {.n = 100, .n_right = 34, .n_choices = 400};
    double low, high;
    choice_tally_interval(&t, &low, &high);
    cr_expect_float_eq(low, 0.254615, 1e-6);
    cr_expect_float_eq(high, 0.437223, 1e-6);
    cr_expect_float_eq(choice_tally_accuracy(&t).error, sqrt(0.34 * 0.66 / 99), 1e-12);
    cr_expect_float_eq(choice_tally_chance(&t), 0.25, 1e-12);
    cr_expect_eq(choice_tally_accuracy(&(struct choice_tally){.n = 1, .n_right = 1}).error, 0);
}

// --- a model that learned something ---

static void write_file(char path[], const char *text)
{
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void expect_output(const char *flags, const char *path, const char *const *says, size_t n)
{
    const char *shared = getenv("QUERN_SHARED");
    char model[512], command[2048], out[8192];
    snprintf(model, sizeof model, "%s/models/stories260K.gguf", shared ? shared : "../shared");
    if (access(model, R_OK))
        cr_skip_test("skipped: no %s", model);
    snprintf(command, sizeof command, "'%s' perplexity -m '%s' %s -f %s -ctk f32 -ctv f32 -v 2>&1", getenv("QUERN_BIN"),
             model, flags, path);
    FILE *f = popen(command, "r");
    cr_assert(f);
    out[fread(out, 1, sizeof out - 1, f)] = '\0';
    cr_expect_eq(pclose(f), 0, "%s", out);
    for (size_t i = 0; i < n; i++)
        cr_expect(strstr(out, says[i]), "no '%s' in: %s", says[i], out);
}

// What llama-perplexity says of the same file and text (F32 cache, no flash attention).
Test(choice, winogrande_of_a_real_model_is_what_llama_perplexity_finds)
{
    static const char *const says[] = {
        "-1.734180  -1.83644", "-1.794958  -1.884013", "-2.768514  -2.443304",
        "WinoGrande: accuracy 0.0000% +/- 0.0000%, 95% interval [0.0000%, 56.1497%], 3 tasks, chance 50.0000%\n"};
    char path[] = "/tmp/quern-choice-XXXXXX";
    write_file(path, "0,Lily was sad because Tom took her ball so _ gave it back to her and said sorry.,Lily,Tom,2\n"
                     "1,\"Max wanted to play with Ben, but _ was tired and went to bed early.\",Max,Ben,2\n"
                     "2,Mia found a toy in the box and put the _ on the bed to sleep with it.,toy,box,1\n");
    expect_output("--winogrande", path, says, COUNT_OF(says));
    unlink(path);
}

Test(choice, hellaswag_of_a_real_model_is_what_llama_perplexity_finds)
{
    static const char *const says[] = {
        "[1] line 7: ", "accuracy 50.0000%\n",
        "HellaSwag: accuracy 33.3333% +/- 33.3333%, 95% interval [6.1492%, 79.2340%], 3 tasks, chance 25.0000%\n"};
    char path[] = "/tmp/quern-choice-XXXXXX";
    write_file(path,
               "Playing: Lily went to the park and found a big ball. Then\n2\nshe was very happy and played with "
               "the ball.\nthe ball ate the park.\nshe gave it to her friend Tom.\nno one saw the sun.\n"
               "Eating: Once upon a time there was a dog named Max. Max saw a cake. He\n0\nate the cake and was "
               "happy.\nwas a cake.\nran to the sky.\nsat on mom.\n"
               "Once upon a time, a little girl\n1\nran.\nsaw a bird in a tree.\na bird in a tree saw.\nnamed the "
               "the.\n");
    expect_output("--hellaswag", path, says, COUNT_OF(says));
    unlink(path);
}
