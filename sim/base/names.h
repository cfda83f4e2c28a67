/* Names: what to say about one that is not known. */
#ifndef UNMASK_SIM_BASE_NAMES_H
#define UNMASK_SIM_BASE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* The index of `word` among `names`, which end with NULL; -1 where it is none of them. */
int name_find(const char *const *names, const char *word);

/* The part of `text` after `prefix`, NULL where `text` does not begin with it. */
const char *name_behind(const char *text, const char *prefix);

/* Whether `text` is longer than `ending` and ends with it. */
bool name_ends(const char *text, const char *ending);

/* The next word of a list, between `marks` such as ",", without the blanks around it; false after
 * the last one. `*rest` begins as the list and moves on; a list has one word at least, and any of
 * them may be empty. */
bool name_next(const char **rest, const char *marks, const char **word, size_t *length);

/* The known name that has a word which begins with `word`, in small letters or capitals, else the
 * nearest by edit distance, or NULL when none is near. Of a long word a slip or two come first.
 * `names` ends with NULL. */
const char *name_nearest(const char *word, const char *const *names);

enum { NAME_HINT_CHARS = 96 };

/* "; did you mean 'retention'?", or "" when nothing is near: the end of a sentence about `word`.
 * Returns `text`, which holds NAME_HINT_CHARS. */
const char *name_hint(const char *word, const char *const *names, char text[NAME_HINT_CHARS]);

#endif
