#include "experiments/run/decode_out.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/output.h"
#include "sim/base/zeroed.h"

struct decode_out {
    struct decode_log *log;
    FILE *file;
    char path[4096];
    char
        beside[4096 + 8]; /* "": `path` is written itself: what is no file cannot be renamed over */
};

static int cannot_write(const char *path, struct err *err) {
    return err_world(err, "cannot write '%s': %s", path, strerror(errno));
}

static bool is_same_file(const char *a, const char *b) {
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

int decode_out_open(const char *path, const struct composition *c, struct decode_out **out,
                    struct err *err) {
    struct stat found;
    int status = output_may_replace(path, DECODE_TRACE_HEAD, "a decode trace", err);
    if (status == 0 && c->decode != NULL && is_same_file(path, c->decode_source.name)) {
        status =
            err_usage(err, "'%s' is the decode trace that is played: it is not overwritten", path);
    }
    if (status == 0 && strlen(path) >= sizeof(*out)->path) {
        status = err_usage(err, "'%.60s...': the name of the decode trace is too long", path);
    }
    if (status != 0) {
        return status;
    }
    struct decode_out *made = zeroed(1, sizeof *made);
    bool renames = stat(path, &found) != 0 || S_ISREG(found.st_mode);
    snprintf(made->path, sizeof made->path, "%s", path);
    if (renames) {
        snprintf(made->beside, sizeof made->beside, "%s.part", path);
    }
    made->file = fopen(renames ? made->beside : path, "w");
    if (made->file == NULL) {
        status = cannot_write(path, err);
        free(made);
        return status;
    }
    made->log = decode_log_open(c->system->settings.block_tokens);
    *out = made;
    return 0;
}

static int on_step(void *state, const struct step_record *record, struct err *err) {
    struct decode_out *out = state;
    (void)err;
    ASSERT(record->passes != NULL);
    for (uint32_t i = 0; i < record->n; i++) {
        struct decode_pass pass = record->passes[i];
        pass.committed = record->commit_tokens[i];
        if (pass.processed > 0) {
            decode_log_add(out->log, record->request_ids[i], &pass, record->repeat);
        }
    }
    return 0;
}

/* Of its last step the record is still to come. */
static int on_request(void *state, const struct request_record *record, struct err *err) {
    struct decode_out *out = state;
    (void)err;
    if (record->state == REQUEST_DONE) {
        bool ends = record->answer_tokens < record->output_tokens;
        decode_log_finish(out->log, record->id, ends ? record->answer_tokens : 0);
    }
    return 0;
}

struct sink decode_out_sink(struct decode_out *out) {
    return (struct sink){.state = out, .step = on_step, .request = on_request};
}

/* ---- where the numbers come from ---- */

static void write_source(const struct composition *c, FILE *text) {
    const struct run_facts *facts = &c->facts;
    const struct system *system = c->system;
    fprintf(text, "source: ");
    if (c->decode != NULL) {
        fprintf(text, "played from %s\n", c->decode_source.name);
    } else if (compose_is_live(c)) {
        fprintf(text, "decided by %s with weights %s on %s\n", facts->model, facts->weights,
                facts->device);
    } else if (system->decoder->count != NULL) {
        fprintf(text, "counted by decoder %s\n", system->decoder->policy.name);
    } else {
        fprintf(text, "drawn confidences, process %s\n", system->confidence);
    }
}

/* The lines of the resolved configuration that say what a pass does. */
static void write_policies(const char *config, FILE *text) {
    static const char *const keys[] = {"cache", "decoder", "steps_per_block"};
    const char *line = strstr(config, "\n[system]\n"), *end = strstr(config, "\n[workload]\n");
    line = line != NULL ? line + strlen("\n[system]\n") : config + strlen(config);
    for (; *line != '\0' && (end == NULL || line < end); line += strcspn(line, "\n") + 1) {
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
            size_t length = strlen(keys[i]), key = strcspn(line, " ");
            if (strncmp(line, keys[i], length) == 0 && (key == length || line[length] == '.')) {
                const char *value = line + key + strlen(" = ");
                fprintf(text, "%.*s: %.*s\n", (int)key, line, (int)strcspn(value, "\n"), value);
            }
        }
    }
}

static char *comments_of(const struct composition *c) {
    char *comments;
    size_t size;
    const struct run_facts *facts = &c->facts;
    FILE *text = open_memstream(&comments, &size);
    ASSERT(text != NULL);
    write_source(c, text);
    fprintf(text, "system: %s\nmodel: %s\nworkload: %s: %s\nseed: %" PRIu64 "\n", facts->system,
            facts->model, facts->trace, facts->trace_provenance, facts->seed);
    write_policies(c->config, text);
    if (facts->incomplete != NULL) {
        fprintf(text, "incomplete: %s\n", facts->incomplete);
    }
    ASSERT(fclose(text) == 0);
    return comments;
}

static int put(struct decode_out *out, const struct composition *c, struct err *err) {
    char *comments = comments_of(c);
    bool is_whole = decode_log_write(out->log, comments, out->file);
    int status = is_whole ? 0 : cannot_write(out->path, err);
    free(comments);
    return status;
}

int decode_out_close(struct decode_out *out, const struct composition *c, bool keeps,
                     struct err *err) {
    if (out == NULL) {
        return 0;
    }
    int status = keeps ? put(out, c, err) : 0;
    if (fclose(out->file) != 0 && status == 0 && keeps) {
        status = cannot_write(out->path, err);
    }
    bool is_beside = out->beside[0] != '\0';
    if (is_beside && keeps && status == 0 && rename(out->beside, out->path) != 0) {
        status = cannot_write(out->path, err);
    }
    if (is_beside && (!keeps || status != 0)) {
        unlink(out->beside);
    }
    decode_log_close(out->log);
    free(out);
    return status;
}
