/* Conversations and classes: requests that follow from the end of others. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/config.h"
#include "sim/base/mem.h"
#include "tests/support/says.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"
#include "traces/classes.h"
#include "traces/workload.h"

/* ---- a server that takes `service_ns` for every request, however many there are ---- */

struct served {
    struct arrival row;
    int64_t end_ns;
    bool has_left;
};

struct service {
    struct served *items;
    size_t n, room;
};

/* The next to leave, the first of those that leave together; NULL: nobody is there. */
static struct served *next_to_leave(struct service *service) {
    struct served *next = NULL;
    for (size_t i = 0; i < service->n; i++) {
        struct served *one = &service->items[i];
        if (!one->has_left && (next == NULL || one->end_ns < next->end_ns)) {
            next = one;
        }
    }
    return next;
}

/* Whose end a row follows has left, as the same client or conversation; conversations think. */
static void check_followed(const struct service *service, const struct arrival *row) {
    const struct served *before = NULL;
    for (size_t i = 0; row->follows > 0 && i < service->n; i++) {
        before = service->items[i].row.id + 1 == row->follows ? &service->items[i] : before;
    }
    if (row->follows > 0) {
        ck_assert_ptr_nonnull(before);
        ck_assert(before->has_left && before->end_ns <= row->arrival_ns);
        ck_assert(before->row.session == row->session && before->row.tenant == row->tenant);
        ck_assert(row->session == 0 || row->think_ns < 0 ||
                  row->arrival_ns == before->end_ns + row->think_ns);
    }
}

/* Serves all, as the serving loop does: one row is asked for ahead, and taken back when somebody
 * leaves. Service times depend on the request alone. */
static struct service serve(struct arrival_source source, int64_t service_ns) {
    struct service service = {0};
    struct err err = {0};
    struct arrival row = {0};
    int64_t now_ns = 0;
    bool is_held = false;
    for (;;) {
        enum source_reply reply = is_held ? SOURCE_ROW : source.next(source.state, &row, &err);
        ck_assert_msg(reply != SOURCE_BAD, "%s", err.text);
        struct served *leaves = next_to_leave(&service);
        if (reply == SOURCE_ROW && (leaves == NULL || row.arrival_ns <= leaves->end_ns)) {
            ck_assert_int_ge(row.arrival_ns, now_ns);
            now_ns = row.arrival_ns;
            check_followed(&service, &row);
            is_held = false;
            service.items =
                mem_grown(service.items, service.n, &service.room, sizeof *service.items);
            service.items[service.n++] = (struct served){
                row, now_ns + service_ns + (int64_t)(row.id % 7) * 100000000, false};
            continue;
        }
        if (leaves == NULL) {
            ck_assert_int_eq(reply, SOURCE_END);
            return service;
        }
        now_ns = leaves->end_ns;
        leaves->has_left = true;
        if (source.completed != NULL) {
            source.completed(source.state, leaves->row.id, now_ns);
        }
        is_held = reply == SOURCE_ROW && source.back == NULL;
        if (reply == SOURCE_ROW && !is_held) {
            source.back(source.state, &row);
        }
    }
}

static const struct served *find(const struct service *service, uint64_t id) {
    for (size_t i = 0; i < service->n; i++) {
        if (service->items[i].row.id == id) {
            return &service->items[i];
        }
    }
    ck_abort_msg("request %d was never given", (int)id);
    return NULL;
}

/* ---- workloads ---- */

static struct workload *parse(const char *text, struct err *err) {
    const struct workload_options options = {.seed = 3};
    struct config config;
    struct workload *workload = NULL;
    if (config_parse(scratch_path("x.ini"), text, strlen(text), &config, err) == 0) {
        workload_from_config(&config, "x", &options, &workload, err);
        config_fini(&config);
    }
    return workload;
}

static struct workload *opened(const char *text) {
    struct err err = {0};
    struct workload *workload = parse(text, &err);
    ck_assert_msg(workload != NULL, "%s", err.text);
    return workload;
}

static void check_refused(const char *text, const char *sentence) {
    struct err err = {0};
    workload_close(parse(text, &err));
    ck_assert_int_ne(err.kind, ERR_NONE);
    ASSERT_SAYS(err.text, sentence);
}

