#include "analysis/plot/timeline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/mem.h"
#include "sim/base/output.h"

enum {
    BUFFER_BYTES = 1 << 18,
    MAX_ENTRY_BYTES = 2048, /* one printed entry, the title's included */
    PROCESS = 1,
};

static const char tail[] = "\n]}\n";

struct timeline {
    char *path;
    struct output out;
    bool has_failed;
    off_t written; /* bytes on disk before the tail */
    size_t n;      /* bytes pending */
    uint32_t n_replicas;
    bool first; /* nothing but the header so far */
    char buffer[BUFFER_BYTES];
};

static int write_all(struct timeline *timeline, const char *data, size_t n, off_t at,
                     struct err *err) {
    while (n > 0) {
        ssize_t done = pwrite(fileno(timeline->out.file), data, n, at);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return err_world(err, "cannot write the timeline '%s': %s", timeline->path,
                             done < 0 ? strerror(errno) : "nothing was written");
        }
        data += done;
        n -= (size_t)done;
        at += done;
    }
    return 0;
}

/* Pending entries and the tail go out in one write, over the last tail. */
static int flush(struct timeline *timeline, struct err *err) {
    const size_t tail_bytes = sizeof tail - 1;
    memcpy(timeline->buffer + timeline->n, tail, tail_bytes);
    int failed =
        write_all(timeline, timeline->buffer, timeline->n + tail_bytes, timeline->written, err);
    timeline->written += (off_t)timeline->n;
    timeline->n = 0;
    timeline->has_failed |= failed != 0;
    return failed;
}

static int put(struct timeline *timeline, struct err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int put(struct timeline *timeline, struct err *err, const char *format, ...) {
    int failed = 0;
    if (timeline->n + MAX_ENTRY_BYTES + sizeof tail > BUFFER_BYTES) {
        failed = flush(timeline, err);
    }
    if (!timeline->first) {
        timeline->buffer[timeline->n++] = ',';
    }
    timeline->buffer[timeline->n++] = '\n';
    timeline->first = false;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(timeline->buffer + timeline->n, MAX_ENTRY_BYTES, format, args);
    va_end(args);
    ASSERT(n >= 0 && n < MAX_ENTRY_BYTES - 2);
    timeline->n += (size_t)n;
    return failed;
}

/* Characters that JSON strings do not take as they are become spaces. */
static void plain_text(const char *text, char *out, size_t size) {
    snprintf(out, size, "%s", text);
    for (char *c = out; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f || *c == '"' || *c == '\\') {
            *c = ' ';
        }
    }
}

/* Trace events count in microseconds; three decimals keep every nanosecond. */
#define US          "%" PRId64 ".%03" PRId64
#define US_ARGS(ns) (ns) / 1000, (ns) % 1000

