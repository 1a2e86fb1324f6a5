// Comparisons and multiples are deterministic automata that are built here state by state. A comparison counts the
// digits before the point and follows the digits of the decimal until one differs. A multiple is recognised by its
// remainder modulo the integer p of the decimal p / 10^q, so its automaton has about p states per digit after the
// point.
#include "engine/grammar/numbers.h"

#include <stdlib.h>

// A parsed decimal: 0.d1 d2 d3 ... times 10^point, without zeros at either end. Zero has no digits.
struct decimal {
    bool negative;
    int n, point;
    char digits[NUMBER_TEXT_MAX]; // values 0 to 9
};

static int refuse(struct str text, struct error *err)
{
    return fail(err, E_USAGE, "'%.*s' is no decimal of up to %d digits", (int)MIN(text.len, (size_t)60), text.data,
                NUMBER_TEXT_MAX);
}

static bool take_exponent(struct str text, size_t i, int *exponent)
{
    bool negative = i < text.len && text.data[i] == '-';
    i += i < text.len && (text.data[i] == '-' || text.data[i] == '+');
    size_t begin = i;
    *exponent = 0;
    for (; i < text.len && text.data[i] >= '0' && text.data[i] <= '9'; i++)
        *exponent = MIN(*exponent * 10 + (text.data[i] - '0'), 100000);
    *exponent = negative ? -*exponent : *exponent;
    return i > begin && i == text.len;
}

static int parse(struct decimal *d, struct str text, struct error *err)
{
    *d = (struct decimal){0};
    size_t i = text.len > 0 && text.data[0] == '-';
    d->negative = i > 0;
    int exponent = 0;
    bool behind_point = false, any = false;
    for (; i < text.len && text.data[i] != 'e' && text.data[i] != 'E'; i++) {
        char c = text.data[i];
        if (c == '.' && !behind_point) {
            behind_point = true;
            continue;
        }
        if (c < '0' || c > '9')
            return refuse(text, err);
        any = true;
        if (d->n == 0 && c == '0') {
            d->point -= behind_point;
            continue;
        }
        if (d->n == NUMBER_TEXT_MAX)
            return refuse(text, err);
        d->digits[d->n++] = (char)(c - '0');
        d->point += !behind_point;
    }
    if (!any || (i < text.len && !take_exponent(text, i + 1, &exponent)))
        return refuse(text, err);
    while (d->n > 0 && d->digits[d->n - 1] == 0)
        d->n--;
    d->point = d->n ? d->point + exponent : 0;
    d->negative = d->negative && d->n;
    // refuses a decimal that would have too many digits when written without an exponent
    return abs(d->point) > NUMBER_TEXT_MAX || d->n - d->point > NUMBER_TEXT_MAX ? refuse(text, err) : 0;
}

uint32_t number_int_digits(struct str decimal)
{
    struct decimal d;
    return parse(&d, decimal, NULL) || d.point < 0 ? 0 : (uint32_t)d.point;
}

// --- automata by hand; the byte classes are the ten digits, the sign, the point, and all other bytes ---

enum { CLASS_MINUS = 10, CLASS_POINT, CLASS_OTHER, N_CLASSES };

static struct dfa *dfa_make(uint32_t n)
{
    struct dfa *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    *d = (struct dfa){.n = n,
                      .n_classes = N_CLASSES,
                      .next = calloc((size_t)n * N_CLASSES, sizeof *d->next),
                      .accept = calloc(n, sizeof *d->accept)};
    memset(d->class_of, CLASS_OTHER, sizeof d->class_of);
    for (unsigned i = 0; i < 10; i++)
        d->class_of['0' + i] = (uint8_t)i;
    d->class_of['-'] = CLASS_MINUS;
    d->class_of['.'] = CLASS_POINT;
    if (d->next && d->accept)
        return d;
    dfa_free(d);
    return NULL;
}

static void lead(struct dfa *d, uint32_t from, int class, uint32_t to)
{
    d->next[(size_t)from * N_CLASSES + (size_t) class] = to;
}

static int done(expr_id *out, struct exprs *x, struct dfa *d)
{
    *out = expr_dfa(x, d);
    return 0;
}

// --- comparison ---

