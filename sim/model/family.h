/* A family of models: what their checkpoints' config.json says in which words, what holds where it
 * says nothing, and what their tensors are called. A file of sim/model/families, whose name is the
 * model_type in config.json; llama.ini explains the sections. */
#ifndef UNMASK_SIM_MODEL_FAMILY_H
#define UNMASK_SIM_MODEL_FAMILY_H

#include "sim/base/input/config.h"

struct family {
    struct config own, like; /* `like`: empty where it names none */
};

/* ERR_USAGE, and all families in the sentence that `place` begins, when there is none of that name.
 * On success the caller runs family_close. */
int family_open(const char *name, const char *place, struct family *out, struct err *err);
void family_close(struct family *family);

/* What holds of a key where config.json says nothing, which a family says for itself alone; NULL:
 * nothing. */
const struct config_entry *family_assumed(const struct family *family, const char *key);

/* A family's value of a key of the other sections, its own or its base family's; NULL:
 * nothing.
 */
const char *family_value(const struct family *family, const char *section, const char *key);

/* The name of the family whose models have that architecture in config.json; NULL: there is none,
 * or `err` says what could not be read. */
const char *family_of_architecture(const char *architecture, char *name, size_t size,
                                   struct err *err);

#endif
