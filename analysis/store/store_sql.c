/* Statements of the store, and what SQLite says of them as a sentence. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "analysis/store/store_impl.h"

int store_fail(struct store *store, int rc, const char *doing, struct err *err) {
    /* SQLite forgets the system's reason when an automatic rollback follows; errno still has it. */
    int os_errno = sqlite3_system_errno(store->db);
    os_errno = os_errno != 0 ? os_errno : errno;
    int has_moved = 0;
    if (store->db != NULL) {
        (void)sqlite3_file_control(store->db, "main", SQLITE_FCNTL_HAS_MOVED, &has_moved);
    }
    store->was_locked = (rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED;
    if (has_moved && !store->was_locked && (rc & 0xff) != SQLITE_FULL) {
        return err_world(err, "cannot %s '%s': the file was moved, replaced or removed meanwhile",
                         doing, store->path);
    }
    switch (rc & 0xff) {
    case SQLITE_FULL:
        return err_world(err, "cannot %s '%s': the disk or the database is full", doing,
                         store->path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_world(err,
                         "cannot %s '%s': it is locked by another program; try again when that has "
                         "finished",
                         doing, store->path);
    case SQLITE_READONLY:
        if (sqlite3_extended_errcode(store->db) == SQLITE_READONLY_ROLLBACK) {
            return err_world(err,
                             "cannot %s '%s': a program was killed while it recorded, and undoing "
                             "what it left takes the right to write the file",
                             doing, store->path);
        }
        return access(store->path, W_OK) == 0
                   ? err_world(err, "cannot %s '%s': no journal can be made in its folder", doing,
                               store->path)
                   : err_world(err, "cannot %s '%s': the file is read-only", doing, store->path);
    case SQLITE_NOTADB:
        return err_world(err, "cannot %s '%s': it is not an SQLite database", doing, store->path);
    case SQLITE_CORRUPT:
        return err_world(err, "cannot %s '%s': the database is damaged", doing, store->path);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        if (os_errno == ENOSPC || os_errno == EDQUOT) {
            return err_world(err, "cannot %s '%s': the disk is full", doing, store->path);
        }
        if (os_errno == EFBIG) {
            return err_world(err, "cannot %s '%s': it would exceed the file size limit", doing,
                             store->path);
        }
        return err_world(err, "cannot %s '%s': %s", doing, store->path,
                         os_errno != 0 ? strerror(os_errno) : sqlite3_errmsg(store->db));
    default:
        return err_world(err, "cannot %s '%s': %s", doing, store->path, sqlite3_errmsg(store->db));
    }
}

int store_prepare(struct store *store, const char *sql, sqlite3_stmt **out, struct err *err) {
    errno = 0;
    int rc = sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
    return rc == SQLITE_OK ? 0 : store_fail(store, rc, "read", err);
}

int store_run_sql(struct store *store, const char *sql, const char *doing, struct err *err) {
    errno = 0;
    int rc = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : store_fail(store, rc, doing, err);
}

int store_ask(struct store *store, const char *sql, int64_t *out, struct err *err) {
    sqlite3_stmt *stmt = NULL;
    errno = 0;
    int rc = sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(stmt);
    }
    if (rc == SQLITE_ROW) {
        *out = sqlite3_column_int64(stmt, 0);
        rc = SQLITE_OK;
    }
    int failed = rc == SQLITE_OK ? 0 : store_fail(store, rc, "open", err);
    sqlite3_finalize(stmt);
    return failed;
}
