#include "experiments/cli/words.h"

#include <stdio.h>
#include <string.h>

int words_split(const char *text, struct words *out, const char *place, struct err *err) {
    out->n = 0;
    for (const char *rest = text; rest != NULL;) {
        const char *comma = strpbrk(rest, ",;");
        const char *end = comma != NULL ? comma : rest + strlen(rest);
        while (rest < end && *rest == ' ') {
            rest++;
        }
        while (end > rest && end[-1] == ' ') {
            end--;
        }
        if (out->n == WORDS_MOST || end - rest >= WORDS_CHARS) {
            return err_usage(err, "%s: expected at most %d words of under %d characters", place,
                             WORDS_MOST, WORDS_CHARS);
        }
        snprintf(out->word[out->n++], WORDS_CHARS, "%.*s", (int)(end - rest), rest);
        rest = comma != NULL ? comma + 1 : NULL;
    }
    return 0;
}
