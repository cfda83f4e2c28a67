/* Pickles of plain data, opcode by opcode as Python's pickletools describes them, and memory
 * snapshots event by event. */
#include <stdlib.h>

#include "sim/base/mem.h"
#include "sim/memory/pickle.h"
#include "sim/memory/snapshot.h"
#include "tests/support/says.h"
#include "tests/support/scratch.h"

/* What the bytes say, as JSON; else the sentence. To be freed. */
static char *said(const char *bytes, size_t n) {
    struct err err = {0};
    FILE *file = fmemopen((void *)(uintptr_t)bytes, n, "rb");
    ck_assert_ptr_nonnull(file);
    json_t *value = pickle_read(file, "p", &err);
    fclose(file);
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    ck_assert_int_eq(err.kind == ERR_NONE, value != NULL);
    json_decref(value);
    return text != NULL ? text : mem_text(err.text);
}

#define BYTES(text) text, sizeof(text) - 1

TEST(every_opcode_makes_what_python_makes_of_it) {
    static const struct {
        const char *bytes;
        size_t n;
        const char *json;
    } cases[] = {
        {BYTES("\x80\x02N."), "null"},
        {BYTES("\x88."), "true"},
        {BYTES("\x89."), "false"},
        {BYTES("\x95\x01\x02\x03\x04\x05\x06\x07\x08\x88."), "true"},
        {BYTES("K\xff."), "255"},
        {BYTES("M\xff\x01."), "511"},
        {BYTES("J\x04\x03\x02\x01."), "16909060"},
        {BYTES("J\xfe\xff\xff\xff."), "-2"},
        {BYTES("\x8a\x00."), "0"},
        {BYTES("\x8a\x01\x7f."), "127"},
        {BYTES("\x8a\x01\x80."), "-128"},
        {BYTES("\x8a\x02\x80\x00."), "128"},
        {BYTES("\x8a\x02\x00\x80."), "-32768"},
        {BYTES("\x8a\x07\x00\x00\x00\x00\x00\x00\x80."), "-36028797018963968"},
        {BYTES("\x8a\x08\x01\x00\x00\x00\x00\x00\x00\x80."), "-9223372036854775807"},
        {BYTES("\x8b\x02\x00\x00\x00\x39\x30."), "12345"},
        {BYTES("G\x3f\xf8\x00\x00\x00\x00\x00\x00."), "1.5"},
        {BYTES("G\xc0\x00\x00\x00\x00\x00\x00\x00."), "-2.0"},
        {BYTES("G\x7f\xf0\x00\x00\x00\x00\x00\x00."), "null"},
        {BYTES("\x8c\x02hi."), "\"hi\""},
        {BYTES("\x8c\x00."), "\"\""},
        {BYTES("X\x03\x00\x00\x00h\xc3\xa9."), "\"h\xc3\xa9\""},
        {BYTES("\x8d\x02\x00\x00\x00\x00\x00\x00\x00hi."), "\"hi\""},
        {BYTES("\x8c\x01\xff."), "null"},
        /* Tuples, lists and dicts. */
        {BYTES(")."), "[]"},
        {BYTES("(t."), "[]"},
        {BYTES("(K\x01K\x02K\x03K\x04t."), "[1,2,3,4]"},
        {BYTES("K\x01\x85."), "[1]"},
        {BYTES("K\x01K\x02\x86."), "[1,2]"},
        {BYTES("K\x01K\x02K\x03\x87."), "[1,2,3]"},
        {BYTES("K\x09K\x01K\x02\x86\x86."), "[9,[1,2]]"},
        {BYTES("]K\x01"
               "a."),
         "[1]"},
        {BYTES("](K\x01K\x02"
               "e."),
         "[1,2]"},
        {BYTES("](e."), "[]"},
        {BYTES("]((tK\x05"
               "e."),
         "[[],5]"},
        {BYTES("}\x8c\x01"
               "bK\x01s\x8c\x01"
               "aK\x02s."),
         "{\"b\":1,\"a\":2}"},
        {BYTES("}(\x8c\x01"
               "aK\x01\x8c\x01"
               "b]K\x02"
               "au."),
         "{\"a\":1,\"b\":[2]}"},
        {BYTES("}(u."), "{}"},
        {BYTES("}K\x07K\x01s."), "{\"7\":1}"},
        {BYTES("}J\xff\xff\xff\xffK\x01s."), "{\"-1\":1}"},
        {BYTES("})K\x01s."), "{\"\":1}"},
        /* What was kept is found again; lists and dicts are not. */
        {BYTES("\x8c\x01"
               "a\x94h\x00\x86."),
         "[\"a\",\"a\"]"},
        {BYTES("K\x05q\x00K\x06q\x01h\x00h\x01\x87\x86."), "[5,[6,5,6]]"},
        {BYTES("K\x05r\x00\x00\x00\x00j\x00\x00\x00\x00\x86."), "[5,5]"},
        {BYTES("]\x94h\x00\x86."), "[[],null]"},
        {BYTES("}\x94h\x00\x86."), "[{},null]"},
        {BYTES("h\x05."), "null"},
        /* What is none. */
        {BYTES("."), "p: byte 1: found another number of values than one"},
        {BYTES("K\x01K\x02."), "p: byte 5: found another number of values than one"},
        {BYTES("(."), "p: byte 2: found no value"},
        {BYTES("K\x01"), "p: byte 3: the pickle ends before its STOP"},
        {BYTES("K"), "p: byte 2: the pickle ends before its STOP"},
        {BYTES("\x8c\x03hi"), "p: byte 5: the pickle ends before its STOP"},
        {BYTES("K\x01"
               "cx\n"),
         "p: byte 3: found an opcode that makes no plain data, which is not executed"},
        {BYTES("\x8a\x09"), "p: byte 2: found a number of more than 64 bits"},
        {BYTES("X\x01\x00\x00\x04"), "p: byte 5: found a text of more than 64 MiB"},
        {BYTES("X\x00\x00\x00\x04"), "p: byte 67108869: the pickle ends before its STOP"},
        {BYTES("t."), "p: byte 1: found no mark"},
        {BYTES("K\x01t."), "p: byte 3: found no mark"},
        {BYTES("\x85."), "p: byte 1: found fewer values than its opcode takes"},
        {BYTES("K\x01\x86."), "p: byte 3: found fewer values than its opcode takes"},
        {BYTES("K\x01(K\x02\x86."), "p: byte 6: found fewer values than its opcode takes"},
        {BYTES("K\x01"
               "a."),
         "p: byte 3: found fewer values than its opcode takes"},
        {BYTES("}K\x01s."), "p: byte 4: found fewer values than its opcode takes"},
        {BYTES("}K\x01"
               "a."),
         "p: byte 4: found no list to fill"},
        {BYTES("]K\x01K\x02s."), "p: byte 6: found no dict to fill"},
        {BYTES("}(K\x01u."), "p: byte 5: found no dict to fill"},
        {BYTES("(K\x01"
               "e."),
         "p: byte 4: found no list to fill"},
        {BYTES("](K\x01K\x02u."), "p: byte 7: found no dict to fill"},
        {BYTES("q\x00."), "p: byte 2: found fewer values than its opcode takes"},
        {BYTES("K\x01q\x01."), "p: byte 4: found a memo out of its order"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *found = said(cases[i].bytes, cases[i].n);
        ck_assert_msg(strcmp(found, cases[i].json) == 0, "case %zu: %s, not %s", i, found,
                      cases[i].json);
        free(found);
    }
}

/* "alloc 0 512; free 0; ..." and the allocator's settings, or the sentence. To be freed. */
static char *events_of(const char *json) {
    static const char *const kinds[] = {
        [STREAM_ALLOC] = "alloc", [STREAM_FREE] = "free", [STREAM_OOM] = "oom"};
    struct stream stream;
    struct err err = {0};
    char *text;
    size_t size;
    FILE *out = mem_stream(&text, &size);
    stream_init(&stream);
    if (snapshot_read(scratch_write("s.json", json), &stream, &err) != 0) {
        fprintf(out, "%s", strstr(err.text, "s.json") + 6);
    }
    for (size_t i = 0; err.kind == ERR_NONE && i < stream.n_events; i++) {
        const struct stream_event *event = &stream.events[i];
        fprintf(out, "%s %u %d; ", kinds[event->kind], event->id, (int)event->bytes);
    }
    if (err.kind == ERR_NONE) {
        fprintf(out, "[%s, %d, %g] %s", stream.model, (int)stream.settings.max_split_bytes,
                stream.settings.gc_threshold, stream.source);
    }
    stream_fini(&stream);
    mem_stream_close(out);
    return text;
}

#define EVENT(action, addr, size)                                                                  \
    "{\"action\":\"" action "\",\"addr\":" #addr ",\"size\":" #size ",\"stream\":0}"
#define TRACE(more, events) "{" more "\"device_traces\":[[],[" events "],[]]}"
#define SOURCE              "PyTorch's memory snapshot"

TEST(a_snapshot_is_its_events_and_settings) {
    static const char *const cases[][2] = {
        {TRACE("", EVENT("alloc", 1, 5) "," EVENT("alloc", 9, 7) "," EVENT("free_completed", 1, 5)),
         "alloc 0 5; alloc 1 7; free 0 0; [, 0, 0] " SOURCE},
        /* Of an address that is allocated twice the free was lost. */
        {TRACE("", EVENT("alloc", 1, 5) "," EVENT("alloc", 1, 6) "," EVENT("free_completed", 1, 6)),
         "alloc 0 5; free 0 0; alloc 1 6; free 1 0; [, 0, 0] " SOURCE},
        {TRACE("", EVENT("free_completed", 1, 5) "," EVENT("free_completed", 2, 5) "," EVENT(
                       "alloc", 1, 5) "," EVENT("free_completed", 2, 5)),
         "alloc 0 5; [, 0, 0] " SOURCE ", 3 frees of what was allocated before it passed over"},
        /* What fails holds no address. */
        {TRACE("", EVENT("oom", 1, 8) "," EVENT("alloc", 1, 5) "," EVENT("oom", 1, 1)),
         "oom 0 8; alloc 1 5; oom 2 1; [, 0, 0] " SOURCE},
        {TRACE("\"allocator_settings\":{\"expandable_segments\":true,\"max_split_size\":9,"
               "\"garbage_collection_threshold\":0.75},",
               EVENT("alloc", 1, 5)),
         "alloc 0 5; [torch-expandable, 9, 0.75] " SOURCE},
        {TRACE("\"allocator_settings\":{\"expandable_segments\":false,\"max_split_size\":-1,"
               "\"garbage_collection_threshold\":1},",
               EVENT("alloc", 1, 5)),
         "alloc 0 5; [torch, 0, 1] " SOURCE},
        {TRACE("\"allocator_settings\":{\"max_split_size\":1099511627776,"
               "\"garbage_collection_threshold\":1.5},",
               EVENT("alloc", 1, 5)),
         "alloc 0 5; [torch, 0, 0] " SOURCE},
        {TRACE("", EVENT("segment_alloc", 1, 5)), ": found no allocation in 'device_traces'"},
        {TRACE("", EVENT("alloc", 1, 5) ",{\"addr\":1}"),
         ": event 1 of device_traces: found no 'action', expected alloc, free_completed and the "
         "like"},
        {TRACE("", EVENT("alloc", 1, 0)),
         ": event 0 of device_traces: found another 'size', expected 1 to 2^40 bytes of up to 2^22 "
         "events"},
        {TRACE("", EVENT("alloc", 1, 1099511627777)),
         ": event 0 of device_traces: found another 'size', expected 1 to 2^40 bytes of up to 2^22 "
         "events"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *found = events_of(cases[i][0]);
        ck_assert_str_eq(found, cases[i][1]);
        free(found);
    }
    ck_assert(snapshot_is(scratch_write("a", "{")) && snapshot_is(scratch_write("a", "\x80\x02")));
    ck_assert(!snapshot_is(scratch_write("a", "event")) && !snapshot_is(scratch_write("a", "")));
    ck_assert(!snapshot_is(scratch_path("none")) && !snapshot_is("/tmp"));
}

SUITE("pickle")
