/* A composition: one run put together from a system, a workload, an executor, sinks and a summary.
 *
 * Every command that runs anything composes it here. A composition shares nothing with another one:
 * several may run at the same time on threads. */
#ifndef UNMASK_EXPERIMENTS_RUN_COMPOSE_H
#define UNMASK_EXPERIMENTS_RUN_COMPOSE_H

#include <stdint.h>

#include "analysis/summary.h"
#include "engine/session/end_tokens.h"
#include "engine/weights/weights.h"
#include "experiments/run/accuracy.h"
#include "experiments/run/questions.h"
#include "experiments/run/recorded.h"
#include "sim/base/condition.h"
#include "sim/base/warning.h"
#include "sim/serve/executor_sim.h"
#include "sim/serve/loop.h"
#include "traces/decode_trace.h"
#include "traces/workload.h"

/* What executes: the simulated executor, or the engine on a device. */
struct backend_request {
    enum backend kind;
    const char *weights; /* a checkpoint folder or random:SEED */
    const char *eos;     /* ids of the tokens that end a text, or "none"; NULL: the checkpoint's */
    const char *library; /* of the CUDA back end; NULL: where it is found */
    int32_t device;      /* which of the machine's GPUs, from 0 */
    bool skips_idle;     /* the clock skips the time in which nothing is under way */
};

/* What to run. Texts and lists are borrowed until the composition is closed. */
struct run_request {
    const char *system, *gpu;
    int64_t memory_bytes;     /* of the GPU; 0: its own */
    const char *model;        /* NULL: the system's own */
    const char *systems_path; /* NULL: the shipped file */
    const char *compared;     /* "A,B": systems that are run with it; NULL: none */
    const char *profile_path; /* NULL: the GPU's own */
    bool roofline;
    enum price_source price_source;
    const char *workload;
    bool takes_record; /* the workload may be a database: the requests of the run in it */
    bool is_served;    /* requests come from clients (run_watch); the workload is a name for them */
    struct workload_options options;
    const struct setting *settings; /* keys of the system; "workload.KEY" those of the workload */
    uint32_t n_settings;
    struct slo slo;
    struct backend_request backend;
    struct questions_request questions; /* how prompts become tokens */
    const char
        *decode_path; /* a decode trace to play; NULL: decisions are drawn, or the device's */
    bool statistics;  /* the device makes margins and entropies, whoever reads them */
    const struct stated_option *stated; /* that the user gave, [n_stated] */
    uint32_t n_stated;
};

enum {
    REJECTED_MOST_LISTED = 8,
    ENGINE_FIGURES = 12,
    UNMAPPED_FIGURES = 8,
    COMPOSE_DEVICE_CHARS = 320
};

/* The first requests that were rejected for one reason. */
struct rejected_list {
    uint64_t ids[REJECTED_MOST_LISTED];
    uint32_t n;
};

struct composition {
    struct system *system;
    struct workload *workload; /* NULL in a replay, and where requests come from elsewhere: */
    struct recorded *traffic;  /* those of a run on record; NULL: not */
    struct store *traffic_store;
    const struct stated_option *stated; /* of the request, [n_stated] */
    uint32_t n_stated;
    enum backend backend;
    const struct recorded *recorded; /* NULL unless in a replay */
    struct run_facts facts;          /* whole once the run is over */
    char *config;                    /* the resolved configuration as an INI text */
    json_t *identity;                /* what facts.identity points to; see analysis/identity.h */
    json_t *policies;                /* what facts.policies points to */
    json_t *bound;                   /* what facts.bound points to; see limit.h */
    struct decode_trace *decode;     /* NULL: none is played */
    struct decode_source decode_source;
    char trace[160], provenance[320];  /* what facts.trace and trace_provenance point to */
    struct provenance answers;         /* of the answers' lengths */
    bool says_answers;                 /* else they are assumed to fill their outputs */
    struct questions *questions;       /* of prompts, where the workload has any */
    struct end_tokens ends;            /* that a live run looks for */
    char settings[512];                /* KEY=VALUE, ... as asked for; "" in a replay */
    char changed[512];                 /* of a replay: what is other than when it was recorded */
    bool is_of_another_build;          /* the recorded run: another version or other sources */
    bool meters_energy;                /* live, and its clock is the card's */
    struct fleet *fleet;               /* NULL unless devices execute, or repeat, the batches */
    char device[COMPOSE_DEVICE_CHARS]; /* the engine's; what facts.device points to */
    bool emulates;                     /* it stands in for the system's GPU */
    char kernels[64];                  /* whose prices they are */
    char collectives[512];             /* where the prices of what ranks exchange come from */
    char incomplete[1024]; /* why a live or starving run was cut short; "": it is whole */
    struct run_figure figures[ENGINE_FIGURES];
    struct quality quality; /* of a recorded run of prompts */
    struct run_figure constants[MAX_CALIBRATED];
    struct host host; /* what the facts' host borrows */
    uint64_t seed;
    /* Written by compose_run. */
    struct summary summary;
    struct loop_result result;
    struct pricing pricing;
    struct rejected_list rejected[REJECT_REASON_COUNT];
    bool is_played_out;            /* of a replay: to where the run was cut off */
    double priced_ns, recorded_ns; /* of a replay: device time, as priced now and as recorded */
    struct warnings around;   /* of a replay on a device: others on it, weights of another kind */
    struct accuracy accuracy; /* of a replay whose steps were measured; else without steps */
};

