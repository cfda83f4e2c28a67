/* How far off transfers are, on pairs of GPUs that both have rows of the same sizes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/price/profile/profile_table.h"
#include "sim/price/profile_share.h"
#include "sim/price/transfer.h"

/* Products of fewer rows stream weights. */
enum { COMPUTE_ROWS = 128 };

/* The path of its file, NULL where it has none. */
static const char *shipped_path(const struct gpu *gpu, char *path, size_t size, struct err *err) {
    if (gpu->profile == NULL && gpu->donor != NULL) {
        err_usage(err, "%s has no profile of its own: its prices are transferred from %s",
                  gpu->name, gpu->donor);
    } else if (gpu->profile == NULL) {
        err_usage(err, "%s has no profile: its prices are roofline", gpu->name);
    }
    return gpu->profile != NULL ? gpu_profile_path(gpu, path, size) : NULL;
}

int profile_share_shipped(const struct gpu *gpu, const struct profile **out, struct err *err) {
    char path[4096];
    const struct profile_peaks peaks = profile_peaks_of(gpu);
    *out = NULL;
    return shipped_path(gpu, path, sizeof path, err) != NULL ? profile_share(path, &peaks, out, err)
                                                             : err_status(err);
}

int profile_open_shipped(const struct gpu *gpu, struct profile **out, struct err *err) {
    char path[4096];
    const struct profile_peaks peaks = profile_peaks_of(gpu);
    *out = NULL;
    return shipped_path(gpu, path, sizeof path, err) != NULL ? profile_open(path, &peaks, out, err)
                                                             : err_status(err);
}

const char *transfer_class_name(size_t i_class) {
    ASSERT(i_class < TRANSFER_CLASSES);
    return i_class == TRANSFER_SMALL_GEMM ? "gemm, m < 128"
           : i_class == TRANSFER_LARGE_GEMM
               ? "gemm, m >= 128"
               : profile_op_name((enum profile_op)(i_class - TRANSFER_OTHERS));
}

static size_t class_of(const struct lattice *lattice, enum profile_op op, size_t cell) {
    if (op != PROFILE_GEMM) {
        return TRANSFER_OTHERS + (size_t)op;
    }
    bool computes = lattice_value(lattice, cell, GEMM_M) >= COMPUTE_ROWS;
    return computes ? TRANSFER_LARGE_GEMM : TRANSFER_SMALL_GEMM;
}

/* The cell of `to` with the sizes of a cell of `from`, or -1 where it has no row. */
static ptrdiff_t same_cell(const struct lattice *from, size_t cell, const struct lattice *to) {
    size_t at = 0;
    for (size_t a = 0; a < from->n_axes; a++) {
        ptrdiff_t i = lattice_index(to, a, lattice_value(from, cell, a));
        if (i < 0) {
            return -1;
        }
        at += (size_t)i * to->axes[a].stride;
    }
    return isnan(to->time_us[at]) ? -1 : (ptrdiff_t)at;
}

struct common {
    double *errors[TRANSFER_CLASSES];
    size_t n[TRANSFER_CLASSES];
};

static void compare_op(const struct profile *guess, const struct profile *truth, enum profile_op op,
                       struct common *common) {
    const struct lattice *has = &guess->ops[op], *measured = &truth->ops[op];
    for (size_t cell = 0; measured->n_cells > 0 && cell < has->n_cells; cell++) {
        ptrdiff_t same = isnan(has->time_us[cell]) ? -1 : same_cell(has, cell, measured);
        if (same >= 0) {
            size_t i = class_of(has, op, cell);
            common->errors[i][common->n[i]++] = has->time_us[cell] / measured->time_us[same] - 1;
        }
    }
}

/* Collectives are left out: they say how near links are, not GPUs. */
static bool is_transferred(enum profile_op op) {
    return op != PROFILE_ALL_REDUCE && op != PROFILE_ALL_GATHER;
}

static void compare(const struct profile *guess, const struct profile *truth,
                    struct transfer_check *out) {
    struct common common = {0};
    for (size_t i = 0; i < TRANSFER_CLASSES; i++) {
        size_t op = i < TRANSFER_OTHERS ? PROFILE_GEMM : i - TRANSFER_OTHERS;
        common.errors[i] = mem_unwritten(guess->ops[op].n_cells, sizeof *common.errors[i]);
    }
    for (size_t op = 0; op < PROFILE_OPS; op++) {
        if (is_transferred((enum profile_op)op)) {
            compare_op(guess, truth, (enum profile_op)op, &common);
        }
    }
    for (size_t i = 0; i < TRANSFER_CLASSES; i++) {
        out->by_class[i] = profile_errors_of(common.errors[i], common.n[i]);
        out->n += common.n[i];
        free(common.errors[i]);
    }
}

