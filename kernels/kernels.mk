# The CUDA kernels. Included by the top-level Makefile; needs its BUILD, Q, say, CPPFLAGS, CFLAGS.
# Where nvcc is absent nothing here runs, and `make kernels` says so.

CUDA      ?= /usr/local/cuda
NVCC      ?= $(firstword $(wildcard $(CUDA)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
# A100; RTX 3090; RTX 4090 and L40S; H100 and H200 with their own instructions.
CUDA_ARCH ?= 80 86 89 90a
NVCCFLAGS := -std=c++17 -O3 -I. -Xcompiler -fPIC,-Wall,-Wextra --threads 2 \
             $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a),code=sm_$(a))

TWIN_SRCS := $(wildcard kernels/*.c)
TWIN_OBJS := $(TWIN_SRCS:%.c=$(BUILD)/%.o)
CUDA_SRCS := $(wildcard kernels/*.cu)
CUDA_OBJS := $(CUDA_SRCS:%.cu=$(BUILD)/%.cu.o)

# The twins alone, for the GPU's tests, which run where the packages of the whole are missing.
$(BUILD)/libunmask_twins.a: $(TWIN_OBJS)
	$(say) AR $@
	$(Q)rm -f $@ && ar rcs $@ $^

.PHONY: kernels
ifneq ($(NVCC),)
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(say) NVCC $<
	$(Q)$(NVCC) $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

# The runtime is linked in; cuBLASLt is found beside the driver's tools when the library is loaded.
$(BUILD)/kernels/libunmask_cuda.so: $(CUDA_OBJS)
	$(say) LD $@
	$(Q)$(NVCC) -shared -cudart static -o $@ $^ -lcublasLt

$(BUILD)/tests/gpu/%.o: tests/gpu/%.c
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(CPPFLAGS) -isystem $(CUDA)/include $(CFLAGS) -MMD -MP -c $< -o $@

# The program and the library share one runtime: the library's, whose symbols it exports.
$(BUILD)/tests/gpu/test_kernels: $(BUILD)/tests/gpu/test_kernels.o $(BUILD)/libunmask_twins.a \
                                 $(BUILD)/kernels/libunmask_cuda.so
	$(say) LD $@
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) -L$(BUILD)/kernels -lunmask_cuda \
	    -Wl,-rpath,'$$ORIGIN/../../kernels' -Wl,--allow-shlib-undefined -L$(CUDA)/lib64 \
	    -lcudart_static -ldl -lpthread -lrt -lm

kernels: $(BUILD)/kernels/libunmask_cuda.so $(BUILD)/tests/gpu/test_kernels ## build the CUDA kernels
else
kernels:
	@echo 'nvcc was not found: the CUDA kernels are not built (set NVCC=/path/to/nvcc)' >&2; exit 1
endif
