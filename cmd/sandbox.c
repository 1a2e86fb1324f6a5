// The numbers of system calls and the layouts of structs are our own, as the kernel's interface has them, for headers may
// be older than the kernel. A filter of seccomp is a program in the kernel's classic BPF, which is made here from a table:
//     load the architecture; another one than ours (32-bit calls): refuse
//     load the number of the call; x86-64 with the bit of x32: refuse
//     for each row: if the number is the row's: refuse
//     allow
// where to refuse is to let the call fail with EPERM. In a build with AddressSanitizer nothing is entered, because its leak
// check traces the process.
#include "cmd/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __has_feature
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
static const bool possible = false;
#else
static const bool possible = true;
#endif

// --- Landlock ---

// Numbers of system calls that are the same on all architectures.
enum {
    CALL_IO_URING_SETUP = 425,
    CALL_PIDFD_GETFD = 438,
    CALL_LANDLOCK_CREATE = 444,
    CALL_LANDLOCK_RULE,
    CALL_LANDLOCK_RESTRICT
};

enum landlock_access {
    MAY_EXECUTE = 1 << 0,
    MAY_WRITE_FILE = 1 << 1,
    MAY_REMOVE_DIR = 1 << 4,
    MAY_REMOVE_FILE = 1 << 5,
    MAY_MAKE_CHAR = 1 << 6,
    MAY_MAKE_DIR = 1 << 7,
    MAY_MAKE_REG = 1 << 8,
    MAY_MAKE_SOCK = 1 << 9,
    MAY_MAKE_FIFO = 1 << 10,
    MAY_MAKE_BLOCK = 1 << 11,
    MAY_MAKE_SYM = 1 << 12,
    MAY_TRUNCATE = 1 << 14, // from version 3 on
};
enum {
    WRITES_OF_FILES = MAY_WRITE_FILE | MAY_TRUNCATE,
    WRITES_OF_OUTPUTS = WRITES_OF_FILES | MAY_REMOVE_FILE | MAY_MAKE_REG | MAY_MAKE_DIR,
    ALL_WRITES = WRITES_OF_OUTPUTS | MAY_REMOVE_DIR | MAY_MAKE_CHAR | MAY_MAKE_SOCK | MAY_MAKE_FIFO | MAY_MAKE_BLOCK |
                 MAY_MAKE_SYM,
    TCP = 1 << 0 | 1 << 1,     // to bind and to connect, from version 4 on
    ABSTRACT_SOCKETS = 1 << 0, // of other processes, from version 6 on
    OTHER_PROCESSES = 1 << 1,  // to send signals to them
    RULE_PATH_BENEATH = 1,     // the kind of a rule for a folder
    VERSION_ASKED = 1 << 0,    // the flag that asks for the version
};

// What a set of rules restricts. Older versions know the first members only.
struct ruleset {
    uint64_t files, network, scopes;
};
struct path_rule {
    uint64_t allowed;
    int32_t folder;
} __attribute__((packed));

static size_t ruleset_bytes(int version)
{
    return version < 4 ? sizeof(uint64_t) : version < 6 ? 2 * sizeof(uint64_t) : sizeof(struct ruleset);
}

static uint64_t known(int version)
{
    return version < 3 ? ~(uint64_t)MAY_TRUNCATE : ~(uint64_t)0;
}

// A path that does not exist allows nothing. False where there is no descriptor or memory to open it: a set of rules without
// it would refuse what it should allow.
static bool allow(int rules, const char *path, uint64_t handled)
{
    struct stat st;
    struct path_rule rule = {.folder = open(path, O_PATH | O_CLOEXEC)};
    if (rule.folder < 0)
        return errno != EMFILE && errno != ENFILE && errno != ENOMEM;
    const bool is_folder = !fstat(rule.folder, &st) && S_ISDIR(st.st_mode);
    rule.allowed = handled & (uint64_t)(is_folder ? WRITES_OF_OUTPUTS : WRITES_OF_FILES);
    if (rule.allowed)
        syscall(CALL_LANDLOCK_RULE, rules, RULE_PATH_BENEATH, &rule, 0);
    close(rule.folder);
    return true;
}

