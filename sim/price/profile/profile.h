/* A profile: measured operator times of one GPU, and the lookup that answers for sizes between and
 * beyond the measured ones.
 *
 * A file (kernels/profiles/<gpu>.csv) holds `# key: value` provenance lines and
 * `operator,sizes[,type][,warm=us],us` rows; each operator's rows of one type (enum profile_type)
 * become one lattice, built once. Besides, `host,KIND,step_ns,request_ns[,issued_ns]` rows say what
 * a step costs beyond its operators, a `between,NS` row how long the device waits between two
 * submissions, and `load,FACTOR` and `load,KIND,SIZE,ROWS,FACTOR` what its operators take in it
 * (sim/price/profile/correction.h); `power,KEY,VALUE` rows say what the card's clock does
 * (sim/price/profile/power.h), `tile,KEY,VALUE` rows how its kernels divide their work (tiles.h).
 * Lookups are pure, allocate nothing and return nanoseconds. Every answer says how it was found, so
 * that a run can count what it guessed. Asking for an operator the file lacks is our own mistake:
 * call profile_require first.
 */
#ifndef UNMASK_SIM_PRICE_PROFILE_PROFILE_H
#define UNMASK_SIM_PRICE_PROFILE_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/base/err.h"
#include "sim/base/provenance.h"
#include "sim/model/gpu.h"
#include "sim/price/profile/correction.h"
#include "sim/price/profile/power.h"
#include "sim/price/profile/tiles.h"
#include "sim/step/profile_rows.h"

struct step_shape;
struct lattice; /* sim/price/profile/profile_lattice.h */

/* Cost of a step beyond its operators, fitted to whole steps; kinds as enum host_kind. */
struct profile_host {
    bool given;
    double step_ns, request_ns;
    /* Extra device time of a step whose operators are issued one by one instead of launched as a
     * graph (sim/price/captured.h). 0: not measured. */
    double issued_ns;
};
/* Kinds of host cost: a step pays for the dearest kind present, a request for its own. */
enum host_kind { HOST_REFRESH, HOST_REUSE, HOST_SELECT };
enum { HOST_KIND_COUNT = HOST_SELECT + 1 };
extern const char *const host_kind_names[HOST_KIND_COUNT];

enum profile_match {
    PROFILE_EXACT = 0,        /* a measured row, as it was measured */
    PROFILE_INTERPOLATED = 1, /* between measured rows */
    PROFILE_EXTRAPOLATED = 2, /* beyond them: the nearest row's utilisation is held */
};

/* The data-sheet facts that turn times into utilisations. */
struct profile_peaks {
    double flops;     /* bf16 with fp32 accumulation, FLOP/s */
    double fp8_flops; /* of fp8 with fp8; 0: there are none */
    double bandwidth; /* bytes/s */
    int64_t sms;      /* streaming multiprocessors */
    int64_t l2_bytes; /* 0: not known */
    bool is_assumed;  /* no data sheet's: the host's CPU */
    /* Of the rows: bytes of a number that is stored, and of one multiplied with it or written; a
     * profile writes them by the type of its rows. */
    double stored_bytes, moved_bytes;
};

struct profile_peaks profile_peaks_of(const struct gpu *gpu);
/* The same for rows of that type: `flops` are those of its products. */
struct profile_peaks profile_peaks_in(const struct profile_peaks *peaks, enum profile_type type);

/* A ragged batch seen through its sums over sequences. Lookups use the uniform batch that has the
 * same work: n_seqs sequences of q = sum_q / n_seqs queries over kv = sum_q_kv / sum_q keys. FLOPs
 * are then exact; a batch of very unequal lengths runs longer than this for want of balance. */
struct profile_spans {
    int64_t n_seqs;
    double sum_q, sum_kv, sum_q_kv;
    int64_t heads, kv_heads, head_dim;
    const struct profile_layouts *layouts; /* of these heads, where known; NULL: looked for */
};

/* The measured head layouts that answer for one in the rows of causal passes and of decoding, as
 * indexes into either: the nearest group size, then the nearest number of heads. */
struct profile_layouts {
    size_t causal, decode;
};

struct profile;

/* The text of a file, which ends with a zero that `size` leaves out; the caller frees it. */
char *profile_read(const char *path, size_t *size, struct err *err);

/* Read the file at `path`, or `size` bytes of `text` under that name. The caller closes `*out`.
 * On error nothing needs releasing and `err` says "path:line: ...". Who only asks it shares one
 * (sim/price/profile_share.h). After a text of profile_parse_text comes a zero, as profile_read
 * has it: it is not copied. */
int profile_open(const char *path, const struct profile_peaks *peaks, struct profile **out,
                 struct err *err);
int profile_parse_text(const char *path, const char *text, size_t size,
                       const struct profile_peaks *peaks, struct profile **out, struct err *err);
int profile_parse(const char *path, const char *text, size_t size,
                  const struct profile_peaks *peaks, struct profile **out, struct err *err);
void profile_close(struct profile *profile);

/* The kind that the comments at the top of a file name, without reading the rows. NULL and a
 * sentence where the file cannot be read or has no such comment. */
