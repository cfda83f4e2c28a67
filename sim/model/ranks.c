#include "sim/model/ranks.h"

#include <inttypes.h>

static int refuse(const struct model *whole, uint32_t ranks, const char *what, uint32_t n,
                  struct err *err) {
    return err_usage(err, "%s has %" PRIu32 " %s, which %" PRIu32 " GPUs cannot divide",
                     whole->title, n, what, ranks);
}

int model_divide(const struct model *whole, uint32_t ranks, bool experts, struct model *rank,
                 struct err *err) {
    ASSERT(whole->ranks == 0);
    const struct {
        const char *what;
        uint32_t n;
    } divided[] = {
        {"query heads", whole->heads},
        {"channels in a dense FFN", whole->ffn},
        {"channels in an expert", experts ? 0 : whole->expert_ffn},
        {"channels in a shared expert", whole->shared_ffn},
        {"experts", experts ? whole->experts : 0},
        {"experts for each token", experts ? whole->experts_active : 0},
        {"channels in its self-conditioning", whole->conditioning_ffn},
        {"tokens in its vocabulary", whole->vocab},
    };
    if (ranks == 0 || ranks > MAX_RANKS || (ranks & (ranks - 1)) != 0) {
        return err_unknown(err, "a model is held by 1, 2, 4 or 8 GPUs together, not by %" PRIu32,
                           ranks);
    }
    if (experts && whole->experts == 0) {
        return err_usage(err, "%s has no experts to divide: set expert_parallel = off",
                         whole->title);
    }
    for (size_t i = 0; i < sizeof divided / sizeof divided[0]; i++) {
        if (divided[i].n % ranks != 0) {
            return refuse(whole, ranks, divided[i].what, divided[i].n, err);
        }
    }
    if (whole->kv_heads % ranks != 0 && ranks % whole->kv_heads != 0) {
        return refuse(whole, ranks, "key-value heads", whole->kv_heads, err);
    }
    const uint32_t global = whole->global_kv_heads;
    if (global > 0 && global % ranks != 0 && ranks % global != 0) {
        return refuse(whole, ranks, "key-value heads in global layers", global, err);
    }
    *rank = *whole;
    if (ranks == 1) {
        return 0;
    }
    rank->ranks = ranks;
    rank->heads /= ranks;
    rank->kv_heads = whole->kv_heads > ranks ? whole->kv_heads / ranks : 1;
    rank->kv_copies = whole->kv_heads < ranks ? ranks / whole->kv_heads : 1;
    rank->global_kv_heads = global > ranks ? global / ranks : global > 0;
    rank->global_kv_copies = global > 0 && global < ranks ? ranks / global : 1;
    rank->conditioning_ffn /= ranks;
    rank->ffn /= ranks;
    rank->shared_ffn /= ranks;
    rank->vocab /= ranks;
    if (experts) {
        rank->expert_ranks = ranks;
        rank->experts /= ranks;
        rank->experts_active /= ranks;
    } else {
        rank->expert_ffn /= ranks;
    }
    return 0;
}

void model_take_whole_head(struct model *rank) {
    rank->vocab = model_whole_vocab(rank);
    rank->whole_head = true;
}
