# unmask: one non-recursive Makefile. `make help` lists the targets, V=1 shows the commands.
# Objects, libraries and programs go under build/, what a user asks to be drawn under out/.

BUILD  ?= build
OUT    ?= out
CC     ?= gcc
CSTD   := -std=c11
WARN   := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wvla \
          -Wstrict-prototypes -Wmissing-prototypes -Wundef
OPT    ?= -O3
# Without contraction and value-changing optimisation the same inputs give the same bytes anywhere.
FPFLAGS := -ffp-contract=off -fno-fast-math
# Structs are cleared and copied word by word: gcc takes rep stos and rep movs from some 64 bytes on, whose start lasts
# longer than the rest, a tenth of a simulated step.
OF_STRUCTS := $(foreach what,memset memcpy,-m$(what)-strategy=unrolled_loop:512:noalign,libcall:-1:noalign)
OF_STRUCTS := $(shell $(CC) $(OF_STRUCTS) -fsyntax-only -xc /dev/null >/dev/null 2>&1 && echo '$(OF_STRUCTS)')
PKG_CONFIG ?= pkg-config
comma := ,
space := $(subst ,, )
# CPPFLAGS, CFLAGS, LDFLAGS and LIBS are the owner's, on the command line or in the environment, and stand beside ours. What
# makes the bytes comes last: no flag of the owner takes it away.
export CC CPPFLAGS CFLAGS LDFLAGS LIBS PKG_CONFIG
LIBRARIES     := $(BUILD)/libraries
OUR_CPPFLAGS  := -I. -D_GNU_SOURCE
OUR_CFLAGS     = $(OPT) $(OF_STRUCTS) -g $(WARN) $(CFLAGS) $(CSTD) $(FPFLAGS) $(WERROR) $(SAN)
OUR_LDFLAGS    = $(CFLAGS) $(SAN) $(LDFLAGS)
OUR_LIBS      := @$(LIBRARIES)/libs -ldl -lpthread -lm
COMPILE        = $(CC) $(OUR_CPPFLAGS) $(CPPFLAGS) @$(LIBRARIES)/cflags $(OUR_CFLAGS)
LINK           = $(CC) $(OUR_LDFLAGS)

# For machines that have a GPU but none of the packages.
PORTABLE_LIBS := -Wl,-Bstatic -lsqlite3 -lz -lzstd -lpcre2-8 -lutf8proc -ljansson -linih -lgsl -lgslcblas \
                 -lglpk -lcolamd -lamd -lsuitesparseconfig -lltdl -lgmp -lnettle -lz -Wl,-Bdynamic -ldl -lpthread -lm

# OpenBLAS is loaded by who multiplies (kernels/ref/cpu_blas.h).
PACKAGES := gcc make pkg-config $(shell awk -F'|' '/^(program|tests)[|]/ { print $$8 }' .ci/libraries.txt) \
            libopenblas-dev libltdl-dev libmicrohttpd-dev gnuplot-nox
LINT_PACKAGES := patch clang-format clang-tidy cppcheck clang libclang-rt-14-dev

# LOCAL=1: without root on Debian and Ubuntu, packages lie in the build folder (.ci/local).
ifneq ($(LOCAL),)
LOCAL_ROOT  := $(abspath $(BUILD))/local
LOCAL_ARCH  := $(shell $(CC) -print-multiarch)
LOCAL_LIBS  := $(LOCAL_ROOT)/usr/lib/$(LOCAL_ARCH) $(LOCAL_ROOT)/lib/$(LOCAL_ARCH)
BLAS_DIR    := $(LOCAL_ROOT)/usr/lib/$(LOCAL_ARCH)/openblas-pthread
LOCAL_RPATH := -Wl,--disable-new-dtags $(patsubst %,-Wl$(comma)-rpath$(comma)%,$(LOCAL_LIBS) $(BLAS_DIR))
OUR_LDFLAGS += $(LOCAL_RPATH)
export C_INCLUDE_PATH := $(LOCAL_ROOT)/usr/include:$(LOCAL_ROOT)/usr/include/$(LOCAL_ARCH)
export LIBRARY_PATH   := $(subst $(space),:,$(LOCAL_LIBS))
export PATH           := $(LOCAL_ROOT)/bin:$(PATH)
endif

ifeq ($(V),1)
Q :=
say = @:
else
Q := @
say = @printf '  %-4s %s\n'
endif

LIB_DIRS := $(patsubst %/,%,$(foreach top,sim engine kernels traces analysis experiments,$(wildcard $(top)/ $(top)/*/ $(top)/*/*/)))
MAINS    := experiments/command/main.c experiments/package/manual.c experiments/package/older.c experiments/gpu/refit.c
LIB_SRCS := $(filter-out $(MAINS) experiments/run/ranks/link_mpi.c experiments/serve/http_mhd.c,$(wildcard $(addsuffix /*.c,$(LIB_DIRS))))
LIB_OBJS := $(LIB_SRCS:%.c=$(BUILD)/%.o)
TESTS    := $(patsubst %.c,$(BUILD)/%,$(filter-out tests/gpu/%,$(wildcard tests/*/test_*.c)))
# A third of the time of a build was theirs.
$(TESTS:%=%.o): OPT = -O1
# Without debugging information, and by gold where it is, a suite is linked in a third of the time; sanitizers name lines by it.
QUICK_LINK := $(shell for o in '-Wl,-S -fuse-ld=gold' -Wl,-S; do \
                  echo 'int main(void) { return 0; }' | $(CC) $$o -xc - -o /dev/null 2>/dev/null && echo "$$o" && break; done)