// Compares texts without sign with |decimal|. While a text is read, its digits before the point are counted. With
// fewer digits than the decimal it is below, with more it is above; otherwise the first digit that differs decides.
struct comparison {
    const struct decimal *d;
    struct dfa *dfa;
    uint32_t int_digits; // of the decimal; at least 1, because a text has at least one
    uint32_t base;       // number of the first state
    unsigned orders;
};
enum { LESS, SAME, MORE };

// The i-th digit of the decimal before the point (of int_digits), and the i-th digit after the point.
static int int_digit(const struct comparison *c, uint32_t i)
{
    int at = (int)i - ((int)c->int_digits - MAX(c->d->point, 0));
    return c->d->point > 0 && at >= 0 && at < c->d->n ? c->d->digits[at] : 0;
}

static int frac_digit(const struct comparison *c, uint32_t i)
{
    int at = (int)i + c->d->point;
    return at >= 0 && at < c->d->n ? c->d->digits[at] : 0;
}

static uint32_t n_frac(const struct comparison *c)
{
    return (uint32_t)MAX(c->d->n - c->d->point, 0);
}

// The states. Before the point: the number n of digits read (1 to int_digits + 1) and the order so far. After the
// point: the order is decided (less, more), or i digits have been equal. Each state after the point exists twice:
// before (any = false) and after the first digit after the point.
static uint32_t int_state(const struct comparison *c, uint32_t n, int order)
{
    return c->base + (n - 1) * 3 + (uint32_t)order;
}

static uint32_t frac_state(const struct comparison *c, int order, uint32_t i, bool any)
{
    uint32_t first = c->base + (c->int_digits + 1) * 3;
    if (order != SAME)
        return first + (order == MORE ? 2 : 0) + any;
    return first + 4 + MIN(i, n_frac(c)) * 2 + any;
}

static uint32_t n_states(const struct comparison *c)
{
    return (c->int_digits + 1) * 3 + 4 + (n_frac(c) + 1) * 2;
}

static bool has_order(const struct comparison *c, int order)
{
    return c->orders & (order == LESS ? NUMBER_BELOW : order == SAME ? NUMBER_EQUAL : NUMBER_ABOVE);
}

// The order of a text with n digits before the point, given the order of the digits read.
static int settled(const struct comparison *c, uint32_t n, int order)
{
    return n < c->int_digits ? LESS : n > c->int_digits ? MORE : order;
}

static void fill_int(const struct comparison *c, uint32_t n, int order, bool zero)
{
    uint32_t at = int_state(c, n, order);
    int so_far = settled(c, n, order);
    bool exact = so_far == SAME && n_frac(c) == 0;
    c->dfa->accept[at] = has_order(c, so_far == SAME && !exact ? LESS : so_far);
    lead(c->dfa, at, CLASS_POINT, frac_state(c, so_far, 0, false));
    for (int digit = 0; digit < 10 && !zero; digit++) {
        uint32_t next = MIN(n + 1, c->int_digits + 1);
        int after = order;
        if (order == SAME && n < c->int_digits)
            after = digit < int_digit(c, n) ? LESS : digit > int_digit(c, n) ? MORE : SAME;
        lead(c->dfa, at, digit, int_state(c, next, after));
    }
}

static void fill_frac(const struct comparison *c, int order, uint32_t i, bool any)
{
    uint32_t at = frac_state(c, order, i, any);
    int now = order == SAME && i < n_frac(c) ? LESS : order;
    c->dfa->accept[at] = any && has_order(c, now);
    for (int digit = 0; digit < 10; digit++) {
        int after = order;
        if (order == SAME)
            after = digit < frac_digit(c, i) ? LESS : digit > frac_digit(c, i) ? MORE : SAME;
        lead(c->dfa, at, digit, frac_state(c, after, i + 1, true));
    }
}

// Fills in the states of texts without sign, which begin in state `start`. A leading 0 leads to the state `zero`,
// which accepts no more digits before the point.
static void fill(const struct comparison *c, uint32_t start, uint32_t zero)
{
    for (int digit = 1; digit < 10; digit++) {
        int first = int_digit(c, 0);
        lead(c->dfa, start, digit, int_state(c, 1, digit < first ? LESS : digit > first ? MORE : SAME));
    }
    for (uint32_t n = 1; n <= c->int_digits + 1; n++)
        for (int order = LESS; order <= MORE; order++)
            fill_int(c, n, order, false);
    for (uint32_t i = 0; i <= n_frac(c); i++)
        for (int any = 0; any < 2; any++)
            for (int order = LESS; order <= MORE; order++)
                fill_frac(c, order, i, any);
    // the state after 0 is like that after one digit, but no digits may follow
    int order = int_digit(c, 0) > 0 ? LESS : SAME, so_far = settled(c, 1, order);
    bool exact = so_far == SAME && n_frac(c) == 0;
    lead(c->dfa, start, 0, zero);
    c->dfa->accept[zero] = has_order(c, so_far == SAME && !exact ? LESS : so_far);
    lead(c->dfa, zero, CLASS_POINT, frac_state(c, so_far, 0, false));
}