struct transfer_check transfer_check(const struct profile *donor, const struct gpu *from,
                                     const struct profile *truth, const struct gpu *to) {
    struct transfer_side sides[] = {transfer_side_of(from), transfer_side_of(to)};
    struct transfer_check check = {.from = from, .to = to};
    struct profile *guess = profile_transfer(donor, &sides[0], &sides[1]);
    compare(guess, truth, &check);
    profile_close(guess);
    return check;
}

static double apart(const struct gpu *a, const struct gpu *b) {
    return fabs(log(a->best_bf16_flops / b->best_bf16_flops)) +
           fabs(log(a->best_bandwidth / b->best_bandwidth));
}

static int check_shipped(const struct profile *donor, const struct gpu *from, const struct gpu *to,
                         struct transfer_check *out, struct err *err) {
    struct profile *truth = NULL;
    int status = profile_open_shipped(to, &truth, err);
    if (status == 0) {
        *out = transfer_check(donor, from, truth, to);
    }
    profile_close(truth);
    return status;
}

/* The GPU with a profile of its own that is nearest to `gpu`, itself included, but farther than
 * `beyond` and not `without`; NULL: none, or `err` says what could not be read. */
static const struct gpu *nearest_measured(const struct gpu *gpu, double beyond,
                                          const struct gpu *without, struct err *err) {
    const struct gpu *nearest = NULL;
    const struct gpu *const *gpus = gpu_all(err);
    for (size_t i = 0; gpus != NULL && gpus[i] != NULL; i++) {
        const struct gpu *other = gpus[i];
        double distance = apart(other, gpu);
        if (other->profile != NULL && other != without && distance > beyond &&
            (nearest == NULL || distance < apart(nearest, gpu))) {
            nearest = other;
        }
    }
    return nearest;
}

/* Of the GPUs other than `measured` the nearest to `to` that tells; out->n is 0 when none does. */
static int check_from(const struct gpu *measured, const struct gpu *to, struct transfer_check *out,
                      struct err *err) {
    struct profile *donor = NULL;
    int status = profile_open_shipped(measured, &donor, err);
    const struct gpu *next = nearest_measured(to, -1, measured, err);
    while (status == 0 && next != NULL) {
        status = check_shipped(donor, measured, next, out, err);
        if (out->n >= (next == to ? TRANSFER_FEWEST_ROWS : TRANSFER_FEWEST_TELLING)) {
            break;
        }
        out->n = 0;
        next = nearest_measured(to, apart(next, to), measured, err);
    }
    profile_close(donor);
    return status != 0 ? status : (int)err->kind;
}

int transfer_check_nearest(const struct gpu *from, const struct gpu *to, struct transfer_check *out,
                           struct err *err) {
    const struct gpu *measured = nearest_measured(from, -1, to, err);
    int status = (int)err->kind;
    *out = (struct transfer_check){.from = from, .to = to};
    while (status == 0 && measured != NULL && out->n == 0) {
        status = check_from(measured, to, out, err);
        measured = nearest_measured(from, apart(measured, from), to, err);
    }
    return status != 0 ? status : (int)err->kind;
}

void transfer_note(struct profile *transferred, const struct transfer_check *check) {
    char text[1024] = "none: no two shipped profiles share enough rows";
    if (check->n > 0) {
        transfer_check_text(check, text, sizeof text);
    }
    profile_add_note(transferred, "errors_of_the_nearest_transfer", text);
}

const char *transfer_check_text(const struct transfer_check *check, char *text, size_t size) {
    ASSERT(check->n > 0);
    size_t used = (size_t)snprintf(text, size, "%s -> %s", check->from->name, check->to->name);
    const char *before = ": ";
    for (size_t i = 0; i < TRANSFER_CLASSES && used < size; i++) {
        const struct profile_errors *errors = &check->by_class[i];
        if (errors->n > 0) {
            used += (size_t)snprintf(text + used, size - used, "%s%s median %.0f %% p90 %.0f %%",
                                     before, transfer_class_name(i), 100 * errors->median_abs,
                                     100 * errors->p90_abs);
            before = "; ";
        }
    }
    return text;
}
