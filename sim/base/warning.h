/* What makes a result easy to misread: an entry of `warnings` in every JSON output and a line on
 * the terminal. One vocabulary for all commands; programs read the code, not the sentence. */
#ifndef UNMASK_SIM_BASE_WARNING_H
#define UNMASK_SIM_BASE_WARNING_H

#include <stdbool.h>
#include <stddef.h>

enum warning_code {
    WARNING_SATURATED,            /* offered more than it served: latencies depend on the length */
    WARNING_SATURATION_UNKNOWN,   /* the run does not tell whether the system keeps up */
    WARNING_REJECTED,             /* requests were rejected: percentiles are of the survivors */
    WARNING_OBJECTIVE_UNMEASURED, /* no request has what an objective bounds: it is not met */
    WARNING_STARVED,              /* a request waited far longer between steps than others took */
    WARNING_DECISIONS_ASSUMED,    /* the decode process is assumed or fitted to something else */
    WARNING_DECISIONS_MOVED,      /* a run leaves the conditions its process was located under */
    WARNING_HOST_ASSUMED,         /* host times rest on no measured or calibrated host */
    WARNING_HOST_FOREIGN,         /* a published system keeps its paper's host on another GPU */
    WARNING_PRICES_TRANSFERRED,   /* a share of the time is priced by another GPU's measurements */
    WARNING_PRICES_ROOFLINE,      /* a share of the time is priced from data sheets */
    WARNING_COLLECTIVES_ASSUMED,  /* what GPUs exchange goes by a model of the link */
    WARNING_PRICES_EXTRAPOLATED,  /* a share of the time lies outside what was measured */
    WARNING_PRICES_OTHER_BUILD,   /* the device's kernels are not those that were measured */
    WARNING_PRICES_DIFFER,        /* what is compared is priced by several sources */
    WARNING_DEVICE_SHARED,        /* others computed where a live run did: they are in its times */
    WARNING_DEVICE_SLOWED,        /* by heat or its power supply, or its clock fell */
    WARNING_PROCESS_STOPPED,      /* and continued, or the machine slept */
    WARNING_MEMORY_AS_FREE,       /* a live run takes less memory than its system says */
    WARNING_PROFILE_OF_OTHER,     /* the profile that was named is of another model's calibration */
    WARNING_CLOCK_UNKNOWN,        /* the profile does not say how a card slows under load */
    WARNING_EXPERTS_BY_CHANCE,    /* a mixture is priced for as many experts as chance hits */
    WARNING_ANSWERS_ASSUMED,      /* answers are taken to fill the canvas */
    WARNING_ARCHITECTURE_UNKNOWN, /* a model's class is known to no family: its model_type's runs */
    WARNING_TRACE_ASSUMED,        /* what a trace means was found out from its rows or names */
    WARNING_COLUMNS_UNREAD,       /* the trace has columns or keys that are not read */
    WARNING_REPEATED,             /* the trace's rows are gone through more than once */
    WARNING_SETTING_ASSUMED,      /* a setting that decides a ranking was inferred, not printed */
    WARNING_SETTING_UNUSED,       /* the user set what nothing reads */
    WARNING_FEW_SEEDS,            /* one seed, or seeds that are all the same run */
    WARNING_NOT_DISTINGUISHABLE,  /* the seeds there are do not tell two systems apart */
    WARNING_RUNS_DIFFER,          /* of builds or contents of files: no mean is of one system */
    WARNING_FEW_REQUESTS,         /* hardly more than run at once: a run ends before they queue */
    WARNING_INCOMPLETE,           /* the run was cut short */
};
enum { WARNING_CODE_COUNT = WARNING_INCOMPLETE + 1, WARNINGS_MAX = 24, WARNING_CHARS = 320 };

/* "saturated", "rejected", ...: what JSON carries as `code`; NULL after the last. */
extern const char *const warning_words[WARNING_CODE_COUNT + 1];

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
