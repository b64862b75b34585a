/* A libnvidia-ml.so.1 without a GPU: it plays the world that the small text file FAKE_NVML_WORLD describes, read again
 * when it has changed, and writes the name of each function called to FAKE_NVML_CALLS, a line each.
 *
 *   init CODE                        what nvmlInit returns
 *   epoch N                          another number is a driver restart: all is uninitialized until the next nvmlInit
 *   driver N                         its version: a library that was loaded beside another one has a mismatch for ever
 *   crash FUNCTION                   a call of it is a segmentation fault
 *   hang FUNCTION                    calls of it do not return while this line stands
 *   fail FUNCTION UNIT CODE          calls of it on "0", "0:1" or "*" return CODE
 *   count N                          how many GPUs nvmlDeviceGetCount tells, whatever there is
 *   room N                           how many entries a list of processes tells of, whatever it gave
 *   wide                             process entries of version 3 take 32 bytes, as drivers 535.43 to 535.86 wrote them
 *   gpu INDEX UUID MINOR TOTAL FREE MIG NAME
 *   mig GPU INDEX UUID TOTAL FREE NAME
 *   proc UNIT KIND PID BYTES         KIND is Compute, Graphics or MPSCompute; BYTES may be "na"
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, MISMATCH = 18 };
enum { MAX = 64, LINE = 512 };

struct unit { char key[16], uuid[96], name[96]; int gpu, mig, minor, mig_mode; unsigned long long total, free; };
struct proc { char key[16], kind[16]; unsigned pid; unsigned long long bytes; };
struct fail { char function[64], key[16]; int code; };
struct world {
    int init, epoch, driver, wide, hangs, units, procs, fails;
    unsigned count, room;
    char hang[8][64], crash[64];
    struct unit unit[MAX];
    struct proc proc[MAX];
    struct fail fail[MAX];
};

static int initialized, epoch_of_init, driver_of_load;

static void count(const char *function)
{
    char line[80], *file = getenv("FAKE_NVML_CALLS");
    if (!file) return;
    int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (write(fd, line, (size_t)snprintf(line, sizeof line, "%s\n", function)) < 0) abort();
    close(fd);
}

static void take(struct world *w, const char *line)
{
    char bytes[32];
    struct unit u = {.mig = -1};
    struct proc p = {0};
    struct fail f = {0};
    if (sscanf(line, "init %d", &w->init) == 1 || sscanf(line, "epoch %d", &w->epoch) == 1 ||
        sscanf(line, "driver %d", &w->driver) == 1 || sscanf(line, "crash %63s", w->crash) == 1 ||
        sscanf(line, "count %u", &w->count) == 1 || sscanf(line, "room %u", &w->room) == 1) return;
    if (!strncmp(line, "wide", 4)) w->wide = 1;
    else if (w->hangs < 8 && sscanf(line, "hang %63s", w->hang[w->hangs]) == 1) w->hangs++;
    else if (w->fails < MAX && sscanf(line, "fail %63s %15s %d", f.function, f.key, &f.code) == 3) w->fail[w->fails++] = f;
    else if (w->units < MAX && sscanf(line, "gpu %d %95s %d %llu %llu %d %95[^\n]", &u.gpu, u.uuid, &u.minor, &u.total,
                                      &u.free, &u.mig_mode, u.name) == 7) {
        snprintf(u.key, sizeof u.key, "%d", u.gpu);
        w->unit[w->units++] = u;
    } else if (w->units < MAX && sscanf(line, "mig %d %d %95s %llu %llu %95[^\n]", &u.gpu, &u.mig, u.uuid, &u.total,
                                        &u.free, u.name) == 6) {
        snprintf(u.key, sizeof u.key, "%d:%d", u.gpu, u.mig);
        w->unit[w->units++] = u;
    } else if (w->procs < MAX && sscanf(line, "proc %15s %15s %u %31s", p.key, p.kind, &p.pid, bytes) == 4) {
        p.bytes = strcmp(bytes, "na") ? strtoull(bytes, NULL, 10) : ~0ULL;
        w->proc[w->procs++] = p;
    }
}

static void look(struct world *w)
{
    static struct world known;
    static struct stat of_known;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char line[LINE], *file = getenv("FAKE_NVML_WORLD");
    struct stat now;
    pthread_mutex_lock(&lock);
    if (file && !stat(file, &now) && (now.st_ino != of_known.st_ino || now.st_mtim.tv_nsec != of_known.st_mtim.tv_nsec)) {
        FILE *f = fopen(file, "r");
        memset(&known, 0, sizeof known);
        while (f && fgets(line, sizeof line, f)) take(&known, line);
        if (f) fclose(f);
        of_known = now;
    }
    *w = known;
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void load(void)
{
    struct world w;
    look(&w);
    driver_of_load = w.driver;
}

static int hangs(const struct world *w, const char *function)
{
    for (int i = 0; i < w->hangs; i++)
        if (!strcmp(w->hang[i], function)) return 1;
    return 0;
}

/* the world as `function` finds it, once it no longer hangs */
static void enter(struct world *w, const char *function)
{
    count(function);
    for (look(w); hangs(w, function); look(w)) usleep(5000);
    if (!strcmp(w->crash, function)) raise(SIGSEGV);
}

