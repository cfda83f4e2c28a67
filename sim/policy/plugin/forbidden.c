#include "sim/policy/plugin/forbidden.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/policy/plugin/call_watch.h"

#ifdef __ELF__
#include <elf.h>
#include <link.h>
#endif

/* ---- what is said ---- */

static const char clock_why[] = "the clock is another in every run: decide by the time in the view";
static const char chance_why[] =
    "it draws another number in every run: draw from the state, by the request's id";
static const char file_why[] =
    "what a file holds belongs to no run: read it once, in a constructor, or take parameters";
static const char thread_why[] = "its threads outlive the call: decide in the callback itself";
static const char world_why[] = "it changes the whole program: keep what differs in the state";

static _Noreturn void refuse(const char *name, const char *why) {
    static const struct watched_call unknown = {.path = "the plug-in"};
    const struct watched_call *call = call_under_way();
    call = call != NULL ? call : &unknown;
    call_broke(call, call->callback != NULL ? call->callback : "none", "it calls %s, and %s,", name,
               why);
}

/* The plug-in calls these in place of the functions, with whatever arguments. */
#define OURS(id, why)                                                                              \
    static void refuse_##id(void) {                                                                \
        refuse(#id, why);                                                                          \
    }
#define NAMED(id, name, why) OURS(id, why)
#include "sim/policy/plugin/forbidden.def"
#undef OURS
#undef NAMED

#ifdef __ELF__
static const struct {
    const char *name;
    void (*ours)(void);
} functions[] = {
#define OURS(id, why)        {#id, refuse_##id},
#define NAMED(id, name, why) {name, refuse_##id},
#include "sim/policy/plugin/forbidden.def"
#undef OURS
#undef NAMED
};

/* ---- where an object calls them ---- */

struct object_tables {
    const char *symbol; /* that it holds */
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * calls[2];
    size_t n_calls[2];
    char *base;
};

static const void *at(const struct object_tables *tables, uintptr_t address) {
    /* The loader has made addresses of them, or not. */
    const uintptr_t base = (uintptr_t)tables->base;
    return (const void *)(address < base ? base + address : address);
}

static void read_dynamic(const ElfW(Dyn) * entry, struct object_tables *out) {
    for (; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB:
            out->symbols = at(out, entry->d_un.d_ptr);
            break;
        case DT_STRTAB:
            out->names = at(out, entry->d_un.d_ptr);
            break;
        case DT_JMPREL:
            out->calls[0] = at(out, entry->d_un.d_ptr);
            break;
        case DT_PLTRELSZ:
            out->n_calls[0] = entry->d_un.d_val / sizeof(ElfW(Rela));
            break;
        case DT_RELA:
            out->calls[1] = at(out, entry->d_un.d_ptr);
            break;
        case DT_RELASZ:
            out->n_calls[1] = entry->d_un.d_val / sizeof(ElfW(Rela));
            break;
        default:
            break;
        }
    }
}

static int look_at_object(struct dl_phdr_info *info, size_t size, void *opaque) {
    struct object_tables *out = opaque;
    const ElfW(Dyn) *dynamic = NULL;
    bool has_symbol = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const char *from = (const char *)(info->dlpi_addr + header->p_vaddr);
        has_symbol = has_symbol || (header->p_type == PT_LOAD && out->symbol >= from &&
                                    out->symbol < from + header->p_memsz);
        dynamic = header->p_type == PT_DYNAMIC ? (const ElfW(Dyn) *)(const void *)from : dynamic;
    }
    if (!has_symbol || dynamic == NULL) {
        return 0;
    }
    out->base = (char *)info->dlpi_addr; // NOLINT(performance-no-int-to-ptr)
    read_dynamic(dynamic, out);
    return 1;
}

/* The place that an object calls a function through; it may have become read-only. */
static void put(char *place, void (*ours)(void)) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    char *from = place - (uintptr_t)place % page;
    if (mprotect(from, page, PROT_READ | PROT_WRITE) == 0) {
        memcpy(place, &ours, sizeof ours);
    }
}

#if defined __x86_64__
enum { CALL_SLOT = R_X86_64_JUMP_SLOT, CALL_ADDRESS = R_X86_64_GLOB_DAT, KNOWS_CALLS = true };
#elif defined __aarch64__
enum { CALL_SLOT = R_AARCH64_JUMP_SLOT, CALL_ADDRESS = R_AARCH64_GLOB_DAT, KNOWS_CALLS = true };
#else
enum { CALL_SLOT, CALL_ADDRESS, KNOWS_CALLS = false };
#endif

static bool is_call(unsigned type) {
    return KNOWS_CALLS && (type == CALL_SLOT || type == CALL_ADDRESS);
}

static bool find_tables(const void *symbol, struct object_tables *out) {
    *out = (struct object_tables){.symbol = symbol};
    return dl_iterate_phdr(look_at_object, out) != 0 && out->symbols != NULL && out->names != NULL;
}

void forbidden_watch(const void *symbol) {
    struct object_tables tables;
    if (!find_tables(symbol, &tables)) {
        return;
    }
    for (int list = 0; list < 2; list++) {
        for (size_t i = 0; tables.calls[list] != NULL && i < tables.n_calls[list]; i++) {
            const ElfW(Rela) *call = &tables.calls[list][i];
            const char *name = tables.names + tables.symbols[ELF64_R_SYM(call->r_info)].st_name;
            for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++) {
                if (is_call((unsigned)ELF64_R_TYPE(call->r_info)) &&
                    strcmp(name, functions[f].name) == 0) {
                    put(tables.base + call->r_offset, functions[f].ours);
                }
            }
        }
    }
}

/* A function of another object that surely takes none. */
static bool takes_no_memory(const char *name) {
    static const char *const names[] = {
        "__gmon_start__",
        "__cxa_finalize",
        "_ITM_registerTMCloneTable",
        "_ITM_deregisterTMCloneTable",
        "memcpy",
        "memmove",
        "memset",
        "memcmp",
        "sqrt",
        "exp",
        "log",
        "pow",
        "__stack_chk_fail",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

bool forbidden_may_allocate(const void *symbol) {
    struct object_tables tables;
    if (!find_tables(symbol, &tables) || !KNOWS_CALLS) {
        return true;
    }
    for (int list = 0; list < 2; list++) {
        for (size_t i = 0; tables.calls[list] != NULL && i < tables.n_calls[list]; i++) {
            const ElfW(Sym) *asked = &tables.symbols[ELF64_R_SYM(tables.calls[list][i].r_info)];
            if (ELF64_R_SYM(tables.calls[list][i].r_info) != 0 && asked->st_shndx == SHN_UNDEF &&
                !takes_no_memory(tables.names + asked->st_name)) {
                return true;
            }
        }
    }
    return false;
}
#else
void forbidden_watch(const void *symbol) {
    (void)symbol;
}

bool forbidden_may_allocate(const void *symbol) {
    (void)symbol;
    return true;
}
#endif
