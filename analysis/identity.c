#include "analysis/identity.h"

#include <stdarg.h>
#include <string.h>

#include "sim/base/build.h"
#include "sim/base/err.h"

enum { SHORT_DIGEST = 12 };

static void add_text(struct sha256 *sha, const char *text) {
    sha256_add(sha, text, strlen(text) + 1);
}

static json_t *build_json(const struct build *build) {
    return json_pack("{s:s, s:s, s:b, s:s}", "version", build->version, "commit", build->commit,
                     "dirty", build->is_dirty, "sources", build->sources);
}

json_t *identity_json(const char *config, const struct inputs *inputs) {
    struct build build = build_this();
    struct sha256 sha;
    char digest[SHA256_HEX_CHARS];
    bool is_known = true;
    json_t *files = json_array();
    sha256_begin(&sha);
    add_text(&sha, "unmask run identity 1");
    add_text(&sha, build.version);
    add_text(&sha, build.sources);
    add_text(&sha, config);
    for (size_t i = 0; i < inputs->n; i++) {
        const struct input_file *input = &inputs->items[i];
        bool has_digest = input->sha256[0] != '\0';
        is_known = is_known && has_digest;
        add_text(&sha, input->role);
        add_text(&sha, input->path);
        add_text(&sha, input->sha256);
        json_array_append_new(files,
                              json_pack("{s:s, s:s, s:s?}", "role", input->role, "path",
                                        input->path, "sha256", has_digest ? input->sha256 : NULL));
    }
    sha256_hex(&sha, digest);
    return json_pack("{s:s?, s:o, s:o}", "digest", is_known ? digest : NULL, "build",
                     build_json(&build), "inputs", files);
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

const char *identity_digest(const json_t *identity) {
    return text_of(identity, "digest");
}

static __attribute__((format(printf, 2, 3))) void add(struct identity_difference *difference,
                                                      const char *format, ...) {
    size_t used = strlen(difference->text);
    if (used > 0 && used + 3 < sizeof difference->text) {
        memcpy(difference->text + used, ", ", 3);
        used += 2;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(difference->text + used, sizeof difference->text - used, format, args);
    va_end(args);
}

static const json_t *find_input(const json_t *inputs, const json_t *wanted) {
    size_t i;
    json_t *input;
    json_array_foreach((json_t *)(uintptr_t)inputs, i, input) {
        if (strcmp(text_of(input, "role"), text_of(wanted, "role")) == 0 &&
            strcmp(text_of(input, "path"), text_of(wanted, "path")) == 0) {
            return input;
        }
    }
    return NULL;
}

static bool knows_commit(const json_t *build) {
    const char *commit = text_of(build, "commit");
    return commit[0] != '\0' && strcmp(commit, "unknown") != 0;
}

/* "0123456789ab", "0123456789ab with changes", "an unknown commit" */
static const char *commit_text(const json_t *build, char text[64]) {
    const char *commit = text_of(build, "commit");
    bool is_dirty = json_is_true(json_object_get(build, "dirty"));
    if (!knows_commit(build)) {
        return "an unknown commit";
    }
    snprintf(text, 64, "%.*s%s", SHORT_DIGEST, commit, is_dirty ? " with changes" : "");
    return text;
}

static void compare_builds(const json_t *then, const json_t *now,
                           struct identity_difference *difference) {
    char before[64], after[64];
    if (strcmp(text_of(then, "version"), text_of(now, "version")) != 0) {
        difference->build = true;
        add(difference, "unmask %s then, %s now", text_of(then, "version"),
            text_of(now, "version"));
    } else if (strcmp(text_of(then, "sources"), text_of(now, "sources")) != 0) {
        difference->build = true;
        add(difference, "unmask was built from other sources (then %s, now %s)",
            commit_text(then, before), commit_text(now, after));
    }
}

static void compare_inputs(const json_t *then, const json_t *now, bool all,
                           struct identity_difference *difference) {
    size_t i;
    json_t *input;
    const char *trouble;
    json_array_foreach((json_t *)(uintptr_t)now, i, input) {
        const json_t *before = find_input(then, input);
        const char *sha256 = text_of(input, "sha256");
        trouble = sha256[0] == '\0' ? "cannot be compared, it is no regular file"
                  : before == NULL  ? "was not read then"
                  : strcmp(text_of(before, "sha256"), sha256) != 0 ? "has changed since"
                                                                   : NULL;
        if (trouble != NULL) {
            difference->inputs = true;
            add(difference, "%s %s", text_of(input, "path"), trouble);
        }
    }
    json_array_foreach((json_t *)(uintptr_t)then, i, input) {
        if (all && find_input(now, input) == NULL) {
            difference->inputs = true;
            add(difference, "%s is not read any more", text_of(input, "path"));
        }
    }
}

struct identity_difference identity_compare(const json_t *then, const json_t *now, bool all) {
    struct identity_difference difference = {.text = ""};
    if (!json_is_object(then)) {
        difference.build = difference.inputs = true;
        add(&difference, "an older unmask recorded it, which kept no digests");
        return difference;
    }
    compare_builds(json_object_get(then, "build"), json_object_get(now, "build"), &difference);
    compare_inputs(json_object_get(then, "inputs"), json_object_get(now, "inputs"), all,
                   &difference);
    return difference;
}

void identity_describe(const json_t *identity, char *text, size_t size) {
    const json_t *build = json_object_get(identity, "build");
    const char *digest = identity_digest(identity);
    char commit[64];
    snprintf(text, size, "%.*s, unmask %s built from %s%s", SHORT_DIGEST,
             digest[0] != '\0' ? digest : "none", text_of(build, "version"),
             knows_commit(build) ? "commit " : "", commit_text(build, commit));
}
