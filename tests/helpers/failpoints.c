/* Makes one of the operations by which a process changes files fail, to be loaded by LD_PRELOAD.

   Once armed, operations on files below a folder are counted, and the k-th fails in the way that
   was asked for. This wraps libc, not the program under test: Python and Rust (safetensors,
   tokenizers) all come through here, so no call is missed for being deep inside a library. The
   one that goes around libc, the rename by which safetensors puts a file in its place, is caught
   on its way into the kernel. Only what changes the disk counts: to open a file for reading does
   not, to fsync it does. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

enum { CRASH_BEFORE = 1, CRASH_AFTER, IO_ERROR, DISK_FULL, SHORT_WRITE, DEAD_DISK };
enum { MOST = 10000, CRASHED = 9 };

static char prefix[PATH_MAX], full[PATH_MAX];
static const char *names[MOST];
static long at, count;
static int mode;

void failpoints_arm(const char *folder, long k, int how) {
    snprintf(prefix, sizeof prefix, "%s", folder);
    full[0] = '\0';
    at = k, mode = how, count = 0;
}

long failpoints_count(void) { return count; }

const char *failpoints_name(long k) { return names[k - 1]; }

static int below(const char *path) {
    size_t length = strlen(prefix);
    return length && !strncmp(path, prefix, length) && (path[length] == '/' || !path[length]);
}

static char *of_fd(int fd, char *path) { /* PATH_MAX bytes */
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = '\0';
    return path;
}

static int fd_below(int fd) {
    char path[PATH_MAX];
    return *prefix && below(of_fd(fd, path));
}

static int path_below(int folder, const char *path) {
    char start[PATH_MAX], whole[2 * PATH_MAX];
    if (!*prefix || path[0] == '/') return below(path);
    if (folder != AT_FDCWD) of_fd(folder, start);
    else if (!getcwd(start, sizeof start)) return 0;
    snprintf(whole, sizeof whole, "%s/%s", start, path);
    return below(whole);
}

/* Count an operation; say whether it is refused, with errno set. */
static int refused(const char *name) {
    if (count < MOST) names[count] = name;
    count++;
    if (mode == DEAD_DISK && count >= at) return errno = EIO; /* and never works again */
    if (count != at) return 0;
    if (mode == CRASH_BEFORE) _exit(CRASHED);
    return errno = mode == IO_ERROR ? EIO : mode == DISK_FULL ? ENOSPC : 0;
}

static long done(long result) {
    if (mode == CRASH_AFTER && count == at) _exit(CRASHED);
    return result;
}

