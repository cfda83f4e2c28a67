/* SQLite's memory, and a VFS over its own that may fail, write by halves, and lose what was not
 * synced. Locks and shared memory are passed on and count as calls, too. */
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/torture/fault.h"

enum { SECTOR = 512, PATH_CHARS = 1024, MAX_WRITES = 1 << 16 };

static sqlite3_mem_methods memory;
static sqlite3_vfs *under;
static sqlite3_vfs over;
static sqlite3_io_methods methods;

/* Of libraries' and our own memory here none fails. */
void *__real_malloc(size_t size);
ssize_t __real_pwrite(int file, const void *from, size_t n, off_t at);
int __real_open(const char *path, int flags, ...);

/* ---- memory ---- */

static void *sqlite_malloc(int size) {
    return fault_hits(FAULT_ALLOC, "sqlite") ? NULL : memory.xMalloc(size);
}

static void *sqlite_realloc(void *old, int size) {
    return fault_hits(FAULT_ALLOC, "sqlite") ? NULL : memory.xRealloc(old, size);
}

/* ---- what a power cut takes ---- */

struct file {
    sqlite3_file base;
    sqlite3_file *real;
    char path[PATH_CHARS];
};

/* What stood where something was written that is not synced. */
struct unsynced {
    char path[PATH_CHARS];
    sqlite3_int64 at;
    int n;
    unsigned char *old; /* zeros beyond the old end */
};

static struct unsynced writes[MAX_WRITES];
static int n_writes;

static void forget(const char *path) {
    int kept = 0;
    for (int i = 0; i < n_writes; i++) {
        if (strcmp(writes[i].path, path) == 0) {
            free(writes[i].old);
        } else {
            writes[kept++] = writes[i];
        }
    }
    n_writes = kept;
}

static void remember(struct file *file, sqlite3_int64 at, int n) {
    if (!fault_cuts_power() || file->path[0] == '\0' || n_writes == MAX_WRITES) {
        return;
    }
    struct unsynced *one = &writes[n_writes++];
    memcpy(one->path, file->path, sizeof one->path);
    one->at = at;
    one->n = n;
    one->old = __real_malloc((size_t)n);
    file->real->pMethods->xRead(file->real, one->old, n, at); /* zeros what is not there */
}

/* Each sector since the last sync may be as it was before. */
static _Noreturn void cut_power(void) {
    for (int i = n_writes - 1; i >= 0; i--) {
        const struct unsynced *one = &writes[i];
        int file = __real_open(one->path, O_WRONLY | O_CLOEXEC);
        for (sqlite3_int64 at = one->at; file >= 0 && at < one->at + one->n;) {
            sqlite3_int64 end = (at / SECTOR + 1) * SECTOR;
            end = end < one->at + one->n ? end : one->at + one->n;
            if (fault_random() % 2 == 0) {
                ssize_t n = __real_pwrite(file, one->old + (at - one->at), (size_t)(end - at), at);
                (void)n;
            }
            at = end;
        }
        close(file);
    }
    fault_kill();
}

/* ---- one call of the operating system ---- */

static bool fails(const char *place) {
    if (!fault_hits(FAULT_IO, place)) {
        return false;
    }
    if (fault_cuts_power()) {
        cut_power();
    }
    return true;
}

#define FILE_OF(base) struct file *file = (struct file *)(base)
#define PASS_ON(method, place, failure, parameters, ...)                                           \
    static int over_##method parameters {                                                          \
        FILE_OF(base);                                                                             \
        return fails(place) ? failure : file->real->pMethods->method(__VA_ARGS__);                 \
    }

PASS_ON(xFileSize, "size", SQLITE_IOERR_FSTAT, (sqlite3_file * base, sqlite3_int64 *size),
        file->real, size)
PASS_ON(xLock, "lock", SQLITE_IOERR_LOCK, (sqlite3_file * base, int level), file->real, level)
PASS_ON(xCheckReservedLock, "reserved", SQLITE_IOERR_CHECKRESERVEDLOCK,
        (sqlite3_file * base, int *out), file->real, out)
PASS_ON(xShmMap, "shm map", SQLITE_IOERR_SHMMAP,
        (sqlite3_file * base, int region, int size, int extend, void volatile **out), file->real,
        region, size, extend, out)

/* To give back a lock never fails: nobody could go on. */
static int over_xUnlock(sqlite3_file *base, int level) {
    FILE_OF(base);
    return file->real->pMethods->xUnlock(file->real, level);
}

static int over_xShmLock(sqlite3_file *base, int offset, int n, int flags) {
    FILE_OF(base);
    return (flags & SQLITE_SHM_LOCK) != 0 && fails("shm lock")
               ? SQLITE_IOERR_SHMLOCK
               : file->real->pMethods->xShmLock(file->real, offset, n, flags);
}

static int over_xRead(sqlite3_file *base, void *to, int n, sqlite3_int64 at) {
    FILE_OF(base);
    return fails("read") ? SQLITE_IOERR_READ : file->real->pMethods->xRead(file->real, to, n, at);
}

static int write_some(struct file *file, const char *from, int n, sqlite3_int64 at) {
    if (fault_how == HOW_FULL) {
        return SQLITE_FULL;
    }
    if (fault_how == HOW_SHORT) {
        file->real->pMethods->xWrite(file->real, from, n / 2, at);
    }
    for (int i = 0; fault_how == HOW_TORN && i < n; i += SECTOR) {
        if (fault_random() % 2 == 0) {
            int part = n - i < SECTOR ? n - i : SECTOR;
            file->real->pMethods->xWrite(file->real, from + i, part, at + i);
        }
    }
    if (fault_how == HOW_TORN) {
        fault_kill();
    }
    return SQLITE_IOERR_WRITE;
}

