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
    PROCESS = 1,            /* a track for each replica */
    REQUESTS = 2,           /* and one for each request */
};

static const char tail[] = "\n]}\n";

/* Where a request is. Its slices are written as they end: each lies within the one before it of
 * request, stay (queued, running, preempted or swapped out), block and passes. */
struct track {
    enum {
        TRACK_NONE,
        TRACK_QUEUED,
        TRACK_RUNNING,
        TRACK_PREEMPTED,
        TRACK_SWAPPED,
        TRACK_LEFT
    } stay;
    uint32_t block;
    uint32_t found_tokens;     /* when it was admitted, of what prompts share */
    uint32_t passes;           /* like ones that follow one another; 0: none, or those that reuse */
    uint64_t replaced;         /* tokens of the block that were given another one */
    uint8_t phase;             /* of these */
    bool ends_block;           /* with the step that is reported next */
    int64_t stay_ns, block_ns; /* since when */
    int64_t start_ns, end_ns;  /* of the passes */
};

struct timeline {
    struct track *tracks; /* by request */
    size_t n_tracks;
    int64_t last_ns; /* the latest of all times so far */
    char *path;
    struct output out;
    bool has_failed;
    off_t written; /* bytes before the tail */
    size_t n;      /* bytes pending */
    uint32_t n_replicas;
    bool first; /* nothing but the header so far */
    char buffer[BUFFER_BYTES];
};

static bool is_file(const struct timeline *timeline) {
    return timeline->out.beside[0] != '\0';
}

static int write_all(struct timeline *timeline, size_t n, struct err *err) {
    const int file = fileno(timeline->out.file);
    for (size_t at = 0; at < n;) {
        const char *data = timeline->buffer + at;
        ssize_t done = is_file(timeline) ? pwrite(file, data, n - at, timeline->written + (off_t)at)
                                         : write(file, data, n - at);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            timeline->has_failed = true;
            return err_world(err, "cannot write the timeline '%s': %s", timeline->path,
                             done < 0 ? strerror(errno) : "nothing was written");
        }
        at += (size_t)done;
    }
    return 0;
}

/* Pending entries and the tail go out in one write, over the last tail; what is no file, such as a
 * pipe, gets one tail, at the end. */
static int flush(struct timeline *timeline, bool is_last, struct err *err) {
    const size_t tail_bytes = is_last || is_file(timeline) ? sizeof tail - 1 : 0;
    memcpy(timeline->buffer + timeline->n, tail, tail_bytes);
    int failed = write_all(timeline, timeline->n + tail_bytes, err);
    timeline->written += (off_t)timeline->n;
    timeline->n = 0;
    return failed;
}

