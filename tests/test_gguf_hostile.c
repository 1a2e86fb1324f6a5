// Tests invalid GGUF files: one case for each check, with the exact message and byte offset, so that no other check can
// have failed. Then sweeps: every truncation, mutations, and files made to be slow or large.
#include "tests/gguf_recipe.h"
#include "tests/stopwatch.h"

#include <criterion/criterion.h>
#include <sys/resource.h>
#include <sys/stat.h>

struct refusal {
    const char *name;   // of the case
    const char *recipe; // a file; @ stands where the error lies
    const char *text;   // what comes after "byte N: "
};

static void check_refusals(const struct refusal *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct refusal *c = &cases[i];
        struct blob blob = {0};
        blob_put_recipe(&blob, c->recipe);
        char path[32], want[ERR_TEXT];
        int fd = memory_file(blob.data, blob.size, path);
        snprintf(want, sizeof want, "%s: byte %llu: %s", path, (unsigned long long)blob.mark, c->text);
        struct gguf *g;
        struct error err = {0};
        cr_expect_eq(gguf_open(&g, path, 0, &err), -1, "%s: must be refused", c->name);
        cr_expect_null(g);
        cr_expect_eq(err.code, E_MODEL, "%s: code %d", c->name, (int)err.code);
        cr_expect_eq(err.offset, blob.mark, "%s: offset %llu, not %llu", c->name, (unsigned long long)err.offset,
                     (unsigned long long)blob.mark);
        cr_expect_str_eq(err.text, want, "%s: said\n  %s\nnot\n  %s", c->name, err.text, want);
        gguf_close(g);
        close(fd);
        blob_free(&blob);
    }
}

// clang-format off
static const struct refusal header_cases[] = {
    {"empty file", "@", "the file is empty"},
    {"three bytes", "@ raw:GGU", "the file ends within the magic (4 bytes, 3 are left)"},
    {"another format", "@ raw:PK\\x03\\x04 zero:40", "is no GGUF file: it starts with 50 4b 03 04"},
    {"magic of the other byte order", "@ raw:FUGG zero:40", "is no GGUF file: it starts with 46 55 47 47"},
    {"20 bytes", "raw:GGUF u32:3 zero:12 @", "the file ends within the header of 24 bytes"},
    {"23 bytes", "raw:GGUF u32:3 zero:15 @", "the file ends within the header of 24 bytes"},
    {"version 0", "raw:GGUF @ u32:0 u64:0 u64:0", "version 0 does not exist"},
    {"version 1", "raw:GGUF @ u32:1 u64:0 u64:0", "version 1 is too old; convert the model again"},
    {"version 4", "raw:GGUF @ u32:4 u64:0 u64:0", "version 4 is newer than quern knows (2 and 3)"},
    {"big-endian", "raw:GGUF @ u32:0x03000000 u64:0 u64:0",
     "the file is big-endian; convert the model for little-endian machines"},
    {"-1 tensors", "raw:GGUF u32:3 @ u64:-1 u64:0", "18446744073709551615 tensors are over the limit of 262144"},
    {"-1 keys", "raw:GGUF u32:3 u64:0 @ u64:-1", "18446744073709551615 keys are over the limit of 65536"},
    {"tensors that wrap when multiplied", "raw:GGUF u32:3 @ u64:0x8000000000000001 u64:0 zero:100",
     "9223372036854775809 tensors are over the limit of 262144"},
    {"65537 keys", "raw:GGUF u32:3 u64:0 @ u64:65537 zero:1000000", "65537 keys are over the limit of 65536"},
    {"more tensors than bytes", "raw:GGUF u32:3 @ u64:4 u64:0 zero:131",
     "4 tensors do not fit in the 131 bytes that are left"},
    {"more keys than bytes", "raw:GGUF u32:3 u64:0 @ u64:3 zero:41",
     "3 keys do not fit in the 41 bytes that are left"},
};

#define ONE_KEY "header:3,0,1 "
#define TEN "0123456789"
static const struct refusal key_cases[] = {
    {"length 2^64-1", ONE_KEY "@ u64:-1 zero:20", "a key of 18446744073709551615 bytes is over the limit of 65535"},
    {"length 65536", ONE_KEY "@ u64:65536 zero:70000", "a key of 65536 bytes is over the limit of 65535"},
    {"longer than the file", ONE_KEY "@ u64:21 zero:20", "a key of 21 bytes, but only 20 are left in the file"},
    {"empty key", ONE_KEY "@ key: type:u8 u8:1 zero:9", "an empty key"},
    {"NUL in a key", ONE_KEY "u64:3 raw:a @ raw:\\x00b type:u8 u8:1", "a key with the control character U+0000"},
    {"newline in a key", ONE_KEY "u64:2 raw:a @ raw:\\x0a type:u8 u8:1", "a key with the control character U+000A"},
    {"C1 control in a key", ONE_KEY "u64:2 @ raw:\\xC2\\x9B type:u8 u8:1", "a key with the control character U+009B"},
    {"bidi override in a key", ONE_KEY "u64:4 raw:x @ raw:\\xE2\\x80\\xAE type:u8 u8:1",
     "a key with the control character U+202E"},
    {"key not UTF-8", ONE_KEY "u64:2 raw:a @ raw:\\xFF type:u8 u8:1", "a key that is not UTF-8"},
    {"key cut in a character", ONE_KEY "u64:2 @ raw:\\xE2\\x80 type:u8 u8:1", "a key that is not UTF-8"},
    {"a long key is shown in part",
     ONE_KEY "key:" TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN "01234567" "9 @ u32:13 zero:8",
     "key '" TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN "01234567': the value has the unknown type 13"},
    {"duplicate", "header:3,0,3 kv:a,u8,1 kv:b,u8,2 @ kv:a,f32,3", "key 'a': stands in the file twice"},
    {"duplicates not side by side", "header:3,0,4 kv:x,u8,1 kv:a,u8,2 kv:m,u8,3 @ kv:x,u8,1",
     "key 'x': stands in the file twice"},
};