static int enter_landlock(const struct sandbox_needs *needs)
{
    const int version = (int)syscall(CALL_LANDLOCK_CREATE, NULL, 0, VERSION_ASKED);
    if (version < 1)
        return 0;
    const struct ruleset set = {
        .files = known(version) & ((needs->writes ? 0 : ALL_WRITES) | (needs->executes ? 0 : MAY_EXECUTE)),
        .network = needs->connects ? 0 : TCP,
        .scopes = needs->connects ? 0 : ABSTRACT_SOCKETS | OTHER_PROCESSES,
    };
    if (!set.files && !set.network)
        return 0;
    const int rules = (int)syscall(CALL_LANDLOCK_CREATE, &set, ruleset_bytes(version), 0);
    if (rules < 0)
        return 0;
    bool whole = true;
    for (int i = 0; whole && i < needs->n_folders; i++)
        whole = allow(rules, needs->folders[i], set.files);
    const bool entered = whole && !syscall(CALL_LANDLOCK_RESTRICT, rules, 0);
    close(rules);
    return entered ? version : 0;
}

// --- seccomp ---

#if defined(__x86_64__)
static const uint32_t our_architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
static const uint32_t our_architecture = AUDIT_ARCH_AARCH64;
#else
static const uint32_t our_architecture = 0;
#endif
enum { X32_BIT = 0x40000000 };

enum group { NEVER, EXECUTE, CONNECT };
static const struct {
    int number;
    enum group group;
} refused[] = {
    {SYS_execve, EXECUTE},
    {SYS_execveat, EXECUTE},
    {SYS_socket, CONNECT},
    {SYS_socketpair, CONNECT},
    {SYS_connect, CONNECT},
    {SYS_bind, CONNECT},
    {SYS_listen, CONNECT},
    {SYS_accept, CONNECT},
    {SYS_accept4, CONNECT},
    {CALL_IO_URING_SETUP, CONNECT}, // whose queues can open sockets without a call
    {SYS_ptrace, NEVER},
    {SYS_process_vm_readv, NEVER},
    {SYS_process_vm_writev, NEVER},
    {CALL_PIDFD_GETFD, NEVER},
    {SYS_bpf, NEVER},
    {SYS_keyctl, NEVER},
    {SYS_add_key, NEVER},
    {SYS_request_key, NEVER},
    {SYS_mount, NEVER},
    {SYS_umount2, NEVER},
    {SYS_pivot_root, NEVER},
    {SYS_chroot, NEVER},
    {SYS_unshare, NEVER},
    {SYS_setns, NEVER},
    {SYS_init_module, NEVER},
    {SYS_finit_module, NEVER},
    {SYS_delete_module, NEVER},
    {SYS_kexec_load, NEVER},
    {SYS_reboot, NEVER},
    {SYS_swapon, NEVER},
    {SYS_open_by_handle_at, NEVER},
};
enum { FILTER_MAX = 2 * sizeof refused / sizeof *refused + 8 };

struct program {
    struct sock_filter at[FILTER_MAX];
    unsigned short n;
};

static void add(struct program *p, struct sock_filter one)
{
    p->at[p->n++] = one;
}

static void add_refusal(struct program *p)
{
    add(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
}

static void make_filter(struct program *p, const struct sandbox_needs *needs)
{
    p->n = 0;
    add(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, our_architecture, 1, 0));
    add_refusal(p);
    add(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1));
    add_refusal(p);
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        if ((refused[i].group == EXECUTE && needs->executes) || (refused[i].group == CONNECT && needs->connects))
            continue;
        add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refused[i].number, 0, 1));
        add_refusal(p);
    }
    add(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

// All threads get the filter where the kernel can do that, else the calling one and those that it starts.
static bool enter_seccomp(const struct sandbox_needs *needs)
{
    struct program p;
    if (our_architecture == 0)
        return false;
    make_filter(&p, needs);
    const struct sock_fprog filter = {p.n, p.at};
    return !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) ||
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

// --- all of it ---

struct sandbox_level sandbox_enter(const struct sandbox_needs *needs)
{
    struct sandbox_level level = {0};
    level.no_new_privs = possible && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (!level.no_new_privs) // the others need it
        return level;
    level.landlock = enter_landlock(needs);
    level.seccomp = enter_seccomp(needs);
    level.sockets = needs->connects;
    return level;
}

void sandbox_describe(const struct sandbox_level *level, struct text *out)
{
    text_print(out, "sandbox: %s", level->no_new_privs ? "no new privileges" : "none");
    if (level->landlock)
        text_print(out, "; files are written in the folders of outputs alone (Landlock %d)", level->landlock);
    if (level->seccomp)
        text_print(out, "; no programs%s or tracing (seccomp)",
                   level->sockets ? ", but sockets, for the driver of a GPU," : ", sockets");
    text_print(out, "\n");
}
