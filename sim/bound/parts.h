/* The price of a step in parts, each of which is a function of few coordinates of the batch.
 *
 * A step's device time is a sum: of operators that depend on one symbol (all but attention), and of
 * attention, which depends on how many queries see how many keys. Each part is kept as points:
 * while its coordinate is at most `at`, and above the point before, it takes `ns` or more. What a
 * part says never falls as its coordinate grows (a dip of the profile counts for all that is below
 * it), so that it holds for every batch that has more of everything: supersets, and batches padded
 * to their longest member.
 *
 * Verified where: up to PARTS_EXACT each value of a symbol is priced. Beyond, and for attention,
 * prices are taken on a grid, 0.2 % and 2 % apart, and between two of its points the price is taken
 * to be no less than at the lower one, for attention than 99.5 % of that: an assumption about
 * profiles, which rise. Host terms, waits
 * and launches come from the same cost model. In chunks a step takes no less than without
 * (sim/price/price.c), but for eager passes, for which parts_open refuses a search for chunks. */
#ifndef UNMASK_SIM_BOUND_PARTS_H
#define UNMASK_SIM_BOUND_PARTS_H

#include "sim/bound/passes.h"

enum { PARTS_EXACT = 1024, PARTS_MOST = SYM_COUNT + 8 };

struct part_point {
    double at, ns;
    double beyond_ns;   /* the least ns of this point and all after it */
    double least, most; /* attention: queries of the batches it stands for; else `at` */
};

struct price_part {
    int coord;                 /* the coordinate: a symbol */
    int queries;               /* attention: the symbol of its queries; -1: another operator */
    bool is_head;              /* after the trunk (HOST_BY_LAYERS) */
    bool misses_prefill;       /* says nothing of steps that prefill as well */
    struct part_point *points; /* by `at`, rising */
    size_t n;
};

/* Host, waits and launches of a step that has requests of some kinds. */
struct host_part {
    double step_ns, request_ns[HOST_KIND_COUNT];              /* the host's */
    double launches_ns, request_launches_ns[HOST_KIND_COUNT]; /* the device's, beyond the graph */
    double sync_ns;                                           /* see sim/price/runtime.h */
    double after_ns[HOST_KIND_COUNT]; /* of each request, whatever host and device took before */
};

struct price_parts {
    const struct system *system;
    struct price_part parts[PARTS_MOST];
    uint32_t n;
    double step_ns;                          /* of every step, whatever is in it */
    double wait_ns;                          /* of one that makes the host decide in the middle */
    double most_requests;                    /* of a batch */
    double most_of[PASS_TYPES];              /* of one type; 0: there are none */
    struct host_part alone[HOST_KIND_COUNT]; /* of steps with one kind of request */
};

/* ERR_USAGE for a system whose steps may take less in chunks. */
int parts_open(const struct system *system, const struct pass_type types[PASS_TYPES],
               size_t n_requests, struct price_parts *out, struct err *err);
void parts_close(struct price_parts *parts);

/* Of a step that holds exactly the kinds whose bits are set; where batches are padded and there are
 * several, nothing. */
struct host_part parts_host(const struct price_parts *parts, unsigned kinds);

/* Whether a batch of several kinds that is padded to its longest member may have less of it than
 * its members have: spans with and without cached rows become one kind. */
bool parts_lost_in_padding(int coord);

/* The first of a part's points that is not before `at`; part->n where all are. */
size_t part_first(const struct price_part *part, double at);

/* At least what any step takes that has this pass in it. */
double parts_alone_ns(const struct price_parts *parts, const struct pass *pass);

#endif
