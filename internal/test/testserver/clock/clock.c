// The time of day for a server's processes: the machine's, and as many nanoseconds more as the file
// $PENSTOCK_TEST_CLOCK says. Preloaded. PostgreSQL asks for the time in signal handlers, too, so nothing here
// allocates or locks. Clocks that measure durations stay as they are, as on a machine whose clock is set.
//
// It includes nothing and links with nothing, so that a compiler is all it needs.

struct timespec { long sec, nsec; };
struct timeval { long sec, usec; };

extern long syscall(long, ...);
extern int open(const char *, int, ...), close(int);
extern void *mmap(void *, unsigned long, int, int, int, long);
extern char *getenv(const char *);

#if defined(__x86_64__)
enum { sys_clock_gettime = 228 };
#elif defined(__aarch64__)
enum { sys_clock_gettime = 113 };
#endif
enum { realtime = 0, realtime_coarse = 5, read_only = 0, prot_read = 1, map_shared = 1, second = 1000000000 };

static const volatile long *offset;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("PENSTOCK_TEST_CLOCK");
	int fd = path ? open(path, read_only) : -1;
	if (fd < 0)
		return;
	void *mapped = mmap(0, sizeof *offset, prot_read, map_shared, fd, 0);
	if (mapped != (void *)-1)
		offset = mapped;
	close(fd);
}

int clock_gettime(int id, struct timespec *t)
{
	int failed = syscall(sys_clock_gettime, id, t);
	if (failed || !offset || (id != realtime && id != realtime_coarse))
		return failed;
	long by = *offset;
	t->sec += by / second;
	t->nsec += by % second;
	if (t->nsec < 0)
		t->sec--, t->nsec += second;
	else if (t->nsec >= second)
		t->sec++, t->nsec -= second;
	return 0;
}

int gettimeofday(struct timeval *t, void *zone __attribute__((unused)))
{
	struct timespec now;
	int failed = clock_gettime(realtime, &now);
	t->sec = now.sec, t->usec = now.nsec / 1000;
	return failed;
}

long time(long *t)
{
	struct timespec now;
	clock_gettime(realtime, &now);
	if (t)
		*t = now.sec;
	return now.sec;
}
