// What was typed: bytes of a terminal in, keys out.
//
// Knows the sequences of xterm and those that have followed it, and bracketed paste, however the bytes come in pieces.
// What it does not know is dropped whole, so that no stray sequence becomes text. Pure: no I/O, no time; a lone ESC is
// decided by keys_flush, which the caller calls when nothing has followed for a moment.
// Ownership: the struct holds everything. Threads: one at a time.
#ifndef QUERN_KEYS_H
#define QUERN_KEYS_H

#include "gguf/base.h"

enum key_code {
    // 1 to 26: Ctrl-A to Ctrl-Z; 0x1f: Ctrl-_
    KEY_CTRL_UNDERSCORE = 0x1f,
    KEY_BACKSPACE = 0x7f,
    KEY_TEXT = 0x100, // typed characters
    KEY_PASTE,        // a piece of what was pasted
    KEY_PASTE_END,
    KEY_ESCAPE,
    KEY_ENTER,
    KEY_NEWLINE, // Alt-Enter, Shift-Enter where it can be told, Ctrl-J
    KEY_UP,
    KEY_DOWN,
    KEY_LEFT,
    KEY_RIGHT,
    KEY_HOME,
    KEY_END,
    KEY_DELETE,
    KEY_WORD_LEFT, // with Ctrl or Alt
    KEY_WORD_RIGHT,
    KEY_WORD_DELETE,
    KEY_ALT = 0x200, // + the character: Alt-b
};
#define KEY_CTRL(letter) ((letter)&0x1f)

struct key {
    int code;
    struct str text; // of KEY_TEXT and KEY_PASTE: valid UTF-8 but for what was none; views the input or the decoder
};
// Takes a key; true: no more for now.
typedef bool key_fn(void *arg, const struct key *key);

struct keys {
    char held[64]; // an escape sequence or a character that is not whole yet
    size_t n_held;
    bool pasting, dropping; // dropping: a sequence longer than any that is known, up to its end
    bool stopped;           // by emit
};

// Feeds bytes; calls `emit` for each key that is whole, until it has had enough. Returns how many bytes were taken.
size_t keys_push(struct keys *k, struct str bytes, key_fn *emit, void *arg);
// Nothing has followed: what is held is what it is. A paste that has not ended stays one.
void keys_flush(struct keys *k, key_fn *emit, void *arg);
// Whether keys_flush would change anything.
bool keys_is_waiting(const struct keys *k);

#endif
