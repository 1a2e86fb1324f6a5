// Loads the CUDA driver at run time, and puts its errors into words.
#include "kernels/ptx/cuda_api.h"

#include <dlfcn.h>

static const char default_library[] = "libcuda.so.1";

#ifdef QUERN_CUDA
static void *load(const char *library, struct error *err)
{
    // RTLD_NODELETE: the library must stay loaded, because threads of the driver may be running its code.
    void *handle = dlopen(library ? library : default_library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle)
        return handle;
    const char *why = dlerror();
    if (!why || strstr(why, "No such file"))
        fail(err, E_GPU, "no CUDA driver on this machine: %s was not found", library ? library : default_library);
    else
        fail(err, E_GPU, "the CUDA driver cannot be loaded: %s", why);
    return NULL;
}

static int find_calls(struct cuda *cu, void *handle, struct error *err)
{
    // dlsym returns a pointer to data. Its bytes are copied to a pointer to a function: POSIX guarantees that both have
    // the same representation, while C does not define the conversion.
    const struct {
        const char *name;
        size_t at;
        bool needed;
    } calls[] = {
#define CU_CALL(symbol, params) {#symbol, offsetof(struct cuda, symbol), true},
#define CU_MAYBE(symbol, params) {#symbol, offsetof(struct cuda, symbol), false},
#include "kernels/ptx/cuda_api.def"
#undef CU_MAYBE
#undef CU_CALL
    };
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        void *address = dlsym(handle, calls[i].name);
        if (!address && calls[i].needed)
            return fail(err, E_GPU, "the CUDA driver has no %s: quern needs one of CUDA 11.4 or newer", calls[i].name);
        memcpy((char *)cu + calls[i].at, &address, sizeof(address));
    }
    return 0;
}

int cuda_open(struct cuda *cu, const char *library, struct error *err)
{
    *cu = (struct cuda){0};
    void *handle = load(library, err);
    if (!handle)
        return -1;
    int status = find_calls(cu, handle, err);
    dlclose(handle); // the library stays loaded (RTLD_NODELETE)
    return status || CUDA_TRY(cu, err, cuInit, 0) ? -1 : 0;
}
#else
int cuda_open(struct cuda *cu, const char *library, struct error *err)
{
    *cu = (struct cuda){0};
    return fail(err, E_GPU, "this build does not look for %s: it was made with -Dcuda=false",
                library ? library : default_library);
}
#endif

static const char *remedy(enum cu_result result)
{
    switch (result) {
    case CU_OUT_OF_MEMORY:
        return "; a smaller model, context (-c) or KV type would fit";
    case CU_NO_DEVICE:
        return "; the driver is there but no card, or CUDA_VISIBLE_DEVICES hides it";
    case CU_NO_COMPILER:
        return "; in a container, libnvidia-ptxjitcompiler.so.1 of the host has to be mounted as well";
    case CU_UNSUPPORTED_PTX:
        return "; a newer NVIDIA driver is needed for this card";
    case CU_COMPILER_OFF:
        return "; CUDA_DISABLE_PTX_JIT or CUDA_FORCE_JIT is set";
    case CU_ILLEGAL_ADDRESS:
        return "; a kernel read or wrote where it must not, which is a fault of quern";
    default:
        return "";
    }
}

int cuda_check(const struct cuda *cu, const char *call, enum cu_result result, struct error *err)
{
    if (result == CU_SUCCESS)
        return 0;
    const char *name = NULL, *text = NULL;
    if (!cu->cuGetErrorName || cu->cuGetErrorName(result, &name) != CU_SUCCESS || !name)
        name = "an error without a name";
    if (!cu->cuGetErrorString || cu->cuGetErrorString(result, &text) != CU_SUCCESS)
        text = NULL;
    return fail(err, result == CU_OUT_OF_MEMORY ? E_MEMORY : E_GPU, "%s: %s (%d)%s%s%s", call, name, (int)result,
                text ? ": " : "", text ? text : "", remedy(result));
}
