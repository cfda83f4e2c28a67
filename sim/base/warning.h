/* What makes a result easy to misread: an entry of `warnings` in every JSON output and a line on
 * the terminal. One vocabulary for all commands; programs read the code, not the sentence. */
#ifndef UNMASK_SIM_BASE_WARNING_H
#define UNMASK_SIM_BASE_WARNING_H

#include <stdbool.h>
#include <stddef.h>

/* warning_meanings says what each means. */
enum warning_code {
    WARNING_SATURATED,
    WARNING_SATURATION_UNKNOWN,
    WARNING_REJECTED,
    WARNING_OBJECTIVE_UNMEASURED,
    WARNING_STARVED,
    WARNING_DECISIONS_ASSUMED,
    WARNING_DECISIONS_MOVED,
    WARNING_HOST_ASSUMED,
    WARNING_HOST_FOREIGN,
    WARNING_PRICES_TRANSFERRED,
    WARNING_PRICES_ROOFLINE,
    WARNING_COLLECTIVES_ASSUMED,
    WARNING_PRICES_EXTRAPOLATED,
    WARNING_PRICES_OTHER_BUILD,
    WARNING_PRICES_DIFFER,
    WARNING_DEVICE_SHARED,
    WARNING_DEVICE_SLOWED,
    WARNING_PROCESS_STOPPED,
    WARNING_MEMORY_AS_FREE,
    WARNING_PROFILE_OF_OTHER,
    WARNING_CLOCK_UNKNOWN,
    WARNING_EXPERTS_BY_CHANCE,
    WARNING_ANSWERS_ASSUMED,
    WARNING_ARCHITECTURE_UNKNOWN,
    WARNING_TRACE_ASSUMED,
    WARNING_COLUMNS_UNREAD,
    WARNING_REPEATED,
    WARNING_SETTING_ASSUMED,
    WARNING_SETTING_UNUSED,
    WARNING_FEW_SEEDS,
    WARNING_NOT_DISTINGUISHABLE,
    WARNING_RUNS_DIFFER,
    WARNING_FEW_REQUESTS,
    WARNING_INCOMPLETE,
};
enum { WARNING_CODE_COUNT = WARNING_INCOMPLETE + 1, WARNINGS_MAX = 24, WARNING_CHARS = 320 };

/* "saturated", "rejected", ...: what JSON carries as `code`; NULL after the last. */
extern const char *const warning_words[WARNING_CODE_COUNT + 1];

/* A sentence without its full stop: what `list cautions` and docs/reference/cautions.md have. */
extern const char *const warning_meanings[WARNING_CODE_COUNT];

/* The code whose word is the first `length` bytes; -1: none has it. */
int warning_find(const char *word, size_t length);

/* Whether it says that a live run's times are not the device's own: device-shared, device-slowed,
 * process-stopped. */
bool warning_spoils_times(enum warning_code code);

struct warning {
    enum warning_code code;
    double value; /* the share, ratio or count the sentence speaks of */
    char text[WARNING_CHARS];
};

/* In the order of the codes; at most one of each code and text. */
struct warnings {
    struct warning items[WARNINGS_MAX];
    unsigned n;
};

/* Adds a warning in its place; the same code and sentence again changes nothing. Beyond
 * WARNINGS_MAX the last is dropped. */
void warnings_add(struct warnings *warnings, enum warning_code code, double value,
                  const char *format, ...) __attribute__((format(printf, 4, 5)));

enum { WARNINGS_MOST_UNUSED = 6 };

/* That the user set `key` and nothing read it; `condition` says where something would
 * (condition.h). `value` NULL: it has none; `place`: who said so. Those beyond WARNINGS_MOST_UNUSED
 * share a warning. */
void warnings_add_unused(struct warnings *warnings, const char *key, const char *value,
                         const char *place, const char *condition);

#endif
