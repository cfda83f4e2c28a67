#include "sim/policy/plugin/statics.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __ELF__
#include <elf.h>
#include <link.h>
#endif

/* ---- in memory ---- */

#ifdef __ELF__
struct search {
    const char *symbol;
    struct statics *out;
};

static void add_range(struct statics *out, char *from, char *to) {
    if (to > from && out->n < STATICS_MOST_RANGES) {
        out->ranges[out->n++] = (struct statics_range){from, (size_t)(to - from)};
        out->bytes += (size_t)(to - from);
    }
}

/* Where the loader made memory read-only after it had relocated it. */
static void find_relro(const struct dl_phdr_info *info, char **from, char **to) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    *from = *to = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_GNU_RELRO) {
            uintptr_t at = info->dlpi_addr + header->p_vaddr;
            *from = (char *)(at / page * page);
            *to = (char *)((at + header->p_memsz) / page * page);
        }
    }
}

static int look_at_object(struct dl_phdr_info *info, size_t size, void *opaque) {
    const struct search *search = opaque;
    bool has_symbol = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const char *at = (const char *)(info->dlpi_addr + header->p_vaddr);
        has_symbol = has_symbol || (header->p_type == PT_LOAD && search->symbol >= at &&
                                    search->symbol < at + header->p_memsz);
    }
    if (!has_symbol) {
        return 0;
    }
    char *fixed, *fixed_end;
    find_relro(info, &fixed, &fixed_end);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type != PT_LOAD || (header->p_flags & PF_W) == 0) {
            continue;
        }
        char *at = (char *)(info->dlpi_addr + header->p_vaddr), *end = at + header->p_memsz;
        bool is_cut = fixed_end > at && fixed < end;
        add_range(search->out, at, is_cut ? fixed : end);
        add_range(search->out, is_cut ? fixed_end : end, end);
    }
    return 1;
}

void statics_of(const void *symbol, struct statics *out) {
    struct search search = {symbol, out};
    *out = (struct statics){.n = 0};
    (void)dl_iterate_phdr(look_at_object, &search);
}

#else
/* Other formats than ELF are not looked into. */
void statics_of(const void *symbol, struct statics *out) {
    (void)symbol;
    *out = (struct statics){.n = 0};
}
#endif

void statics_keep(const struct statics *statics, void *copy) {
    char *to = copy;
    for (unsigned i = 0; i < statics->n; i++) {
        memcpy(to, statics->ranges[i].at, statics->ranges[i].bytes);
        to += statics->ranges[i].bytes;
    }
}

size_t statics_changed(const struct statics *statics, const void *copy) {
    const char *before = copy;
    size_t changed = 0;
    for (unsigned i = 0; i < statics->n; i++) {
        for (size_t j = 0; j < statics->ranges[i].bytes; j++) {
            changed += statics->ranges[i].at[j] != *before++;
        }
    }
    return changed;
}

/* ---- in the file ---- */

#ifdef __ELF__
struct file {
    const char *bytes;
    size_t size;
};

/* `n` items of a table in the file, or NULL. */
static const void *table_at(const struct file *file, uint64_t offset, uint64_t n, size_t size) {
    bool fits = offset <= file->size && n <= (file->size - offset) / size && offset % 8 == 0;
    return fits ? file->bytes + offset : NULL;
}

/* What compilers put into every object: a mark that its destructors have run, first of all, and a
 * handle. */
static bool is_the_compilers(const ElfW(Sym) * symbol, const ElfW(Shdr) * section,
                             const char *name) {
    bool is_mark = symbol->st_value == section->sh_addr && symbol->st_size == 1;
    return strcmp(name, "__dso_handle") == 0 || (is_mark && strncmp(name, "completed", 9) == 0);
}

static bool is_variable(const ElfW(Sym) * symbol, const ElfW(Shdr) * sections, unsigned n_sections,
                        const char *section_names, const char *names) {
    if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= n_sections ||
        ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || symbol->st_size == 0) {
        return symbol->st_shndx == SHN_COMMON;
    }
    const ElfW(Shdr) *section = &sections[symbol->st_shndx];
    const char *of = section_names + section->sh_name;
    return (section->sh_flags & SHF_WRITE) != 0 && strncmp(of, ".data.rel.ro", 12) != 0 &&
           !is_the_compilers(symbol, section, names + symbol->st_name);
}

static enum statics_found look_at_symbols(const struct file *file) {
    const ElfW(Ehdr) *head = table_at(file, 0, 1, sizeof *head);
    if (head == NULL || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_shentsize != sizeof(ElfW(Shdr))) {
        return STATICS_UNKNOWN;
    }
    const unsigned n = head->e_shnum;
    const ElfW(Shdr) *sections = table_at(file, head->e_shoff, n, sizeof *sections);
    for (unsigned i = 0; sections != NULL && head->e_shstrndx < n && i < n; i++) {
        const ElfW(Shdr) *table = &sections[i], *text = &sections[table->sh_link % n];
        const ElfW(Shdr) *section_text = &sections[head->e_shstrndx];
        uint64_t n_symbols = table->sh_size / sizeof(ElfW(Sym));
        const ElfW(Sym) *symbols = table_at(file, table->sh_offset, n_symbols, sizeof *symbols);
        if (table->sh_type != SHT_SYMTAB || symbols == NULL || text->sh_offset >= file->size ||
            section_text->sh_offset >= file->size) {
            continue;
        }
        bool none = true;
        for (uint64_t j = 0; none && j < n_symbols; j++) {
            none = !is_variable(&symbols[j], sections, n, file->bytes + section_text->sh_offset,
                                file->bytes + text->sh_offset);
        }
        return none ? STATICS_NONE : STATICS_SOME;
    }
    return STATICS_UNKNOWN;
}

enum statics_found statics_in_file(const char *path) {
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    enum statics_found found = STATICS_UNKNOWN;
    if (fd >= 0 && fstat(fd, &about) == 0 && about.st_size > 0) {
        struct file file = {.size = (size_t)about.st_size};
        void *bytes = mmap(NULL, file.size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes != MAP_FAILED) {
            file.bytes = bytes;
            found = look_at_symbols(&file);
            munmap(bytes, file.size);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return found;
}
#else
enum statics_found statics_in_file(const char *path) {
    (void)path;
    return STATICS_UNKNOWN;
}
#endif
