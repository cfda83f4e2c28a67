/* Profiles for unmeasured GPUs: another GPU's rows, rescaled. Always marked "transferred". */
#ifndef UNMASK_SIM_PRICE_TRANSFER_H
#define UNMASK_SIM_PRICE_TRANSFER_H

#include "sim/base/err.h"
#include "sim/model/gpu.h"
#include "sim/price/profile/profile.h"
#include "sim/price/profile/profile_check.h"

/* One end of a transfer: its name, its data sheet, and the rates its best products and copies are
 * known to reach. */
struct transfer_side {
    const char *gpu;
    struct profile_peaks peaks, reached;
    double link_bandwidth; /* bytes/s each way, data sheet */
    bool passes_alone;     /* of whom a profile is made: with rows of memory-bound passes alone */
};

struct transfer_side transfer_side_of(const struct gpu *gpu);

/* A profile for `to` from the `donor` measured on `from` and left as it is; the caller closes it.
 *
 * A row's time beyond the operator's floor (the shortest row: launch and latency, kept unscaled)
 * goes by the ratio of the two GPUs' roofline times at the rates they reach, so that compute-bound
 * work follows achieved FLOP/s and memory-bound work the bandwidth. Steps follow waves: products
 * and batched attention passes are read off the donor at the size that puts as many tiles on each
 * multiprocessor. Collectives go by the ratio of the links' data sheets; host terms stay as they
 * are: hosts are not the GPU's.
 *
 * How good that is depends on the pair: transfer_check measures it on GPUs that both have rows. Of
 * the 20 ordered pairs of shipped profiles the median error of products of at least 128 rows is
 * 21 % on average, where data-sheet rates instead of reached ones give 27 % (2026-11-21). */
struct profile *profile_transfer(const struct profile *donor, const struct transfer_side *from,
                                 const struct transfer_side *to);

/* The classes of rows whose errors are told apart: products that stream weights, those that
 * compute, and the other operators at TRANSFER_OTHERS + op. */
enum { TRANSFER_SMALL_GEMM, TRANSFER_LARGE_GEMM, TRANSFER_OTHERS };
enum { TRANSFER_CLASSES = TRANSFER_OTHERS + PROFILE_OPS };
const char *transfer_class_name(size_t i_class);

/* Predicted / measured - 1 over the rows that both profiles have. */
struct transfer_check {
    const struct gpu *from, *to;
    struct profile_errors by_class[TRANSFER_CLASSES];
    size_t n; /* rows in all */
};

/* Transfer `donor` to the GPU of `truth` and compare. */
struct transfer_check transfer_check(const struct profile *donor, const struct gpu *from,
                                     const struct profile *truth, const struct gpu *to);

/* A pair with fewer common rows says nothing of itself; one with fewer than the second, nothing of
 * other pairs: tables of different libraries share few sizes, and differ by the library. */
enum { TRANSFER_FEWEST_ROWS = 50, TRANSFER_FEWEST_TELLING = 500 };

/* The same on shipped profiles, for the pair that tells most about a transfer from `from` to `to`:
 * of the GPUs with a profile of their own, one whose reached rates are near to those of `from`, and
 * one near to `to` that shares enough rows with it; the nearest `from` counts first. `out->n` is 0
 * when there is none. */
int transfer_check_nearest(const struct gpu *from, const struct gpu *to, struct transfer_check *out,
                           struct err *err);

/* "l40s -> rtx4090: gemm m >= 128 median 3.1 % p90 7.0 %, ..." Returns `text`. */
const char *transfer_check_text(const struct transfer_check *check, char *text, size_t size);

/* Put that text among the provenance lines of a transferred profile. */
void transfer_note(struct profile *transferred, const struct transfer_check *check);

/* The profile in the GPU's file under kernels/profiles; ERR_USAGE when it has none. The caller
 * closes the one that it opens, and gives the shared one back (sim/price/profile_share.h). */
int profile_share_shipped(const struct gpu *gpu, const struct profile **out, struct err *err);
int profile_open_shipped(const struct gpu *gpu, struct profile **out, struct err *err);

#endif
