#include "experiments/run/decode_out.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/base/mem.h"
#include "sim/base/monotonic.h"
#include "sim/base/output.h"
#include "traces/decode_log.h"

enum { SAVE_EVERY_NS = 1000000000 };

/* What was seen of a request since the loop last spoke of it. */
struct seen {
    uint64_t request;
    struct decode_positions positions;
};

struct decode_out {
    struct decode_log *log;
    uint32_t block_tokens;
    struct seen *seen; /* [room], of which n_seen in order */
    size_t n_seen, room;
    bool is_kept;
    int64_t saved_ns; /* the last time that it was */
    char path[OUTPUT_PATH_CHARS];
    struct output file;
};

static bool is_same_file(const char *a, const char *b) {
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

/* ---- what a device says ---- */

static void copy_positions(struct decode_positions *to, const struct decode_positions *from) {
    const size_t n = from->length;
    to->start = from->start;
    to->length = from->length;
    to->has_importance = from->has_importance;
    memcpy(to->masked, from->masked, n);
    memcpy(to->run, from->run, n);
    memcpy(to->keep, from->keep, n);
    memcpy(to->outcome, from->outcome, n);
    memcpy(to->seen, from->seen, n);
    memcpy(to->token, from->token, n * sizeof *to->token);
    memcpy(to->confidence, from->confidence, n * sizeof *to->confidence);
    memcpy(to->margin, from->margin, n * sizeof *to->margin);
    memcpy(to->entropy, from->entropy, n * sizeof *to->entropy);
    memcpy(to->before, from->before, n * sizeof *to->before);
    memcpy(to->after, from->after, n * sizeof *to->after);
}

static int see(void *state, uint64_t request, const struct decode_positions *positions,
               struct err *err) {
    struct decode_out *out = state;
    (void)err;
    if (out->n_seen == out->room) {
        size_t room = 2 * out->room + 16;
        out->seen = mem_resized(out->seen, room, sizeof *out->seen);
        for (size_t i = out->room; i < room; i++) {
            decode_positions_init(&out->seen[i].positions, out->block_tokens);
        }
        out->room = room;
    }
    struct seen *seen = &out->seen[out->n_seen++];
    seen->request = request;
    copy_positions(&seen->positions, positions);
    return 0;
}

/* ---- opening ---- */

int decode_out_open(const char *path, const char *played, const struct system *system,
                    struct fleet *fleet, struct decode_out **out, struct err *err) {
    int status = decode_log_may_replace(path, err);
    if (status == 0 && played != NULL && is_same_file(path, played)) {
        status =
            err_usage(err, "'%s' is the decode trace that is played: it is not overwritten", path);
    }
    if (status == 0 && strlen(path) >= sizeof(*out)->path) {
        status = err_usage(err, "'%.60s...': the name of the decode trace is too long", path);
    }
    if (status != 0) {
        return status;
    }
    struct decode_out *made = mem_zeroed(1, sizeof *made);
    made->block_tokens = settings_window_tokens(&system->settings); /* those of a pass, at most */
    snprintf(made->path, sizeof made->path, "%s", path);
    status = output_reserve(made->path, &made->file, err);
    if (status == 0) {
        status = decode_log_open(made->file.beside, made->block_tokens, &made->log, err);
        if (status != 0) {
            (void)output_close(&made->file, false, err);
        }
    }
    if (status != 0) {
        free(made);
        return status;
    }
    const struct position_watch watch = {made, see};
    for (uint32_t r = 0; fleet != NULL && r < fleet_replicas(fleet); r++) {
        live_set_watch(fleet_live(fleet, r), &watch);
    }
    *out = made;
    return 0;
}

/* ---- what the loop says ---- */

/* What was observed of each of a member's passes; counts alone where passes were not watched. What
 * was seen of others stays: of another replica's step that is not recorded yet. */
static void add_passes(struct decode_out *out, uint64_t request, const struct decode_pass *pass,
                       uint32_t n) {
    uint32_t n_added = 0;
    size_t n_left = 0;
    for (size_t i = 0; i < out->n_seen; i++) {
        const struct seen seen = out->seen[i];
        if (seen.request != request) {
            out->seen[i] = out->seen[n_left];
            out->seen[n_left++] = seen;
        } else if (n_added < n) {
            decode_log_add(out->log, request, pass, 1, &seen.positions);
            n_added++;
        }
    }
    out->n_seen = n_left;
    if (n_added < n) {
        decode_log_add(out->log, request, pass, n - n_added, NULL);
    }
}

static int on_step(void *state, const struct step_record *record, struct err *err) {
    struct decode_out *out = state;
    ASSERT(record->passes != NULL);
    for (uint32_t i = 0; i < record->n; i++) {
        struct decode_pass pass = record->passes[i];
        pass.committed = record->commit_tokens[i];
        add_passes(out, record->request_ids[i], &pass, pass.processed > 0 ? record->repeat : 0);
    }
    if (!out->is_kept) {
        return decode_log_flush(out->log, err);
    }
    if (monotonic_ns() - out->saved_ns < SAVE_EVERY_NS) {
        return 0;
    }
    out->saved_ns = monotonic_ns();
    return decode_log_save(out->log, err);
}

/* Of its last step the record is still to come. */
static int on_request(void *state, const struct request_record *record, struct err *err) {
    struct decode_out *out = state;
    (void)err;
    if (record->state == REQUEST_DONE) {
        bool ends = record->answer_tokens < record->output_tokens;
        const struct decode_done done = {record->prompt_tokens, record->output_tokens,
                                         ends ? record->answer_tokens : 0};
        decode_log_finish(out->log, record->id, &done);
    }
    return 0;
}

struct sink decode_out_sink(struct decode_out *out) {
    return (struct sink){.state = out, .step = on_step, .request = on_request};
}

/* ---- where the numbers come from ---- */

static void write_source(const struct decode_about *about, FILE *text) {
    const struct system *system = about->system;
    fprintf(text, "source: ");
    if (about->played != NULL) {
        fprintf(text, "played from %s\n", about->played);
    } else if (about->device != NULL) {
        fprintf(text, "decided by %s with weights %s on %s\n", system->model->name, about->weights,
                about->device);
    } else if (system->decoder->count != NULL) {
        fprintf(text, "counted by decoder %s\n", system->decoder->policy.name);
    } else {
        fprintf(text, "drawn confidences, process %s\n", system->confidence);
    }
}

/* The lines of the resolved configuration that say what a pass does. */
static void write_policies(const char *config, bool smooths, FILE *text) {
    const char *const keys[] = {"cache", "decoder", "steps_per_block", "iteration"};
    const size_t n_keys = sizeof keys / sizeof keys[0] - !smooths;
    const char *line = strstr(config, "\n[system]\n"), *end = strstr(config, "\n[workload]\n");
    line = line != NULL ? line + strlen("\n[system]\n") : config;
    for (; *line != '\0' && (end == NULL || line < end); line += strcspn(line, "\n") + 1) {
        for (size_t i = 0; i < n_keys; i++) {
            size_t length = strlen(keys[i]), key = strcspn(line, " ");
            if (strncmp(line, keys[i], length) == 0 && (key == length || line[length] == '.')) {
                const char *value = line + key + strlen(" = ");
                fprintf(text, "%.*s: %.*s\n", (int)key, line, (int)strcspn(value, "\n"), value);
            }
        }
    }
}

static char *text_of(const struct decode_about *about) {
    char *lines, ids[128];
    size_t size;
    FILE *text = mem_stream(&lines, &size);
    write_source(about, text);
    fprintf(text, "system: %s\nmodel: %s\nworkload: %s: %s\nseed: %" PRIu64 "\n",
            about->system->name, about->system->model->name, about->trace, about->trace_provenance,
            about->seed);
    write_policies(about->config, about->system->settings.iteration == ITERATION_SMOOTH, text);
    if (system_reads_logits(about->system)) {
        const struct draw_rule *by = &about->system->process.drawing;
        fprintf(text, "drawing: tokens are %s at temperature %g, top_k %" PRIu32 ", top_p %g\n",
                by->draws ? "drawn" : "the most likely ones", (double)by->temperature, by->top_k,
                by->top_p);
    }
    if (about->device != NULL && about->ends != NULL && about->ends->n > 0) {
        fprintf(text, "ends: %s\n", end_tokens_text(about->ends, ids, sizeof ids));
    }
    if (about->incomplete != NULL) {
        fprintf(text, "incomplete: %s\n", about->incomplete);
    }
    mem_stream_close(text);
    return lines;
}

int decode_out_keep(struct decode_out *out, const struct decode_about *about, struct err *err) {
    char *lines = text_of(about);
    int status = decode_log_keep(out->log, lines, err);
    free(lines);
    out->is_kept = status == 0;
    if (out->is_kept) {
        out->saved_ns = monotonic_ns();
        output_keep(&out->file);
    }
    return status;
}

static int put(struct decode_out *out, const struct decode_about *about, struct err *err) {
    char *lines = text_of(about);
    int status = decode_log_close(out->log, lines, err);
    free(lines);
    return status;
}

int decode_out_close(struct decode_out *out, const struct decode_about *about, struct err *err) {
    if (out == NULL) {
        return 0;
    }
    int status = 0;
    if (about != NULL) {
        status = put(out, about, err);
    } else {
        decode_log_drop(out->log);
    }
    if (status != 0 && out->is_kept) {
        char cause[sizeof err->text];
        snprintf(cause, sizeof cause, "%s", err->text);
        status = err_world(err, "%.400s; what was decoded until shortly before is in '%s'", cause,
                           out->file.beside);
    } else {
        int lost = output_close(&out->file, about != NULL && status == 0, err);
        status = status != 0 ? status : lost;
    }
    for (size_t i = 0; i < out->room; i++) {
        decode_positions_fini(&out->seen[i].positions);
    }
    free(out->seen);
    free(out);
    return status;
}