/* Whether a device executes it with random weights, whose router chooses as it was measured. */
static inline bool backend_has_random_weights(const struct backend_request *backend) {
    return backend->kind != BACKEND_SIM && weights_seed(backend->weights) != NULL;
}

/* The system that a run asks for, its workload and that one's settings aside. */
static inline struct system_request compose_system_request(const struct run_request *request) {
    return (struct system_request){.system = request->system,
                                   .model = request->model,
                                   .gpu = request->gpu,
                                   .memory_bytes = request->memory_bytes,
                                   .systems_path = request->systems_path,
                                   .compared = request->compared,
                                   .profile_path = request->profile_path,
                                   .overrides = request->settings,
                                   .n_overrides = request->n_settings,
                                   .random_weights = backend_has_random_weights(&request->backend),
                                   .roofline = request->roofline,
                                   .price_source = request->price_source,
                                   .statistics = request->statistics};
}

int compose_open(const struct run_request *request, struct composition **out, struct err *err);

/* ERR_USAGE where the request names what does not exist or gives a key a value that it never takes
 * (ERR_UNKNOWN): found without running anything. Other trouble is for the run to tell. *can_be:
 * there is none at all. */
int compose_check_names(const struct run_request *request, bool *can_be, struct err *err);

/* The run that was recorded, to be played again; `recorded` is borrowed. Its system is looked up
 * again in the file it came from, and every key is set as it was. Where the back end has a name,
 * every submission is also carried out on that device, and where operators_every is above 0 that
 * of every Nth step operator by operator. */
int compose_recorded(const struct recorded *recorded, const struct backend_request *backend,
                     uint32_t operators_every, struct composition **out, struct err *err);

void compose_close(struct composition *composition); /* NULL is fine */

/* ERR_USAGE when the profile of a system, read from a file, says that it is another GPU's or was
 * measured in other elements; one that says nothing passes. */
int compose_check_system(const struct system *system, struct err *err);

/* The profile of a GPU in a file, checked to be this GPU's, or the shipped one where `path` is
 * NULL. */
int compose_open_profile(const struct gpu *gpu, const char *path, struct profile **out,
                         struct err *err);

/* What a run is watched and stopped by; all of it may be zero. */
struct run_watch {
    /* Of one that is served: where its requests come from, and what is put around its executor, of
     * which `sim` is the clock (NULL: the machine's is). */
    const struct arrival_source *source;
    struct executor (*around)(void *state, struct executor inner, struct executor_sim *sim);
    void *around_state;
    const struct sink *sinks; /* besides the summary's own; at most 4 */
    uint32_t n_sinks;
    bool records_members;
    const volatile sig_atomic_t *stop;
    void (*progress)(void *state, uint64_t n_left, int64_t now_ns);
    void *progress_state;
};

/* Once per composition. An interrupted run is no error: see result.interrupted. On an error the
 * summary holds what was until then, and that of a live run is finished and says why. */
int compose_run(struct composition *composition, const struct run_watch *watch, struct err *err);

/* A run from its opening to its closing: the summary as JSON, which is the caller's. */
int compose_summary(const struct run_request *request, json_t **out, struct err *err);

/* Whether a device executes the run itself, in its own time. */
static inline bool compose_is_live(const struct composition *composition) {
    return composition->fleet != NULL && composition->recorded == NULL;
}

/* Those that it will have; 0: only its end tells. */
uint64_t compose_requests(const struct composition *composition);

/* Of a run that was cut short: how many of the requests wanted had not arrived, with words for
 * people; "" when none is missing. Only the end of a trace tells how many were wanted of it. */
void compose_describe_missing(const struct composition *composition, char *out, size_t size);

/* Of a live run that is over: 0, or ERR_WORLD when the device memory that was planned is not what
 * was metered. */
int compose_check_memory(const struct composition *composition, struct err *err);

/* The tokens that end a text on this back end. */
int compose_end_tokens(const struct backend_request *backend, const struct model *model,
                       struct end_tokens *out, struct err *err);

/* Whether an error says that the system does not fit into the device: an answer, not a failure. */
bool compose_says_no_memory(const struct err *err);

/* How a device is named that runs the batches of a system: as its maker calls it, after "emulated
 * on" where it stands in for the system's GPU. */
void compose_name_device(const struct engine *engine, const struct system *system,
                         char out[COMPOSE_DEVICE_CHARS]);

/* What was run, on what, and where every number comes from: printed with a summary. */
void compose_print(const struct composition *composition, FILE *out);

/* What it warns of, which stands last. */
void compose_print_warnings(const struct composition *composition, FILE *out);

/* Options of the command line that do something in some runs alone. */

/* An option of the command line that something reads only where the condition at the end of its doc
 * holds (sim/base/condition.h). */
struct stated_option {
    const char *name, *value, *doc; /* value NULL: a flag */
};

/* A warning for each of those that were given, whose condition does not hold of the facts. */
void stated_warn(const struct stated_option *stated, uint32_t n, const struct facts *facts,
                 struct warnings *warnings);

#endif