static int over_xWrite(sqlite3_file *base, const void *from, int n, sqlite3_int64 at) {
    FILE_OF(base);
    if (fails("write")) {
        return SQLITE_IOERR_WRITE;
    }
    if (fault_hits(FAULT_WRITE, file->path)) {
        return write_some(file, from, n, at);
    }
    remember(file, at, n);
    return file->real->pMethods->xWrite(file->real, from, n, at);
}

static int over_xTruncate(sqlite3_file *base, sqlite3_int64 size) {
    FILE_OF(base);
    return fails("truncate") ? SQLITE_IOERR_TRUNCATE
                             : file->real->pMethods->xTruncate(file->real, size);
}

static int over_xSync(sqlite3_file *base, int flags) {
    FILE_OF(base);
    (void)flags;
    if (fails("sync")) {
        return SQLITE_IOERR_FSYNC;
    }
    if (fault_how != HOW_LIE) {
        forget(file->path);
    }
    return SQLITE_OK; /* of a file that lives as long as its test */
}

static int over_xClose(sqlite3_file *base) {
    FILE_OF(base);
    return file->real->pMethods->xClose(file->real);
}

static int over_xFileControl(sqlite3_file *base, int what, void *argument) {
    FILE_OF(base);
    return file->real->pMethods->xFileControl(file->real, what, argument);
}

static int over_xSectorSize(sqlite3_file *base) {
    FILE_OF(base);
    return file->real->pMethods->xSectorSize(file->real);
}

static int over_xDeviceCharacteristics(sqlite3_file *base) {
    FILE_OF(base);
    return file->real->pMethods->xDeviceCharacteristics(file->real);
}

static void over_xShmBarrier(sqlite3_file *base) {
    FILE_OF(base);
    file->real->pMethods->xShmBarrier(file->real);
}

static int over_xShmUnmap(sqlite3_file *base, int delete_it) {
    FILE_OF(base);
    return file->real->pMethods->xShmUnmap(file->real, delete_it);
}

/* ---- the VFS ---- */

static int over_xOpen(sqlite3_vfs *vfs, const char *path, sqlite3_file *base, int flags,
                      int *out_flags) {
    (void)vfs;
    FILE_OF(base);
    base->pMethods = NULL;
    if (fails("open")) {
        return SQLITE_CANTOPEN;
    }
    file->real = (sqlite3_file *)(file + 1);
    file->path[0] = '\0';
    if (path != NULL && strlen(path) < sizeof file->path) {
        memcpy(file->path, path, strlen(path) + 1);
    }
    int rc = under->xOpen(under, path, file->real, flags, out_flags);
    base->pMethods = file->real->pMethods != NULL ? &methods : NULL;
    return rc;
}

static int over_xDelete(sqlite3_vfs *vfs, const char *path, int sync_folder) {
    (void)vfs;
    if (fails("delete")) {
        return SQLITE_IOERR_DELETE;
    }
    forget(path);
    return under->xDelete(under, path, sync_folder);
}

static int over_xAccess(sqlite3_vfs *vfs, const char *path, int flags, int *out) {
    (void)vfs;
    return fails("access") ? SQLITE_IOERR_ACCESS : under->xAccess(under, path, flags, out);
}

static void lay_over(void) {
    sqlite3_initialize();
    under = sqlite3_vfs_find(NULL);
    over = *under;
    over.zName = "torture";
    over.szOsFile = (int)sizeof(struct file) + under->szOsFile;
    over.xOpen = over_xOpen;
    over.xDelete = over_xDelete;
    over.xAccess = over_xAccess;
#define METHOD(name) methods.name = over_##name
    methods.iVersion = 2; /* with shared memory, without mapped files */
    METHOD(xClose), METHOD(xRead), METHOD(xWrite), METHOD(xTruncate), METHOD(xSync),
        METHOD(xFileSize), METHOD(xLock), METHOD(xUnlock), METHOD(xCheckReservedLock),
        METHOD(xFileControl), METHOD(xSectorSize), METHOD(xDeviceCharacteristics), METHOD(xShmMap),
        METHOD(xShmLock), METHOD(xShmBarrier), METHOD(xShmUnmap);
#undef METHOD
    sqlite3_vfs_register(&over, 1);
}

/* Only now: the program sets SQLite's memory up first. */
int __real_sqlite3_open_v2(const char *path, sqlite3 **out, int flags, const char *vfs);
int __wrap_sqlite3_open_v2(const char *path, sqlite3 **out, int flags, const char *vfs);
int __wrap_sqlite3_open_v2(const char *path, sqlite3 **out, int flags, const char *vfs) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, lay_over);
    return __real_sqlite3_open_v2(path, out, flags, vfs);
}

int __real_sqlite3_open(const char *path, sqlite3 **out);
int __wrap_sqlite3_open(const char *path, sqlite3 **out);
int __wrap_sqlite3_open(const char *path, sqlite3 **out) {
    return __wrap_sqlite3_open_v2(path, out, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
}

void fault_sqlite(void) {
    sqlite3_config(SQLITE_CONFIG_GETMALLOC, &memory);
    sqlite3_mem_methods counted = memory;
    counted.xMalloc = sqlite_malloc;
    counted.xRealloc = sqlite_realloc;
    sqlite3_config(SQLITE_CONFIG_MALLOC, &counted);
}
