# The CUDA kernels. Included by the top-level Makefile; needs its BUILD, Q, say, COMPILE, LINK.
# Where nvcc is absent nothing here runs, and `make kernels` says so.

# The toolkit: CUDA=FOLDER, else that of NVCC=FILE, /usr/local/cuda, or that of the nvcc in PATH. Debian's own is in /usr,
# where every compiler looks anyway. Values that ask a tool are asked once, when they are used: (call once,NAME,value).
once       = $(eval $1 := $2)$($1)
toolkit_of = $(patsubst %/bin/nvcc,%,$(filter %/bin/nvcc,$(realpath $1)))
PATH_NVCC := $(shell command -v nvcc 2>/dev/null)
ifeq ($(origin CUDA),undefined)
CUDA      := $(or $(call toolkit_of,$(NVCC)),$(patsubst %/bin/nvcc,%,$(wildcard /usr/local/cuda/bin/nvcc)),\
             $(call toolkit_of,$(PATH_NVCC)),/usr/local/cuda)
NVCC      ?= $(firstword $(wildcard $(CUDA)/bin/nvcc) $(PATH_NVCC))
endif
NVCC      ?= $(wildcard $(CUDA)/bin/nvcc)
TOOLKIT   := $(filter-out /usr,$(abspath $(CUDA)))
TOOLKIT_LIBS := $(if $(TOOLKIT),$(wildcard $(TOOLKIT)/lib64 $(TOOLKIT)/lib $(TOOLKIT)/targets/x86_64-linux/lib))
# Products, by the path of a file where the toolkit has one: wheels have no name without a version.
CUBLASLT  ?= $(firstword $(foreach f,$(TOOLKIT_LIBS),$(wildcard $f/libcublasLt.so $f/libcublasLt.so.*)) \
             $(filter /%,$(shell $(CC) -print-file-name=libcublasLt.so)))
# The compiler of the host's part, where nvcc shall not take the system's: NVCC_CCBIN=g++-13.
NVCC_CCBIN ?=

# What this nvcc compiles for; what the machine's cards are (NVIDIA's tool is outside PATH under WSL2); and which of
# these it knows. The kernels need 8.0, and on 9.0 they use Hopper's own instructions, 90a.
KNOWN_ARCH = $(call once,KNOWN_ARCH,$(patsubst compute_%,%,$(shell $(NVCC) --list-gpu-arch)))
SMI        = $(firstword $(shell command -v nvidia-smi 2>/dev/null) $(wildcard /usr/lib/wsl/lib/nvidia-smi))
CARDS      = $(call once,CARDS,$(if $(SMI),$(shell $(SMI) --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | \
             tr -d '. \r' | grep -E '^[0-9]+$$' | sort -nu)))
OLD_ARCH   = $(filter 30 32 35 37 50 52 53 60 61 62 70 72 75,$(CARDS))
SEEN_ARCH  = $(filter-out $(OLD_ARCH),$(CARDS))
OWN_ARCH   = $(patsubst 90,90a,$(filter $(KNOWN_ARCH),$(SEEN_ARCH)))
NEW_ARCH   = $(filter-out $(KNOWN_ARCH),$(SEEN_ARCH))
# Those of the machine's own cards where it has some, else A100; RTX 3090; RTX 4090 and L40S; H100 and H200; RTX 5090
# and RTX PRO 6000. For a card that is newer than the toolkit: code that its driver compiles.
ALL_ARCH  := 80 86 89 90a 120
CUDA_ARCH ?= $(or $(OWN_ARCH),$(if $(NEW_ARCH),89,$(filter $(KNOWN_ARCH) $(patsubst %,%a,$(KNOWN_ARCH)),$(ALL_ARCH))))
# 8.9, sm_89 and 89,90 are 89 and 89 90.
ARCH       = $(patsubst 90,90a,$(patsubst compute_%,%,$(patsubst sm_%,%,$(subst .,,$(subst $(comma), ,$(CUDA_ARCH))))))
# Code that the driver of a card without its own compiles at its first start. Sorted as texts: of all it is 89, which
# a B200 (100) takes, too, as it would not take 120.
CUDA_PTX  ?= $(lastword $(sort $(filter-out %a %f,$(ARCH)) $(if $(NEW_ARCH),89)))
# Machine code of a borrowed card, of what another card would run (`make guise`).
CARD_CODE ?=
# The toolkit's headers as a system's: else those of 12.x and those of glibc 2.41 (of 13.0 and 2.43) contradict each other.
NVCCFLAGS  = -std=c++17 -O3 -I. $(TOOLKIT:%=-isystem %/include) $(NVCC_CCBIN:%=-ccbin %) -Xcompiler -fPIC,-Wall,-Wextra --threads 2 \
             $(foreach a,$(ARCH),-gencode arch=compute_$(a),code=sm_$(a)) \
             $(foreach a,$(CUDA_PTX),-gencode arch=compute_$(a),code=compute_$(a)) \
             $(foreach a,$(CARD_CODE),-gencode arch=compute_$(GUISE_PTX),code=sm_$(a))

