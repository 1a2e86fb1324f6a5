// The chat template that the flags choose, for chat, run and batch.
//
// Threads: the main thread.
#ifndef QUERN_TEMPLATE_CHOICE_H
#define QUERN_TEMPLATE_CHOICE_H

#include "cmd/options.h"
#include "engine/chat/chat.h"
#include "engine/model.h"

// What ends an answer in the form `plain`, in which the next turn of the user would follow.
extern const struct str template_plain_stop;

// Whether --chat-template or --chat-template-file is given, or the model has a template.
bool template_choice_any(const struct options *o, const struct model *m);
// Whether the form is `plain`: named by --chat-template.
bool template_choice_plain(const struct options *o);
// Opens the template of --chat-template-file, that which --chat-template names (chatml, plain, default, or one of the
// model's), or else the model's own. E_USAGE if both flags are given; E_MODEL: see chat_open.
int template_choice_open(struct chat_template **out, const struct options *o, const struct model *m, struct error *err);
// Opens the template of that name.
int template_choice_named(struct chat_template **out, const char *name, const struct model *m, struct error *err);
// Reads --chat-template-kwargs, an object, into the arena; *out is NULL if the flag is not given.
int template_choice_kwargs(const struct options *o, struct arena *arena, const struct value **out, struct error *err);

#endif