/* As a disk that fills up does: half of the bytes go in, and no more after them. */
static int cut(int fd, size_t *bytes) {
    char path[PATH_MAX];
    if (mode != SHORT_WRITE || (count != at && !*full)) return 0;
    of_fd(fd, path);
    if (count == at) strcpy(full, path), *bytes /= 2;
    else if (!strcmp(full, path)) *bytes = 0;
    return *bytes ? 0 : (errno = ENOSPC);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define WRAP(name, parameters, arguments, changes)                  \
    int name parameters {                                           \
        if (!(changes)) return REAL(name) arguments;                \
        return refused(#name) ? -1 : done(REAL(name) arguments);    \
    }

#define WRAP_WRITE(name, parameters, arguments, fd, bytes)          \
    ssize_t name parameters {                                       \
        if (!fd_below(fd)) return REAL(name) arguments;             \
        if (refused(#name) || cut(fd, &bytes)) return -1;           \
        return done(REAL(name) arguments);                          \
    }

#define WRAP_OPEN(name, parameters, arguments, folder)              \
    int name parameters {                                           \
        va_list more;                                               \
        va_start(more, flags);                                      \
        mode_t bits = flags & O_CREAT ? va_arg(more, mode_t) : 0;   \
        va_end(more);                                               \
        int changes = flags & (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR); \
        if (!changes || !path_below(folder, path)) return REAL(name) arguments; \
        return refused(#name) ? -1 : done(REAL(name) arguments);    \
    }

WRAP_OPEN(open, (const char *path, int flags, ...), (path, flags, bits), AT_FDCWD)
WRAP_OPEN(open64, (const char *path, int flags, ...), (path, flags, bits), AT_FDCWD)
WRAP_OPEN(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, bits), dir)
WRAP_OPEN(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, bits), dir)
WRAP(creat, (const char *path, mode_t bits), (path, bits), path_below(AT_FDCWD, path))

WRAP_WRITE(write, (int fd, const void *from, size_t n), (fd, from, n), fd, n)
WRAP_WRITE(pwrite, (int fd, const void *from, size_t n, off_t to), (fd, from, n, to), fd, n)
WRAP_WRITE(pwrite64, (int fd, const void *from, size_t n, off64_t to), (fd, from, n, to), fd, n)
WRAP_WRITE(sendfile, (int fd, int in, off_t *from, size_t n), (fd, in, from, n), fd, n)
WRAP_WRITE(copy_file_range, (int in, off64_t *from, int fd, off64_t *to, size_t n, unsigned flags),
           (in, from, fd, to, n, flags), fd, n)

ssize_t writev(int fd, const struct iovec *parts, int number) {
    if (!fd_below(fd)) return REAL(writev)(fd, parts, number);
    struct iovec first = number ? parts[0] : (struct iovec){0};
    if (refused("writev") || cut(fd, &first.iov_len)) return -1;
    int shorter = number && first.iov_len != parts[0].iov_len;
    return done(REAL(writev)(fd, shorter ? &first : parts, shorter ? 1 : number));
}

WRAP(fsync, (int fd), (fd), fd_below(fd))
WRAP(fdatasync, (int fd), (fd), fd_below(fd))
WRAP(ftruncate, (int fd, off_t length), (fd, length), fd_below(fd))
WRAP(ftruncate64, (int fd, off64_t length), (fd, length), fd_below(fd))
WRAP(truncate, (const char *path, off_t length), (path, length), path_below(AT_FDCWD, path))
WRAP(truncate64, (const char *path, off64_t length), (path, length), path_below(AT_FDCWD, path))
WRAP(fallocate, (int fd, int how, off_t from, off_t n), (fd, how, from, n), fd_below(fd))

int posix_fallocate(int fd, off_t from, off_t n) { /* returns its error, and leaves errno alone */
    if (!fd_below(fd)) return REAL(posix_fallocate)(fd, from, n);
    return refused("posix_fallocate") ? errno : done(REAL(posix_fallocate)(fd, from, n));
}

WRAP(rename, (const char *from, const char *to), (from, to),
     path_below(AT_FDCWD, from) || path_below(AT_FDCWD, to))
WRAP(renameat2, (int a, const char *from, int b, const char *to, unsigned flags),
     (a, from, b, to, flags), path_below(a, from) || path_below(b, to))
WRAP(link, (const char *from, const char *to), (from, to), path_below(AT_FDCWD, to))
WRAP(linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags),
     path_below(b, to))
WRAP(symlink, (const char *to, const char *path), (to, path), path_below(AT_FDCWD, path))
WRAP(mkdir, (const char *path, mode_t bits), (path, bits), path_below(AT_FDCWD, path))
WRAP(mkdirat, (int dir, const char *path, mode_t bits), (dir, path, bits), path_below(dir, path))
WRAP(unlink, (const char *path), (path), path_below(AT_FDCWD, path))
WRAP(unlinkat, (int dir, const char *path, int flags), (dir, path, flags), path_below(dir, path))
WRAP(rmdir, (const char *path), (path), path_below(AT_FDCWD, path))

#ifdef __x86_64__
static void renameat_called(int signal, siginfo_t *info, void *context) {
    greg_t *all = ((ucontext_t *)context)->uc_mcontext.gregs;
    int a = all[REG_RDI], b = all[REG_RDX];
    const char *from = (const char *)all[REG_RSI], *to = (const char *)all[REG_R10];
    int counts = path_below(a, from) || path_below(b, to);
    (void)signal, (void)info;
    if (counts && refused("renameat")) { all[REG_RAX] = -errno; return; }
    long result = syscall(SYS_renameat2, a, from, b, to, 0); /* the same, and not trapped */
    all[REG_RAX] = result < 0 ? -errno : 0;
    if (counts) done(result);
}

/* Where a sandbox forbids this, two operations of a commit go uncounted. */
__attribute__((constructor)) static void trap_renameat(void) {
    struct sigaction action = {.sa_sigaction = renameat_called, .sa_flags = SA_SIGINFO};
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    sigaction(SIGSYS, &action, NULL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}
#else
WRAP(renameat, (int a, const char *from, int b, const char *to), (a, from, b, to),
     path_below(a, from) || path_below(b, to))
#endif
