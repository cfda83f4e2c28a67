/* The parts of a system's composition, shared by the files of sim/system alone. */
#ifndef UNMASK_SIM_SYSTEM_SYSTEM_PARTS_H
#define UNMASK_SIM_SYSTEM_SYSTEM_PARTS_H

#include "sim/policy/plugin/registry.h"
#include "sim/step/builder.h"
#include "sim/system/system.h"

/* ---- settings (system_settings.c) ---- */

/* What a system is put together from: "scheduler = NAME" chooses one, "scheduler.x" sets its
 * parameter. The first ones are policies. */
enum system_part {
    SYSTEM_SCHEDULER,
    SYSTEM_CACHE,
    SYSTEM_DECODER,
    SYSTEM_ROUTER,
    SYSTEM_POLICIES, /* their number */
    SYSTEM_RUNTIME = SYSTEM_POLICIES,
    SYSTEM_PLANNER,
    SYSTEM_CONFIDENCE,
    SYSTEM_HOST,
    SYSTEM_MODEL,
    SYSTEM_PARTS, /* their number */
};
extern const char *const system_part_names[SYSTEM_PARTS];

/* The policy chosen for a part, and its state; NULL before one is. */
const struct policy *system_policy(const struct system *s, enum system_part part, void **state);

/* Remember a setting of the present layer; the last writer of a key wins. Choosing a part anew
 * drops its parameters of earlier layers, so that lines of one section may come in any order. */
int system_remember(struct system *s, const struct setting *setting, struct err *err);

/* The setting of that key in force, or NULL: the part has its own value. */
struct setting *system_applied(const struct system *s, const char *key);

/* Whether its runtime is the engine's own, and not a model of another program. */
bool system_runs_on_ours(const struct system *s);

/* Whether the GPU has a profile of the model's shape alone, which prices our own runtime. */
bool system_is_profiled(const struct system *s);

/* Apply what is remembered; one key of the system itself. */
int system_apply(struct system *s, struct err *err);
int system_set_plain(struct system *s, const struct setting *setting, struct err *err);

/* ---- files (system_file.c) ---- */

/* The shipped systems and the user's own. A section of the user's hides the shipped one of its
 * name, which may be its base. */
struct system_files {
    struct config own, shipped, constants; /* `own`: empty where there is none */
};

/* `own_path` NULL: the shipped systems alone. On success the caller runs system_files_close. */
int system_files_read(const char *own_path, struct system_files *out, struct err *err);
void system_files_close(struct system_files *files);

/* The keys of section `name`, its bases' first, remembered in `s`; those for another GPU are left
 * out. */
int system_take_section(struct system *s, const struct system_files *files, const char *name,
                        const char *compared, struct err *err);

/* Replace "$NAME" by the calibrated constant of that name and note that it is in force. */
int system_expand(struct system *s, const struct config *constants, struct setting *setting,
                  struct err *err);

/* The nearest `model` along the chain of bases, or NULL. */
const char *system_file_model(const struct system_files *files, const char *name);

/* ---- the host (system_host.c) ---- */

/* Look the chosen host up and scale the runtime's host terms by it, and by `host.factor` where that
 * is set; the keys must have been applied. */
int system_take_host(struct system *system, const struct config *constants, struct err *err);

/* The profile of our own runtime says what its host costs; what was set by hand stays. */
void system_take_host_terms(struct system *system);

/* ---- rows (system_rows.c) ---- */

/* What is the same in all answers of the cache policy: system->rows. */
void system_ask_rows(struct system *system);

/* The symbol of the rows that steps store with a pass of its own, SYM_ONE where none do. */
enum symbol system_stored_rows(const struct system *system);

/* What outlasts a step, besides keys and values, of each position of the blocks that run: credit
 * and expected embeddings. The graph's options, and what is kept of each request that runs. That
 * bounds how many run; where nothing else does, as many as a step has blocks. */
void system_keep_places(struct system *system, struct graph_options *options);

/* ---- refusals (system_refuse.c) ---- */

/* ERR_USAGE where model, runtime, policies and settings cannot go together. */
int system_refuse(const struct system *system, struct err *err);

/* Its profiles: the user's, the GPU's of the model, the GPU's for all models, one transferred from
 * the donor, those of the source that is asked for: the first of them that there is, and after it
 * the next. */
int system_take_prices(struct system *system, const struct system_request *asked, struct err *err);

#endif