TEST_LINK = $(LINK) $(if $(SAN),,$(QUICK_LINK))
# A file that asks for PLUGIN_NAME in an #if is compiled once for each NAME, any other is one plug-in.
ASKS_NAME := ^.[el]*if.*PLUGIN_
PLUGIN_C  := $(wildcard tests/plugins/*.c)
SEVERAL   := $(shell grep -l '$(ASKS_NAME)' $(PLUGIN_C))
SINGLE    := $(patsubst tests/plugins/%.c,$(BUILD)/plugins/%.so,$(filter-out $(SEVERAL),$(PLUGIN_C)))
PLUGINS_OF = $(patsubst %,$(BUILD)/plugins/%.so,$(sort $(shell grep '$(ASKS_NAME)' $(1) | grep -o 'PLUGIN_[a-z_]*' | cut -d_ -f2-)))
PLUGINS   := $(SINGLE) $(foreach f,$(SEVERAL),$(call PLUGINS_OF,$(f)))
C_FILES  := $(shell git ls-files -co --exclude-standard '*.c' '*.h' 2>/dev/null | sort)

.DEFAULT_GOAL := all
.PHONY: all help clean test profiles mpi bench-ranks plugins demo bench golden figures portable bundle bench-gpu packages lint format asan faults torture torture-each crowd kills threads browser breaks settings-test mutate coverage fuzz FORCE saturation starvation serve-test serve-bench serve-clients serve-torture distributions oldest mac-check toolchains house-test freeze slurm-test container-test
.DELETE_ON_ERROR:
.SECONDARY:

# Where MPI is found, the library by which ranks of mpirun and srun talk; the program does without.
MPICC    ?= $(shell command -v mpicc)
MPI_LINK := $(if $(MPICC),$(BUILD)/libunmask_mpi.so)

# Where libmicrohttpd's header is found, the library by which `unmask serve` talks HTTP; the program does without.
HTTP_LINK := $(shell C_INCLUDE_PATH='$(C_INCLUDE_PATH)' $(CC) $(CPPFLAGS) $(CFLAGS) -include microhttpd.h -E -xc /dev/null \
                 >/dev/null 2>&1 && echo $(BUILD)/libunmask_http.so)

all: $(BUILD)/unmask $(MPI_LINK) $(HTTP_LINK) ## build the program
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

# ---- building ----

# Which program this is: the commit, whether its sources differ from it, and a digest over them. The
# file changes, and what includes it is built again, only when one of these does.
ID_FILES := $(sort $(LIB_SRCS) experiments/command/main.c \
            $(wildcard $(foreach d,$(LIB_DIRS),$d/*.h $d/*.def)))
$(BUILD)/build_id.h: FORCE
	@mkdir -p $(@D)
	@commit=unknown; [ -e .git ] && commit=$$(git rev-parse --verify -q HEAD 2>/dev/null || echo unknown); \
	changed=$$(git status --porcelain -- $(LIB_DIRS) 2>/dev/null | grep -c '\.[ch]$$'); \
	{ echo "#define BUILD_COMMIT \"$$commit\""; \
	  [ "$$changed" = 0 ] && echo "#define BUILD_DIRTY false" || echo "#define BUILD_DIRTY true"; \
	  echo "#define BUILD_SOURCES \"$$(sha256sum $(ID_FILES) | sha256sum | cut -d' ' -f1)\""; } >$@.new; \
	cmp -s $@.new $@ && rm $@.new || mv $@.new $@
FORCE:
$(BUILD)/sim/base/build.o: OUR_CPPFLAGS += -include $(BUILD)/build_id.h
$(BUILD)/sim/base/build.o: $(BUILD)/build_id.h

# Where the data lie that ship with the sources: one file knows, so that all others compile alike in any folder.
DATA_DIR := -DUNMASK_DATA_DIR='"$(CURDIR)"'
$(BUILD)/sim/base/input/datadir.o: OUR_CPPFLAGS += $(DATA_DIR)
# Likewise where OpenBLAS is, for systems whose loader does not know.
BLAS_DIR ?= $(shell $(PKG_CONFIG) --variable=libdir openblas 2>/dev/null)
$(BUILD)/kernels/ref/cpu_blas.o: OUR_CPPFLAGS += $(if $(BLAS_DIR),-DUNMASK_BLAS_DIR='"$(BLAS_DIR)/"')

# What compiling and linking with the libraries takes, and the owner's flags: where they differ all is built anew.
$(LIBRARIES)/owner: FORCE
	@mkdir -p $(@D)
	@LDFLAGS="$(LOCAL_RPATH) $$LDFLAGS" sh .ci/libraries program $(@D)/cflags $(@D)/libs
	@{ echo "$$CPPFLAGS $$CFLAGS $$LDFLAGS $$LIBS"; cat $(@D)/cflags $(@D)/libs; } >$@.new; \
	cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(BUILD)/%.o: %.c $(LIBRARIES)/owner
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(COMPILE) -MMD -MP -c $< -o $@

$(BUILD)/libunmask.a: $(LIB_OBJS)
	$(say) AR $@
	$(Q)rm -f $@ && ar rcs $@ $^

# Plug-ins that end the program find our _exit (sim/policy/plugin/call_watch.c); linkers from before 2020 export all or nothing.
EXPORTS = $$(echo 'int main(void) { return 0; }' | $(CC) -xc - -o /dev/null -Wl,--export-dynamic-symbol=_exit 2>/dev/null && \
          echo -Wl,--export-dynamic-symbol=_exit -Wl,--export-dynamic-symbol=_Exit || echo -rdynamic)
$(BUILD)/unmask: $(BUILD)/experiments/command/main.o $(BUILD)/libunmask.a
	$(say) LD $@
	$(Q)$(LINK) $(EXPORTS) -o $@ $(filter %.o %.a,$^) $(OUR_LIBS) $(LIBS)

$(LIBRARIES)/check-libs: FORCE
	@mkdir -p $(@D)
	@LDFLAGS="$(LOCAL_RPATH) $$LDFLAGS" sh .ci/libraries tests $(LIBRARIES)/check-cflags $@

$(TESTS:%=%.o): OUR_CPPFLAGS += @$(LIBRARIES)/check-cflags
$(TESTS:%=%.o): $(LIBRARIES)/check-libs
$(TESTS): %: %.o $(BUILD)/libunmask.a $(LIBRARIES)/check-libs
	$(say) LD $@
	$(Q)$(TEST_LINK) -o $@ $(filter %.o,$^) $(filter %.a,$^) @$(LIBRARIES)/check-libs $(OUR_LIBS) $(LIBS)

# Suites that fork the program instead of starting it (tests/support/cli.h); under sanitizers they start it.
FORKING := $(if $(SAN),,$(addprefix $(BUILD)/tests/,experiments/test_plugin_runs))
$(BUILD)/tests/support/program.o: $(BUILD)/experiments/command/main.o
	@mkdir -p $(@D)
	$(Q)objcopy --redefine-sym main=program_main $< $@
$(FORKING): $(BUILD)/tests/support/program.o
$(FORKING): TEST_LINK += $(EXPORTS)

CROWD_OBJS := $(BUILD)/tests/analysis/crowd.o $(BUILD)/tests/analysis/crowd_explore.o
$(BUILD)/tests/analysis/test_protocol: $(CROWD_OBJS)
$(BUILD)/tests/kernels/test_limits: $(BUILD)/tests/kernels/launches.o

$(BUILD)/tests/experiments/bench_ranks: $(BUILD)/tests/experiments/bench_ranks.o $(BUILD)/libunmask.a
	$(say) LD $@
	$(Q)$(LINK) -o $@ $(filter %.o %.a,$^) $(OUR_LIBS) $(LIBS)

$(BUILD)/tests/sim/bench_%: $(BUILD)/tests/sim/bench_%.o $(BUILD)/libunmask.a
	$(say) LD $@
	$(Q)$(LINK) -o $@ $(filter %.o %.a,$^) $(OUR_LIBS) $(LIBS)

$(SINGLE): $(BUILD)/plugins/%.so: tests/plugins/%.c
$(foreach f,$(SEVERAL),$(eval $(call PLUGINS_OF,$(f)): $(f)))
$(PLUGINS):
	@mkdir -p $(@D)
	$(say) SO $@
	$(Q)$(CC) -I. $(CSTD) $(WARN) -DPLUGIN_$(basename $(@F)) -O2 -shared -fPIC -MMD -MP -o $@ $<

# Prints reference pages, man pages and completion from the program's tables.
$(BUILD)/manual: $(BUILD)/experiments/package/manual.o $(BUILD)/libunmask.a
	$(say) LD $@
	$(Q)$(LINK) -o $@ $(filter %.o %.a,$^) $(OUR_LIBS) $(LIBS)

# A profile of several calibrations.
profiles: $(BUILD)/refit ## make the measured profiles again from experiments/gpu/calibrations, into build/profiles
	@python3 experiments/gpu/profiles.py $(BUILD) $(BUILD)/profiles
$(BUILD)/refit: $(BUILD)/experiments/gpu/refit.o $(BUILD)/libunmask.a
	$(say) LD $@
	$(Q)$(LINK) -o $@ $(filter %.o %.a,$^) $(OUR_LIBS) $(LIBS)

$(BUILD)/libunmask_mpi.so: experiments/run/ranks/link_mpi.c experiments/run/ranks/link.h
	@mkdir -p $(@D)
	$(say) MPI $@
	$(Q)$(MPICC) -I. $(CSTD) $(WARN) $(WERROR) -O2 -shared -fPIC -o $@ $<

$(BUILD)/libunmask_http.so: experiments/serve/http_mhd.c experiments/serve/http.h sim/base/monotonic.h
	@mkdir -p $(@D)
	$(say) HTTP $@
	$(Q)$(CC) -I. -D_GNU_SOURCE $(CPPFLAGS) $(CFLAGS) $(CSTD) $(WARN) $(WERROR) $(SAN) -O2 -g -shared -fPIC -o $@ $< $(LDFLAGS) $(LOCAL_RPATH) \
	    -lmicrohttpd -lpthread

# One program for machines that have a GPU but none of the packages: GSL, OpenBLAS, SQLite, PCRE2, utf8proc, jansson,
# inih and Nettle are linked statically.
portable: $(BUILD)/portable/unmask ## build one binary without package dependencies
$(BUILD)/portable/unmask: $(BUILD)/experiments/command/main.o $(BUILD)/libunmask.a $(BUILD)/portable/libunmask_blas.so
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(LINK) $(EXPORTS) -o $@ $(filter %.o %.a,$^) $(PORTABLE_LIBS)

$(BUILD)/portable/libunmask_blas.so:
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CC) -shared -o $@ -Wl,-u,sgemm_ -Wl,-z,defs -l:libopenblas.a -lpthread -lm

# ---- using ----

# All cores where the command line has no -j: for whoever types what README says.
ALL_CORES = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 1))

packages: ## install the packages that are missing (LOCAL=1: into the build folder, without root)
	@mkdir -p $(LIBRARIES)
	@UNLESS='sh .ci/libraries program $(LIBRARIES)/seen $(LIBRARIES)/seen && command -v gnuplot' \
	    $(if $(LOCAL),sh .ci/local $(LOCAL_ROOT),sh .ci/packages) $(PACKAGES)

demo: packages ## install, build, replay a real trace through five systems, draw a figure
	@$(MAKE) --no-print-directory $(ALL_CORES) all
	@mkdir -p $(OUT)
	$(BUILD)/unmask compare --gpu l40s --workload burst-replay \
	    --systems sparse-dllm-published,dllm-cache-published,fast-dllm-published,dllm-serve-published,dllm-serve
	$(BUILD)/unmask figure dllm-serve-table4 --out $(OUT)

figures: all ## draw every figure into out/, with the paper-versus-ours tables
	$(BUILD)/unmask figure --all --out $(OUT)

# One suite more than there are cores: some wait, for clocks, locks and time limits.
test: packages ## install what is missing, build, run every test suite
	@$(MAKE) --no-print-directory $(ALL_CORES) all $(TESTS) $(PLUGINS)
	@$(MAKE) --no-print-directory $(if $(ALL_CORES),-j$$(( $(ALL_CORES:-j%=%) + 1 ))) $(TESTS:%=%.run)
	@cat $(TESTS:%=%.times) | sort -rn | awk '{ all += $$1 } NR <= 8 { longest = longest (NR > 1 ? ", " : "") $$2 " " $$1 } \
	    END { printf "%d suites passed in %.0f s of CPU time; the longest: %s\n", NR, all, longest }'

plugins: $(PLUGINS)

starvation: $(BUILD)/tests/sim/test_starvation ## serve every load under every scheduler with every cache policy
	@UNMASK_MATRIX=all CK_DEFAULT_TIMEOUT=600 $<

# Side by side under -j, each suite's words in one piece, and what it took of processor time: minutes and seconds, user's
# and system's, of the shell's children.
$(TESTS:%=%.run): %.run: %
	@UNMASK=$(BUILD)/unmask UNMASK_PLUGINS=$(BUILD)/plugins $< >$<.log 2>&1; status=$$?; times >$<.times; \
	    awk -F'[ms ]+' -v suite=$(@F:.run=) 'END { printf "%.1f %s\n", 60 * $$1 + $$2 + 60 * $$3 + $$4, suite }' $<.times >$<.took && \
	    mv $<.took $<.times; cat $<.log; exit $$status

GOLDEN_TESTS := $(addprefix $(BUILD)/tests/,analysis/test_analysis analysis/test_offered analysis/test_plot experiments/test_cli \
                  experiments/test_kept experiments/test_kept_commands fuzz/test_corpus sim/test_trial sim/test_starvation)
golden: all $(GOLDEN_TESTS) ## renew what tests/golden keeps of outputs, runs and readers
	@for suite in $(GOLDEN_TESTS); do UNMASK_GOLDEN=write UNMASK=$(BUILD)/unmask $$suite || exit 1; done
	@git diff --stat tests/golden

bench: all $(BUILD)/tests/sim/bench_sim $(BUILD)/tests/sim/bench_plan ## measure simulator and planners
	@$(BUILD)/tests/sim/bench_sim
	@mkdir -p $(BUILD)/minimalloc && tar xzf tests/golden/instances/minimalloc.tar.gz -C $(BUILD)/minimalloc
	@UNMASK_INSTANCES=$(BUILD)/minimalloc $(BUILD)/tests/sim/bench_plan
	@sh -c 't0=$$(date +%s%N); $(BUILD)/unmask figure --all --out $(BUILD)/bench-figures >/dev/null 2>&1; \
	    t1=$$(date +%s%N); echo "all figures                     $$(( (t1 - t0) / 1000000 )) ms"'

# Program, library, data and GPU tests in one archive, for a machine with a GPU and nothing else.
bundle: kernels portable ## pack everything a GPU machine needs into build/unmask-bundle.tar.gz
	@mkdir -p $(BUILD)/bundle/unmask/build/portable $(BUILD)/bundle/unmask/build/kernels \
	    $(BUILD)/bundle/unmask/build/tests/gpu
	$(Q)strip -o $(BUILD)/bundle/unmask/build/portable/unmask $(BUILD)/portable/unmask
	$(Q)for t in $(GPU_TESTS) $(GPU_BENCHES); do \
	    strip -o $(BUILD)/bundle/unmask/build/tests/gpu/$$(basename $$t) $$t; done
	$(Q)cp $(BUILD)/kernels/libunmask_cuda.so $(BUILD)/bundle/unmask/build/kernels/
	$(Q)cp $(BUILD)/portable/libunmask_blas.so $(BUILD)/bundle/unmask/build/portable/
	$(Q)tar c --exclude=tests/golden/allocations.tar.gz --exclude=tests/golden/instances kernels/profiles kernels/*.h kernels/rules \
	    kernels/kernels.def sim/model/models sim/model/gpus sim/model/families sim/price/runtimes traces experiments docs tests/golden \
	    tests/gpu/memory.sh tests/gpu/canvas_peers.py LICENSE README.md | tar x -C $(BUILD)/bundle/unmask
	$(Q)printf '%s\n' '#!/bin/sh' '# Runs the GPU tests of this folder.' 'cd "$$(dirname "$$0")" || exit 1' \
	    'export UNMASK_DATA="$$PWD"' 'for t in build/tests/gpu/test_*; do' \
	    '    case $$t in */test_engine) "$$t" build/kernels/libunmask_cuda.so ;;' \
	    '        */test_long | */test_swap) "$$t" cuda build/kernels/libunmask_cuda.so ;; *) "$$t" ;; esac || exit 1' \
	    'done' >$(BUILD)/bundle/unmask/test-gpu && chmod +x $(BUILD)/bundle/unmask/test-gpu
	$(say) TAR $(BUILD)/unmask-bundle.tar.gz
	$(Q)tar czf $(BUILD)/unmask-bundle.tar.gz -C $(BUILD)/bundle unmask

