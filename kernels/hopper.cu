#include "kernels/hopper.cuh"

#include "kernels/driver_function.cuh"

typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                    const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_function encode() {
    static encode_function found = nullptr;
    if (!found) {
        driver_function("cuTensorMapEncodeTiled", &found);
    }
    return found;
}

bool hopper_map(CUtensorMap *map, const void *base, int64_t n_columns, int64_t n_planes,
                int64_t plane_stride, int64_t n_rows, int64_t row_stride, int box_rows,
                int box_planes) {
    const cuuint64_t sizes[3] = {(cuuint64_t)n_columns, (cuuint64_t)n_planes, (cuuint64_t)n_rows};
    const cuuint64_t strides[2] = {(cuuint64_t)plane_stride * 2, (cuuint64_t)row_stride * 2};
    const cuuint32_t box[3] = {64, (cuuint32_t)box_planes, (cuuint32_t)box_rows},
                     steps[3] = {1, 1, 1};
    return encode() && encode()(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void *>(base),
                                sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool hopper_map_groups(CUtensorMap *map, const void *base, int64_t n_columns, int64_t n_groups,
                       int64_t n_experts) {
    const cuuint64_t row = (cuuint64_t)n_columns * 2, half = row * 8 * (cuuint64_t)n_groups;
    const cuuint64_t sizes[5] = {(cuuint64_t)n_columns, 8, 2, (cuuint64_t)n_groups,
                                 (cuuint64_t)n_experts};
    const cuuint64_t strides[4] = {row, half, 8 * row, 2 * half};
    const cuuint32_t box[5] = {64, 8, 2, 8, 1}, steps[5] = {1, 1, 1, 1, 1};
    return encode() && encode()(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5, const_cast<void *>(base),
                                sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool hopper_map_fp8(CUtensorMap *map, const void *base, int64_t n_columns, int64_t n_rows,
                    int64_t row_bytes, int box_rows) {
    const cuuint64_t sizes[3] = {(cuuint64_t)n_columns, 1, (cuuint64_t)n_rows};
    const cuuint64_t strides[2] = {(cuuint64_t)row_bytes, (cuuint64_t)row_bytes};
    const cuuint32_t box[3] = {128, 1, (cuuint32_t)box_rows}, steps[3] = {1, 1, 1};
    return encode() && encode()(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, const_cast<void *>(base),
                                sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool hopper_map_groups_fp8(CUtensorMap *map, const void *base, int64_t n_columns, int64_t n_groups,
                           int64_t n_experts) {
    const cuuint64_t row = (cuuint64_t)n_columns, half = row * 8 * (cuuint64_t)n_groups;
    const cuuint64_t sizes[5] = {row, 8, 2, (cuuint64_t)n_groups, (cuuint64_t)n_experts};
    const cuuint64_t strides[4] = {row, half, 8 * row, 2 * half};
    const cuuint32_t box[5] = {128, 8, 2, 8, 1}, steps[5] = {1, 1, 1, 1, 1};
    return encode() && encode()(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 5, const_cast<void *>(base),
                                sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool hopper_device() {
    int device, major = 0, minor = -1;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) ==
               cudaSuccess &&
           major == 9 && minor == 0;
}
