/* A profile as a file again: the inverse of profile_parse, rows in the order of their lattices. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "sim/cost/profile_table.h"
#include "sim/cost/runtime.h"

/* The layout with the sizes that stand before it in a row. */
static void write_attention(const struct lattice *lattice, enum profile_op op, size_t cell,
                            FILE *file) {
    int64_t batch = lattice_value(lattice, cell, 1), third = lattice_value(lattice, cell, 2);
    struct head_layout layout = head_layout_unpack(lattice_value(lattice, cell, 0));
    fprintf(file, "%s,%" PRId64, profile_operators[op].name, batch);
    if (op == PROFILE_ATTENTION_DECODE) {
        fprintf(file, ",1,%" PRId64, third);
    } else if (op == PROFILE_ATTENTION_FULL) {
        fprintf(file, ",%" PRId64, third);
    } else {
        int64_t kv = lattice_value(lattice, cell, 3);
        fprintf(file, ",%" PRId64 ",%" PRId64, third,
                op == PROFILE_ATTENTION_CAUSAL ? kv + third : kv);
    }
    fprintf(file, ",%" PRId64 ",%" PRId64 ",%" PRId64, layout.heads, layout.kv_heads,
            layout.head_dim);
}

static void write_sizes(const struct lattice *lattice, enum profile_op op, size_t cell,
                        FILE *file) {
    int64_t at[LATTICE_MAX_AXES] = {0};
    for (size_t a = 0; a < lattice->n_axes; a++) {
        at[a] = lattice_value(lattice, cell, a);
    }
    const char *name = profile_operators[op].name;
    struct moe_shape shape;
    switch (op) {
    case PROFILE_ATTENTION_CAUSAL:
    case PROFILE_ATTENTION_DECODE:
    case PROFILE_ATTENTION_FULL:
    case PROFILE_ATTENTION_BLOCK:
    case PROFILE_ATTENTION_MIXED:
        write_attention(lattice, op, cell, file);
        break;
    case PROFILE_MOE:
        shape = moe_shape_unpack(at[MOE_SHAPE]);
        fprintf(file, "%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64, name,
                at[MOE_TOKENS], shape.hidden, shape.expert_ffn, shape.top_k, shape.experts);
        break;
    case PROFILE_PASS:
        fprintf(file, "%s,%s,%" PRId64 ",%" PRId64, name, profile_pass_names[at[PASS_NAME]],
                at[PASS_CHANNELS], at[PASS_ROWS]);
        break;
    case PROFILE_HEAD:
    case PROFILE_GATE_UP:
        fprintf(file, "%s,%" PRId64 ",%" PRId64 ",%" PRId64, name, at[FUSED_ROWS],
                at[FUSED_OUTPUTS], at[FUSED_INPUTS]);
        break;
    case PROFILE_GEMM:
    case PROFILE_ELEMENTWISE:
    case PROFILE_ALL_REDUCE:
    case PROFILE_ALL_GATHER:
    case PROFILE_OPS:
        fputs(name, file);
        for (size_t a = 0; a < lattice->n_axes; a++) {
            fprintf(file, ",%" PRId64, at[a]);
        }
        break;
    }
}

int profile_write(const struct profile *profile, FILE *file, struct err *err) {
    fprintf(file, PROFILE_FILE_HEAD " one device.\n# kind: %s\n# source: %s\n", profile->kind,
            profile->source);
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
    for (size_t kind = 0; kind < PROFILE_HOST_KINDS; kind++) {
        const struct profile_host *host = &profile->host[kind];
        if (host->given) {
            fprintf(file, "host,%s,%.6g,%.6g\n", host_kind_names[kind], host->step_ns,
                    host->request_ns);
        }
    }
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        const struct lattice *lattice = &profile->ops[op];
        for (size_t cell = 0; cell < lattice->n_cells; cell++) {
            if (!isnan(lattice->time_us[cell])) {
                write_sizes(lattice, (enum profile_op)op, cell, file);
                fprintf(file, ",%.6g\n", lattice->time_us[cell]);
            }
        }
    }
    if (fflush(file) != 0 || ferror(file)) {
        return err_world(err, "cannot write the profile: %s", strerror(errno));
    }
    return 0;
}
