// Compares our declarations of the CUDA driver with the toolkit's header, if there was one at compile time.
#include "kernels/ptx/cuda_api.h"

#include <criterion/criterion.h>
#include <stdio.h>

#ifdef QUERN_CUDA_H
#include <cuda.h>

#define SAME_FIELD(ours, a, theirs, b)                                                                                 \
    _Static_assert(offsetof(ours, a) == offsetof(theirs, b) && sizeof(((ours *)0)->a) == sizeof(((theirs *)0)->b), #a)
_Static_assert(sizeof(struct cu_launch_config) == sizeof(CUlaunchConfig), "the size of a launch");
_Static_assert(offsetof(struct cu_launch_config, grid[2]) == offsetof(CUlaunchConfig, gridDimZ), "a grid's order");
_Static_assert(offsetof(struct cu_launch_config, block[2]) == offsetof(CUlaunchConfig, blockDimZ), "a block's order");
SAME_FIELD(struct cu_launch_config, shared, CUlaunchConfig, sharedMemBytes);
SAME_FIELD(struct cu_launch_config, stream, CUlaunchConfig, hStream);
SAME_FIELD(struct cu_launch_config, attributes, CUlaunchConfig, attrs);
SAME_FIELD(struct cu_launch_config, n_attributes, CUlaunchConfig, numAttrs);
_Static_assert(sizeof(struct cu_launch_attribute) == sizeof(CUlaunchAttribute), "the size of an attribute");
SAME_FIELD(struct cu_launch_attribute, id, CUlaunchAttribute, id);
SAME_FIELD(struct cu_launch_attribute, value, CUlaunchAttribute, value);
SAME_FIELD(struct cu_launch_attribute, value.dependent, CUlaunchAttribute,
           value.programmaticStreamSerializationAllowed);

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(CU_SUCCESS, CUDA_SUCCESS);
SAME(CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(CU_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME(CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(CU_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(CU_INVALID_PTX, CUDA_ERROR_INVALID_PTX);
SAME(CU_NO_COMPILER, CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
SAME(CU_UNSUPPORTED_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(CU_COMPILER_OFF, CUDA_ERROR_JIT_COMPILATION_DISABLED);
SAME(CU_INVALID_SOURCE, CUDA_ERROR_INVALID_SOURCE);
SAME(CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(CU_CONTEXT_ACTIVE, CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
SAME(CU_TOO_MANY_BLOCKS, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
SAME(CU_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME(CU_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME(CU_UNKNOWN, CUDA_ERROR_UNKNOWN);
SAME(CU_WARP_SIZE, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
SAME(CU_SM_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CU_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CU_SHARED_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(CU_FUNCTION_THREADS, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(CU_FUNCTION_SHARED, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(CU_FUNCTION_LOCAL, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME(CU_FUNCTION_REGISTERS, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME(CU_FUNCTION_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(CU_INFO_LOG, CU_JIT_INFO_LOG_BUFFER);
SAME(CU_INFO_LOG_SIZE, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
SAME(CU_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER);
SAME(CU_ERROR_LOG_SIZE, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME(CU_INPUT_PTX, CU_JIT_INPUT_PTX);
SAME(CU_CAPTURE_THREAD, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(CU_CONTEXT_BLOCKING, CU_CTX_SCHED_BLOCKING_SYNC);
SAME(CU_STREAM_OWN, CU_STREAM_NON_BLOCKING);
SAME(CU_EVENT_BLOCKING, CU_EVENT_BLOCKING_SYNC);
SAME(CU_LAUNCH_DEPENDENT, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);

// The table of calls once more, with the toolkit's types in the place of ours.
#define cu_context CUctx_st
#define cu_stream CUstream_st
#define cu_event CUevent_st
#define cu_link CUlinkState_st
#define cu_module CUmod_st
#define cu_function CUfunc_st
#define cu_graph CUgraph_st
#define cu_graph_exec CUgraphExec_st
#define cu_result cudaError_enum
#define cu_device_attribute CUdevice_attribute_enum
#define cu_function_attribute CUfunction_attribute_enum
#define cu_jit_option CUjit_option_enum
#define cu_jit_input CUjitInputType_enum
#define cu_capture_mode CUstreamCaptureMode_enum
#define cu_launch_config CUlaunchConfig_st
#define CU_CALL(symbol, params)                                                                                        \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), enum cu_result params), #symbol);
#define CU_MAYBE CU_CALL
#include "kernels/ptx/cuda_api.def"
#undef CU_CALL
#undef CU_MAYBE

Test(cuda_api, is_that_of_the_toolkit)
{
    printf("compared with cuda.h of CUDA %d.%d as this was compiled\n", CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
}
#else
Test(cuda_api, is_that_of_the_toolkit)
{
    puts("skipped: no cuda.h was found");
}
#endif
