/* Configurations whose prices are of several sources. */
#include "experiments/command/capacity_show.h"
#include "experiments/run/prices.h"

static const json_t *any_run(const struct capacities *c, size_t config) {
    const json_t *found = NULL;
    for (size_t s = 0; found == NULL && s < c->found.n_seeds; s++) {
        found = c->found.searches[config * c->found.n_seeds + s].summary;
    }
    return found;
}

void capacity_warn_of_prices(const struct capacities *c, size_t config, struct warnings *out) {
    size_t base = 0;
    bool has_warned = false;
    struct warnings before = {0};
    while (base < config && any_run(c, base) == NULL) {
        base++;
    }
    for (size_t i = base + 1; !has_warned && i <= config; i++) {
        has_warned = prices_warn(any_run(c, i), c->configs[i].label, any_run(c, base),
                                 c->configs[base].label, i == config ? out : &before);
    }
}