// The orders with below and above exchanged, for texts after a minus sign.
static unsigned mirrored(unsigned orders)
{
    return (orders & NUMBER_EQUAL) | (orders & NUMBER_BELOW ? NUMBER_ABOVE : 0) |
           (orders & NUMBER_ABOVE ? NUMBER_BELOW : 0);
}

int number_compare(expr_id *out, struct exprs *x, struct str decimal, unsigned orders, struct error *err)
{
    struct decimal d, zero = {0};
    if (parse(&d, decimal, err))
        return -1;
    // Texts without a sign are >= 0 and texts with one are <= 0. On the side of zero where the decimal is not, texts
    // are compared with 0 instead, and all of them lie on the same side of the decimal.
    struct comparison plus = {.d = d.negative ? &zero : &d}, minus = {.d = d.negative ? &d : &zero};
    plus.orders = !d.negative ? orders : orders & NUMBER_ABOVE ? NUMBER_EQUAL | NUMBER_ABOVE : 0;
    minus.orders = d.negative ? mirrored(orders) : orders & NUMBER_BELOW ? NUMBER_ABOVE : 0;
    if (!d.negative) { // -0 equals 0
        bool zero_too = d.n ? orders & NUMBER_BELOW : orders & NUMBER_EQUAL;
        minus.orders |= zero_too ? NUMBER_EQUAL : 0;
    }
    plus.int_digits = (uint32_t)MAX(plus.d->point, 1);
    minus.int_digits = (uint32_t)MAX(minus.d->point, 1);
    plus.base = 5;
    minus.base = plus.base + n_states(&plus);
    struct dfa *dfa = dfa_make(minus.base + n_states(&minus));
    if (!dfa)
        return fail(err, E_MEMORY, "no memory for an automaton of numbers");
    plus.dfa = minus.dfa = dfa;
    dfa->start = 1;
    lead(dfa, 1, CLASS_MINUS, 2);
    fill(&plus, 1, 3);
    fill(&minus, 2, 4);
    return done(out, x, dfa);
}

// --- multiples ---

enum { MULTIPLE_STATES_MAX = 1 << 15 };

// The decimal is p / 10^q. Digits that form the integer N, f of them after the point, denote N / 10^f. This is a
// multiple if N * 10^(q - f) is a multiple of p; digits after the q-th must be zeros. A state is the pair of f and N
// modulo p.
struct multiple {
    struct dfa *dfa;
    uint32_t p, q, n_levels;
};
enum { START = 1, SIGNED, ZERO, FIRST };

static uint32_t before_point(const struct multiple *m, uint32_t n)
{
    return FIRST + n % m->p;
}

// The state after f digits after the point. f = 0: a text must not end directly after the point.
static uint32_t behind_point(const struct multiple *m, uint32_t f, uint32_t n)
{
    return FIRST + m->p + MIN(f, m->n_levels - 1) * m->p + n % m->p;
}

// 10^n modulo p.
static uint32_t power(const struct multiple *m, uint32_t n)
{
    uint64_t scale = 1 % m->p;
    while (n-- > 0)
        scale = scale * 10 % m->p;
    return (uint32_t)scale;
}