static const struct refusal value_cases[] = {
    {"no type", "header:3,0,2 kv:a,u8,1 key:long_enough_as_it_is @ u16:1",
     "key 'long enough as it is': the file ends within the type (4 bytes, 2 are left)"},
    {"type 13", ONE_KEY "key:k @ u32:13 zero:8", "key 'k': the value has the unknown type 13"},
    {"type 2^32-1", ONE_KEY "key:k @ u32:-1 zero:8", "key 'k': the value has the unknown type 4294967295"},
    {"scalar over the end", ONE_KEY "key:k type:u64 @ zero:7",
     "key 'k': the file ends within the value (8 bytes, 7 are left)"},
    {"bool 2", ONE_KEY "key:k type:bool @ u8:2", "key 'k': a bool is 2, not 0 or 1"},
    {"bool in an array", ONE_KEY "key:k type:array type:bool u64:3 u8:0 u8:1 @ u8:255",
     "key 'k': a bool is 255, not 0 or 1"},
    {"string over the file", ONE_KEY "key:k type:string @ u64:10 raw:123456789",
     "key 'k': a string of 10 bytes, but only 9 are left in the file"},
    {"string over the cap", ONE_KEY "key:k type:string @ u64:67108865 zero:9",
     "key 'k': a string of 67108865 bytes is over the limit of 67108864"},
    {"string of 2^64-1", ONE_KEY "key:k type:string @ u64:-1 zero:9",
     "key 'k': a string of 18446744073709551615 bytes is over the limit of 67108864"},
    {"string without its length", ONE_KEY "key:k type:string @ u32:1",
     "key 'k': the file ends within the string (8 bytes, 4 are left)"},
    {"array whose size wraps", ONE_KEY "key:k type:array type:u32 @ u64:0x4000000000000001 zero:64",
     "key 'k': the size of an array of 4611686018427387905 u32 overflows"},
    {"array over the file", ONE_KEY "key:k type:array type:u32 @ u64:5 zero:19",
     "key 'k': 5 u32 do not fit in the 19 bytes that are left"},
    {"strings over the file", ONE_KEY "key:k type:array type:string @ u64:3 zero:23",
     "key 'k': 3 strings do not fit in the 23 bytes that are left"},
    {"2^61 strings", ONE_KEY "key:k type:array type:string @ u64:0x2000000000000001 zero:64",
     "key 'k': 2305843009213693953 strings do not fit in the 64 bytes that are left"},
    {"a string in an array over the file", ONE_KEY "key:k type:array type:string u64:2 str:ab @ u64:9 raw:12345678",
     "key 'k': a string of 9 bytes, but only 8 are left in the file"},
    {"array in an array", ONE_KEY "key:k type:array @ type:array u64:0 zero:64",
     "key 'k': an array of arrays is not supported"},
    {"empty array of an unknown type", ONE_KEY "key:k type:array @ u32:99 u64:0",
     "key 'k': an array of the unknown type 99"},
    {"array without a length", ONE_KEY "key:k type:array type:u8 @ zero:7",
     "key 'k': the file ends within the array's length (8 bytes, 7 are left)"},
    {"array without a type", ONE_KEY "key:kkkkkkkk type:array @ zero:3",
     "key 'kkkkkkkk': the file ends within the array's type (4 bytes, 3 are left)"},
};

#define DATA " align:32 zero:256"
static const struct refusal alignment_cases[] = {
    {"0", ONE_KEY "@ kv:general.alignment,u32,0", "key 'general.alignment': 0 is not a power of two"},
    {"3", ONE_KEY "@ kv:general.alignment,u32,3", "key 'general.alignment': 3 is not a power of two"},
    {"48", ONE_KEY "@ kv:general.alignment,u32,48", "key 'general.alignment': 48 is not a power of two"},
    {"131072", ONE_KEY "@ kv:general.alignment,u32,131072",
     "key 'general.alignment': 131072 is over the limit of 65536"},
    {"2^31", ONE_KEY "@ kv:general.alignment,u32,0x80000000",
     "key 'general.alignment': 2147483648 is over the limit of 65536"},
    {"u64", ONE_KEY "@ kv:general.alignment,u64,32", "key 'general.alignment': has type u64, not u32"},
    {"a string", ONE_KEY "@ key:general.alignment type:string str:32",
     "key 'general.alignment': has type string, not u32"},
    {"unlike the offsets",
     "header:3,2,1 kv:general.alignment,u32,64 tensor:a,0,0,4 str:b u32:1 u64:4 u32:0 @ u64:32 align:64 zero:256",
     "tensor 'b': offset 32 is no multiple of the alignment 64"},
};

