// Reads the text of a kernel, and writes it as a part of a larger one; see emit_whole.h. The texts are those that the
// emitters write: one instruction or directive a line, and a name for each parameter and each array in shared memory.
#include "kernels/ptx/emit_whole.h"

#include "kernels/ptx/emit_early.h"

#include <stdlib.h>

// ---- lines and words

bool ptx_whole_line(struct str *text, struct str *line)
{
    if (!text->len)
        return false;
    const char *end = memchr(text->data, '\n', text->len);
    line->data = text->data;
    line->len = end ? (size_t)(end - text->data) : text->len;
    const size_t taken = line->len + (end ? 1 : 0);
    text->data += taken;
    text->len -= taken;
    return true;
}

static bool begins(struct str s, const char *with)
{
    const size_t n = strlen(with);
    return s.len >= n && !memcmp(s.data, with, n);
}

// The position of a word in a line; NULL: it is not there.
static const char *find(struct str s, const char *word)
{
    return memmem(s.data, s.len, word, strlen(word));
}

static struct str without_blanks(struct str s)
{
    while (s.len && *s.data == ' ')
        s.data++, s.len--;
    return s;
}

static bool in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// The characters of a word from `at` on.
static struct str word_at(struct str line, size_t at)
{
    size_t n = 0;
    while (at + n < line.len && in_word(line.data[at + n]))
        n++;
    return (struct str){line.data + at, n};
}

// ---- numbers

// The last operand of an addition to an address, if that is a number, and what is before it. Addresses are what differs
// between layers.
static bool last_number(struct str line, struct str *before, uint64_t *number)
{
    size_t n = line.len;
    if (!n || line.data[n - 1] != ';' || !begins(without_blanks(line), "add.u64 "))
        return false;
    size_t at = n - 1;
    while (at && line.data[at - 1] >= '0' && line.data[at - 1] <= '9')
        at--;
    if (at == n - 1 || at < 2 || line.data[at - 1] != ' ' || line.data[at - 2] != ',')
        return false;
    *before = (struct str){line.data, at};
    *number = strtoull(line.data + at, NULL, 10);
    return true;
}

static bool add_number(struct ptx_whole_part *part, uint32_t line)
{
    for (int i = 0; i < part->n_numbers; i++)
        if (part->numbers[i] == line)
            return true;
    if (part->n_numbers == PTX_WHOLE_NUMBERS)
        return false;
    part->numbers[part->n_numbers++] = line;
    return true;
}

bool ptx_whole_joins(struct ptx_whole_part *part, struct str text)
{
    struct ptx_whole_part joined = *part;
    struct str mine = part->text, line, other, before, other_before;
    uint64_t number;
    for (uint32_t i = 0;; i++) {
        const bool more = ptx_whole_line(&mine, &line);
        if (ptx_whole_line(&text, &other) != more)
            return false;
        if (!more)
            break;
        if (str_equal(line, other))
            continue;
        if (!last_number(line, &before, &number) || !last_number(other, &other_before, &number) ||
            !str_equal(before, other_before) || !add_number(&joined, i))
            return false;
    }
    *part = joined;
    return true;
}

void ptx_whole_numbers(const struct ptx_whole_part *part, struct str text, uint64_t numbers[PTX_WHOLE_NUMBERS])
{
    struct str line, before;
    for (uint32_t i = 0; ptx_whole_line(&text, &line); i++)
        for (int n = 0; n < part->n_numbers; n++)
            if (part->numbers[n] == i)
                last_number(line, &before, &numbers[n]);
}

// ---- reading

static uint32_t number_after(struct str line, const char *word)
{
    const char *at = find(line, word);
    return at ? (uint32_t)strtoul(at + strlen(word), NULL, 10) : 0;
}