static void put_file(const char *name, const char *text) {
    FILE *file = fopen(scratch_path(name), "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

#define S INT64_C(1000000000)

TEST(a_turn_arrives_when_its_person_has_thought_and_not_before_the_one_before_has_ended) {
    put_file("talk.csv", "arrival_us,input_tokens,output_tokens,session,think_us\n"
                         "0,10,5,a,\n"              /* ends at 2 */
                         "1000000,20,5,a,4000000\n" /* so at 6, whatever is logged */
                         "1500000,10,5,b,\n"        /* ends at 1.5 + 2.2 = 3.7 */
                         "2000000,30,5,b,\n"        /* logged at 2, so at 3.7 */
                         "9000000,7,5,,\n"          /* nobody's */
                         "9500000,8,5,a,0\n");      /* at once when the second of a ends */
    const struct workload_options options = {.seed = 1};
    struct err err = {0};
    struct workload *workload;
    ck_assert_msg(workload_open(scratch_path("talk.csv"), &options, &workload, &err) == 0, "%s",
                  err.text);
    struct service service = serve(workload_source(workload), 2 * S);
    static const double at_s[] = {0, 6, 1.5, 3.7, 9, 8.1};
    static const uint32_t shared[] = {0, 15, 0, 15, 0, 0}; /* the last prompt is shorter */
    ck_assert_uint_eq(service.n, 6);
    for (uint64_t i = 0; i < 6; i++) {
        const struct arrival *row = &find(&service, i)->row;
        ck_assert_double_eq_tol((double)row->arrival_ns / S, at_s[i], 1e-9);
        ck_assert_uint_eq(row->prefix_tokens, shared[i]);
    }
    free(service.items);
    workload_close(workload);
}

#define TALKS                                                                                      \
    "[workload]\nrequests = 4000\narrivals = sessions\narrivals.turns = 5\n"                       \
    "arrivals.think_ns = 20s\nrate = 2\ninput = uniform\ninput.min = 10\ninput.max = 90\n"         \
    "output = fixed\noutput.tokens = 30\nprovenance.lengths = synthetic\n"

/* The row of the turn before, -1: it is a first one. */
static const struct served *turn_before(const struct service *service, const struct served *turn) {
    const struct served *before = turn->row.id > 0 ? find(service, turn->row.id - 1) : NULL;
    return before != NULL && before->row.session == turn->row.session ? before : NULL;
}

/* Relations that hold of any trace of conversations, however often it is gone through. */
TEST(conversations_of_another_round_are_others) {
    put_file("talk.csv", "arrival_us,input_tokens,output_tokens,session,think_us\n"
                         "0,10,5,a,\n1000000,20,5,a,4000000\n1500000,10,5,b,\n");
    for (uint64_t rounds = 1; rounds <= 10; rounds += 3) {
        const struct workload_options options = {.seed = 1, .requests = 3 * rounds};
        struct err err = {0};
        struct workload *workload;
        ck_assert_int_eq(workload_open(scratch_path("talk.csv"), &options, &workload, &err), 0);
        ck_assert_double_eq(workload_rounds(workload), (double)rounds);
        struct service service = serve(workload_source(workload), 2 * S);
        ck_assert_uint_eq(service.n, 3 * rounds);
        size_t n_sessions = 0;
        for (size_t i = 0; i < service.n; i++) {
            size_t n_turns = 0, n_before = 0;
            for (size_t k = 0; k < service.n; k++) {
                bool is_same = service.items[k].row.session == service.items[i].row.session;
                n_turns += is_same;
                n_before += is_same && k < i;
            }
            n_sessions += n_before == 0;
            ck_assert_uint_le(n_turns, 2); /* as in the file */
        }
        ck_assert_uint_eq(n_sessions, 2 * rounds);
        free(service.items);
        workload_close(workload);
    }
}

/* What a row says of its prefix counts, from one token on; where it says nothing, all that was said
 * before is shared. */
TEST(a_turn_has_the_prefix_that_its_row_names) {
    for (unsigned prefix = 0; prefix < 20; prefix += prefix < 3 ? 1 : 8) {
        char text[256];
        snprintf(text, sizeof text,
                 "arrival_us,input_tokens,output_tokens,prefix_tokens,session\n0,10,5,0,a\n"
                 "1000000,30,5,%u,a\n",
                 prefix);
        put_file("prefix.csv", text);
        const struct workload_options options = {.seed = 1};
        struct err err = {0};
        struct workload *workload;
        ck_assert_int_eq(workload_open(scratch_path("prefix.csv"), &options, &workload, &err), 0);
        struct service service = serve(workload_source(workload), S);
        ck_assert_uint_eq(find(&service, 1)->row.prefix_tokens, prefix > 0 ? prefix : 15);
        free(service.items);
        workload_close(workload);
    }
}

TEST(drawn_conversations_are_what_their_parameters_say) {
    struct workload *workload = opened(TALKS);
    struct service service = serve(workload_source(workload), S);
    ck_assert_uint_eq(service.n, 4000);
    ck_assert_uint_eq(workload_requests(workload), 4000);
    double n_first = 0, thought_s = 0, said = 0;
    for (size_t i = 0; i < service.n; i++) {
        const struct served *turn = &service.items[i], *before = turn_before(&service, turn);
        uint32_t old = before != NULL ? before->row.prompt_tokens + 30 : 0;
        ck_assert_uint_eq(turn->row.prefix_tokens, old);
        ck_assert(turn->row.prompt_tokens >= old + 10 && turn->row.prompt_tokens <= old + 90);
        said += turn->row.prompt_tokens - old;
        if (before == NULL) {
            ck_assert_int_eq(turn->row.think_ns, 0); /* nothing was said to think about */
            n_first++;
        } else {
            ck_assert_int_eq(turn->row.arrival_ns, before->end_ns + turn->row.think_ns);
            thought_s += (double)turn->row.think_ns / S;
        }
    }
    /* Within four standard errors: turns sqrt(20 / 800), times to think 20 / sqrt(3200). */
    ck_assert_double_eq_tol(4000 / n_first, 5, 4 * sqrt(20.0 / 800));
    ck_assert_double_eq_tol(thought_s / (4000 - n_first), 20, 4 * 20 / sqrt(3200));
    ck_assert_double_eq_tol(said / 4000, 50, 4 * 23.4 / sqrt(4000));
    free(service.items);
    workload_close(workload);
}

TEST(conversations_are_the_same_however_they_are_served) {
    struct workload *quick = opened(TALKS), *slow = opened(TALKS);
    struct service a = serve(workload_source(quick), S / 10);
    struct service b = serve(workload_source(slow), 30 * S);
    size_t n_moved = 0;
    for (uint64_t i = 0; i < a.n; i++) {
        const struct arrival *x = &find(&a, i)->row, *y = &find(&b, i)->row;
        ck_assert(x->prompt_tokens == y->prompt_tokens && x->session == y->session &&
                  x->think_ns == y->think_ns);
        n_moved += a.items[i].row.id != b.items[i].row.id;
    }
    ck_assert_uint_gt(n_moved, 100); /* and yet they arrive in another order */
    free(a.items);
    free(b.items);
    workload_close(quick);
    workload_close(slow);
}

TEST(a_conversation_ends_where_the_context_is_full) {
    struct workload *workload = opened(TALKS "context = 300\n");
    struct service service = serve(workload_source(workload), S);
    uint32_t most = 0;
    for (size_t i = 0; i < service.n; i++) {
        uint32_t canvas = service.items[i].row.prompt_tokens + 30;
        most = canvas > most ? canvas : most;
    }
    ck_assert_uint_eq(service.n, 4000);
    ck_assert(most <= 300 && most > 250);
    free(service.items);
    workload_close(workload);
}

/* ---- classes ---- */

static void put_classes(void) {
    put_file("talks.ini", TALKS);
    put_file("batch.ini", "[workload]\nrequests = 500\narrivals = poisson\nrate = 0.5\n"
                          "input = fixed\ninput.tokens = 900\noutput = fixed\n");
    put_file("clients.ini", "[workload]\nrequests = 60\narrivals = closed-loop\n"
                            "arrivals.clients = 3\ninput = fixed\noutput = fixed\n");
}

TEST(classes_are_their_workloads_at_once) {
    put_classes();
    struct workload *workload =
        opened("[workload]\nclasses = talks.ini, batch.ini\nrequests = 1001\nrate = 5\n");
    ck_assert_uint_eq(workload_requests(workload), 1001);
    ck_assert_double_eq_tol(workload_rate_per_s(workload), 5, 1e-9);
    ck_assert(workload_draws(workload));
    struct service service = serve(workload_source(workload), S);
    size_t n[2] = {0, 0};
    for (size_t i = 0; i < service.n; i++) {
        const struct arrival *row = &service.items[i].row;
        ck_assert_uint_lt(row->tenant, 2);
        ck_assert(row->tenant == 0 || (row->session == 0 && row->prompt_tokens == 900));
        n[row->tenant]++;
    }
    ck_assert_uint_eq(n[0], 801); /* 2 to 0.5 */
    ck_assert_uint_eq(n[1], 200);
    free(service.items);
    workload_close(workload);
}

/* Two classes of one file are two streams of the same kind, not one stream twice. */
TEST(equal_classes_draw_their_own_arrivals_and_lengths) {
    put_file("one.ini",
             "[workload]\nrequests = 300\narrivals = poisson\nrate = 1\ninput = uniform\n"
             "input.min = 10\ninput.max = 4000\noutput = fixed\noutput.tokens = 3\n"
             "provenance.lengths = synthetic\n");
    struct workload *workload = opened("[workload]\nclasses = one.ini, one.ini, one.ini\n");
    struct arrival_source source = workload_source(workload);
    struct arrival row, before = {.arrival_ns = -1};
    struct err err = {0};
    uint32_t n_of[3] = {0}, n_alike = 0, n_in_turn = 0, n = 0;
    while (source.next(source.state, &row, &err) == SOURCE_ROW) {
        ck_assert_uint_lt(row.tenant, 3);
        n_of[row.tenant]++;
        n_alike += row.arrival_ns == before.arrival_ns || row.prompt_tokens == before.prompt_tokens;
        n_in_turn += n > 0 && row.tenant == (before.tenant + 1) % 3;
        before = row;
        n++;
    }
    ck_assert(n_of[0] == 300 && n_of[1] == 300 && n_of[2] == 300);
    ck_assert_uint_lt(n_alike, 10);
    ck_assert(n_in_turn > 200 && n_in_turn < 400); /* of 899: any class comes next alike */
    workload_close(workload);
}

TEST(a_context_holds_for_every_class) {
    put_file("long.ini", "[workload]\nrequests = 20\narrivals = poisson\nrate = 1\ninput = fixed\n"
                         "input.tokens = 900\noutput = fixed\noutput.tokens = 100\n"
                         "over_context = truncate\n");
    put_file("short.ini", "[workload]\nrequests = 20\narrivals = poisson\nrate = 1\n"
                          "input = fixed\ninput.tokens = 90\noutput = fixed\noutput.tokens = 100\n"
                          "over_context = truncate\n");
    struct workload *workload =
        opened("[workload]\nclasses = long.ini, short.ini\ncontext = 500\n");
    struct arrival_source source = workload_source(workload);
    struct arrival row;
    struct err err = {0};
    size_t n = 0;
    for (; source.next(source.state, &row, &err) == SOURCE_ROW; n++) {
        ck_assert_uint_eq(row.prompt_tokens, row.tenant == 0 ? 400 : 90);
    }
    ck_assert_uint_eq(n, 40);
    workload_close(workload);
}

TEST(what_follows_within_a_class_comes_before_what_another_one_holds) {
    put_classes();
    struct workload *workload = opened("[workload]\nclasses = clients.ini, talks.ini\n");
    ck_assert_uint_eq(workload_requests(workload), 4060);
    struct service service = serve(workload_source(workload), S);
    int64_t free_ns[3] = {0, 0, 0}; /* when each client's last request ended */
    size_t n_clients = 0;
    for (size_t i = 0; i < service.n; i++) {
        const struct served *one = &service.items[i];
        if (one->row.tenant != 0) {
            continue;
        }
        n_clients++;
        ck_assert_int_eq(one->row.follows > 0, n_clients > 3); /* each begins with one */
        int at = free_ns[0] <= free_ns[1] ? 0 : 1;
        at = free_ns[at] <= free_ns[2] ? at : 2;
        ck_assert_int_eq(one->row.arrival_ns, free_ns[at]);
        free_ns[at] = one->end_ns;
    }
    ck_assert_uint_eq(n_clients, 60);
    free(service.items);
    workload_close(workload);
}

/* The list of classes is cut at its commas; the note is the whole's; what classes lose adds up. */
TEST(what_classes_say_and_lose_is_the_wholes) {
    put_file("long.csv", "arrival_us,input_tokens,output_tokens,a,b\n0,90,5,1,1\n1,9,5,1,1\n");
    put_file("failed.csv", "Timestamp,Request tokens,Response tokens,b,c\n0,9,5,1,1\n1,9,0,1,1\n");
    char text[1024], names[64];
    size_t n_unread;
    snprintf(text, sizeof text,
             "[workload]\nclasses =  %s ,%s, %s\ncontext = 50\nnote = of three\n",
             scratch_path("long.csv"), scratch_path("failed.csv"), scratch_path("long.csv"));
    struct workload *workload = opened(text);
    struct service service = serve(workload_source(workload), S);
    ck_assert_uint_eq(service.n, 3);
    struct workload_counts counts = workload_counts(workload);
    ck_assert(counts.n_dropped == 2 && counts.n_truncated == 0 && counts.n_failed == 1);
    ck_assert_str_eq(workload_note(workload), "of three");
    ck_assert_str_eq(workload_provenance(workload), "traced arrivals, traced lengths");
    workload_unread(workload, names, sizeof names, &n_unread);
    ck_assert_str_eq(names, "a, b, b, c, a, b");
    ck_assert_uint_eq(n_unread, 6);
    workload_unread(workload, names, 24, &n_unread);
    ck_assert_str_eq(names, "a, b, b and 3 more");
    free(service.items);
    workload_close(workload);
}

TEST(a_workload_has_as_many_classes_as_there_may_be) {
    char text[512] = "[workload]\nclasses = batch.ini";
    put_classes();
    for (int i = 1; i < MAX_CLASSES; i++) {
        strcat(text, ", batch.ini");
    }
    struct workload *workload = opened(text);
    ck_assert_uint_eq(workload_requests(workload), 500 * MAX_CLASSES);
    ck_assert_double_eq_tol(workload_rate_per_s(workload), 0.5 * MAX_CLASSES, 1e-9);
    struct service service = serve(workload_source(workload), S);
    uint32_t n_of[MAX_CLASSES] = {0};
    for (size_t i = 0; i < service.n; i++) {
        n_of[service.items[i].row.tenant]++;
    }
    for (int i = 0; i < MAX_CLASSES; i++) {
        ck_assert_uint_eq(n_of[i], 500);
    }
    free(service.items);
    workload_close(workload);
    strcat(text, ", batch.ini");
    check_refused(text, "found more than");
}

/* Beyond 146 years nothing arrives, whatever gives the times. */
TEST(arrivals_that_are_too_late_are_an_error) {
    static const char *const late[] = {
        "arrivals = sessions\nrate = 1e-6\narrivals.turns = 1\n",
        "arrivals = poisson\nrate = 1e-6\n", "arrivals = bursts\nrate = 1e-6\n",
        "arrivals = closed-loop\narrivals.clients = 1\narrivals.think_ns = 1000000000000000\n"};
    for (size_t i = 0; i < sizeof late / sizeof late[0]; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "[workload]\nrequests = 100000\n%sinput = fixed\noutput = fixed\n", late[i]);
        struct err err = {0};
        struct workload *workload = parse(text, &err);
        enum source_reply reply = SOURCE_BAD;
        if (workload != NULL) { /* conversations are drawn when they are opened */
            struct arrival_source source = workload_source(workload);
            struct arrival row;
            int64_t now_ns = 0;
            while ((reply = source.next(source.state, &row, &err)) == SOURCE_ROW) {
                now_ns = row.arrival_ns;
                if (source.completed != NULL) {
                    source.completed(source.state, row.id, now_ns);
                }
            }
            ck_assert_int_lt(now_ns, INT64_C(1) << 62);
        }
        ck_assert_int_eq(reply, SOURCE_BAD);
        ASSERT_SAYS(err.text, "146 years");
        workload_close(workload);
    }
}

TEST(wrong_classes_are_explained_in_one_sentence) {
    put_classes();
    put_file("nested.ini", "[workload]\nclasses = batch.ini\n");
    put_file("x.ini", "[workload]\nclasses = x.ini\n");
    char place[512];
    snprintf(place, sizeof place, "%s:3: found 'input', expected classes, requests, rate, context",
             scratch_path("x.ini"));
    check_refused("[workload]\nclasses = batch.ini\ninput = fixed\n", place);
    check_refused("[workload]\nclasses = none.ini\n", "No such file or directory");
    check_refused("[workload]\nclasses = brust\n",
                  "there is no workload 'brust' in ./traces/workloads; did you mean 'burst'?");
    check_refused("[workload]\nclasses = nested.ini\n", "a class has classes");
    check_refused("[workload]\nclasses = x.ini\n", "a class has classes");
    check_refused("[workload]\nclasses = clients.ini\nrate = 3\n",
                  "has no rate, expected one of each class");
    check_refused("[workload]\nclasses = batch.ini\nrate = x\n", "rate = 'x'");
    check_refused("[workload]\nclasses = ,\n", "classes names a workload without a name");
}

SUITE("conversations")
