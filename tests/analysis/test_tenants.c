/* What a run's requests say by tenant and by priority, on hand-made records. */
#include "analysis/summary.h"
#include "analysis/summary_output.h"
#include "tests/support/records.h"

/* Each tenant's numbers are those of its requests alone, over the run's makespan. */
TEST(tenants_have_the_fields_of_their_requests) {
    struct summary s, copy;
    struct err err = {0};
    summary_init(&s, &(struct slo){.latency_ns = 4 * second});
    struct request_record records[] = {done(0, 0, 0, 2, 8), done(1, 0, 0, 6, 10),
                                       done(2, 1, 1, 4, 4), done(3, 2, -1, -1, 3)};
    records[1].tenant = records[3].tenant = 9;
    records[3].state = REQUEST_REJECTED;
    records[3].reason = REJECT_TOKENS;
    for (size_t i = 0; i < 4; i++) {
        records[i].tokens_processed = i == 3 ? 0 : 100 + 100 * i; /* 400 of tenant 0, 200 of 9 */
    }
    feed(&s, records, 3);
    summary_copy(&s, &copy);
    feed(&copy, records + 3, 1);
    summary_finish(&copy);
    const struct run_facts facts = run_facts_unknown();
    json_t *object;
    ck_assert_int_eq(summary_json(&copy, &facts, &object, &err), 0);
    double makespan_s = json_number_value(json_object_get(object, "makespan_s"));
    const json_t *tenants = json_object_get(object, "tenants"), *of_9 = json_array_get(tenants, 1);
    ck_assert_uint_eq(json_array_size(tenants), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(of_9, "tenant")), 9);
    ck_assert_int_eq(json_integer_value(json_object_get(of_9, "requests")), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(of_9, "rejected")), 1);
    ck_assert_double_eq_tol(
        json_number_value(json_object_get(json_object_get(of_9, "latency_s"), "mean")), 10, 1e-9);
    ck_assert_double_eq(json_number_value(json_object_get(of_9, "attainment")), 0);
    ck_assert_double_eq_tol(json_number_value(json_object_get(of_9, "service_share")), 200. / 600,
                            1e-9);
    const json_t *of_0 = json_array_get(tenants, 0);
    ck_assert_double_eq_tol(json_number_value(json_object_get(of_0, "goodput_req_s")),
                            1 / makespan_s, 1e-9);
    ck_assert_ptr_null(json_object_get(of_0, "steps"));
    ck_assert_double_eq_tol(json_number_value(json_object_get(object, "fairness")),
                            600. * 600 / (2 * (400. * 400 + 200 * 200)), 1e-9);
    ck_assert_ptr_null(json_object_get(object, "classes")); /* of one priority */
    json_decref(object);
    summary_fini(&copy);
    summary_finish(&s); /* the copy took nothing away */
    ck_assert_uint_eq(s.groups[BY_TENANT].n, 2);
    summary_fini(&s);
}

/* The same requests by tenant and by priority are two other lists, each of its own groups. */
TEST(classes_are_of_priorities_and_have_the_fields_of_tenants) {
    struct summary s;
    struct err err = {0};
    const char *const own[] = {"too late", NULL};
    summary_init(&s, &(struct slo){.latency_ns = 4 * second});
    s.own_reasons = own;
    struct request_record records[] = {done(0, 0, 0, 2, 8), done(1, 0, 0, 6, 10),
                                       done(2, 1, 1, 4, 4), done(3, 2, -1, -1, 3)};
    records[3].state = REQUEST_REJECTED;
    records[3].reason = REJECT_OWN;
    for (size_t i = 0; i < 4; i++) {
        records[i].tenant = (uint32_t)i % 2;
        records[i].priority = i < 3 ? 2 : 0;
        records[i].tokens_processed = i < 3 ? 100 : 60;
    }
    feed(&s, records, 4);
    summary_finish(&s);
    const struct run_facts facts = run_facts_unknown();
    json_t *object;
    ck_assert_int_eq(summary_json(&s, &facts, &object, &err), 0);
    const json_t *classes = json_object_get(object, "classes");
    const json_t *low = json_array_get(classes, 0), *high = json_array_get(classes, 1);
    const json_t *tenant = json_array_get(json_object_get(object, "tenants"), 0);
    ck_assert_uint_eq(json_array_size(classes), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(low, "priority")), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(low, "rejected")), 1);
    const json_t *reasons = json_object_get(low, "rejected_by_reason");
    ck_assert_int_eq(json_integer_value(json_object_get(reasons, "too late")), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(high, "priority")), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(high, "completed")), 3);
    ck_assert_double_eq_tol(json_number_value(json_object_get(high, "service_share")), 300. / 360,
                            1e-9);
    ck_assert_double_eq_tol(json_number_value(json_object_get(object, "fairness_of_classes")),
                            360. * 360 / (2 * (300. * 300 + 60 * 60)), 1e-9);
    ck_assert_double_eq_tol(json_number_value(json_object_get(object, "fairness")),
                            360. * 360 / (2 * (200. * 200 + 160 * 160)), 1e-9);
    ck_assert_uint_eq(json_object_size(high), json_object_size(tenant));
    ck_assert_ptr_null(json_object_get(high, "tenant"));
    ck_assert_ptr_null(json_object_get(tenant, "priority"));
    json_decref(object);
    summary_fini(&s);
}

TEST(one_tenant_is_the_run_and_too_many_are_not_told_apart) {
    struct err err = {0};
    for (uint32_t n = 1; n <= GROUPS_MOST + 1; n += GROUPS_MOST) {
        struct summary s;
        summary_init(&s, NULL);
        for (uint32_t i = 0; i < 2 * (GROUPS_MOST + 1); i++) {
            struct request_record record = done(i, 0, 0, 1, 1);
            record.tenant = 5 + i % n;
            record.priority = 7 + i % n;
            feed(&s, &record, 1);
        }
        summary_finish(&s);
        const struct run_facts facts = run_facts_unknown();
        json_t *object;
        ck_assert_int_eq(summary_json(&s, &facts, &object, &err), 0);
        ck_assert_ptr_null(json_object_get(object, "tenants"));
        ck_assert_ptr_null(json_object_get(object, "fairness"));
        ck_assert_ptr_null(json_object_get(object, "classes"));
        ck_assert_ptr_null(json_object_get(object, "fairness_of_classes"));
        json_decref(object);
        summary_fini(&s);
    }
}

SUITE("tenants")
