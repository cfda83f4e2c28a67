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
CPPFLAGS += -I. -D_GNU_SOURCE
CFLAGS  += $(CSTD) $(OPT) -g $(FPFLAGS) $(WARN) $(WERROR) $(SAN)
LDFLAGS += $(SAN)
LIBS    := -lsqlite3 -ljansson -linih -lgsl -lgslcblas -ldl -lpthread -lm

ifeq ($(V),1)
Q :=
say = @:
else
Q := @
say = @printf '  %-4s %s\n'
endif

LIB_DIRS := sim/base sim/model sim/graph sim/cost sim/memory sim/policy sim/serve \
            traces analysis experiments
LIB_SRCS := $(filter-out experiments/main.c,$(wildcard $(addsuffix /*.c,$(LIB_DIRS))))
LIB_OBJS := $(LIB_SRCS:%.c=$(BUILD)/%.o)
TESTS    := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_*.c))
PLUGINS  := $(patsubst tests/plugins/%.c,$(BUILD)/plugins/%.so,$(wildcard tests/plugins/*.c))
FUZZERS  := $(patsubst tests/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz_*.c))

.DEFAULT_GOAL := all
.PHONY: all help clean test
.DELETE_ON_ERROR:

all: $(BUILD)/unmask ## build the program
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/libunmask.a: $(LIB_OBJS)
	$(say) AR $@
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/unmask: $(BUILD)/experiments/main.o $(BUILD)/libunmask.a
	$(say) LD $@
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/tests/test_%: $(BUILD)/tests/test_%.o $(BUILD)/libunmask.a
	$(say) LD $@
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcheck -lsubunit -lrt $(LIBS)

test: $(TESTS) ## run every test suite
	@set -e; for t in $(TESTS); do $$t; done

clean: ## remove what was built
	rm -rf $(BUILD) $(OUT)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