#define ONE_TENSOR "header:3,1,0 "
static const struct refusal tensor_cases[] = {
    {"name of 64", ONE_TENSOR "@ u64:64 zero:200", "a tensor name of 64 bytes is over the limit of 63"},
    {"name of 2^64-1", ONE_TENSOR "@ u64:-1 zero:200",
     "a tensor name of 18446744073709551615 bytes is over the limit of 63"},
    {"empty name", ONE_TENSOR "@ u64:0 zero:200", "an empty tensor name"},
    {"NUL in the name", ONE_TENSOR "u64:3 raw:a @ zero:200", "a tensor name with the control character U+0000"},
    {"escape in the name", ONE_TENSOR "u64:3 raw:a @ raw:\\x1b[ zero:200",
     "a tensor name with the control character U+001B"},
    {"name not UTF-8", ONE_TENSOR "u64:3 raw:a @ raw:\\xC0\\x80 zero:200", "a tensor name that is not UTF-8"},
    {"duplicate", "header:3,3,0 tensor:a,0,0,4 tensor:b,0,32,4 @ tensor:a,0,64,4" DATA,
     "tensor 'a': stands in the model twice"},
    {"0 dimensions", ONE_TENSOR "str:t @ u32:0 zero:200", "tensor 't': has 0 dimensions, not 1 to 4"},
    {"5 dimensions", ONE_TENSOR "str:t @ u32:5 zero:200", "tensor 't': has 5 dimensions, not 1 to 4"},
    {"2^32-1 dimensions", ONE_TENSOR "str:t @ u32:-1 zero:200", "tensor 't': has 4294967295 dimensions, not 1 to 4"},
    {"dimension 0", ONE_TENSOR "str:t u32:2 u64:4 @ u64:0 zero:200", "tensor 't': dimension 1 is 0"},
    {"dimension -1", ONE_TENSOR "str:t u32:2 @ u64:-1 u64:4 zero:200", "tensor 't': dimension 0 is -1"},
    {"smallest dimension", ONE_TENSOR "str:t u32:1 @ u64:0x8000000000000000 zero:200",
     "tensor 't': dimension 0 is -9223372036854775808"},
    {"elements wrap to 0", ONE_TENSOR "str:t u32:4 u64:0x100000000 @ u64:0x100000000 u64:1 u64:1 zero:200",
     "tensor 't': the number of elements overflows"},
    {"elements wrap to negative", ONE_TENSOR "str:t u32:2 u64:0x80000000 @ u64:0x100000000 zero:200",
     "tensor 't': the number of elements overflows"},
    {"elements wrap to a small number",
     ONE_TENSOR "str:t u32:3 u64:0x100000000 u64:0x7fffffff @ u64:0x7fffffff zero:200",
     "tensor 't': the number of elements overflows"},
    {"bytes wrap to 0", ONE_TENSOR "str:t u32:1 u64:0x4000000000000000 @ u32:0 u64:0 zero:200",
     "tensor 't': the size in bytes overflows"},
    {"bytes of rows wrap", ONE_TENSOR "str:t u32:2 u64:0x100000000 u64:0x40000000 @ u32:28 u64:0 zero:200",
     "tensor 't': the size in bytes overflows"},
    {"row unlike the block", ONE_TENSOR "str:t u32:1 u64:100 @ u32:12 u64:0" DATA,
     "tensor 't': rows of 100 elements are no whole blocks of Q4_K (256)"},
    {"row of half a block", ONE_TENSOR "str:t u32:2 u64:16 u64:2 @ u32:2 u64:0" DATA,
     "tensor 't': rows of 16 elements are no whole blocks of Q4_0 (32)"},
    {"unknown type", ONE_TENSOR "str:t u32:1 u64:4 @ u32:999 u64:0" DATA, "tensor 't': tensor type 999 is unknown"},
    {"type -1", ONE_TENSOR "str:t u32:1 u64:4 @ u32:-1 u64:0" DATA, "tensor 't': tensor type 4294967295 is unknown"},
    {"removed type", ONE_TENSOR "str:t u32:1 u64:32 @ u32:4 u64:0" DATA,
     "tensor 't': tensor type 4 (Q4_2) was removed from GGUF; convert the model again"},
    {"type of another engine's inside", ONE_TENSOR "str:t u32:1 u64:32 @ u32:9 u64:0" DATA,
     "tensor 't': tensor type 9 (Q8_1) is for intermediate results and does not belong in a file"},
    {"offset unaligned", ONE_TENSOR "str:t u32:1 u64:4 u32:0 @ u64:16" DATA,
     "tensor 't': offset 16 is no multiple of the alignment 32"},
    {"offset -1", ONE_TENSOR "str:t u32:1 u64:4 u32:0 @ u64:-1" DATA,
     "tensor 't': offset 18446744073709551615 is no multiple of the alignment 32"},
    {"offset -1 with alignment 1",
     "header:3,1,1 kv:general.alignment,u32,1 str:t u32:1 u64:4 u32:0 @ u64:-1 zero:100",
     "tensor 't': offset 18446744073709551615 is past the end of the data (100 bytes)"},
    {"offset that wraps", ONE_TENSOR "str:t u32:1 u64:4 u32:0 @ u64:0xffffffffffffffe0" DATA,
     "tensor 't': offset 18446744073709551584 is past the end of the data (256 bytes)"},
    {"past the end", ONE_TENSOR "str:t u32:1 u64:64 u32:0 @ u64:32" DATA,
     "tensor 't': 256 bytes at offset 32 run past the end of the file, 32 are missing"},
    {"starts at the end", ONE_TENSOR "str:t u32:1 u64:4 u32:0 @ u64:256" DATA,
     "tensor 't': offset 256 is past the end of the data (256 bytes)"},
    {"no data at all", ONE_TENSOR "str:t u32:1 u64:4 u32:0 @ u64:0",
     "tensor 't': offset 0 is past the end of the data (0 bytes)"},
    {"overlap", "header:3,2,0 tensor:a,0,0,9 str:b u32:1 u64:4 u32:0 @ u64:32" DATA,
     "tensor 'b': the data overlaps that of 'a'"},
    {"overlap against the order", "header:3,3,0 tensor:c,0,128,4 str:b u32:1 u64:4 u32:0 @ u64:32 tensor:a,0,0,9" DATA,
     "tensor 'b': the data overlaps that of 'a'"},
    {"same place", "header:3,2,0 tensor:a,0,32,4 str:b u32:1 u64:4 u32:0 @ u64:32" DATA,
     "tensor 'b': the data overlaps that of 'a'"},
    {"sum wraps", "header:3,3,0 tensor:a,28,0,0xfffffffffffffe0 tensor:b,28,0,0xfffffffffffffe0 "
     "@ tensor:c,28,0,0x400 zero:200",
     "tensor 'c': the sizes of the tensors together overflow"},
    {"ends within the dimensions", "header:3,2,0 tensor:a,0,0,4 str:abcdefghijklmnopqrst u32:4 u64:4 @ u32:4",
     "tensor 'abcdefghijklmnopqrst': the file ends within the dimensions (8 bytes, 4 are left)"},
    {"ends within the offset", ONE_TENSOR "str:abcdefgh u32:1 u64:4 u32:0 @ u32:0",
     "tensor 'abcdefgh': the file ends within the offset (8 bytes, 4 are left)"},
};
// clang-format on