bench-gpu: kernels ## measure kernels next to what PyTorch runs for the same work, on a GPU
	@mkdir -p $(OUT)/bench-gpu
	$(BUILD)/tests/gpu/bench_vmm cuda $(BUILD)/kernels/libunmask_cuda.so $(OUT)/bench-gpu/vmm.csv
	$(BUILD)/tests/gpu/bench_swap cuda $(BUILD)/kernels/libunmask_cuda.so $(OUT)/bench-gpu/swap.csv
	$(BUILD)/tests/gpu/bench_decode
	CUDA_MODULE_LOADING=EAGER python3 experiments/gpu/bench_kernels.py $(BUILD)/kernels/libunmask_cuda.so $(OUT)/bench-gpu/kernels.csv

# ---- checking ----

# A call that writes and a lone | behind it or before it, over any lines: C does not say which of
# its sides comes first.
WRITES     := \b(?:put[a-z_]*|[a-z_]*_(?:set|append)(?:_new)?|f?printf|fput[cs]|fwrite)
IN_PARENS  := (\((?:[^()"\x27]|"(?:[^"\\]|\\.)*"|\x27(?:[^\x27\\]|\\.)*\x27|(?-1))*\))
UNORDERED  := $(WRITES)$(IN_PARENS)(?:\s*[!=<>]=?\s*\w+\)?)?\s*[|](?![|=])|[^|][|]\s*\(?$(WRITES)\(
# The inside of a window, but for one that is made, and products of a block's size: where positions lie
# and how far apart their arrays stand is the business of sim/policy/window.h alone.
AROUND_WINDOW := (->|\.)window\b(?! = window_of\()|[*] *([a-z_]+(->|\.))+(?<!model->)(?<!rule->)block_tokens|(?<!model->)(?<!rule->)\bblock_tokens *[*] *[a-z(]
HOT_OBJS := $(patsubst %,$(BUILD)/sim/%.o,serve/lifecycle serve/loop serve/plan serve/executor_sim policy/rows policy/window policy/cache/* policy/decoder/* policy/scheduler/*)
lint: ## formatting, cppcheck and clang-tidy
	@sh .ci/packages $(LINT_PACKAGES)
	$(say) LINT clang-format
	$(Q)clang-format --dry-run --Werror $(C_FILES)
	$(say) LINT "order of effects"
	$(Q)! grep -PzoH '$(UNORDERED)' $(filter-out tests/%,$(C_FILES)) | tr '\0' '\n' | grep .
	$(say) LINT "around the window"
	$(Q)! grep -PHn '$(AROUND_WINDOW)' $(filter-out tests/% sim/policy/window.%,$(C_FILES))
	$(say) LINT "structs are cleared word by word"
	$(Q)[ -z '$(OF_STRUCTS)' ] || ! objdump -d $(wildcard $(HOT_OBJS)) | grep -E '\brep (stos|movs)'
	$(say) LINT "shape of the source"
	$(Q)tests/house.sh
	$(say) LINT "freeze notices"
	$(Q)python3 tests/freeze.py self-test
	$(say) LINT "GPU suites compile" # they are built with the kernels alone, minutes of nvcc, and calls grow members
	$(Q)[ ! -e $(or $(TOOLKIT),/usr)/include/cuda_runtime_api.h ] || for f in tests/gpu/*.c; do \
	    $(CC) $(CSTD) $(OUR_CPPFLAGS) $(CPPFLAGS) $(TOOLKIT:%=-isystem %/include) -fsyntax-only -Wall -Wextra -Werror $$f || exit 1; done
	$(say) LINT cppcheck
	$(Q)cppcheck --quiet --std=c11 --language=c --enable=warning,performance,portability \
	    --inline-suppr --suppressions-list=.ci/cppcheck --error-exitcode=1 -j 2 $(OUR_CPPFLAGS) $(DATA_DIR) \
	    sim engine kernels traces analysis experiments
	@$(MAKE) --no-print-directory $(patsubst %.c,$(BUILD)/lint/%.ok,$(LIB_SRCS) $(MAINS))

$(BUILD)/lint/%.ok: %.c .clang-tidy
	@mkdir -p $(@D)
	$(say) TIDY $<
	$(Q)clang-tidy --quiet --warnings-as-errors='*' $< -- $(CSTD) $(OUR_CPPFLAGS) $(CPPFLAGS) $(DATA_DIR) 2>/dev/null
	@touch $@

format: ## rewrite the sources in the house format
	clang-format -i $(C_FILES)

# Suites that take minutes under the sanitizers, most of them live runs, and those of kept numbers and
# outputs, whose like torture draws; `make asan ASAN_SLOW=` runs them, too. What they add to the others is the engine's course, not its memory: test_forward and
# the other suites of the forward pass, kernels, weights and ranks are run.
ASAN_SLOW ?= engine/test_calibrate engine/test_calibrate_steps engine/test_calibrate_grid engine/test_supported sim/test_chunk_search experiments/test_figures experiments/test_kept \
             experiments/test_kept_commands experiments/test_replay experiments/test_capacity \
             experiments/test_decode_measured engine/test_forward_device sim/test_unroll $(patsubst tests/%.c,%,$(wildcard tests/live/test_*.c))
ASAN_TESTS := $(filter-out $(ASAN_SLOW:%=$(BUILD)/asan/tests/%),$(TESTS:$(BUILD)/%=$(BUILD)/asan/%))
asan: ## build and run the tests, but for the slowest, under the address and undefined-behaviour sanitizers
	@CK_TIMEOUT_MULTIPLIER=10 ASAN_OPTIONS=allocator_may_return_null=1 \
	    LSAN_OPTIONS=suppressions=$(CURDIR)/.ci/lsan:print_suppressions=0 \
	    $(MAKE) --no-print-directory BUILD=$(BUILD)/asan $(SANITIZE) TESTS='$(ASAN_TESTS)' test
	@echo "asan: $(words $(ASAN_TESTS)) suites passed; left out for their time: $(strip $(ASAN_SLOW))"

# The sanitizers' program with faults on demand (tests/torture/fault.h): calls that may fail are wrapped.
SANITIZE := OPT=-O1 SAN='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer'
FAULTS   := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/torture/fault*.c))
faults: ## build the sanitizers' program in which allocations, files, the device and SQLite fail on demand
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/asan $(SANITIZE) $(BUILD)/asan/unmask-faults
$(BUILD)/unmask-faults: $(BUILD)/experiments/command/main.o $(FAULTS) $(BUILD)/kernels/device/device_cpu.o $(BUILD)/libunmask.a
	$(say) LD $@
	$(Q)$(LINK) $$(nm -u $(FAULTS) | sed -n 's/^ *U __real_/-Wl,--wrap=/p' | sort -u) -o $@ $(filter %.o %.a,$^) $(OUR_LIBS) $(LIBS)

SEED    ?= 1
SECONDS ?= 600
torture: faults plugins ## random configurations, workloads, plug-ins and faults from SEED on, for SECONDS (N=1: SEED alone)
	@tests/torture/torture.py --seed $(SEED) --seconds $(SECONDS) $(if $(N),--count $(N))
torture-each: faults plugins ## every command with each kind of fault at its 1st, 2nd, 3rd ... chance, MOST of them (0: all)
	@tests/torture/each.py $(if $(MOST),--most $(MOST))
ROUNDS ?= 200
crowd: all $(BUILD)/tests/analysis/test_protocol ## several programs on one database: more states explored, then ROUNDS of each kind by force
	@UNMASK_CROWD=all CK_TIMEOUT_MULTIPLIER=10 $(BUILD)/tests/analysis/test_protocol
	@python3 tests/crowd.py $(BUILD)/unmask $(ROUNDS)
KILLS ?= 40
kills: all ## kill programs while they record, KILLS times, and look at what is left
	@python3 tests/kills.py $(BUILD)/unmask $(KILLS)
SATURATION ?=
saturation: all ## how often the verdict on saturation is right, by system, arrivals and requests (half an hour; SATURATION: options)
	@tests/saturation.py $(BUILD)/unmask $(SATURATION)
$(BUILD)/tests/serve/load $(BUILD)/tests/serve/flood: $(BUILD)/tests/serve/%: tests/serve/%.c
	@mkdir -p $(@D)
	$(say) LD $@
	$(Q)$(CC) $(OUR_CPPFLAGS) $(CSTD) $(WARN) $(WERROR) -O2 -o $@ $< -lm
SERVE_BENCH ?= 500 60 3
serve-bench: all $(BUILD)/tests/serve/load ## measure what the endpoint adds to a request (SERVE_BENCH: requests a second, seconds, runs)
	@python3 tests/serve/bench.py $(BUILD) $(SERVE_BENCH)
SERVE_TORTURE ?= 1
serve-torture: all $(BUILD)/tests/serve/load $(BUILD)/tests/serve/flood ## 10^6 requests, 10^5 streams that some leave, 10,000 connections, a full disk, bad clients: a table (SERVE_TORTURE: a share of it)
	@python3 tests/serve/torture.py $(BUILD) $(SERVE_TORTURE)
SERVE_CLIENTS ?= curl openai aiperf guidellm
serve-clients: all ## have curl, openai's package, AIPerf and GuideLLM ask a server (SERVE_CLIENTS: which; installed from PyPI)
	@python3 tests/serve/clients.py $(BUILD) $(SERVE_CLIENTS)
serve-test: all ## start servers on free ports and ask them as clients do, good ones and bad ones
	@python3 tests/serve/serve_test.py $(BUILD)
REF   ?=
EVERY ?= 40
FROM  ?= 1
WAY   ?= compare
ROWS  ?=
freeze: all ## compare what this build says with what REF=PROGRAM says, one command in EVERY, the FROM-th choice of them (WAY=numbers: words may differ)
	@[ -x '$(REF)' ] || { echo "freeze: REF=PROGRAM is another build's unmask; it is '$(REF)' now" >&2; exit 1; }
	@python3 tests/freeze.py self-test
	@ROWS='$(ROWS)' tests/freeze.sh against '$(REF)' $(BUILD)/unmask $(BUILD)/freeze $(EVERY) $(FROM) $(WAY)
house-test: all ## what a new metric and a new operator take: patches on a copy of the tree, which is built and looked through
	@tests/house/once.sh $(BUILD) "$(CC)"
MPIRUN ?= mpirun --oversubscribe
bench-ranks: export OMPI_ALLOW_RUN_AS_ROOT := 1
bench-ranks: export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
bench-ranks: all $(BUILD)/tests/experiments/bench_ranks ## measure how many points a second rank 0 hands out, and what a second rank is worth
	@$(MPIRUN) -n 2 $(BUILD)/tests/experiments/bench_ranks
	@$(MPIRUN) -n 3 $(BUILD)/tests/experiments/bench_ranks
	@tests/efficiency.py '$(MPIRUN)' $(BUILD)/unmask
MPI_PACKAGES := openmpi-bin libopenmpi-dev
mpi: ## install MPI, build the library by which ranks talk, test sweeps under mpirun
	@sh .ci/packages $(MPI_PACKAGES)
	@$(MAKE) --no-print-directory all $(BUILD)/tests/experiments/test_ranks
	@$(MAKE) --no-print-directory $(BUILD)/tests/experiments/test_ranks.run
container-test: all ## build the container recipe without a registry and ask its program (root): minutes
	@sh .ci/packages mmdebstrap buildah crun || true
	@tests/container.sh $(BUILD) $(MIRROR)

slurm-test: ## try docs/cluster.md's steps under a Slurm of one node, which it installs (root): half a minute
	@sh .ci/packages $(MPI_PACKAGES) slurm-wlm munge
	@$(MAKE) --no-print-directory all
	@tests/slurm.sh $(BUILD)
# The others take half a minute more (THREADS_SERVED=).
THREADS_SERVED ?= who_leaves_frees_what_was_held_and_others_go_on nothing_is_lost_or_doubled_under_random_disconnects \
    a_server_that_is_asked_to_end_lets_requests_end_and_takes_no_more
threads: ## run sweeps, figures, ranks and the server under the thread sanitizer
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/tsan OPT=-O1 SAN=-fsanitize=thread $(BUILD)/tsan/unmask
	@tests/torture/threads.sh $(BUILD)/tsan/unmask
	$(Q)[ -z '$(HTTP_LINK)' ] || $(MAKE) --no-print-directory BUILD=$(BUILD)/tsan OPT=-O1 SAN=-fsanitize=thread $(BUILD)/tsan/libunmask_http.so
	@SERVE_TEST_SLOW=10 TSAN_OPTIONS=halt_on_error=1:exitcode=66 UNMASK_DATA=$(CURDIR) OPENBLAS_NUM_THREADS=1 \
	    python3 tests/serve/serve_test.py $(BUILD)/tsan $(THREADS_SERVED)

MIRROR ?=
distributions: ## build and test on Debian 11, 12, 13 and sid, in chroots: a table (root, an hour; DEBIANS: which, MIRROR: from where)
	@sh .ci/packages mmdebstrap
	@tests/distributions.sh all $(BUILD) $(MIRROR)
oldest: ## build on Debian 11, in a chroot, and run the suites that touch libraries (root)
	@sh .ci/packages mmdebstrap || true
	@tests/distributions.sh libraries $(BUILD) $(MIRROR)

TOOLKITS  ?= $(CUDA)
COMPILERS ?= $(or $(foreach n,11 12 13 14,$(shell command -v g++-$n)),g++)
toolchains: ## build the CUDA kernels with other toolkits and compilers: a table (TOOLKITS, COMPILERS; CUDA_ARCH: 89 unless given)
	@tests/toolchains.sh $(BUILD) '$(TOOLKITS)' '$(COMPILERS)'

browser: all ## install a browser, work the report page in it, without a window
	@sh .ci/packages chromium
	@tests/browser/report.sh $(BUILD)/unmask

breaks: ## break the program on purpose, line by line of tests/mutations: every break must be noticed
	@tests/mutate.sh

settings-test: all $(BUILD)/tests/experiments/test_settings ## move every key of every shipped system: the record changes, or a warning comes
	@sed -n 's/^\[\(.*\)\]$$/\1/p' experiments/study/systems.ini | \
	    xargs -P $(or $(JOBS),2) -I{} env UNMASK_SETTINGS={} CK_VERBOSITY=minimal CK_TIMEOUT_MULTIPLIER=10 $(BUILD)/tests/experiments/test_settings \
	    a_key_changes_the_record_or_is_said_to_do_nothing

MUTATE_SEED ?= 29
MUTATE_EACH ?= 18
MUTATE_DRAWS ?= 60
mutate: $(LIBRARIES)/owner ## break the program at random places, MUTATE_EACH of each module (SINCE=COMMIT: MUTATE_DRAWS of newer lines): which breaks do tests notice?
	@LIBS="$$(cat $(LIBRARIES)/libs) -ldl -lpthread -lm $$LIBS" python3 tests/mutate.py --seed $(MUTATE_SEED) \
	    $(if $(SINCE),--since '$(SINCE)' --draws $(MUTATE_DRAWS),--each $(MUTATE_EACH)) $(MUTATE)

coverage: ## build and run the tests with gcov: lines and branches that they reach, by folder
	@CK_TIMEOUT_MULTIPLIER=10 $(MAKE) --no-print-directory --keep-going BUILD=$(BUILD)/coverage OPT=-O1 WARN= \
	    SAN='--coverage -Wl,-u,__gcov_dump' test || true
	@python3 tests/coverage.py $(BUILD)/coverage

# One program for all readers, built with clang under build/fuzz. Each starts from its kept corpus,
# a folder of tests/fuzz/corpus.tar.gz that is unpacked into build/fuzz/seeds; what it finds on the way stays in
# build/fuzz/corpus, of which tests/fuzz/keep.py keeps the best.
FUZZ_SECONDS ?= 60
FUZZ_CC      ?= clang
FUZZ         := $(BUILD)/fuzz/tests/fuzz/fuzz
FUZZ_SAN     := -fsanitize=address,undefined -fno-sanitize-recover=undefined
FUZZ_OBJS    := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/fuzz/reader*.c))
$(BUILD)/tests/fuzz/test_corpus: $(FUZZ_OBJS)
$(BUILD)/tests/fuzz/fuzz: $(BUILD)/tests/fuzz/fuzz.o $(FUZZ_OBJS) $(BUILD)/libunmask.a
	$(say) LD $@
	$(Q)$(LINK) -fsanitize=fuzzer -o $@ $(filter %.o %.a,$^) $(OUR_LIBS) $(LIBS)

$(FUZZ): FORCE
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CC='$(FUZZ_CC)' OPT=-O1 WARN= \
	    SAN='-fsanitize=fuzzer-no-link $(FUZZ_SAN)' $(BUILD)/fuzz/tests/fuzz/fuzz

fuzz: $(FUZZ) ## run every fuzz target for FUZZ_SECONDS seconds
	@$(MAKE) --no-print-directory $$($(FUZZ) | sed 's/$$/.fuzz/')
%.fuzz:
	@rm -rf $(BUILD)/fuzz/seeds/$* && mkdir -p $(BUILD)/fuzz/corpus/$* $(BUILD)/fuzz/seeds/$*
	@tar xzf tests/fuzz/corpus.tar.gz -C $(BUILD)/fuzz/seeds $*
	@echo "fuzz $*"; cd $(BUILD)/fuzz && UNMASK_DATA=$(CURDIR) UNMASK_READER=$* \
	    timeout $$(( $(FUZZ_SECONDS) + 60 )) $(CURDIR)/$(FUZZ) -max_total_time=$(FUZZ_SECONDS) \
	    $(if $(FUZZ_SEED),-seed=$(FUZZ_SEED)) \
	    -print_final_stats=1 -verbosity=0 -timeout=20 -artifact_prefix=$*- corpus/$* seeds/$*

include kernels/kernels.mk
include experiments/package/package.mk

clean: ## remove what was built and drawn
	rm -rf $(BUILD) $(OUT)

-include $(filter-out $(BUILD)/local/% $(BUILD)/distributions/% $(BUILD)/mac/%,$(wildcard $(BUILD)/*/*.d $(BUILD)/*/*/*.d $(BUILD)/*/*/*/*.d))
