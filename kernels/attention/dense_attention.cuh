/* What the two paths of dense attention share. */
#ifndef UNMASK_KERNELS_ATTENTION_DENSE_ATTENTION_CUH
#define UNMASK_KERNELS_ATTENTION_DENSE_ATTENTION_CUH

#include "kernels/kernels.h"

/* Whether the call's shapes are ones both paths take. */
extern "C" bool dense_attention_valid(const struct call_dense_attention *call);

/* The queries of a request that the call is about: rows [first, first + n) of q and y. */
struct query_rows {
    int first, n;
};

static __device__ __forceinline__ struct query_rows
query_rows_of(const struct call_dense_attention &call, int request) {
    const int begin = call.start[request], end = call.start[request + 1];
    if (call.n_queries == 0) {
        return {begin, end - begin};
    }
    const int from = max(begin, call.first_query);
    const int to = min(end, call.first_query + call.n_queries);
    return {from - call.first_query, max(to - from, 0)};
}

/* The rows of q, and the most queries of a request. */
static inline int dense_attention_rows(const struct call_dense_attention *call) {
    return call->n_queries > 0 ? call->n_queries : call->n_tokens;
}

static inline int dense_attention_most_rows(const struct call_dense_attention *call) {
    return call->n_queries > 0 && call->n_queries < call->max_tokens ? call->n_queries
                                                                     : call->max_tokens;
}

#endif
