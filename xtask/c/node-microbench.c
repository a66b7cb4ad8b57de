/*
 * The rows of node-microbench that the C library alone can answer, each a plain loop: what the figures of
 * `handover node-microbench` are held against by `cargo xtask peers --classics`. The C compiler decides how
 * each is called, and nothing is done with the answers.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

/* The compiler takes the value for changed, which costs no instruction. */
#define FORGET(value) __asm__ volatile("" : "+r"(value))

static const char *set_name = "LOGNAME";

static uint64_t __attribute__((noinline)) next(uint64_t i)
{
    FORGET(i);
    return i + 1;
}

static void fn_call_cross_object(uint64_t n)
{
    for (uint64_t i = 0; i < n; i = next(i))
        FORGET(i);
}

static void ask_gettimeofday(uint64_t n)
{
    struct timeval now;
    for (uint64_t i = 0; i < n; i++)
        gettimeofday(&now, NULL);
}

#define CLOCK(function, clock)                \
    static void function(uint64_t n)          \
    {                                         \
        struct timespec now;                  \
        for (uint64_t i = 0; i < n; i++)      \
            clock_gettime(clock, &now);       \
    }
CLOCK(ask_realtime, CLOCK_REALTIME)
CLOCK(ask_realtime_coarse, CLOCK_REALTIME_COARSE)
CLOCK(ask_monotonic, CLOCK_MONOTONIC)
CLOCK(ask_monotonic_coarse, CLOCK_MONOTONIC_COARSE)

static void lock_of_kind(int kind, uint64_t n)
{
    pthread_mutexattr_t attributes;
    pthread_mutex_t mutex;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, kind);
    pthread_mutex_init(&mutex, &attributes);
    for (uint64_t i = 0; i < n; i++) {
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_destroy(&mutex);
    pthread_mutexattr_destroy(&attributes);
}

static void lock_mutex(uint64_t n)
{
    lock_of_kind(PTHREAD_MUTEX_NORMAL, n);
}

static void lock_recursive(uint64_t n)
{
    lock_of_kind(PTHREAD_MUTEX_RECURSIVE, n);
}

static void lock_spin(uint64_t n)
{
    pthread_spinlock_t spin;
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
    for (uint64_t i = 0; i < n; i++) {
        pthread_spin_lock(&spin);
        pthread_spin_unlock(&spin);
    }
    pthread_spin_destroy(&spin);
}

static void lock_atomic(uint64_t n)
{
    atomic_flag flag = ATOMIC_FLAG_INIT;
    for (uint64_t i = 0; i < n; i++) {
        while (atomic_flag_test_and_set(&flag)) {
        }
        atomic_flag_clear(&flag);
    }
}

static void ask_rdtscp(uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        unsigned cpu;
        uint64_t now = __rdtscp(&cpu);
        FORGET(now);
    }
}

/* Through a pointer that the compiler does not know: the headers declare the function const, so
   that it would be called once, and the loop be empty. */
static void ask_self(uint64_t n)
{
    pthread_t (*self)(void) = pthread_self;
    for (uint64_t i = 0; i < n; i++) {
        FORGET(self);
        pthread_t found = self();
        FORGET(found);
    }
}

static void ask_gettid(uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        gettid();
}

static void look_up(const char *name, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const char *found = getenv(name);
        FORGET(found);
    }
}

static void look_up_set(uint64_t n)
{
    look_up(set_name, n);
}

static void look_up_unset(uint64_t n)
{
    look_up("NONEXISTENT", n);
}

static const struct {
    const char *name;
    void (*loop)(uint64_t n);
} rows[] = {
    {"fn_call_cross_object", fn_call_cross_object},
    {"gettimeofday", ask_gettimeofday},
    {"clock_gettime(REALTIME)", ask_realtime},
    {"clock_gettime(REALTIME_COARSE)", ask_realtime_coarse},
    {"clock_gettime(MONOTONIC)", ask_monotonic},
    {"clock_gettime(MONOTONIC_COARSE)", ask_monotonic_coarse},
    {"pthread_mutex_lock/unlock", lock_mutex},
    {"pthread_mutex_recursive_lock/unlock", lock_recursive},
    {"pthread_spin_lock/unlock", lock_spin},
    {"stdatomic lock/unlock", lock_atomic},
    {"rdtscp", ask_rdtscp},
    {"pthread_self", ask_self},
    {"gettid", ask_gettid},
    {"getenv of set variable", look_up_set},
    {"getenv of unset variable", look_up_unset},
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void *sleep_until_exit(void *unused)
{
    for (;;)
        pause();
    return unused;
}

int main(int argc, char **argv)
{
    unsigned long millions = argc == 3 && strcmp(argv[1], "-m") == 0 ? strtoul(argv[2], NULL, 10) : 0;
    if (millions == 0) {
        fprintf(stderr, "usage: node-microbench -m MILLIONS\n");
        return 2;
    }
    /* In a process with one thread, glibc's mutex uses no atomic operation; handover has several
     * threads. */
    pthread_t sleeper;
    if (pthread_create(&sleeper, NULL, sleep_until_exit, NULL) != 0) {
        fprintf(stderr, "node-microbench: cannot start a thread\n");
        return 1;
    }
    if (getenv(set_name) == NULL)
        set_name = "PATH";
    printf("#<test case>\t<m_ops>\t<total s>\t<m_ops/s>\t<ns/op>\n");
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        double began = seconds();
        rows[row].loop(millions * 1000000);
        double took = seconds() - began;
        printf("\"%s\"\t%lu\t%f\t%f\t%f\n", rows[row].name, millions, took, (double)millions / took,
               took * 1000.0 / (double)millions);
        fflush(stdout);
    }
    return 0;
}