static void fill_multiple(const struct multiple *m)
{
    for (int digit = 0; digit < 10; digit++) {
        uint32_t to = digit ? before_point(m, (uint32_t)digit) : ZERO;
        lead(m->dfa, START, digit, to);
        lead(m->dfa, SIGNED, digit, to);
    }
    m->dfa->start = START;
    lead(m->dfa, START, CLASS_MINUS, SIGNED);
    lead(m->dfa, ZERO, CLASS_POINT, behind_point(m, 0, 0));
    m->dfa->accept[ZERO] = true;
    for (uint32_t n = 0; n < m->p; n++) {
        uint32_t at = before_point(m, n);
        m->dfa->accept[at] = (uint64_t)n * power(m, m->q) % m->p == 0;
        lead(m->dfa, at, CLASS_POINT, behind_point(m, 0, n));
        for (int digit = 0; digit < 10; digit++)
            lead(m->dfa, at, digit, before_point(m, n * 10 + (uint32_t)digit));
    }
    for (uint32_t f = 0; f < m->n_levels; f++) {
        uint32_t scale = power(m, m->q - MIN(f, m->q));
        for (uint32_t n = 0; n < m->p; n++) {
            uint32_t at = behind_point(m, f, n);
            m->dfa->accept[at] = f > 0 && (uint64_t)n * scale % m->p == 0;
            for (int digit = 0; digit < (f < m->q ? 10 : 1); digit++)
                lead(m->dfa, at, digit, behind_point(m, f + 1, f < m->q ? n * 10 + (uint32_t)digit : n));
        }
    }
}

int number_multiple(expr_id *out, struct exprs *x, struct str decimal, struct error *err)
{
    struct decimal d;
    if (parse(&d, decimal, err))
        return -1;
    uint64_t p = 0;
    for (int i = 0; i < MAX(d.n, d.point); i++)
        p = MIN(p * 10 + (uint64_t)(i < d.n ? d.digits[i] : 0), (uint64_t)MULTIPLE_STATES_MAX + 1);
    if (d.negative || !p)
        return fail(err, E_USAGE, "'%.*s' is not above 0", STR_ARG(decimal));
    struct multiple m = {.q = (uint32_t)MAX(d.n - d.point, 0)};
    m.n_levels = MAX(m.q, 1) + 1;
    uint64_t n = FIRST + p * (m.n_levels + 1);
    if (n > MULTIPLE_STATES_MAX)
        return fail(err, E_USAGE, "multiples of '%.*s' take more than %d states", STR_ARG(decimal),
                    MULTIPLE_STATES_MAX);
    m.p = (uint32_t)p;
    m.dfa = dfa_make((uint32_t)n);
    if (!m.dfa)
        return fail(err, E_MEMORY, "no memory for an automaton of numbers");
    fill_multiple(&m);
    return done(out, x, m.dfa);
}

// --- forms of texts ---

static expr_id digits(struct exprs *x, uint32_t min, uint32_t max)
{
    return expr_repeat(x, expr_byte_range(x, '0', '9'), min, max);
}

// 0, or up to `most` digits without a leading zero.
static expr_id whole_part(struct exprs *x, uint32_t most)
{
    expr_id positive = expr_cat(x, expr_byte_range(x, '1', '9'), digits(x, 0, most == REPEAT_ANY ? most : most - 1));
    return expr_alt(x, expr_text_z(x, "0"), positive);
}

expr_id number_whole(struct exprs *x)
{
    expr_id zeros = expr_cat(x, expr_text_z(x, "."), expr_repeat(x, expr_text_z(x, "0"), 1, REPEAT_ANY));
    return expr_cat(x, expr_optional(x, expr_text_z(x, "-")),
                    expr_cat(x, whole_part(x, REPEAT_ANY), expr_optional(x, zeros)));
}

expr_id number_integer_texts(struct exprs *x, uint32_t n_digits)
{
    expr_id positive = expr_cat(x, expr_byte_range(x, '1', '9'), digits(x, 0, n_digits - 1));
    return expr_alt(x, expr_text_z(x, "0"), expr_cat(x, expr_optional(x, expr_text_z(x, "-")), positive));
}

// A choice over n: n digits before the point and up to n_digits - n after it.
expr_id number_texts(struct exprs *x, uint32_t n_digits)
{
    expr_id point = expr_text_z(x, "."), all = EXPR_NEVER;
    for (uint32_t n = n_digits; n > 0; n--) {
        expr_id part =
            n == 1 ? expr_byte_range(x, '0', '9') : expr_cat(x, expr_byte_range(x, '1', '9'), digits(x, n - 1, n - 1));
        if (n < n_digits)
            part = expr_cat(x, part, expr_optional(x, expr_cat(x, point, digits(x, 1, n_digits - n))));
        all = expr_alt(x, part, all);
    }
    return expr_cat(x, expr_optional(x, expr_text_z(x, "-")), all);
}
