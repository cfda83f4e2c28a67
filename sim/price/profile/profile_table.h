/* The internals of a profile, for the files that answer its lookups only. */
#ifndef UNMASK_SIM_PRICE_PROFILE_PROFILE_TABLE_H
#define UNMASK_SIM_PRICE_PROFILE_PROFILE_TABLE_H

#include <math.h>
#include <stdatomic.h>

#include "sim/price/profile/profile.h"
#include "sim/price/profile/profile_lattice.h"

/* Axes of the lattices. Head layouts and mixture shapes are one packed number each. */
enum { GEMM_M = 0, GEMM_N = 1, GEMM_K = 2 };
enum { CAUSAL_LAYOUT = 0, CAUSAL_BATCH = 1, CAUSAL_Q = 2, CAUSAL_PREFIX = 3 };
enum { DECODE_LAYOUT = 0, DECODE_BATCH = 1, DECODE_KV = 2 };
enum { MOE_SHAPE = 0, MOE_TOKENS = 1 };
enum { FULL_LAYOUT = 0, FULL_BATCH = 1, FULL_Q = 2 };
enum { MIXED_LAYOUT = 0, MIXED_BATCH = 1, MIXED_Q = 2, MIXED_KV = 3 };
enum { BLOCK_LAYOUT = 0, BLOCK_BATCH = 1, BLOCK_Q = 2, BLOCK_KV = 3 };
enum { PASS_NAME = 0, PASS_CHANNELS = 1, PASS_ROWS = 2 };
enum { FUSED_OUTPUTS = 0, FUSED_INPUTS = 1, FUSED_ROWS = 2 };

/* Meaning of a size of a row: the value on an axis of the lattice; a part of the head layout or of
 * the mixture's shape, which are one number on axis 0; keys, of which axis 3 holds those before the
 * queries; or nothing, because it is always 1. */
enum profile_size {
    SIZE_END, /* no further sizes */
    SIZE_0,
    SIZE_1,
    SIZE_2,
    SIZE_3,
    SIZE_PASS, /* the pass's name, on axis 0 */
    SIZE_HEADS,
    SIZE_KV_HEADS,
    SIZE_HEAD_DIM,
    SIZE_HIDDEN,
    SIZE_EXPERT_FFN,
    SIZE_TOP_K,
    SIZE_EXPERTS,
    SIZE_KEYS,
    SIZE_SINGLE,
};

/* How the rows of one operator look in a file, and how many axes their lattice has. */
enum { PROFILE_MOST_SIZES = 6 };
struct profile_operator {
    const char *name, *columns;
    size_t n_axes;
    enum profile_size sizes[PROFILE_MOST_SIZES + 1]; /* in the order of the file */
};
extern const struct profile_operator profile_operators[PROFILE_OPS];

/* A "# key: value" line. */
struct profile_note {
    char *key, *value;
};

struct profile {
    char *path, *source;
    enum provenance_kind kind;
    bool has_kind, counts_rows; /* while it is read */
    uint64_t rows_said;
    struct profile_note *notes;
    size_t n_notes;
    struct profile_peaks peaks;
    struct profile_host host[HOST_KIND_COUNT];
    double between_ns; /* 0 where the file does not say */
    struct correction correction;
    struct tiles tiles;
    bool has_tiles;     /* the file says them */
    struct power power; /* zeros where the file has none */
    /* The rows of a product stand close and on both sides of every tile edge, as our own
     * measurements place them: straight lines in m, no assumption about tiles. */
    bool measured_edges;
    enum profile_type type;
    /* Of the same file: rows of other types, without corrections and terms of steps. */
    struct profile *others[PROFILE_TYPES];
    struct lattice ops[PROFILE_OPS]; /* n_cells 0 where the file has no such row */
    /* The exponent by which imported rows of experts were routed ("expert_routing: power_law A");
     * 0: by chance. */
    double routing_alpha;
    /* Derived from the rows by profile_refresh. */
    double floor_us[PROFILE_OPS]; /* the shortest time: launch and latency */
    double moe_launch_us;         /* the least that a row of experts takes beyond its roofline */
    /* Worked out when they are first asked for. Of a GEMM cell: 1 + the tile that explains the gap
     * above it in n, 0: not known yet; and what it was chosen by, an error a cell and tile or NAN,
     * the first one 0: not known yet. */
    _Atomic uint8_t *gemm_tile;
    float *gemm_tile_errors;
};

/* The profile of the rows of another type: what is said of the file is copied. */
struct profile *profile_other(const struct profile *profile, enum profile_type type,
                              const struct profile_peaks *peaks);

/* Copies its texts. */
void profile_add_note(struct profile *profile, const char *key, const char *value);

struct head_layout {
    int64_t heads, kv_heads, head_dim;
};

static inline int64_t head_layout_pack(struct head_layout layout) {
    return layout.heads << 32 | layout.kv_heads << 16 | layout.head_dim;
}

static inline struct head_layout head_layout_unpack(int64_t packed) {
    return (struct head_layout){packed >> 32, packed >> 16 & 0xffff, packed & 0xffff};
}

static inline int64_t moe_shape_pack(struct moe_shape shape) {
    return shape.hidden << 46 | shape.expert_ffn << 28 | shape.top_k << 16 | shape.experts;
}

