# The CUDA kernels. Included by the top-level Makefile; needs its BUILD, Q, say, CPPFLAGS, CFLAGS.
# Where nvcc is absent nothing here runs, and `make kernels` says so.

CUDA      ?= /usr/local/cuda
NVCC      ?= $(firstword $(wildcard $(CUDA)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
# A100; RTX 3090; RTX 4090 and L40S; H100 and H200 with their own instructions.
CUDA_ARCH ?= 80 86 89 90a
NVCCFLAGS := -std=c++17 -O3 -I. -Xcompiler -fPIC,-Wall,-Wextra --threads 2 \
             $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a),code=sm_$(a))

REF_SRCS := $(filter-out kernels/ref/cpu%,$(wildcard kernels/ref/*.c))
REF_OBJS := $(REF_SRCS:%.c=$(BUILD)/%.o)
CUDA_SRCS := $(wildcard kernels/*.cu kernels/*/*.cu)
CUDA_OBJS := $(CUDA_SRCS:%.cu=$(BUILD)/%.cu.o)

# The reference implementations alone, for the tests on a GPU, which run where the packages of the whole
# are missing.
$(BUILD)/libunmask_ref.a: $(REF_OBJS)
	$(say) AR $@
	$(Q)rm -f $@ && ar rcs $@ $^

.PHONY: kernels
ifneq ($(NVCC),)
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(say) NVCC $<
	$(Q)$(NVCC) $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

# Which kernels the library has; profiles that are measured with it say so.
KERNEL_FILES := $(sort $(CUDA_SRCS) $(wildcard kernels/*.h kernels/*.cuh kernels/*/*.h kernels/*/*.cuh))
$(BUILD)/kernels_id.h: FORCE
	@mkdir -p $(@D)
	@day=$$(git log -1 --format=%cs -- $(KERNEL_FILES) 2>/dev/null); \
	echo "#define KERNELS_BUILD \"$${day:-unknown} $$(cat $(KERNEL_FILES) | sha256sum | cut -c1-12)\"" >$@.new; \
	cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(BUILD)/kernels/device/build.cu.o: NVCCFLAGS += -include $(BUILD)/kernels_id.h
$(BUILD)/kernels/device/build.cu.o: $(BUILD)/kernels_id.h

# The runtime is linked in; cuBLASLt is found beside the driver's tools when the library is loaded.
$(BUILD)/kernels/libunmask_cuda.so: $(CUDA_OBJS) kernels/libunmask_cuda.map
	$(say) LD $@
	$(Q)$(NVCC) -shared -cudart static -Xlinker --version-script=kernels/libunmask_cuda.map \
	    -o $@ $(CUDA_OBJS) -lcublasLt -ldl

$(BUILD)/tests/gpu/%.o: tests/gpu/%.c
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(CPPFLAGS) -isystem $(CUDA)/include $(CFLAGS) -MMD -MP -c $< -o $@

# Plain programs. These call launchers, with a runtime of their own on the same context.
LAUNCHER_TESTS := $(addprefix $(BUILD)/tests/gpu/,test_kernels test_block_kernels test_gate_up \
                  test_moe test_decode test_smooth test_batch_invariance)
LAUNCHER_BENCHES := $(BUILD)/tests/gpu/bench_decode
$(LAUNCHER_TESTS) $(LAUNCHER_BENCHES): $(BUILD)/tests/gpu/%: $(BUILD)/tests/gpu/%.o \
                                       $(BUILD)/libunmask_ref.a $(BUILD)/kernels/libunmask_cuda.so
	$(say) LD $@
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) -L$(BUILD)/kernels -lunmask_cuda \
	    -Wl,-rpath,'$$ORIGIN/../../kernels' -Wl,--allow-shlib-undefined -L$(CUDA)/lib64 \
	    -lcudart_static -ldl -lpthread -lrt -lm

# The device's tests open the library as the program does.
DEVICE_TESTS := $(addprefix $(BUILD)/tests/gpu/,test_device test_device_kernels test_device_products)
$(DEVICE_TESTS): %: %.o $(BUILD)/libunmask_ref.a
	$(say) LD $@
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -ldl -lm

GPU_TESTS := $(LAUNCHER_TESTS) $(DEVICE_TESTS) $(BUILD)/tests/gpu/test_engine \
             $(BUILD)/tests/gpu/test_long
# It takes several GPUs: built with the others, run by hand.
RANKS_TEST := $(BUILD)/tests/gpu/test_ranks
ENGINE_BENCHES := $(BUILD)/tests/gpu/bench_vmm
GPU_BENCHES := $(ENGINE_BENCHES) $(LAUNCHER_BENCHES)
# The whole engine, without the packages a GPU machine may lack.
$(BUILD)/tests/gpu/test_engine $(BUILD)/tests/gpu/test_long $(RANKS_TEST) $(ENGINE_BENCHES): \
    %: %.o $(BUILD)/libunmask.a
	$(say) LD $@
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(PORTABLE_LIBS)

kernels: $(BUILD)/kernels/libunmask_cuda.so $(GPU_TESTS) $(RANKS_TEST) $(GPU_BENCHES) ## build the CUDA kernels

.PHONY: test-gpu
test-gpu: kernels ## run the GPU tests
	@set -e; for t in $(GPU_TESTS); do case $$t in \
	    */test_engine) $$t $(BUILD)/kernels/libunmask_cuda.so ;; \
	    */test_long) $$t cuda $(BUILD)/kernels/libunmask_cuda.so ;; *) $$t ;; esac; done
else
kernels:
	@echo 'nvcc was not found: the CUDA kernels are not built (set NVCC=/path/to/nvcc)' >&2; exit 1
endif
