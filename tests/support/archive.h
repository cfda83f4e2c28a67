/* Files that a suite keeps in one archive, as `tar cz --format=ustar` writes it. */
#ifndef UNMASK_TESTS_SUPPORT_ARCHIVE_H
#define UNMASK_TESTS_SUPPORT_ARCHIVE_H

#include "sim/base/input/unpack.h"
#include "tests/support/scratch.h"

enum { ARCHIVE_BLOCK = 512, ARCHIVE_NAME = 100 };

/* `archive_open` sets all, `archive_next` writes name, bytes and size. */
struct archive {
    FILE *file;
    char name[ARCHIVE_NAME + 1];
    uint8_t *bytes; /* of the member, freed by archive_close */
    size_t size;
};

static inline void archive_open(struct archive *archive, const char *path) {
    *archive = (struct archive){.file = unpack_open(path, NULL)};
    ck_assert_msg(archive->file != NULL, "%s is missing", path);
}

static inline void archive_close(struct archive *archive) {
    fclose(archive->file);
    free(archive->bytes);
}

/* Reads the next member; false after the last. */
static inline bool archive_next(struct archive *archive) {
    char header[ARCHIVE_BLOCK];
    ck_assert_uint_eq(fread(header, 1, sizeof header, archive->file), sizeof header);
    if (header[0] == '\0') {
        return false;
    }
    ck_assert_int_eq(memcmp(header + 257, "ustar", 5), 0);
    snprintf(archive->name, sizeof archive->name, "%.*s", ARCHIVE_NAME, header);
    archive->size = strtoul(header + 124, NULL, 8);
    const size_t padded = (archive->size + ARCHIVE_BLOCK - 1) / ARCHIVE_BLOCK * ARCHIVE_BLOCK;
    archive->bytes = realloc(archive->bytes, padded + 1);
    ck_assert_ptr_nonnull(archive->bytes);
    ck_assert_uint_eq(fread(archive->bytes, 1, padded, archive->file), padded);
    return true;
}

/* Writes a member to the file `copy`. */
static inline void archive_extract(const char *path, const char *name, const char *copy) {
    struct archive archive;
    archive_open(&archive, path);
    do {
        ck_assert_msg(archive_next(&archive), "%s has no %s", path, name);
    } while (strcmp(archive.name, name) != 0);
    FILE *file = fopen(copy, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(archive.bytes, 1, archive.size, file), archive.size);
    ck_assert_int_eq(fclose(file), 0);
    archive_close(&archive);
}

/* A member in the scratch folder: its path, as scratch_path has it. */
static inline const char *archive_file(const char *path, const char *name) {
    const char *copy = scratch_path(name);
    archive_extract(path, name, copy);
    return copy;
}

#endif
