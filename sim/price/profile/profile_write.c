/* A profile as a file again: the inverse of profile_parse, rows in the order of their lattices. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/price/profile/profile_table.h"

static void write_sizes(const struct lattice *lattice, enum profile_op op, size_t cell,
                        FILE *file) {
    int64_t of[SIZE_SINGLE + 1] = {[SIZE_SINGLE] = 1};
    for (size_t a = 0; a < lattice->n_axes; a++) {
        of[SIZE_0 + a] = lattice_value(lattice, cell, a);
    }
    struct head_layout layout = head_layout_unpack(of[SIZE_0]);
    struct moe_shape shape = moe_shape_unpack(of[SIZE_0]);
    of[SIZE_HEADS] = layout.heads;
    of[SIZE_KV_HEADS] = layout.kv_heads;
    of[SIZE_HEAD_DIM] = layout.head_dim;
    of[SIZE_HIDDEN] = shape.hidden;
    of[SIZE_EXPERT_FFN] = shape.expert_ffn;
    of[SIZE_TOP_K] = shape.top_k;
    of[SIZE_EXPERTS] = shape.experts;
    of[SIZE_KEYS] = of[SIZE_2] + of[SIZE_3];
    const struct profile_operator *row = &profile_operators[op];
    fputs(row->name, file);
    for (size_t i = 0; row->sizes[i] != SIZE_END; i++) {
        if (row->sizes[i] == SIZE_PASS) {
            fprintf(file, ",%s", profile_pass_names[of[SIZE_0]]);
        } else {
            fprintf(file, ",%" PRId64, of[row->sizes[i]]);
        }
    }
    if (lattice->hits != NULL && !isnan(lattice->hits[cell])) {
        fprintf(file, ",%.6g", lattice->hits[cell]);
    }
}

int profile_put(const char *text, FILE *file) {
    size_t n = 0, head = strcspn(text, "\n");
    for (const char *line = text; *line != '\0'; line += *line != '\0') {
        n += *line != '#' && *line != '\n';
        line += strcspn(line, "\n");
    }
    fprintf(file, "%.*s\n# rows: %zu%s", (int)head, text, n, text + head);
    return fflush(file) == 0 && !ferror(file) ? 0 : (int)ERR_WORLD;
}

void profile_host_write(const struct profile_host *host, const char *kind, FILE *file) {
    fprintf(file, "host,%s,%.6g,%.6g", kind, host->step_ns, host->request_ns);
    if (host->issued_ns > 0) {
        fprintf(file, ",%.6g", host->issued_ns);
    }
    putc('\n', file);
}

void profile_between_write(double ns, FILE *file) {
    if (ns > 0) {
        fprintf(file, "between,%.6g\n", ns);
    }
}

/* `type` is a column, or none. */
static void write_rows(const struct profile *profile, const char *type, FILE *file) {
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        const struct lattice *lattice = &profile->ops[op];
        for (size_t cell = 0; cell < lattice->n_cells; cell++) {
            if (!isnan(lattice->time_us[cell])) {
                write_sizes(lattice, (enum profile_op)op, cell, file);
                fputs(type, file);
                if (row_is_raised(lattice, cell)) {
                    fprintf(file, ",warm=%.6g", lattice->warm_us[cell]);
                }
                fprintf(file, ",%.6g\n", lattice->time_us[cell]);
            }
        }
    }
}

static void write_all(const struct profile *profile, FILE *file) {
    fprintf(file, PROFILE_FILE_HEAD " one device.\n# kind: %s\n# source: %s\n",
            provenance_words[profile->kind], profile->source);
    for (size_t i = 0; i < profile->n_notes; i++) {
        fprintf(file, "# %s: %s\n", profile->notes[i].key, profile->notes[i].value);
    }
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        if (profile->ops[op].n_cells > 0) {
            fprintf(file, "# columns: %s,%s\n", profile_operators[op].name,
                    profile_operators[op].columns);
        }
    }
    correction_write(&profile->correction, file);
    power_write(&profile->power, file);
    if (profile->has_tiles) {
        tiles_write(&profile->tiles, file);
    }
    for (size_t kind = 0; kind < HOST_KIND_COUNT; kind++) {
        const struct profile_host *host = &profile->host[kind];
        if (host->given) {
            profile_host_write(host, host_kind_names[kind], file);
        }
    }
    profile_between_write(profile->between_ns, file);
    write_rows(profile, "", file);
    for (size_t type = 0; type < PROFILE_TYPES; type++) {
        if (profile->others[type] != NULL) {
            char column[16];
            snprintf(column, sizeof column, ",%s", profile_type_words[type]);
            write_rows(profile->others[type], column, file);
        }
    }
}

int profile_write(const struct profile *profile, FILE *file, struct err *err) {
    char *text = NULL;
    size_t size;
    FILE *in_memory = mem_stream(&text, &size);
    write_all(profile, in_memory);
    mem_stream_close(in_memory);
    int status = profile_put(text, file) == 0
                     ? 0
                     : err_world(err, "cannot write the profile: %s", strerror(errno));
    free(text);
    return status;
}