// Adds an array in shared memory: ".shared .align 16 .b8 name[4096];". One without a size has all the dynamic bytes.
static int add_symbol(struct ptx_whole_text *t, struct str line, uint32_t bytes, struct error *err)
{
    static const char type[] = ".b8 ";
    const char *at = find(line, type);
    const uint32_t align = number_after(line, ".align ");
    if (!at || !align || align > WHOLE_ALIGN || t->n_symbols == WHOLE_SYMBOLS)
        return fail(err, E_GPU, "PTX: a kernel's array in shared memory: %.*s", STR_ARG(line));
    const struct str name = word_at(line, (size_t)(at - line.data) + sizeof type - 1);
    t->shared = (uint32_t)align_up(t->shared, align);
    t->symbols[t->n_symbols].name = name;
    t->symbols[t->n_symbols].at = t->shared;
    t->symbols[t->n_symbols++].bytes = bytes;
    t->shared += bytes;
    return 0;
}

static int add_param(struct ptx_whole_text *t, struct str line, struct error *err)
{
    static const char type[] = ".param .u";
    const char *at = find(line, type);
    if (!at || t->n_params == PTX_WHOLE_PARAMS)
        return fail(err, E_GPU, "PTX: a kernel's parameter: %.*s", STR_ARG(line));
    t->params[t->n_params++] = word_at(line, (size_t)(at - line.data) + sizeof type + 2);
    return 0;
}

// Reads a line before the kernel's first brace.
static int read_head(struct ptx_whole_text *t, struct str line, struct error *err)
{
    if (begins(line, ".version ") && line.len >= sizeof ".version 0.0" - 1)
        t->version =
            10 * number_after(line, ".version ") + number_after((struct str){line.data + 1, line.len - 1}, ".");
    else if (begins(line, ".target "))
        t->target = number_after(line, "sm_");
    else if (begins(line, ".extern .shared "))
        return add_symbol(t, line, t->part->shared, err);
    else if (find(line, ".param "))
        return add_param(t, line, err);
    return 0;
}

static bool is_wait(struct str line)
{
    return begins(without_blanks(line), "griddepcontrol.wait;") || str_equal(line, STR_LIT(PTX_READS_FROM_HERE));
}

static int read_body(struct ptx_whole_text *t, struct error *err)
{
    struct str text = t->body, line;
    bool begun = false; // there was an instruction ahead of the line
    while (ptx_whole_line(&text, &line)) {
        const struct str words = without_blanks(line);
        if (begins(words, ".shared ") && add_symbol(t, words, number_after(words, "["), err))
            return -1;
        if (find(words, "bar.arrive") || find(words, "bar.red") || find(words, "%tid.y") || find(words, "%ntid"))
            return fail(err, E_GPU, "PTX: a kernel that is no part of another: %.*s", STR_ARG(words));
        if (is_wait(line))
            t->waits = begun;
        begun = begun || !(is_wait(line) || begins(words, "griddepcontrol.") || begins(words, ".reg "));
        t->bulk = t->bulk || find(words, "cp.async.bulk.");
        t->copies = t->copies || find(words, "cp.async.c");
    }
    return 0;
}

int ptx_whole_read(const struct ptx_whole_part *part, struct ptx_whole_text *out, struct error *err)
{
    struct str text = part->text, line = {0};
    *out = (struct ptx_whole_text){.part = part, .groups = 1};
    const char *declared = NULL;
    while (ptx_whole_line(&text, &line) && !str_equal(line, STR_LIT("{"))) {
        out->first_line++;
        if (begins(line, ".visible .entry ") && declared)
            out->declared = (struct str){declared, (size_t)(line.data - declared)};
        if (begins(line, ".address_size"))
            declared = text.data;
        if (read_head(out, line, err))
            return -1;
    }
    out->first_line++;
    static const char end[] = "}\n";
    if (!declared || !out->version || text.len < sizeof end - 1 ||
        memcmp(text.data + text.len - (sizeof end - 1), end, sizeof end - 1) != 0)
        return fail(err, E_GPU, "PTX: the text of a kernel does not end as it begins");
    out->body = (struct str){text.data, text.len - (sizeof end - 1)};
    return read_body(out, err);
}

// ---- writing

static void put(struct ptx *p, struct str s)
{
    ptx_copy(p, s.data, s.len);
}

static void put_word(struct ptx *p, const char *s)
{
    ptx_copy(p, s, strlen(s));
}

