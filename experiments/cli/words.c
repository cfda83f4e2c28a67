#include "experiments/cli/words.h"

#include <stdio.h>
#include <string.h>

#include "sim/base/names.h"

int words_split(const char *text, struct words *out, const char *place, struct err *err) {
    const char *word;
    size_t length;
    out->n = 0;
    for (const char *rest = text; name_next(&rest, ",;", &word, &length);) {
        if (out->n == WORDS_MOST || length >= WORDS_CHARS) {
            return err_usage(err, "%s: expected at most %d words of under %d characters", place,
                             WORDS_MOST, WORDS_CHARS);
        }
        snprintf(out->word[out->n++], WORDS_CHARS, "%.*s", (int)length, word);
    }
    return 0;
}
