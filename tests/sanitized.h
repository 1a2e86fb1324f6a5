// Whether the build runs under AddressSanitizer, whose shadow alone is larger than any limit of the address space.
#ifndef QUERN_SANITIZED_H
#define QUERN_SANITIZED_H

#include <stdbool.h>

#ifdef __has_feature
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

#endif
