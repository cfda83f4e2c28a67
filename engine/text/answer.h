/* Whether a text answers a question rightly: the one rule, that of experiments/train/tasks.py.
 *
 * The answer of a text follows its last "####", up to the end of that line, without
 * white space around it, full stops at its end and commas. It is right where it is the same string
 * as the one expected, or the same finite number ("102.0" is "102"). A text without "####" has no
 * answer. */
#ifndef UNMASK_ENGINE_TEXT_ANSWER_H
#define UNMASK_ENGINE_TEXT_ANSWER_H

#include <stdbool.h>

/* The answer of a text; NULL where it has none. The caller frees it. */
char *answer_of(const char *text);

bool answer_is_right(const char *text, const char *expected);

#endif
