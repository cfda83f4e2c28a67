#include "sim/base/warning.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/condition.h"

const char *const warning_words[WARNING_CODE_COUNT + 1] = {
    [WARNING_SATURATED] = "saturated",
    [WARNING_SATURATION_UNKNOWN] = "saturation-unknown",
    [WARNING_REJECTED] = "rejected",
    [WARNING_OBJECTIVE_UNMEASURED] = "objective-unmeasured",
    [WARNING_STARVED] = "starved",
    [WARNING_DECISIONS_ASSUMED] = "decisions-assumed",
    [WARNING_DECISIONS_MOVED] = "decisions-moved",
    [WARNING_HOST_ASSUMED] = "host-assumed",
    [WARNING_HOST_FOREIGN] = "host-of-another-machine",
    [WARNING_PRICES_TRANSFERRED] = "prices-transferred",
    [WARNING_PRICES_ROOFLINE] = "prices-roofline",
    [WARNING_COLLECTIVES_ASSUMED] = "collectives-assumed",
    [WARNING_PRICES_EXTRAPOLATED] = "prices-extrapolated",
    [WARNING_PRICES_OTHER_BUILD] = "prices-of-other-kernels",
    [WARNING_PRICES_DIFFER] = "prices-differ",
    [WARNING_DEVICE_SHARED] = "device-shared",
    [WARNING_DEVICE_SLOWED] = "device-slowed",
    [WARNING_PROCESS_STOPPED] = "process-stopped",
    [WARNING_MEMORY_AS_FREE] = "memory-as-free",
    [WARNING_PROFILE_OF_OTHER] = "profile-of-another-model",
    [WARNING_CLOCK_UNKNOWN] = "clock-unknown",
    [WARNING_EXPERTS_BY_CHANCE] = "experts-by-chance",
    [WARNING_ANSWERS_ASSUMED] = "answers-assumed",
    [WARNING_ARCHITECTURE_UNKNOWN] = "architecture-unknown",
    [WARNING_TRACE_ASSUMED] = "trace-assumed",
    [WARNING_COLUMNS_UNREAD] = "columns-unread",
    [WARNING_REPEATED] = "repeated",
    [WARNING_SETTING_ASSUMED] = "setting-assumed",
    [WARNING_SETTING_UNUSED] = "setting-unused",
    [WARNING_FEW_SEEDS] = "few-seeds",
    [WARNING_NOT_DISTINGUISHABLE] = "not-distinguishable",
    [WARNING_RUNS_DIFFER] = "runs-differ",
    [WARNING_FEW_REQUESTS] = "few-requests",
    [WARNING_INCOMPLETE] = "incomplete",
};

int warning_find(const char *word, size_t length) {
    for (int code = 0; code < WARNING_CODE_COUNT; code++) {
        if (strncmp(warning_words[code], word, length) == 0 &&
            warning_words[code][length] == '\0') {
            return code;
        }
    }
    return -1;
}

bool warning_spoils_times(enum warning_code code) {
    return code == WARNING_DEVICE_SHARED || code == WARNING_DEVICE_SLOWED ||
           code == WARNING_PROCESS_STOPPED;
}

void warnings_add(struct warnings *warnings, enum warning_code code, double value,
                  const char *format, ...) {
    struct warning warning = {.code = code, .value = value};
    va_list args;
    va_start(args, format);
    vsnprintf(warning.text, sizeof warning.text, format, args);
    va_end(args);
    unsigned place = 0;
    for (; place < warnings->n && warnings->items[place].code <= code; place++) {
        if (warnings->items[place].code == code &&
            strcmp(warnings->items[place].text, warning.text) == 0) {
            return;
        }
    }
    if (place == WARNINGS_MAX) {
        return;
    }
    warnings->n -= warnings->n == WARNINGS_MAX;
    memmove(&warnings->items[place + 1], &warnings->items[place],
            (warnings->n - place) * sizeof warning);
    warnings->items[place] = warning;
    warnings->n++;
}

void warnings_add_unused(struct warnings *warnings, const char *key, const char *value,
                         const char *place, const char *condition) {
    struct warning *last = NULL;
    unsigned n = 0;
    for (unsigned i = 0; i < warnings->n; i++) {
        if (warnings->items[i].code == WARNING_SETTING_UNUSED) {
            last = &warnings->items[i];
            n++;
        }
    }
    if (n < WARNINGS_MOST_UNUSED) {
        char words[CONDITION_WORDS_CHARS];
        warnings_add(warnings, WARNING_SETTING_UNUSED, (double)NAN,
                     "%s%s%s%s%s%s does nothing here: it is read where %s", key,
                     value != NULL ? " = " : "", value != NULL ? value : "",
                     place != NULL ? " (" : "", place != NULL ? place : "",
                     place != NULL ? ")" : "", condition_words(condition, words));
    } else if (n == WARNINGS_MOST_UNUSED) {
        warnings_add(warnings, WARNING_SETTING_UNUSED, (double)NAN,
                     "nor do these settings do anything here: %s", key);
    } else {
        size_t used = strlen(last->text);
        snprintf(last->text + used, sizeof last->text - used, ", %s", key);
    }
}