Test(gguf_hostile, header)
{
    check_refusals(header_cases, COUNT_OF(header_cases));
}

Test(gguf_hostile, keys)
{
    check_refusals(key_cases, COUNT_OF(key_cases));
}

Test(gguf_hostile, values)
{
    check_refusals(value_cases, COUNT_OF(value_cases));
}

Test(gguf_hostile, alignment)
{
    check_refusals(alignment_cases, COUNT_OF(alignment_cases));
}

Test(gguf_hostile, tensors)
{
    check_refusals(tensor_cases, COUNT_OF(tensor_cases));
}

// ---- Splits ----

static char split_dir[64];

static void make_split_dir(void)
{
    strcpy(split_dir, "/tmp/quern-split-XXXXXX");
    cr_assert_not_null(mkdtemp(split_dir));
}

static void remove_split_dir(void)
{
    for (int count = 1; count < 8; count++) {
        for (int i = 1; i <= count; i++) {
            char path[128];
            snprintf(path, sizeof path, "%s/m-%05d-of-%05d.gguf", split_dir, i, count);
            unlink(path);
        }
    }
    cr_assert_eq(rmdir(split_dir), 0);
}

// Writes the recipe as DIR/NAME; returns the offset of its mark.
static uint64_t put_part(const char *name, const char *recipe)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", split_dir, name);
    struct blob blob = {0};
    blob_put_recipe(&blob, recipe);
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(blob.data, 1, blob.size, f), blob.size);
    cr_assert_eq(fclose(f), 0);
    uint64_t mark = blob.mark;
    blob_free(&blob);
    return mark;
}

struct split_case {
    const char *name;
    const char *first, *second; // recipes of m-00001-of-00002.gguf and m-00002-of-00002.gguf; second may be NULL
    const char *file;           // the file that is at fault
    const char *text;
    enum err_code code;
    bool no_offset;
};

#define FIRST "m-00001-of-00002.gguf"
#define SECOND "m-00002-of-00002.gguf"
#define PART(K, NO) "header:3,1," #K " kv:split.no,u16," #NO " "
#define COUNT_2 "kv:split.count,u16,2 "
#define TOTAL_2 "kv:split.tensors.count,i32,2 "
#define GOOD_FIRST PART(3, 0) COUNT_2 TOTAL_2 "tensor:a,0,0,4" DATA
#define GOOD_SECOND PART(3, 1) COUNT_2 TOTAL_2 "tensor:b,0,0,4" DATA