static int failure(const struct world *w, const char *function, const char *key)
{
    for (int i = 0; i < w->fails; i++)
        if (!strcmp(w->fail[i].function, function) && (!strcmp(w->fail[i].key, "*") || !strcmp(w->fail[i].key, key)))
            return w->fail[i].code;
    return OK;
}

static int live(const struct world *w) { return initialized && epoch_of_init == w->epoch; }

static struct unit *find(struct world *w, int gpu, int mig)
{
    for (int i = 0; i < w->units; i++)
        if (w->unit[i].gpu == gpu && w->unit[i].mig == mig) return &w->unit[i];
    return NULL;
}

/* handles carry the epoch they were given in: none outlives a restart */
static void *handle_of(const struct world *w, int gpu, int mig)
{
    return (void *)(uintptr_t)((unsigned)(w->epoch + 1) << 16 | (unsigned)(gpu + 1) << 8 | (unsigned)(mig + 1));
}

static int enter_unit(struct world *w, const char *function, void *handle, struct unit **u)
{
    uintptr_t h = (uintptr_t)handle;
    enter(w, function);
    if (!live(w)) return UNINITIALIZED;
    if ((int)(h >> 16) != w->epoch + 1) return INVALID;
    *u = find(w, (int)(h >> 8 & 255) - 1, (int)(h & 255) - 1);
    return *u ? failure(w, function, (*u)->key) : INVALID;
}

int nvmlInitWithFlags(unsigned flags)
{
    struct world w;
    (void)flags;
    enter(&w, "nvmlInitWithFlags");
    if (w.init) return w.init;
    if (w.driver != driver_of_load) return MISMATCH;
    initialized = live(&w) ? initialized + 1 : 1;
    epoch_of_init = w.epoch;
    return OK;
}

int nvmlShutdown(void)
{
    struct world w;
    enter(&w, "nvmlShutdown");
    if (!live(&w)) return UNINITIALIZED;
    initialized--;
    return OK;
}

const char *nvmlErrorString(int code) { return code ? "an error of the fake" : "Success"; }

int nvmlDeviceGetCount_v2(unsigned *n)
{
    struct world w;
    enter(&w, "nvmlDeviceGetCount_v2");
    if (!live(&w)) return UNINITIALIZED;
    *n = 0;
    for (int i = 0; i < w.units; i++) *n += w.unit[i].mig < 0;
    if (w.count) *n = w.count;
    return failure(&w, "nvmlDeviceGetCount_v2", "*");
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    struct world w;
    enter(&w, "nvmlDeviceGetHandleByIndex_v2");
    if (!live(&w)) return UNINITIALIZED;
    struct unit *u = find(&w, (int)index, -1);
    if (!u) return INVALID;
    *handle = handle_of(&w, u->gpu, -1);
    return failure(&w, "nvmlDeviceGetHandleByIndex_v2", u->key);
}