// Writes a register; those of the kernel's launch are the part's own.
static void put_register(struct ptx *p, struct str name)
{
    static const char *const names[][2] = {
        {"%tid.x", "%whole_thread"}, {"%ctaid.x", "%whole_x"},   {"%ctaid.y", "%whole_y"},  {"%ctaid.z", "%whole_z"},
        {"%nctaid.x", "%whole_nx"},  {"%nctaid.y", "%whole_ny"}, {"%nctaid.z", "%whole_nz"}};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (str_equal(name, str_from(names[i][0]))) {
            put_word(p, names[i][1]);
            return;
        }
    put(p, name);
}

static void put_name(struct ptx *p, const struct ptx_whole_text *t, struct str name)
{
    for (int i = 0; i < t->n_symbols; i++)
        if (str_equal(name, t->symbols[i].name))
            PTX_LINES(p, "%whole_");
    put(p, name);
}

// Writes an instruction whose operands are registers, numbers and names.
static void put_instruction(struct ptx *p, const struct ptx_whole_text *t, struct str line)
{
    for (size_t i = 0; i < line.len;) {
        struct str word = word_at(line, i + (line.data[i] == '%'));
        const bool inside = i && (line.data[i - 1] == '.' || line.data[i - 1] == '$');
        if (line.data[i] == '%' && word.len) {
            size_t n = 1 + word.len;
            if (i + n + 1 < line.len && line.data[i + n] == '.') // %tid.x
                n += 2;
            put_register(p, (struct str){line.data + i, n});
            i += n;
        } else if (word.len && !inside) {
            put_name(p, t, word);
            i += word.len;
        } else {
            ptx_copy(p, line.data + i, 1);
            i++;
        }
    }
    PTX_LINES(p, "\n");
}

// ld.param becomes a load from the step's part of the table, which is in shared memory.
static int put_param(struct ptx *p, const struct ptx_whole_text *t, struct str line, struct error *err)
{
    static const char from[] = "ld.param";
    const char *load = find(line, from), *open = find(line, "[");
    const struct str name = open ? word_at(line, (size_t)(open + 1 - line.data)) : (struct str){0};
    uint32_t i = 0;
    while (i < (uint32_t)t->n_params && !str_equal(name, t->params[i]))
        i++;
    if (!open || i == (uint32_t)t->n_params || open[1 + name.len] != ']')
        return fail(err, E_GPU, "PTX: a parameter that a kernel has not: %.*s", STR_ARG(line));
    put(p, (struct str){line.data, (size_t)(load - line.data)});
    PTX_LINES(p, "ld.shared");
    const char *type = load + sizeof from - 1;
    put(p, (struct str){type, (size_t)(open - type)});
    PTX_FILL(p, "[%whole_args+$0];\n", PTX_WHOLE_HEAD + 8 * i);
    return 0;
}

void ptx_whole_barrier(struct ptx *p, const struct ptx_whole_text *t, uint32_t id)
{
    PTX_FILL(p,
             "    mov.u32 %whole_at, %tid.x;\n"
             "    shr.u32 %whole_at, %whole_at, $0;\n"
             "    mad.lo.u32 %whole_at, %whole_at, 2, $1;\n",
             (uint32_t)__builtin_ctz(t->part->threads), id);
}

// A barrier of all threads of the kernel is one of the group's.
static void put_barrier(struct ptx *p, const struct ptx_whole_text *t, struct str line)
{
    static const char name[] = "bar.sync ";
    const char *at = find(line, name), *comma = find(line, ",");
    const uint32_t id = (uint32_t)strtoul(at + sizeof name - 1, NULL, 10);
    const uint32_t threads = comma ? (uint32_t)strtoul(comma + 1, NULL, 10) : t->part->threads;
    if (t->groups > 1)
        ptx_whole_barrier(p, t, id);
    put(p, (struct str){line.data, (size_t)(at - line.data)});
    if (t->groups > 1)
        PTX_FILL(p, "bar.sync %whole_at, $0;\n", threads);
    else
        PTX_FILL(p, "bar.sync $0, $1;\n", id, threads);
}