const char *profile_kind_of_file(const char *path, char *text, size_t size, struct err *err);

/* Measured, imported or transferred, and where the numbers come from. */
enum provenance_kind profile_kind(const struct profile *profile);
const char *profile_source(const struct profile *profile);
/* Its file; of a transferred one the donor's. */
const char *profile_path(const struct profile *profile);
/* Those of the data sheet; of a profile that was measured on this card what its own products
 * reached where that is more by GPU_IS_FASTER. */
const struct profile_peaks *profile_peaks(const struct profile *profile);

/* The most that a profile's products reach: FLOP/s of the plain ones, for fused ones do more than
 * that; bytes/s of weights that the L2 cache does not hold, for smaller ones may come from it in
 * part, however cold they were meant to be. 0 where there are no such rows. */
struct profile_rates {
    double flops, bandwidth;
};
struct profile_rates profile_rates(const struct profile *profile);

/* The value of the provenance line with that key, NULL where there is none; and all the lines, in
 * the file's order, false past the last one. */
const char *profile_note(const struct profile *profile, const char *key);
bool profile_fact(const struct profile *profile, size_t i, const char **key, const char **value);

/* `kind` as enum host_kind. */
const struct profile_host *profile_host(const struct profile *profile, size_t kind);

/* From the end of a submission to the start of the next one, while the loop accounts for the one
 * and the scheduler forms the other; not where the same step just goes on. 0: not measured. */
double profile_between_ns(const struct profile *profile);

/* The type of its rows: of a file those that name none, as its line '# dtype' has it or bf16. And
 * the rows of another type in the same file; itself where that is its own; NULL: there are none. */
enum profile_type profile_type(const struct profile *profile);
const struct profile *profile_in(const struct profile *profile, enum profile_type type);

const char *profile_op_name(enum profile_op op);
bool profile_has(const struct profile *profile, enum profile_op op);

/* Whether the operator, a product plain or fused, was measured with these output and input
 * channels; whether attention of our own was measured with these heads. */
bool profile_measures(const struct profile *profile, enum profile_op op, int64_t n, int64_t k);
bool profile_measures_heads(const struct profile *profile, enum profile_op op, int64_t heads,
                            int64_t kv_heads, int64_t head_dim);
/* Whether PROFILE_ALL_REDUCE or PROFILE_ALL_GATHER was measured over n_gpus GPUs. */
bool profile_measures_group(const struct profile *profile, enum profile_op op, int64_t n_gpus);

/* Operators' times in whole steps over their times alone. Look-ups are without it. */
const struct correction *profile_correction(const struct profile *profile);
/* Another one, copied, for who fits it. */
void profile_correct(struct profile *profile, const struct correction *correction);

/* Its row, of the kind with this name. */
void profile_host_write(const struct profile_host *host, const char *kind, FILE *file);

/* Its row; of 0 none. */
void profile_between_write(double ns, FILE *file);

/* How the kernels divide their work: as the file says, else as tiles_default does. */
const struct tiles *profile_tiles(const struct profile *profile);

/* The card's clock at its power limit; zeros: times are of one clock. */
const struct power *profile_power(const struct profile *profile);

/* ERR_WORLD naming the operator and the file when the file has no row of it. */
int profile_require(const struct profile *profile, enum profile_op op, struct err *err);

/* [m x k] times [k x n], bf16. Needs PROFILE_GEMM. Sizes >= 1. */
double profile_gemm(const struct profile *profile, int64_t m, int64_t n, int64_t k,
                    enum profile_match *match);

/* Pure, and worth asking once for a model: every other layout may be looked at. */
struct profile_layouts profile_layouts_of(const struct profile *profile, int64_t heads,
                                          int64_t kv_heads, int64_t head_dim);

/* Attention in which every query sees all keys of its span: a full bidirectional pass (q = kv), or
 * a block against cached keys (q < kv). Needs both attention operators. */
double profile_attention(const struct profile *profile, const struct profile_spans *spans,
                         enum profile_match *match);

/* Attention under a causal mask, after a prefix: sum_q_kv counts the pairs that are not masked.
 * Needs PROFILE_ATTENTION_CAUSAL. */
double profile_attention_prefill(const struct profile *profile, const struct profile_spans *spans,
                                 enum profile_match *match);

/* Attention of single queries, one a sequence, in one call with a causal pass of `prefill_tokens`:
 * what the call takes beyond that pass. A kernel that serves both splits no sequence among thread
 * blocks and reads keys for every query head, so that decoding takes up to twice as long as alone
 * (RTX PRO 6000, 128 sequences). Needs PROFILE_ATTENTION_MIXED. */
double profile_attention_mixed(const struct profile *profile, const struct profile_spans *spans,
                               double prefill_tokens, enum profile_match *match);

/* Nanoseconds by which the longest of many sequences outlast the rest where each is read by one
 * thread block a head: `keys` holds the lengths of the longest, falling, at most STRAGGLERS of
 * them, and `uniform_ns` is the price of the whole batch with equal lengths. 0 where the profile
 * cannot say how fast a sequence is read alone (PROFILE_ATTENTION_MIXED). */