static inline struct moe_shape moe_shape_unpack(int64_t packed) {
    return (struct moe_shape){packed >> 46, packed >> 28 & 0x3ffff, packed >> 16 & 0xfff,
                              packed & 0xffff};
}

/* The kernels of products work on tiles of rows: between two measured rows of a tile a product
 * takes the time of the upper one, between rows further apart that of the next whole tile. Below,
 * weights stream, and the line is straight. */
static inline double whole_tiles(const struct profile *profile, double m, double m_lo,
                                 double m_hi) {
    const double tile_rows = profile->tiles.product_rows;
    if (m <= profile->tiles.streaming_rows) {
        return m;
    }
    double next = ceil(m / tile_rows) * tile_rows;
    return m_hi - m_lo <= tile_rows || next > m_hi ? m_hi : next;
}

/* The value at `x` of the straight line through (x0, y0) and (x1, y1). */
static inline double on_line(double x, double x0, double y0, double x1, double y1) {
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
}

static inline enum profile_match worse_match(enum profile_match a, enum profile_match b) {
    return a > b ? a : b;
}

/* Microseconds; the lookups proper. */
double gemm_us(const struct profile *profile, int64_t m, int64_t n, int64_t k,
               enum profile_match *match);
double gemm_roofline_us(const struct profile_peaks *peaks, double m, double n, double k);

/* The time of a measured cell as its neighbours along one axis alone predict it, as if every row
 * with the cell's value on that axis were missing; NAN at the end of a line. */
double gemm_without_slice(const struct profile *profile, size_t cell, size_t axis);

/* Makes gemm_tile and gemm_tile_errors anew, with nothing known. */
void gemm_forget_tiles(struct profile *profile);
/* Works them all out, for who takes rows away afterwards. */
void gemm_judge_tiles(const struct profile *profile);

/* Causal attention of `batch` sequences, each of `q` queries after `prefix` cached keys, with the
 * heads of layout `i_layout` on the lattice's first axis. */
double causal_us(const struct profile *profile, size_t i_layout, double batch, double q,
                 double prefix, enum profile_match *match);
/* One query a sequence over `kv` keys. */
double decode_us(const struct profile *profile, size_t i_layout, double batch, double kv,
                 enum profile_match *match);

/* `hits` experts, or 0 for as many as the rows hit. */
double moe_us(const struct profile *profile, struct moe_shape shape, double tokens, double hits,
              enum profile_match *match);
/* Experts that one row hits; that rows of that shape hit at `tokens` tokens, measured or not. */
double moe_row_hits(const struct profile *profile, size_t cell);
double moe_hits(const struct profile *profile, struct moe_shape shape, double tokens);
double moe_roofline_us(const struct profile_peaks *peaks, struct moe_shape shape, double tokens,
                       double hits);
/* Fill moe_launch_us. */
void moe_find_launch(struct profile *profile);

/* Whether the cell's row was timed on a warm cache and raised when it was imported. */
static inline bool row_is_raised(const struct lattice *lattice, size_t cell) {
    return lattice->warm_us != NULL && !isnan(lattice->warm_us[cell]);
}

/* The layout that would answer for layout `own` were it not measured; `share`: for how many of its
 * sequences one of the other's stands. */
size_t attention_other_layout(const struct lattice *lattice, size_t own);
size_t spans_other_layout(const struct profile *profile, enum profile_op op, size_t own, double q,
                          double kv, double *share);
/* Of full passes (kv 0), blocks and mixed calls: `batch` sequences of `q` queries and `kv` cached
 * keys; of a mixed call, all of it: the pass of `q` tokens and `batch` queries over `kv` keys. */
double spans_us(const struct profile *profile, enum profile_op op, size_t i_layout, double batch,
                double q, double kv, enum profile_match *match);
/* `kv` cached rows in addition to the q own ones. */
double block_roofline_us(const struct profile_peaks *peaks, struct head_layout layout, double batch,
                         double q, double kv);
/* PROFILE_ATTENTION_CAUSAL as our own calibration measures it, over batches and prefixes both. */
bool causal_is_grid(const struct profile *profile);
/* The layout that answers for `wanted`; `share`: for how many of its sequences one of the other's
 * stands. */
size_t spans_nearest_layout(const struct profile *profile, enum profile_op op,
                            struct head_layout wanted, double q, double kv, double *share);
/* The look-up that answers for a place on the lattice, whose coordinate on axis 0 is the cell's. */
double profile_predict(const struct profile *profile, enum profile_op op, size_t cell,
                       const double at[LATTICE_MAX_AXES], enum profile_match *match);
/* Where a cell lies. */
void profile_cell_at(const struct lattice *lattice, size_t cell, double at[LATTICE_MAX_AXES]);
double pass_us(const struct profile *profile, enum profile_pass pass, int64_t channels,
               int64_t rows, enum profile_match *match);
double fused_us(const struct profile *profile, enum profile_op op, int64_t rows, int64_t n,
                int64_t k, enum profile_match *match);
double elementwise_us(const struct profile *profile, int64_t bytes, enum profile_match *match);
double collective_us(const struct profile *profile, enum profile_op op, int64_t n_gpus,
                     int64_t bytes, enum profile_match *match);

#endif
