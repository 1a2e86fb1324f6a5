// A state machine over bytes. Typed text and pastes are emitted in runs, without a copy; only what may be incomplete
// at the end of a read is copied to `held`: an escape sequence, a UTF-8 character, or the beginning of the mark that
// ends a paste.
#include "cmd/terminal/keys.h"

#include <stdio.h>

static const char paste_end[] = "\033[201~";
enum { ESC = 0x1b, PASTE_END_LEN = sizeof paste_end - 1 };

static void send(struct keys *k, int code, key_fn *emit, void *arg)
{
    k->stopped |= emit(arg, &(struct key){.code = code});
}

static void send_text(struct keys *k, int code, const char *text, size_t n, key_fn *emit, void *arg)
{
    if (n)
        k->stopped |= emit(arg, &(struct key){code, {text, n}});
}

static void hold(struct keys *k, const char *bytes, size_t n)
{
    memcpy(k->held, bytes, n);
    k->n_held = n;
}

// --- escape sequences ---

// Emits a single byte that is neither text nor the start of a sequence.
static void push_control(struct keys *k, char c, key_fn *emit, void *arg)
{
    if (c == ESC)
        hold(k, &c, 1);
    else if (c != '\0')
        send(k, c == '\r' ? KEY_ENTER : c == '\n' ? KEY_NEWLINE : c, emit, arg);
}

// Tests the modifier of a sequence such as "1;5": it is 1 + the sum of 1 for Shift, 2 for Alt, 4 for Ctrl.
static bool has_modifier(int modifier, int bits)
{
    return modifier > 1 && ((modifier - 1) & bits);
}

static int arrow_key(char final, int modifier)
{
    bool word = has_modifier(modifier, 2 | 4);
    switch (final) {
    case 'A':
        return KEY_UP;
    case 'B':
        return KEY_DOWN;
    case 'C':
        return word ? KEY_WORD_RIGHT : KEY_RIGHT;
    case 'D':
        return word ? KEY_WORD_LEFT : KEY_LEFT;
    case 'H':
        return KEY_HOME;
    case 'F':
        return KEY_END;
    case 'M':
        return KEY_ENTER; // on the number pad
    }
    return 0;
}

static int numbered_key(int number, int modifier)
{
    if (number == 1 || number == 7)
        return KEY_HOME;
    if (number == 4 || number == 8)
        return KEY_END;
    if (number == 3)
        return has_modifier(modifier, 2 | 4) ? KEY_WORD_DELETE : KEY_DELETE;
    return 0;
}

// The key of a sequence in which a terminal with extended keys names the character.
static int character_key(int character, int modifier)
{
    if (character == '\r')
        return modifier > 1 ? KEY_NEWLINE : KEY_ENTER;
    if (has_modifier(modifier, 4) && character >= 'a' && character <= 'z')
        return KEY_CTRL(character);
    if (has_modifier(modifier, 2) && character > ' ' && character < 0x7f)
        return KEY_ALT + character;
    return character == ESC ? KEY_ESCAPE : character == 0x7f ? KEY_BACKSPACE : character == '\t' ? '\t' : 0;
}

// The key of the sequence ESC [ parameters final; 0 if it is not known.
static int csi_key(const char *sequence, char final)
{
    int a = 0, b = 0, c = 0;
    int n = sscanf(sequence + 2, "%4d;%4d;%4d", &a, &b, &c);
    if (final == '~')
        return a == 27 && n == 3 ? character_key(c, b) : numbered_key(a, b);
    return final == 'u' ? character_key(a, b) : arrow_key(final, b);
}

static bool is_csi_final(char c)
{
    return c >= 0x40 && c <= 0x7e;
}

// The key of ESC followed by one character.
static int alt_key(char c)
{
    if (c == '\r' || c == '\n')
        return KEY_NEWLINE;
    if (c == KEY_BACKSPACE || c == KEY_CTRL('h'))
        return KEY_ALT + KEY_BACKSPACE;
    return c > ' ' && c < 0x7f ? KEY_ALT + c : 0;
}

// Emits the key of a complete sequence.
static void end_sequence(struct keys *k, key_fn *emit, void *arg)
{
    char last = k->held[k->n_held - 1];
    k->held[k->n_held] = '\0';
    k->n_held = 0;
    if (k->held[1] == '[' && !strcmp(k->held, "\033[200~")) {
        k->pasting = true;
        return;
    }
    int code = k->held[1] == 'O' ? arrow_key(last, 0) : alt_key(last);
    if (k->held[1] == '[')
        code = k->held[2] == '[' ? 0 : csi_key(k->held, last); // ESC [ [ A is F1 on the Linux console
    if (code)
        send(k, code, emit, arg);
}

