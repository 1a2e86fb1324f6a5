// Decodes what is typed: bytes of a terminal in, keys out.
//
// It knows the sequences of xterm and its successors, and bracketed paste, however the bytes are divided into reads.
// Unknown sequences are dropped as a whole, so that no part of them becomes text. The decoder does no I/O and knows
// no time: whether an ESC stands alone is decided by keys_flush, which the caller calls when nothing has followed for
// a moment. Ownership: the struct holds everything. Threads: one at a time.
#ifndef QUERN_KEYS_H
#define QUERN_KEYS_H

#include "gguf/base.h"

enum key_code {
    // 1 to 26: Ctrl-A to Ctrl-Z; 0x1f: Ctrl-_
    KEY_CTRL_UNDERSCORE = 0x1f,
    KEY_BACKSPACE = 0x7f,
    KEY_TEXT = 0x100, // typed characters
    KEY_PASTE,        // a piece of pasted text
    KEY_PASTE_END,
    KEY_ESCAPE,
    KEY_ENTER,
    KEY_NEWLINE, // Alt-Enter, Ctrl-J, and Shift-Enter on terminals that distinguish it
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
    KEY_ALT = 0x200, // plus the character: Alt-b
};
#define KEY_CTRL(letter) ((letter)&0x1f)

struct key {
    int code;
    // Of KEY_TEXT and KEY_PASTE: valid UTF-8, unless the bytes were not; a view of the input or the decoder.
    struct str text;
};
// Receives a key. Returns true to stop the decoder after this key.
typedef bool key_fn(void *arg, const struct key *key);

struct keys {
    char held[64]; // an incomplete escape sequence or character
    size_t n_held;
    bool pasting, dropping; // dropping: skipping the rest of a sequence that is longer than any known one
    bool stopped;           // `emit` returned true
};

// Feeds bytes, and calls `emit` for each complete key until it returns true. Returns how many bytes were consumed.
size_t keys_push(struct keys *k, struct str bytes, key_fn *emit, void *arg);
// Call when no bytes have followed for a moment: an incomplete sequence is then taken for the keys that it consists
// of. A paste that has not ended goes on.
void keys_flush(struct keys *k, key_fn *emit, void *arg);
// Ends a paste whose mark of the end does not come, as if it had come.
void keys_end_paste(struct keys *k, key_fn *emit, void *arg);
// Whether keys_flush would have an effect.
bool keys_is_waiting(const struct keys *k);

#endif
