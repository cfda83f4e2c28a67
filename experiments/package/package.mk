# Reference pages, installation, packages for Debian and for Python.
#
#   make install PREFIX=/usr/local DESTDIR=      program, data, headers of policies, manual, completion
#   make deb                                     build/unmask_VERSION_ARCH.deb
#   make wheel                                   build/wheel/unmask-VERSION-PLATFORM.whl, for glibc 2.28 and newer
#   make wheel GLIBC=host                        the same for this machine's glibc and newer, without PyPI's linker

PREFIX  ?= /usr/local
DESTDIR ?=
PACKAGE := experiments/package
VERSION := $(shell sed -n 's/^\#define UNMASK_VERSION "\(.*\)"/\1/p' sim/base/build.h)
PROGRAM ?= $(BUILD)/unmask

# What the program reads, in the same folders as in the source tree.
DATA := analysis/plot/report.html kernels/profiles sim/model/models sim/model/gpus sim/model/families \
        sim/price/runtimes traces/quantiles.csv traces/workloads traces/samples $(wildcard experiments/study/*.ini experiments/study/*.csv) \
        experiments/study/hosts experiments/study/paper experiments/study/studies experiments/study/reference experiments/train/models \
        experiments/train/prompts
MEASURED = $(shell grep -rhoE 'experiments/gpu/results/[A-Za-z0-9_./-]+[A-Za-z0-9]' experiments/study/studies --include=*.ini | sort -u)
TEMPLATES := $(wildcard tests/plugins/template_*.c)

.PHONY: install reference paper-tables docs deb package-test wheel wheel-test wheel-oldest python-test python-bench

reference: $(BUILD)/manual ## renew the pages of docs/reference that are made, and Python's options, from the program's tables
	$(Q)$(BUILD)/manual commands >docs/reference/commands.md
	$(Q)rm -rf docs/reference/commands && mkdir docs/reference/commands
	$(Q)for group in $$($(BUILD)/manual groups); do \
	    $(BUILD)/manual group $$group >docs/reference/commands/$$group.md || exit 1; done
	$(Q)$(BUILD)/manual keys >docs/reference/keys.md
	$(Q)$(BUILD)/manual features >docs/reference/features.md
	$(Q)$(BUILD)/manual cautions >docs/reference/cautions.md
	$(Q)$(BUILD)/manual fields >docs/reference/fields.md
	$(Q)$(BUILD)/manual endpoints >docs/reference/endpoints.md
	$(Q)$(BUILD)/manual python >experiments/python/unmask/_options.py
	$(Q)python3 experiments/python/stubs.py >$(BUILD)/__init__.pyi && mv $(BUILD)/__init__.pyi experiments/python/unmask/__init__.pyi

paper-tables: all ## renew the tables of docs/papers: every figure is run, more than a minute
	$(Q)$(BUILD)/unmask figure --all --out $(BUILD)/paper-tables >/dev/null
	$(Q)python3 $(PACKAGE)/paper_tables.py $(BUILD)/unmask $(BUILD)/paper-tables

docs: all $(BUILD)/manual $(BUILD)/refit plugins ## run every command of the documentation, compare made pages and profiles, follow links
	@python3 tests/docs/check.py $(BUILD)

JOURNEYS ?=
journeys: all $(BUILD)/manual plugins ## answer fourteen questions of a new user by the commands of the pages: a table of times (JOURNEYS='3 6': which)
	@python3 tests/journeys.py $(BUILD) $(JOURNEYS)

INSTALLED = $(DESTDIR)$(PREFIX)
install: $(PROGRAM) $(BUILD)/manual ## install under PREFIX (default: /usr/local), below DESTDIR
	$(say) COPY $(INSTALLED)
	$(Q)install -d $(INSTALLED)/bin $(INSTALLED)/share/unmask $(INSTALLED)/share/man/man1 $(INSTALLED)/include/unmask \
	    $(INSTALLED)/share/doc/unmask/examples $(INSTALLED)/share/bash-completion/completions \
	    $(INSTALLED)/share/zsh/site-functions $(INSTALLED)/share/fish/vendor_completions.d
	$(Q)install -s $(PROGRAM) $(INSTALLED)/bin/unmask
	$(Q)tar c --exclude='.*' $(DATA) $(MEASURED) | tar x --no-same-owner -C $(INSTALLED)/share/unmask
	$(Q)for header in $$($(CC) -MM -I. $(TEMPLATES) | grep -o '[a-z/_]*\.h' | sort -u); do \
	    install -d $(INSTALLED)/include/unmask/$${header%/*} && \
	    awk -f $(PACKAGE)/headers.awk $$header >$(INSTALLED)/include/unmask/$$header || exit 1; done
	$(Q)for page in $$($(BUILD)/manual pages); do \
	    $(BUILD)/manual page $$page | gzip -n9 >$(INSTALLED)/share/man/man1/$$page.1.gz; done
	$(Q)$(BUILD)/manual bash >$(INSTALLED)/share/bash-completion/completions/unmask
	$(Q)$(BUILD)/manual zsh >$(INSTALLED)/share/zsh/site-functions/_unmask
	$(Q)$(BUILD)/manual fish >$(INSTALLED)/share/fish/vendor_completions.d/unmask.fish
	$(Q)install -m 644 $(TEMPLATES) $(INSTALLED)/share/doc/unmask/examples
	$(Q)install -m 644 LICENSE README.md CHANGELOG.md CITATION.cff $(INSTALLED)/share/doc/unmask
	$(Q)tar c docs | tar x --no-same-owner -C $(INSTALLED)/share/doc/unmask
	$(Q)if [ -e $(BUILD)/kernels/libunmask_cuda.so ]; then \
	    install -D -s -m 644 $(BUILD)/kernels/libunmask_cuda.so $(INSTALLED)/lib/unmask/libunmask_cuda.so; fi
	$(Q)if [ -e $(dir $(PROGRAM))libunmask_blas.so ]; then \
	    install -D -s -m 644 $(dir $(PROGRAM))libunmask_blas.so $(INSTALLED)/lib/unmask/libunmask_blas.so; fi
	$(Q)if [ -n "$(MPI_LINK)" ] && [ -e "$(MPI_LINK)" ]; then \
	    install -D -s -m 644 $(MPI_LINK) $(INSTALLED)/lib/unmask/libunmask_mpi.so; fi
	$(Q)if [ -n "$(HTTP_LINK)" ] && [ -e "$(HTTP_LINK)" ]; then \
	    install -D -s -m 644 $(HTTP_LINK) $(INSTALLED)/lib/unmask/libunmask_http.so; fi

DEB_ARCH := $(shell dpkg --print-architecture 2>/dev/null)
deb: $(BUILD)/unmask_$(VERSION)_$(DEB_ARCH).deb ## build a Debian package
$(BUILD)/unmask_$(VERSION)_$(DEB_ARCH).deb: $(PROGRAM) FORCE
	@sh .ci/packages dpkg-dev
	$(Q)rm -rf $(BUILD)/deb $(BUILD)/unmask_*.deb && mkdir -p $(BUILD)/deb/debian
	@$(MAKE) --no-print-directory install PREFIX=/usr DESTDIR=$(BUILD)/deb/root
	$(Q)sh $(PACKAGE)/deb.sh $(BUILD)/deb $(VERSION) $(DEB_ARCH)
	$(say) DEB $@
	$(Q)SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 0) \
	    dpkg-deb --root-owner-group -Zgzip --build $(BUILD)/deb/root $@ >/dev/null

package-test: deb ## install and pack into scratch folders, and try what came out
	@tests/package.sh $(BUILD)

# Policies in Python, each a copy of one of these: in the wheel, and for the module as it stands in the clone.
SHIMS := $(patsubst %,$(BUILD)/python/%.so,scheduler cache decoder router)
all: $(SHIMS)
$(BUILD)/python/scheduler.so: SHIM :=
$(BUILD)/python/cache.so: SHIM := -DSHIM_CACHE
$(BUILD)/python/decoder.so: SHIM := -DSHIM_DECODER
$(BUILD)/python/router.so: SHIM := -DSHIM_ROUTER
$(SHIMS): experiments/python/unmask/shim.c
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CC) -I. $(CSTD) $(WARN) $(WERROR) $(SHIM) -O2 -s -shared -fPIC -MMD -MP -MF $(@:.so=.d) -o $@ $<
-include $(SHIMS:.so=.d)

# The wheel has the portable program, which needs nothing but libc, beside a module in Python. Objects are the compiler's as
# always, and the library of `unmask serve`, which needs one of the system, is left out; PyPI's ziglang links them against the symbols that glibc had at version GLIBC, so that older systems load them.
GLIBC ?= 2.28
WHEEL := $(BUILD)/wheel
ifeq ($(GLIBC),host)
WHEEL_PROGRAM := $(BUILD)/portable/unmask
else
WHEEL_PROGRAM := $(BUILD)/glibc-$(GLIBC)/unmask
endif
ZIG    := $(BUILD)/zig/venv/bin/python -m ziglang
OLD_LD  = ZIG_GLOBAL_CACHE_DIR=$(abspath $(BUILD))/zig/cache $(ZIG) cc -target $(shell uname -m)-linux-gnu.$(GLIBC)
ARCHIVE = $(shell $(CC) -print-file-name=lib$(1).a)
$(BUILD)/zig/ready:
	@sh .ci/packages python3-venv
	@mkdir -p $(@D)
	$(Q)[ -x $(@D)/venv/bin/python ] || python3 -m venv $(@D)/venv
	$(Q)$(@D)/venv/bin/pip install -q --disable-pip-version-check 'ziglang==0.17.1'
	@touch $@
$(BUILD)/glibc-%/unmask: $(BUILD)/experiments/command/main.o $(BUILD)/experiments/package/older.o $(BUILD)/libunmask.a \
                         $(BUILD)/glibc-%/libunmask_blas.so
	$(say) LD $@
	$(Q)$(OLD_LD) -rdynamic -o $@ $(filter %.o %.a,$^) -L$(dir $(call ARCHIVE,sqlite3)) $(PORTABLE_LIBS)
$(BUILD)/glibc-%/libunmask_blas.so: $(BUILD)/zig/ready
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)echo 'extern int unmask_blas; int unmask_blas;' | $(CC) -xc -c -fPIC -o $(@D)/blas.o -
	$(Q)$(OLD_LD) -shared -o $@ $(@D)/blas.o -Wl,-u,sgemm_ -Wl,-z,defs $(call ARCHIVE,openblas) -lpthread -lm

wheel: $(BUILD)/manual $(SHIMS) ## build a wheel for Python in build/wheel, for glibc 2.28 and newer (GLIBC=host: this machine's)
	@$(MAKE) --no-print-directory $(WHEEL_PROGRAM)
	$(Q)rm -rf $(WHEEL) && mkdir -p $(WHEEL)/staged/unmask/lib
	@$(MAKE) --no-print-directory install PROGRAM=$(WHEEL_PROGRAM) HTTP_LINK= PREFIX=/unmask DESTDIR=$(WHEEL)/staged
	$(Q)cd $(WHEEL)/staged/unmask/share && rm -rf man zsh fish bash-completion doc/unmask/docs
	$(Q)cp experiments/python/unmask/*.py experiments/python/unmask/*.pyi experiments/python/unmask/py.typed $(WHEEL)/staged/unmask
	$(Q)cp $(SHIMS) $(WHEEL)/staged/unmask/lib
	$(Q)python3 experiments/python/wheel.py $(WHEEL)/staged $(VERSION) $(WHEEL) $(GLIBC)

wheel-test: wheel ## install the wheel into a virtual environment, run its tests and the tutorial
	$(Q)[ -x $(BUILD)/venv/bin/python ] || python3 -m venv $(BUILD)/venv
	$(Q)$(BUILD)/venv/bin/pip install -q --disable-pip-version-check --force-reinstall --no-deps $(WHEEL)/unmask-*.whl
	$(Q)$(BUILD)/venv/bin/pip install -q --disable-pip-version-check 'pandas>=2.0'
	@cd $(WHEEL) && for suite in $(CURDIR)/experiments/python/test_*.py; do ../venv/bin/python -I $$suite || exit 1; done
	@cd $(WHEEL) && ../venv/bin/python -I $(CURDIR)/experiments/python/tutorial.py >tutorial.log && echo "tutorial: ran"

wheel-oldest: wheel ## load and run the wheel in the oldest Debian that the mirror serves (root, mmdebstrap)
	@tests/wheel_oldest.sh $(WHEEL)/unmask-*.whl

python-test: wheel ## run the wheel's suites under Python 3.9, 3.11 and 3.13, pandas 2.0 and 3, polars, and in a Jupyter kernel: minutes
	@python3 experiments/python/python_test.py $(WHEEL)/unmask-*.whl $(BUILD)/python-test

python-bench: $(SHIMS) $(BUILD)/unmask ## what a decision of a policy in Python costs (a Python with pandas: PYTHON=...)
	@$(or $(PYTHON),python3) experiments/python/bench_decisions.py

# Every file of the program, compiled for macOS by PyPI's clang with its headers of that system; the libraries' are this
# machine's. Nothing is linked or run.
MAC         := $(BUILD)/mac
MAC_HEADERS := sqlite3.h zlib.h zconf.h zstd.h zstd_errors.h pcre2.h utf8proc.h jansson.h jansson_config.h ini.h gsl glpk.h nettle
MAC_OBJS    := $(patsubst %.c,$(MAC)/%.o,$(LIB_SRCS) $(MAINS))
$(MAC)/ready: $(BUILD)/zig/ready
	@mkdir -p $(MAC)/include
	$(Q)for header in $(MAC_HEADERS); do \
	    for folder in $(subst :, ,$(C_INCLUDE_PATH)) /usr/include /usr/include/$$($(CC) -print-multiarch); do \
	        [ ! -e $$folder/$$header ] || ln -sfn $$folder/$$header $(MAC)/include/$$header; done; done
	@touch $@
$(MAC)/%.o: %.c $(MAC)/ready
	@mkdir -p $(@D)
	$(say) MAC $<
	$(Q)ZIG_GLOBAL_CACHE_DIR=$(abspath $(MAC))/cache $(ZIG) cc -target aarch64-macos $(OUR_CPPFLAGS) $(DATA_DIR) \
	    -I$(MAC)/include $(CSTD) $(FPFLAGS) -O0 -c $< -o $@
mac-check: packages ## compile every file for macOS on Apple's processors (nothing is run)
	@$(MAKE) --no-print-directory $(MAC_OBJS)
	@echo "mac-check: $(words $(MAC_OBJS)) files compile for aarch64-macos; nothing was run"
