#include "sim/policy/plugin/object.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/base/input/sha256.h"
#include "sim/base/mem.h"
#include "sim/base/system.h"
#include "sim/base/wait.h"

#ifdef __ELF__
#include <elf.h>
#include <link.h>
#endif

struct object {
    struct object *next;
    char *path, *bytes;
    size_t size;
    char sha256[SHA256_HEX_CHARS];
    bool stays_loaded;           /* threads that end call its functions */
    const struct policy *policy; /* of the first load */
    atomic_flag is_taken;        /* by the first run */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;

/* ---- bytes ---- */

#ifdef __ELF__
/* Compilers have one copy in all the program of some of C++'s variables, those of inline functions
 * and templates. Here each load has its own. */
static void make_unique_local(char *bytes, size_t size) {
    ElfW(Ehdr) head;
    if (size < sizeof head) {
        return;
    }
    memcpy(&head, bytes, sizeof head);
    bool is_ours = memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 &&
                   head.e_ident[EI_CLASS] == ELFCLASS64 && head.e_shentsize == sizeof(ElfW(Shdr)) &&
                   head.e_shoff <= size &&
                   head.e_shnum <= (size - head.e_shoff) / sizeof(ElfW(Shdr));
    for (unsigned i = 0; is_ours && i < head.e_shnum; i++) {
        ElfW(Shdr) section;
        memcpy(&section, bytes + head.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type != SHT_DYNSYM || section.sh_offset > size ||
            section.sh_size > size - section.sh_offset) {
            continue;
        }
        for (uint64_t at = 0; at + sizeof(ElfW(Sym)) <= section.sh_size; at += sizeof(ElfW(Sym))) {
            ElfW(Sym) symbol;
            memcpy(&symbol, bytes + section.sh_offset + at, sizeof symbol);
            if (ELF64_ST_BIND(symbol.st_info) == STB_GNU_UNIQUE) {
                symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, ELF64_ST_TYPE(symbol.st_info));
                memcpy(bytes + section.sh_offset + at, &symbol, sizeof symbol);
            }
        }
    }
}
#else
static void make_unique_local(char *bytes, size_t size) {
    (void)bytes, (void)size;
}
#endif

/* Whether it refers to a function of this name. */
static bool names(const struct object *object, const char *name) {
    return memmem(object->bytes, object->size, name, strlen(name) + 1) != NULL;
}

static int read_bytes(struct object *object, int file, struct err *err) {
    struct stat facts;
    struct sha256 sha;
    if (fstat(file, &facts) != 0) {
        return err_world(err, "cannot read %s: %s", object->path, strerror(errno));
    }
    object->size = (size_t)facts.st_size;
    object->bytes = mem_zeroed(object->size + 1, 1);
    for (size_t n = 0; n < object->size;) {
        ssize_t more = pread(file, object->bytes + n, object->size - n, (off_t)n);
        if (more <= 0 && !(more < 0 && errno == EINTR)) {
            return err_world(err, "cannot read %s: %s", object->path,
                             more < 0 ? strerror(errno) : "it became shorter");
        }
        n += more > 0 ? (size_t)more : 0;
    }
    sha256_begin(&sha);
    sha256_add(&sha, object->bytes, object->size);
    sha256_hex(&sha, object->sha256);
    make_unique_local(object->bytes, object->size);
    object->stays_loaded = names(object, "pthread_key_create") || names(object, "tss_create");
    return 0;
}

/* ---- copies ---- */

#ifdef __linux__
/* The loader takes two names that are spelt alike for one object, and a descriptor's number is soon
 * another file's: each load spells its own. */
