// The part of the CUDA driver's interface that quern uses, declared here so that a build needs no CUDA toolkit.
//
// Layouts and numbers are those of the driver's ABI, which does not change between versions. If a toolkit is installed,
// a test compares them with its header.
//
// Ownership: a struct cuda owns nothing. The library is never unloaded, because its threads may run until the process
// ends. Threads: any; a struct cuda is read-only once opened.
#ifndef QUERN_CUDA_API_H
#define QUERN_CUDA_API_H

#include "gguf/base.h"

typedef unsigned long long cu_address; // of device memory

struct cu_context;
struct cu_stream;
struct cu_event;
struct cu_link;
struct cu_module;
struct cu_function;
struct cu_graph;
struct cu_graph_exec;

// The results that quern or its tests refer to. Errors name any other result as the library does.
enum cu_result {
    CU_SUCCESS = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_INITIALIZED = 3,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,
    CU_INVALID_IMAGE = 200,
    CU_INVALID_CONTEXT = 201,
    CU_NO_BINARY = 209,
    CU_INVALID_PTX = 218,
    CU_NO_COMPILER = 221,
    CU_UNSUPPORTED_PTX = 222,
    CU_COMPILER_OFF = 223,
    CU_INVALID_SOURCE = 300,
    CU_INVALID_HANDLE = 400,
    CU_NOT_FOUND = 500,
    CU_ILLEGAL_ADDRESS = 700,
    CU_CONTEXT_ACTIVE = 708,
    CU_TOO_MANY_BLOCKS = 720,
    CU_CAPTURE_UNSUPPORTED = 900,
    CU_CAPTURE_INVALIDATED = 901,
    CU_UNKNOWN = 999,
};
enum cu_device_attribute {
    CU_WARP_SIZE = 10,
    CU_SM_COUNT = 16,
    CU_MAJOR = 75,
    CU_MINOR = 76,
    CU_SHARED_OPTIN = 97,
};
enum cu_function_attribute {
    CU_FUNCTION_THREADS = 0,
    CU_FUNCTION_SHARED = 1,
    CU_FUNCTION_LOCAL = 3,
    CU_FUNCTION_REGISTERS = 4,
    CU_FUNCTION_DYNAMIC_SHARED = 8,
};
enum cu_jit_option { CU_INFO_LOG = 3, CU_INFO_LOG_SIZE = 4, CU_ERROR_LOG = 5, CU_ERROR_LOG_SIZE = 6 };
enum cu_jit_input { CU_INPUT_PTX = 1 };
enum cu_capture_mode { CU_CAPTURE_THREAD = 1 };
enum { CU_CONTEXT_BLOCKING = 4, CU_STREAM_OWN = 1, CU_EVENT_BLOCKING = 1 };

enum cu_launch_attribute_id { CU_LAUNCH_DEPENDENT = 6 };
struct cu_launch_attribute {
    enum cu_launch_attribute_id id;
    char pad[4];
    union {
        char size[64];
        int dependent; // 1: the kernel may start before the launches ahead of it have ended, and waits for them itself
    } value;
};
struct cu_launch_config {
    unsigned grid[3], block[3], shared;
    struct cu_stream *stream;
    struct cu_launch_attribute *attributes;
    unsigned n_attributes;
};

struct cuda {
#define CU_CALL(symbol, params) enum cu_result(*symbol) params;
#define CU_MAYBE CU_CALL
#include "kernels/ptx/cuda_api.def"
#undef CU_MAYBE
#undef CU_CALL
};

// Loads the library (NULL: libcuda.so.1, as the loader finds it), finds the calls and initialises the driver.
int cuda_open(struct cuda *cu, const char *library, struct error *err);
// Uses no library, but calls that succeed and do nothing (driver_paper.c).
void cuda_paper(struct cuda *cu);
// Returns 0 on CU_SUCCESS. Otherwise fails with an error that names the call, the result, and a remedy if one is known.
int cuda_check(const struct cuda *cu, const char *call, enum cu_result result, struct error *err);
#define CUDA_TRY(cu, err, call, ...) cuda_check((cu), #call, (cu)->call(__VA_ARGS__), (err))

#endif