// Takes one more byte of a sequence that began with ESC.
static void continue_sequence(struct keys *k, char c, key_fn *emit, void *arg)
{
    if (k->n_held == 1 && c == ESC) { // ESC ESC: the first one was a key by itself
        send(k, KEY_ESCAPE, emit, arg);
        return;
    }
    if (k->n_held == 1 && (uint8_t)c >= 0x80) { // Alt with a letter that is not ASCII: emits the letter
        hold(k, &c, 1);
        return;
    }
    // a control character ends whatever the sequence was
    if (k->n_held > 1 && (c < 0x20 || c == 0x7f)) {
        k->n_held = 0;
        push_control(k, c, emit, arg);
        return;
    }
    if (k->n_held == sizeof k->held - 1) {
        k->dropping = !is_csi_final(c);
        k->n_held = 0;
        return;
    }
    k->held[k->n_held++] = c;
    bool introduces = k->n_held == 2 && (c == '[' || c == 'O');
    bool goes_on = k->n_held > 2 && k->held[1] == '[' && (!is_csi_final(c) || (k->n_held == 3 && c == '['));
    if (!introduces && !goes_on)
        end_sequence(k, emit, arg);
}

// --- text ---

// How many bytes at the end of n begin a character that is not complete.
static size_t partial_character(const char *text, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint8_t c = (uint8_t)text[n - back];
        if ((c & 0xc0) == 0x80)
            continue;
        size_t length = c >= 0xf0 && c < 0xf5 ? 4 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xc2 && c < 0xe0 ? 2 : 1;
        return length > back ? back : 0;
    }
    return 0;
}

static bool is_text(char c)
{
    return (uint8_t)c >= 0x20 && c != KEY_BACKSPACE;
}

// Emits the run of typed characters at the start of `bytes`. Returns how many bytes it has.
static size_t push_text(struct keys *k, struct str bytes, key_fn *emit, void *arg)
{
    size_t n = 0;
    while (n < bytes.len && is_text(bytes.data[n]))
        n++;
    size_t rest = n == bytes.len ? partial_character(bytes.data, n) : 0;
    send_text(k, KEY_TEXT, bytes.data, n - rest, emit, arg);
    hold(k, bytes.data + n - rest, rest);
    return n;
}

// --- paste ---

// How many bytes at the end of n may be the beginning of the sequence that ends a paste.
static size_t partial_mark(const char *text, size_t n)
{
    for (size_t len = MIN(n, (size_t)PASTE_END_LEN - 1); len > 0; len--)
        if (!memcmp(text + n - len, paste_end, len))
            return len;
    return 0;
}

static size_t push_paste(struct keys *k, struct str bytes, key_fn *emit, void *arg)
{
    const char *mark = memmem(bytes.data, bytes.len, paste_end, PASTE_END_LEN);
    size_t n = mark ? (size_t)(mark - bytes.data) : bytes.len, rest = 0;
    if (!mark) {
        rest = partial_mark(bytes.data, n);
        rest = rest ? rest : partial_character(bytes.data, n);
    }
    send_text(k, KEY_PASTE, bytes.data, n - rest, emit, arg);
    hold(k, bytes.data + n - rest, rest);
    if (mark) {
        k->pasting = false;
        send(k, KEY_PASTE_END, emit, arg);
    }
    return n + (mark ? PASTE_END_LEN : 0);
}

// --- bytes ---

// Consumes bytes while nothing is held. Returns how many.
static size_t push_plain(struct keys *k, struct str bytes, key_fn *emit, void *arg)
{
    if (k->pasting)
        return push_paste(k, bytes, emit, arg);
    if (k->dropping) {
        k->dropping = !is_csi_final(bytes.data[0]) && is_text(bytes.data[0]);
        return 1;
    }
    if (is_text(bytes.data[0]))
        return push_text(k, bytes, emit, arg);
    push_control(k, bytes.data[0], emit, arg);
    return 1;
}

// Decodes the held bytes together with the next byte.
static void push_held(struct keys *k, char c, key_fn *emit, void *arg)
{
    if (!k->pasting && k->held[0] == ESC) {
        continue_sequence(k, c, emit, arg);
        return;
    }
    char both[sizeof k->held];
    size_t n = k->n_held, at = 0;
    memcpy(both, k->held, n);
    both[n++] = c;
    k->n_held = 0;
    while (at < n && !k->n_held)
        at += push_plain(k, (struct str){both + at, n - at}, emit, arg);
}

size_t keys_push(struct keys *k, struct str bytes, key_fn *emit, void *arg)
{
    size_t at = 0;
    k->stopped = false;
    while (at < bytes.len && !k->stopped) {
        if (k->n_held)
            push_held(k, bytes.data[at++], emit, arg);
        else
            at += push_plain(k, (struct str){bytes.data + at, bytes.len - at}, emit, arg);
    }
    return at;
}

bool keys_is_waiting(const struct keys *k)
{
    return k->n_held && !k->pasting;
}

void keys_end_paste(struct keys *k, key_fn *emit, void *arg)
{
    if (!k->pasting)
        return;
    k->pasting = false;
    k->n_held = 0; // a part of the mark, or of a character
    send(k, KEY_PASTE_END, emit, arg);
}

void keys_flush(struct keys *k, key_fn *emit, void *arg)
{
    if (!keys_is_waiting(k))
        return;
    size_t n = k->n_held;
    k->n_held = 0;
    if (k->held[0] != ESC)
        send_text(k, KEY_TEXT, k->held, n, emit, arg);
    else if (n == 1)
        send(k, KEY_ESCAPE, emit, arg);
}