int nvmlDeviceGetUUID(void *handle, char *out, unsigned size)
{
    struct world w;
    struct unit *u;
    int rc = enter_unit(&w, "nvmlDeviceGetUUID", handle, &u);
    if (!rc) snprintf(out, size, "%s", u->uuid);
    return rc;
}

int nvmlDeviceGetName(void *handle, char *out, unsigned size)
{
    struct world w;
    struct unit *u;
    int rc = enter_unit(&w, "nvmlDeviceGetName", handle, &u);
    if (!rc) snprintf(out, size, "%s", u->name);
    return rc;
}

int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor)
{
    struct world w;
    struct unit *u;
    int rc = enter_unit(&w, "nvmlDeviceGetMinorNumber", handle, &u);
    if (!rc) *minor = (unsigned)u->minor;
    return rc;
}

int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *total_free_used)
{
    struct world w;
    struct unit *u;
    int rc = enter_unit(&w, "nvmlDeviceGetMemoryInfo", handle, &u);
    if (rc) return rc;
    total_free_used[0] = u->total;
    total_free_used[1] = u->free;
    total_free_used[2] = u->total - u->free;
    return OK;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending)
{
    struct world w;
    struct unit *u;
    int rc = enter_unit(&w, "nvmlDeviceGetMigMode", handle, &u);
    if (rc) return rc;
    if (u->mig_mode < 0) return NOT_SUPPORTED;
    *current = *pending = (unsigned)u->mig_mode;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *n)
{
    struct world w;
    struct unit *u;
    int rc = enter_unit(&w, "nvmlDeviceGetMaxMigDeviceCount", handle, &u);
    if (!rc) *n = 7;
    return rc;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **out)
{
    struct world w;
    struct unit *u;
    int rc = enter_unit(&w, "nvmlDeviceGetMigDeviceHandleByIndex", handle, &u);
    if (rc) return rc;
    if (!find(&w, u->gpu, (int)index)) return NOT_FOUND;
    *out = handle_of(&w, u->gpu, (int)index);
    return OK;
}

/* the two-call protocol: too small a buffer gives the count back with INSUFFICIENT_SIZE */
static int processes(const char *function, const char *kind, int version, void *handle, unsigned *n, char *out)
{
    struct world w;
    struct unit *u;
    unsigned have = 0, room = *n;
    int rc = enter_unit(&w, function, handle, &u);
    if (rc) return rc;
    size_t stride = w.wide && version == 3 ? 32 : 24;
    for (int i = 0; i < w.procs; i++) {
        const struct proc *p = &w.proc[i];
        if (strcmp(p->key, u->key) || strcmp(p->kind, kind)) continue;
        if (out && have < room && (have + 1) * stride <= (size_t)room * 24) {
            unsigned instance[2] = {~0U, ~0U};
            unsigned long long protected_bytes = 0, padded_pid = p->pid;
            memcpy(out + have * stride, &padded_pid, 8);
            memcpy(out + have * stride + 8, &p->bytes, 8);
            memcpy(out + have * stride + 16, instance, 8);
            if (stride == 32) memcpy(out + have * stride + 24, &protected_bytes, 8);
        }
        have++;
    }
    *n = w.room && have ? w.room : have;
    return have > room ? INSUFFICIENT_SIZE : OK;
}

#define PROCESSES(KIND, VERSION)                                                                                     \
    int nvmlDeviceGet##KIND##RunningProcesses_v##VERSION(void *handle, unsigned *n, char *out)                       \
    {                                                                                                                \
        return processes("nvmlDeviceGet" #KIND "RunningProcesses_v" #VERSION, #KIND, VERSION, handle, n, out);       \
    }

PROCESSES(Compute, 2)
PROCESSES(Compute, 3)
PROCESSES(Graphics, 2)
PROCESSES(Graphics, 3)
PROCESSES(MPSCompute, 2)
PROCESSES(MPSCompute, 3)