// clang-format off
static const struct split_case split_cases[] = {
    {"second part missing", GOOD_FIRST, NULL, SECOND, "cannot open: No such file or directory", E_IO, true},
    {"second part broken", GOOD_FIRST, "raw:GGUF @ u32:9 zero:20", SECOND,
     "version 9 is newer than quern knows (2 and 3)", E_MODEL, false},
    {"split.no of the wrong type", "header:3,1,2 @ kv:split.no,u32,0 " COUNT_2 "tensor:a,0,0,4" DATA, GOOD_SECOND, FIRST,
     "key 'split.no': has type u32, not u16", E_MODEL, false},
    {"split.count of the wrong type", PART(2, 0) "@ kv:split.count,i32,2 tensor:a,0,0,4" DATA, GOOD_SECOND, FIRST,
     "key 'split.count': has type i32, not u16", E_MODEL, false},
    {"split.tensors.count of the wrong type", PART(3, 0) COUNT_2 "@ kv:split.tensors.count,u64,2 tensor:a,0,0,4" DATA,
     GOOD_SECOND, FIRST, "key 'split.tensors.count': has type u64, not i32", E_MODEL, false},
    {"split.no over split.count", "header:3,1,2 @ kv:split.no,u16,2 " COUNT_2 "tensor:a,0,0,4" DATA, GOOD_SECOND, FIRST,
     "key 'split.no': part 2, from 0, of 2", E_MODEL, false},
    {"split.no without a count", "header:3,1,1 @ kv:split.no,u16,1 tensor:a,0,0,4" DATA, GOOD_SECOND, FIRST,
     "key 'split.no': part 1, from 0, of 0", E_MODEL, false},
    {"split.no missing", "header:3,1,1 @ " COUNT_2 "tensor:a,0,0,4" DATA, GOOD_SECOND, FIRST,
     "key 'split.no' is missing from a model of 2 parts", E_MODEL, false},
    {"65535 parts", PART(2, 0) "@ kv:split.count,u16,65535 tensor:a,0,0,4" DATA, GOOD_SECOND, FIRST,
     "key 'split.count': 65535 parts are over the limit of 1024", E_MODEL, false},
    {"3 parts in a name of 2", PART(2, 0) "@ kv:split.count,u16,3 tensor:a,0,0,4" DATA, GOOD_SECOND, FIRST,
     "this is part 1 of 3, but its name does not end in -00001-of-00003.gguf, so the others cannot be found", E_MODEL,
     false},
    {"the first part stands in the second's place", GOOD_FIRST, "header:3,1,3 @ kv:split.no,u16,0 " COUNT_2 TOTAL_2
     "tensor:b,0,0,4" DATA, SECOND, "key 'split.no': 0, but by the first part and its place it is 1", E_MODEL, false},
    {"second part without split.no", GOOD_FIRST, "header:3,1,2 " COUNT_2 TOTAL_2 "tensor:b,0,0,4" DATA, SECOND,
     "key 'split.no' is missing", E_MODEL, true},
    {"split.no of the second part of the wrong type", GOOD_FIRST, "header:3,1,3 @ kv:split.no,f32,1 " COUNT_2 TOTAL_2
     "tensor:b,0,0,4" DATA, SECOND, "key 'split.no': has type f32, not u16", E_MODEL, false},
    {"another count in the second part", GOOD_FIRST, PART(3, 1) "@ kv:split.count,u16,3 " TOTAL_2 "tensor:b,0,0,4" DATA,
     SECOND, "key 'split.count': 3, but by the first part and its place it is 2", E_MODEL, false},
    {"another total in the second part", GOOD_FIRST, PART(3, 1) COUNT_2 "@ kv:split.tensors.count,i32,3 tensor:b,0,0,4"
     DATA, SECOND, "key 'split.tensors.count': 3, but by the first part and its place it is 2", E_MODEL, false},
    {"wrong total", PART(3, 0) COUNT_2 "@ kv:split.tensors.count,i32,3 tensor:a,0,0,4" DATA,
     PART(3, 1) COUNT_2 "kv:split.tensors.count,i32,3 tensor:b,0,0,4" DATA, FIRST,
     "key 'split.tensors.count': 3, but the parts hold 2 tensors", E_MODEL, false},
    {"a total below 0", PART(3, 0) COUNT_2 "@ kv:split.tensors.count,i32,-1 tensor:a,0,0,4" DATA, GOOD_SECOND, FIRST,
     "key 'split.tensors.count': -1 is no number of tensors", E_MODEL, false},
    {"second part without the total", GOOD_FIRST, PART(2, 1) COUNT_2 "tensor:b,0,0,4" DATA, SECOND,
     "key 'split.tensors.count' is missing", E_MODEL, true},
    {"total of the second part of the wrong type", PART(2, 0) COUNT_2 "tensor:a,0,0,4" DATA,
     PART(3, 1) COUNT_2 "@ kv:split.tensors.count,u32,2 tensor:b,0,0,4" DATA, SECOND,
     "key 'split.tensors.count': has type u32, not i32", E_MODEL, false},
    {"a tensor in both parts", GOOD_FIRST, PART(3, 1) COUNT_2 TOTAL_2 "@ tensor:a,0,0,4" DATA, SECOND,
     "tensor 'a': stands in the model twice", E_MODEL, false},
};
// clang-format on

Test(gguf_hostile, splits, .init = make_split_dir, .fini = remove_split_dir)
{
    for (size_t i = 0; i < COUNT_OF(split_cases); i++) {
        const struct split_case *c = &split_cases[i];
        char path[128], want[ERR_TEXT];
        snprintf(path, sizeof path, "%s/" SECOND, split_dir);
        unlink(path);
        uint64_t mark = put_part(FIRST, c->first);
        if (c->second) {
            uint64_t second = put_part(SECOND, c->second);
            mark = strcmp(c->file, SECOND) == 0 ? second : mark;
        }
        if (c->no_offset)
            snprintf(want, sizeof want, "%s/%s: %s", split_dir, c->file, c->text);
        else
            snprintf(want, sizeof want, "%s/%s: byte %llu: %s", split_dir, c->file, (unsigned long long)mark, c->text);
        snprintf(path, sizeof path, "%s/" FIRST, split_dir);
        struct gguf *g;
        struct error err = {0};
        cr_expect_eq(gguf_open(&g, path, 0, &err), -1, "%s: must be refused", c->name);
        cr_expect_eq(err.code, c->code, "%s: code %d", c->name, (int)err.code);
        cr_expect_eq(err.offset, c->no_offset ? ERR_NO_OFFSET : mark, "%s: offset %llu", c->name,
                     (unsigned long long)err.offset);
        cr_expect_str_eq(err.text, want, "%s: said\n  %s\nnot\n  %s", c->name, err.text, want);
        gguf_close(g);
    }
}