static void *load_file(int file) {
    static atomic_uint n_loads;
    char name[256];
    size_t n = (size_t)snprintf(name, sizeof name, "/proc/self/fd/");
    for (unsigned bits = atomic_fetch_add(&n_loads, 1) + 1; bits > 0; bits >>= 1) {
        n += (size_t)snprintf(name + n, sizeof name - n, "%s", (bits & 1) != 0 ? ".//" : "./");
    }
    snprintf(name + n, sizeof name - n, "%d", file);
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

/* In memory alone, so that nothing is left whenever the program ends. */
static void *load_copy(const struct object *object) {
    int file = system_memory_file();
    bool is_whole = file >= 0 && system_write(file, object->bytes, object->size);
    void *handle = is_whole ? load_file(file) : NULL;
    if (file >= 0) {
        close(file);
    }
    return handle;
}
#else
static void *load_copy(const struct object *object) {
    char name[] = "/tmp/unmask-XXXXXX";
    int file = mkstemp(name);
    if (file < 0) {
        return NULL;
    }
    bool is_whole = system_write(file, object->bytes, object->size);
    close(file);
    void *handle = is_whole ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(name);
    return handle;
}
#endif

static int load_again(const struct object *object, void **handle, struct err *err) {
    errno = 0;
    *handle = load_copy(object);
    if (*handle == NULL) {
        const int number = errno;
        const char *why = dlerror();
        const char *behind = why != NULL ? strstr(why, ": ") : NULL; /* the name that it has here */
        why = behind != NULL ? behind + 2 : why;
        return err_world(err,
                         "%s: no copy of the plug-in, which every run and replica has, can be "
                         "loaded from memory: %s",
                         object->path, why != NULL ? why : strerror(number));
    }
    return 0;
}

int object_load(struct object *object, bool is_for_run, const struct policy **out, void **handle,
                struct err *err) {
    if (is_for_run && !atomic_flag_test_and_set(&object->is_taken)) {
        *handle = NULL; /* stays loaded */
        *out = object->policy;
        return 0;
    }
    if (load_again(object, handle, err) != 0) {
        return err_status(err);
    }
    *out = dlsym(*handle, "unmask_policy");
    return 0;
}

void object_close(const struct object *object, void *handle) {
    if (handle != NULL && !object->stays_loaded) {
        (void)dlclose(handle);
    }
}

/* ---- first loads ---- */

struct object *object_of(const struct policy *first) {
    pthread_mutex_lock(&lock);
    struct object *object = objects;
    while (object != NULL && object->policy != first) {
        object = object->next;
    }
    pthread_mutex_unlock(&lock);
    return object;
}

static void object_free(struct object *object) {
    free(object->path);
    free(object->bytes);
    free(object);
}

/* Whether the loader would take another file's object for this one: one that was loaded by this
 * name, or that lay where this file lies. */
static bool is_mistaken(const struct object *object, const void *symbol) {
    bool is = false;
    for (const struct object *known = objects; known != NULL; known = known->next) {
        bool is_same_place = strcmp(known->path, object->path) == 0 ||
                             (symbol != NULL && (const void *)known->policy == symbol);
        is = is || (is_same_place && strcmp(known->sha256, object->sha256) != 0);
    }
    return is;
}

static int load_first(struct object *object, void **handle, struct err *err) {
    *handle = NULL;
    if (!is_mistaken(object, NULL)) {
        const int wait = wait_begin();
        *handle = dlopen(object->path, RTLD_NOW | RTLD_LOCAL);
        wait_end(wait);
        if (*handle == NULL) {
            return err_world(err, "cannot load the plug-in: %s", dlerror());
        }
        if (!is_mistaken(object, dlsym(*handle, "unmask_policy"))) {
            return 0;
        }
        dlclose(*handle);
    }
    return load_again(object, handle, err);
}

/* Under the lock. */
static int open_new(struct object *object,
                    int (*validate)(const void *symbol, const char *path, struct err *err),
                    struct err *err) {
    void *handle;
    if (load_first(object, &handle, err) != 0) {
        return err_status(err);
    }
    const void *symbol = dlsym(handle, "unmask_policy");
    if (validate(symbol, object->path, err) != 0) {
        dlclose(handle);
        return err_status(err);
    }
    object->policy = symbol;
    object->next = objects;
    objects = object;
    return 0;
}

int object_open(const char *path, int file,
                int (*validate)(const void *symbol, const char *path, struct err *err),
                const struct policy **out, struct err *err) {
    struct object *object = mem_zeroed(1, sizeof *object);
    object->path = mem_text(path);
    atomic_flag_clear(&object->is_taken);
    int status = read_bytes(object, file, err);
    if (status != 0) {
        object_free(object);
        return status;
    }
    pthread_mutex_lock(&lock);
    const struct object *known = objects;
    while (known != NULL &&
           (strcmp(known->path, path) != 0 || strcmp(known->sha256, object->sha256) != 0)) {
        known = known->next;
    }
    status = known != NULL ? 0 : open_new(object, validate, err);
    *out = status != 0 ? NULL : known != NULL ? known->policy : object->policy;
    pthread_mutex_unlock(&lock);
    if (status != 0 || known != NULL) {
        object_free(object);
    }
    return status;
}
