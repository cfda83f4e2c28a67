/* A file that is one list in JSON:
 *
 *   sharegpt    of conversations, [{"conversations": [{"from": "human", "value": "..."}]}]
 *               (also "messages" of "role" and "content"): each answer is a request, whose
 *               prompt is the conversation before it; a conversation of several is a session.
 *               The taker of prompts counts tokens. There are no times.
 *   json-list   of other objects: as if each were a line of its own
 *
 * It is read element by element. */
#ifndef UNMASK_TRACES_JSON_LIST_H
#define UNMASK_TRACES_JSON_LIST_H

#include <stdbool.h>
#include <stdio.h>

#include "traces/format/prompts.h"
#include "traces/format/survey.h"

/* Whether the file begins with a list of objects. The stream is rewound. */
bool json_list_is(FILE *file);

/* In `*out`, malloc'd, a table "session,input,output" of a list of conversations, or JSON lines;
 * the name of the format in `*name` (NULL for lines); the keys of a conversation that are not read
 * are added to `unread`. ERR_WORLD; ERR_USAGE where texts cannot be counted. */
int json_list_rows(FILE *file, const char *path, const struct prompt_taker *counter, char **out,
                   const char **name, struct survey_names *unread, struct err *err);

#endif