REF_SRCS := $(filter-out kernels/ref/cpu%,$(wildcard kernels/ref/*.c))
REF_OBJS := $(REF_SRCS:%.c=$(BUILD)/%.o)
CUDA_SRCS := $(wildcard kernels/*.cu kernels/*/*.cu)
CUDA_OBJS := $(CUDA_SRCS:%.cu=$(BUILD)/%.cu.o)

# The reference implementations alone, for the tests on a GPU, which run where the packages of the whole
# are missing.
$(BUILD)/libunmask_ref.a: $(REF_OBJS)
	$(say) AR $@
	$(Q)rm -f $@ && ar rcs $@ $^

# A borrowed card in the guise of another (tests/gpu/guise.c): calls of the runtime go through that file. No product has it.
ifneq ($(GUISE),)
GUISE_OBJ  := $(BUILD)/tests/gpu/guise.o
GUISE_WRAP := cudaGetDeviceProperties cudaGetDeviceProperties_v2 cudaDeviceGetAttribute cudaMemGetInfo cudaMalloc \
              cudaGetDriverEntryPointByVersion cudaFuncSetAttribute cudaLaunchKernel __cudaLaunchKernel cudaLaunchKernelExC \
              cudaDeviceCanAccessPeer cudaDeviceEnablePeerAccess cudaStreamCreateWithFlags dlsym dlopen
$(GUISE_OBJ): OUR_CFLAGS += -fPIC
endif

.PHONY: kernels guise
ifneq ($(NVCC),)
# What keeps this toolkit from building them; nothing: it builds.
UNKNOWN_ARCH = $(sort $(filter-out $(KNOWN_ARCH),$(patsubst %f,%,$(patsubst %a,%,$(ARCH) $(CUDA_PTX)))))
RELEASE      = $(call once,RELEASE,$(shell $(NVCC) --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'))
CUBLASLT_OF  = $(filter-out lib%,$(firstword $(subst ., ,$(patsubst libcublasLt.so.%,%,$(notdir $(realpath $(CUBLASLT)))))))
NO_NVCC      = $(NVCC) does not run: it is to print with --list-gpu-arch what it compiles for
NO_ARCH      = CUDA $(RELEASE) ($(NVCC)) does not compile for $(UNKNOWN_ARCH): take an architecture that it knows \
               ($(KNOWN_ARCH); CUDA_ARCH=...) or a newer toolkit (CUDA=FOLDER; for 120 that is 12.8)
NO_CUBLASLT  = libcublasLt.so was found neither in $(CUDA) nor where $(CC) looks: it comes with the cuBLAS of a toolkit \
               (PyPI: nvidia-cublas); CUBLASLT=FILE names it
NOT_OF_IT    = $(CUBLASLT) is of CUDA $(CUBLASLT_OF) and $(NVCC) of $(RELEASE): CUBLASLT=FILE names that of one toolkit
TROUBLE      = $(or $(if $(KNOWN_ARCH),,$(NO_NVCC)),$(if $(UNKNOWN_ARCH),$(NO_ARCH)),$(if $(CUBLASLT),,$(NO_CUBLASLT)),\
               $(if $(CUBLASLT_OF),$(if $(filter $(CUBLASLT_OF).%,$(RELEASE)),,$(NOT_OF_IT))))
OF_NEW_CARD  = CUDA $(RELEASE) does not know the compute capability $(NEW_ARCH) of this machine: its driver compiles code of 89 \
               at the first start; a newer toolkit builds its own
OF_OLD_CARD  = the kernels need compute capability 80 and this machine has $(OLD_ARCH): they are built for other machines
OF_CARDS     = $(if $(filter file,$(origin CUDA_ARCH)),$(if $(NEW_ARCH),$(OF_NEW_CARD),$(if $(SEEN_ARCH),,\
               $(if $(OLD_ARCH),$(OF_OLD_CARD)))))

# Another CUDA_ARCH compiles everything anew.
$(BUILD)/kernels_flags: FORCE
	@mkdir -p $(@D)
	@$(if $(TROUBLE),echo '$(strip $(TROUBLE))' >&2; exit 1)
	@$(if $(OF_CARDS),echo '$(strip $(OF_CARDS))' >&2)
	@echo '$(NVCC) $(NVCCFLAGS)' >$@.new; cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(BUILD)/%.cu.o: %.cu $(BUILD)/kernels_flags
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
$(BUILD)/kernels/device/build.cu.o: private NVCCFLAGS += -include $(BUILD)/kernels_id.h '-DKERNELS_CODE="$(ARCH)"'
$(BUILD)/kernels/device/build.cu.o: $(BUILD)/kernels_id.h

# The runtime is linked in; cuBLASLt is looked for in LD_LIBRARY_PATH, beside the library, where it was linked from, and
# where the system has libraries.
$(BUILD)/kernels/libunmask_cuda.so: $(CUDA_OBJS) kernels/libunmask_cuda.map $(GUISE_OBJ)
	$(say) LD $@
	$(Q)$(NVCC) -shared -cudart static -Xlinker --version-script=kernels/libunmask_cuda.map \
	    $(NVCC_CCBIN:%=-ccbin %) -Xlinker -rpath -Xlinker '$$ORIGIN:$(abspath $(dir $(CUBLASLT)))' \
	    $(GUISE_WRAP:%=-Xlinker --wrap=%) $(TOOLKIT_LIBS:%=-L%) -o $@ $(CUDA_OBJS) $(GUISE_OBJ) -L$(dir $(CUBLASLT)) -l:$(notdir $(CUBLASLT)) -ldl

$(BUILD)/tests/gpu/%.o: tests/gpu/%.c $(LIBRARIES)/owner
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(COMPILE) $(TOOLKIT:%=-isystem %/include) -MMD -MP -c $< -o $@

# Plain programs. These call launchers, with a runtime of their own on the same context.
LAUNCHER_TESTS := $(addprefix $(BUILD)/tests/gpu/,test_kernels test_block_kernels test_gate_up \
                  test_moe test_decode test_smooth test_canvas test_batch_invariance test_fp8_kernels \
                  test_fp8_caches)
LAUNCHER_BENCHES := $(addprefix $(BUILD)/tests/gpu/,bench_decode bench_pattern bench_canvas)
$(LAUNCHER_TESTS) $(LAUNCHER_BENCHES): $(BUILD)/tests/gpu/%: $(BUILD)/tests/gpu/%.o \
                                       $(BUILD)/libunmask_ref.a $(BUILD)/kernels/libunmask_cuda.so $(GUISE_OBJ)
	$(say) LD $@
	$(Q)$(LINK) $(GUISE_WRAP:%=-Wl,--wrap=%) -o $@ $(filter %.o %.a,$^) -L$(BUILD)/kernels -lunmask_cuda \
	    -Wl,-rpath,'$$ORIGIN/../../kernels' -Wl,--allow-shlib-undefined $(TOOLKIT_LIBS:%=-L%) \
	    -lcudart_static -ldl -lpthread -lrt -lm

# The device's tests open the library as the program does.
DEVICE_TESTS := $(addprefix $(BUILD)/tests/gpu/,test_device test_device_kernels test_device_products)
$(DEVICE_TESTS): %: %.o $(BUILD)/libunmask_ref.a
	$(say) LD $@
	$(Q)$(LINK) -o $@ $^ -ldl -lm

GPU_TESTS := $(LAUNCHER_TESTS) $(DEVICE_TESTS) $(BUILD)/tests/gpu/test_engine \
             $(BUILD)/tests/gpu/test_noise $(BUILD)/tests/gpu/test_long $(BUILD)/tests/gpu/test_swap
# It takes several GPUs: built with the others, run by hand.
RANKS_TEST := $(BUILD)/tests/gpu/test_ranks
ENGINE_BENCHES := $(BUILD)/tests/gpu/bench_vmm $(BUILD)/tests/gpu/bench_swap
GPU_BENCHES := $(ENGINE_BENCHES) $(LAUNCHER_BENCHES)
# The whole engine, without the packages a GPU machine may lack.
$(BUILD)/tests/gpu/test_engine $(BUILD)/tests/gpu/test_noise $(BUILD)/tests/gpu/test_long $(BUILD)/tests/gpu/test_swap $(RANKS_TEST) $(ENGINE_BENCHES): \
    %: %.o $(BUILD)/libunmask.a $(BUILD)/portable/libunmask_blas.so
	$(say) LD $@
	$(Q)$(LINK) -o $@ $(filter %.o %.a,$^) $(PORTABLE_LIBS)

kernels: $(BUILD)/kernels/libunmask_cuda.so $(GPU_TESTS) $(RANKS_TEST) $(GPU_BENCHES) ## build the CUDA kernels

# For a card of compute capability 8.9 (GUISE_PTX=86: 8.6), under $(BUILD)/guise. That code is compiled for the borrowed
# card here (GUISE_CARD=90: an H100 or H200), whose driver would take minutes for it.
GUISE_PTX  ?= 89
GUISE_CARD ?= 90
guise: ## build kernels and GPU tests for UNMASK_GUISE=rtx4090|l40s|rtx3090|l4 on a borrowed GPU
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/guise GUISE=1 CUDA_ARCH= CUDA_PTX= CARD_CODE=$(GUISE_CARD) kernels

# What was compiled, and every launch beside the limits of its architecture; kernels/resources.txt keeps it for
# tests/kernels/test_limits.c, which has no compiler, when all architectures were compiled.
CUOBJDUMP ?= $(firstword $(wildcard $(CUDA)/bin/cuobjdump) $(shell command -v cuobjdump 2>/dev/null))
LIMITS    := $(BUILD)/tests/kernels/limits
$(LIMITS): $(BUILD)/tests/kernels/limits.o $(BUILD)/tests/kernels/launches.o $(BUILD)/libunmask.a
	$(say) LD $@
	$(Q)$(LINK) -o $@ $(filter %.o %.a,$^) $(OUR_LIBS) $(LIBS)

.PHONY: test-gpu kernels-limits
kernels-limits: $(BUILD)/kernels/libunmask_cuda.so $(LIMITS) ## registers, shared memory and threads of every launch beside their limits
	@[ -n '$(CUOBJDUMP)' ] || { echo 'cuobjdump was not found: it comes with the toolkit, or pip install nvidia-cuda-cuobjdump (set CUOBJDUMP=/path/to/cuobjdump)' >&2; exit 1; }
	@$(CUOBJDUMP) --dump-resource-usage $< | c++filt | $(LIMITS) $(BUILD)/kernels/resources.txt
	@$(if $(filter-out $(ARCH),$(ALL_ARCH)),,cp $(BUILD)/kernels/resources.txt kernels/)

test-gpu: kernels ## run the GPU tests
	@set -e; for t in $(GPU_TESTS); do case $$t in \
	    */test_engine | */test_noise) $$t $(BUILD)/kernels/libunmask_cuda.so ;; \
	    */test_long | */test_swap) $$t cuda $(BUILD)/kernels/libunmask_cuda.so ;; *) $$t ;; esac; done
else
kernels kernels-limits:
	@echo 'nvcc was not found in $(CUDA)/bin: the CUDA kernels are not built (CUDA=FOLDER names the toolkit)' >&2; exit 1
endif
