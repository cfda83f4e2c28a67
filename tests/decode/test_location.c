/* The table of locations: what it finds, and what it refuses. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/decode/location.h"
#include "sim/decode/process_file.h"
#include "tests/support/suite.h"

#define HEAD                                                                                       \
    "process,model,benchmark,workloads,shape,counts,printed,threshold,block_tokens,temperature,"   \
    "answer_tokens,transferred_from,source,domain,location,error\n"
#define GOOD "m/a,M,A,w v,s,per-pass,2.5,0.95,32,1,,,Table 1,structured,4.25,\n"

static char path[] = "/tmp/unmask-locations-XXXXXX";

static int open_text(const char *text, struct locations *out, struct err *err) {
    snprintf(path, sizeof path, "/tmp/unmask-locations-XXXXXX");
    FILE *file = fdopen(mkstemp(path), "w");
    fputs(text, file);
    fclose(file);
    int status = locations_open(path, out, err);
    remove(path);
    return status;
}

TEST(a_row_says_what_was_printed_and_under_what) {
    struct locations locations;
    struct err err = {0};
    ck_assert_int_eq(open_text(HEAD GOOD "m/b,M,B,w,s,run-per-token,15,0.9,64,0.8,200,,T 2,,-1,x\n"
                                         "n/a,N,A,,s,,,0.8,64,1,,m/a,by a shift,,5,\n",
                               &locations, &err),
                     0);
    ck_assert_uint_eq(locations.n, 3);
    const struct location *first = &locations.rows[0], *second = &locations.rows[1];
    ck_assert(!first->runs_per_token && first->printed == 2.5 && first->location == 4.25);
    ck_assert(first->at.threshold == 0.95 && first->at.temperature == 1);
    ck_assert(first->at.block_tokens == 32 && first->at.answer_tokens == 0);
    ck_assert(second->runs_per_token && second->at.answer_tokens == 200);
    ck_assert(first->is_structured && !second->is_structured);
    ck_assert(isnan(locations.rows[2].printed));
    ck_assert_ptr_eq(location_find(&locations, "m/b"), second);
    ck_assert_ptr_null(location_find(&locations, "m"));
    ck_assert_ptr_eq(location_of(&locations, "m", "w", NULL), first);
    ck_assert_ptr_eq(location_of(&locations, "m", "w", first), second);
    ck_assert_ptr_null(location_of(&locations, "m", "w", second));
    ck_assert_ptr_eq(location_of(&locations, "m", "v", NULL), first);
    ck_assert_ptr_null(location_of(&locations, "n", "w", NULL));
    ck_assert_ptr_null(location_of(&locations, "m", "", NULL));
    locations_close(&locations);
}

TEST(a_bad_row_is_refused_with_its_line) {
    static const struct {
        const char *text, *sentence;
    } wrong[] = {
        {HEAD GOOD GOOD, ":3: found 'm/a' in process, expected a name of its own"},
        {HEAD "ma,M,A,,s,per-pass,2,0.9,32,1,,,T,,1,\n", "expected MODEL/TASK"},
        {HEAD "m/,M,A,,s,per-pass,2,0.9,32,1,,,T,,1,\n", "expected MODEL/TASK"},
        {HEAD "m/a,M,A,,s,passes,2,0.9,32,1,,,T,,1,\n", "expected per-pass or run-per-token"},
        {HEAD "m/a,M,A,,s,per-pass,,0.9,32,1,,,T,,1,\n", "printed"},
        {HEAD "m/a,M,A,,s,per-pass,0.5,0.9,32,1,,,T,,1,\n", "printed"},
        {HEAD "m/a,M,A,,s,per-pass,2,9,32,1,,,T,,1,\n", "threshold"},
        {HEAD "m/a,M,A,,s,per-pass,2,nan,32,1,,,T,,1,\n", "threshold"},
        {HEAD "m/a,M,A,,s,per-pass,2,0.9,0,1,,,T,,1,\n", "block_tokens"},
        {HEAD "m/a,M,A,,s,per-pass,2,0.9,32,0,,,T,,1,\n", "temperature"},
        {HEAD "m/a,M,A,,s,per-pass,2,0.9,32,1,-4,,T,,1,\n", "answer_tokens"},
        {HEAD "m/a,M,A,,s,per-pass,2,0.9,32,1,,,T,,x,\n", "location"},
        {HEAD "m/a,M,A,,s,per-pass,2,0.9,32,1,,,T,code,1,\n", "domain"},
        {HEAD "m/a,M,A,,s,per-pass,2,0.9,32,1\n", ":2:"},
        {"process,model\n", ":1:"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct locations locations;
        struct err err = {0};
        ck_assert_int_eq(open_text(wrong[i].text, &locations, &err), ERR_WORLD);
        ck_assert_msg(strstr(err.text, wrong[i].sentence) != NULL, "%s", err.text);
    }
}

/* What the shipped table is for: no two workloads of LLaDA2.0-mini draw one number. */
TEST(a_workload_finds_the_first_process_that_lists_it) {
    static const struct {
        const char *model, *workload, *process;
    } asked[] = {
        {"llada2-mini", "humaneval", "llada2-mini/humaneval-plus"},
        {"llada2-mini", "gsm8k", "llada2-mini/gsm-plus"},
        {"llada2-mini", "ifeval", "llada2-mini/ifeval"},
        {"llada2-mini", "math", "llada2-mini/math"},
        {"llada2-flash", "mbpp", "llada2-flash/mbpp-plus"},
        {"llada-moe", "livecodebench-v6", "llada-moe/lcb-v6"},
        {"sdar-8b", "sharegpt-first-turn", "sdar-8b/sharegpt"},
        {"sdar-2m", "hops", "sdar-2m/hops"},
        {"sdar-8b", "burst", ""},
        {"llada", "gsm8k", ""},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        char name[64];
        struct err err = {0};
        ck_assert_int_eq(
            decode_process_of(asked[i].model, asked[i].workload, name, sizeof name, &err), 0);
        ck_assert_str_eq(name, asked[i].process);
    }
}

TEST(a_located_process_says_its_conditions_and_a_second_source) {
    struct decode_process process;
    struct err err = {0};
    ck_assert_int_eq(decode_process_find("llada2-mini/humaneval-plus", &process, &err), 0);
    ck_assert_int_eq(process.from.kind, PROVENANCE_CALIBRATED);
    ck_assert(process.at.threshold == 0.95 && process.at.temperature == 1);
    ck_assert_uint_eq(process.at.block_tokens, 32);
    ck_assert_ptr_nonnull(strstr(process.from.source, "HumanEval+, 5.16 tokens a pass"));
    ck_assert_ptr_nonnull(strstr(process.error, "left out"));
    ck_assert_ptr_nonnull(strstr(process.error, "5.53 of HumanEval"));
    ck_assert_int_eq(decode_process_find("llada2-mini/humaneval-puls", &process, &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "did you mean 'llada2-mini/humaneval-plus'?"));
}

SUITE("locations")
