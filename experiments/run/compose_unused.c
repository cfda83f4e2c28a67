/* What the user set and nothing read: each key and option says in its doc where it is read
 * (sim/base/condition.h). */
#include <string.h>

#include "experiments/run/compose_impl.h"
#include "sim/system/system_reads.h"
#include "traces/workload_reads.h"

/* Whether anybody says where texts end. */
static bool says_answers(const struct composition *c) {
    return c->decode != NULL ? decode_trace_has_answers(c->decode)
                             : c->ends.n > 0 || workload_says_answers(c->workload);
}

/* Of a run that is over. */
static const char *run_fact(const void *state, const char *name, char text[FACT_CHARS]) {
    const struct composition *c = state;
    const struct {
        const char *name;
        bool is_on;
    } own[] = {{"run.draws", c->facts.is_drawn},
               {"run.answers", says_answers(c)},
               {"draws", c->facts.decisions.drawn},
               {"played", c->decode != NULL}};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (strcmp(name, own[i].name) == 0) {
            return own[i].is_on ? "on" : "off";
        }
    }
    const struct system_in in = {c->system, backend_names[c->backend]};
    const char *value = workload_fact(c->workload, name, text);
    return value != NULL ? value : system_in_fact(&in, name, text);
}

void stated_warn(const struct stated_option *stated, uint32_t n, const struct facts *facts,
                 struct warnings *warnings) {
    for (uint32_t i = 0; i < n; i++) {
        char text[CONDITION_CHARS], name[64];
        const char *condition = condition_of(stated[i].doc, text);
        if (condition != NULL && !condition_holds(condition, facts)) {
            snprintf(name, sizeof name, "--%s", stated[i].name);
            warnings_add_unused(warnings, name, stated[i].value, NULL, condition);
        }
    }
}

void compose_warn_of_unused(struct composition *c) {
    struct warnings *warnings = &c->facts.warnings;
    const struct facts facts = {run_fact, c};
    system_warn_of_unread(c->system, &facts, warnings);
    workload_warn_of_unread(c->workload, warnings);
    stated_warn(c->stated, c->n_stated, &facts, warnings);
}