static void put_return(struct ptx *p, struct str line, uint32_t k)
{
    const char *at = find(line, "ret;");
    put(p, (struct str){line.data, (size_t)(at - line.data)});
    PTX_FILL(p, "bra LEFT_$0;\n", k);
}

// A line whose last operand is one of the part's numbers gets it from the table.
static void put_number(struct ptx *p, const struct ptx_whole_text *t, struct str line, uint32_t i)
{
    struct str before;
    uint64_t number;
    last_number(line, &before, &number);
    PTX_FILL(p, "    ld.shared.u64 %whole_number, [%whole_args+$0];\n", PTX_WHOLE_HEAD + 8 * ((uint32_t)t->n_params + i));
    put(p, before);
    PTX_LINES(p, "%whole_number;\n");
}

// ---- registers
//
// Where what first sets a register is under a condition, the register keeps what it was if the condition is false. A kernel
// does not use it then, but the assembler must assume that it is what an earlier step has left there, and would keep it
// through all other parts. So all registers are set to zero where they are declared. Almost all of that is dead code, which
// the assembler drops.

// Sets a register of the type of a declaration to zero. number: of a register of a family; -1: it is none.
static void put_zero(struct ptx *p, struct str declaration, struct str name, int number)
{
    const bool predicate = find(declaration, ".pred") != NULL;
    if (predicate)
        PTX_LINES(p, "    setp.ne.u32 %");
    else
        PTX_FILL(p, "    mov.b$0 %", find(declaration, "64 ") ? 64u : find(declaration, "16 ") ? 16u : 32u);
    put(p, name);
    if (number >= 0)
        PTX_FILL(p, "$0", (uint32_t)number);
    put_word(p, predicate ? ", 0, 0;\n" : ", 0;\n");
}

// Writes a declaration, "    .reg .f32 %a, %b<4>;", and sets its registers to zero.
static void put_registers(struct ptx *p, struct str line)
{
    put(p, line);
    PTX_LINES(p, "\n");
    for (size_t i = 0; i < line.len; i++) {
        if (line.data[i] != '%')
            continue;
        const struct str name = word_at(line, i + 1);
        const size_t end = i + 1 + name.len;
        const bool family = end < line.len && line.data[end] == '<';
        const int n = family ? (int)strtol(line.data + end + 1, NULL, 10) : 1;
        for (int k = 0; k < n; k++)
            put_zero(p, line, name, family ? k : -1);
    }
}

static uint32_t number_of(const struct ptx_whole_part *part, uint32_t line)
{
    uint32_t i = 0;
    while (i < (uint32_t)part->n_numbers && part->numbers[i] != line)
        i++;
    return i;
}

// Writes an instruction: some become others.
static int put_changed(struct ptx *p, const struct ptx_whole_text *t, struct str line, uint32_t k, struct error *err)
{
    const struct str words = without_blanks(line);
    if (find(words, "ld.param."))
        return put_param(p, t, line, err);
    if (find(words, "bar.sync "))
        put_barrier(p, t, line);
    else if (begins(words, "ret;") || (words.len && *words.data == '@' && find(words, " ret;")))
        put_return(p, line, k);
    else
        put_instruction(p, t, line);
    return 0;
}

int ptx_whole_body(struct ptx *p, const struct ptx_whole_text *t, uint32_t target_at, uint32_t k, struct error *err)
{
    struct str text = t->body, line;
    for (uint32_t i = (uint32_t)t->first_line; ptx_whole_line(&text, &line); i++) {
        const struct str words = without_blanks(line);
        const uint32_t number = number_of(t->part, i);
        if (is_wait(line) && t->waits)
            ptx_whole_wait(p, target_at, 2 * k, !t->part->loops);
        else if (is_wait(line) || begins(words, "//") || begins(words, ".shared ") ||
                 begins(words, "griddepcontrol.launch_dependents;"))
            continue;
        else if (begins(words, ".reg "))
            put_registers(p, line);
        else if (number < (uint32_t)t->part->n_numbers)
            put_number(p, t, line, number);
        else if (put_changed(p, t, line, k, err))
            return -1;
    }
    return 0;
}