static int put(struct timeline *timeline, struct err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int put(struct timeline *timeline, struct err *err, const char *format, ...) {
    int failed = 0;
    if (timeline->n + MAX_ENTRY_BYTES + sizeof tail > BUFFER_BYTES) {
        failed = flush(timeline, false, err);
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
    int failed = flush(timeline, false, err);
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

/* What stood when the step began; power, where it is known, is the mean of the step. */
static int put_counters(struct timeline *timeline, const struct step_record *r, struct err *err) {
    int failed = put(timeline, err,
                     "{\"ph\":\"C\",\"pid\":%d,\"ts\":" US ",\"name\":\"requests, replica %" PRIu32
                     "\",\"args\":{\"running\":%" PRIu32 ",\"waiting\":%" PRIu32 "}}",
                     PROCESS, US_ARGS(r->start_ns), r->replica, r->n_running, r->n_waiting);
    failed |= put(timeline, err,
                  "{\"ph\":\"C\",\"pid\":%d,\"ts\":" US ",\"name\":\"batch, replica %" PRIu32
                  "\",\"args\":{\"requests\":%" PRIu32 "}}",
                  PROCESS, US_ARGS(r->start_ns), r->replica, r->n);
    failed |= put(timeline, err,
                  "{\"ph\":\"C\",\"pid\":%d,\"ts\":" US ",\"name\":\"KV bytes, replica %" PRIu32
                  "\",\"args\":{\"used\":%" PRId64 "}}",
                  PROCESS, US_ARGS(r->start_ns), r->replica, r->kv_used_bytes);
    if (r->joules > 0 && r->end_ns > r->start_ns) {
        failed |= put(timeline, err,
                      "{\"ph\":\"C\",\"pid\":%d,\"ts\":" US ",\"name\":\"power, replica %" PRIu32
                      "\",\"args\":{\"W\":%.1f}}",
                      PROCESS, US_ARGS(r->start_ns), r->replica,
                      r->joules / ((double)(r->end_ns - r->start_ns) / 1e9));
    }
    return failed != 0 ? (int)err->kind : 0;
}

static int add_passes(struct timeline *timeline, const struct step_record *r, struct err *err);

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
    if (failed == 0 && r->swap.stall_ns > 0) {
        failed =
            put(timeline, err,
                "{\"ph\":\"X\",\"pid\":%d,\"tid\":%" PRIu32 ",\"ts\":" US ",\"dur\":" US
                ",\"name\":\"swap\",\"args\":{\"out_bytes\":%" PRId64 ",\"in_bytes\":%" PRId64 "}}",
                PROCESS, r->replica + 1, US_ARGS(r->start_ns - r->swap.stall_ns),
                US_ARGS(r->swap.stall_ns), r->swap.out_bytes, r->swap.in_bytes);
    }
    timeline->last_ns = r->end_ns > timeline->last_ns ? r->end_ns : timeline->last_ns;
    failed = failed != 0 ? failed : put_counters(timeline, r, err);
    return failed != 0 ? failed : add_passes(timeline, r, err);
}

/* ---- requests ---- */

/* The track of a request, which is named when it is new. */
static struct track *track_of(struct timeline *timeline, uint64_t request, struct err *err) {
    if (timeline->n_tracks == 0) {
        put(timeline, err,
            "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"requests\"}}",
            REQUESTS);
    }
    if (request >= timeline->n_tracks) {
        size_t n = request + 1 > 2 * timeline->n_tracks ? request + 1 : 2 * timeline->n_tracks;
        timeline->tracks = mem_resized(timeline->tracks, n, sizeof *timeline->tracks);
        memset(timeline->tracks + timeline->n_tracks, 0,
               (n - timeline->n_tracks) * sizeof *timeline->tracks);
        timeline->n_tracks = n;
    }
    struct track *track = &timeline->tracks[request];
    if (track->stay == TRACK_NONE) {
        put(timeline, err,
            "{\"ph\":\"M\",\"pid\":%d,\"tid\":%" PRIu64
            ",\"name\":\"thread_name\",\"args\":{\"name\":\"request %" PRIu64 "\"}}",
            REQUESTS, request + 1, request);
    }
    return track;
}

/* `args` are members of an object, or "". */
static void put_slice(struct timeline *timeline, uint64_t request, const char *name,
                      int64_t start_ns, int64_t end_ns, const char *args, struct err *err) {
    int64_t duration_ns = end_ns - start_ns;
    put(timeline, err,
        "{\"ph\":\"X\",\"pid\":%d,\"tid\":%" PRIu64 ",\"ts\":" US ",\"dur\":" US
        ",\"name\":\"%s\",\"args\":{%s}}",
        REQUESTS, request + 1, US_ARGS(start_ns), US_ARGS(duration_ns), name, args);
}

static void end_passes(struct timeline *timeline, uint64_t request, struct track *track,
                       struct err *err) {
    if (track->passes > 0) {
        char args[64];
        snprintf(args, sizeof args, "\"passes\":%" PRIu32, track->passes);
        put_slice(timeline, request, phase_names[track->phase], track->start_ns, track->end_ns,
                  args, err);
    }
    track->passes = 0;
}

static void end_block(struct timeline *timeline, uint64_t request, struct track *track,
                      int64_t now_ns, bool is_whole, struct err *err) {
    char name[64];
    snprintf(name, sizeof name, "block %" PRIu32 "%s", track->block, is_whole ? "" : ", cut");
    char args[64] = "";
    if (track->replaced > 0) {
        snprintf(args, sizeof args, "\"replaced\":%" PRIu64, track->replaced);
    }
    if (now_ns > track->block_ns) {
        put_slice(timeline, request, name, track->block_ns, now_ns, args, err);
    }
    track->replaced = 0;
    track->block_ns = now_ns;
}

/* From one stay to the next. */
static void move(struct timeline *timeline, uint64_t request, struct track *track, int stay,
                 int64_t now_ns, struct err *err) {
    static const char *const names[] = {[TRACK_QUEUED] = "queued",
                                        [TRACK_RUNNING] = "running",
                                        [TRACK_PREEMPTED] = "preempted",
                                        [TRACK_SWAPPED] = "swapped"};
    if (track->stay != TRACK_NONE && track->stay != TRACK_LEFT && now_ns > track->stay_ns) {
        char args[64] = "";
        if (track->found_tokens > 0) {
            snprintf(args, sizeof args, "\"found_tokens\":%" PRIu32, track->found_tokens);
        }
        put_slice(timeline, request, names[track->stay], track->stay_ns, now_ns, args, err);
    }
    track->found_tokens = 0;
    track->stay = stay;
    track->stay_ns = track->block_ns = now_ns;
}

/* A step of a member: passes of one phase in a row are one slice, but for those that reuse, which
 * are what a block is otherwise made of. */
static void add_pass(struct timeline *timeline, const struct step_record *r, uint32_t member,
                     struct err *err) {
    const uint64_t request = r->request_ids[member];
    struct track *track = track_of(timeline, request, err);
    const uint8_t phase = r->phases[member];
    track->replaced += r->passes != NULL ? (uint64_t)r->repeat * r->passes[member].revised : 0;
    bool goes_on = track->passes > 0 && track->phase == phase && r->start_ns == track->end_ns &&
                   track->start_ns >= track->block_ns;
    if (!goes_on) {
        end_passes(timeline, request, track, err);
        track->start_ns = r->start_ns;
    }
    if (phase != PHASE_REUSE) {
        track->phase = phase;
        track->passes += r->repeat;
        track->end_ns = r->end_ns;
    }
    if (track->ends_block) {
        end_passes(timeline, request, track, err);
        track->ends_block = false;
    }
}

static int add_passes(struct timeline *timeline, const struct step_record *r, struct err *err) {
    for (uint32_t i = 0; r->phases != NULL && i < r->n; i++) {
        add_pass(timeline, r, i, err);
    }
    return (int)err->kind;
}

static int on_request_event(struct timeline *timeline, const struct event_record *r,
                            struct err *err) {
    struct track *track = track_of(timeline, r->request, err);
    switch ((enum event_kind)r->kind) {
    case EVENT_ARRIVAL:
        move(timeline, r->request, track, TRACK_QUEUED, r->time_ns, err);
        break;
    case EVENT_ADMIT:
        move(timeline, r->request, track, TRACK_RUNNING, r->time_ns, err);
        track->found_tokens = r->detail;
        break;
    case EVENT_BLOCK_DONE:
        track->block = r->detail;
        end_block(timeline, r->request, track, r->time_ns, true, err);
        track->block = r->detail + 1;
        track->ends_block = true;
        break;
    case EVENT_PREEMPT:
        end_passes(timeline, r->request, track, err);
        end_block(timeline, r->request, track, r->time_ns, false, err);
        move(timeline, r->request, track, r->detail == 1 ? TRACK_SWAPPED : TRACK_PREEMPTED,
             r->time_ns, err);
        break;
    case EVENT_REJECT:
    case EVENT_FINISH:
        if (track->stay == TRACK_RUNNING) {
            end_block(timeline, r->request, track, r->time_ns, false, err);
        }
        move(timeline, r->request, track, TRACK_LEFT, r->time_ns, err);
        track->ends_block = true;
        break;
    case EVENT_HOLD:
    case EVENT_MOVE:
        break; /* it waits as before */
    }
    return (int)err->kind;
}

/* The whole of a request, when it has left. */
static int on_request(void *state, const struct request_record *r, struct err *err) {
    struct timeline *timeline = state;
    char args[256];
    bool done = r->state == REQUEST_DONE;
    track_of(timeline, r->id, err);
    snprintf(args, sizeof args,
             "\"prompt_tokens\":%" PRIu32 ",\"output_tokens\":%" PRIu32 ",\"steps\":%" PRIu32
             ",\"refresh_steps\":%" PRIu32 ",\"preemptions\":%" PRIu32 "%s%s%s",
             r->prompt_tokens, r->output_tokens, r->steps, r->refresh_steps, r->preemptions,
             done ? "" : ",\"rejected\":\"",
             done                              ? ""
             : r->reason < REJECT_REASON_COUNT ? reject_reason_names[r->reason]
                                               : "unknown",
             done ? "" : "\"");
    int64_t end_ns = r->finished_ns >= r->arrival_ns ? r->finished_ns : timeline->last_ns;
    end_ns = end_ns >= r->arrival_ns ? end_ns : r->arrival_ns;
    put_slice(timeline, r->id, done ? "done" : "rejected", r->arrival_ns, end_ns, args, err);
    return (int)err->kind;
}

/* What is under way when the timeline ends, until then. */
static void end_tracks(struct timeline *timeline, struct err *err) {
    for (size_t i = 0; i < timeline->n_tracks; i++) {
        struct track *track = &timeline->tracks[i];
        end_passes(timeline, i, track, err);
        if (track->stay == TRACK_RUNNING) {
            end_block(timeline, i, track, timeline->last_ns, false, err);
        }
        if (track->stay != TRACK_NONE && track->stay != TRACK_LEFT) {
            move(timeline, i, track, TRACK_LEFT, timeline->last_ns, err);
        }
    }
}

static int on_event(void *state, const struct event_record *r, struct err *err) {
    struct timeline *timeline = state;
    timeline->last_ns = r->time_ns > timeline->last_ns ? r->time_ns : timeline->last_ns;
    if (on_request_event(timeline, r, err) != 0 ||
        (r->kind != EVENT_REJECT && r->kind != EVENT_PREEMPT)) {
        return (int)err->kind;
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
    return (struct sink){
        .state = timeline, .request = on_request, .step = on_step, .event = on_event};
}

int timeline_close(struct timeline *timeline, struct err *err) {
    if (timeline == NULL) {
        return 0;
    }
    if (!timeline->has_failed) {
        end_tracks(timeline, err);
    }
    int failed = timeline->has_failed ? 0 : flush(timeline, true, err);
    int closed = output_close(&timeline->out, !timeline->has_failed, err);
    failed = failed != 0 ? failed : closed;
    free(timeline->tracks);
    free(timeline->path);
    free(timeline);
    return failed;
}