int timeline_open(const char *path, const char *title, struct timeline **out, struct err *err) {
    static const char head[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
    if (output_may_replace(path, head, "a timeline", err) != 0) {
        return (int)err->kind;
    }
    struct timeline *timeline = mem_zeroed(1, sizeof *timeline);
    timeline->path = mem_text(path);
    timeline->first = true;
    if (output_open(timeline->path, &timeline->out, err) != 0) {
        free(timeline->path);
        free(timeline);
        return err_status(err);
    }
    memcpy(timeline->buffer, head, sizeof head - 1);
    timeline->n = sizeof head - 1;
    char name[512];
    plain_text(title, name, sizeof name);
    put(timeline, err,
        "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}}", PROCESS,
        name);
    int failed = flush(timeline, err);
    if (failed != 0) {
        struct err ignored = {0};
        timeline_close(timeline, &ignored);
        return failed;
    }
    *out = timeline;
    return 0;
}

/* Names the tracks of replicas up to `replica`. */
static int name_replicas(struct timeline *timeline, uint32_t replica, struct err *err) {
    int failed = 0;
    while (failed == 0 && timeline->n_replicas <= replica) {
        failed = put(timeline, err,
                     "{\"ph\":\"M\",\"pid\":%d,\"tid\":%" PRIu32
                     ",\"name\":\"thread_name\",\"args\":{\"name\":\"replica %" PRIu32 "\"}}",
                     PROCESS, timeline->n_replicas + 1, timeline->n_replicas);
        timeline->n_replicas++;
    }
    return failed;
}

static const char *step_name(const struct step_record *record) {
    const char *name = "mixed";
    int n_phases = 0;
    for (int i = 0; i < PHASE_COUNT; i++) {
        if (record->n_by_phase[i] > 0) {
            name = phase_names[i];
            n_phases++;
        }
    }
    return n_phases == 1 ? name : "mixed";
}

static int on_step(void *state, const struct step_record *r, struct err *err) {
    struct timeline *timeline = state;
    int failed = name_replicas(timeline, r->replica, err);
    if (failed == 0) {
        int64_t duration_ns = r->end_ns - r->start_ns;
        failed = put(timeline, err,
                     "{\"ph\":\"X\",\"pid\":%d,\"tid\":%" PRIu32 ",\"ts\":" US ",\"dur\":" US
                     ",\"name\":\"%s\",\"args\":{\"step\":%" PRIu64 ",\"repeat\":%" PRIu32
                     ",\"requests\":%" PRIu32 ",\"prefill\":%" PRIu32 ",\"refresh\":%" PRIu32
                     ",\"reuse\":%" PRIu32 ",\"commit\":%" PRIu32 ",\"tokens\":%" PRId64
                     ",\"logit_rows\":%" PRId64 ",\"gpu_us\":" US ",\"host_us\":" US "}}",
                     PROCESS, r->replica + 1, US_ARGS(r->start_ns), US_ARGS(duration_ns),
                     step_name(r), r->index, r->repeat, r->n, r->n_by_phase[PHASE_PREFILL],
                     r->n_by_phase[PHASE_REFRESH], r->n_by_phase[PHASE_REUSE],
                     r->n_by_phase[PHASE_COMMIT], r->sym[SYM_TOKENS], r->sym[SYM_LOGIT_ROWS],
                     US_ARGS(r->gpu_ns), US_ARGS(r->host_ns));
    }
    if (failed == 0) {
        failed = put(timeline, err,
                     "{\"ph\":\"C\",\"pid\":%d,\"ts\":" US ",\"name\":\"requests, replica %" PRIu32
                     "\",\"args\":{\"running\":%" PRIu32 ",\"waiting\":%" PRIu32 "}}",
                     PROCESS, US_ARGS(r->start_ns), r->replica, r->n_running, r->n_waiting);
    }
    if (failed == 0) {
        failed = put(timeline, err,
                     "{\"ph\":\"C\",\"pid\":%d,\"ts\":" US ",\"name\":\"KV bytes, replica %" PRIu32
                     "\",\"args\":{\"used\":%" PRId64 "}}",
                     PROCESS, US_ARGS(r->start_ns), r->replica, r->kv_used_bytes);
    }
    return failed;
}

static int on_event(void *state, const struct event_record *r, struct err *err) {
    struct timeline *timeline = state;
    if (r->kind != EVENT_REJECT && r->kind != EVENT_PREEMPT) {
        return 0;
    }
    int failed = name_replicas(timeline, r->replica, err);
    if (failed != 0) {
        return failed;
    }
    bool rejected = r->kind == EVENT_REJECT && r->detail < REJECT_REASON_COUNT;
    return put(timeline, err,
               "{\"ph\":\"i\",\"s\":\"t\",\"pid\":%d,\"tid\":%" PRIu32 ",\"ts\":" US
               ",\"name\":\"%s\",\"args\":{\"request\":%" PRIu64 "%s%s%s}}",
               PROCESS, r->replica + 1, US_ARGS(r->time_ns), event_kind_names[r->kind], r->request,
               rejected ? ",\"reason\":\"" : "", rejected ? reject_reason_names[r->detail] : "",
               rejected ? "\"" : "");
}

struct sink timeline_sink(struct timeline *timeline) {
    return (struct sink){.state = timeline, .step = on_step, .event = on_event};
}

int timeline_close(struct timeline *timeline, struct err *err) {
    if (timeline == NULL) {
        return 0;
    }
    int failed = timeline->has_failed ? 0 : flush(timeline, err);
    int closed = output_close(&timeline->out, !timeline->has_failed, err);
    failed = failed != 0 ? failed : closed;
    free(timeline->path);
    free(timeline);
    return failed;
}