Test(gguf_hostile, a_further_part_names_the_first, .init = make_split_dir, .fini = remove_split_dir)
{
    char path[128], want[ERR_TEXT];
    put_part(FIRST, GOOD_FIRST);
    put_part(SECOND, GOOD_SECOND);
    snprintf(path, sizeof path, "%s/" SECOND, split_dir);
    struct gguf *g;
    struct error err;
    cr_assert_eq(gguf_open(&g, path, 0, &err), -1);
    snprintf(want, sizeof want, "%s: byte 24: this is part 2 of 2; open the first, " FIRST, path);
    cr_assert_str_eq(err.text, want);

    char other[160];
    snprintf(other, sizeof other, "%s/renamed.gguf", split_dir);
    cr_assert_eq(rename(path, other), 0);
    cr_assert_eq(gguf_open(&g, other, 0, &err), -1);
    unlink(other);
    snprintf(want, sizeof want, "%s: byte 24: this is part 2 of 2; open the first, named ...-00001-of-00002.gguf",
             other);
    cr_assert_str_eq(err.text, want);
}

// The names of the other parts begin with the model's, which must not be empty.
Test(gguf_hostile, a_part_that_is_named_by_its_number_alone_is_refused, .init = make_split_dir,
     .fini = remove_split_dir)
{
    static const char *const paths[] = {"-00001-of-00002.gguf", "./-00001-of-00002.gguf"};
    put_part(paths[0], GOOD_FIRST);
    cr_assert_eq(chdir(split_dir), 0);
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        char want[ERR_TEXT];
        struct gguf *g;
        struct error err;
        cr_expect_eq(gguf_open(&g, paths[i], 0, &err), -1);
        snprintf(want, sizeof want,
                 "%s: byte 46: this is part 1 of 2, but its name does not end in -00001-of-00002.gguf, so the others "
                 "cannot be found",
                 paths[i]);
        cr_expect_str_eq(err.text, want, "%s", err.text);
    }
    unlink(paths[0]);
    cr_assert_eq(chdir("/"), 0);
}

// Without a folder, and of a name too long for a message.
Test(gguf_hostile, a_further_part_names_the_first_by_what_the_path_has, .init = make_split_dir,
     .fini = remove_split_dir)
{
    char name[256], want[ERR_TEXT];
    struct gguf *g;
    struct error err;
    put_part(SECOND, GOOD_SECOND);
    cr_assert_eq(chdir(split_dir), 0);
    cr_expect_eq(gguf_open(&g, SECOND, 0, &err), -1);
    cr_expect_str_eq(err.text, SECOND ": byte 24: this is part 2 of 2; open the first, " FIRST);
    memset(name, 'n', 200);
    strcpy(name + 200, "-00002-of-00002.gguf");
    cr_assert_eq(rename(SECOND, name), 0);
    cr_expect_eq(gguf_open(&g, name, 0, &err), -1);
    snprintf(want, sizeof want, "...%s: byte 24: this is part 2 of 2; open the first, %.160s-00001-of-00002.gguf",
             name + 60, name);
    cr_expect_str_eq(err.text, want, "%s", err.text);
    unlink(name);
    cr_assert_eq(chdir("/"), 0);
}

// ---- What is no file ----

Test(gguf_hostile, only_regular_files_are_opened)
{
    struct gguf *g;
    struct error err;
    cr_assert_eq(gguf_open(&g, "/tmp", 0, &err), -1);
    cr_assert_eq(err.code, E_MODEL);
    cr_assert_str_eq(err.text, "/tmp: is a directory, not a file");
    cr_assert_eq(gguf_open(&g, "/dev/zero", 0, &err), -1);
    cr_assert_str_eq(err.text, "/dev/zero: is a device, not a file");
    cr_assert_eq(gguf_open(&g, "/nonexistent/x.gguf", 0, &err), -1);
    cr_assert_eq(err.code, E_IO);
    cr_assert_str_eq(err.text, "/nonexistent/x.gguf: cannot open: No such file or directory");
    cr_assert_eq(err.offset, ERR_NO_OFFSET);
}

Test(gguf_hostile, a_pipe_is_refused_without_waiting_for_a_writer, .timeout = 5)
{
    char path[] = "/tmp/quern-fifo-XXXXXX";
    close(mkstemp(path));
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    struct gguf *g;
    struct error err;
    int status = gguf_open(&g, path, 0, &err);
    unlink(path);
    cr_assert_eq(status, -1);
    cr_assert_eq(err.code, E_MODEL);
    cr_assert_not_null(strstr(err.text, "is a pipe, not a file"));
}

Test(gguf_hostile, a_long_path_leaves_room_for_the_message)
{
    for (int shift = 0; shift < 4; shift++) { // the cut falls on each byte of a character
        char path[2000] = "/nonexistent/", want[ERR_TEXT];
        while (strlen(path) < 1800)
            strcat(path, "\xE6\x97\xA5/");
        strcat(path, &"xxx"[shift]);
        struct gguf *g;
        struct error err;
        cr_assert_eq(gguf_open(&g, path, 0, &err), -1);
        const char *tail = path + strlen(path) - 160;
        while ((*tail & 0xC0) == 0x80)
            tail++;
        snprintf(want, sizeof want, "...%s: cannot open: No such file or directory", tail);
        cr_expect_str_eq(err.text, want, "%s", err.text);
    }
}

// ---- Sweeps ----

