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

const char *const warning_meanings[WARNING_CODE_COUNT] = {
    [WARNING_SATURATED] =
        "more requests came than the system can serve: latencies say how long the run was, so "
        "compare throughput",
    [WARNING_SATURATION_UNKNOWN] =
        "the run does not tell whether the system keeps up with the load: more requests would",
    [WARNING_REJECTED] =
        "some requests were rejected: percentiles are of those that were served, goodput and "
        "attainment count the others as missed; `compare --same-requests` takes those that every "
        "system served",
    [WARNING_OBJECTIVE_UNMEASURED] =
        "an objective is about a time that no request has, such as TPOT where every answer is one"
        " block: it counts as missed",
    [WARNING_STARVED] =
        "a request that had begun took no step for more than four times the mean latency: the "
        "scheduler passed it over, or preempted it",
    [WARNING_DECISIONS_ASSUMED] =
        "how many tokens a pass commits is drawn from a statistical model (a decode process) that"
        " was not fitted to this language model and workload",
    [WARNING_DECISIONS_MOVED] =
        "the decode process was fitted under another threshold, block size, temperature or "
        "decoder",
    [WARNING_HOST_ASSUMED] =
        "the time that code takes on the host, the machine that the GPU is in, was assumed, not "
        "measured",
    [WARNING_HOST_FOREIGN] =
        "the host's times are those of another machine: a published system keeps its paper's host"
        " on any GPU (`--host` takes another)",
    [WARNING_PRICES_TRANSFERRED] =
        "a share of the operators' time is scaled from measurements of another GPU",
    [WARNING_PRICES_ROOFLINE] =
        "a share of the operators' time is computed from the data sheet, since no profile has it",
    [WARNING_COLLECTIVES_ASSUMED] =
        "a share of the time is what GPUs exchange over a link that was not measured, by a model "
        "of such links",
    [WARNING_PRICES_EXTRAPOLATED] =
        "a share of the operators' time is of larger sizes than were measured",
    [WARNING_PRICES_OTHER_BUILD] =
        "a live run is compared with a profile that other kernels than the library's were "
        "measured for, perhaps older ones",
    [WARNING_PRICES_DIFFER] =
        "what is compared is priced by kernels of different sources, or by two profiles of one "
        "GPU: `--price-source one` takes one for all",
    [WARNING_DEVICE_SHARED] =
        "other programs computed on the device or the machine during a live run, so that its "
        "times are not its own",
    [WARNING_DEVICE_SLOWED] =
        "heat or the power supply slowed the card during a live run, or its clock fell",
    [WARNING_PROCESS_STOPPED] =
        "the process was stopped and continued during a live run, or the machine slept",
    [WARNING_MEMORY_AS_FREE] =
        "the device has less memory free than the system plans: the live run takes what is free",
    [WARNING_PROFILE_OF_OTHER] =
        "the profile of `--profile` was measured with a model of another shape",
    [WARNING_CLOCK_UNKNOWN] =
        "the profile was measured at the card's highest clock and does not say how the card slows"
        " under load",
    [WARNING_EXPERTS_BY_CHANCE] =
        "how many experts the mixture's router hits was never counted: prices are for as many as "
        "chance would hit (`--set experts_hit=N`)",
    [WARNING_ANSWERS_ASSUMED] =
        "nothing says where texts end: answers are taken to fill the output",
    [WARNING_ARCHITECTURE_UNKNOWN] =
        "`config.json` names a class that is not known: the family of its `model_type` was taken",
    [WARNING_TRACE_ASSUMED] =
        "what the trace's times, hash ids or columns mean was found out from its rows and names",
    [WARNING_COLUMNS_UNREAD] = "the trace has columns or keys that are not read",
    [WARNING_REPEATED] = "the trace's rows are gone through several times to make as many requests",
    [WARNING_SETTING_ASSUMED] =
        "a setting of the system that its paper does not print was inferred",
    [WARNING_SETTING_UNUSED] =
        "a key or option was set that nothing reads in this run: the sentence says where it is "
        "read",
    [WARNING_FEW_SEEDS] =
        "one seed does not tell how far a number moves with another one; or nothing is drawn, so "
        "that all seeds are the same run",
    [WARNING_NOT_DISTINGUISHABLE] =
        "the interval of the difference between two systems contains zero: more seeds may tell "
        "them apart",
    [WARNING_RUNS_DIFFER] =
        "runs that would be averaged are of different builds, or read files of different "
        "contents: there is no mean",
    [WARNING_FEW_REQUESTS] =
        "hardly more requests come than run at once, so that the run ends before a queue forms",
    [WARNING_INCOMPLETE] = "the run was cut short",
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