enum { PROFILE_STRAGGLERS = 16 };
double profile_stragglers(const struct profile *profile, const struct profile_spans *spans,
                          double uniform_ns, const uint32_t keys[PROFILE_STRAGGLERS]);

/* Single queries in an attention kernel for variable lengths, as FlashAttention-2 serves them.
 *
 * One call takes a step's prefills and single queries together where there are both; where there
 * are none but single queries, long sequences are split among thread blocks only as long as the
 * batch would leave the device idle (num_splits_heuristic in csrc/flash_attn/flash_api.cpp: under
 * 0.8 of two thread blocks a multiprocessor). Unsplit, the longest sequences outlast the rest.
 * `uniform_ns`: the time of the step's single queries by themselves, all lengths being equal. */
double profile_varlen_single_ns(const struct profile *profile, const struct step_shape *shape,
                                const struct profile_spans *spans, double uniform_ns,
                                enum profile_match *match);

/* Our own attention kernels as measured. Full: every token sees its whole span (sum_q_kv is the sum
 * of q * q). Block: kv counts cached and own keys. Each needs the operator of its name. */
double profile_attention_full(const struct profile *profile, const struct profile_spans *spans,
                              enum profile_match *match);
double profile_attention_block(const struct profile *profile, const struct profile_spans *spans,
                               enum profile_match *match);
/* By patterns: sum_q_kv is of the keys that queries see. The choice of patterns: by n_seqs and
 * sum_q alone, the rows being of choices of one kind. Each needs the operator of its name. */
double profile_attention_pattern(const struct profile *profile, const struct profile_spans *spans,
                                 enum profile_match *match);
double profile_pattern(const struct profile *profile, const struct profile_spans *spans,
                       enum profile_match *match);

/* One named pass over `rows` rows of `channels`; ask profile_has_pass first. */
bool profile_has_pass(const struct profile *profile, enum profile_pass pass);
double profile_pass(const struct profile *profile, enum profile_pass pass, int64_t channels,
                    int64_t rows, enum profile_match *match);
extern const char *const profile_pass_names[PROFILE_PASSES];

/* A product of our own with what follows it, PROFILE_HEAD or PROFILE_GATE_UP: [rows x k] times
 * [k x n]. Needs that operator. */
double profile_fused(const struct profile *profile, enum profile_op op, int64_t rows, int64_t n,
                     int64_t k, enum profile_match *match);

/* The gate-up and down products of one mixture layer whose tokens hit `hits` experts; 0: as many
 * as those of the rows (profile_moe_hits). Imported times include the choice of experts and the
 * sum of their outputs; ours are passes of their own. */
struct moe_shape {
    int64_t hidden, expert_ffn, top_k, experts;
};
double profile_moe(const struct profile *profile, struct moe_shape shape, int64_t tokens,
                   double hits, enum profile_match *match);

/* Experts of such a layer that the rows' tokens hit: as the rows say in their `hit` column, a
 * straight line between them; in a file without that column as its "expert_routing" line has it,
 * else by chance. */
double profile_moe_hits(const struct profile *profile, struct moe_shape shape, double tokens);

/* Rows of an operator that were timed on weights or keys in the L2 cache, and were raised to the
 * time from memory when they were imported (experiments/import/cold.py); look-ups of products and
 * experts among them are extrapolated. `n_rows`: rows in all. */
size_t profile_raised(const struct profile *profile, enum profile_op op, size_t *n_rows);
/* What was timed of the row with these very sizes, us; 0: it is not raised, or there is none. */
double profile_gemm_warm_us(const struct profile *profile, int64_t m, int64_t n, int64_t k);
double profile_moe_warm_us(const struct profile *profile, struct moe_shape shape, int64_t tokens);

/* One memory-bound pass that reads and writes `bytes` in all. */
double profile_elementwise(const struct profile *profile, int64_t bytes, enum profile_match *match);

/* PROFILE_ALL_REDUCE or PROFILE_ALL_GATHER of a message of `bytes` over `n_gpus` >= 2. */
double profile_collective(const struct profile *profile, enum profile_op op, int64_t n_gpus,
                          int64_t bytes, enum profile_match *match);

/* The operator's rows, NULL when it has none: for tests of the look-ups. */
struct lattice *profile_lattice(struct profile *profile, enum profile_op op);

/* The first words of every profile that the program writes. */
#define PROFILE_FILE_HEAD "# Operator times of"

/* The profile as a file that profile_parse takes. ERR_WORLD when it cannot be written. */
int profile_write(const struct profile *profile, FILE *file, struct err *err);
/* A profile's text, with its number of rows after the first line. ERR_WORLD as above. */
int profile_put(const char *text, FILE *file);

/* Takes an operator's rows out of a copy (profile_copy). */
void profile_drop_rows(struct profile *profile, enum profile_op op);

/* A copy of `donor` for another GPU with kind "transferred", whose lattices the caller (transfer.c)
 * rewrites and then hands to profile_refresh. */
struct profile *profile_copy(const struct profile *donor, const char *source,
                             const struct profile_peaks *peaks);

/* Recompute what is derived from the rows. */
void profile_refresh(struct profile *profile);

#endif