#define SMALL                                                                                                          \
    "header:3,2,14 kv:general.alignment,u32,16 kv:k.u8,u8,1 kv:k.i8,i8,-1 kv:k.u16,u16,2 kv:k.i16,i16,-2 "             \
    "kv:k.i32,i32,-3 kv:k.f32,f32,1.5 kv:k.u64,u64,4 kv:k.i64,i64,-4 kv:k.f64,f64,2.5 kv:k.bool,bool,1 "               \
    "key:k.string type:string str:text "                                                                               \
    "key:k.strings type:array type:string u64:3 str:a str: str:\\xFF\\x00b "                                           \
    "key:k.bools type:array type:bool u64:4 u8:0 u8:1 u8:1 u8:0 "                                                      \
    "tensor:first,0,0,4,2 tensor:second,2,32,32,2,1,1 align:16 zero:32 "
#define SMALL_PADDING 12 // the second tensor has 36 bytes

// The rule: a file is whole when the data of its tensors is; padding behind the last one may be missing.
Test(gguf_hostile, every_truncation_is_refused)
{
    struct blob blob = {0};
    blob_put_recipe(&blob, SMALL "zero:36");
    size_t whole = blob.size;
    blob_put_zeros(&blob, SMALL_PADDING);
    for (size_t n = 0; n <= blob.size; n++) {
        struct gguf *g;
        struct error err = {0};
        int status = gguf_open_bytes(&g, blob.data, n, 0, &err);
        cr_assert_eq(status, n < whole ? -1 : 0, "%zu of %zu bytes: %s", n, whole, err.text);
        if (n < whole) {
            cr_assert_eq(err.code, E_MODEL, "%zu bytes: %s", n, err.text);
            cr_assert_leq(err.offset, n, "%zu bytes: %s", n, err.text);
        } else {
            gguf_read_all(g);
        }
        gguf_close(g);
    }
    blob_free(&blob);
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

// One change of the kinds that break parsers: a bit, a byte, a number that wraps or a little one, bytes lost or
// repeated.
static void mutate(struct blob *b, size_t range, uint64_t *rng)
{
    static const uint64_t nasty[] = {0,
                                     1,
                                     2,
                                     5,
                                     12,
                                     13,
                                     31,
                                     32,
                                     63,
                                     64,
                                     65536,
                                     INT32_MAX,
                                     UINT32_MAX,
                                     1ull << 32,
                                     INT64_MAX,
                                     1ull << 63,
                                     UINT64_MAX - 31,
                                     UINT64_MAX,
                                     UINT64_MAX / 8 + 1,
                                     UINT64_MAX / 4 + 2};
    size_t at = next_random(rng) % MIN(range, b->size);
    size_t n = (size_t)1 << next_random(rng) % 4;
    n = MIN(n, b->size - at);
    uint64_t value = nasty[next_random(rng) % COUNT_OF(nasty)];
    switch (next_random(rng) % 6) {
    case 0:
        b->data[at] ^= (uint8_t)(1u << next_random(rng) % 8);
        break;
    case 1:
        b->data[at] = (uint8_t)next_random(rng);
        break;
    case 2:
    case 3:
        memcpy(b->data + at, &value, n);
        break;
    case 4:
        memmove(b->data + at, b->data + at + n, b->size - at - n);
        b->size -= n;
        break;
    default:
        blob_put_zeros(b, n);
        memmove(b->data + at + n, b->data + at, b->size - at - n);
    }
}

// Mutants of the head of a file: each is refused with a place, or opens and can be read from end to end.
static void open_mutants(const void *data, size_t size, size_t range, int count, uint64_t seed)
{
    int opened = 0;
    uint64_t rng = seed;
    for (int i = 0; i < count; i++) {
        struct blob b = {0};
        blob_put(&b, data, size);
        for (uint64_t k = 1 + next_random(&rng) % 3; k > 0; k--)
            mutate(&b, range, &rng);
        struct gguf *g;
        struct error err = {0};
        if (gguf_open_bytes(&g, b.data, b.size, 0, &err) == 0) {
            opened++;
            gguf_read_all(g);
            gguf_close(g);
        } else {
            cr_assert(err.code == E_MODEL || err.code == E_IO, "mutant %d of seed %llu: %s", i,
                      (unsigned long long)seed, err.text);
            cr_assert_not_null(strstr(err.text, "/proc/self/fd/"));
        }
        blob_free(&b);
    }
    cr_log_info("seed %llu: %d of %d mutants opened", (unsigned long long)seed, opened, count);
    cr_assert_gt(opened, 0);
    cr_assert_lt(opened, count);
}

Test(gguf_hostile, mutants_of_a_small_file)
{
    struct blob blob = {0};
    blob_put_recipe(&blob, SMALL "zero:48");
    open_mutants(blob.data, blob.size, blob.size, 6000, 20240601);
    blob_free(&blob);
}

Test(gguf_hostile, mutants_of_a_model)
{
    const char *shared = getenv("QUERN_SHARED");
    char path[512];
    snprintf(path, sizeof path, "%s/models/stories260K.gguf", shared ? shared : "../shared");
    FILE *f = fopen(path, "rb");
    if (!f)
        cr_skip("no golden model at %s", path);
    static uint8_t data[2 << 20];
    size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    open_mutants(data, n, 20000, 1000, 424242);
}

// ---- Files made to be slow or large ----

// Opens a file of under 1 MiB: within a second and 256 MiB.
static int open_bounded(const struct blob *b, const char *what, struct error *err)
{
    cr_assert_leq(b->size, (size_t)1 << 20);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    double start = seconds();
    struct gguf *g;
    int status = gguf_open_bytes(&g, b->data, b->size, 0, err);
    double took = seconds() - start;
    gguf_close(g);
    getrusage(RUSAGE_SELF, &after);
    cr_assert_lt(took, patience(), "%s took %.2f s", what, took);
    cr_assert_lt(after.ru_maxrss - before.ru_maxrss, 256L << 10, "%s took %ld KiB", what,
                 after.ru_maxrss - before.ru_maxrss);
    return status;
}

Test(gguf_hostile, tens_of_thousands_of_keys_are_quick)
{
    struct error err;
    struct blob b = {0};
    blob_put_recipe(&b, "header:3,0,50000");
    for (int i = 0; i < 50000; i++) { // three letters each, all different
        char key[3] = {(char)('0' + i / 4096 % 64), (char)('0' + i / 64 % 64), (char)('0' + i % 64)};
        blob_put_str(&b, key, 3);
        blob_put_number(&b, GGUF_U8, 4);
        blob_put_number(&b, 0, 1);
    }
    cr_assert_eq(open_bounded(&b, "distinct keys", &err), 0, "%s", err.text);
    blob_free(&b);

    blob_put_recipe(&b, "header:3,0,65536");
    for (int i = 0; i < 65536; i++)
        blob_put_recipe(&b, "kv:k,u8,1");
    cr_assert_eq(open_bounded(&b, "equal keys", &err), -1);
    cr_assert_not_null(strstr(err.text, ": byte 38: key 'k': stands in the file twice"), "%s", err.text);
    blob_free(&b);
}

Test(gguf_hostile, empty_strings_by_the_hundred_thousand_are_quick)
{
    struct error err;
    struct blob b = {0};
    blob_put_recipe(&b, "header:3,0,1 key:tokens type:array type:string u64:130000 zero:1040000");
    cr_assert_eq(open_bounded(&b, "empty strings", &err), 0, "%s", err.text);
    blob_free(&b);
}

Test(gguf_hostile, tens_of_thousands_of_tensors_are_quick)
{
    struct error err;
    struct blob b = {0};
    blob_put_recipe(&b, "header:3,25000,0");
    for (int i = 0; i < 25000; i++) {
        char recipe[64];
        snprintf(recipe, sizeof recipe, "tensor:%x,24,%d,1", i, 32 * (24999 - i));
        blob_put_recipe(&b, recipe);
    }
    cr_assert_eq(open_bounded(&b, "tensors without data", &err), -1);
    cr_assert_not_null(strstr(err.text, "is past the end of the data"), "%s", err.text);
    blob_free(&b);

    blob_put_recipe(&b, "header:3,25000,1 kv:general.alignment,u32,1");
    for (int i = 0; i < 25000; i++) {
        char recipe[64];
        snprintf(recipe, sizeof recipe, "tensor:%x,24,%d,1", i, 24999 - i);
        blob_put_recipe(&b, recipe);
    }
    blob_put_zeros(&b, 25000);
    cr_assert_eq(open_bounded(&b, "tensors of a byte", &err), 0, "%s", err.text);
    blob_free(&b);
}

Test(gguf_hostile, long_keys_that_differ_at_their_end_are_quick)
{
    struct error err;
    struct blob b = {0};
    blob_put_recipe(&b, "header:3,0,1000");
    for (int i = 0; i < 1000; i++) {
        char key[1000];
        memset(key, 'k', sizeof key);
        snprintf(key + 990, 10, "%09d", i * 7919 % 1000);
        blob_put_str(&b, key, 999);
        blob_put_recipe(&b, "type:u8 u8:0");
    }
    cr_assert_eq(open_bounded(&b, "long keys", &err), 0, "%s", err.text);
    blob_free(&b);
}

// A file of many gigabytes is no excuse: room is taken only within the limit of all metadata.
Test(gguf_hostile, a_sparse_file_cannot_ask_for_gigabytes)
{
    static const struct {
        const char *before; // of the hole
        size_t hole;        // bytes of zero, of which the file system stores none
        const char *behind; // with the mark
        const char *what;   // stands before the message
    } cases[] = {
        {"header:3,0,1 key:tokens type:array type:string", 0, "@ u64:500000000", "key 'tokens': "},
        {"header:3,0,1 key:scores type:array type:f32", 0, "@ u64:500000000", "key 'scores': "},
        {"header:3,0,2 key:a type:array type:u8 u64:67108864", 67108864, "key:s type:string @ u64:67108864",
         "key 's': "},
        // The array ends at the limit, after 49 bytes before it.
        {"header:3,0,2 key:a type:array type:u8 u64:134217679", 134217679, "@ u64:1", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct blob before = {0}, behind = {0};
        blob_put_recipe(&before, cases[i].before);
        blob_put_recipe(&behind, cases[i].behind);
        char path[32], want[128];
        int fd = memory_file(before.data, before.size, path);
        const uint64_t at = before.size + cases[i].hole;
        cr_assert_eq(pwrite(fd, behind.data, behind.size, (off_t)at), (ssize_t)behind.size);
        cr_assert_eq(ftruncate(fd, 5ll << 30), 0);
        struct gguf *g;
        struct error err;
        cr_assert_eq(gguf_open(&g, path, 0, &err), -1);
        close(fd);
        snprintf(want, sizeof want, "%s: byte %llu: %sthe metadata is over the limit of 134217728 bytes", path,
                 (unsigned long long)(at + behind.mark), cases[i].what);
        cr_expect_str_eq(err.text, want, "case %zu: %s", i, err.text);
        cr_expect_eq(err.offset, at + behind.mark);
        blob_free(&before);
        blob_free(&behind);
    }
}
